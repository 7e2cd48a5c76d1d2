// Elements of panels, two neighbours of 32 bits in one word: a device that loads lane by lane loads twice as much at once.
// The including kernel defines ELEMENT, its STORAGE, PAIRS (1 where two elements fit a word), BITS and OF_BITS.

#if PAIRS
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Words { uint64_t v[]; };
#define WORD(b, i) Words(uint64_t(b) + uint64_t(i) * 4ul).v[0]
#define LOAD_PAIR(b, i, e, f) { uvec2 pair = unpack32(WORD(b, i)); e = OF_BITS(pair.x); f = OF_BITS(pair.y); }
#define STORE_PAIR(b, i, x, y) WORD(b, i) = pack64(uvec2(BITS(x), BITS(y)))
#else
#define PANEL_AT_(T, b, i) AT(T, b, i)
#define PANEL_AT(b, i) PANEL_AT_(STORAGE, b, i)
#define LOAD_PAIR(b, i, e, f) { e = ELEMENT(PANEL_AT(b, i)); f = ELEMENT(PANEL_AT(b, (i) + 1)); }
#define STORE_PAIR(b, i, x, y) { PANEL_AT(b, i) = STORAGE(x); PANEL_AT(b, (i) + 1) = STORAGE(y); }
#endif

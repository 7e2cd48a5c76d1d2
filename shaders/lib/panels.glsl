// Elements of panels, two neighbours at once: a device that loads lane by lane loads 64 bits as fast as 32. `at` is the address
// of the first. The including kernel defines ELEMENT, its STORAGE, PAIRS (1 where two elements fit a word), BITS and OF_BITS.
//
// `p.none` is 0, which the compiler does not know: upper halves would be kept in the 512 bits that they are shuffled in.

#if PAIRS
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Words { uint64_t v; };
#define LOAD_PAIR(at, x, y) { uvec2 pair = unpack32(Words(at).v); x = OF_BITS(pair.x); y = OF_BITS(pair.y ^ p.none); }
#define STORE_PAIR(at, x, y) Words(at).v = pack64(uvec2(BITS(x), BITS(y)))
#else
layout(buffer_reference, scalar) buffer Pair { STORAGE first, second; };
#define LOAD_PAIR(at, x, y) { Pair pair = Pair(at); x = ELEMENT(pair.first); y = ELEMENT(pair.second); }
#define STORE_PAIR(at, x, y) { Pair pair = Pair(at); pair.first = STORAGE(x); pair.second = STORAGE(y); }
#endif

#define ADDRESS(base, i) (uint64_t(base) + uint64_t(i) * SIZE)

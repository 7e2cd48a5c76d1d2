// One operand of `lib/matmul.glsl`, which includes this for each: its tile in shared memory and the way there. Lines are
// A's rows or B's columns. OPERAND(name) is A_name or B_name; LINES are those of the tile, LINE(i) is the part of an
// element's place that its line gives, ALONG_K says whether neighbouring threads should load neighbours along k, BORDERS
// whether elements are missing, APART whether those of a four may be anywhere.

const uint OPERAND(unit) = QUADS != 0 ? 4 : 1, OPERAND(loads) = LINES * BK / OPERAND(unit);
const uint OPERAND(turns) = (OPERAND(loads) + THREADS - 1) / THREADS;

// One vector more, so that columns of the tile lie in different banks.
shared VECTOR OPERAND(tile)[2][BK][LINES / WIDTH + 1];

OPERAND(STORED) OPERAND(fetched)[OPERAND(turns)];
// One where all loads of a thread are of one line.
const uint OPERAND(lines) = ALONG_K == 0 && THREADS % (LINES / OPERAND(unit)) == 0 ? 1 : OPERAND(turns);
// Of a four the first, or each.
const uint OPERAND(each) = APART != 0 ? 4 : 1;
IDX OPERAND(places)[OPERAND(lines)][OPERAND(each)];
#if BORDERS
uint OPERAND(words)[OPERAND(lines)][OPERAND(each)];
#define EXISTS(line, c, start, k) ((OPERAND(words)[line][c] & DEPTH_WORD(start, k)) == 0)
#else
#define EXISTS(line, c, start, k) true
#endif

// Where in the tile load `e` begins, and whether there is such a load.
uint OPERAND(k)(uint e) {
  return ALONG_K != 0 ? e * OPERAND(unit) % BK : e / (LINES / OPERAND(unit));
}
uint OPERAND(line)(uint e) {
  return ALONG_K != 0 ? e * OPERAND(unit) / BK : e % (LINES / OPERAND(unit)) * OPERAND(unit);
}
bool OPERAND(is_load)(uint e) { return OPERAND(loads) % THREADS == 0 || e < OPERAND(loads); }

// Of the tile that begins at line `first` of `count`: lines beyond repeat the last ones, their sums are not stored.
void OPERAND(find_places)(uint lane, IDX first, IDX count) {
  [[unroll]] for (uint t = 0; t < OPERAND(lines); t++) {
    [[unroll]] for (uint c = 0; c < OPERAND(each); c++) {
      IDX line = first + OPERAND(line)(lane + t * THREADS) + c;
      line = min(line, ALONG_K != 0 || APART != 0 ? count - 1 : (count - 1) / OPERAND(unit) * OPERAND(unit));
      OPERAND(places)[t][c] = LINE(line);
#if BORDERS
      OPERAND(words)[t][c] = LINE_WORD(line);
#endif
    }
  }
}

// Loads what this thread brings to a step of `count` elements along k from `start`; zeros to a shorter one than BK, and
// beyond borders.
void OPERAND(fetch)(uint lane, IDX start, uint count) {
  [[unroll]] for (uint t = 0; t < OPERAND(turns); t++) {
    uint e = lane + t * THREADS, k = OPERAND(k)(e), line = OPERAND(lines) == 1 ? 0 : t;
    if (BORDERS != 0 || count != BK) OPERAND(fetched)[t] = OPERAND(STORED)(0);
    bool within = OPERAND(is_load)(e) && (count == BK || k < count);
#if APART
    if (within) {
      IDX depth = OPERAND(DEPTH)(start, k);
      [[unroll]] for (uint c = 0; c < 4; c++) {
        if (EXISTS(line, c, start, k)) OPERAND(fetched)[t][c] = OPERAND(AT)(OPERAND(places)[line][c] + depth);
      }
    }
#else
    if (within && EXISTS(line, 0, start, k)) {
      IDX place = OPERAND(places)[line][0] + OPERAND(DEPTH)(start, k);
#if QUADS
      OPERAND(fetched)[t] = OPERAND(QUAD)(place);
#else
      OPERAND(fetched)[t] = OPERAND(AT)(place);
#endif
    }
#endif
  }
}

#if WIDTH == 1
#define PUT(slot, k, i, x) OPERAND(tile)[slot][k][i] = OPERAND(VALUE)(x)
#else
#define PUT(slot, k, i, x) OPERAND(tile)[slot][k][(i) / WIDTH][(i) % WIDTH] = OPERAND(VALUE)(x)
#endif

// Brings to the tile what was fetched.
void OPERAND(put)(uint lane, uint slot) {
  [[unroll]] for (uint t = 0; t < OPERAND(turns); t++) {
    uint e = lane + t * THREADS, k = OPERAND(k)(e), i = OPERAND(line)(e);
    if (OPERAND(is_load)(e)) {
      OPERAND(STORED) x = OPERAND(fetched)[t];
#if !QUADS
      PUT(slot, k, i, x);
#elif ALONG_K
      [[unroll]] for (uint c = 0; c < 4; c++) PUT(slot, k + c, i, x[c]);
#elif WIDTH == 4
      OPERAND(tile)[slot][k][i / 4] =
          VECTOR(OPERAND(VALUE)(x[0]), OPERAND(VALUE)(x[1]), OPERAND(VALUE)(x[2]), OPERAND(VALUE)(x[3]));
#elif WIDTH == 2
      OPERAND(tile)[slot][k][i / 2] = VECTOR(OPERAND(VALUE)(x[0]), OPERAND(VALUE)(x[1]));
      OPERAND(tile)[slot][k][i / 2 + 1] = VECTOR(OPERAND(VALUE)(x[2]), OPERAND(VALUE)(x[3]));
#else
      [[unroll]] for (uint c = 0; c < 4; c++) PUT(slot, k, i + c, x[c]);
#endif
    }
  }
}

#undef PUT
#undef EXISTS
#undef OPERAND
#undef LINES
#undef LINE
#undef ALONG_K
#undef QUADS
#undef BORDERS
#undef APART

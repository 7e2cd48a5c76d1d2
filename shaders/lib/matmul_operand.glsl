// One operand of `lib/matmul.glsl`, which includes this for each: its tile in shared memory and the way there. Lines are
// A's rows or B's columns. OPERAND(name) is A_name or B_name; LINES are those of the tile, LINE(i) is the part of an
// element's place that its line gives, ALONG_K says whether neighbouring threads should load neighbours along k, LOAD_WIDTH how many
// elements are loaded at once, PADDED whether elements are missing, SCATTERED whether those of a unit may be anywhere.

const uint OPERAND(loads) = LINES * BK / LOAD_WIDTH;
const uint OPERAND(turns) = (OPERAND(loads) + THREADS - 1) / THREADS;

// One vector more, so that columns of the tile lie in different banks.
shared VECTOR OPERAND(tile)[2][BK][LINES / WIDTH + 1];

OPERAND(STORED) OPERAND(fetched)[OPERAND(turns)];
// Loads of a line or, where neighbours lie across, of one k. Where a turn is of whole ones, turns differ by constants.
const uint OPERAND(row) = (ALONG_K != 0 ? BK : LINES) / LOAD_WIDTH;
const bool OPERAND(regular) = THREADS % OPERAND(row) == 0;
// One where all loads of a thread are of one line.
const uint OPERAND(lines) = ALONG_K == 0 && OPERAND(regular) ? 1 : OPERAND(turns);
// Of a unit the first, or each.
const uint OPERAND(each) = SCATTERED != 0 ? LOAD_WIDTH : 1;
IDX OPERAND(places)[OPERAND(lines)][OPERAND(each)];
#if PADDED
uint OPERAND(words)[OPERAND(lines)][OPERAND(each)];
#define EXISTS(line, c, start, k) ((OPERAND(words)[line][c] & DEPTH_WORD(start, k)) == 0)
#else
#define EXISTS(line, c, start, k) true
#endif

// In which row of loads a thread's t-th is, and its first element there.
uint OPERAND(outer)(uint lane, uint t) {
  return OPERAND(regular) ? lane / OPERAND(row) + t * (THREADS / OPERAND(row)) : (lane + t * THREADS) / OPERAND(row);
}
uint OPERAND(inner)(uint lane, uint t) {
  return (OPERAND(regular) ? lane % OPERAND(row) : (lane + t * THREADS) % OPERAND(row)) * LOAD_WIDTH;
}

// Where in the tile it begins, and whether there is such a load.
uint OPERAND(k)(uint lane, uint t) { return ALONG_K != 0 ? OPERAND(inner)(lane, t) : OPERAND(outer)(lane, t); }
uint OPERAND(line)(uint lane, uint t) { return ALONG_K != 0 ? OPERAND(outer)(lane, t) : OPERAND(inner)(lane, t); }
bool OPERAND(is_load)(uint lane, uint t) {
  return OPERAND(loads) % THREADS == 0 || lane + t * THREADS < OPERAND(loads);
}

// Of the tile that begins at line `first` of `count`: lines beyond repeat the last ones, their sums are not stored.
void OPERAND(find_places)(uint lane, IDX first, IDX count) {
  [[unroll]] for (uint t = 0; t < OPERAND(lines); t++) {
    [[unroll]] for (uint c = 0; c < OPERAND(each); c++) {
      IDX line = first + OPERAND(line)(lane, t) + c;
      line = min(line, ALONG_K != 0 || SCATTERED != 0 ? count - 1 : (count - 1) / LOAD_WIDTH * LOAD_WIDTH);
#if AFFINE
      OPERAND(places)[t][c] = OPERAND(OFFSET)(LINE(line) + OPERAND(DEPTH)(0, OPERAND(k)(lane, t)));
#else
      OPERAND(places)[t][c] = LINE(line);
#endif
#if PADDED
      OPERAND(words)[t][c] = LINE_WORD(line);
#endif
    }
  }
}

// Loads what this thread brings to a step of `count` elements along k from `start`; zeros to a shorter one than BK, and
// beyond borders.
void OPERAND(fetch)(uint lane, IDX start, uint count) {
  [[unroll]] for (uint t = 0; t < OPERAND(turns); t++) {
    uint k = OPERAND(k)(lane, t), line = OPERAND(lines) == 1 ? 0 : t;
    if (PADDED != 0 || count != BK) OPERAND(fetched)[t] = OPERAND(STORED)(0);
    bool within = OPERAND(is_load)(lane, t) && (count == BK || k < count);
    // What the thread's place has no part of yet.
    uint along = AFFINE == 0 ? k : OPERAND(lines) == 1 ? t * (THREADS / OPERAND(row)) : 0;
#if SCATTERED
    if (within) {
      IDX depth = OPERAND(DEPTH)(start, along);
      [[unroll]] for (uint c = 0; c < LOAD_WIDTH; c++) {
        if (EXISTS(line, c, start, k)) OPERAND(fetched)[t][c] = OPERAND(LOAD)(OPERAND(places)[line][c], depth);
      }
    }
#else
    if (within && EXISTS(line, 0, start, k)) {
      OPERAND(fetched)[t] = OPERAND(LOAD)(OPERAND(places)[line][0], OPERAND(DEPTH)(start, along));
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
    uint k = OPERAND(k)(lane, t), i = OPERAND(line)(lane, t);
    if (OPERAND(is_load)(lane, t)) {
      OPERAND(STORED) x = OPERAND(fetched)[t];
#if LOAD_WIDTH == 1
      PUT(slot, k, i, x);
#elif ALONG_K
      [[unroll]] for (uint c = 0; c < LOAD_WIDTH; c++) PUT(slot, k + c, i, x[c]);
#elif WIDTH == 4 && LOAD_WIDTH == 4
      OPERAND(tile)[slot][k][i / 4] =
          VECTOR(OPERAND(VALUE)(x[0]), OPERAND(VALUE)(x[1]), OPERAND(VALUE)(x[2]), OPERAND(VALUE)(x[3]));
#elif WIDTH == 2
      [[unroll]] for (uint c = 0; c < LOAD_WIDTH; c += 2) {
        OPERAND(tile)[slot][k][(i + c) / 2] = VECTOR(OPERAND(VALUE)(x[c]), OPERAND(VALUE)(x[c + 1]));
      }
#else
      [[unroll]] for (uint c = 0; c < LOAD_WIDTH; c++) PUT(slot, k, i + c, x[c]);
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
#undef LOAD_WIDTH
#undef PADDED
#undef SCATTERED

// One operand of `lib/matmul.glsl`, which includes this for each: its tile in shared memory, and its loads. Lines are
// A's rows or B's columns. OPERAND(name) is A_name or B_name; LINES are those of the tile, LINE(i) is the offset of a
// line, ALONG_K says whether neighbouring threads should load neighbours along k, LOAD_WIDTH is the vector width of loads, PADDED
// says whether elements are missing, SCATTERED whether the elements of a vector have an offset each.

const uint OPERAND(loads) = LINES * BK / LOAD_WIDTH;
const uint OPERAND(thread_loads) = (OPERAND(loads) + THREADS - 1) / THREADS;

// One vector more, so that columns of the tile lie in different banks.
shared VECTOR OPERAND(tile)[2][BK][LINES / WIDTH + 1];

OPERAND(STORED) OPERAND(fetched)[OPERAND(thread_loads)];
// Loads of a line or, where neighbours lie along lines, of one k. Where the threads load whole rows of these at once, the
// positions of a thread's loads differ by constants.
const uint OPERAND(row) = (ALONG_K != 0 ? BK : LINES) / LOAD_WIDTH;
const bool OPERAND(whole_rows) = THREADS % OPERAND(row) == 0;
// Lines that a thread loads: one where all of its loads are of the same line.
const uint OPERAND(lines) = ALONG_K == 0 && OPERAND(whole_rows) ? 1 : OPERAND(thread_loads);
// Offsets that a thread keeps for a vector: that of the first element, or each element's.
const uint OPERAND(vector_offsets) = SCATTERED != 0 ? LOAD_WIDTH : 1;
IDX OPERAND(offsets)[OPERAND(lines)][OPERAND(vector_offsets)];
#if PADDED
uint OPERAND(words)[OPERAND(lines)][OPERAND(vector_offsets)];
#define EXISTS(line, c, start, k) ((OPERAND(words)[line][c] & DEPTH_WORD(start, k)) == 0)
#else
#define EXISTS(line, c, start, k) true
#endif

// The row of loads that a thread's t-th load is in, and its first element there.
uint OPERAND(outer)(uint thread, uint t) {
  return OPERAND(whole_rows) ? thread / OPERAND(row) + t * (THREADS / OPERAND(row)) : (thread + t * THREADS) / OPERAND(row);
}
uint OPERAND(inner)(uint thread, uint t) {
  return (OPERAND(whole_rows) ? thread % OPERAND(row) : (thread + t * THREADS) % OPERAND(row)) * LOAD_WIDTH;
}

// The position in the tile where the load begins, and whether there is such a load.
uint OPERAND(k)(uint thread, uint t) { return ALONG_K != 0 ? OPERAND(inner)(thread, t) : OPERAND(outer)(thread, t); }
uint OPERAND(line)(uint thread, uint t) { return ALONG_K != 0 ? OPERAND(outer)(thread, t) : OPERAND(inner)(thread, t); }
bool OPERAND(is_load)(uint thread, uint t) {
  return OPERAND(loads) % THREADS == 0 || thread + t * THREADS < OPERAND(loads);
}

// Finds the offsets for the tile that begins at line `first` of `count`. Lines beyond repeat the last ones: their sums are not
// stored.
void OPERAND(find_offsets)(uint thread, IDX first, IDX count) {
  [[unroll]] for (uint t = 0; t < OPERAND(lines); t++) {
    [[unroll]] for (uint c = 0; c < OPERAND(vector_offsets); c++) {
      IDX line = first + OPERAND(line)(thread, t) + c;
      line = min(line, ALONG_K != 0 || SCATTERED != 0 ? count - 1 : (count - 1) / LOAD_WIDTH * LOAD_WIDTH);
#if AFFINE
      OPERAND(offsets)[t][c] = OPERAND(OFFSET)(LINE(line) + OPERAND(DEPTH)(0, OPERAND(k)(thread, t)));
#else
      OPERAND(offsets)[t][c] = LINE(line);
#endif
#if PADDED
      OPERAND(words)[t][c] = LINE_WORD(line);
#endif
    }
  }
}

// Loads what this thread writes to a step of `count` elements along k from `start`. A step shorter than BK is filled with zeros,
// and padding is zero.
void OPERAND(fetch)(uint thread, IDX start, uint count) {
  [[unroll]] for (uint t = 0; t < OPERAND(thread_loads); t++) {
    uint k = OPERAND(k)(thread, t), line = OPERAND(lines) == 1 ? 0 : t;
    if (PADDED != 0 || count != BK) OPERAND(fetched)[t] = OPERAND(STORED)(0);
    bool within = OPERAND(is_load)(thread, t) && (count == BK || k < count);
    // The index along k that the thread's offset does not include yet.
    uint depth_index = AFFINE == 0 ? k : OPERAND(lines) == 1 ? t * (THREADS / OPERAND(row)) : 0;
#if SCATTERED
    if (within) {
      IDX depth = OPERAND(DEPTH)(start, depth_index);
      [[unroll]] for (uint c = 0; c < LOAD_WIDTH; c++) {
        if (EXISTS(line, c, start, k)) OPERAND(fetched)[t][c] = OPERAND(LOAD)(OPERAND(offsets)[line][c], depth);
      }
    }
#else
    if (within && EXISTS(line, 0, start, k)) {
      OPERAND(fetched)[t] = OPERAND(LOAD)(OPERAND(offsets)[line][0], OPERAND(DEPTH)(start, depth_index));
    }
#endif
  }
}

#if WIDTH == 1
#define PUT(slot, k, i, x) OPERAND(tile)[slot][k][i] = OPERAND(VALUE)(x)
#else
#define PUT(slot, k, i, x) OPERAND(tile)[slot][k][(i) / WIDTH][(i) % WIDTH] = OPERAND(VALUE)(x)
#endif

// Writes to the tile what was fetched.
void OPERAND(put)(uint thread, uint slot) {
  [[unroll]] for (uint t = 0; t < OPERAND(thread_loads); t++) {
    uint k = OPERAND(k)(thread, t), i = OPERAND(line)(thread, t);
    if (OPERAND(is_load)(thread, t)) {
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

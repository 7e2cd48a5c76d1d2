// Checked indices: an index that is out of bounds is reported to the host, and taken as the nearest that is not (indices.glsl).
//
// A call has one record of four words. The first invocation that meets a wrong index takes it by compare-and-swap and writes the
// others, so that all words are of one index. The host reads the record once the call's commands have run.
//
// `check` holds the record's address and, in its third word, the number of the operation, from 1 on; `k` says which index of a
// row of indices it is.

layout(buffer_reference, scalar) buffer BoundsRecord { uint operation, k, low, high; };

// Set in `k` where the index is of an unsigned type.
#define UNSIGNED_INDEX 0x80000000u

void report_index(uvec4 check, uint k, uint low, uint high) {
  BoundsRecord record = BoundsRecord(check.xy);
  if (atomicCompSwap(record.operation, 0u, check.z) != 0u) return;
  record.k = k;
  record.low = low;
  record.high = high;
}

#define NX_CHECKED_INDEX(T, OUTSIDE, K, LOW, HIGH) \
  IDX checked_index(T i, IDX extent, uvec4 check, uint k) { \
    if (OUTSIDE) report_index(check, K, LOW, HIGH); \
    return clamp_index(i, extent); \
  }

NX_CHECKED_INDEX(uint, IDX(i) >= extent, k | UNSIGNED_INDEX, i, 0u)
NX_CHECKED_INDEX(int, i < 0 || IDX(i) >= extent, k, uint(i), uint(i >> 31))
#ifdef HAS_INT64
NX_CHECKED_INDEX(uint64_t, i >= uint64_t(extent), k | UNSIGNED_INDEX, uint(i), uint(i >> 32))
NX_CHECKED_INDEX(int64_t, i < 0 || uint64_t(i) >= uint64_t(extent), k, uint(i), uint(i >> 32))
#endif
#ifdef EMULATED_INT64
NX_CHECKED_INDEX(U64, i.bits.y != 0u || i.bits.x >= extent, k | UNSIGNED_INDEX, i.bits.x, i.bits.y)
NX_CHECKED_INDEX(S64, i.bits.y != 0u || i.bits.x >= extent, k, i.bits.x, i.bits.y)
#endif

// Indices that point outside are taken as the nearest that do not: no kernel reads or writes out of bounds.

IDX clamp_index(uint i, IDX extent) { return min(IDX(i), extent - 1); }
IDX clamp_index(int i, IDX extent) { return i < 0 ? IDX(0) : min(IDX(i), extent - 1); }
#ifdef HAS_INT64
IDX clamp_index(uint64_t i, IDX extent) { return i < uint64_t(extent) ? IDX(i) : extent - 1; }
IDX clamp_index(int64_t i, IDX extent) { return i < 0 ? IDX(0) : clamp_index(uint64_t(i), extent); }
#endif
#ifdef EMULATED_INT64
IDX clamp_index(U64 i, IDX extent) { return i.bits.y == 0u ? clamp_index(i.bits.x, extent) : extent - 1; }
IDX clamp_index(S64 i, IDX extent) { return is_negative(i) ? IDX(0) : clamp_index(to_u64(i), extent); }
#endif

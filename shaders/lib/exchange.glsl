// The value of the lane whose number differs in the bits `s`.

#ifndef HAS_EXCHANGE
#define HAS_EXCHANGE

uint from_lane(uint x, uint s) { return subgroupShuffleXor(x, s); }
uvec2 from_lane(uvec2 x, uint s) { return subgroupShuffleXor(x, s); }
int from_lane(int x, uint s) { return int(from_lane(uint(x), s)); }
float from_lane(float x, uint s) { return uintBitsToFloat(from_lane(floatBitsToUint(x), s)); }
vec2 from_lane(vec2 x, uint s) { return uintBitsToFloat(from_lane(floatBitsToUint(x), s)); }
#ifdef HAS_FLOAT64
double from_lane(double x, uint s) { return packDouble2x32(from_lane(unpackDouble2x32(x), s)); }
dvec2 from_lane(dvec2 x, uint s) { return dvec2(from_lane(x.x, s), from_lane(x.y, s)); }
#endif
#ifdef HAS_INT64
uint64_t from_lane(uint64_t x, uint s) { return packUint2x32(from_lane(unpackUint2x32(x), s)); }
int64_t from_lane(int64_t x, uint s) { return int64_t(from_lane(uint64_t(x), s)); }
#endif
#ifdef EMULATED_INT64
U64 from_lane(U64 x, uint s) { return U64(from_lane(x.bits, s)); }
S64 from_lane(S64 x, uint s) { return S64(from_lane(x.bits, s)); }
#endif
#endif

// Owns the flag of loops that run without branches first and again, exactly, where an operand was out of range: between begin_in_range() and
// any_out_of_range(), functions called <name>_in_range note the operands for which their results may be wrong.
#ifndef NX_RANGE
#define NX_RANGE

#include "lib/float_bits.glsl"

bool out_of_range = false;
// 0, or NaN once an infinity or a NaN was added: an addition takes less time than a test.
float not_finite = 0.0f;
void begin_in_range() {
  out_of_range = false;
  not_finite = 0.0f;
}
bool any_out_of_range() { return out_of_range || is_nan(not_finite); }

#endif

// Owns how reductions of complex numbers combine two accumulators. A sum with a second accumulator is
// compensated as in reduce.glsl, the real and the imaginary part each by itself.

#include "lib/complex/formula.glsl"
#include "lib/complex.glsl"

void combine_sum(inout COMPLEX a, COMPLEX x) { precise COMPLEX s = a + x; a = s; }
void combine_product(inout COMPLEX a, COMPLEX x) { a = c_multiply(x, a); }

void combine_sum(inout COMPLEX a, inout COMPLEX b, COMPLEX x, COMPLEX y) {
  combine_sum(a.x, b.x, x.x, y.x);
  combine_sum(a.y, b.y, x.y, y.y);
}
COMPLEX finish_sum(COMPLEX a, COMPLEX b) { return COMPLEX(finish_sum(a.x, b.x), finish_sum(a.y, b.y)); }

// 4 workgroups, chunk 64
#include "lib/convert.glsl"
#include "lib/complex/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#include "lib/complex/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, vec2 x0, out dvec2 e0) {
  precise vec2 v0 = vec2(x0);
  e0 = dvec2(v0);
}
#define PROLOGUE 
void bases(IDX o, out IDX index0) {
  index0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
}
#define BASES(w, o) IDX base0_##w; bases(o, base0_##w);
void load_vector(IDX r, IDX index0, out mat4x2 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  q0 = LOAD_VEC4(vec2, p.input0, index0 / 4);
}
#define LOAD_VECTOR(k, w, r) mat4x2 q0_##k##_##w; load_vector(r, base0_##w, q0_##k##_##w);
void load_scalar(IDX r, IDX index0, out vec2 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  q0 = AT(vec2, p.input0, index0);
}
#define LOAD_SCALAR(k, w, r) vec2 q0_##k##_##w; load_scalar(r, base0_##w, q0_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w
#define PARTS 1
#define RESULTS 1
#define PART0 dvec2
#define IDENTITY0 dvec2(1, 0)
#define COMBINE_PARTS combine_product
#define OUTPUT_THREADS 16
#define REDUCTION_THREADS 16
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 1
#define UNROLLED 1
#define EXACT 1
#define CHUNKED 0
#define LANES 16
#define NEIGHBOURS_SHARE 1
#define STORE_OUTPUT(a, index) AT(vec2, p.result, index) = vec2(to_c64(a##_0));
#include "lib/loops/reduce.glsl"

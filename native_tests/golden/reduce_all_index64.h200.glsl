// 8192 workgroups, chunk 524288
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, int x0, out int e0) {
  int v0 = int(x0);
  e0 = int(v0);
}
#define PROLOGUE 
void bases(IDX o, out IDX index0) {
  index0 = p.offset0;
}
#define BASES(w, o) IDX base0_##w; bases(o, base0_##w);
void load_vector(IDX r, IDX index0, out ivec4 q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  index0 += at0;
  q0 = LOAD_VEC4(int, p.input0, index0 / 4);
}
#define LOAD_VECTOR(k, w, r) ivec4 q0_##k##_##w; load_vector(r, base0_##w, q0_##k##_##w);
void load_scalar(IDX r, IDX index0, out int q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  index0 += at0;
  q0 = AT(int, p.input0, index0);
}
#define LOAD_SCALAR(k, w, r) int q0_##k##_##w; load_scalar(r, base0_##w, q0_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w
#define PARTS 1
#define RESULTS 1
#define PART0 int
#define IDENTITY0 int(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 1
#define REDUCTION_THREADS 256
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 1
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 1
#define SHARED_EXCHANGE 
#define LANES 32
#define NEIGHBOURS_SHARE 1
#define STORE_OUTPUT(a, index) AT(int, p.partial_out0, chunk * p.outputs + index) = a##_0;
#include "lib/loops/reduce.glsl"
// 1 workgroups, chunk 8192
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, out int e0) {
  e0 = AT(int, p.partial0, r * p.outputs + o);
}
#define PROLOGUE 
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define PARTS 1
#define RESULTS 1
#define PART0 int
#define IDENTITY0 int(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 1
#define REDUCTION_THREADS 256
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 0
#define UNROLLED 8
#define EXACT 0
#define CHUNKED 0
#define SHARED_EXCHANGE 
#define LANES 32
#define NEIGHBOURS_SHARE 1
#define STORE_OUTPUT(a, index) AT(int, p.result, index) = int(a##_0);
#include "lib/loops/reduce.glsl"

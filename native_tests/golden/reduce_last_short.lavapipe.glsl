// 12500 workgroups, chunk 6
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, out double e0) {
  IDX index0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1 * p.stride0_1;
  precise float v0 = float(AT(float, p.input0, index0));
  e0 = double(v0);
}
#define PROLOGUE 
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define PARTS 1
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 8
#define REDUCTION_THREADS 1
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 0
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 0
#define LANES 1
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) AT(float, p.result, index) = float(to_f32(a##_0));
#include "lib/loops/reduce.glsl"

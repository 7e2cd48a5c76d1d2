// 352 workgroups, chunk 9
#include "lib/convert.glsl"
#include "lib/grid.glsl"
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, out float e0) {
  IDX index0 = p.offset0;
  IDX rest_o = o;
  IDX rest_o_1 = QUOTIENT(rest_o, p.dim1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  index0 += at1 * p.stride0_1;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX rest_r_3 = rest_r / IDX(3);
  IDX at3 = rest_r - rest_r_3 * IDX(3); rest_r = rest_r_3;
  index0 += at3 * p.stride0_3;
  IDX at2 = rest_r;
  index0 += at2 * p.stride0_2;
  precise float v0 = float(AT(float, p.input0, index0));
  e0 = float(v0);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define PARTS 1
#define RESULTS 1
#define PART0 float
#define IDENTITY0 lowest_float()
#define COMBINE_PARTS combine_max
#define OUTPUT_THREADS 256
#define REDUCTION_THREADS 1
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 0
#define UNROLLED 8
#define EXACT 0
#define CHUNKED 0
#define WINDOW_BLOCKS 1
#define WINDOW_REST 1
#define LANES 1
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) AT(float, p.result, index) = float(a##_0);
#include "lib/loops/reduce.glsl"

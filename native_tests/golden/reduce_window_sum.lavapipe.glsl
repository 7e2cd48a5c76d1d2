// 11250 workgroups, chunk 9
#include "lib/convert.glsl"
#include "lib/grid.glsl"
IDX traversed_group() { return workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, out double e0, out double e1) {
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
  precise double v0 = double(AT(double, p.input0, index0));
  e0 = double(v0);
  e1 = double(0);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define PARTS 2
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define PART1 double
#define IDENTITY1 double(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 8
#define REDUCTION_THREADS 1
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 0
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 0
#define WINDOW_BLOCKS 2
#define WINDOW_REST 1
#define LANES 1
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) AT(double, p.result, index) = double(finish_sum(a##_0, a##_1));
#include "lib/loops/reduce.glsl"

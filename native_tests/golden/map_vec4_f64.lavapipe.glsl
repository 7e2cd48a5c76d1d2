// 4 workgroups, chunk 256
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
double element(IDX i, double x0) {
  precise double v0 = double(x0);
  precise double v1 = double(packDouble2x32(p.scalar1));
  precise double v2 = nx_add(v0, v1);
  return double(v2);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) dvec4 l0_##w = LOAD_VEC4(double, p.input0, v); 
#define LINEAR_VECTORS(w, c) , l0_##w[c]
#define LINEAR_SCALARS(i) , AT(double, p.input0, i)
#define RESULT double
#define RESULT_AT(i) AT(double, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(double, p.result, v, dvec4(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#define VECTORS 
#include "lib/loops/map.glsl"

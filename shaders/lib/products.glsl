// Sums of products of floats in double. A factor is converted once for all products with it, and the other one is used without the multiplication
// that ends its conversion.
//
// Algorithm: a float's bits in a double's places are the float times 2^-896; an exponent of ones stays one of infinities and NaN. The products with a
//   factor times 2^127 are added up with that scale, which the sum loses at the end.
// Domain: all floats, for a sum that is rounded to f32 or narrower.
// Error: each product is exact. An addition rounds to 53 bits, or to 2^-305 where that is more, far below a half of the least float.
// Source: this project's.
#ifndef NX_PRODUCTS
#define NX_PRODUCTS

#if defined SUBNORMAL_DOUBLES && !defined KEEPS_SUBNORMALS
double product_factor(float x) { return double_in_place(x) * 8.98846567431158e307lf; }
void add_product(double x, float y, inout double sum) { sum = fma(x, double_in_place(y), sum); }
double product_sum(double sum) { return sum * 3.105036184601418e231lf; }
#else
double product_factor(float x) { return to_f64(x); }
void add_product(double x, float y, inout double sum) { sum = fma(x, to_f64(y), sum); }
double product_sum(double sum) { return sum; }
#endif
// Sums of products that are exact in f32.
float product_sum(float sum) { return sum; }

#endif

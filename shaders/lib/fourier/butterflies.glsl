// What all kernels of Fourier transforms share: roots of unity, and transforms of a few points in registers.
//
// The including kernel defines R and C, the real and the complex type, and WORK_DOUBLE where R is double.

#include "lib/complex.glsl"

// exp(-2 pi i k / n) for 0 <= k < n. The angle is reduced to an eighth of a circle in integers, and the Taylor series
// there end below half an ulp.
C root(IDX k, IDX n) {
  IDX octant = k * 8 / n, rest = k * 8 - octant * n;
  if ((octant & 1) != 0) rest = n - rest;
  precise R unit = R(0.785398163397448309615660845819875721lf) / R(n);
  precise R x = R(rest) * unit;
  precise R z = x * x;
#ifdef WORK_DOUBLE
  R s = R(1.0lf) / R(355687428096000.0lf);
  s = R(1.0lf) / R(1307674368000.0lf) - z * s;
  s = R(1.0lf) / R(6227020800.0lf) - z * s;
  s = R(1.0lf) / R(39916800.0lf) - z * s;
  s = R(1.0lf) / R(362880.0lf) - z * s;
  R c = R(1.0lf) / R(20922789888000.0lf);
  c = R(1.0lf) / R(87178291200.0lf) - z * c;
  c = R(1.0lf) / R(479001600.0lf) - z * c;
  c = R(1.0lf) / R(3628800.0lf) - z * c;
  c = R(1.0lf) / R(40320.0lf) - z * c;
#else
  R s = R(1.0lf) / R(362880.0lf);
  R c = R(1.0lf) / R(40320.0lf) - z * (R(1.0lf) / R(3628800.0lf));
#endif
  s = R(1.0lf) / R(5040.0lf) - z * s;
  s = R(1.0lf) / R(120.0lf) - z * s;
  s = R(1.0lf) / R(6.0lf) - z * s;
  s = x - x * z * s;
  c = R(1.0lf) / R(720.0lf) - z * c;
  c = R(1.0lf) / R(24.0lf) - z * c;
  c = R(0.5lf) - z * c;
  c = R(1.0lf) - z * c;
  uint o = uint(octant);
  // Octants 1, 2, 5 and 6 lie about the imaginary axis.
  bool steep = ((o + 1u) & 2u) != 0u;
  R re = steep ? s : c, im = steep ? c : s;
  return C(o >= 2u && o < 6u ? -re : re, o < 4u ? -im : im);
}

// z·-i.
C times_minus_i(C z) { return C(z.y, -z.x); }

void butterfly(inout C v[2]) {
  C a = v[0];
  v[0] = a + v[1];
  v[1] = a - v[1];
}

void butterfly(inout C v[3]) {
  C sum = v[1] + v[2], difference = times_minus_i(v[1] - v[2]) * R(0.866025403784438646763723170752936183lf);
  C middle = v[0] - sum * R(0.5lf);
  v[0] += sum;
  v[1] = middle + difference;
  v[2] = middle - difference;
}

void butterfly(inout C v[4]) {
  C a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = times_minus_i(v[1] - v[3]);
  v[0] = a + c;
  v[1] = b + d;
  v[2] = a - c;
  v[3] = b - d;
}

void butterfly(inout C v[5]) {
  const R c1 = R(0.309016994374947424102293417182819059lf), c2 = R(-0.809016994374947424102293417182819059lf);
  const R s1 = R(0.951056516295153572116439333379382143lf), s2 = R(0.587785252292473129168705954639072769lf);
  C a = v[1] + v[4], b = v[2] + v[3], c = v[1] - v[4], d = v[2] - v[3];
  C m1 = v[0] + a * c1 + b * c2, m2 = v[0] + a * c2 + b * c1;
  C n1 = times_minus_i(c * s1 + d * s2), n2 = times_minus_i(c * s2 - d * s1);
  v[0] += a + b;
  v[1] = m1 + n1;
  v[4] = m1 - n1;
  v[2] = m2 + n2;
  v[3] = m2 - n2;
}

void butterfly(inout C v[8]) {
  const R h = R(0.707106781186547524400844362104849039lf);
  C even[4] = C[4](v[0], v[2], v[4], v[6]), odd[4] = C[4](v[1], v[3], v[5], v[7]);
  butterfly(even);
  butterfly(odd);
  odd[1] = (odd[1] + times_minus_i(odd[1])) * h;
  odd[2] = times_minus_i(odd[2]);
  odd[3] = (times_minus_i(odd[3]) - odd[3]) * h;
  [[unroll]] for (uint q = 0u; q < 4u; q++) {
    v[q] = even[q] + odd[q];
    v[q + 4u] = even[q] - odd[q];
  }
}

void butterfly(inout C v[16]) {
  // The cosine and the sine of an eighth of pi, and of a quarter.
  const R c = R(0.923879532511286756128183189396788287lf), s = R(0.382683432365089771728459984030398866lf);
  const R h = R(0.707106781186547524400844362104849039lf);
  C w0[4] = C[4](v[0], v[4], v[8], v[12]), w1[4] = C[4](v[1], v[5], v[9], v[13]);
  C w2[4] = C[4](v[2], v[6], v[10], v[14]), w3[4] = C[4](v[3], v[7], v[11], v[15]);
  butterfly(w0);
  butterfly(w1);
  butterfly(w2);
  butterfly(w3);
  w1[1] = c_multiply(w1[1], C(c, -s));
  w1[2] = (w1[2] + times_minus_i(w1[2])) * h;
  w1[3] = c_multiply(w1[3], C(s, -c));
  w2[1] = (w2[1] + times_minus_i(w2[1])) * h;
  w2[2] = times_minus_i(w2[2]);
  w2[3] = (times_minus_i(w2[3]) - w2[3]) * h;
  w3[1] = c_multiply(w3[1], C(s, -c));
  w3[2] = (times_minus_i(w3[2]) - w3[2]) * h;
  w3[3] = c_multiply(w3[3], C(-c, s));
  [[unroll]] for (uint q = 0u; q < 4u; q++) {
    C w[4] = C[4](w0[q], w1[q], w2[q], w3[q]);
    butterfly(w);
    v[q] = w[0];
    v[q + 4u] = w[1];
    v[q + 8u] = w[2];
    v[q + 12u] = w[3];
  }
}

#ifdef CHIRP
#ifdef HAS_INT64
IDX square_modulo(IDX k, IDX m) { return IDX(uint64_t(k) * uint64_t(k) % uint64_t(m)); }
#else
// k^2 modulo m for k < m < 2^31: long division of two words, one bit a step.
uint square_modulo(uint k, uint m) {
  uint rest, low;
  umulExtended(k, k, rest, low);
  [[dont_unroll]] for (uint bit = 0u; bit < 32u; bit++) {
    rest = (rest << 1) | (low >> 31);
    low <<= 1;
    // Where rest is below m, the difference wraps around.
    rest = min(rest, rest - m);
  }
  return rest;
}
#endif

// exp(-pi i k^2 / n) for k < n.
C chirp(IDX k, IDX n) { return root(square_modulo(k, 2 * n), 2 * n); }
#endif

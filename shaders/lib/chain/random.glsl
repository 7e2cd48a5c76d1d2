// Owns the random numbers of samplers: words, uniform and normal numbers of a counter, without a state.
//
// Algorithm: Philox4x32 with ten rounds; normal numbers by the inverse of their distribution function, algorithm AS 241 (PPND16, in
//   single precision PPND7).
// Domain: counters and keys are any words. Uniform numbers are in (0, 1), of 52 bits in double precision and of 23 in single.
// Error: words and uniform numbers are exact; a normal number is within 1e-15 of the quantile, relatively, in double precision, and
//   within 1e-6 in single.
// Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); M. J. Wichura, "The percentage points of the
//   normal distribution" (1988).
//
// The kernel defines REAL, REAL_IS_DOUBLE where that is so, and includes lib/chain/workgroup.glsl before.

uvec4 philox(uvec4 counter, uvec2 key) {
  [[unroll]] for (uint round = 0u; round < 10u; ++round) {
    uint high_x, low_x, high_z, low_z;
    umulExtended(0xd2511f53u, counter.x, high_x, low_x);
    umulExtended(0xcd9e8d57u, counter.z, high_z, low_z);
    counter = uvec4(high_z ^ counter.y ^ key.x, low_z, high_x ^ counter.w ^ key.y, low_x);
    key += uvec2(0x9e3779b9u, 0xbb67ae85u);
  }
  return counter;
}

REAL uniform_of(uvec4 words) {
#ifdef REAL_IS_DOUBLE
  return (double(words.x >> 6) * 67108864.0lf + double(words.y >> 6) + 0.5lf) * 2.220446049250313e-16lf;
#else
  return (float(words.x >> 9) + 0.5f) * 1.1920928955078125e-07f;
#endif
}

// The number below which a normal number is with probability u.
#ifdef REAL_IS_DOUBLE
#define RATIONAL(a7, a6, a5, a4, a3, a2, a1, a0, b7, b6, b5, b4, b3, b2, b1) \
  (((((((((a7 * r + a6) * r + a5) * r + a4) * r + a3) * r + a2) * r + a1) * r + a0)) \
      / (((((((b7 * r + b6) * r + b5) * r + b4) * r + b3) * r + b2) * r + b1) * r + 1.0lf))
double normal_quantile(double u) {
  double q = u - 0.5lf, r = 0.180625lf - q * q, v;
  if (abs(q) <= 0.425lf) {
    return q * RATIONAL(2509.0809287301226727lf, 33430.575583588128105lf, 67265.770927008700853lf, 45921.953931549871457lf,
        13731.693765509461125lf, 1971.5909503065514427lf, 133.14166789178437745lf, 3.387132872796366608lf,
        5226.495278852854561lf, 28729.085735721942674lf, 39307.89580009271061lf, 21213.794301586595867lf,
        5394.1960214247511077lf, 687.1870074920579083lf, 42.313330701600911252lf);
  }
  r = sqrt(-chain_log(q < 0.0lf ? u : 1.0lf - u));
  if (r <= 5.0lf) {
    r -= 1.6lf;
    v = RATIONAL(7.7454501427834140764e-4lf, 2.27238449892691845833e-2lf, 0.24178072517745061177lf, 1.27045825245236838258lf,
        3.64784832476320460504lf, 5.7694972214606914055lf, 4.6303378461565452959lf, 1.42343711074968357734lf,
        1.05075007164441684324e-9lf, 5.475938084995344946e-4lf, 1.51986665636164571966e-2lf, 0.14810397642748007459lf,
        0.68976733498510000455lf, 1.6763848301838038494lf, 2.05319162663775882187lf);
  } else {
    r -= 5.0lf;
    v = RATIONAL(2.01033439929228813265e-7lf, 2.71155556874348757815e-5lf, 1.2426609473880784386e-3lf, 2.65321895265761230930e-2lf,
        0.29656057182850489123lf, 1.7848265399172913358lf, 5.4637849111641143699lf, 6.6579046435011037772lf,
        2.04426310338993978564e-15lf, 1.4215117583164458887e-7lf, 1.84631831751005468180e-5lf, 7.868691311456132591e-4lf,
        1.48753612908506148525e-2lf, 0.13692988092273580531lf, 0.59983220655588793769lf);
  }
  return q < 0.0lf ? -v : v;
}
#else
#define RATIONAL(a3, a2, a1, a0, b3, b2, b1) ((((a3 * r + a2) * r + a1) * r + a0) / (((b3 * r + b2) * r + b1) * r + 1.0f))
float normal_quantile(float u) {
  float q = u - 0.5f, r = 0.180625f - q * q, v;
  if (abs(q) <= 0.425f) {
    return q * RATIONAL(59.10937472f, 159.29113202f, 50.434271938f, 3.3871327179f, 67.1875636f, 78.757757664f, 17.895169469f);
  }
  r = sqrt(-chain_log(q < 0.0f ? u : 1.0f - u));
  if (r <= 5.0f) {
    r -= 1.6f;
    v = RATIONAL(0.17023821103f, 1.3067284816f, 2.75681539f, 1.4234372777f, 0.0f, 0.12021132975f, 0.7370016425f);
  } else {
    r -= 5.0f;
    v = RATIONAL(0.017337203997f, 0.42868294337f, 3.081226386f, 6.657905115f, 0.0f, 0.012258202635f, 0.24197894225f);
  }
  return q < 0.0f ? -v : v;
}
#endif

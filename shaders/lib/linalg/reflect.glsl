// Householder reflectors of the columns first..last of each matrix, one matrix a workgroup, applied to those columns
// (Golub & Van Loan, Matrix Computations, 5.1 and 5.2). I - factor·v·vᴴ takes column `i` below its diagonal to zero; the
// signs are those of Nx.LinAlg.QR.

#include "lib/linalg/sums.glsl"

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint id = INVOCATION, lane = id % LANES, segment = id / LANES;
  for (IDX i = p.first; i < p.last; i++) {
    IDX column = (batch * p.columns + i) * p.rows, v = (batch * p.reflectors + i) * p.rows;
    Sums s = NOTHING;
    for (IDX k = lane; k < p.rows; k += LANES) {
      SUM part = square(AT(Cell, p.work, column + k));
      if (k < i) s.a += part;
      if (k > i) s.b += part;
    }
    s = total(s);
    ELEMENT x = AT(Cell, p.work, column + i);
    SUM tail = s.b + square(x);
    PART norm = root(PART(tail)), factor = PART(2);
    // What lies below the diagonal is rounding of the reflectors so far, or nothing at all.
#if COMPLEX_ELEMENTS
    bool negligible = tail <= SUM(4 * EPS * EPS) * (s.a + tail);
    PART length = size(x);
    ELEMENT head = plus(x, length == PART(0) ? element(norm) : times(over(x, length), norm));
    PART divisor = root(PART(s.b + square(head)));
#else
    bool negligible = s.b <= SUM(4 * EPS * EPS) * (s.a + tail);
    PART divisor = x <= PART(0) ? minus(x, norm) : -over(PART(s.b), plus(x, norm));
    ELEMENT head = divisor;
#endif
    s = NOTHING;
    if (segment == 0) {
      for (IDX k = i + lane; k < p.rows; k += LANES) {
        ELEMENT y = k == i ? head : AT(Cell, p.work, column + k);
        AT(Cell, p.reflector, v + k) = negligible ? ELEMENT(0) : over(y, divisor);
      }
    }
    meet();
#if !COMPLEX_ELEMENTS
    for (IDX k = i + lane; k < p.rows; k += LANES) s.b += square(AT(Cell, p.reflector, v + k));
    s = total(s);
    factor = over(PART(2), PART(s.b));
#endif
    if (negligible) factor = PART(0);
    if (id == 0) AT(Number, p.factors, batch * p.reflectors + i) = factor;
    if (!negligible) {
      for (IDX j = i; j < p.last; j += SEGMENTS) {
        IDX to = (batch * p.columns + j + segment) * p.rows;
        reflect(to, v, i, lane, factor, j + segment < p.last);
      }
    }
    meet();
  }
}

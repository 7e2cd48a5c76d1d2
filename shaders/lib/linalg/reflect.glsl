// Householder reflectors of the columns first..last of each matrix, one matrix a workgroup, applied to those columns
// (Golub & Van Loan, Matrix Computations, 5.1 and 5.2). I - factor·v·vᴴ takes column `i` below its diagonal to zero; the
// signs are those of Nx.LinAlg.QR.

#include "lib/linalg/sums.glsl"

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint id = INVOCATION, thread = id % COLUMN_THREADS, group_column = id / COLUMN_THREADS;
  for (IDX i = p.first; i < p.last; i++) {
    IDX column = (batch * p.columns + i) * p.rows, v = (batch * p.reflectors + i) * p.rows;
    Sums s = NOTHING;
    for (IDX k = thread; k < p.rows; k += COLUMN_THREADS) {
      SUM part = square(AT(Element, p.work, column + k));
      if (k < i) s.a += part;
      if (k > i) s.b += part;
    }
    s = total(s);
    ELEMENT x = AT(Element, p.work, column + i);
    SUM tail = s.b + square(x);
    SCALAR norm = root(SCALAR(tail)), factor = SCALAR(2);
    // What lies below the diagonal is rounding of the reflectors so far, or nothing at all.
#if COMPLEX_ELEMENTS
    bool negligible = tail <= SUM(4 * EPS * EPS) * (s.a + tail);
    SCALAR length = size(x);
    ELEMENT head = plus(x, length == SCALAR(0) ? element(norm) : times(over(x, length), norm));
    SCALAR divisor = root(SCALAR(s.b + square(head)));
#else
    bool negligible = s.b <= SUM(4 * EPS * EPS) * (s.a + tail);
    SCALAR divisor = x <= SCALAR(0) ? minus(x, norm) : -over(SCALAR(s.b), plus(x, norm));
    ELEMENT head = divisor;
#endif
    s = NOTHING;
    if (group_column == 0) {
      for (IDX k = i + thread; k < p.rows; k += COLUMN_THREADS) {
        ELEMENT y = k == i ? head : AT(Element, p.work, column + k);
        AT(Element, p.reflector, v + k) = negligible ? ELEMENT(0) : over(y, divisor);
      }
    }
    meet();
#if !COMPLEX_ELEMENTS
    for (IDX k = i + thread; k < p.rows; k += COLUMN_THREADS) s.b += square(AT(Element, p.reflector, v + k));
    s = total(s);
    factor = over(SCALAR(2), SCALAR(s.b));
#endif
    if (negligible) factor = SCALAR(0);
    if (id == 0) AT(Real, p.factors, batch * p.reflectors + i) = factor;
    if (!negligible) {
      for (IDX j = i; j < p.last; j += GROUP_COLUMNS) {
        IDX to = (batch * p.columns + j + group_column) * p.rows;
        reflect(to, v, i, thread, factor, j + group_column < p.last);
      }
    }
    meet();
  }
}

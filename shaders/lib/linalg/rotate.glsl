// One round of one-sided Jacobi rotations (M. R. Hestenes, 1958): a workgroup makes two columns of `work`
// orthogonal to each other, and rotates those of `vectors` with them. `rotations` counts the rotations of each sweep: after
// a sweep without any there is nothing left to do.

#include "lib/linalg/sums.glsl"

void main() {
  IDX group = workgroup(), pairs = (p.columns + 1) / 2;
  if (group >= p.groups) return;
  IDX batch = group / pairs, k = group % pairs;
  IDX counter = batch * p.sweeps + p.round / (2 * pairs - 1);
  if (p.round >= 2 * pairs - 1 && AT(uint, p.rotations, counter - 1) == 0u) return;
  IDX top = top_of(k, p.round, pairs), bottom = bottom_of(k, p.round, pairs);
  if (top >= p.columns || bottom >= p.columns) return;
  uint thread = INVOCATION;
  IDX left = (batch * p.columns + top) * p.rows, right = (batch * p.columns + bottom) * p.rows;
  Sums s = NOTHING;
  for (IDX i = thread; i < p.rows; i += COLUMN_THREADS) {
    ELEMENT x = AT(Element, p.work, left + i), y = AT(Element, p.work, right + i);
    s.a += square(x);
    s.b += square(y);
    s.g += conj_times(x, y);
  }
  s = total(s);
  SCALAR a = SCALAR(s.a), b = SCALAR(s.b);
  ELEMENT g = ELEMENT(s.g);
#if COMPLEX_ELEMENTS
  SCALAR pivot = size(g);
#else
  SCALAR pivot = g;
#endif
  SCALAR most = SCALAR(EPS) * max(SCALAR(1), SCALAR(0.5) * sqrt(SCALAR(float(p.rows))));
  if (!(abs(pivot) > most * (root(a) * root(b)))) return;
  if (thread == 0) AT(uint, p.rotations, counter) = 1u;
  SCALAR t = tangent(a, b, pivot), length = secant(t), c = over(SCALAR(1), length);
#if COMPLEX_ELEMENTS
  ELEMENT sine = times(over(conj(g), pivot), over(t, length));
#else
  ELEMENT sine = over(t, length);
#endif
  // 1 - c, for small angles more accurate than c is: else the columns would grow a little with every rotation.
  SCALAR d = over(SCALAR(square(sine)), plus(SCALAR(1), c));
  for (IDX i = thread; i < p.rows; i += COLUMN_THREADS) {
    ELEMENT x = AT(Element, p.work, left + i), y = AT(Element, p.work, right + i);
    AT(Element, p.work, left + i) = minus(x, plus(times(y, sine), times(x, d)));
    AT(Element, p.work, right + i) = plus(y, minus(times(x, conj(sine)), times(y, d)));
  }
#if VECTORS
  left = (batch * p.columns + top) * p.columns;
  right = (batch * p.columns + bottom) * p.columns;
  for (IDX i = thread; i < p.columns; i += COLUMN_THREADS) {
    ELEMENT x = AT(Element, p.vectors, left + i), y = AT(Element, p.vectors, right + i);
    AT(Element, p.vectors, left + i) = minus(x, plus(times(y, sine), times(x, d)));
    AT(Element, p.vectors, right + i) = plus(y, minus(times(x, conj(sine)), times(y, d)));
  }
#endif
}

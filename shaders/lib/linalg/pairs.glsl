// The order of Jacobi rotations: in each round every column meets another one, and after 2·pairs - 1 rounds it
// has met all (Brent & Luk, 1985). `pairs` pairs of positions, top and bottom; between rounds all columns but the
// first move on by one position along top and back along bottom, as in Nx.LinAlg.BlockEigh. Columns at or beyond the last
// fill up an odd number.

// The column that stands at position `at` of the cycle in this round.
IDX standing(IDX at, IDX round, IDX pairs) {
  IDX others = 2 * pairs - 1;
  IDX start = (at + others - round % others) % others;
  return start + 1 < pairs ? start + 1 : 3 * pairs - 2 - start;
}

IDX top_of(IDX pair, IDX round, IDX pairs) { return pair == 0 ? IDX(0) : standing(pair - 1, round, pairs); }
IDX bottom_of(IDX pair, IDX round, IDX pairs) { return standing(2 * pairs - 2 - pair, round, pairs); }

// The smaller of the two rotations that diagonalise ((a, pivot), (pivot, b)), as the tangent of its angle (Golub & Van
// Loan, 8.5.2).
SCALAR tangent(SCALAR a, SCALAR b, SCALAR pivot) {
  SCALAR tau = over(minus(b, a), times(SCALAR(2), pivot));
  // Beyond this 1 + tau² is tau², which might overflow.
  if (abs(tau) > SCALAR(1) / SCALAR(EPS)) return over(SCALAR(0.5), tau);
  SCALAR t = root(plus(SCALAR(1), times(tau, tau)));
  return over(SCALAR(1), plus(tau, tau >= SCALAR(0) ? t : -t));
}

// What cosine and sine of the angle are to be divided by: they are 1 and the tangent over it.
SCALAR secant(SCALAR t) { return root(plus(SCALAR(1), times(t, t))); }

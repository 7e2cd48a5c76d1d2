// The order of Jacobi rotations: in each round every column meets another one, and after as many rounds as there are
// others it has met all (Brent & Luk, 1985). `pairs` pairs of places, top and bottom; between rounds all columns but the
// first move on by one place along top and back along bottom, as in Nx.LinAlg.BlockEigh. Columns at or beyond the last
// fill up an odd number.

// The column that stands at place `at` of the cycle in this round.
IDX standing(IDX at, IDX round, IDX pairs) {
  IDX others = 2 * pairs - 1;
  IDX start = (at + others - round % others) % others;
  return start + 1 < pairs ? start + 1 : 3 * pairs - 2 - start;
}

IDX top_of(IDX pair, IDX round, IDX pairs) { return pair == 0 ? IDX(0) : standing(pair - 1, round, pairs); }
IDX bottom_of(IDX pair, IDX round, IDX pairs) { return standing(2 * pairs - 2 - pair, round, pairs); }

// The smaller of the two rotations that diagonalise ((a, pivot), (pivot, b)), as the tangent of its angle (Golub & Van
// Loan, 8.5.2).
PART tangent(PART a, PART b, PART pivot) {
  PART tau = over(minus(b, a), times(PART(2), pivot));
  // Beyond this 1 + tau² is tau², which might overflow.
  if (abs(tau) > PART(1) / PART(EPS)) return over(PART(0.5), tau);
  PART t = root(plus(PART(1), times(tau, tau)));
  return over(PART(1), plus(tau, tau >= PART(0) ? t : -t));
}

// What cosine and sine of the angle are to be divided by: they are 1 and the tangent over it.
PART secant(PART t) { return root(plus(PART(1), times(t, t))); }

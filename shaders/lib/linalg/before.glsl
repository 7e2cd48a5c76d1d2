// Whether row i with magnitude a comes before row j with magnitude b as a pivot: the largest, the first of equal ones, the last NaN.
bool before(SCALAR a, uint i, SCALAR b, uint j) {
  if (is_nan(a)) return !is_nan(b) || i > j;
  return !is_nan(b) && (a > b || (a == b && i < j));
}

// Householder reflectors of the columns first..last of each matrix, at most PANEL of them, one matrix a workgroup, whose
// threads hold the rows in registers: thread t has the rows t, t + THREADS, …. Signs and what is negligible are as in
// reflect.glsl; a reflector is 1 on the diagonal. Also writes the products of each reflector with those before it, which
// is what apply_panels.glsl needs (C. Puglisi, 1992, and T. Joffrin, T. M. Low, E. S. Quintana-Ortí, R. van de Geijn and
// F. Van Zee, "Accumulating Householder transformations, revisited", 2006).

#include "lib/linalg/subgroup_sums.glsl"

const uint SUBGROUPS = THREADS / SUBGROUP;

shared SCALAR parts[2][SUBGROUPS][PANEL];
// The row of the diagonal, and the squares of whole columns.
shared SCALAR heads[2][PANEL], wholes[PANEL];

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint id = INVOCATION, lane = gl_SubgroupInvocationID, size = uint(p.last - p.first), current = 0;
  SCALAR a[EACH][PANEL], x[PANEL];
  // The sums of x over all threads. Two arrays alternate, so that one barrier is enough.
  #define TOTALS \
    SUBGROUP_SUMS(x) \
    for (uint i = 0; i < KEPT; i++) parts[current][gl_SubgroupID][FIRST_KEPT(lane) + i] = x[i]; \
    barrier(); \
    for (uint i = 0; i < OWNED; i++) { \
      x[i] = SCALAR(0); \
      for (uint s = lane / PANEL; s < SUBGROUPS; s += SHARERS) x[i] += parts[current][s][OWN(lane, i)]; \
    } \
    BROADCAST_OWNED(x)
  for (uint k = 0; k < PANEL; k++) x[k] = SCALAR(0);
  for (uint r = 0; r < EACH; r++) {
    IDX row = id + r * THREADS;
    for (uint k = 0; k < PANEL; k++) {
      a[r][k] = SCALAR(0);
      if (row < p.rows && k < size) a[r][k] = AT(Element, p.work, (batch * p.columns + p.first + k) * p.rows + row);
      x[k] += a[r][k] * a[r][k];
    }
  }
  TOTALS
  if (id == 0) for (uint k = 0; k < PANEL; k++) wholes[k] = x[k];
  current = 1;
  // The current column comes first; after PANEL iterations all are back at their positions.
  [[dont_unroll]] for (uint j = 0; j < PANEL; j++) {
    IDX here = p.first + j;
    for (uint k = 0; k < PANEL; k++) x[k] = SCALAR(0);
    for (uint r = 0; r < EACH; r++) {
      IDX row = id + r * THREADS;
      SCALAR y = row > here ? a[r][0] : SCALAR(0);
      for (uint k = 0; k < PANEL; k++) x[k] += y * a[r][k];
      if (row == here) for (uint k = 0; k < PANEL; k++) heads[current][k] = a[r][k];
    }
    TOTALS
    SCALAR tail = x[0], head = j < size ? heads[current][0] : SCALAR(0), norm = sqrt(tail + head * head);
    bool negligible = tail <= SCALAR(4 * EPS * EPS) * wholes[j];
    SCALAR divisor = head <= SCALAR(0) ? head - norm : -tail / (head + norm);
    SCALAR scale = negligible ? SCALAR(0) : SCALAR(1) / divisor, factor = negligible ? SCALAR(0) : -divisor / norm;
    // Products of the reflector with the columns, which in those before are reflectors already.
    for (uint k = 1; k < PANEL; k++) x[k] = heads[current][k] + scale * x[k];
    if (id == 0 && j < size) {
      AT(Real, p.factors, batch * p.reflectors + here) = factor;
      for (uint k = 1; k < PANEL; k++)
        if (j + k >= PANEL) AT(Real, p.products, (batch * p.reflectors + here) * PANEL + j + k - PANEL) = x[k];
    }
    for (uint k = 1; k < PANEL; k++) x[k] = j + k < PANEL ? factor * x[k] : SCALAR(0);
    for (uint r = 0; r < EACH; r++) {
      IDX row = id + r * THREADS;
      SCALAR own = a[r][0], v = row > here ? own * scale : SCALAR(row == here ? 1 : 0);
      for (uint k = 1; k < PANEL; k++) a[r][k - 1] = a[r][k] - x[k] * v;
      if (row == here && !negligible) own = norm;
      a[r][PANEL - 1] = row > here ? v : own;
    }
    current = 1 - current;
  }
  for (uint r = 0; r < EACH; r++) {
    IDX row = id + r * THREADS;
    if (row >= p.rows) continue;
    for (uint k = 0; k < PANEL; k++) {
      if (k >= size) continue;
      IDX column = p.first + k;
      bool below = row > column;
      if (!below) AT(Element, p.work, (batch * p.columns + column) * p.rows + row) = a[r][k];
      SCALAR v = below ? a[r][k] : SCALAR(row == column ? 1 : 0);
      AT(Element, p.reflector, (batch * p.reflectors + column) * p.rows + row) = v;
    }
  }
}

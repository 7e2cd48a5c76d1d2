// Householder reflectors of the columns first..last of each matrix, at most PANEL of them, one matrix a workgroup, whose
// threads hold the rows in registers: thread t has the rows t, t + THREADS, …. Signs and what is negligible are as in
// reflect.glsl; a reflector is 1 on the diagonal. Also writes the products of each reflector with those before it, which
// is what apply_panels.glsl needs (C. Puglisi, 1992, and T. Joffrin, T. M. Low, E. S. Quintana-Ortí, R. van de Geijn and
// F. Van Zee, "Accumulating Householder transformations, revisited", 2006).

#include "lib/linalg/lanes.glsl"

const uint SUBGROUPS = THREADS / SUBGROUP;

shared PART parts[2][SUBGROUPS][PANEL];
// The row of the diagonal, and the squares of whole columns.
shared PART heads[2][PANEL], wholes[PANEL];

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint id = INVOCATION, lane = gl_SubgroupInvocationID, size = uint(p.last - p.first), turn = 0;
  PART a[EACH][PANEL], x[PANEL];
  // The sums of x over all threads. Two arrays take turns, so that one barrier is enough.
  #define TOTALS \
    SUBGROUP_SUMS(x) \
    for (uint i = 0; i < KEPT; i++) parts[turn][gl_SubgroupID][FIRST_KEPT(lane) + i] = x[i]; \
    barrier(); \
    for (uint i = 0; i < OWNED; i++) { \
      x[i] = PART(0); \
      for (uint s = lane / PANEL; s < SUBGROUPS; s += SHARERS) x[i] += parts[turn][s][OWN(lane, i)]; \
    } \
    BROADCAST_OWNED(x)
  for (uint k = 0; k < PANEL; k++) x[k] = PART(0);
  for (uint r = 0; r < EACH; r++) {
    IDX row = id + r * THREADS;
    for (uint k = 0; k < PANEL; k++) {
      a[r][k] = PART(0);
      if (row < p.rows && k < size) a[r][k] = AT(Cell, p.work, (batch * p.columns + p.first + k) * p.rows + row);
      x[k] += a[r][k] * a[r][k];
    }
  }
  TOTALS
  if (id == 0) for (uint k = 0; k < PANEL; k++) wholes[k] = x[k];
  turn = 1;
  // The column whose turn it is comes first; after PANEL turns all are back at their places.
  [[dont_unroll]] for (uint j = 0; j < PANEL; j++) {
    IDX here = p.first + j;
    for (uint k = 0; k < PANEL; k++) x[k] = PART(0);
    for (uint r = 0; r < EACH; r++) {
      IDX row = id + r * THREADS;
      PART y = row > here ? a[r][0] : PART(0);
      for (uint k = 0; k < PANEL; k++) x[k] += y * a[r][k];
      if (row == here) for (uint k = 0; k < PANEL; k++) heads[turn][k] = a[r][k];
    }
    TOTALS
    PART tail = x[0], head = j < size ? heads[turn][0] : PART(0), norm = sqrt(tail + head * head);
    bool negligible = tail <= PART(4 * EPS * EPS) * wholes[j];
    PART divisor = head <= PART(0) ? head - norm : -tail / (head + norm);
    PART scale = negligible ? PART(0) : PART(1) / divisor, factor = negligible ? PART(0) : -divisor / norm;
    // Products of the reflector with the columns, which in those before are reflectors already.
    for (uint k = 1; k < PANEL; k++) x[k] = heads[turn][k] + scale * x[k];
    if (id == 0 && j < size) {
      AT(Number, p.factors, batch * p.reflectors + here) = factor;
      for (uint k = 1; k < PANEL; k++)
        if (j + k >= PANEL) AT(Number, p.products, (batch * p.reflectors + here) * PANEL + j + k - PANEL) = x[k];
    }
    for (uint k = 1; k < PANEL; k++) x[k] = j + k < PANEL ? factor * x[k] : PART(0);
    for (uint r = 0; r < EACH; r++) {
      IDX row = id + r * THREADS;
      PART own = a[r][0], v = row > here ? own * scale : PART(row == here ? 1 : 0);
      for (uint k = 1; k < PANEL; k++) a[r][k - 1] = a[r][k] - x[k] * v;
      if (row == here && !negligible) own = norm;
      a[r][PANEL - 1] = row > here ? v : own;
    }
    turn = 1 - turn;
  }
  for (uint r = 0; r < EACH; r++) {
    IDX row = id + r * THREADS;
    if (row >= p.rows) continue;
    for (uint k = 0; k < PANEL; k++) {
      if (k >= size) continue;
      IDX column = p.first + k;
      bool below = row > column;
      if (!below) AT(Cell, p.work, (batch * p.columns + column) * p.rows + row) = a[r][k];
      PART v = below ? a[r][k] : PART(row == column ? 1 : 0);
      AT(Cell, p.reflector, (batch * p.reflectors + column) * p.rows + row) = v;
    }
  }
}

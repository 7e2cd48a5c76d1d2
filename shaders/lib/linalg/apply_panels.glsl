// Applies the reflectors first..last of panel.glsl to the columns begin..end of each matrix, a column a subgroup. Of a
// panel's reflectors V, whose product is I - V·T·Vᵀ (R. Schreiber and C. Van Loan, "A storage-efficient WY representation
// for products of Householder transformations", 1989), T is never formed: its inverse has the products of the reflectors
// above the diagonal and the inverses of their factors on it, and is solved with.

#include "lib/linalg/subgroup_sums.glsl"

#define V(i) AT(Element, p.reflector, v + (i) * p.rows + row)
#define PRODUCT(i, j) AT(Real, p.products, (batch * p.reflectors + start + (j)) * PANEL + (i))

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX blocks = (p.end - p.begin + GROUP_COLUMNS - 1) / GROUP_COLUMNS, batch = group / blocks;
  uint lane = gl_SubgroupInvocationID;
  IDX j = p.begin + group % blocks * GROUP_COLUMNS + gl_SubgroupID;
  if (j >= p.end) return;
  IDX column = (batch * p.columns + j) * p.rows, panels = (p.last - p.first + PANEL - 1) / PANEL;
  for (IDX step = 0; step < panels; step++) {
    IDX start = p.first + (REVERSED != 0 ? panels - 1 - step : step) * PANEL;
    // The identity's columns before the panel are left as they are.
    if (IDENTITY != 0 && j < start) continue;
    uint size = uint(min(IDX(PANEL), p.last - start));
    IDX v = (batch * p.reflectors + start) * p.rows;
    SCALAR x[PANEL], y[PANEL];
    for (uint k = 0; k < PANEL; k++) x[k] = SCALAR(0);
    // Above the panel reflectors are zero.
    IDX top = start / COLUMN_THREADS * COLUMN_THREADS + lane;
    if (size == PANEL) {
      for (IDX row = top; row < p.rows; row += COLUMN_THREADS) {
        SCALAR a = AT(Element, p.work, column + row);
        for (uint k = 0; k < PANEL; k++) x[k] += V(k) * a;
      }
    } else {
      for (IDX row = top; row < p.rows; row += COLUMN_THREADS) {
        SCALAR a = AT(Element, p.work, column + row);
        for (uint k = 0; k < PANEL; k++) if (k < size) x[k] += V(k) * a;
      }
    }
    SUBGROUP_SUMS(x)
    {
      SCALAR kept[KEPT];
      for (uint i = 0; i < KEPT; i++) kept[i] = x[i];
      for (uint k = 0; k < PANEL; k++) x[k] = subgroupShuffle(kept[k % KEPT], k / KEPT * KEPT * SUBGROUP / PANEL);
    }
    for (uint s = 0; s < PANEL; s++) {
      uint k = REVERSED != 0 ? PANEL - 1 - s : s;
      y[k] = SCALAR(0);
      if (k >= size) continue;
      y[k] = AT(Real, p.factors, batch * p.reflectors + start + k) * x[k];
      for (uint i = 0; i < PANEL; i++) {
        if (REVERSED != 0 && i < k) x[i] -= PRODUCT(i, k) * y[k];
        if (REVERSED == 0 && i > k && i < size) x[i] -= PRODUCT(k, i) * y[k];
      }
    }
    if (size == PANEL) {
      for (IDX row = top; row < p.rows; row += COLUMN_THREADS) {
        SCALAR sum = SCALAR(0);
        for (uint k = 0; k < PANEL; k++) sum += V(k) * y[k];
        AT(Element, p.work, column + row) -= sum;
      }
    } else {
      for (IDX row = top; row < p.rows; row += COLUMN_THREADS) {
        SCALAR sum = SCALAR(0);
        for (uint k = 0; k < PANEL; k++) if (k < size) sum += V(k) * y[k];
        AT(Element, p.work, column + row) -= sum;
      }
    }
  }
}

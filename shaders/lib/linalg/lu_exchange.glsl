// The exchanges of rows that a panel's pivots ask for, in all columns but the panel's, and in the permutation, which is
// the identity before the first panel. Exchanges follow one another, so they are first composed: of the rows that move,
// which are the panel's own and the pivots below it, each learns which row it gets.

const uint SLOTS = 2 * WIDTH, COLUMNS = LOCAL_SIZE / SLOTS;

// Rows that move, and the rows that they get.
shared uint rows[SLOTS], sources[SLOTS];
// The slot of each pivot.
shared uint slots[WIDTH];

void main() {
  uint thread = INVOCATION;
  if (workgroup() >= p.groups) return;
  IDX tiles = ONCE(QUOTIENT(p.groups, p.batch)), batch = ONCE(QUOTIENT(workgroup(), tiles));
  IDX tile = workgroup() - batch * tiles;
  uint n = uint(p.n), start = uint(p.start), size = uint(p.size);
  IDX pivots = batch * p.n + p.start;
  if (thread < size) {
    uint chosen = AT(uint, p.pivots, pivots + thread);
    // Equal pivots share the slot of the first.
    uint first = 0;
    while (AT(uint, p.pivots, pivots + first) != chosen) first++;
    slots[thread] = chosen < start + size ? chosen - start : WIDTH + first;
    rows[thread] = start + thread;
    rows[WIDTH + thread] = chosen;
  } else if (thread < WIDTH) {
    rows[thread] = n;
    rows[WIDTH + thread] = n;
  }
  barrier();
  if (thread < SLOTS) sources[thread] = rows[thread];
  barrier();
  if (thread == 0) {
    for (uint j = 0; j < size; j++) {
      uint other = sources[slots[j]];
      sources[slots[j]] = sources[j];
      sources[j] = other;
    }
  }
  barrier();
  uint slot = thread % SLOTS;
  uint to = rows[slot], from = sources[slot];
  // Pivots within the panel and repeated ones are in another slot.
  bool moves = to < n && (slot < WIDTH || slots[slot - WIDTH] == slot);
  IDX column = tile * COLUMNS + thread / SLOTS, others = p.n - p.size;
  bool element = moves && from != to && column < others, order = moves && column == others;
  if (column >= p.start) column += p.size;
  IDX base = (batch * p.n + column) * p.n;
  ELEMENT value = ELEMENT(0);
  if (element) value = ELEMENTS(p.a, base + from);
  uint index = from;
  if (order && start > 0) index = AT(uint, p.permutation, batch * p.n + from);
  barrier();
  if (element) ELEMENTS(p.a, base + to) = value;
  if (order) AT(uint, p.permutation, batch * p.n + to) = index;
  // Before the first panel the permutation holds nothing yet.
  if (start == 0 && tile == tiles - 1) {
    for (uint i = size + thread; i < n; i += LOCAL_SIZE) {
      bool moved = false;
      for (uint k = WIDTH; k < WIDTH + size; k++) moved = moved || rows[k] == i;
      if (!moved) AT(uint, p.permutation, batch * p.n + i) = i;
    }
  }
}

// Sums over the threads of a column.

#ifndef SUMS
#define SUMS

struct Sums {
  SUM a, b;
  SUM_ELEMENT g;
};

const Sums NOTHING = Sums(SUM(0), SUM(0), SUM_ELEMENT(0));

shared Sums partial[2][THREADS];
uint current = 0;

// The sums over the threads of a column; every thread of the workgroup calls it. Two arrays alternate, so that one
// barrier is enough: a thread that writes to an array again has passed the barrier after its readers.
Sums total(Sums x) {
  uint id = INVOCATION, base = id / COLUMN_THREADS * COLUMN_THREADS;
  partial[current][id] = x;
  barrier();
  Sums sum = NOTHING;
  for (uint k = 0; k < COLUMN_THREADS; k++) {
    sum.a += partial[current][base + k].a;
    sum.b += partial[current][base + k].b;
    sum.g += partial[current][base + k].g;
  }
  current = 1 - current;
  return sum;
}

// What threads of the workgroup wrote to buffers is seen by the others after this.
void meet() {
  memoryBarrierBuffer();
  barrier();
}

#endif

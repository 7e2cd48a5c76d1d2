// Sums over the lanes of a segment.

#ifndef SUMS
#define SUMS

struct Sums {
  SUM a, b;
  SUM_ELEMENT g;
};

const Sums NOTHING = Sums(SUM(0), SUM(0), SUM_ELEMENT(0));

shared Sums partial[2][THREADS];
uint turn = 0;

// The sums over the lanes of a segment; every thread of the workgroup calls it. Two arrays take turns, so that one
// barrier is enough: who writes to an array again has passed the barrier after its readers.
Sums total(Sums x) {
  uint id = INVOCATION, base = id / LANES * LANES;
  partial[turn][id] = x;
  barrier();
  Sums sum = NOTHING;
  for (uint k = 0; k < LANES; k++) {
    sum.a += partial[turn][base + k].a;
    sum.b += partial[turn][base + k].b;
    sum.g += partial[turn][base + k].g;
  }
  turn = 1 - turn;
  return sum;
}

// What threads of the workgroup wrote to buffers is seen by the others after this.
void meet() {
  memoryBarrierBuffer();
  barrier();
}

#endif

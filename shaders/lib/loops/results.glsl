// Reduces what the invocations of a workgroup have reduced their results to. That is stored as a partial result, for the next kernel.
//
// The kernel defines before it includes this (see EmittedReduction in src/program/emit/epilogue.rs):
//   put_results(slot)                   puts what the invocation has into shared memory
//   combine_results(slot, next, left)   combines what is at slot, slot + next and so on below left, and puts that to slot
//   store_partial(group)                stores what is at slot 0
//   RESULT_GROUPS       workgroups that store one: a grid may have more
//   RESULTS_OF_SUBGROUP where the workgroup is one subgroup: lavapipe suspends each invocation at a barrier of a workgroup

// What an invocation combines between two barriers.
#define RESULTS_AT_ONCE 8

void wait_for_results() {
#ifdef RESULTS_OF_SUBGROUP
  subgroupMemoryBarrierShared();
  subgroupBarrier();
#else
  barrier();
#endif
}

// All invocations call this when they have reduced their results. Those that stores is true for, each with a slot of its own below slots,
// have any.
void finish_results(IDX group, bool stores, uint slot, const uint slots) {
  if (stores) put_results(slot);
  for (uint left = slots, next = 0; next != 1; left = next) {
    next = max(left / RESULTS_AT_ONCE, 1);
    wait_for_results();
    if (stores && slot < next) combine_results(slot, next, left);
  }
  if (stores && slot == 0 && group < RESULT_GROUPS) store_partial(group);
}

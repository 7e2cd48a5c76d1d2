// How the tiles of products store their sums: STORE_LOOP is the attribute of loops around a store. With ROLLED_STORES 1, by default 0, a
// store is long and should be in the kernel few times.

#ifndef ROLLED_STORES
#define ROLLED_STORES 0
#endif
#if ROLLED_STORES
#define STORE_LOOP [[dont_unroll]]
#else
#define STORE_LOOP [[unroll]]
#endif

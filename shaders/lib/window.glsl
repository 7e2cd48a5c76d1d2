// The frame of the kernels that scatter from windows: a thread for each window, element or cell.
//
// The kernel that includes this defines THREADS, the size of a workgroup, and run(i), for thread i of p.threads.

void main() {
  IDX group = workgroup();
  IDX i = group * THREADS + INVOCATION;
  if (group > p.threads / THREADS || i >= p.threads) return;
  run(i);
}

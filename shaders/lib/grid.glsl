// The number of the workgroup. Reading the grid's extents takes an H200 0.3 µs of each kernel: kernels whose grid has several lines alone do.
#if GRID_LINES > 1
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
#else
IDX workgroup() { return gl_WorkGroupID.x; }
#endif

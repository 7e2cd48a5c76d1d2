// Block Jacobi rotations: pairs of blocks of WIDTH neighbouring columns meet as single columns do in pairs.glsl. What lies
// at or beyond the last column is zero.

#define BOTH (2 * WIDTH)

// The column of the matrix that stands at place `at` of a pair of blocks.
IDX column_of(uint at, IDX top, IDX bottom) { return at < WIDTH ? top * WIDTH + at : bottom * WIDTH + at - WIDTH; }

// Whether the sweep before this one found all columns orthogonal.
bool finished(IDX batch) { return p.sweep > 0 && AT(uint, p.rotations, batch * p.sweeps + p.sweep - 1) == 0u; }

//! Nothing: the build of its dependency is what is wanted.

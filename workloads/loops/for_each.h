// Who carries out the loops of a program that gives them away as functions: oneTBB by tbb.cpp, or rayon by tools/loops-rayon.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Calls body for parts of the loop n, from lower to below upper, in as many threads, the caller among them. Returns when all is
// done. A program has the same number of threads at each call.
void for_each(int threads, int n, int64_t lower, int64_t upper, void (*body)(int64_t lower, int64_t upper));

#ifdef __cplusplus
}
#endif

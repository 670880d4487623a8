// Kernels whose parallel loops are carried out by OpenMP, by evenly, or by another library: each loop is written once.
//
// Compiled without OpenMP the program is the sequential one that the others are compared with. With LOOPS_BY_CALL as well, that
// program gives its loops to for_each: oneTBB and rayon want a function, and have no parallel region around the steps.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _OPENMP
#include <evenly/loops.h>
#include <omp.h>
#elif defined(LOOPS_BY_CALL)
#include "for_each.h"
#endif

enum { MOST_LOOPS = 4 };

struct run {
    int64_t size;
    int64_t steps;
    int threads;
    bool adapts; // by evenly
    bool overtakes;
    int64_t turns; // so many steps by OpenMP, then as many by evenly, and so on; 0: all by whom `adapts` says
#ifdef _OPENMP
    evenly_team *team;
    evenly_region *loops[MOST_LOOPS];
#endif
};

// A kernel allocates, computes between begin_timing and end_timing, and returns a checksum.
struct kernel {
    const char *name;
    int64_t size, steps; // as in the paper; steps for about two seconds
    uint64_t (*compute)(struct run *run);
};
extern const struct kernel matrix, jacobi, sor, shallow, water, gauss;
extern const struct kernel empty, flags; // no kernels of the paper

// One iteration. Not put into the loop, nor translated by what is known of that (by gcc), which compilers do better or worse by who
// hands it out: times would say that.
#if __has_attribute(noipa)
#define ITERATION __attribute__((noipa)) static void
#else
#define ITERATION __attribute__((noinline)) static void
#endif

void *zeroed(size_t count, size_t bytes);
void begin_timing(void);
void end_timing(void);
// By each thread, at the begin of a step: who hands out its loops.
void begin_step(const struct run *run, int64_t step);
extern _Thread_local bool by_evenly;
uint64_t checksum(uint64_t sum, const void *data, size_t bytes);

#define STEPS(run, step, steps) \
    for (int64_t step = 0; step < (steps) && (begin_step(run, step), true); step++)

#ifdef _OPENMP
#define PARALLEL(run) _Pragma("omp parallel num_threads((run)->threads)")
#define THREAD ((size_t)omp_get_thread_num())
// Between loops threads read variables of their own alone; in gauss also columns that no later loop writes to.
#define DECLARE(run, n, name, load, access)                                                       \
    do {                                                                                          \
        (run)->loops[n] = evenly_region_new((run)->team, name, load, access);                     \
        if ((run)->overtakes)                                                                     \
            evenly_region_overtakes((run)->loops[n]);                                             \
    } while (0)
// The loop n goes through the rows of an array, which has so many of a elements.
#define USES(run, n, use, array, bytes, a, rows)                                                  \
    do {                                                                                          \
        evenly_team_array((run)->team, array, bytes, 2, (size_t[]){(size_t)(rows), (size_t)(a)}); \
        evenly_region_uses((run)->loops[n], use, array, bytes, a, 0);                             \
    } while (0)
// The loop n: for each i from lower to below upper. All threads come here; none goes on before all is done.
#define LOOP(run, n, i, lower, upper, ...)                                                        \
    do {                                                                                          \
        if (by_evenly) {                                                                          \
            evenly_loop *loop_ = evenly_begin((run)->loops[n], THREAD, lower, upper, 1);          \
            int64_t lower_, upper_, stride_;                                                      \
            while (evenly_next_task(loop_, &lower_, &upper_, &stride_))                           \
                for (int64_t i = lower_; i < upper_; i += stride_) {                              \
                    __VA_ARGS__                                                                   \
                }                                                                                 \
        } else {                                                                                  \
            _Pragma("omp for schedule(runtime)") for (int64_t i = lower; i < (upper); i++) {      \
                __VA_ARGS__                                                                       \
            }                                                                                     \
        }                                                                                         \
    } while (0)
#else
#define PARALLEL(run)
#define THREAD ((size_t)0)
#define DECLARE(run, n, name, load, access) (void)(run)
#define USES(run, n, use, array, bytes, a, rows) (void)(array)
#ifdef LOOPS_BY_CALL
// A function of GNU C inside another one sees its variables; what is passed on as its address is code on the stack.
#define LOOP(run, n, i, lower, upper, ...)                                                        \
    do {                                                                                          \
        void body_(int64_t lower_, int64_t upper_) {                                              \
            for (int64_t i = lower_; i < upper_; i++) {                                           \
                __VA_ARGS__                                                                       \
            }                                                                                     \
        }                                                                                         \
        for_each((run)->threads, n, lower, upper, body_);                                         \
    } while (0)
#else
#define LOOP(run, n, i, lower, upper, ...)                                                        \
    for (int64_t i = lower; i < (upper); i++) {                                                   \
        __VA_ARGS__                                                                               \
    }
#endif
#endif

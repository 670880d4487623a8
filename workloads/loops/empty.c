// Loops that do nothing: what the begin and the end of one take. That of OpenMP is one that its compiler divides (schedule(static)),
// which is faster than what OMP_SCHEDULE says.
#include "kernels.h"

#include <stdatomic.h>

static uint64_t compute_nothing(struct run *run) {
    const int64_t n = run->size;
    DECLARE(run, 0, "empty", EVENLY_FIXED, EVENLY_INDEPENDENT);
    begin_timing();
    PARALLEL(run)
    STEPS(run, step, run->steps) {
#ifdef _OPENMP
        if (!by_evenly) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < n; i++)
                __asm__ volatile("" : : "r"(i));
            continue;
        }
#endif
        LOOP(run, 0, i, 0, n, __asm__ volatile("" : : "r"(i)););
    }
    end_timing();
    return checksum(0, &n, sizeof n);
}

// The least that it takes threads to meet: each says that it has come, in a cache line of its own, and looks at those of the others.
static uint64_t compute_flags(struct run *run) {
    struct flag {
        _Alignas(128) _Atomic int64_t step;
    };
#ifdef _OPENMP
    const int threads = run->threads;
#else
    const int threads = 1;
#endif
    const int64_t n = run->size;
    struct flag *flags = zeroed((size_t)threads, sizeof *flags);
    begin_timing();
    PARALLEL(run)
    for (int64_t step = 1; step <= run->steps; step++) {
        atomic_store_explicit(&flags[THREAD].step, step, memory_order_release);
        for (int other = 0; other < threads; other++)
            while (atomic_load_explicit(&flags[other].step, memory_order_acquire) < step)
                ;
    }
    end_timing();
    return checksum(0, &n, sizeof n);
}

const struct kernel empty = {"empty", 2, 1000000, compute_nothing};
const struct kernel flags = {"flags", 2, 1000000, compute_flags};

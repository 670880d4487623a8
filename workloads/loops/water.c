// Water: forces between molecules that are near each other, each pair once, by the molecule with the lower number of both; a lock
// for each (FIXED, INDEPENDENT). Forces are whole numbers, so that their sum does not depend on the order.
#include <stdatomic.h>

#include "kernels.h"

struct molecule {
    int64_t at[3];
    int64_t force[3];
    atomic_flag lock;
    char rest[672 - 6 * sizeof(int64_t) - sizeof(atomic_flag)]; // as large as in the paper
};
_Static_assert(sizeof(struct molecule) == 672, "the paper's size");

enum { EDGE = 1 << 20 };

static void add(struct molecule *to, const int64_t *force, int64_t sign) {
    while (atomic_flag_test_and_set_explicit(&to->lock, memory_order_acquire))
        ;
    for (int axis = 0; axis < 3; axis++)
        to->force[axis] += sign * force[axis];
    atomic_flag_clear_explicit(&to->lock, memory_order_release);
}

static void attract(struct molecule *all, int64_t one, int64_t other) {
    int64_t apart[3], square = 0;
    for (int axis = 0; axis < 3; axis++) {
        apart[axis] = all[other].at[axis] - all[one].at[axis];
        square += apart[axis] * apart[axis];
    }
    if (square > (int64_t)EDGE * EDGE / 16)
        return;
    int64_t force[3];
    for (int axis = 0; axis < 3; axis++)
        force[axis] = apart[axis] * 4096 / (1024 + square / EDGE);
    add(&all[one], force, 1);
    add(&all[other], force, -1);
}

// Each with the half that follows it, so that all have the same to do.
ITERATION attract_half(int64_t n, int64_t i, struct molecule *all) {
    const int64_t half = n % 2 || i < n / 2 ? n / 2 : n / 2 - 1;
    for (int64_t k = 1; k <= half; k++)
        attract(all, i, (i + k) % n);
}

ITERATION move(struct molecule *one) {
    for (int axis = 0; axis < 3; axis++) {
        one->at[axis] = (one->at[axis] + one->force[axis] / 1024) & (EDGE - 1);
        one->force[axis] = 0;
    }
}

static uint64_t compute(struct run *run) {
    const int64_t n = run->size;
    struct molecule *all = zeroed((size_t)n, sizeof *all);
    uint64_t random = 1;
    for (int64_t i = 0; i < n; i++)
        for (int axis = 0; axis < 3; axis++) {
            random = random * 6364136223846793005U + 1442695040888963407U;
            all[i].at[axis] = (int64_t)(random >> 44);
        }
    DECLARE(run, 0, "forces", EVENLY_FIXED, EVENLY_INDEPENDENT);
    USES(run, 0, EVENLY_WRITES, all, sizeof *all, 1, n);
    DECLARE(run, 1, "positions", EVENLY_FIXED, EVENLY_INDEPENDENT);
    USES(run, 1, EVENLY_WRITES, all, sizeof *all, 1, n);
    begin_timing();
    PARALLEL(run)
    STEPS(run, step, run->steps) {
        LOOP(run, 0, i, 0, n, attract_half(n, i, all););
        LOOP(run, 1, i, 0, n, move(&all[i]););
    }
    end_timing();
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = checksum(sum, all[i].at, sizeof all[i].at);
    return sum;
}

const struct kernel water = {"water", 9261, 8, compute};

// Matrix: C = A B, a row of C in each iteration (FIXED, INDEPENDENT).
#include "kernels.h"

ITERATION multiply(int64_t n, int64_t i, const double *a, const double *b, double *c) {
    double *row = c + i * n;
    for (int64_t j = 0; j < n; j++)
        row[j] = 0;
    for (int64_t k = 0; k < n; k++) {
        const double factor = a[i * n + k];
        for (int64_t j = 0; j < n; j++)
            row[j] += factor * b[k * n + j];
    }
}

static uint64_t compute(struct run *run) {
    const int64_t n = run->size;
    double *a = zeroed((size_t)(n * n), sizeof *a), *b = zeroed((size_t)(n * n), sizeof *b);
    double *c = zeroed((size_t)(n * n), sizeof *c);
    for (int64_t i = 0; i < n * n; i++) {
        a[i] = (double)(i % 17);
        b[i] = (double)(i % 13);
    }
    DECLARE(run, 0, "rows", EVENLY_FIXED, EVENLY_INDEPENDENT);
    USES(run, 0, EVENLY_READS, a, sizeof *a, n, n);
    USES(run, 0, EVENLY_WRITES, c, sizeof *c, n, n);
    begin_timing();
    PARALLEL(run)
    STEPS(run, step, run->steps)
        LOOP(run, 0, i, 0, n, multiply(n, i, a, b, c););
    end_timing();
    return checksum(0, c, (size_t)(n * n) * sizeof *c);
}

const struct kernel matrix = {"matrix", 512, 30, compute};

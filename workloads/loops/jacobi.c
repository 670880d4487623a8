// Jacobi: each element becomes the mean of its four neighbours (FIXED, STENCIL).
#include "kernels.h"

ITERATION relax(int64_t n, int64_t i, const float *from, float *to) {
    for (int64_t j = 1; j < n - 1; j++)
        to[i * n + j] = 0.25F * (from[(i - 1) * n + j] + from[(i + 1) * n + j] + from[i * n + j - 1] + from[i * n + j + 1]);
}

static uint64_t compute(struct run *run) {
    const int64_t n = run->size;
    float *grids[2] = {zeroed((size_t)(n * n), sizeof(float)), zeroed((size_t)(n * n), sizeof(float))};
    for (int64_t i = 0; i < n * n; i++)
        grids[0][i] = grids[1][i] = (float)(i % 31) / 31; // no sum is exact, which an emulated CPU takes longer for
    DECLARE(run, 0, "sweep", EVENLY_FIXED, EVENLY_STENCIL);
    USES(run, 0, EVENLY_READS, grids[0], sizeof(float), n, n);
    USES(run, 0, EVENLY_WRITES, grids[1], sizeof(float), n, n);
    begin_timing();
    PARALLEL(run)
    STEPS(run, step, run->steps) {
        const float *from = grids[step % 2];
        float *to = grids[1 - step % 2];
        LOOP(run, 0, i, 1, n - 1, relax(n, i, from, to););
    }
    end_timing();
    return checksum(0, grids[run->steps % 2], (size_t)(n * n) * sizeof(float));
}

const struct kernel jacobi = {"jacobi", 2048, 300, compute};

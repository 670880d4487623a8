// Gauss: elimination with pivoting; in each step there is a row and a column less to do (VARIABLE, INDEPENDENT).
#include <stdlib.h>

#include "kernels.h"

ITERATION eliminate(int64_t n, int64_t k, const double *pivot, double *own) {
    const double factor = own[k] / pivot[k];
    for (int64_t j = k + 1; j < n; j++)
        own[j] -= factor * pivot[j];
}

static uint64_t compute(struct run *run) {
    const int64_t n = run->size;
    double *matrix = zeroed((size_t)(n * n), sizeof *matrix);
    uint64_t random = 1;
    for (int64_t i = 0; i < n * n; i++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        matrix[i] = (double)(random >> 40) / 1e6;
    }
    DECLARE(run, 0, "rows", EVENLY_VARIABLE, EVENLY_INDEPENDENT);
    USES(run, 0, EVENLY_WRITES, matrix, sizeof *matrix, n, n);
    begin_timing();
    PARALLEL(run) {
        // Each thread finds the pivots for itself, which takes little, and so none waits for another one that does.
        int64_t *row = malloc((size_t)n * sizeof *row);
        if (!row)
            abort();
        for (int64_t i = 0; i < n; i++)
            row[i] = i;
        const int64_t steps = run->steps < n - 1 ? run->steps : n - 1;
        STEPS(run, k, steps) {
            int64_t best = k;
            for (int64_t i = k + 1; i < n; i++)
                if (matrix[row[i] * n + k] * matrix[row[i] * n + k] > matrix[row[best] * n + k] * matrix[row[best] * n + k])
                    best = i;
            const int64_t pivot = row[best];
            row[best] = row[k];
            row[k] = pivot;
            // The column is read by whoever is behind, so that what was eliminated in it stays.
            LOOP(run, 0, i, k + 1, n, eliminate(n, k, matrix + pivot * n, matrix + row[i] * n););
        }
        free(row);
    }
    end_timing();
    return checksum(0, matrix, (size_t)(n * n) * sizeof *matrix);
}

const struct kernel gauss = {"gauss", 2048, 2048, compute};

// Shallow: the shallow-water equations on a periodic grid, by 13 arrays, in three loops a step: fluxes, new values, and smoothing in
// time (FIXED, STENCIL).
#include "kernels.h"

enum { U, V, P, NEW_U, NEW_V, NEW_P, OLD_U, OLD_V, OLD_P, FLUX_U, FLUX_V, VORTICITY, HEIGHT, ARRAYS };

#define AT(array, i, j) field[array][(i) * n + (j)]

ITERATION fluxes(int64_t n, int64_t i, float *const *field) {
    const int64_t up = (i + n - 1) % n;
    for (int64_t j = 0; j < n; j++) {
        const int64_t left = (j + n - 1) % n;
        AT(FLUX_U, i, j) = 0.5F * (AT(P, i, j) + AT(P, up, j)) * AT(U, i, j);
        AT(FLUX_V, i, j) = 0.5F * (AT(P, i, j) + AT(P, i, left)) * AT(V, i, j);
        AT(VORTICITY, i, j) = (AT(V, i, j) - AT(V, up, j) - AT(U, i, j) + AT(U, i, left)) /
                              (AT(P, i, j) + AT(P, up, j) + AT(P, i, left) + AT(P, up, left));
        AT(HEIGHT, i, j) = AT(P, i, j) + 0.25F * (AT(U, i, j) * AT(U, i, j) + AT(V, i, j) * AT(V, i, j));
    }
}

ITERATION values(int64_t n, int64_t i, float *const *field) {
    const int64_t up = (i + n - 1) % n, down = (i + 1) % n;
    for (int64_t j = 0; j < n; j++) {
        const int64_t left = (j + n - 1) % n, right = (j + 1) % n;
        AT(NEW_U, i, j) = AT(OLD_U, i, j) + 0.001F * (AT(VORTICITY, i, j) * AT(FLUX_V, i, right) -
                                                      (AT(HEIGHT, i, j) - AT(HEIGHT, up, j)));
        AT(NEW_V, i, j) = AT(OLD_V, i, j) - 0.001F * (AT(VORTICITY, i, j) * AT(FLUX_U, down, j) +
                                                      (AT(HEIGHT, i, j) - AT(HEIGHT, i, left)));
        AT(NEW_P, i, j) = AT(OLD_P, i, j) - 0.001F * (AT(FLUX_U, down, j) - AT(FLUX_U, i, j) +
                                                      AT(FLUX_V, i, right) - AT(FLUX_V, i, j));
    }
}

ITERATION smoothing(int64_t n, int64_t i, float *const *field) {
    for (int values = 0; values < 3; values++)
        for (int64_t j = 0; j < n; j++) {
            const float now = AT(U + values, i, j), next = AT(NEW_U + values, i, j);
            AT(OLD_U + values, i, j) = now + 0.001F * (next - 2.0F * now + AT(OLD_U + values, i, j));
            AT(U + values, i, j) = next;
        }
}

static uint64_t compute(struct run *run) {
    const int64_t n = run->size;
    float *field[ARRAYS];
    for (int array = 0; array < ARRAYS; array++)
        field[array] = zeroed((size_t)(n * n), sizeof(float));
    for (int64_t i = 0; i < n * n; i++) {
        field[U][i] = field[OLD_U][i] = (float)(i % 19) * 0.1F;
        field[V][i] = field[OLD_V][i] = (float)(i % 23) * 0.1F;
        field[P][i] = field[OLD_P][i] = 50.0F + (float)(i % 7) * 0.1F;
    }
    const char *names[] = {"fluxes", "values", "smoothing"};
    const int writes[] = {FLUX_U, NEW_U, U};
    for (int loop = 0; loop < 3; loop++) {
        DECLARE(run, loop, names[loop], EVENLY_FIXED, EVENLY_STENCIL);
        USES(run, loop, EVENLY_WRITES, field[writes[loop]], sizeof(float), n, n);
    }
    (void)names;
    begin_timing();
    PARALLEL(run)
    STEPS(run, step, run->steps) {
        LOOP(run, 0, i, 0, n, fluxes(n, i, field););
        LOOP(run, 1, i, 0, n, values(n, i, field););
        LOOP(run, 2, i, 0, n, smoothing(n, i, field););
    }
    end_timing();
    uint64_t sum = 0;
    for (int array = U; array <= P; array++)
        sum = checksum(sum, field[array], (size_t)(n * n) * sizeof(float));
    return sum;
}

const struct kernel shallow = {"shallow", 2048, 8, compute};

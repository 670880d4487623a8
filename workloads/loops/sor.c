// SOR: red-black over-relaxation, four times as many rows as columns; first all red elements, then all black ones (FIXED, STENCIL).
#include "kernels.h"

ITERATION relax(int64_t columns, int64_t i, int color, double *grid) {
    double *row = grid + i * columns;
    for (int64_t j = 1 + (i + color) % 2; j < columns - 1; j += 2)
        row[j] += 1.2 * (0.25 * (row[j - columns] + row[j + columns] + row[j - 1] + row[j + 1]) - row[j]);
}

static uint64_t compute(struct run *run) {
    const int64_t rows = run->size, columns = run->size / 4;
    double *grid = zeroed((size_t)(rows * columns), sizeof *grid);
    for (int64_t i = 0; i < rows * columns; i++)
        grid[i] = (double)(i % 29);
    for (int color = 0; color < 2; color++) {
        DECLARE(run, color, color ? "black" : "red", EVENLY_FIXED, EVENLY_STENCIL);
        USES(run, color, EVENLY_WRITES, grid, sizeof *grid, columns, rows);
    }
    begin_timing();
    PARALLEL(run)
    STEPS(run, step, run->steps)
        for (int color = 0; color < 2; color++)
            LOOP(run, color, i, 1, rows - 1, relax(columns, i, color, grid););
    end_timing();
    return checksum(0, grid, (size_t)(rows * columns) * sizeof *grid);
}

const struct kernel sor = {"sor", 4096, 120, compute};

// Jacobi's method for Poisson's equation in OpenMP. The answer, solution and residual, is that of
// poisson.h.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "omp_support.h"
#include "poisson.h"

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "Jacobi sweeps for Poisson's equation in OpenMP, static schedule. Verifies solution and\n"
           "residual against their analytic values (exit status 1 if wrong), prints JSON.\n\n"
           "  --threads N    threads (default: OMP_NUM_THREADS or all CPUs)\n"
           "  --size N       interior points per side (default 1000)\n"
           "  --sweeps K     sweeps, with a barrier after each (default 500)\n"
           "  --output FILE  write the JSON to FILE instead of stdout\n"
           "  --help         this text\n\nExample: %s --threads 3 --size 2000 --sweeps 200\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    enum { THREADS, SIZE, SWEEPS, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"threads", required_argument, NULL, THREADS}, {"size", required_argument, NULL, SIZE},
        {"sweeps", required_argument, NULL, SWEEPS},   {"output", required_argument, NULL, OUTPUT},
        {"help", no_argument, NULL, HELP},             {0},
    };
    uint32_t threads = 0;
    size_t n = 1000;
    uint64_t sweeps = 500;
    const char *output = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case THREADS: threads = (uint32_t)parse_u64("--threads", optarg, 1, 4096); break;
        case SIZE: n = parse_u64("--size", optarg, 2, 30000); break;
        case SWEEPS: sweeps = parse_u64("--sweeps", optarg, 1, 1000000); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);

    struct timing timing = omp_start_team(threads);
    const size_t width = n + 2;
    // malloc, not calloc: the first touch below decides the NUMA node.
    double *grids[2] = {malloc(width * width * sizeof(double)), malloc(width * width * sizeof(double))};
    if (!grids[0] || !grids[1]) die_machine("no memory for two grids of %zu x %zu", width, width);
    const struct poisson answer = poisson_start(n, sweeps);
    const double *mode = answer.mode, b = answer.b;

#pragma omp parallel
    {
        int self = omp_get_thread_num();
#pragma omp for schedule(static)
        for (size_t row = 0; row < width; row++)
            for (size_t column = 0; column < width; column++)
                grids[0][row * width + column] = grids[1][row * width + column] = 0;
        timing.arrived_s[self] = now_s();
#pragma omp barrier
        double cpu_before = thread_cpu_s();
        for (uint64_t sweep = 0; sweep < sweeps; sweep++) {
            const double *from = grids[sweep % 2];
            double *to = grids[(sweep + 1) % 2];
#pragma omp for schedule(static) nowait
            for (size_t row = 1; row <= n; row++) {
                const double *restrict middle = from + row * width;
                const double *restrict up = middle - width, *restrict down = middle + width;
                double *restrict target = to + row * width;
                const double source = b * mode[row];
                for (size_t column = 1; column <= n; column++)
                    target[column] = 0.25 * (up[column] + down[column] + middle[column - 1] +
                                             middle[column + 1] + source * mode[column]);
            }
            timing.finished_s[self] = now_s();
#pragma omp barrier
        }
        timing.cpu_s[self] = thread_cpu_s() - cpu_before;
    }

    const double *u = grids[sweeps % 2];
    double worst = 0, residual_squared = 0, start_squared = 0;
    uint64_t checksum = 0;
    for (size_t row = 1; row <= n; row++) {
        for (size_t column = 1; column <= n; column++) {
            const double *at = u + row * width + column;
            double start = b * (mode[row] * mode[column]);
            double residual = start + at[1] + at[-1] + *(at + width) + *(at - width) - 4 * *at;
            worst = fmax(worst, poisson_error(&answer, row, column, *at));
            residual_squared += residual * residual;
            start_squared += start * start;
            uint64_t bits;
            memcpy(&bits, at, sizeof bits);
            checksum = splitmix64(checksum ^ bits);
        }
    }
    double solution_error = worst / answer.amplitude;
    double residual_ratio = sqrt(residual_squared / start_squared);
    // One sweep too many or too few changes the residual by the factor r = 1 - gap,
    // so a tenth of the gap detects it; b is the size of the residual at the
    // start and sets how far rounding can be seen.
    double residual_tolerance = 0.1 * answer.gap * answer.shrunk + 1e-14 / b;
    int verified = solution_error <= 1e-7 && fabs(residual_ratio - answer.shrunk) <= residual_tolerance;

    FILE *out = open_output(output);
    fprintf(out, "{\"workload\":\"jacobi\",\"runtime\":\"%s\",\"threads\":%d,\"size\":%zu,\"sweeps\":%"
            PRIu64 ",", omp_runtime, timing.threads, n, sweeps);
    timing_print(out, &timing);
    fprintf(out, ",\"checksum\":\"%016" PRIx64 "\",\"verified\":%s,\"solution_error\":%.3e,"
            "\"residual_ratio\":%.15e,\"residual_ratio_expected\":%.15e}\n", checksum,
            verified ? "true" : "false", solution_error, residual_ratio, answer.shrunk);
    close_output(out);
    return verified ? EXIT_SUCCESS : EXIT_FAILURE;
}

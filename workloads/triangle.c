// A triangular loop in OpenMP, in equal blocks of rows (schedule(static)): row i of n has i + 1 units of work,
// so of T threads the last has about 2 T - 1 times the work of the first, and a barrier follows each sweep.
// What a row has computed depends on the row above it in the sweep before, so the checksum is right only if
// every barrier held; it is the same for any number of threads, compiler and runtime.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>

#include "common.h"
#include "kernel.h"
#include "omp_support.h"

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "A triangular loop with schedule(static): the last thread has most of the work. Prints\n"
           "JSON.\n\n"
           "  --threads N    threads (default: as the OpenMP runtime wants)\n"
           "  --rows N       rows of the triangle, at least one a thread (default 240)\n"
           "  --sweeps K     sweeps (default 100)\n"
           "  --iters N      steps of computing of a unit, of which row i has i + 1 (default 100)\n"
           "  --output FILE  write the JSON to FILE instead of stdout\n"
           "  --help         this text\n\nExample: %s --threads 4 --sweeps 200\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    enum { THREADS, ROWS, SWEEPS, ITERS, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"threads", required_argument, NULL, THREADS}, {"rows", required_argument, NULL, ROWS},
        {"sweeps", required_argument, NULL, SWEEPS},   {"iters", required_argument, NULL, ITERS},
        {"output", required_argument, NULL, OUTPUT},   {"help", no_argument, NULL, HELP},
        {0},
    };
    uint64_t threads = (uint64_t)omp_get_max_threads();
    uint64_t rows = 240, sweeps = 100, iters = 100;
    const char *output = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case THREADS: threads = parse_u64("--threads", optarg, 1, 4096); break;
        case ROWS: rows = parse_u64("--rows", optarg, 1, 1000000); break;
        case SWEEPS: sweeps = parse_u64("--sweeps", optarg, 1, 1000000); break;
        case ITERS: iters = parse_u64("--iters", optarg, 1, 1000000000); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);
    if (rows < threads)
        die_input("--rows %" PRIu64 ": at least one for each of %" PRIu64 " threads is needed", rows, threads);

    struct timing timing = omp_start_team((uint32_t)threads);
    // By parity of the sweep: written in one, read in the next.
    uint64_t *digests[2] = {checked_alloc(rows, sizeof(uint64_t)), checked_alloc(rows, sizeof(uint64_t))};

#pragma omp parallel
    {
        const int self = omp_get_thread_num();
        timing.arrived_s[self] = now_s();
#pragma omp barrier
        const double cpu_before = thread_cpu_s();
        double finished = 0;
        for (uint64_t sweep = 0; sweep < sweeps; sweep++) {
            const uint64_t *before = digests[(sweep + 1) % 2];
            uint64_t *now = digests[sweep % 2];
#pragma omp for schedule(static) nowait
            for (uint64_t row = 0; row < rows; row++) {
                struct work work;
                work_init(&work, KIND_COMPUTE, 0, row + 1);
                work_mix(&work, before[row] ^ splitmix64(before[row ? row - 1 : rows - 1]));
                work_run(&work, (row + 1) * iters);
                now[row] = work_digest(&work);
            }
            finished = now_s();
#pragma omp barrier
        }
        timing.finished_s[self] = finished;
        timing.cpu_s[self] = thread_cpu_s() - cpu_before;
    }
    uint64_t checksum = 0;
    for (uint64_t row = 0; row < rows; row++) checksum = splitmix64(checksum ^ digests[(sweeps + 1) % 2][row]);

    FILE *out = open_output(output);
    fprintf(out, "{\"workload\":\"triangle\",\"runtime\":\"%s\",\"threads\":%" PRIu64 ",\"rows\":%" PRIu64
                 ",\"sweeps\":%" PRIu64 ",\"iters\":%" PRIu64 ",\"checksum\":\"%016" PRIx64 "\",",
            omp_runtime, threads, rows, sweeps, iters, checksum);
    timing_print(out, &timing);
    fprintf(out, "}\n");
    close_output(out);
    return EXIT_SUCCESS;
}

// A tree of OpenMP tasks, again and again: each inner task makes two more and waits for both (taskwait), each leaf
// computes. What a leaf computes depends on the tree before it, and what an inner task says on both halves, so
// the checksum is right only if each wait was one; it is the same for any number of threads, compiler and runtime.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>

#include "common.h"
#include "kernel.h"
#include "omp_support.h"

static uint64_t iters = 1000;

static uint64_t tree(uint64_t depth, uint64_t seed) {
    if (!depth) {
        struct work work;
        work_init(&work, KIND_COMPUTE, 0, seed);
        work_run(&work, iters);
        return work_digest(&work);
    }
    uint64_t left, right;
#pragma omp task shared(left)
    left = tree(depth - 1, splitmix64(seed));
#pragma omp task shared(right)
    right = tree(depth - 1, splitmix64(~seed));
#pragma omp taskwait
    return splitmix64(left ^ splitmix64(right));
}

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "Trees of OpenMP tasks, one after the other; the leaves compute. Prints JSON.\n\n"
           "  --threads N    threads (default: as the OpenMP runtime wants)\n"
           "  --phases K     trees (default 100)\n"
           "  --depth D      each has 2^D leaves (default 10)\n"
           "  --iters N      steps of computing of a leaf (default 1000)\n"
           "  --output FILE  write the JSON to FILE instead of stdout\n"
           "  --help         this text\n\nExample: %s --threads 4 --phases 200\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    enum { THREADS, PHASES, DEPTH, ITERS, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"threads", required_argument, NULL, THREADS}, {"phases", required_argument, NULL, PHASES},
        {"depth", required_argument, NULL, DEPTH},     {"iters", required_argument, NULL, ITERS},
        {"output", required_argument, NULL, OUTPUT},   {"help", no_argument, NULL, HELP},
        {0},
    };
    uint64_t threads = 0, phases = 100, depth = 10;
    const char *output = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case THREADS: threads = parse_u64("--threads", optarg, 1, 4096); break;
        case PHASES: phases = parse_u64("--phases", optarg, 1, 1000000000); break;
        case DEPTH: depth = parse_u64("--depth", optarg, 0, 20); break;
        case ITERS: iters = parse_u64("--iters", optarg, 1, 1000000000); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);

    struct timing timing = omp_start_team((uint32_t)threads);
    uint64_t checksum = 0;
#pragma omp parallel
    {
        const int self = omp_get_thread_num();
        timing.arrived_s[self] = now_s();
#pragma omp barrier
        const double cpu_before = thread_cpu_s();
        // The others execute tasks in the barrier at its end.
#pragma omp single
        for (uint64_t phase = 0; phase < phases; phase++) checksum = tree(depth, checksum);
        timing.finished_s[self] = now_s();
        timing.cpu_s[self] = thread_cpu_s() - cpu_before;
    }

    FILE *out = open_output(output);
    fprintf(out, "{\"workload\":\"tasks\",\"runtime\":\"%s\",\"threads\":%d,\"phases\":%" PRIu64
                 ",\"depth\":%" PRIu64 ",\"iters\":%" PRIu64 ",\"checksum\":\"%016" PRIx64 "\",",
            omp_runtime, timing.threads, phases, depth, iters, checksum);
    timing_print(out, &timing);
    fprintf(out, "}\n");
    close_output(out);
    return EXIT_SUCCESS;
}

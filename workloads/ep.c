// EP, "embarrassingly parallel", of the NAS Parallel Benchmarks (NAS Technical
// Report RNR-94-007): pairs of uniform random numbers, those inside the unit
// circle turned into Gaussian deviates and tallied by magnitude. Verified
// against the sums that the report gives for each class.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "omp_support.h"

enum { RINGS = 10, BATCH_LOG2 = 16 };

// The NAS generator: x' = 5^13 x mod 2^46. Since 2^46 divides 2^64, unsigned
// wrap-around loses nothing.
static const uint64_t multiplier = 1220703125, modulus_mask = (UINT64_C(1) << 46) - 1;
static const uint64_t first_state = 271828183;

static const struct class {
    char name;
    unsigned pairs_log2;
    double sum_x, sum_y;
} classes[] = {
    {'S', 24, -3.247834652034740e+3, -6.958407078382297e+3},
    {'W', 25, -2.863319731645753e+3, -6.320053679109499e+3},
    {'A', 28, -4.295875165629892e+3, -1.580732573678431e+4},
    {'B', 30, 4.033815542441498e+4, -2.660669192809235e+4},
};

struct batch {
    double sum_x, sum_y;
    uint64_t rings[RINGS];
};

static uint64_t state_after(uint64_t steps) {
    uint64_t power = multiplier, state = first_state;
    for (; steps; steps >>= 1) {
        if (steps & 1) state = state * power & modulus_mask;
        power = power * power & modulus_mask;
    }
    return state;
}

static double next_uniform(uint64_t *state) {
    *state = *state * multiplier & modulus_mask;
    return (double)*state * 0x1p-46;
}

static void tally(struct batch *batch, uint64_t index) {
    struct batch sum = *batch;
    uint64_t state = state_after(2 * (index << BATCH_LOG2));
    for (uint64_t i = 0; i < UINT64_C(1) << BATCH_LOG2; i++) {
        double x = 2 * next_uniform(&state) - 1, y = 2 * next_uniform(&state) - 1;
        double t = x * x + y * y;
        if (t > 1) continue;
        double factor = sqrt(-2 * log(t) / t), gauss_x = x * factor, gauss_y = y * factor;
        sum.rings[(int)fmax(fabs(gauss_x), fabs(gauss_y))]++;
        sum.sum_x += gauss_x;
        sum.sum_y += gauss_y;
    }
    *batch = sum;
}

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "The EP kernel of the NAS Parallel Benchmarks in OpenMP, static schedule. Verifies its\n"
           "sums to 1e-8 (exit status 1 if wrong) and prints times and sums as JSON.\n\n"
           "  --threads N    threads (default: OMP_NUM_THREADS or all CPUs)\n"
           "  --class C      S (2^24 pairs, default), W (2^25), A (2^28) or B (2^30)\n"
           "  --phases P     do the whole tally P times, with a barrier after each (default 1)\n"
           "  --output FILE  write the JSON to FILE instead of stdout\n"
           "  --help         this text\n\nExample: %s --threads 3 --class W\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    enum { THREADS, CLASS, PHASES, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"threads", required_argument, NULL, THREADS}, {"class", required_argument, NULL, CLASS},
        {"phases", required_argument, NULL, PHASES},   {"output", required_argument, NULL, OUTPUT},
        {"help", no_argument, NULL, HELP},             {0},
    };
    const struct class *class = &classes[0];
    uint32_t threads = 0;
    uint64_t phases = 1;
    const char *output = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case THREADS: threads = (uint32_t)parse_u64("--threads", optarg, 1, 4096); break;
        case CLASS: {
            size_t i = 0, count = sizeof classes / sizeof *classes;
            while (i < count && (optarg[0] != classes[i].name || optarg[1])) i++;
            if (i == count) die_input("--class: '%s' is not S, W, A or B", optarg);
            class = &classes[i];
            break;
        }
        case PHASES: phases = parse_u64("--phases", optarg, 1, 1000000); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);

    struct timing timing = omp_start_team(threads);
    uint64_t batch_count = UINT64_C(1) << (class->pairs_log2 - BATCH_LOG2);
    struct batch *batches = checked_alloc(batch_count, sizeof *batches);

#pragma omp parallel
    {
        int self = omp_get_thread_num();
        timing.arrived_s[self] = now_s();
#pragma omp barrier
        double cpu_before = thread_cpu_s();
        for (uint64_t phase = 0; phase < phases; phase++) {
            // Every phase adds to the sums, so the verification covers them all.
#pragma omp for schedule(static) nowait
            for (uint64_t i = 0; i < batch_count; i++) tally(&batches[i], i);
            timing.finished_s[self] = now_s();
#pragma omp barrier
        }
        timing.cpu_s[self] = thread_cpu_s() - cpu_before;
    }

    // Added in order, so that the sums do not depend on the number of threads.
    struct batch total = {0};
    uint64_t checksum = 0, pairs = 0;
    for (uint64_t i = 0; i < batch_count; i++) {
        total.sum_x += batches[i].sum_x;
        total.sum_y += batches[i].sum_y;
        for (int ring = 0; ring < RINGS; ring++) total.rings[ring] += batches[i].rings[ring];
    }
    for (int ring = 0; ring < RINGS; ring++) {
        checksum = splitmix64(checksum ^ total.rings[ring]);
        pairs += total.rings[ring];
    }
    double expected_x = class->sum_x * (double)phases, expected_y = class->sum_y * (double)phases;
    double error = fmax(fabs((total.sum_x - expected_x) / expected_x),
                        fabs((total.sum_y - expected_y) / expected_y));
    int verified = error <= 1e-8;

    FILE *out = open_output(output);
    fprintf(out, "{\"workload\":\"ep\",\"runtime\":\"%s\",\"threads\":%d,\"class\":\"%c\",\"phases\":%"
            PRIu64 ",", omp_runtime, timing.threads, class->name, phases);
    timing_print(out, &timing);
    fprintf(out, ",\"checksum\":\"%016" PRIx64 "\",\"verified\":%s,\"error\":%.3e,\"sum_x\":%.15e,"
            "\"sum_y\":%.15e,\"gaussian_pairs\":%" PRIu64 ",\"rings\":[", checksum,
            verified ? "true" : "false", error, total.sum_x, total.sum_y, pairs);
    for (int ring = 0; ring < RINGS; ring++)
        fprintf(out, "%s%" PRIu64, ring ? "," : "", total.rings[ring]);
    fputs("]}\n", out);
    close_output(out);
    return verified ? EXIT_SUCCESS : EXIT_FAILURE;
}

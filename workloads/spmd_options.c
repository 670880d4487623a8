#include "spmd_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { MAX_NAME_PREFIX = 10 }; // the kernel keeps 15 bytes; five digits follow

static const char *const barrier_names[] = {"block", "spin", "yield", "spinblock", "backoff"};
static const char *const kind_names[] = {"compute", "memory"};

const char *barrier_name(enum barrier_kind kind) { return barrier_names[kind]; }

static int choice(const char *option, const char *text, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(text, names[i])) return i;
    char known[128] = "";
    for (int i = 0; i < count; i++) {
        strcat(known, i ? ", " : "");
        strcat(known, names[i]);
    }
    die_input("%s: '%s' is not one of %s", option, text, known);
}

static void help(enum spmd_form form) {
    printf("Usage: %s [OPTIONS]\n"
           "A program of equal threads that compute in phases, with a barrier after each.\n"
           "Prints its makespan, a checksum and the threads' finish times as JSON.\n\n"
           "  --threads N           computing threads (default: CPUs of the mask%s)\n"
           "  --phases P            phases (default 1)\n"
           "  --work-ms W           work per phase and thread, in ms of a dedicated CPU,\n"
           "                        calibrated at the start (default 1000)\n"
           "  --iters N             the same as a number of iterations, without calibration\n"
           "  --calibrate           print iterations per ms and exit\n"
           "  --kind KIND           compute (default) or memory\n"
           "  --working-set BYTES   per thread, for memory; suffixes K, M, G (default 8M)\n"
           "  --imbalance LIST      work factor of each thread, such as 1,1,2\n"
           "  --imbalance-linear X  factors from 1-X/2 to 1+X/2, mean 1\n"
           "  --seed S              start of the generators (default 1)\n"
           "  --output FILE         write the JSON to FILE instead of stdout\n",
           program_invocation_short_name, form == FORM_OPENMP ? ", or OMP_NUM_THREADS" : "");
    if (form == FORM_PTHREAD)
        printf("  --barrier KIND        block (default), spin, yield, spinblock, or backoff\n"
               "  --spin-us T           how long spinblock spins (default 200)\n"
               "  --main-works 0|1      1: the main thread is one of the N; 0 (default): it\n"
               "                        only waits for them\n"
               "  --pin static          each thread pins itself: i to the (i mod m)-th CPU of\n"
               "                        the inherited mask\n"
               "  --name-prefix S       name the computing threads S0, S1, ...\n"
               "  --end-on FILE         fewer phases: one more once FILE exists\n");
    else
        printf("  --trace FILE          write where and when each thread computed, in pieces of\n"
               "                        about 50 us, to FILE as JSON lines\n"
               "  --regions             a parallel region for each phase\n");
    printf("  --help                this text\n\nExample: %s --threads 3 --phases 20 --work-ms 100\n",
           program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

struct spmd_options spmd_parse(int argc, char **argv, enum spmd_form form, uint32_t default_threads) {
    struct spmd_options o = {
        .threads = default_threads,
        .phases = 1,
        .work_ms = 1000,
        .working_set_bytes = 8 << 20,
        .spin_us = 200,
        .seed = 1,
    };
    enum { THREADS, PHASES, WORK_MS, ITERS, CALIBRATE, KIND, WORKING_SET, IMBALANCE, LINEAR, SEED,
           OUTPUT, HELP, BARRIER, SPIN_US, MAIN_WORKS, PIN, NAME_PREFIX, END_ON, TRACE, REGIONS };
    static const struct option pthread_options[] = {
        {"barrier", required_argument, NULL, BARRIER},
        {"spin-us", required_argument, NULL, SPIN_US},
        {"main-works", required_argument, NULL, MAIN_WORKS},
        {"pin", required_argument, NULL, PIN},
        {"name-prefix", required_argument, NULL, NAME_PREFIX},
        {"end-on", required_argument, NULL, END_ON},
    };
    static const struct option openmp_options[] = {
        {"trace", required_argument, NULL, TRACE},
        {"regions", no_argument, NULL, REGIONS},
    };
    // Zero-filled room at the end for the options of the form and the terminator.
    struct option long_options[19] = {
        {"threads", required_argument, NULL, THREADS},
        {"phases", required_argument, NULL, PHASES},
        {"work-ms", required_argument, NULL, WORK_MS},
        {"iters", required_argument, NULL, ITERS},
        {"calibrate", no_argument, NULL, CALIBRATE},
        {"kind", required_argument, NULL, KIND},
        {"working-set", required_argument, NULL, WORKING_SET},
        {"imbalance", required_argument, NULL, IMBALANCE},
        {"imbalance-linear", required_argument, NULL, LINEAR},
        {"seed", required_argument, NULL, SEED},
        {"output", required_argument, NULL, OUTPUT},
        {"help", no_argument, NULL, HELP},
    };
    if (form == FORM_PTHREAD)
        memcpy(&long_options[12], pthread_options, sizeof pthread_options);
    else
        memcpy(&long_options[12], openmp_options, sizeof openmp_options);

    int calibrate_only = 0, work_given = 0, linear_given = 0;
    double linear = 0;
    const char *list = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case THREADS: o.threads = (uint32_t)parse_u64("--threads", optarg, 1, MAX_THREADS); break;
        case PHASES: o.phases = parse_u64("--phases", optarg, 1, 1000000000); break;
        case WORK_MS:
            o.work_ms = parse_double("--work-ms", optarg, 1e-6, 1e9);
            work_given = 1;
            break;
        case ITERS: o.iters = parse_u64("--iters", optarg, 1, UINT64_C(1) << 50); break;
        case CALIBRATE: calibrate_only = 1; break;
        case KIND: o.kind = (enum kind)choice("--kind", optarg, kind_names, 2); break;
        case WORKING_SET:
            o.working_set_bytes = parse_size("--working-set", optarg, 4096, UINT64_C(1) << 40);
            break;
        case IMBALANCE: list = optarg; break;
        case LINEAR:
            linear = parse_double("--imbalance-linear", optarg, 0, 2);
            linear_given = 1;
            break;
        case SEED: o.seed = parse_u64("--seed", optarg, 0, UINT64_MAX); break;
        case OUTPUT: o.output = optarg; break;
        case HELP: help(form); break;
        case BARRIER:
            o.barrier = (enum barrier_kind)choice("--barrier", optarg, barrier_names, 5);
            break;
        case SPIN_US: o.spin_us = parse_double("--spin-us", optarg, 0, 1e9); break;
        case MAIN_WORKS: o.main_works = (int)parse_u64("--main-works", optarg, 0, 1); break;
        case PIN:
            if (strcmp(optarg, "static")) die_input("--pin: '%s' is not static", optarg);
            o.pin_static = 1;
            break;
        case NAME_PREFIX:
            if (strlen(optarg) > MAX_NAME_PREFIX)
                die_input("--name-prefix: '%s' has more than %d bytes", optarg, MAX_NAME_PREFIX);
            o.name_prefix = optarg;
            break;
        case END_ON: o.end_on = optarg; break;
        case TRACE: o.trace = optarg; break;
        case REGIONS: o.regions = 1; break;
        default: exit(EXIT_BAD_INPUT); // getopt_long has said why
        }
    }
    no_more_arguments(argc, argv);
    if (o.iters && work_given) die_input("--iters and --work-ms exclude each other");
    if (list && linear_given) die_input("--imbalance and --imbalance-linear exclude each other");

    if (list) {
        size_t count;
        o.factors = parse_list("--imbalance", list, 0, 1e6, &count);
        if (count != o.threads)
            die_input("--imbalance: %zu factors for %u threads", count, o.threads);
    } else {
        o.factors = checked_alloc(o.threads, sizeof *o.factors);
        for (uint32_t i = 0; i < o.threads; i++)
            o.factors[i] = o.threads == 1 ? 1 : 1 + linear * ((double)i / (o.threads - 1) - 0.5);
    }
    if (calibrate_only) {
        printf("%.0f\n", calibrate_iters_per_ms(o.kind, o.working_set_bytes));
        exit(EXIT_SUCCESS);
    }
    if (!o.iters) {
        double iters = calibrate_iters_per_ms(o.kind, o.working_set_bytes) * o.work_ms;
        o.iters = iters < 1 ? 1 : (uint64_t)iters;
    } else {
        o.work_ms = 0;
    }
    return o;
}

uint64_t spmd_thread_iters(const struct spmd_options *options, uint32_t index) {
    return (uint64_t)((double)options->iters * options->factors[index] + 0.5);
}

uint64_t spmd_thread_seed(const struct spmd_options *options, uint32_t index) {
    return splitmix64(splitmix64(options->seed) + index);
}

struct spmd_result spmd_result_new(uint32_t threads) {
    return (struct spmd_result){
        .arrived_s = checked_alloc(threads, sizeof(double)),
        .finished_s = checked_alloc(threads, sizeof(double)),
        .cpu_s = checked_alloc(threads, sizeof(double)),
        .iters = checked_alloc(threads, sizeof(uint64_t)),
        .digest = checked_alloc(threads, sizeof(uint64_t)),
    };
}

void spmd_print(const struct spmd_options *options, const struct spmd_result *result,
                const char *workload, const char *runtime, const char *barrier) {
    // The start barrier opens when its last thread arrives; the run ends when
    // the last thread has done its last phase.
    double released = 0, ended = 0;
    uint64_t checksum = 0;
    for (uint32_t i = 0; i < options->threads; i++) {
        if (result->arrived_s[i] > released) released = result->arrived_s[i];
        if (result->finished_s[i] > ended) ended = result->finished_s[i];
        checksum = splitmix64(checksum ^ result->digest[i]);
    }
    FILE *out = open_output(options->output);
    fprintf(out, "{\"workload\":\"%s\",\"runtime\":\"%s\",\"threads\":%u,\"phases\":%" PRIu64
            ",\"iters\":%" PRIu64 ",\"barrier\":\"%s\",\"kind\":\"%s\",", workload, runtime,
            options->threads, options->phases, options->iters, barrier, kind_names[options->kind]);
    if (options->work_ms > 0) fprintf(out, "\"work_ms\":%.6f,", options->work_ms);
    if (options->kind == KIND_MEMORY)
        fprintf(out, "\"working_set_bytes\":%" PRIu64 ",", options->working_set_bytes);
    fprintf(out, "\"makespan_s\":%.9f,\"checksum\":\"%016" PRIx64 "\",", ended - released, checksum);
    json_seconds(out, "finish_s", result->finished_s, options->threads, released);
    fputc(',', out);
    json_seconds(out, "cpu_s", result->cpu_s, options->threads, 0);
    fputs(",\"thread_iters\":[", out);
    for (uint32_t i = 0; i < options->threads; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", result->iters[i]);
    fputs("]}\n", out);
    close_output(out);
}

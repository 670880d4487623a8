#include "omp_support.h"

#include <omp.h>

#include "common.h"

const char *const omp_runtime = RUNTIME;

struct timing omp_start_team(uint32_t threads) {
    omp_set_dynamic(0);
    int wanted = threads ? (int)threads : omp_get_max_threads(), got = 0;
    omp_set_num_threads(wanted);
#pragma omp parallel
#pragma omp single
    got = omp_get_num_threads();
    if (got != wanted) die_machine("%s gave %d threads, %d were asked for", omp_runtime, got, wanted);
    return (struct timing){
        .threads = wanted,
        .arrived_s = checked_alloc((size_t)wanted, sizeof(double)),
        .finished_s = checked_alloc((size_t)wanted, sizeof(double)),
        .cpu_s = checked_alloc((size_t)wanted, sizeof(double)),
    };
}

static double latest(const double *times, int count) {
    double latest = times[0];
    for (int i = 1; i < count; i++)
        if (times[i] > latest) latest = times[i];
    return latest;
}

double timing_makespan_s(const struct timing *timing) {
    return latest(timing->finished_s, timing->threads) - latest(timing->arrived_s, timing->threads);
}

void timing_print(FILE *out, const struct timing *timing) {
    fprintf(out, "\"makespan_s\":%.9f,", timing_makespan_s(timing));
    json_seconds(out, "finish_s", timing->finished_s, (size_t)timing->threads,
                 latest(timing->arrived_s, timing->threads));
    fputc(',', out);
    json_seconds(out, "cpu_s", timing->cpu_s, (size_t)timing->threads, 0);
}

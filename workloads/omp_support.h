// What the OpenMP programs share: team size, per-thread times, their JSON.
#ifndef WORKLOADS_OMP_SUPPORT_H
#define WORKLOADS_OMP_SUPPORT_H

#include <stdint.h>
#include <stdio.h>

// "libgomp" or "libomp", set by the Makefile.
extern const char *const omp_runtime;

struct timing {
    int threads;
    double *arrived_s;
    double *finished_s;
    double *cpu_s;
};

// Fixes the team to `threads` (0: what OMP_NUM_THREADS says), starts the
// runtime's threads and dies if it gives fewer.
struct timing omp_start_team(uint32_t threads);
double timing_makespan_s(const struct timing *timing);
// "makespan_s":...,"finish_s":[...],"cpu_s":[...]
void timing_print(FILE *out, const struct timing *timing);

#endif

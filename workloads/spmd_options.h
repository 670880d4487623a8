// Options and result of the SPMD program, the same for its pthread and OpenMP forms.
#ifndef WORKLOADS_SPMD_OPTIONS_H
#define WORKLOADS_SPMD_OPTIONS_H

#include <stdint.h>

#include "barrier.h"
#include "kernel.h"

enum { MAX_THREADS = 65536 };

struct spmd_options {
    uint32_t threads; // 0: not given
    uint64_t phases;
    double work_ms;
    uint64_t iters; // per phase and thread of factor 1; always set when parsing is done
    enum kind kind;
    uint64_t working_set_bytes;
    enum barrier_kind barrier;
    double spin_us;
    double *factors; // per thread
    uint64_t seed;
    int main_works;
    int pin_static;
    const char *name_prefix;
    const char *end_on; // a file; NULL: all phases
    const char *trace;  // a file; NULL: none
    int regions;        // each phase is a parallel region
    const char *output;
};

enum spmd_form { FORM_PTHREAD, FORM_OPENMP };

// Parses and, unless --iters was given, calibrates. `default_threads` is used
// where --threads is absent. With --calibrate it prints and does not return.
struct spmd_options spmd_parse(int argc, char **argv, enum spmd_form form, uint32_t default_threads);

// Iterations per phase of thread `index`.
uint64_t spmd_thread_iters(const struct spmd_options *options, uint32_t index);
// Where the generator of thread `index` starts.
uint64_t spmd_thread_seed(const struct spmd_options *options, uint32_t index);

// All times are CLOCK_MONOTONIC seconds, one element per thread.
struct spmd_result {
    double *arrived_s; // at the start barrier
    double *finished_s;
    double *cpu_s;
    uint64_t *iters; // done in all phases
    uint64_t *digest;
};

struct spmd_result spmd_result_new(uint32_t threads);
void spmd_print(const struct spmd_options *options, const struct spmd_result *result,
                const char *workload, const char *runtime, const char *barrier);
const char *barrier_name(enum barrier_kind kind);

#endif

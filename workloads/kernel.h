// The work that the threads do: deterministic, of steady speed, impossible to
// optimise away because the state after it is the program's checksum.
//
// One iteration of KIND_COMPUTE is a step of an xorshift generator and of a
// floating-point recurrence, all in registers: its time is the latency of the
// chain. One iteration of KIND_MEMORY is a visit to the next cache line of a
// random cycle through the working set, with a load and a store.
#ifndef WORKLOADS_KERNEL_H
#define WORKLOADS_KERNEL_H

#include <stdint.h>

enum kind { KIND_COMPUTE, KIND_MEMORY };

struct line;

struct work {
    enum kind kind;
    uint64_t x;
    double y;
    struct line *lines;
    uint64_t at;
    uint64_t iterations_done;
};

// Call in the thread that will compute: the first touch decides the NUMA node.
void work_init(struct work *work, enum kind kind, uint64_t working_set_bytes, uint64_t seed);
void work_run(struct work *work, uint64_t iterations);
// Makes all further work depend on `value`.
void work_mix(struct work *work, uint64_t value);
uint64_t work_digest(const struct work *work);
void work_free(struct work *work);

// Iterations that one dedicated CPU does in a millisecond: the fastest of
// several runs by the thread's CPU time, so that neighbours do not count.
double calibrate_iters_per_ms(enum kind kind, uint64_t working_set_bytes);

#endif

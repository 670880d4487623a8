// The SPMD program in OpenMP: the same work, checksum and JSON as spmd, with
// the loops and barriers of the OpenMP runtime (OMP_WAIT_POLICY and friends).
#include <omp.h>
#include <stdlib.h>

#include "common.h"
#include "omp_support.h"
#include "spmd_options.h"
#include "trace.h"

struct slot {
    alignas(64) uint64_t digest;
};

// A thread, in all phases.
struct member {
    alignas(64) struct work work;
    struct trace trace;
    double cpu_before, finished;
};

static struct slot *slots[2];

static void run(struct work *work, struct trace *trace, uint64_t phase, uint64_t iterations) {
    if (trace)
        trace_run(trace, work, phase, iterations);
    else
        work_run(work, iterations);
}

// What a thread does in a phase.
static void compute(const struct spmd_options *options, struct member *member, uint64_t phase) {
    // One iteration a thread: the static schedule gives i to thread i.
#pragma omp for schedule(static) nowait
    for (uint32_t i = 0; i < options->threads; i++) {
        uint32_t right = (i + 1) % options->threads;
        if (phase > 0) work_mix(&member->work, slots[(phase - 1) % 2][right].digest);
        run(&member->work, options->trace ? &member->trace : NULL, phase,
            spmd_thread_iters(options, i));
        slots[phase % 2][i].digest = work_digest(&member->work);
    }
    member->finished = now_s();
}

int main(int argc, char **argv) {
    struct spmd_options options =
        spmd_parse(argc, argv, FORM_OPENMP, (uint32_t)omp_get_max_threads());
    struct timing timing = omp_start_team(options.threads);
    struct spmd_result result = spmd_result_new(options.threads);
    struct trace *traces =
        options.trace ? calloc(options.threads, sizeof *traces) : NULL;
    if (options.trace && !traces) die_machine("no memory for the trace");
    struct member *members = aligned_alloc(alignof(struct member), options.threads * sizeof *members);
    if (!members) die_machine("no memory");
    for (int i = 0; i < 2; i++) {
        slots[i] = aligned_alloc(alignof(struct slot), options.threads * sizeof *slots[i]);
        if (!slots[i]) die_machine("no memory");
    }

#pragma omp parallel
    {
        int self = omp_get_thread_num();
        struct member *member = &members[self];
        *member = (struct member){0};
        work_init(&member->work, options.kind, options.working_set_bytes,
                  spmd_thread_seed(&options, (uint32_t)self));
        timing.arrived_s[self] = now_s();
#pragma omp barrier
        member->cpu_before = thread_cpu_s();
        for (uint64_t phase = 0; !options.regions && phase < options.phases; phase++) {
            compute(&options, member, phase);
#pragma omp barrier
        }
    }
    for (uint64_t phase = 0; options.regions && phase < options.phases; phase++) {
#pragma omp parallel
        compute(&options, &members[omp_get_thread_num()], phase);
    }
#pragma omp parallel
    {
        int self = omp_get_thread_num();
        struct member *member = &members[self];
        if (traces) traces[self] = member->trace;
        result.arrived_s[self] = timing.arrived_s[self];
        result.finished_s[self] = member->finished;
        result.cpu_s[self] = thread_cpu_s() - member->cpu_before;
        result.iters[self] = member->work.iterations_done;
        result.digest[self] = work_digest(&member->work);
        work_free(&member->work);
    }
    if (traces) trace_write(options.trace, traces, options.threads);
    spmd_print(&options, &result, "omp_spmd", omp_runtime, "omp");
    return EXIT_SUCCESS;
}

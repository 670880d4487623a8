// An SPMD program on POSIX threads: n threads, p phases, a barrier after each.
//
// In every phase a thread first takes over what its right neighbour had
// computed in the phase before, so the checksum is right only if each barrier
// held everyone back, and it depends on nothing else than the work.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "spmd_options.h"

enum { STACK_BYTES = 256 << 10 };

struct slot {
    alignas(64) uint64_t digest;
};

static struct spmd_options options;
static struct spmd_result result;
static struct barrier start_barrier, phase_barrier;
// The first thread lowers it before a barrier that all others pass before the last phase.
static _Atomic uint64_t phases;
// What each thread has computed, by parity of the phase: a slot is read in the
// phase after the one that wrote it and written again one phase later.
static struct slot *slots[2];

static void pin_to_nth(uint32_t index) {
    cpu_set_t inherited, own;
    if (sched_getaffinity(0, sizeof inherited, &inherited))
        die_machine("sched_getaffinity: %s", strerror(errno));
    uint32_t left = index % (uint32_t)CPU_COUNT(&inherited);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &inherited) || left-- > 0) continue;
        CPU_ZERO(&own);
        CPU_SET(cpu, &own);
        if (sched_setaffinity(0, sizeof own, &own))
            die_machine("cannot pin to CPU %d: %s", cpu, strerror(errno));
        return;
    }
}

static void *compute(void *argument) {
    uint32_t index = (uint32_t)(uintptr_t)argument;
    uint32_t right = (index + 1) % options.threads;
    uint64_t iters = spmd_thread_iters(&options, index);
    if (options.name_prefix) {
        char name[16];
        snprintf(name, sizeof name, "%.10s%u", options.name_prefix, index % MAX_THREADS);
        pthread_setname_np(pthread_self(), name);
    }
    if (options.pin_static) pin_to_nth(index);
    struct work work;
    work_init(&work, options.kind, options.working_set_bytes, spmd_thread_seed(&options, index));

    result.arrived_s[index] = now_s();
    barrier_wait(&start_barrier);
    double cpu_before = thread_cpu_s(), finished = 0;
    for (uint64_t phase = 0; phase < phases; phase++) {
        if (phase > 0) work_mix(&work, slots[(phase - 1) % 2][right].digest);
        work_run(&work, iters);
        slots[phase % 2][index].digest = work_digest(&work);
        finished = now_s();
        if (index == 0 && options.end_on && phase + 2 < phases && !access(options.end_on, F_OK))
            phases = phase + 2;
        barrier_wait(&phase_barrier);
    }
    // Stored only now: neighbours' results share cache lines.
    result.finished_s[index] = finished;
    result.cpu_s[index] = thread_cpu_s() - cpu_before;
    result.iters[index] = work.iterations_done;
    result.digest[index] = work_digest(&work);
    work_free(&work);
    return NULL;
}

int main(int argc, char **argv) {
    cpu_set_t mask;
    uint32_t cpus = sched_getaffinity(0, sizeof mask, &mask) ? 1 : (uint32_t)CPU_COUNT(&mask);
    options = spmd_parse(argc, argv, FORM_PTHREAD, cpus);
    phases = options.phases;
    result = spmd_result_new(options.threads);
    for (int i = 0; i < 2; i++) {
        slots[i] = aligned_alloc(alignof(struct slot), options.threads * sizeof *slots[i]);
        if (!slots[i]) die_machine("no memory");
    }
    barrier_init(&start_barrier, BARRIER_BLOCK, options.threads, 0);
    barrier_init(&phase_barrier, options.barrier, options.threads, options.spin_us * 1e-6);

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_t *threads = checked_alloc(options.threads, sizeof *threads);
    uint32_t first = options.main_works ? 1 : 0;
    for (uint32_t i = first; i < options.threads; i++) {
        int error = pthread_create(&threads[i], &attributes, compute, (void *)(uintptr_t)i);
        if (error) die_machine("cannot create thread %u: %s", i, strerror(error));
    }
    if (options.main_works) compute((void *)0);
    for (uint32_t i = first; i < options.threads; i++) pthread_join(threads[i], NULL);

    options.phases = phases;
    spmd_print(&options, &result, "spmd", "pthread", barrier_name(options.barrier));
    return EXIT_SUCCESS;
}

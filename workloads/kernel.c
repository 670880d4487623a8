#include "kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common.h"

enum { LINE_BYTES = 64, SMALL_PAGE_BYTES = 4 << 10, HUGE_PAGE_BYTES = 2 << 20 };

struct line {
    uint64_t next;
    uint64_t value;
    char padding[LINE_BYTES - 2 * sizeof(uint64_t)];
};

void work_init(struct work *work, enum kind kind, uint64_t working_set_bytes, uint64_t seed) {
    // An xorshift generator must not start at zero.
    *work = (struct work){.kind = kind, .x = splitmix64(seed) | 1, .y = 1.0};
    if (kind != KIND_MEMORY) return;

    uint64_t count = working_set_bytes / LINE_BYTES;
    // Huge pages where there are any, from the first byte on: else the speed
    // would depend on where the allocation happens to lie.
    uint64_t page = count * LINE_BYTES >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : SMALL_PAGE_BYTES;
    uint64_t bytes = (count * LINE_BYTES + page - 1) / page * page;
    work->lines = aligned_alloc(page, bytes);
    if (!work->lines)
        die_machine("no memory for a working set of %llu bytes", (unsigned long long)working_set_bytes);
    madvise(work->lines, bytes, MADV_HUGEPAGE); // advice: the program is right without it
    for (uint64_t i = 0; i < count; i++) work->lines[i] = (struct line){.next = i, .value = i};
    // Sattolo's shuffle: a permutation that is one single cycle.
    uint64_t state = seed;
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t j = (uint64_t)(random_unit(&state) * (double)i);
        uint64_t next = work->lines[i].next;
        work->lines[i].next = work->lines[j].next;
        work->lines[j].next = next;
    }
}

static void run_compute(struct work *work, uint64_t iterations) {
    uint64_t x = work->x;
    double y = work->y;
    for (uint64_t i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        y = y * 0.75 + (double)(x >> 12) * 0x1p-52;
    }
    work->x = x;
    work->y = y;
}

static void run_memory(struct work *work, uint64_t iterations) {
    struct line *lines = work->lines;
    uint64_t x = work->x, at = work->at;
    for (uint64_t i = 0; i < iterations; i++) {
        at = lines[at].next;
        x = x * 6364136223846793005u + lines[at].value;
        lines[at].value = x;
    }
    work->x = x;
    work->at = at;
}

void work_run(struct work *work, uint64_t iterations) {
    if (work->kind == KIND_MEMORY) run_memory(work, iterations);
    else run_compute(work, iterations);
    work->iterations_done += iterations;
}

void work_mix(struct work *work, uint64_t value) { work->x = splitmix64(work->x ^ value) | 1; }

uint64_t work_digest(const struct work *work) {
    uint64_t y_bits;
    memcpy(&y_bits, &work->y, sizeof y_bits);
    return splitmix64(splitmix64(splitmix64(work->x) ^ y_bits) ^ work->at);
}

void work_free(struct work *work) { free(work->lines); }

double calibrate_iters_per_ms(enum kind kind, uint64_t working_set_bytes) {
    // Long enough to average over a CPU quota of a few milliseconds, short
    // enough for one of the runs to be undisturbed.
    const double run_s = 0.020;
    enum { RUNS = 15 };
    struct work work;
    work_init(&work, kind, working_set_bytes, 1);

    uint64_t iterations = 1000;
    double took_s = 0;
    for (;;) {
        double start = thread_cpu_s();
        work_run(&work, iterations);
        took_s = thread_cpu_s() - start;
        if (took_s >= run_s / 4) break;
        iterations *= 2;
    }
    iterations = (uint64_t)((double)iterations * run_s / took_s) + 1;

    double best_s = 1e9;
    for (int i = 0; i < RUNS; i++) {
        double start = thread_cpu_s();
        work_run(&work, iterations);
        took_s = thread_cpu_s() - start;
        if (took_s < best_s) best_s = took_s;
    }
    // Never true; it keeps the work observable.
    if (work_digest(&work) == 0 && work.iterations_done == 0) die_machine("no work was done");
    work_free(&work);
    return (double)iterations / (best_s * 1e3);
}

#include "barrier.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

static void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// The most pauses from one look to the next.
enum { LONGEST_DELAY = 1024 };

void barrier_init(struct barrier *barrier, enum barrier_kind kind, uint32_t threads, double spin_s) {
    barrier->kind = kind;
    barrier->spin_s = spin_s;
    barrier->threads = threads;
    atomic_init(&barrier->missing, threads);
    atomic_init(&barrier->generation, 0);
}

// Acquire: what the others wrote before the barrier is visible after it.
static int passed(struct barrier *barrier, uint32_t generation) {
    return atomic_load_explicit(&barrier->generation, memory_order_acquire) != generation;
}

static void block(struct barrier *barrier, uint32_t generation) {
    while (!passed(barrier, generation))
        syscall(SYS_futex, &barrier->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
}

void barrier_wait(struct barrier *barrier) {
    // Cannot be stale: the generation only moves once this thread has arrived.
    uint32_t generation = atomic_load_explicit(&barrier->generation, memory_order_relaxed);

    // Release publishes this thread's writes, acquire lets the last one see all.
    if (atomic_fetch_sub_explicit(&barrier->missing, 1, memory_order_acq_rel) == 1) {
        atomic_store_explicit(&barrier->missing, barrier->threads, memory_order_relaxed);
        atomic_store_explicit(&barrier->generation, generation + 1, memory_order_release);
        if (barrier->kind == BARRIER_BLOCK || barrier->kind == BARRIER_SPINBLOCK)
            syscall(SYS_futex, &barrier->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    switch (barrier->kind) {
    case BARRIER_BLOCK:
        block(barrier, generation);
        break;
    case BARRIER_SPIN:
        while (!passed(barrier, generation)) cpu_relax();
        break;
    case BARRIER_BACKOFF:
        for (int delay = 1; !passed(barrier, generation);) {
            for (int i = 0; i < delay; i++) cpu_relax();
            if (delay < LONGEST_DELAY) delay *= 2;
        }
        break;
    case BARRIER_YIELD:
        while (!passed(barrier, generation)) sched_yield();
        break;
    case BARRIER_SPINBLOCK: {
        double deadline = now_s() + barrier->spin_s;
        while (!passed(barrier, generation)) {
            cpu_relax();
            if (now_s() < deadline) continue;
            block(barrier, generation);
        }
        break;
    }
    }
}

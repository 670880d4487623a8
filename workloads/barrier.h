// A reusable barrier that waits in one of five ways.
//
// The generation number is the "sense" of a sense-reversing barrier: it changes
// once per round, so a thread that enters the next round early waits for a
// different value and cannot slip through.
#ifndef WORKLOADS_BARRIER_H
#define WORKLOADS_BARRIER_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

enum barrier_kind {
    BARRIER_BLOCK,     // sleeps in the kernel
    BARRIER_SPIN,      // polls and never gives the CPU away
    BARRIER_YIELD,     // polls with sched_yield
    BARRIER_SPINBLOCK, // polls for a while, then sleeps
    BARRIER_BACKOFF,   // polls more and more rarely
};

struct barrier {
    enum barrier_kind kind;
    double spin_s;
    uint32_t threads;
    alignas(64) _Atomic uint32_t missing;
    alignas(64) _Atomic uint32_t generation;
};

void barrier_init(struct barrier *barrier, enum barrier_kind kind, uint32_t threads, double spin_s);
void barrier_wait(struct barrier *barrier);

#endif

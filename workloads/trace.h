// Where and when threads computed, piece by piece: what --trace writes. Each
// thread keeps its own; they are written when all have ended.
#ifndef WORKLOADS_TRACE_H
#define WORKLOADS_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "kernel.h"

struct piece {
    uint64_t phase;
    int cpu; // where it ended
    double began_s, ended_s, ran_s;
};

struct trace {
    struct piece *pieces;
    size_t count, room;
};

// Does `iterations` in pieces of about 50 us, and notes each.
void trace_run(struct trace *trace, struct work *work, uint64_t phase, uint64_t iterations);
// A line of JSON a piece, thread by thread; frees what was kept.
void trace_write(const char *path, struct trace *traces, uint32_t threads);

#endif

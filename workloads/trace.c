#include "trace.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

#include "common.h"

enum { PIECE_ITERATIONS = 30000 };

static struct piece *next_piece(struct trace *trace) {
    if (trace->count == trace->room) {
        trace->room = trace->room ? 2 * trace->room : 4096;
        trace->pieces = realloc(trace->pieces, trace->room * sizeof *trace->pieces);
        if (!trace->pieces) die_machine("no memory for the trace");
    }
    return &trace->pieces[trace->count++];
}

void trace_run(struct trace *trace, struct work *work, uint64_t phase, uint64_t iterations) {
    while (iterations > 0) {
        uint64_t now = iterations < PIECE_ITERATIONS ? iterations : PIECE_ITERATIONS;
        struct piece *piece = next_piece(trace);
        piece->phase = phase;
        piece->began_s = now_s();
        double before = thread_cpu_s();
        work_run(work, now);
        piece->ran_s = thread_cpu_s() - before;
        piece->ended_s = now_s();
        piece->cpu = sched_getcpu();
        iterations -= now;
    }
}

void trace_write(const char *path, struct trace *traces, uint32_t threads) {
    FILE *out = open_output(path);
    for (uint32_t i = 0; i < threads; i++) {
        for (size_t k = 0; k < traces[i].count; k++) {
            const struct piece *p = &traces[i].pieces[k];
            fprintf(out, "{\"thread\":%u,\"phase\":%" PRIu64 ",\"cpu\":%d,\"began_s\":%.9f,"
                    "\"ended_s\":%.9f,\"ran_s\":%.9f}\n",
                    i, p->phase, p->cpu, p->began_s, p->ended_s, p->ran_s);
        }
        free(traces[i].pieces);
    }
    close_output(out);
}

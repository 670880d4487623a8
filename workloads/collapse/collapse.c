// Threads that wait in code of their own, by spinning: patterns of real programs that collapse where threads share CPUs
// (README.md). The work is the same for any number of CPUs, and the checksum is right only if every wait was one.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../common.h"
#include "../kernel.h"

enum pattern { TICKET, TTAS, SPINLOCK, PIPELINE, QUEUES, POOL };
static const char *const NAMES[] = {"ticket", "ttas", "spinlock", "pipeline", "queues", "pool"};

static enum pattern pattern = PIPELINE;
static uint64_t threads = 2, phases = 1000, iters = 1000, held = 200;

// As many programs do, collapse-bare says nothing to the processor while it waits; nor does collapse-calls, which has a
// function to look.
#if defined(CALLS)
#define LOOKS __attribute__((noinline))
#else
#define LOOKS inline
#endif
static LOOKS uint64_t look(_Atomic uint64_t *at) { return atomic_load_explicit(at, memory_order_acquire); }

// collapse-yields is what helps by hand: who waits asks the kernel for somebody else.
static inline void relax(void) {
#if defined(YIELDS)
    sched_yield();
#elif defined(BARE) || defined(CALLS)
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Work of one place and time, whoever does it.
static uint64_t compute(uint64_t place, uint64_t time, uint64_t before, uint64_t iterations) {
    struct work work;
    work_init(&work, KIND_COMPUTE, 0, splitmix64(place * 1000003 + time) | 1);
    work_mix(&work, before);
    work_run(&work, iterations);
    return work_digest(&work);
}

// ------------------------------------------------------------------ locks

// A ticket lock: turns go round, so that one waiter without a CPU holds up all behind it.
static alignas(64) _Atomic uint64_t next_ticket;
static alignas(64) _Atomic uint64_t serving;
// A test-and-test-and-set lock.
static alignas(64) _Atomic uint32_t taken;
// The C library's.
static pthread_spinlock_t spinlock;
// Behind the lock.
static alignas(64) uint64_t guarded, guarded_turns;

static void lock(void) {
    if (pattern == TICKET) {
        uint64_t mine = atomic_fetch_add_explicit(&next_ticket, 1, memory_order_relaxed);
        while (look(&serving) != mine) relax();
        return;
    }
    if (pattern == SPINLOCK) {
        pthread_spin_lock(&spinlock);
        return;
    }
    while (atomic_exchange_explicit(&taken, 1, memory_order_acquire))
        while (atomic_load_explicit(&taken, memory_order_relaxed)) relax();
}

static void unlock(void) {
    if (pattern == TICKET)
        atomic_fetch_add_explicit(&serving, 1, memory_order_release);
    else if (pattern == SPINLOCK)
        pthread_spin_unlock(&spinlock);
    else
        atomic_store_explicit(&taken, 0, memory_order_release);
}

static void locks(uint64_t self) {
    for (uint64_t phase = 0; phase < phases; phase++) {
        uint64_t found = compute(self, phase, 0, iters);
        lock();
        // In any order the same.
        guarded += compute(self, phase, found, held);
        guarded_turns++;
        unlock();
    }
}

// ------------------------------------------------------------------ a pipeline

struct stage {
    alignas(64) _Atomic uint64_t done;
    uint64_t values[2];
};
static struct stage *stages;

// Stage s works on a plane when the stage before it has, and writes over the plane before last when the stage behind it
// has read that.
static void pipeline(uint64_t self) {
    struct stage *own = &stages[self], *before = self ? &stages[self - 1] : NULL;
    struct stage *behind = self + 1 < threads ? &stages[self + 1] : NULL;
    uint64_t value = 0;
    for (uint64_t plane = 0; plane < phases; plane++) {
        if (before)
            while (look(&before->done) <= plane) relax();
        if (behind && plane >= 2)
            while (look(&behind->done) + 2 <= plane) relax();
        value = compute(self, plane, value ^ (before ? before->values[plane % 2] : 0), iters);
        own->values[plane % 2] = value;
        atomic_store_explicit(&own->done, plane + 1, memory_order_release);
    }
}

// ------------------------------------------------------------------ queues

enum { ROOM = 64 };
// Between two stages.
struct queue {
    alignas(64) _Atomic uint64_t pushed;
    alignas(64) _Atomic uint64_t popped;
    uint64_t values[ROOM];
};
static struct queue *queues;

static LOOKS int try_push(struct queue *queue, uint64_t value) {
    uint64_t at = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    if (at - atomic_load_explicit(&queue->popped, memory_order_acquire) == ROOM) return 0;
    queue->values[at % ROOM] = value;
    atomic_store_explicit(&queue->pushed, at + 1, memory_order_release);
    return 1;
}

static LOOKS int try_pop(struct queue *queue, uint64_t *value) {
    uint64_t at = atomic_load_explicit(&queue->popped, memory_order_relaxed);
    if (at == atomic_load_explicit(&queue->pushed, memory_order_acquire)) return 0;
    *value = queue->values[at % ROOM];
    atomic_store_explicit(&queue->popped, at + 1, memory_order_release);
    return 1;
}

// Stage s takes what the stage before it has made, mostly without a wait, and waits for long now and then.
static void stages_with_queues(uint64_t self) {
    uint64_t value = 0;
    for (uint64_t item = 0; item < phases; item++) {
        if (self)
            while (!try_pop(&queues[self], &value)) relax();
        value = compute(self, item, value, iters);
        if (self + 1 < threads)
            while (!try_push(&queues[self + 1], value)) relax();
        else
            stages[self].values[0] += value;
    }
}

// ------------------------------------------------------------------ a pool

enum { TASKS = 64 };
// What each worker still has of a batch: the first task and the one behind the last, which others steal.
struct deque {
    alignas(64) _Atomic uint64_t range;
};
static struct deque *deques;
static alignas(64) _Atomic uint64_t batch;
static alignas(64) _Atomic uint64_t finished;
static uint64_t results[TASKS];

static int pop(uint64_t from, int steals, uint64_t *task) {
    uint64_t range = atomic_load_explicit(&deques[from].range, memory_order_acquire);
    while (range >> 32 < (range & UINT32_MAX)) {
        uint64_t first = range >> 32, last = range & UINT32_MAX;
        uint64_t rest = steals ? first << 32 | (last - 1) : (first + 1) << 32 | last;
        if (atomic_compare_exchange_weak_explicit(&deques[from].range, &range, rest, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            *task = steals ? last - 1 : first;
            return 1;
        }
    }
    return 0;
}

// Own tasks first, then those of others; 0 where nobody has one.
static int find(uint64_t self, uint64_t *task) {
    for (uint64_t i = 0; i < threads; i++)
        if (pop((self + i) % threads, i > 0, task)) return 1;
    return 0;
}

// Worker 0 hands out batches, all to itself, and waits for the end of each; the others look for work until it says that
// there is none any more.
static void pool(uint64_t self) {
    uint64_t task;
    for (;;) {
        uint64_t now = atomic_load_explicit(&batch, memory_order_acquire);
        if (find(self, &task)) {
            uint64_t phase = atomic_load_explicit(&batch, memory_order_acquire);
            results[task] = compute(task, phase, results[task], iters);
            atomic_fetch_add_explicit(&finished, 1, memory_order_release);
            continue;
        }
        if (self == 0 && atomic_load_explicit(&finished, memory_order_acquire) == now * TASKS) {
            atomic_store_explicit(&batch, now + 1, memory_order_release);
            if (now == phases) return;
            atomic_store_explicit(&deques[0].range, TASKS, memory_order_release);
            continue;
        }
        if (now > phases) return;
        relax();
    }
}

// ------------------------------------------------------------------ all

static pthread_barrier_t start;
static double *arrived, *ended;

static void *run(void *argument) {
    uint64_t self = (uint64_t)(uintptr_t)argument;
    pthread_barrier_wait(&start);
    arrived[self] = now_s();
    switch (pattern) {
    case TICKET:
    case TTAS:
    case SPINLOCK: locks(self); break;
    case PIPELINE: pipeline(self); break;
    case QUEUES: stages_with_queues(self); break;
    case POOL: pool(self); break;
    }
    ended[self] = now_s();
    return NULL;
}

static uint64_t checksum(void) {
    uint64_t sum = guarded ^ splitmix64(guarded_turns);
    for (uint64_t i = 0; i < threads; i++) sum += stages[i].values[0] ^ 3 * stages[i].values[1];
    for (int i = 0; i < TASKS; i++) sum += results[i];
    return sum;
}

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "Threads that wait by spinning, in code of their own. Prints JSON.\n\n"
           "  --pattern P    ticket, ttas, spinlock: a lock held across work; pipeline: stages over\n"
           "                 flags in memory; queues: stages over queues with room for 64;\n"
           "                 pool: workers that look for work (default pipeline)\n"
           "  --threads N    threads (default 2)\n"
           "  --phases K     turns of the lock for each thread, planes, items, or batches of 64 tasks\n"
           "                 (default 1000)\n"
           "  --iters N      steps of computing in each (default 1000)\n"
           "  --held N       steps while the lock is held (default 200)\n"
           "  --help         this text\n\nExample: %s --pattern pipeline --threads 3\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

static enum pattern parse_pattern(const char *text) {
    for (int i = TICKET; i <= POOL; i++)
        if (!strcmp(text, NAMES[i])) return (enum pattern)i;
    die_input("--pattern %s: one of ticket, ttas, spinlock, pipeline, queues, pool is needed", text);
}

int main(int argc, char **argv) {
    enum { PATTERN, THREADS, PHASES, ITERS, HELD, HELP };
    static const struct option long_options[] = {
        {"pattern", required_argument, NULL, PATTERN}, {"threads", required_argument, NULL, THREADS},
        {"phases", required_argument, NULL, PHASES},   {"iters", required_argument, NULL, ITERS},
        {"held", required_argument, NULL, HELD},       {"help", no_argument, NULL, HELP},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case PATTERN: pattern = parse_pattern(optarg); break;
        case THREADS: threads = parse_u64("--threads", optarg, 1, 1024); break;
        case PHASES: phases = parse_u64("--phases", optarg, 1, 100000000); break;
        case ITERS: iters = parse_u64("--iters", optarg, 1, 1000000000); break;
        case HELD: held = parse_u64("--held", optarg, 1, 1000000000); break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);
    stages = aligned_alloc(alignof(struct stage), threads * sizeof *stages);
    deques = aligned_alloc(alignof(struct deque), threads * sizeof *deques);
    queues = aligned_alloc(alignof(struct queue), threads * sizeof *queues);
    pthread_t *ids = checked_alloc(threads, sizeof *ids);
    arrived = checked_alloc(threads, sizeof *arrived);
    ended = checked_alloc(threads, sizeof *ended);
    if (!stages || !queues || !deques) die_machine("no memory");
    memset(stages, 0, threads * sizeof *stages);
    memset(queues, 0, threads * sizeof *queues);
    memset(deques, 0, threads * sizeof *deques);
    pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE);
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (uint64_t i = 1; i < threads; i++) {
        int error = pthread_create(&ids[i], NULL, run, (void *)(uintptr_t)i);
        if (error) die_machine("pthread_create: %s", strerror(error));
    }
    run((void *)0);
    for (uint64_t i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    double began = arrived[0], finish = ended[0];
    for (uint64_t i = 1; i < threads; i++) {
        if (arrived[i] < began) began = arrived[i];
        if (ended[i] > finish) finish = ended[i];
    }
    printf("{\"program\":\"collapse\",\"pattern\":\"%s\",\"threads\":%" PRIu64 ",\"phases\":%" PRIu64
           ",\"makespan_s\":%.6f,\"checksum\":\"%016" PRIx64 "\"}\n",
           NAMES[pattern], threads, phases, finish > began ? finish - began : 0, checksum());
    return 0;
}

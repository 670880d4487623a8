// Kernels with parallel loops, by OpenMP, by evenly, or by another library: see kernels.h. Prints the time and a checksum of the
// answer as JSON.
#include "kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BAD_INPUT = 2, MOST_TURNS = 4096 };

static struct timespec began, ended;

void begin_timing(void) { clock_gettime(CLOCK_MONOTONIC, &began); }
void end_timing(void) { clock_gettime(CLOCK_MONOTONIC, &ended); }

// When each stretch of LOOPS_TURNS began, by thread 0.
static struct timespec turn_began[MOST_TURNS];
static int64_t turns;
_Thread_local bool by_evenly;

void begin_step(const struct run *run, int64_t step) {
    if (!run->turns) {
        by_evenly = run->adapts;
        return;
    }
    if (step % run->turns)
        return;
    by_evenly = step / run->turns % 2;
#ifdef _OPENMP
    if (THREAD == 0)
        clock_gettime(CLOCK_MONOTONIC, &turn_began[turns++]);
#endif
}

static double seconds_between(struct timespec from, struct timespec to) {
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

// The last stretch lasts until the end.
static void print_turns(void) {
    for (int64_t turn = 0; turn < turns; turn++)
        printf("%s%.9f", turn ? "," : ",\"turns_s\":[",
               seconds_between(turn_began[turn], turn + 1 < turns ? turn_began[turn + 1] : ended));
    printf("%s", turns ? "]" : "");
}

// Whole cache lines, and each array in some of its own, in huge pages where the kernel has some; each begins some lines further on
// than the one before: arrays that begin at the same place within pages take shallow twice the time. Never freed.
void *zeroed(size_t count, size_t bytes) {
    enum { LINES = 128, HUGE_PAGE = 2 << 20 };
    static size_t arrays;
    const size_t ahead = arrays++ % 64 * 5 * LINES;
    const size_t size = (count * bytes + ahead + HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
    char *array = aligned_alloc(HUGE_PAGE, size);
    if (!array) {
        fprintf(stderr, "no memory for %zu elements of %zu bytes\n", count, bytes);
        exit(EXIT_FAILURE);
    }
    (void)madvise(array, size, MADV_HUGEPAGE);
    return memset(array + ahead, 0, count * bytes);
}

uint64_t checksum(uint64_t sum, const void *data, size_t bytes) {
    const uint32_t *words = data;
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        sum = (sum ^ words[i]) * 1099511628211U;
    return sum;
}

static int64_t number(const char *text, const char *what) {
    char *end;
    const long value = strtol(text, &end, 10);
    if (*end || value < 1 || value > 1 << 20) {
        fprintf(stderr, "%s '%s' is no number from 1 to 1048576\n", what, text);
        exit(BAD_INPUT);
    }
    return value;
}

static void print_shares(const struct run *run) {
#ifdef _OPENMP
    for (int loop = 0; (run->adapts || run->turns) && loop < MOST_LOOPS && run->loops[loop]; loop++) {
        printf(",\"loop%d\":[", loop);
        for (int thread = 0; thread < run->threads; thread++)
            printf("%s%" PRIu64, thread ? "," : "", evenly_region_iterations(run->loops[loop], (size_t)thread));
        printf("]");
    }
#else
    (void)run;
#endif
}

int main(int argc, char **argv) {
    static const struct kernel *const kernels[] = {&matrix, &jacobi, &sor, &shallow, &water, &gauss, &empty, &flags};
    const struct kernel *kernel = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (argc > 1 && !strcmp(argv[1], kernels[i]->name))
            kernel = kernels[i];
    const bool helps = argc > 1 && !strcmp(argv[1], "--help");
    if (!kernel || argc > 6) {
        fprintf(helps ? stdout : stderr,
                "Usage: %s matrix|jacobi|sor|shallow|water|gauss|empty|flags [THREADS [omp|evenly|POLICY [SIZE [STEPS]]]]\n"
                "With omp, OMP_SCHEDULE says how iterations are handed out; a policy is one of evenly.\n"
                "With LOOPS_MEET in the environment all threads come to the end of each loop of evenly.\n"
                "With LOOPS_TURNS=N N steps are by OpenMP, the next N by evenly, and so on; the time of each N is printed as well.\n"
                "These are without effect in loops-tbb and loops-rayon.\n",
                argv[0]);
        return helps ? EXIT_SUCCESS : BAD_INPUT;
    }
    const char *by = argc > 3 ? argv[3] : "omp";
    struct run run = {
        .threads = argc > 2 ? (int)number(argv[2], "THREADS") : 1,
        .adapts = strcmp(by, "omp") != 0,
        .overtakes = !getenv("LOOPS_MEET"),
        .size = argc > 4 ? number(argv[4], "SIZE") : kernel->size,
        .steps = argc > 5 ? number(argv[5], "STEPS") : kernel->steps,
    };
#ifdef _OPENMP
    run.team = evenly_team_new((size_t)run.threads);
    if (strcmp(by, "omp") && strcmp(by, "evenly") && setenv("EVENLY_LOOPS", by, 1))
        return EXIT_FAILURE;
#endif
    const char *in_turn = getenv("LOOPS_TURNS");
    run.turns = in_turn ? number(in_turn, "LOOPS_TURNS") : 0;
    if (run.turns && run.steps / run.turns >= MOST_TURNS) {
        fprintf(stderr, "LOOPS_TURNS: %d stretches at most\n", MOST_TURNS);
        return BAD_INPUT;
    }
    const uint64_t sum = kernel->compute(&run);
    printf("{\"makespan_s\":%.6f,\"checksum\":\"%016" PRIx64 "\"", seconds_between(began, ended), sum);
    print_turns();
    print_shares(&run);
    printf("}\n");
    return EXIT_SUCCESS;
}

// MetBench and MetBenchVar (HPCSched, section V) over MPI: in each iteration a rank computes its load and then
// waits for all others in a barrier, or, as BT-MZ, exchanges a message with its two neighbours. Loads differ
// between ranks (--loads), and may turn round every K iterations (--reverse), so that the late are early.
// The paper's master, which only waits, is left out. The checksum depends on the work alone, and with
// neighbours on every message.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"
#include "kernel.h"

static void help(void) {
    printf("Usage: mpirun -n N %s [OPTIONS]\n"
           "Iterations of unequal work over MPI, each followed by a barrier: MetBench, and with\n"
           "--reverse MetBenchVar. Prints JSON.\n\n"
           "  --iterations N  iterations (default 45)\n"
           "  --iters N       steps of computing of load 1 (default 1000000; spmd --calibrate says\n"
           "                  how many of them a millisecond has)\n"
           "  --loads LIST    the load of each rank in such units, from the first on again where\n"
           "                  there are more ranks (default 1,4)\n"
           "  --reverse K     after every K iterations ranks have the list the other way round\n"
           "                  (default 0: never)\n"
           "  --sync HOW      barrier, or neighbours: a message to both (default barrier)\n"
           "  --parts         print also what weight each rank had, and on which CPU it was, as each\n"
           "                  iteration began\n"
           "  --output FILE   write the JSON to FILE instead of stdout\n"
           "  --help          this text\n\n"
           "Example: mpirun -n 4 %s --loads 1,4 --reverse 15\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

// A message from both neighbours in a ring, mixed into the work.
static void exchange(struct work *work, int self, int ranks) {
    const int left = (self + ranks - 1) % ranks, right = (self + 1) % ranks;
    const uint64_t own = work_digest(work);
    uint64_t from_left = 0, from_right = 0;
    MPI_Request requests[4];
    MPI_Irecv(&from_left, 1, MPI_UINT64_T, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&from_right, 1, MPI_UINT64_T, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&own, 1, MPI_UINT64_T, right, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&own, 1, MPI_UINT64_T, left, 1, MPI_COMM_WORLD, &requests[3]);
    // Not MPI_STATUSES_IGNORE: compilers warn of MPICH's.
    MPI_Status statuses[4];
    MPI_Waitall(4, requests, statuses);
    work_mix(work, splitmix64(from_left) ^ from_right);
}

// A number in a file, or `otherwise`.
static double number_in(const char *path, double otherwise) {
    FILE *in = fopen(path, "re");
    if (!in) return otherwise;
    double number;
    if (fscanf(in, "%lf", &number) != 1) number = otherwise;
    fclose(in);
    return number;
}

// The weight of this thread's control group, 1 being what the kernel gives one; also where there is none, or
// where groups are mounted in other places than usual.
static double group_weight(void) {
    FILE *in = fopen("/proc/thread-self/cgroup", "re");
    if (!in) return 1;
    char line[4200], path[4300];
    double weight = 1;
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        // As in "1:cpu,cpuacct:/a/group", or "0::/a/group" of version 2.
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *names++ = *group++ = 0;
        if (!*names) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.weight", group);
            weight *= number_in(path, 100) / 100;
        }
        for (char *rest = names, *name; (name = strtok_r(rest, ",", &rest));) {
            if (strcmp(name, "cpu")) continue;
            snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.shares", group);
            weight *= number_in(path, 1024) / 1024;
        }
    }
    fclose(in);
    return weight;
}

// What this thread gets of a CPU, beside others there: by its nice value, each of which is a factor of about
// 1.25, and its control group.
static double own_weight(void) {
    return pow(1.25, -getpriority(PRIO_PROCESS, 0)) * group_weight();
}

// Seconds in which this thread wanted a CPU while others of this machine had it, by the second number of
// `schedstat`; below 0 where the kernel does not count them.
static double wanted_s(int schedstat) {
    char text[128];
    const ssize_t n = pread(schedstat, text, sizeof text - 1, 0);
    if (n <= 0) return -1;
    text[n] = 0;
    uint64_t waited;
    return sscanf(text, "%*s %" SCNu64, &waited) == 1 ? 1e-9 * (double)waited : -1;
}

// Values of all iterations, of each rank an array, at rank 0.
static void json_histories(FILE *out, const char *key, const double *own, size_t count, int ranks) {
    double *all = out ? checked_alloc((size_t)ranks * count, sizeof *all) : NULL;
    MPI_Gather(own, (int)count, MPI_DOUBLE, all, (int)count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (!out) return;
    fprintf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < (size_t)ranks * count; i++)
        fprintf(out, "%s%.6g", i % count ? "," : i ? "],[" : "[", all[i]);
    fprintf(out, "]]");
    free(all);
}

// The sum over the iterations of what the rank with most had in each, at rank 0.
static double longest(const double *own, size_t count) {
    double *most = checked_alloc(count, sizeof *most), sum = 0;
    MPI_Reduce(own, most, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) sum += most[i];
    free(most);
    return sum;
}

// Of each rank, at rank 0.
static void json_gathered(FILE *out, const char *key, double value, int ranks) {
    double *all = out ? checked_alloc((size_t)ranks, sizeof *all) : NULL;
    MPI_Gather(&value, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (!out) return;
    fputc(',', out);
    json_seconds(out, key, all, (size_t)ranks, 0);
    free(all);
}

int main(int argc, char **argv) {
    enum { ITERATIONS, ITERS, LOADS, REVERSE, SYNC, PARTS, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"iterations", required_argument, NULL, ITERATIONS}, {"iters", required_argument, NULL, ITERS},
        {"loads", required_argument, NULL, LOADS},           {"reverse", required_argument, NULL, REVERSE},
        {"sync", required_argument, NULL, SYNC},             {"parts", no_argument, NULL, PARTS},
        {"output", required_argument, NULL, OUTPUT},         {"help", no_argument, NULL, HELP},
        {0},
    };
    static const double default_loads[] = {1, 4};
    uint64_t iterations = 45, iters = 1000000, reverse = 0;
    const double *loads = default_loads;
    size_t load_count = 2;
    int with_neighbours = 0, with_parts = 0;
    const char *output = NULL;
    // Before MPI starts: bad input ends each rank by itself.
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case ITERATIONS: iterations = parse_u64("--iterations", optarg, 1, 1000000); break;
        case ITERS: iters = parse_u64("--iters", optarg, 1, UINT64_C(1000000000000)); break;
        case LOADS: loads = parse_list("--loads", optarg, 0, 1000, &load_count); break;
        case REVERSE: reverse = parse_u64("--reverse", optarg, 0, 1000000); break;
        case SYNC:
            with_neighbours = !strcmp(optarg, "neighbours");
            if (!with_neighbours && strcmp(optarg, "barrier"))
                die_input("--sync %s: barrier or neighbours is needed", optarg);
            break;
        case PARTS: with_parts = 1; break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);

    MPI_Init(&argc, &argv);
    int ranks, self;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    const double there = loads[(size_t)self % load_count];
    const double back = loads[(size_t)(ranks - 1 - self) % load_count];
    struct work work;
    work_init(&work, KIND_COMPUTE, 0, (uint64_t)self + 1);
    const size_t count = (size_t)iterations;
    double *took = checked_alloc(count, sizeof *took);
    double *computed = checked_alloc(count, sizeof *computed), *cpus = checked_alloc(count, sizeof *cpus);
    double *computed_cpu = checked_alloc(count, sizeof *computed_cpu);
    double *weights = checked_alloc(count, sizeof *weights);
    // With what others of this machine kept it from in between.
    double *computed_held = checked_alloc(count, sizeof *computed_held);
    const int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);

    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = now_s(), cpu_begun = thread_cpu_s();
    double last = begun;
    for (uint64_t i = 0; i < iterations; i++) {
        const double load = reverse && i / reverse % 2 ? back : there;
        if (with_parts) {
            weights[i] = own_weight();
            cpus[i] = sched_getcpu();
        }
        const double held_before = wanted_s(schedstat);
        const double start = now_s(), cpu_start = thread_cpu_s();
        work_run(&work, (uint64_t)(load * (double)iters));
        computed_cpu[i] = thread_cpu_s() - cpu_start;
        computed[i] = now_s() - start;
        computed_held[i] = computed_cpu[i] + wanted_s(schedstat) - held_before;
        if (with_neighbours) exchange(&work, self, ranks);
        else MPI_Barrier(MPI_COMM_WORLD);
        const double now = now_s();
        took[i] = now - last;
        last = now;
    }
    const double cpu = thread_cpu_s() - cpu_begun, elapsed = last - begun;

    double makespan;
    MPI_Reduce(&elapsed, &makespan, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    const uint64_t digest = work_digest(&work);
    uint64_t sum = 0;
    MPI_Reduce(&digest, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *out = self == 0 ? open_output(output) : NULL;
    if (out) {
        fprintf(out, "{\"workload\":\"metbench\",\"ranks\":%d,\"iterations\":%" PRIu64 ",\"iters\":%" PRIu64
                     ",\"reverse\":%" PRIu64 ",\"sync\":\"%s\",\"checksum\":\"%016" PRIx64
                     "\",\"makespan_s\":%.9f",
                ranks, iterations, iters, reverse, with_neighbours ? "neighbours" : "barrier", sum, makespan);
        fputc(',', out);
        json_seconds(out, "iteration_s", took, count, 0);
    }
    double computing = 0, computing_cpu = 0;
    for (size_t i = 0; i < count; i++) {
        computing += computed[i];
        computing_cpu += computed_cpu[i];
    }
    // Wall time of computing, which being kept from a CPU lengthens, and CPU time, which spinning does.
    json_gathered(out, "computing_s", computing, ranks);
    json_gathered(out, "cpu_s", cpu, ranks);
    json_gathered(out, "computing_cpu_s", computing_cpu, ranks);
    json_gathered(out, "elapsed_s", elapsed, ranks);
    // At a barrier all wait for the one that computes for longest.
    const double longest_s = longest(computed, count), longest_cpu_s = longest(computed_cpu, count);
    const double longest_held_s = longest(computed_held, count);
    if (out) fprintf(out, ",\"longest_s\":%.9f,\"longest_cpu_s\":%.9f", longest_s, longest_cpu_s);
    // By so much others of this machine made that longer.
    if (out && wanted_s(schedstat) >= 0) fprintf(out, ",\"held_s\":%.9f", longest_held_s - longest_cpu_s);
    if (with_parts) {
        json_histories(out, "weights", weights, count, ranks);
        json_histories(out, "cpus", cpus, count, ranks);
    }
    if (out) {
        fprintf(out, "}\n");
        close_output(out);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}

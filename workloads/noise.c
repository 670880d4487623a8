// A neighbour: sleeps and computes in random turns (Juggle, section 4.4: sleeps
// 0 to 5 s, computes 5 to 10 s), on chosen CPUs and at a chosen nice level.
// It never outlives the thread that started it.
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"

enum { MAX_INTERVALS = 100000 };

static volatile _Atomic int stop;

static void on_signal(int signal) {
    (void)signal;
    stop = 1;
}

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "A neighbour that sleeps and computes in random turns until SIGTERM or SIGINT, until\n"
           "its parent dies, or for a given time; then prints what it did as JSON.\n\n"
           "  --sleep-ms MIN,MAX  range of a sleep (default 0,5000)\n"
           "  --busy-ms MIN,MAX   range of a computation, wall time (default 5000,10000)\n"
           "  --always            compute all the time\n"
           "  --cpu LIST          run only on these CPUs, such as 0-1,3\n"
           "  --nice N            nice level, -20 to 19\n"
           "  --seed S            start of the random numbers (default 1)\n"
           "  --duration-s T      end after T seconds\n"
           "  --output FILE       write the JSON to FILE instead of stdout\n"
           "  --help              this text\n\nExample: %s --cpu 1 --seed 7 --duration-s 60\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) return EXIT_SUCCESS; // it died before the line above

    enum { SLEEP, BUSY, ALWAYS, CPU, NICE, SEED, DURATION, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"sleep-ms", required_argument, NULL, SLEEP},
        {"busy-ms", required_argument, NULL, BUSY},
        {"always", no_argument, NULL, ALWAYS},
        {"cpu", required_argument, NULL, CPU},
        {"nice", required_argument, NULL, NICE},
        {"seed", required_argument, NULL, SEED},
        {"duration-s", required_argument, NULL, DURATION},
        {"output", required_argument, NULL, OUTPUT},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    double sleep_ms[2] = {0, 5000}, busy_ms[2] = {5000, 10000}, duration_s = 1e9;
    int always = 0;
    uint64_t seed = 1;
    const char *output = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case SLEEP: parse_range("--sleep-ms", optarg, 1e9, sleep_ms); break;
        case BUSY: parse_range("--busy-ms", optarg, 1e9, busy_ms); break;
        case ALWAYS: always = 1; break;
        case CPU: {
            cpu_set_t cpus = parse_cpus("--cpu", optarg);
            if (sched_setaffinity(0, sizeof cpus, &cpus))
                die_input("--cpu: cannot run on %s: %s", optarg, strerror(errno));
            break;
        }
        case NICE: {
            int level = (int)parse_i64("--nice", optarg, -20, 19);
            if (setpriority(PRIO_PROCESS, 0, level))
                die_machine("cannot set nice level %d: %s", level, strerror(errno));
            break;
        }
        case SEED: seed = parse_u64("--seed", optarg, 0, UINT64_MAX); break;
        case DURATION: duration_s = parse_double("--duration-s", optarg, 0, 1e9); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);
    if (sleep_ms[1] + busy_ms[1] <= 0) die_input("--sleep-ms and --busy-ms are both 0");

    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);

    struct interval {
        double start_s, busy_s, cpu_s;
    } *intervals = checked_alloc(MAX_INTERVALS, sizeof *intervals);
    uint64_t count = 0, random = splitmix64(seed);
    double start = now_s(), end = start + duration_s, busy_s = 0, busy_cpu_s = 0;
    while (!stop && now_s() < end) {
        double turn = now_s();
        if (!always) {
            turn += 1e-3 * (sleep_ms[0] + (sleep_ms[1] - sleep_ms[0]) * random_unit(&random));
            // A signal between the check and the sleep must not be slept over.
            while (!stop && now_s() < turn && now_s() < end) {
                double slice = now_s() + 0.1;
                if (slice > turn) slice = turn;
                sleep_until_s(slice < end ? slice : end);
            }
            if (stop || now_s() >= end) break;
        }
        double busy = 1e-3 * (busy_ms[0] + (busy_ms[1] - busy_ms[0]) * random_unit(&random));
        double from = now_s(), cpu_from = thread_cpu_s(), until = always ? end : from + busy;
        burn_until(until < end ? until : end, &stop);
        struct interval done = {from - start, now_s() - from, thread_cpu_s() - cpu_from};
        busy_s += done.busy_s;
        busy_cpu_s += done.cpu_s;
        if (count < MAX_INTERVALS) intervals[count] = done;
        count++;
    }

    FILE *out = open_output(output);
    fprintf(out, "{\"workload\":\"noise\",\"seed\":%llu,\"elapsed_s\":%.6f,\"busy_s\":%.6f,"
            "\"cpu_s\":%.6f,\"interval_count\":%llu,\"intervals\":[", (unsigned long long)seed,
            now_s() - start, busy_s, busy_cpu_s, (unsigned long long)count);
    for (uint64_t i = 0; i < count && i < MAX_INTERVALS; i++)
        fprintf(out, "%s{\"start_s\":%.6f,\"busy_s\":%.6f,\"cpu_s\":%.6f}", i ? "," : "",
                intervals[i].start_s, intervals[i].busy_s, intervals[i].cpu_s);
    fputs("]}\n", out);
    close_output(out);
    return EXIT_SUCCESS;
}

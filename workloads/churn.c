// A program with very many threads, or very short-lived ones, or both.
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { STACK_BYTES = 64 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static volatile _Atomic int stop;
static _Atomic uint64_t short_lived_alive;
static double life_s = 0.001;
static int burn;

static void *sleeper(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!stop) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *short_lived(void *unused) {
    (void)unused;
    if (burn) burn_until(now_s() + life_s, NULL);
    else if (life_s > 0) sleep_until_s(now_s() + life_s);
    short_lived_alive--;
    return NULL;
}

static void *worker(void *steps) {
    *(uint64_t *)steps = burn_until(1e18, &stop);
    return NULL;
}

static void help(void) {
    printf("Usage: %s [OPTIONS]\n"
           "Keeps sleeping threads, creates and destroys short-lived ones, and computes; then\n"
           "prints what it did as JSON.\n\n"
           "  --threads N     sleeping threads kept alive (default 0)\n"
           "  --rate R        short-lived threads per second (default 0)\n"
           "  --life-ms L     how long each of these lives (default 1)\n"
           "  --burn          they compute, instead of sleeping\n"
           "  --workers K     computing threads (default 0)\n"
           "  --duration-s T  end after T seconds (default 2)\n"
           "  --output FILE   write the JSON to FILE instead of stdout\n"
           "  --help          this text\n\nExample: %s --threads 10000 --workers 3\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    enum { THREADS, RATE, LIFE, BURN, WORKERS, DURATION, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"threads", required_argument, NULL, THREADS}, {"rate", required_argument, NULL, RATE},
        {"life-ms", required_argument, NULL, LIFE},    {"workers", required_argument, NULL, WORKERS},
        {"burn", no_argument, NULL, BURN},
        {"duration-s", required_argument, NULL, DURATION}, {"output", required_argument, NULL, OUTPUT},
        {"help", no_argument, NULL, HELP},             {0},
    };
    uint64_t sleepers = 0, workers = 0;
    double rate = 0, duration_s = 2;
    const char *output = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case THREADS: sleepers = parse_u64("--threads", optarg, 0, 1000000); break;
        case RATE: rate = parse_double("--rate", optarg, 0, 1e6); break;
        case LIFE: life_s = 1e-3 * parse_double("--life-ms", optarg, 0, 1e6); break;
        case BURN: burn = 1; break;
        case WORKERS: workers = parse_u64("--workers", optarg, 0, 65536); break;
        case DURATION: duration_s = parse_double("--duration-s", optarg, 0, 1e6); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    // Without guard pages neighbouring stacks are one mapping, and the number of
    // threads is not bound by vm.max_map_count.
    pthread_attr_setguardsize(&attributes, 0);
    pthread_t *threads = checked_alloc(sleepers + workers + 1, sizeof *threads);
    uint64_t *steps = checked_alloc(workers + 1, sizeof *steps);
    for (uint64_t i = 0; i < sleepers + workers; i++) {
        int error = i < sleepers ? pthread_create(&threads[i], &attributes, sleeper, NULL)
                                 : pthread_create(&threads[i], &attributes, worker, &steps[i - sleepers]);
        if (error)
            die_machine("cannot create thread %llu of %llu: %s; see ulimit -u, kernel.threads-max and "
                        "the pids limit of the cgroup", (unsigned long long)i + 1,
                        (unsigned long long)(sleepers + workers), strerror(error));
    }

    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    uint64_t created = 0, refused = 0;
    double start = now_s(), end = start + duration_s;
    while (now_s() < end) {
        double wake = end;
        if (rate > 0) {
            uint64_t due = (uint64_t)((now_s() - start) * rate);
            while (created + refused < due) {
                pthread_t thread;
                short_lived_alive++;
                if (pthread_create(&thread, &attributes, short_lived, NULL)) {
                    short_lived_alive--;
                    refused++;
                } else {
                    created++;
                }
            }
            wake = start + (double)(due + 1) / rate;
        }
        sleep_until_s(wake < end ? wake : end);
    }
    double elapsed_s = now_s() - start;

    pthread_mutex_lock(&lock);
    stop = 1;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    for (uint64_t i = 0; i < sleepers + workers; i++) pthread_join(threads[i], NULL);
    while (short_lived_alive > 0) sleep_until_s(now_s() + 0.001);

    FILE *out = open_output(output);
    fprintf(out, "{\"workload\":\"churn\",\"threads\":%llu,\"workers\":%llu,\"rate\":%g,\"elapsed_s\":%.6f,"
            "\"created\":%llu,\"refused\":%llu,\"created_per_s\":%.1f,\"worker_steps\":[",
            (unsigned long long)sleepers, (unsigned long long)workers, rate, elapsed_s,
            (unsigned long long)created, (unsigned long long)refused,
            elapsed_s > 0 ? (double)created / elapsed_s : 0);
    for (uint64_t i = 0; i < workers; i++)
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)steps[i]);
    fputs("]}\n", out);
    close_output(out);
    return EXIT_SUCCESS;
}

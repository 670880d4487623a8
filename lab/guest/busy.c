// Measures whether CPUs are equally fast and stay so: the same fixed amount of
// work by one thread alone on some CPUs, then by one thread on each CPU at once.
//
//   busy SECONDS ALONE_CPU,... CPU_COUNT
//
// Prints one line for each measured thread: "alone CPU SECONDS" or
// "all CPU SECONDS". The work is sized on the first CPU to take SECONDS alone.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct worker {
	pthread_t thread;
	pthread_barrier_t *start;
	int cpu;
	uint64_t rounds;
	double seconds;
	uint64_t result;
};

static void die(const char *what, int error)
{
	fprintf(stderr, "busy: %s: %s\n", what, strerror(error));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *argument)
{
	struct worker *w = argument;
	cpu_set_t *mask = CPU_ALLOC((size_t)w->cpu + 1);
	size_t size = CPU_ALLOC_SIZE((size_t)w->cpu + 1);
	if (!mask)
		die("CPU mask", ENOMEM);
	CPU_ZERO_S(size, mask);
	CPU_SET_S((size_t)w->cpu, size, mask);
	if (sched_setaffinity(0, size, mask) != 0)
		die("sched_setaffinity", errno);
	CPU_FREE(mask);

	uint64_t x = 88172645463325252u + (uint64_t)w->cpu;
	pthread_barrier_wait(w->start);
	double start = now();
	for (uint64_t i = 0; i < w->rounds; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	w->seconds = now() - start;
	w->result = x;
	return NULL;
}

static void run(struct worker *workers, int count, uint64_t rounds)
{
	pthread_barrier_t start;
	pthread_barrier_init(&start, NULL, (unsigned)count);
	for (int i = 0; i < count; i++) {
		workers[i].start = &start;
		workers[i].rounds = rounds;
		int error = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
		if (error)
			die("pthread_create", error);
	}
	volatile uint64_t sink = 0;
	for (int i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		sink ^= workers[i].result;
	}
	pthread_barrier_destroy(&start);
}

int main(int argc, char **argv)
{
	double target = argc == 4 ? atof(argv[1]) : 0;
	int cpus = argc == 4 ? atoi(argv[3]) : 0;
	if (target <= 0 || cpus <= 0) {
		fprintf(stderr, "usage: busy SECONDS ALONE_CPU,... CPU_COUNT\n");
		return 2;
	}
	struct worker *workers = calloc((size_t)cpus, sizeof *workers);
	if (!workers)
		die("workers", ENOMEM);

	struct worker one = { .cpu = atoi(argv[2]) };
	uint64_t rounds = 1000000;
	for (;;) {
		run(&one, 1, rounds);
		if (one.seconds > target / 4)
			break;
		rounds *= 2;
	}
	rounds = (uint64_t)((double)rounds * target / one.seconds);

	for (char *cpu = strtok(argv[2], ","); cpu; cpu = strtok(NULL, ",")) {
		one.cpu = atoi(cpu);
		run(&one, 1, rounds);
		printf("alone %d %.6f\n", one.cpu, one.seconds);
	}
	for (int i = 0; i < cpus; i++)
		workers[i].cpu = i;
	run(workers, cpus, rounds);
	for (int i = 0; i < cpus; i++)
		printf("all %d %.6f\n", i, workers[i].seconds);
	free(workers);
	return 0;
}

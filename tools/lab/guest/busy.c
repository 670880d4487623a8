// Measures whether CPUs are equally fast, whether their neighbours are busy or
// not: the same fixed amount of work by one thread alone on some CPUs, then by
// one thread on each CPU at once, in turns.
//
//   busy SECONDS TURNS ALONE_CPU,... CPU_COUNT
//
// Prints one line for each CPU of each kind with the seconds of its turns:
// "alone CPU SECONDS..." or "all CPU SECONDS...". The work of one turn is sized on
// the first CPU to take SECONDS alone.
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

// Prints the turns of `count` CPUs, whose times lie turn after turn.
static void print(const char *kind, const int *cpus, int count, const double *times, int turns)
{
	for (int i = 0; i < count; i++) {
		printf("%s %d", kind, cpus[i]);
		for (int turn = 0; turn < turns; turn++)
			printf(" %.6f", times[turn * count + i]);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	double target = argc == 5 ? atof(argv[1]) : 0;
	int turns = argc == 5 ? atoi(argv[2]) : 0;
	int count = argc == 5 ? atoi(argv[4]) : 0;
	if (target <= 0 || turns <= 0 || turns > 1000 || count <= 0 || count > 4096) {
		fprintf(stderr, "usage: busy SECONDS TURNS ALONE_CPU,... CPU_COUNT\n");
		return 2;
	}
	struct worker *workers = calloc((size_t)count, sizeof *workers);
	int *all = calloc((size_t)count, sizeof *all);
	int *alone = calloc((size_t)count, sizeof *alone);
	double *all_s = calloc((size_t)count * (size_t)turns, sizeof *all_s);
	double *alone_s = calloc((size_t)count * (size_t)turns, sizeof *alone_s);
	if (!workers || !all || !alone || !all_s || !alone_s)
		die("workers", ENOMEM);
	for (int i = 0; i < count; i++)
		workers[i].cpu = all[i] = i;
	int lone = 0;
	for (char *cpu = strtok(argv[3], ","); cpu && lone < count; cpu = strtok(NULL, ","))
		alone[lone++] = atoi(cpu);

	struct worker one = { .cpu = alone[0] };
	uint64_t rounds = 100000;
	for (;;) {
		run(&one, 1, rounds);
		if (one.seconds > target / 2)
			break;
		rounds *= 2;
	}
	rounds = (uint64_t)((double)rounds * target / one.seconds);

	for (int turn = 0; turn < turns; turn++) {
		for (int i = 0; i < lone; i++) {
			one.cpu = alone[i];
			run(&one, 1, rounds);
			alone_s[turn * lone + i] = one.seconds;
		}
		run(workers, count, rounds);
		for (int i = 0; i < count; i++)
			all_s[turn * count + i] = workers[i].seconds;
	}
	print("alone", alone, lone, alone_s, turns);
	print("all", all, count, all_s, turns);
	free(workers);
	free(all);
	free(alone);
	free(all_s);
	free(alone_s);
	return 0;
}

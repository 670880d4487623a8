// What threads use of the CPUs while they wait at a barrier for a member that sleeps: little, though each of them could
// have one. Usage: waits [real-time ROUND | forked]. Prints a line for each part.
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 4, SLEEP_MS = 300, MOST_MS = 60 };

static double used_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// A region of so many threads, as often as it takes until its barriers may be replaced, and once more. From this round on
// those that wait are real-time threads. The most that one of them uses.
static double waits(int threads, int real_time)
{
	double most = 0;
	for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel num_threads(threads) reduction(max : most)
		{
			if (omp_get_thread_num() == 0) {
				struct timespec sleep = { .tv_nsec = SLEEP_MS * 1000000L };
				nanosleep(&sleep, NULL);
			} else if (round >= real_time) {
				struct sched_param lowest = { .sched_priority = 1 };
				if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest))
					exit(77);
			}
			double before = used_ms();
#pragma omp barrier
			most = used_ms() - before;
		}
	}
	return most;
}

static void tasks(void)
{
#pragma omp parallel num_threads(3)
#pragma omp single
	for (int i = 0; i < 10; i++) {
#pragma omp task
		used_ms();
	}
}

static void check(const char *what, double most)
{
	// libgomp itself spins for some milliseconds.
	if (most > MOST_MS)
		printf("%s: %.0f ms\n", what, most);
	else
		printf("%s sleep\n", what);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "real-time")) {
		// Whoever spins is ended before it can hold up the machine.
		struct rlimit most = { 200000, 300000 };
		setrlimit(RLIMIT_RTTIME, &most);
		check("real-time threads", waits(3, atoi(argv[2])));
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "forked")) {
		pid_t child = fork();
		if (child)
			return waitpid(child, NULL, 0) != child;
	}
	check("members", waits(3, ROUNDS));
	check("members of a larger team", waits(5, ROUNDS));
	tasks();
	check("members after tasks", waits(4, ROUNDS));
	return 0;
}

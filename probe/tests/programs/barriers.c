// All that a team of threads can do at barriers, with answers that are wrong where a barrier lets one through too early or a
// task is lost. Usage: barriers THREADS. Prints a line for each part.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { MOST = 64, PHASES = 300 };
static int threads;
static _Atomic long shared[MOST * 64];

static void wrong(const char *what)
{
	printf("%s: wrong\n", what);
	exit(1);
}

// Each writes what the next reads after the barrier.
static void turn(int self, int of, long phase)
{
	atomic_store_explicit(&shared[(phase % 2 * MOST + self) * 8], phase + self, memory_order_relaxed);
}

static void check(int self, int of, long phase, const char *what)
{
	int next = (self + 1) % of;
	if (atomic_load_explicit(&shared[(phase % 2 * MOST + next) * 8], memory_order_relaxed) != phase + next)
		wrong(what);
}

static pthread_barrier_t barrier;
static _Atomic int serial, crowd, tickets;

static void *at_barrier(void *argument)
{
	int self = (int)(long)argument;
	for (long phase = 0; phase < PHASES; phase++) {
		turn(self, threads, phase);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			serial++;
		check(self, threads, phase, "barrier");
	}
	return NULL;
}

// More threads than the barrier waits for.
static void *in_crowd(void *unused)
{
	(void)unused;
	while (tickets++ < 4 * PHASES) {
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			crowd++;
	}
	return NULL;
}

static void run(int n, void *(*what)(void *))
{
	pthread_t ids[MOST];
	for (long i = 0; i < n; i++)
		if (pthread_create(&ids[i], NULL, what, (void *)i))
			abort();
	for (int i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
}

static void posix(void)
{
	// Again and again at the same place: what was known of the one before is gone.
	for (int round = 0; round < 3; round++) {
		pthread_barrier_init(&barrier, NULL, (unsigned)threads);
		run(threads, at_barrier);
		pthread_barrier_destroy(&barrier);
	}
	if (serial != 3 * PHASES)
		wrong("serial threads");
	printf("POSIX barriers\n");
	// Whoever is there arrives, twice as many as are waited for: each opening has two.
	pthread_barrier_init(&barrier, NULL, 2);
	run(4, in_crowd);
	pthread_barrier_destroy(&barrier);
	if (crowd != 4 * PHASES / 2)
		wrong("crowd");
	printf("more threads than a barrier waits for\n");
	pthread_barrierattr_t attributes;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&barrier, &attributes, 1);
	if (pthread_barrier_wait(&barrier) != PTHREAD_BARRIER_SERIAL_THREAD)
		wrong("shared barrier");
	pthread_barrier_destroy(&barrier);
	if (pthread_barrier_init(&barrier, NULL, 0) == 0)
		wrong("a barrier for nobody");
	printf("barriers of processes\n");
}

#ifdef _OPENMP
static long fibonacci(int n)
{
	long a, b;
	if (n < 2)
		return n;
#pragma omp task shared(a)
	a = fibonacci(n - 1);
#pragma omp task shared(b)
	b = fibonacci(n - 2);
#pragma omp taskwait
	return a + b;
}

static void deep(int levels)
{
#pragma omp parallel num_threads(2)
	{
#pragma omp barrier
		if (levels > 1 && omp_get_thread_num() == 0)
			deep(levels - 1);
#pragma omp barrier
	}
}

static void openmp(void)
{
	long sum = 0;
#pragma omp parallel num_threads(threads)
	for (long phase = 0; phase < PHASES; phase++) {
		turn(omp_get_thread_num(), threads, phase);
#pragma omp barrier
		check(omp_get_thread_num(), threads, phase, "barrier");
	}
	printf("barriers\n");
	for (long phase = 0; phase < PHASES; phase++) {
#pragma omp parallel num_threads(threads)
		turn(omp_get_thread_num(), threads, phase);
#pragma omp parallel num_threads(threads)
		check(omp_get_thread_num(), threads, phase, "regions");
	}
	printf("regions\n");
	for (int n = 1; n <= threads; n++) {
		int seen = 0;
#pragma omp parallel num_threads(n) reduction(+ : seen)
		seen += omp_get_num_threads() == n;
		if (seen != n)
			wrong("teams of other sizes");
	}
	printf("teams of other sizes\n");
#pragma omp parallel num_threads(threads) reduction(+ : sum)
	for (int round = 0; round < 20; round++) {
#pragma omp for schedule(dynamic, 3)
		for (int i = 0; i < 1000; i++)
			sum += i;
#pragma omp for schedule(guided) ordered
		for (int i = 0; i < 50; i++) {
#pragma omp ordered
			sum += i;
		}
#pragma omp sections
		{
#pragma omp section
			sum += 1;
#pragma omp section
			sum += 2;
		}
#pragma omp single
		sum += 3;
	}
	printf("loops and sections: %ld\n", sum);
	long found = 0;
	for (int round = 0; round < 5; round++) {
#pragma omp parallel num_threads(threads)
		{
#pragma omp barrier
#pragma omp single
			found = fibonacci(12);
#pragma omp barrier
			if (found != 144)
				wrong("tasks");
#pragma omp for schedule(dynamic)
			for (int i = 0; i < 100; i++)
				found += 0;
		}
		_Atomic long done = 0;
#pragma omp parallel num_threads(threads)
		{
			// Made by one that is late, while the others wait already.
			if (omp_get_thread_num() == threads - 1) {
				usleep(2000);
				for (int i = 0; i < 50; i++) {
#pragma omp task shared(done)
					done++;
				}
			}
#pragma omp barrier
			if (done != 50)
				wrong("tasks are done at barriers");
		}
#pragma omp parallel num_threads(threads)
		{
#pragma omp task shared(done)
			done++;
		}
		if (done != 50 + threads)
			wrong("tasks are done at the end of a region");
#pragma omp parallel num_threads(threads)
#pragma omp single
#pragma omp taskloop
		for (int i = 0; i < 100; i++)
			done++;
		if (done != 150 + threads)
			wrong("loops of tasks");
	}
	printf("tasks\n");
	omp_set_max_active_levels(8);
	_Atomic long inner = 0;
#pragma omp parallel num_threads(threads)
	for (int round = 0; round < 10; round++) {
#pragma omp parallel num_threads(2)
		{
#pragma omp barrier
			inner++;
#pragma omp barrier
		}
#pragma omp barrier
		if (inner % (2 * threads))
			wrong("regions within regions");
#pragma omp barrier
	}
	// More of them within each other than are followed: one thread is in them, the others wait at the barrier around.
	for (int round = 0; round < 10; round++) {
#pragma omp parallel num_threads(threads)
		{
			turn(omp_get_thread_num(), threads, round);
			if (omp_get_thread_num() == 0)
				deep(6);
#pragma omp barrier
			check(omp_get_thread_num(), threads, round, "deep regions");
		}
	}
	printf("regions within regions\n");
	_Atomic long cancelled = 0;
	for (int round = 0; round < 50; round++) {
#pragma omp parallel num_threads(threads)
		{
#pragma omp barrier
			if (omp_get_thread_num() == 0) {
#pragma omp cancel parallel
			}
#pragma omp barrier
			cancelled++;
#pragma omp cancellation point parallel
		}
	}
	printf("cancelled regions\n");
	pid_t child = fork();
	if (child == 0) {
#pragma omp parallel num_threads(1)
		_exit(7);
	}
	int status;
	waitpid(child, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
		wrong("a process that was forked");
	printf("a process that was forked\n");
}
#endif

int main(int argc, char **argv)
{
	threads = argc > 1 ? atoi(argv[1]) : 2;
	if (threads < 1 || threads > MOST)
		return 2;
	posix();
#ifdef _OPENMP
	openmp();
#endif
	return 0;
}

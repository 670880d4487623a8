// What few programs do at barriers, with answers that are wrong where a barrier opens too early or never, or where the runtime
// is not asked. Usage: unusual. Prints a line for each part. OMP_CANCELLATION=true is expected.
#define _GNU_SOURCE
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3 };

static void wrong(const char *what)
{
	printf("%s: wrong\n", what);
	exit(1);
}

// A loop that is cancelled, and others of the same region that are not.
static void cancelled_loops(void)
{
	atomic_long first = 0, later = 0;
#pragma omp parallel num_threads(THREADS)
	{
#pragma omp for
		for (int i = 0; i < 100; i++) {
			first++;
#pragma omp cancel for
		}
		for (int round = 0; round < 5; round++) {
#pragma omp for
			for (int i = 0; i < 100; i++) {
				later++;
#pragma omp cancellation point for
			}
		}
#pragma omp sections
		{
#pragma omp section
			{
#pragma omp cancel sections
			}
#pragma omp section
			first++;
		}
#pragma omp for
		for (int i = 0; i < 100; i++)
			later++;
	}
	if (later != 600)
		wrong("loops after one that was cancelled");
	printf("cancelled loops\n");
}

#ifndef __clang__
// Within a target, of which the one thread is alone at barriers and has all of a loop.
static void shares_nothing(long *sum)
{
#pragma omp for
	for (int i = 0; i < 10; i++)
		*sum += i;
#pragma omp barrier
}
#endif

// On the host, as there is no device. A target that is not waited for is a task, which barriers wait for.
static void targets(void)
{
	long stale = 0;
	for (int round = 0; round < 50; round++) {
		int value = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : stale)
		{
#pragma omp single nowait
			{
#pragma omp target map(tofrom : value) nowait
				value = 1;
			}
#pragma omp barrier
			stale += value != 1;
		}
	}
	if (stale)
		wrong("targets that are not waited for");
	long sum = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : sum)
	for (int round = 0; round < 20; round++) {
		if (omp_get_thread_num() == 0) {
#pragma omp target map(tofrom : sum)
			{
#pragma omp parallel for reduction(+ : sum)
				for (int i = 0; i < 10; i++)
					sum += i;
			}
		}
#pragma omp barrier
	}
	if (sum != 20 * 45)
		wrong("loops in targets");
	sum = 0;
#pragma omp parallel num_threads(THREADS)
	for (int round = 0; round < 20; round++) {
		if (omp_get_thread_num() == 0) {
#pragma omp target enter data map(to : sum) nowait
#ifdef __clang__
			// Its barriers and loops within a target are those of the region around it, so that this would hang.
			sum += 45;
#else
#pragma omp target map(tofrom : sum)
			shares_nothing(&sum);
#endif
#pragma omp target update from(sum) nowait
#pragma omp taskwait
#pragma omp target exit data map(from : sum) nowait
		}
#pragma omp barrier
	}
	if (sum != 20 * 45)
		wrong("loops and barriers of a target");
	printf("targets\n");
}

#ifndef __clang__
// As compilers before gcc 4.9 have it.
extern void GOMP_parallel_start(void (*)(void *), void *, unsigned);
extern void GOMP_parallel_end(void);
extern void GOMP_barrier(void);

static void old_part(void *count)
{
	for (int i = 0; i < 5; i++)
		GOMP_barrier();
	(*(atomic_long *)count)++;
}

static void old_regions(void)
{
	atomic_long count = 0;
	omp_set_max_active_levels(2);
#pragma omp parallel num_threads(THREADS)
	for (int round = 0; round < 10; round++) {
		if (omp_get_thread_num() == 0) {
			GOMP_parallel_start(old_part, &count, 2);
			old_part(&count);
			GOMP_parallel_end();
		}
#pragma omp barrier
	}
	if (count != 20)
		wrong("old regions");
	printf("old regions\n");
}
#endif

static pthread_barrier_t barriers[2];
static atomic_int came[2];

// Two of these meet 20 times.
static void *pair(void *number)
{
	for (int i = 0; i < 20; i++) {
		came[(long)number]++;
		pthread_barrier_wait(&barriers[(long)number]);
		if (came[(long)number] < 2 * (i + 1))
			wrong("a barrier that opens too early");
	}
	return NULL;
}

static void meet(void *number)
{
	pthread_t others[2];
	came[(long)number] = 0;
	for (int i = 0; i < 2; i++)
		pthread_create(&others[i], NULL, pair, number);
	for (int i = 0; i < 2; i++)
		pthread_join(others[i], NULL);
}

// Two threads make barriers at once.
static void *makes(void *number)
{
	for (int round = 0; round < 100; round++) {
		pthread_barrier_init(&barriers[(long)number], NULL, 2);
		meet(number);
		pthread_barrier_destroy(&barriers[(long)number]);
	}
	return NULL;
}

static void posix(void)
{
	pthread_t makers[2];
	for (long i = 0; i < 2; i++)
		pthread_create(&makers[i], NULL, makes, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(makers[i], NULL);
	printf("barriers that are made at once\n");
	// A barrier that exists in both processes.
	pthread_barrier_init(&barriers[0], NULL, 2);
	for (int process = 0; process < 2; process++) {
		pid_t child = fork();
		meet((void *)0);
		if (child == 0)
			_exit(3);
		int status;
		waitpid(child, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
			wrong("barriers of a process that was forked");
	}
	printf("barriers of a process that was forked\n");
}

// As many keys of threads as there are.
static void keys(void)
{
	static pthread_key_t all[PTHREAD_KEYS_MAX];
	int made = 0;
	while (made < PTHREAD_KEYS_MAX && pthread_key_create(&all[made], NULL) == 0)
		made++;
	for (int i = 0; i < made; i++)
		if (pthread_setspecific(all[i], &all[i]))
			wrong("keys that are used");
	for (int i = 0; i < made; i++)
		if (pthread_getspecific(all[i]) != &all[i])
			wrong("values of keys");
	for (int i = 0; i < made; i++)
		pthread_key_delete(all[i]);
	printf("keys: %d\n", made);
}

int main(void)
{
	cancelled_loops();
	targets();
#ifndef __clang__
	old_regions();
#endif
	posix();
	keys();
	// A thread that begins to wait afterwards.
	posix();
	return 0;
}

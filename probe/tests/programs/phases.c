// Two threads meet at a barrier until they are killed; one computes for 2 ms of CPU time, the other for 4. With REGIONS each
// phase is a parallel region. Compiled without OpenMP they meet at two barriers of POSIX threads in turn; with RANKS they
// are ranks of MPI. With EXCHANGES these send each other three messages after each phase, and meet after every 64th alone; as long
// as APART the first one sends itself a fourth. With MS the first one computes for so many ms. With SITES they go through fifteen
// regions with a barrier in the middle of each and one at its end, and the n-th of the thirty phases takes 1 + n / 5 ms of both.
// With -O2 such a region ends by a jump to its last barrier. With CONDITION, FUTEX and POOL threads wait in code of the program: at
// a barrier of its own, or one has the other work and waits for it.
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#ifndef MS
#define MS 2
#endif

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void computes_for(double ms)
{
	double until = cpu() + ms;
	while (cpu() < until)
		;
}

static inline void computes(int number)
{
	computes_for(MS * (1 + number));
}

#ifdef RANKS
#include <mpi.h>

int main(void)
{
	int rank;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int turn = 1;; turn++) {
		int sum = 0;
		computes(rank);
#ifdef EXCHANGES
		for (int i = turn % 64 ? 0 : 3; i < 3 + (rank == 0 && (APART)); i++) {
			int with = i < 3 ? !rank : rank;
			MPI_Sendrecv(&turn, 1, MPI_INT, with, i, &sum, 1, MPI_INT, with, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		if (turn % 64)
			continue;
#endif
		MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
}
#elif defined(SITES)
#define REGION(n)                                       \
	_Pragma("omp parallel num_threads(2)")              \
	{                                                   \
		computes_for(1 + 2 * (n) * 0.2);                \
		_Pragma("omp barrier")                          \
		computes_for(1 + (2 * (n) + 1) * 0.2);          \
		_Pragma("omp barrier")                          \
	}

int main(void)
{
	for (;;) {
		REGION(0) REGION(1) REGION(2) REGION(3) REGION(4)
		REGION(5) REGION(6) REGION(7) REGION(8) REGION(9)
		REGION(10) REGION(11) REGION(12) REGION(13) REGION(14)
	}
}
#elif defined(_OPENMP)
#include <omp.h>

int main(void)
{
#ifdef REGIONS
	for (;;) {
#pragma omp parallel num_threads(2)
		computes(omp_get_thread_num());
	}
#endif
#pragma omp parallel num_threads(2)
	for (;;) {
		computes(omp_get_thread_num());
#pragma omp barrier
	}
}
#else
#if defined(CONDITION)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int arrived, phase;

static void meet(int number, int turn)
{
	(void)number;
	pthread_mutex_lock(&lock);
	if (++arrived % 2) {
		while (phase == turn)
			pthread_cond_wait(&opened, &lock);
	} else {
		phase++;
		pthread_cond_broadcast(&opened);
	}
	pthread_mutex_unlock(&lock);
}
#elif defined(FUTEX)
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int arrived, phase;

static void meet(int number, int turn)
{
	(void)number;
	if (atomic_fetch_add(&arrived, 1) % 2) {
		atomic_fetch_add(&phase, 1);
		syscall(SYS_futex, &phase, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	}
	while (phase == turn)
		syscall(SYS_futex, &phase, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
}
#elif defined(POOL)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed[2] = { PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER };
static int given, done;

/* Thread 0 gives work to the other and waits until that has done it. */
static void waits_until(int number, const int *count, int least)
{
	while (*count < least)
		pthread_cond_wait(&changed[number], &lock);
}

static void gives_or_takes(int number, int turn)
{
	pthread_mutex_lock(&lock);
	if (number == 0) {
		given = turn + 1;
		pthread_cond_signal(&changed[1]);
	} else {
		waits_until(1, &given, turn + 1);
	}
	pthread_mutex_unlock(&lock);
}

static void meet(int number, int turn)
{
	pthread_mutex_lock(&lock);
	if (number == 0) {
		waits_until(0, &done, turn + 1);
	} else {
		done = turn + 1;
		pthread_cond_signal(&changed[0]);
	}
	pthread_mutex_unlock(&lock);
}
#else
#define POSIX
static pthread_barrier_t barriers[2];

static void meet(int number, int turn)
{
	(void)number;
	pthread_barrier_wait(&barriers[turn % 2]);
}
#endif

static void *member(void *number)
{
	for (int turn = 0;; turn++) {
#ifdef POOL
		gives_or_takes((int)(long)number, turn);
#endif
		computes((int)(long)number);
		meet((int)(long)number, turn);
	}
	return NULL;
}

int main(void)
{
	pthread_t other;
#ifdef POSIX
	for (int i = 0; i < 2; i++)
		pthread_barrier_init(&barriers[i], NULL, 2);
#endif
	pthread_create(&other, NULL, member, (void *)1);
	member((void *)0);
}
#endif

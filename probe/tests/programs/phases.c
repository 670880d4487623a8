// Two threads meet at a barrier until they are killed; one computes for 2 ms of CPU time, the other for 4. With REGIONS each
// phase is a parallel region. Compiled without OpenMP they meet at two barriers of POSIX threads in turn; with RANKS they
// are ranks of MPI.
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void computes(int number)
{
	double until = cpu() + 2 * (1 + number);
	while (cpu() < until)
		;
}

#ifdef RANKS
#include <mpi.h>

int main(void)
{
	int rank;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (;;) {
		int sum = 0;
		computes(rank);
		MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
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
static pthread_barrier_t barriers[2];

static void *member(void *number)
{
	for (int turn = 0;; turn++) {
		computes((int)(long)number);
		pthread_barrier_wait(&barriers[turn % 2]);
	}
	return NULL;
}

int main(void)
{
	pthread_t other;
	for (int i = 0; i < 2; i++)
		pthread_barrier_init(&barriers[i], NULL, 2);
	pthread_create(&other, NULL, member, (void *)1);
	member((void *)0);
}
#endif

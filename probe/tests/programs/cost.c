// What one call takes that does not wait: a barrier of one thread; MPI_Iprobe on MPI_COMM_SELF (WITH_MPI), or
// another call there (CALL); a parallel region of so many threads as the argument says (WITH_OPENMP), of which those
// of one that does not wait, or the barriers of one thread in a region (BARRIERS).
// Prints the least of 501 batches in ns, which is what is left of others on the machine: a batch takes less than a
// millisecond, so that some are not interrupted.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef WITH_MPI
#include <mpi.h>
#ifndef CALL
#define CALL MPI_Iprobe(0, 0, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE)
#endif
#endif

enum { BATCHES = 501, CALLS = 1000 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	pthread_barrier_t barrier;
	double least = 1e9;
	pthread_barrier_init(&barrier, NULL, 1);
#ifdef WITH_MPI
	MPI_Init(&argc, &argv);
#endif
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	(void)threads;
#ifdef BARRIERS
#pragma omp parallel num_threads(1)
#endif
	for (int k = 0; k < BATCHES; k++) {
		double began = now();
		for (int i = 0; i < CALLS; i++) {
#if defined(WITH_MPI)
			int found = 0;
			double all = 0.0;
			(void)found;
			(void)all;
			CALL;
#elif defined(BARRIERS)
#pragma omp barrier
#elif defined(WITH_OPENMP)
#pragma omp parallel num_threads(threads)
			__asm__ volatile("" ::: "memory");
#else
			pthread_barrier_wait(&barrier);
#endif
		}
		double took = (now() - began) / CALLS;
		least = took < least ? took : least;
	}
#ifdef WITH_MPI
	MPI_Finalize();
#endif
	printf("%.2f\n", least);
	return 0;
}

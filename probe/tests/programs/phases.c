// Two threads meet at a barrier until they are killed; one computes for 2 ms of CPU time, the other for 4.
#define _GNU_SOURCE
#include <omp.h>
#include <time.h>

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(void)
{
#pragma omp parallel num_threads(2)
	for (;;) {
		double until = cpu() + 2 * (1 + omp_get_thread_num());
		while (cpu() < until)
			;
#pragma omp barrier
	}
}

// Two threads go through fifteen parallel regions with a barrier in the middle of each and one at its end until they are
// killed. Each of the thirty phases takes another time: the n-th 1 + n / 5 ms of CPU time. With -O2 a region ends by a
// jump to its last barrier.
#define _GNU_SOURCE
#include <omp.h>
#include <time.h>

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void computes(int phase)
{
	double until = cpu() + 1 + phase * 0.2;
	while (cpu() < until)
		;
}

#define REGION(n)                                 \
	_Pragma("omp parallel num_threads(2)")        \
	{                                             \
		computes(2 * (n));                        \
		_Pragma("omp barrier") computes(2 * (n) + 1); \
		_Pragma("omp barrier")                    \
	}

int main(void)
{
	for (;;) {
		REGION(0) REGION(1) REGION(2) REGION(3) REGION(4)
		REGION(5) REGION(6) REGION(7) REGION(8) REGION(9)
		REGION(10) REGION(11) REGION(12) REGION(13) REGION(14)
	}
}

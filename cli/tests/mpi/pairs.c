// Pairs of ranks that talk to each other and compute unequally: rank 0 with rank n/2, 1 with n/2 + 1, and so on.
// In each of so many rounds the lower rank of a pair computes for so many milliseconds of CPU time, the upper one for
// a quarter of that, and then they exchange so many messages of 100 bytes: the upper one waits for the lower. When
// half of the rounds are over, talk shifts where that is asked for ("shift"): 0 with 1, 2 with 3. With "wait" the
// lower one computes for a thousand times as long, and is there to be killed.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double cpu_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	int me, n;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	int rounds = argc > 1 ? atoi(argv[1]) : 20;
	double ms = argc > 2 ? atof(argv[2]) : 20;
	int messages = argc > 3 ? atoi(argv[3]) : 10;
	int shift = argc > 4 && !strcmp(argv[4], "shift"), wait = argc > 4 && !strcmp(argv[4], "wait");
	char out[100] = "", in[100];
	double began = cpu_s(), computed = 0;
	for (int round = 0; round < rounds; round++) {
		int step = shift && round >= rounds / 2 ? 1 : n / 2;
		int upper = me / step % 2, other = upper ? me - step : me + step;
		double from = cpu_s(), until = from + 1e-3 * ms * (upper ? 0.25 : wait ? 1000 : 1);
		while (cpu_s() < until)
			;
		computed += cpu_s() - from;
		for (int i = 0; i < messages; i++)
			MPI_Sendrecv(out, 100, MPI_CHAR, other, 0, in, 100, MPI_CHAR, other, 0, MPI_COMM_WORLD,
				MPI_STATUS_IGNORE);
	}
	printf("%d %.6f %.6f\n", me, computed, cpu_s() - began);
	return MPI_Finalize();
}

// Four ranks that compute equally, and talk to one other each, who is told while they run: the file that is named
// first has a digit, and rank r talks to r xor that; at 0 they end. In each round a rank computes for so many
// milliseconds of CPU time, and exchanges so many messages of 100 bytes with the other, all at once: whoever shares a
// CPU with others waits for them once a round, and not once a message.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST 1000

static double cpu_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// What the file says; what was said before while it is being written.
static int told(const char *name, int before)
{
	FILE *file = fopen(name, "r");
	int digit = file ? fgetc(file) : EOF;
	if (file)
		fclose(file);
	return digit >= '0' && digit <= '3' ? digit - '0' : before;
}

int main(int argc, char **argv)
{
	static char in[MOST][100], out[100];
	MPI_Request requests[2 * MOST];
	int me, with = 1;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	double ms = atof(argv[2]);
	int messages = atoi(argv[3]) < MOST ? atoi(argv[3]) : MOST;
	for (;;) {
		if (me == 0)
			with = told(argv[1], with);
		MPI_Bcast(&with, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (with == 0)
			break;
		double until = cpu_s() + 1e-3 * ms;
		while (cpu_s() < until)
			;
		for (int i = 0; i < messages; i++) {
			MPI_Irecv(in[i], 100, MPI_CHAR, me ^ with, 0, MPI_COMM_WORLD, &requests[2 * i]);
			MPI_Isend(out, 100, MPI_CHAR, me ^ with, 0, MPI_COMM_WORLD, &requests[2 * i + 1]);
		}
		MPI_Waitall(2 * messages, requests, MPI_STATUSES_IGNORE);
	}
	return MPI_Finalize();
}

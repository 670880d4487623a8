// Two ranks for tests of the probe, as steps.c: the first holds up the second. The argument is the level of
// threads that is asked for, or "plain" for MPI_Init. Rank 1 tells by itself nothing; both compute a sum. With
// "crash" a rank that is alone dies of its own fault within a call.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "step.h"

int main(int argc, char **argv)
{
	int rank, size, level = 0, got = 0, sum = 0;
	const char *what = argc > 1 ? argv[1] : "plain";
	int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
	if (!strcmp(what, "plain") || !strcmp(what, "crash"))
		MPI_Init(&argc, &argv);
	else
		MPI_Init_thread(&argc, &argv, levels[atoi(what)], &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(what, "crash")) {
		MPI_Request request;
		MPI_Irecv((void *)8, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
		MPI_Send(&rank, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		return 7;
	}
	if (rank == 0)
		step("barrier");
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		step("receive");
		int token = 42;
		MPI_Send(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
	} else {
		MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Request request;
	int other = 1 - rank, theirs = -1;
	MPI_Irecv(&theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &request);
	if (rank == 0)
		step("wait");
	MPI_Send(&rank, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	int mine[2] = { rank + got, theirs }, all[2];
	MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Sendrecv(&rank, 1, MPI_INT, other, 2, &theirs, 1, MPI_INT, other, 2, MPI_COMM_WORLD,
		MPI_STATUS_IGNORE);
	sum = all[0] * 100 + all[1] * 10 + theirs;
	if (rank == 0)
		step("last");
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	// 43 and 1, and the number of the other.
	return sum == 4310 + other ? 0 : 1;
}

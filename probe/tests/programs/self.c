// Ranks each of which talks to itself, and says what it has computed; and a module that does so, for two.c (MODULE). Errors
// of a communicator that it handles itself are no end of it.
#include <mpi.h>
#include <stdio.h>

static MPI_Comm made;

int begin(void);
int begin(void)
{
	int level = -1;
	return MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
}

int talk(int number);
int talk(int number)
{
	int rank = -1, got = -1, sum = -1, all[1] = { -1 };
	MPI_Request requests[2];
	MPI_Status statuses[2];
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_dup(MPI_COMM_SELF, &made);
	MPI_Irecv(&got, 1, MPI_INT, 0, number, made, &requests[0]);
	MPI_Isend(&number, 1, MPI_INT, 0, number, made, &requests[1]);
	MPI_Waitall(2, requests, statuses);
	MPI_Sendrecv(&got, 1, MPI_INT, rank, 1, all, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Allreduce(all, &sum, 1, MPI_INT, MPI_SUM, made);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
	int refused = MPI_Send(&got, 1, MPI_DATATYPE_NULL, 0, 1, made) != MPI_SUCCESS;
	MPI_Comm_free(&made);
	printf("rank %d got %d and %d, refused %d\n", rank, got, sum, refused);
	fflush(stdout);
	return got == number && sum == number && refused ? 0 : 1;
}

int end(void);
int end(void)
{
	return MPI_Finalize();
}

#ifndef MODULE
int main(void)
{
	return begin() || talk(7) || end();
}
#endif

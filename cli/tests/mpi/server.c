// Rank 0 computes for as many seconds as the argument says, and the others wait for what it sends then, in a
// communicator in which it is the last.
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, size, got = 0;
	MPI_Comm turned;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
	if (rank == 0) {
		double until = MPI_Wtime() + (argc > 1 ? atof(argv[1]) : 1);
		while (MPI_Wtime() < until)
			;
		for (int to = 0; to < size - 1; to++)
			MPI_Send(&size, 1, MPI_INT, to, 3, turned);
	} else {
		MPI_Recv(&got, 1, MPI_INT, size - 1, 3, turned, MPI_STATUS_IGNORE);
	}
	MPI_Comm_free(&turned);
	MPI_Finalize();
	return rank && got != size;
}

! Two ranks that send what MPI refuses, on a communicator whose errors they handle, and go on.
program refused
  use mpi
  implicit none
  integer :: comm, rank, error, ierr, sum
  call MPI_Init(ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierr)
  call MPI_Comm_rank(comm, rank, ierr)
  call MPI_Send(rank, 1, MPI_DATATYPE_NULL, 1 - rank, 1, comm, error)
  call MPI_Allreduce(rank, sum, 1, MPI_INTEGER, MPI_SUM, comm, ierr)
  print '(A, I0, A, L1)', 'sum ', sum, ', refused ', error /= MPI_SUCCESS
  call MPI_Finalize(ierr)
end program

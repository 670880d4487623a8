! Two ranks of MPI in Fortran for tests of the probe, as ranks.c: with "use mpi", or with "use mpi_f08" (-DF08).
#ifdef F08
#define MODULE mpi_f08
#define HANDLE(kind) type(kind)
#else
#define MODULE mpi
#define HANDLE(kind) integer
#endif
program ranks
  use, intrinsic :: iso_c_binding, only: c_int, c_size_t, c_char
  use MODULE
  implicit none
  interface
    integer(c_size_t) function c_read(fd, buffer, n) bind(c, name="read")
      import c_size_t, c_int, c_char
      integer(c_int), value :: fd
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: n
    end function
  end interface
  integer :: me, n, other, ierr, token(1), theirs(1), total(1)
  HANDLE(MPI_Request) :: request

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  other = 1 - me
  token = 42
  if (me == 0) call step('barrier')
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (me == 0) then
    call step('receive')
    call MPI_Send(token, 1, MPI_INTEGER, 1, 0, MPI_COMM_WORLD, ierr)
  else
    token = 0
    call MPI_Recv(token, 1, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  end if
  call MPI_Irecv(theirs, 1, MPI_INTEGER, other, 1, MPI_COMM_WORLD, request, ierr)
  if (me == 0) call step('wait')
  call MPI_Send(token, 1, MPI_INTEGER, other, 1, MPI_COMM_WORLD, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call MPI_Allreduce(theirs, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (me == 0) call step('last')
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
  if (n /= 2 .or. total(1) /= 84) stop 1

contains
  ! Says where it is, and goes on when it is told to.
  subroutine step(name)
    character(len=*), intent(in) :: name
    character(kind=c_char) :: byte(1)
    print '(a)', name
    flush (6)
    if (c_read(0_c_int, byte, 1_c_size_t) /= 1) stop 9
  end subroutine
end program

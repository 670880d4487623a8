! Messages that are known beforehand, from Fortran: with "use mpi", or with "use mpi_f08" (-DF08).
! For 4 ranks; what is sent is written down beside it as FROM -> TO MESSAGES x BYTES.
#ifdef F08
#define MODULE mpi_f08
#define HANDLE(kind) type(kind)
#else
#define MODULE mpi
#define HANDLE(kind) integer
#endif
program pattern
  use MODULE
  implicit none
  integer :: me, n, ierr, right, left, k, buffer(8), in(8), counts(4), places(4), everywhere(16)
  double precision :: x(4), y(4)
  integer(kind=MPI_ADDRESS_KIND) :: bytes, place
  HANDLE(MPI_Comm) :: half
  HANDLE(MPI_Request) :: request, requests(2)
  HANDLE(MPI_Win) :: win

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  right = mod(me + 1, n)
  left = mod(me + n - 1, n)
  buffer = me

  ! i -> i+1: 10 x 12
  do k = 1, 10
    call MPI_Isend(buffer, 3, MPI_INTEGER, right, k, MPI_COMM_WORLD, request, ierr)
    call MPI_Recv(in, 3, MPI_INTEGER, left, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call need(in(1) == left)
  end do
  ! 0 -> 2: 1 x 16
  if (me == 0) call MPI_Send(x, 2, MPI_DOUBLE_PRECISION, 2, 0, MPI_COMM_WORLD, ierr)
  if (me == 2) call MPI_Recv(x, 2, MPI_DOUBLE_PRECISION, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  ! i -> i-1: 1 x 8
  call MPI_Sendrecv(buffer, 2, MPI_INTEGER, left, 1, in, 2, MPI_INTEGER, right, 1, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call need(in(1) == right)
  ! i -> i^2 (n = 4): 1 x 4
  call MPI_Comm_split(MPI_COMM_WORLD, mod(me, 2), me, half, ierr)
  call MPI_Comm_rank(half, k, ierr)
  call MPI_Sendrecv(buffer, 1, MPI_INTEGER, 1 - k, 1, in, 1, MPI_INTEGER, 1 - k, 1, half, &
      MPI_STATUS_IGNORE, ierr)
  call MPI_Comm_free(half, ierr)
  ! 2 -> 3: 3 x 20 and 2 x 4
  if (me == 2) then
    call MPI_Send_init(buffer, 5, MPI_INTEGER, 3, 2, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Send_init(buffer, 1, MPI_INTEGER, 3, 3, MPI_COMM_WORLD, requests(2), ierr)
  else if (me == 3) then
    call MPI_Recv_init(in, 5, MPI_INTEGER, 2, 2, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Recv_init(in(8), 1, MPI_INTEGER, 2, 3, MPI_COMM_WORLD, requests(2), ierr)
  end if
  if (me >= 2) then
    do k = 1, 2
      call MPI_Startall(2, requests, ierr)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    end do
    call MPI_Start(requests(1), ierr)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
    call MPI_Request_free(requests(1), ierr)
    call MPI_Request_free(requests(2), ierr)
  end if
  ! From 1 to all, 24
  x = me
  call MPI_Bcast(x, 3, MPI_DOUBLE_PRECISION, 1, MPI_COMM_WORLD, ierr)
  call need(x(1) == 1)
  ! Allreduce, twice, 8
  x = me
  call MPI_Allreduce(x, y, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call need(y(1) == 6)
  y = me
  call MPI_Allreduce(MPI_IN_PLACE, y, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call need(y(1) == 6)
  ! i -> j: 1 x 8. What stands in the arguments for sending does not count.
  counts = 2
  places = [0, 2, 4, 6]
  in = me
  call MPI_Alltoallv(MPI_IN_PLACE, [9, 9, 9, 9], places, MPI_DOUBLE_PRECISION, in, counts, places, &
      MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call need(in(7) == 3)
  ! 0 -> i: 1 x 4
  everywhere = 5
  call MPI_Scatter(everywhere, 1, MPI_INTEGER, in, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  call need(in(1) == 5)
  ! A barrier
  call MPI_Ibarrier(MPI_COMM_WORLD, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  ! i -> i+1: 1 x 8
  bytes = 32
  call MPI_Win_create(in, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  place = 0
  call MPI_Put(buffer, 2, MPI_INTEGER, right, place, 2, MPI_INTEGER, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  call need(in(1) == left)
  call MPI_Win_free(win, ierr)
  call MPI_Finalize(ierr)
  if (me == 0) print '(a)', 'all results right'

contains
  subroutine need(is_right)
    logical, intent(in) :: is_right
    if (is_right) return
    print *, 'rank', me, ': wrong result'
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine
end program

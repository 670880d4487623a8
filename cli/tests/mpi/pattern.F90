! Messages that are known beforehand, from Fortran: with "use mpi", or with "use mpi_f08" (-DF08).
! For 4 ranks; what is sent is written down beside it as FROM -> TO MESSAGES x BYTES.
#ifdef F08
#define MODULE mpi_f08
#define HANDLE(kind) type(kind)
#define STATUS type(MPI_Status)
#else
#define MODULE mpi
#define HANDLE(kind) integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#endif
program pattern
  use MODULE
  implicit none
  integer :: me, n, ierr, right, left, k, buffer(8), in(8), counts(4), places(4), everywhere(16)
  integer :: got(8), many(32), in_counts(4), in_places(4), zero(1)
  logical :: flag
  character(len=4096) :: path
  double precision :: x(4), y(4)
  integer(kind=MPI_ADDRESS_KIND) :: bytes, place, spots(2), in_spots(2)
  integer(kind=MPI_OFFSET_KIND) :: offset
  HANDLE(MPI_Comm) :: half, ring
  HANDLE(MPI_Datatype) :: types(4), in_types(4)
  HANDLE(MPI_File) :: file
  STATUS :: status
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
  call every_collective()
  call neighbours()
  ! i -> i+1: 1 x 8
  bytes = 32
  in = 0
  call MPI_Win_create(in, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  place = 0
  call MPI_Put(buffer, 2, MPI_INTEGER, right, place, 2, MPI_INTEGER, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  call need(in(1) == left)
  ! i+1 -> i: 1 x 12
  call MPI_Get(got, 3, MPI_INTEGER, right, place, 3, MPI_INTEGER, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  call need(got(1) == me)
  ! i -> 0, but for 0 itself: 1 x 4
  place = 3
  if (me /= 0) call MPI_Accumulate(buffer, 1, MPI_INTEGER, 0, place, 1, MPI_INTEGER, MPI_SUM, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  call need(me /= 0 .or. in(4) == 6)
  call MPI_Win_fence(MPI_MODE_NOSUCCEED, win, ierr)
  if (me == 3) then
    ! 3 -> 0 and back: 1 x 4
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win, ierr)
    call MPI_Fetch_and_op(buffer, got, MPI_INTEGER, 0, place, MPI_SUM, win, ierr)
    call MPI_Win_unlock(0, win, ierr)
    call need(got(1) == 6)
  else if (me == 2) then
    ! 2 -> 1 and back: 1 x 4
    place = 4
    zero = 0
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win, ierr)
    call MPI_Compare_and_swap(buffer, zero, got, MPI_INTEGER, 1, place, win, ierr)
    call MPI_Win_unlock(1, win, ierr)
    call need(got(1) == 0)
  else if (me == 1) then
    ! 1 -> 3 and back: 1 x 8; 1 -> 2: 1 x 12; 2 -> 1: 1 x 4
    place = 6
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 3, 0, win, ierr)
    call MPI_Get_accumulate(buffer, 2, MPI_INTEGER, got, 2, MPI_INTEGER, 3, place, 2, MPI_INTEGER, MPI_SUM, &
        win, ierr)
    call MPI_Win_unlock(3, win, ierr)
    call need(got(1) == 0)
    place = 4
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 2, 0, win, ierr)
    call MPI_Rput(buffer, 3, MPI_INTEGER, 2, place, 3, MPI_INTEGER, win, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    place = 0
    call MPI_Rget(got, 1, MPI_INTEGER, 2, place, 1, MPI_INTEGER, win, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_Win_unlock(2, win, ierr)
    call need(got(1) == 1)
  end if
  call MPI_Win_free(win, ierr)
  ! i -> i+1: 1 x 4, and a file, whose name has a length that is passed on
  call MPI_Irecv(in, 1, MPI_INTEGER, left, 9, MPI_COMM_WORLD, request, ierr)
  call MPI_Send(buffer, 1, MPI_INTEGER, right, 9, MPI_COMM_WORLD, ierr)
  flag = .false.
  do while (.not. flag)
    ! Without a status Open MPI's flag is always false.
    call MPI_Request_get_status(request, flag, status, ierr)
  end do
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call need(in(1) == left)
  call get_environment_variable('TMPDIR', path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path)//'/file', MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
      MPI_INFO_NULL, file, ierr)
  offset = 4 * me
  call MPI_File_write_at_all(file, offset, buffer, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call MPI_File_read_at_all(file, offset, in, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call need(in(1) == me)
  call MPI_File_close(file, ierr)
  call MPI_Finalize(ierr)
  if (me == 0) print '(a)', 'all results right'

contains
  ! Those that are not above.
  subroutine every_collective()
    many = [(100 * me + k, k = 0, 31)]
    counts = [1, 2, 3, 4]
    places = [0, 4, 8, 12]
    ! i -> 2: 1 x 8; i -> 1: 1 x 4 (i + 1); 2 -> i: 1 x 4 (i + 1)
    call MPI_Gather(many, 2, MPI_INTEGER, everywhere, 2, MPI_INTEGER, 2, MPI_COMM_WORLD, ierr)
    call need(me /= 2 .or. everywhere(7) == 300)
    call MPI_Gatherv(many, me + 1, MPI_INTEGER, everywhere, counts, places, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    call need(me /= 1 .or. everywhere(16) == 303)
    call MPI_Scatterv(many, counts, places, MPI_INTEGER, everywhere, me + 1, MPI_INTEGER, 2, MPI_COMM_WORLD, ierr)
    call need(everywhere(1) == 200 + 4 * me)
    ! A ring of 4, and one of 4 (i + 1)
    call MPI_Allgather(many, 1, MPI_INTEGER, everywhere, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    call need(everywhere(4) == 300)
    call MPI_Allgatherv(many, me + 1, MPI_INTEGER, everywhere, counts, places, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    call need(everywhere(16) == 303)
    ! The tree to 3: 16
    x = me
    call MPI_Reduce(x, y, 2, MPI_DOUBLE_PRECISION, MPI_SUM, 3, MPI_COMM_WORLD, ierr)
    call need(me /= 3 .or. y(2) == 6)
    ! i -> j: 1 x 4 (j + 1); 1 x 4; 1 x 12; 1 x 4 (j + 1)
    call MPI_Reduce_scatter(many, everywhere, counts, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call need(everywhere(1) == 300 + me * (me + 1) / 2)
    call MPI_Reduce_scatter_block(many, everywhere, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call need(everywhere(1) == 300 + me)
    call MPI_Alltoall(many, 3, MPI_INTEGER, everywhere, 3, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    call need(everywhere(10) == 300 + 3 * me)
    types = MPI_INTEGER
    in_counts = me + 1
    places = [0, 16, 32, 48]
    call MPI_Alltoallw(many, counts, places, types, everywhere, in_counts, places, types, MPI_COMM_WORLD, ierr)
    call need(everywhere(13) == 300 + 4 * me)
    ! Scans of 4 and 8
    call MPI_Scan(many, everywhere, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call need(everywhere(1) == 100 * me)
    call MPI_Exscan(many, everywhere, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call need(me == 0 .or. everywhere(2) == 100 * me - 99)
  end subroutine

  ! On rings.
  subroutine neighbours()
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [n], [.true.], .false., ring, ierr)
    many = [(100 * me + k, k = 0, 31)]
    ! i -> i-1 and i+1: 1 x 4; 1 x 8; 1 x 12
    call MPI_Neighbor_allgather(many, 1, MPI_INTEGER, everywhere, 1, MPI_INTEGER, ring, ierr)
    call need(everywhere(1) == 100 * left .and. everywhere(2) == 100 * right)
    in_counts(1:2) = 2
    in_places(1:2) = [0, 2]
    call MPI_Neighbor_allgatherv(many, 2, MPI_INTEGER, everywhere, in_counts, in_places, MPI_INTEGER, ring, ierr)
    call need(everywhere(2) == 100 * left + 1 .and. everywhere(4) == 100 * right + 1)
    call MPI_Neighbor_alltoall(many, 3, MPI_INTEGER, everywhere, 3, MPI_INTEGER, ring, ierr)
    call need(everywhere(1) == 100 * left + 3 .and. everywhere(4) == 100 * right)
    ! i -> i-1: 1 x 4, i -> i+1: 1 x 8
    counts(1:2) = [1, 2]
    places(1:2) = [0, 1]
    in_counts(1:2) = [2, 1]
    in_places(1:2) = [0, 2]
    call MPI_Neighbor_alltoallv(many, counts, places, MPI_INTEGER, everywhere, in_counts, in_places, MPI_INTEGER, &
        ring, ierr)
    call need(everywhere(1) == 100 * left + 1 .and. everywhere(3) == 100 * right)
    call MPI_Comm_free(ring, ierr)
    ! i -> i-1: 1 x 12, i -> i+1: 1 x 8. MPICH 4.0 takes graphs alone for this one in mpi_f08.
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, [left, right], MPI_UNWEIGHTED, 2, [left, right], &
        MPI_UNWEIGHTED, MPI_INFO_NULL, .false., ring, ierr)
    counts(1:2) = [3, 1]
    spots = [0, 16]
    types(1) = MPI_INTEGER
    types(2) = MPI_DOUBLE_PRECISION
    in_counts(1:2) = [1, 3]
    in_spots = [0, 8]
    in_types(1) = MPI_DOUBLE_PRECISION
    in_types(2) = MPI_INTEGER
    call MPI_Neighbor_alltoallw(many, counts, spots, types, everywhere, in_counts, in_spots, in_types, ring, ierr)
    call need(everywhere(1) == 100 * left + 4 .and. everywhere(3) == 100 * right)
    call MPI_Comm_free(ring, ierr)
  end subroutine

  subroutine need(is_right)
    logical, intent(in) :: is_right
    if (is_right) return
    print *, 'rank', me, ': wrong result'
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine
end program

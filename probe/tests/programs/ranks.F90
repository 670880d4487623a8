! Two ranks of MPI in Fortran for tests of the probe, as ranks.c, or three of which two wait for the first: with "use mpi", or with "use mpi_f08" (-DF08).
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
  if (n == 3) then
    call peers()
    call MPI_Finalize(ierr)
    stop
  end if
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
  ! Rank 0 computes, and then sends what the others wait for, from its rank in this communicator.
  subroutine held(what, comm, zero, remote)
    character(len=*), intent(in) :: what
    HANDLE(MPI_Comm), intent(in) :: comm
    integer, intent(in) :: zero
    logical, intent(in) :: remote
    integer :: to, size
    token = me
    if (remote) then
      call MPI_Comm_remote_size(comm, size, ierr)
    else
      call MPI_Comm_size(comm, size, ierr)
    end if
    if (me == 0) then
      call step(what)
      do to = 0, size - 1
        if (remote .or. to /= zero) call MPI_Send(token, 1, MPI_INTEGER, to, 5, comm, ierr)
      end do
    else
      call MPI_Recv(token, 1, MPI_INTEGER, zero, 5, comm, MPI_STATUS_IGNORE, ierr)
      if (token(1) /= 0) stop 8
    end if
  end subroutine

  subroutine peers()
    HANDLE(MPI_Comm) :: comm, old, part, many(70)
    integer :: i, colour
    call held('receive', MPI_COMM_WORLD, 0, .false.)
    if (me == 0) then
      call step('any')
      do i = 1, 2
        call MPI_Send(token, 1, MPI_INTEGER, i, 6, MPI_COMM_WORLD, ierr)
      end do
      call step('probe')
      do i = 1, 2
        call MPI_Send(token, 1, MPI_INTEGER, i, 6, MPI_COMM_WORLD, ierr)
      end do
      call step('send')
      do i = 1, 2
        call MPI_Recv(token, 1, MPI_INTEGER, i, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      end do
      call step('sendrecv')
      do i = 1, 2
        call MPI_Sendrecv(token, 1, MPI_INTEGER, i, 8, theirs, 1, MPI_INTEGER, i, 8, MPI_COMM_WORLD, &
          MPI_STATUS_IGNORE, ierr)
      end do
      call step('replace')
      do i = 1, 2
        call MPI_Sendrecv_replace(token, 1, MPI_INTEGER, i, 9, i, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      end do
      call step('wait')
      do i = 1, 2
        call MPI_Send(token, 1, MPI_INTEGER, i, 10, MPI_COMM_WORLD, ierr)
      end do
    else
      call MPI_Recv(token, 1, MPI_INTEGER, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Probe(0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Recv(token, 1, MPI_INTEGER, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Ssend(token, 1, MPI_INTEGER, 0, 7, MPI_COMM_WORLD, ierr)
      call MPI_Sendrecv(token, 1, MPI_INTEGER, 0, 8, theirs, 1, MPI_INTEGER, 0, 8, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
      call MPI_Sendrecv_replace(token, 1, MPI_INTEGER, 0, 9, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call MPI_Irecv(token, 1, MPI_INTEGER, 0, 10, MPI_COMM_WORLD, request, ierr)
      call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    end if
    if (me == 0) call step('broadcast')
    call MPI_Bcast(token, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    if (me == 0) call step('sum')
    call MPI_Allreduce(token, theirs, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
    call held('duplicate', comm, 0, .false.)
    if (me == 0) call step('same')
    call MPI_Barrier(comm, ierr)
    call MPI_Comm_free(comm, ierr)
    call MPI_Cart_create(MPI_COMM_WORLD, 1, (/ 3 /), (/ .false. /), .false., comm, ierr)
    call held('cart', comm, 0, .false.)
    call MPI_Comm_free(comm, ierr)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -me, old, ierr)
    call held('turned', old, 2, .false.)
    if (me == 0) call step('other')
    call MPI_Barrier(old, ierr)
    colour = merge(1, 0, me == 0)
    call MPI_Comm_split(MPI_COMM_WORLD, colour, me, part, ierr)
    call MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, merge(1, 0, me == 0), 11, comm, ierr)
    call held('inter', comm, 0, .true.)
    call MPI_Comm_free(comm, ierr)
    call MPI_Comm_idup(MPI_COMM_WORLD, comm, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call held('unseen', comm, 0, .false.)
    call MPI_Comm_free(comm, ierr)
    do i = 1, 70
      call MPI_Comm_dup(part, many(i), ierr)
    end do
    call held('old', old, 2, .false.)
    do i = 1, 70
      call MPI_Comm_free(many(i), ierr)
    end do
    call MPI_Comm_split(MPI_COMM_WORLD, merge(MPI_UNDEFINED, 0, me == 0), 0, comm, ierr)
    if (me == 0) call step('all')
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine

  ! Says where it is, and goes on when it is told to.
  subroutine step(name)
    character(len=*), intent(in) :: name
    character(kind=c_char) :: byte(1)
    print '(a)', name
    flush (6)
    if (c_read(0_c_int, byte, 1_c_size_t) /= 1) stop 9
  end subroutine
end program

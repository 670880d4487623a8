! Parallel loops whose iterations follow the machine: loops.h, beside this file, for Fortran. It says more about each function; here
! is what differs. It is compiled with the program, before it and with the same options, as compilers do not share modules; what it
! needs is in Fortran 2018, or 2008 with TS 29113 (gfortran -std=f2008ts):
!
!     gfortran -fopenmp loops.f90 program.f90 -levenly_loops
!
!     team = evenly_team_new(threads)
!     sweep = evenly_region_new(team, 'sweep', EVENLY_FIXED, EVENLY_STENCIL)
!     call evenly_region_uses(sweep, EVENLY_WRITES, grid, storage_size(grid) / 8, rows)
!
!     ! by each thread of the team
!     loop = evenly_begin(sweep, omp_get_thread_num(), 2, columns - 1)
!     do while (evenly_next_task(loop, first, last))
!       do i = first, last
!         ...
!
! Bounds are those of a do loop: its last iteration may be `upper`, and a task's is `last`. In C they are the first that is none.
! Threads are numbered from 0 on, as by omp_get_thread_num. What is 0 or 1 in C is a logical.
module evenly_loops
  use, intrinsic :: iso_c_binding
  implicit none
  private

  public :: evenly_team, evenly_region, evenly_loop
  public :: evenly_team_new, evenly_team_free, evenly_team_array, evenly_region_new, evenly_region_free
  public :: evenly_region_uses, evenly_region_policy, evenly_region_overtakes, &
    evenly_region_iterations
  public :: evenly_begin, evenly_next_task, evenly_reduce, evenly_abandon, evenly_failed, evenly_loops_on_error

  integer, parameter, public :: EVENLY_FIXED = 0, EVENLY_VARIABLE = 1
  integer, parameter, public :: EVENLY_INDEPENDENT = 0, EVENLY_STENCIL = 1, EVENLY_UNKNOWN = 2
  integer, parameter, public :: EVENLY_READS = 0, EVENLY_WRITES = 1
  integer, parameter, public :: EVENLY_SUM = 0, EVENLY_MIN = 1, EVENLY_MAX = 2

  ! They may be copied, as pointers; so nothing is freed but by evenly_team_free and evenly_region_free.
  type :: evenly_team
    private
    type(c_ptr) :: at = c_null_ptr
  end type

  type :: evenly_region
    private
    type(c_ptr) :: at = c_null_ptr
  end type

  ! One for each thread: private, in an OpenMP region.
  type :: evenly_loop
    private
    type(c_ptr) :: at = c_null_ptr
  end type

  ! evenly_begin(region, thread, lower, upper, stride): begins the loop `do i = lower, upper, stride`, or `do i = lower, upper`.
  ! All bounds are of one kind, 32 or 64 bits.
  interface evenly_begin
    module procedure begin_int32, begin_int64
  end interface

  ! evenly_next_task(loop, first, last): whether there is a further task, `do i = first, last, stride` with the stride of the loop.
  ! Of the kind with which the loop was begun.
  interface evenly_next_task
    module procedure next_task_int32, next_task_int64
  end interface

  ! evenly_reduce(loop, operation, given): evenly_reduce_double and evenly_reduce_int64, of the kind that is given. It is given by
  ! value: a variable whose address others have would be stored in each iteration.
  interface evenly_reduce
    module procedure reduce_float, reduce_double, reduce_int32, reduce_int64
  end interface

  abstract interface
    subroutine error_handler(message)
      character(*), intent(in) :: message
    end subroutine
  end interface

  procedure(error_handler), pointer :: told => null()

  interface
    type(c_ptr) function c_team_new(threads) bind(c, name='evenly_team_new')
      import
      integer(c_size_t), value :: threads
    end function

    subroutine c_team_free(team) bind(c, name='evenly_team_free')
      import
      type(c_ptr), value :: team
    end subroutine

    subroutine c_team_array(team, array, element_bytes, dimensions, sizes) bind(c, name='evenly_team_array')
      import
      type(c_ptr), value :: team
      type(*), intent(in) :: array(*)
      integer(c_size_t), value :: element_bytes, dimensions
      integer(c_size_t), intent(in) :: sizes(*)
    end subroutine

    type(c_ptr) function c_region_new(team, name, load, access) bind(c, name='evenly_region_new')
      import
      type(c_ptr), value :: team
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: load, access
    end function

    subroutine c_region_free(region) bind(c, name='evenly_region_free')
      import
      type(c_ptr), value :: region
    end subroutine

    subroutine c_region_uses(region, use, array, element_bytes, a, b) bind(c, name='evenly_region_uses')
      import
      type(c_ptr), value :: region
      integer(c_int), value :: use
      type(*), intent(in) :: array(*)
      integer(c_size_t), value :: element_bytes
      integer(c_int64_t), value :: a, b
    end subroutine

    subroutine c_region_policy(region, name) bind(c, name='evenly_region_policy')
      import
      type(c_ptr), value :: region
      character(kind=c_char), intent(in) :: name(*)
    end subroutine

    subroutine c_region_overtakes(region) bind(c, name='evenly_region_overtakes')
      import
      type(c_ptr), value :: region
    end subroutine

    integer(c_int64_t) function c_region_iterations(region, thread) bind(c, name='evenly_region_iterations')
      import
      type(c_ptr), value :: region
      integer(c_size_t), value :: thread
    end function

    type(c_ptr) function c_begin(region, thread, lb, ub, stride) bind(c, name='evenly_begin')
      import
      type(c_ptr), value :: region
      integer(c_size_t), value :: thread
      integer(c_int64_t), value :: lb, ub, stride
    end function

    integer(c_int) function c_next_task(loop, lb, ub, stride) bind(c, name='evenly_next_task')
      import
      type(c_ptr), value :: loop
      integer(c_int64_t), intent(out) :: lb, ub, stride
    end function

    real(c_double) function c_reduce_double(loop, operation, given) bind(c, name='evenly_reduce_double')
      import
      type(c_ptr), value :: loop
      integer(c_int), value :: operation
      real(c_double), value :: given
    end function

    integer(c_int64_t) function c_reduce_int64(loop, operation, given) bind(c, name='evenly_reduce_int64')
      import
      type(c_ptr), value :: loop
      integer(c_int), value :: operation
      integer(c_int64_t), value :: given
    end function

    subroutine c_abandon(loop) bind(c, name='evenly_abandon')
      import
      type(c_ptr), value :: loop
    end subroutine

    integer(c_int) function c_failed(region) bind(c, name='evenly_failed')
      import
      type(c_ptr), value :: region
    end function

    subroutine c_on_error(handler) bind(c, name='evenly_loops_on_error')
      import
      type(c_funptr), value :: handler
    end subroutine

    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  function evenly_team_new(threads) result(team)
    integer, intent(in) :: threads
    type(evenly_team) :: team

    team%at = c_team_new(int(threads, c_size_t))
  end function

  subroutine evenly_team_free(team)
    type(evenly_team), intent(inout) :: team

    call c_team_free(team%at)
    team%at = c_null_ptr
  end subroutine

  ! Its sizes are shape(array). The array is contiguous, as for evenly_region_uses.
  subroutine evenly_team_array(team, array, element_bytes, sizes)
    type(evenly_team), intent(in) :: team
    type(*), intent(in) :: array(*)
    integer, intent(in) :: element_bytes, sizes(:)

    call c_team_array(team%at, array, int(element_bytes, c_size_t), size(sizes, kind=c_size_t), int(sizes, c_size_t))
  end subroutine

  function evenly_region_new(team, name, load, access) result(region)
    type(evenly_team), intent(in) :: team
    character(*), intent(in) :: name
    integer, intent(in) :: load, access
    type(evenly_region) :: region

    region%at = c_region_new(team%at, trim(name) // c_null_char, int(load, c_int), int(access, c_int))
  end function

  subroutine evenly_region_free(region)
    type(evenly_region), intent(inout) :: region

    call c_region_free(region%at)
    region%at = c_null_ptr
  end subroutine

  ! It uses array(a * i + b) and what follows up to the next iteration, where elements are counted from 1 in the order in which they
  ! are in memory. Without b, iteration 1 begins where the array does: column i of array(a, :). The array is contiguous, as it would
  ! be copied otherwise, and the copy is not where the data are.
  subroutine evenly_region_uses(region, use, array, element_bytes, a, b)
    type(evenly_region), intent(in) :: region
    integer, intent(in) :: use
    type(*), intent(in) :: array(*)
    integer, intent(in) :: element_bytes, a
    integer, intent(in), optional :: b
    integer(c_int64_t) :: from_0

    from_0 = -int(a, c_int64_t)
    if (present(b)) from_0 = int(b, c_int64_t) - 1
    call c_region_uses(region%at, int(use, c_int), array, int(element_bytes, c_size_t), int(a, c_int64_t), from_0)
  end subroutine

  subroutine evenly_region_policy(region, name)
    type(evenly_region), intent(in) :: region
    character(*), intent(in) :: name

    call c_region_policy(region%at, trim(name) // c_null_char)
  end subroutine

  subroutine evenly_region_overtakes(region)
    type(evenly_region), intent(in) :: region

    call c_region_overtakes(region%at)
  end subroutine

  function evenly_region_iterations(region, thread) result(iterations)
    type(evenly_region), intent(in) :: region
    integer, intent(in) :: thread
    integer(c_int64_t) :: iterations

    iterations = c_region_iterations(region%at, int(thread, c_size_t))
  end function

  function begin_int64(region, thread, lower, upper, stride) result(loop)
    type(evenly_region), intent(in) :: region
    integer, intent(in) :: thread
    integer(c_int64_t), intent(in) :: lower, upper
    integer(c_int64_t), intent(in), optional :: stride
    type(evenly_loop) :: loop
    integer(c_int64_t) :: by

    by = 1
    if (present(stride)) by = stride
    ! It is a number, as the variable of a do loop has to reach what follows its last iteration.
    loop%at = c_begin(region%at, int(thread, c_size_t), lower, upper + sign(1_c_int64_t, by), by)
  end function

  function begin_int32(region, thread, lower, upper, stride) result(loop)
    type(evenly_region), intent(in) :: region
    integer, intent(in) :: thread
    integer(c_int32_t), intent(in) :: lower, upper
    integer(c_int32_t), intent(in), optional :: stride
    type(evenly_loop) :: loop
    integer(c_int64_t) :: by

    by = 1
    if (present(stride)) by = stride
    loop = begin_int64(region, thread, int(lower, c_int64_t), int(upper, c_int64_t), by)
  end function

  function next_task_int64(loop, first, last) result(more)
    type(evenly_loop), intent(in) :: loop
    integer(c_int64_t), intent(out) :: first, last
    logical :: more
    integer(c_int64_t) :: ub, stride

    more = c_next_task(loop%at, first, ub, stride) /= 0
    if (more) last = ub - sign(1_c_int64_t, stride)
  end function

  function next_task_int32(loop, first, last) result(more)
    type(evenly_loop), intent(in) :: loop
    integer(c_int32_t), intent(out) :: first, last
    logical :: more
    integer(c_int64_t) :: first_int64, last_int64

    more = next_task_int64(loop, first_int64, last_int64)
    if (more) then
      first = int(first_int64, c_int32_t)
      last = int(last_int64, c_int32_t)
    end if
  end function

  function reduce_double(loop, operation, given) result(reduced)
    type(evenly_loop), intent(in) :: loop
    integer, intent(in) :: operation
    real(c_double), value :: given
    real(c_double) :: reduced

    reduced = c_reduce_double(loop%at, int(operation, c_int), given)
  end function

  function reduce_float(loop, operation, given) result(reduced)
    type(evenly_loop), intent(in) :: loop
    integer, intent(in) :: operation
    real(c_float), value :: given
    real(c_float) :: reduced

    reduced = real(reduce_double(loop, operation, real(given, c_double)), c_float)
  end function

  function reduce_int64(loop, operation, given) result(reduced)
    type(evenly_loop), intent(in) :: loop
    integer, intent(in) :: operation
    integer(c_int64_t), value :: given
    integer(c_int64_t) :: reduced

    reduced = c_reduce_int64(loop%at, int(operation, c_int), given)
  end function

  function reduce_int32(loop, operation, given) result(reduced)
    type(evenly_loop), intent(in) :: loop
    integer, intent(in) :: operation
    integer(c_int32_t), value :: given
    integer(c_int32_t) :: reduced

    reduced = int(reduce_int64(loop, operation, int(given, c_int64_t)), c_int32_t)
  end function

  subroutine evenly_abandon(loop)
    type(evenly_loop), intent(in) :: loop

    call c_abandon(loop%at)
  end subroutine

  function evenly_failed(region) result(failed)
    type(evenly_region), intent(in) :: region
    logical :: failed

    failed = c_failed(region%at) /= 0
  end function

  ! Without a handler the message is printed, and the program aborted, as at the start. To be called while there is one thread.
  subroutine evenly_loops_on_error(handler)
    procedure(error_handler), optional :: handler

    if (present(handler)) then
      told => handler
      call c_on_error(c_funloc(tell))
    else
      call c_on_error(c_null_funptr)
    end if
  end subroutine

  ! Of no name for linkers, of which the program may have one.
  subroutine tell(message) bind(c, name='')
    type(c_ptr), value :: message
    character(kind=c_char), pointer :: letters(:)

    call c_f_pointer(message, letters, [c_strlen(message)])
    call told(transfer(letters, repeat(' ', size(letters))))
  end subroutine
end module

! Loops of OpenMP threads in Fortran, by so many threads and a policy; its answers are compared with those of plain do loops.
program jacobi
  use, intrinsic :: iso_c_binding, only: c_double, c_float, c_int32_t, c_int64_t
  use evenly_loops
  use omp_lib
  implicit none
  integer, parameter :: rows = 32, columns = 66, steps = 50
  real(c_double) :: grid(rows, columns, 0:1) = 0, expected(rows, columns, 0:1) = 0
  type(evenly_team) :: team
  type(evenly_region) :: sweep
  character(20) :: threads_given, policy
  integer :: threads, step, i
  integer(c_int64_t) :: iterations

  call get_command_argument(1, threads_given)
  call get_command_argument(2, policy)
  read (threads_given, *) threads
  team = evenly_team_new(threads)

  grid(1, :, :) = spread([(real(i, c_double), i = 1, columns)], 2, 2)
  expected = grid
  do step = 1, steps
    do i = 2, columns - 1
      call relax(expected, step, i)
    end do
  end do
  sweep = evenly_region_new(team, 'sweep', EVENLY_FIXED, EVENLY_STENCIL)
  call evenly_team_array(team, grid(:, :, 0), storage_size(grid) / 8, shape(grid(:, :, 0)))
  call evenly_team_array(team, grid(:, :, 1), storage_size(grid) / 8, shape(grid(:, :, 1)))
  call evenly_region_uses(sweep, EVENLY_READS, grid(:, :, 0), storage_size(grid) / 8, rows)
  call evenly_region_uses(sweep, EVENLY_WRITES, grid(:, :, 1), storage_size(grid) / 8, rows, 1 - rows)
  call evenly_region_policy(sweep, policy)
  !$omp parallel num_threads(threads)
  call sweeps(omp_get_thread_num())
  !$omp end parallel
  if (any(grid /= expected)) error stop 'the grid differs'
  iterations = 0
  do i = 0, threads - 1
    iterations = iterations + evenly_region_iterations(sweep, i)
  end do
  if (iterations /= steps * (columns - 2)) error stop 'not all iterations are counted'
  if (evenly_failed(sweep)) error stop 'the loop failed'
  call evenly_region_free(sweep)

  call same_values(1_c_int64_t, 100_c_int64_t, 1_c_int64_t)
  call same_values(3_c_int64_t, 20_c_int64_t, 4_c_int64_t)
  call same_values(3_c_int64_t, 19_c_int64_t, 4_c_int64_t)
  call same_values(100_c_int64_t, 1_c_int64_t, -1_c_int64_t)
  call same_values(20_c_int64_t, 3_c_int64_t, -4_c_int64_t)
  call same_values(7_c_int64_t, 7_c_int64_t, 1_c_int64_t)
  call same_values(8_c_int64_t, 7_c_int64_t, 1_c_int64_t)
  call evenly_team_free(team)
  print '(a)', 'the same'

contains

  subroutine relax(of, step, i)
    real(c_double), intent(inout) :: of(rows, columns, 0:1)
    integer, intent(in) :: step, i
    integer :: from, to

    to = mod(step, 2)
    from = 1 - to
    of(2:rows-1, i, to) = (of(2:rows-1, i-1, from) + of(2:rows-1, i+1, from) + of(1:rows-2, i, from) + of(3:rows, i, from)) / 4
  end subroutine

  subroutine sweeps(thread)
    integer, intent(in) :: thread
    type(evenly_loop) :: loop
    integer :: step, first, last, i, own
    real(c_double) :: sum_of_own

    do step = 1, steps
      own = 0
      sum_of_own = 0
      loop = evenly_begin(sweep, thread, 2, columns - 1)
      do while (evenly_next_task(loop, first, last))
        do i = first, last
          call relax(grid, step, i)
          own = own + 1
          sum_of_own = sum_of_own + i
        end do
      end do
      if (evenly_reduce(loop, EVENLY_SUM, own) /= columns - 2) error stop 'iterations are missing'
      if (evenly_reduce(loop, EVENLY_SUM, sum_of_own) /= sum([(i, i = 2, columns - 1)])) error stop 'the sum differs'
      if (evenly_reduce(loop, EVENLY_MAX, real(thread, c_float)) /= threads - 1) error stop 'the maximum differs'
      if (evenly_reduce(loop, EVENLY_MIN, int(thread, c_int64_t)) /= 0) error stop 'the minimum differs'
    end do
  end subroutine

  ! Would catch: an upper bound that is taken as C's.
  subroutine same_values(lower, upper, stride)
    integer(c_int64_t), intent(in) :: lower, upper, stride
    type(evenly_region) :: values
    type(evenly_loop) :: loop
    integer :: times(100), as_int32(100), plain(100)
    integer(c_int64_t) :: first, last, i
    integer(c_int32_t) :: first_int32, last_int32, j

    plain = 0
    do i = lower, upper, stride
      plain(i) = 1
    end do
    times = 0
    as_int32 = 0
    values = evenly_region_new(team, 'values', EVENLY_VARIABLE, EVENLY_INDEPENDENT)
    call evenly_region_policy(values, policy)
    !$omp parallel num_threads(threads) private(loop, first, last, i, first_int32, last_int32, j)
    loop = evenly_begin(values, omp_get_thread_num(), lower, upper, stride)
    do while (evenly_next_task(loop, first, last))
      do i = first, last, stride
        times(i) = times(i) + 1
      end do
    end do
    loop = evenly_begin(values, omp_get_thread_num(), int(lower), int(upper), int(stride))
    do while (evenly_next_task(loop, first_int32, last_int32))
      do j = first_int32, last_int32, int(stride)
        as_int32(j) = as_int32(j) + 1
      end do
    end do
    !$omp end parallel
    if (any(times /= plain) .or. any(as_int32 /= plain)) error stop 'values differ from those of a do loop'
    call evenly_region_free(values)
  end subroutine
end program

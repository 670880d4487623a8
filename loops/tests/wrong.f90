! What a program in Fortran can do wrong: with a handler it prints what it is told, and otherwise it is aborted.
module handlers
  implicit none

contains

  subroutine says(message)
    character(*), intent(in) :: message

    print '(a)', message
  end subroutine
end module

program wrong
  use evenly_loops
  use handlers
  use omp_lib
  implicit none
  type(evenly_team) :: team
  type(evenly_region) :: region, none
  type(evenly_loop) :: loop
  integer :: first, last
  real, target :: grid(3, 9) = 0

  team = evenly_team_new(1)
  if (command_argument_count() > 0) call evenly_loops_on_error(says)
  region = evenly_region_new(team, 'sweep', EVENLY_FIXED, EVENLY_INDEPENDENT)
  if (command_argument_count() > 0) then
    call evenly_region_uses(none, EVENLY_READS, [1.0], 4, 1)
    none = evenly_region_new(team, 'sweep', 9, EVENLY_INDEPENDENT)
    call evenly_region_policy(region, 'fast')
    none = evenly_region_new(evenly_team_new(0), 'sweep', EVENLY_FIXED, EVENLY_INDEPENDENT)
  end if
  if (command_argument_count() > 0) then
    loop = evenly_begin(region, 0, 1, 10)
    if (.not. evenly_next_task(loop, first, last)) print '(a)', 'there is no task'
    call evenly_abandon(loop)
    if (evenly_next_task(loop, first, last)) print '(a)', 'a task of a loop that was given up'
    if (evenly_failed(region)) print '(a)', 'it has failed'
    call evenly_region_free(region)
    call evenly_team_array(team, grid, 4, shape(grid))
    region = evenly_region_new(team, 'columns', EVENLY_FIXED, EVENLY_INDEPENDENT)
    call evenly_region_uses(region, EVENLY_READS, grid, 4, 3)
    loop = evenly_begin(region, 0, 1, 9)
    do while (evenly_next_task(loop, first, last))
    end do
    loop = evenly_begin(region, 0, 1, 10)
    if (evenly_next_task(loop, first, last)) print '(a)', 'a task of a loop that leaves its array'
    call evenly_region_free(region)
    call evenly_region_policy(region, 'static')
    call evenly_loops_on_error()
    region = evenly_region_new(team, 'last', EVENLY_FIXED, EVENLY_INDEPENDENT)
  end if
  loop = evenly_begin(region, 1, 1, 10)
end program

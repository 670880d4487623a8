/*
 * Calls of sched_yield: by threads that wait in the program's own code before they block, and by libomp.
 * A part of waiting.c.
 */
#ifndef EVENLY_WAITING_YIELD_H
#define EVENLY_WAITING_YIELD_H

/* libomp yields after each task, though there may be more. With more threads than CPUs that gives the CPU, and for a slice, to one
 * that looks for tasks in vain: so the thread goes on. Who finds no other task yields again at once. */
static inline bool goes_on_after_task(void)
{
	if (!tasks.ended)
		return false;
	tasks.ended = false;
	return GET(header->cooperate) != EVENLY_NEVER;
}

/* Who blocks in the end may yield before, as std::atomic::wait does, and have the CPU again when all is over. */
EXPORT int sched_yield(void)
{
	if (goes_on_after_task())
		return 0;
	int (*next)(void) = NEXT("sched_yield");
	struct evenly_note *team = NULL;
	if (with_others.counted & 1)
		team = yields_to_others();
	int result = next();
	if (team) {
		if (GET(team->phase) != with_others.phase || with_others.late)
			goes_on_with_others(team);
		with_others.yielded = ticks();
	}
	return result;
}

#endif

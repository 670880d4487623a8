/*
 * Threads that wait by sched_yield. Among threads of one program that is the best they can do. Beside another program each
 * call gives that one a whole slice of the kernel, and the thread forfeits its own: after some of these in short phases it sleeps
 * instead, for moments, keeps what it is due, and takes the CPU back when it wakes.
 */
#ifndef EVENLY_HANDOVER_YIELD_H
#define EVENLY_HANDOVER_YIELD_H

/* A call that takes longer has cost a slice: 1 to 2 ms. Reading the clock would cost a tenth of a call. */
static inline uint64_t slice_in_ticks(void)
{
#if defined(__aarch64__)
	uint64_t each_second;
	__asm__("mrs %0, cntfrq_el0" : "=r"(each_second));
	return each_second / 1000 * 3 / 2;
#else
	return UINT64_C(1) << 22;
#endif
}

/* Who goes on for longer than this until it loses the next slice loses less by that than by sleeping: who wakes up may have to wait
 * until the slice of who runs meanwhile is over. */
static inline uint64_t long_in_ticks(void)
{
	return slice_in_ticks() / 4 * 3;
}

static __thread struct {
	unsigned calls;
	bool keeps;     /* it keeps its slices, and so sleeps */
	uint64_t slept; /* when it slept last, CLOCK_MONOTONIC in ns */
	uint64_t began; /* when the wait in which that was began */
	struct waits waits; /* those before */
	struct keeping keeping;
	uint64_t lost; /* when it lost a slice last, or slept instead, ticks */
} yields __attribute__((tls_model("initial-exec")));

/* Whether it has slept instead. */
static bool has_kept(uint64_t now)
{
	yields.keeps = sleeps_instead(&yields.keeping, now) && !GET(stands_down);
	if (!yields.keeps)
		return false;
	int before = errno;
	restore_slack();
	if (now - yields.slept > LONGEST_TURN) {
		has_waited(&yields.waits, yields.slept - yields.began);
		yields.began = now;
	}
	count(&shared->yields.traps, 1);
	struct evenly_place *place = &shared->yields;
	yields.slept = sleep_part(place, &place->slept, &yields.waits, yields.began, now);
	yields.lost = ticks();
	errno = before;
	return true;
}

EXPORT int sched_yield(void)
{
	NEXT(sched_yield)
	yields.calls++;
	if (shared && yields.keeps && has_kept(clock_ns(CLOCK_MONOTONIC)))
		return 0;
	uint64_t before = ticks();
	int result = next();
	if (shared && ticks() - before > slice_in_ticks()) {
		uint64_t now = clock_ns(CLOCK_MONOTONIC);
		if (before - yields.lost < long_in_ticks())
			has_lost_slice(&yields.keeping, now);
		else
			has_lost_first_slice(&yields.keeping, now);
		yields.lost = ticks();
		yields.keeps = sleeps_instead(&yields.keeping, now);
	}
	return result;
}

#endif

/*
 * Threads that meet at barriers of the program's own, observed where they block: on conditions of POSIX threads, or on
 * futexes (std::barrier of C++, std::sync of Rust, pools of threads). A part of waiting.c.
 *
 * Nobody says that such a wait is one at a barrier, or for how many. But whoever wakes all that wait there, or wakes one
 * while all others wait, lets them begin a phase: it came last, or it gives them their work. All such waits of a process are
 * those of one team, so that a phase goes from any of them to the next.
 *
 * Known gaps: threads that see the end of their wait before they block or yield do not finish a phase, and are taken to go on
 * with it; two groups of threads in one process are one team; a wake of all at which nobody waits opens where others wait
 * elsewhere; conditions that processes share are taken for those of one.
 *
 * Invariant: as in waiting_phases.h, nothing of the program depends on what is here.
 */
#ifndef EVENLY_WAITING_OWN_H
#define EVENLY_WAITING_OWN_H

/* After so many wakes in vain all members are counted anew: one of them may compute for ever, or wait elsewhere. */
#define VAIN_WAKES 64
/* A thread that has met others elsewhere counts there, unless it was so long ago, ns. */
#define ELSEWHERE 1000000000

enum { UNCOUNTED = 0, COMPUTES = 1, IS_IN_WAIT = 2 };
/* What a thread in each of these states adds to `count`. */
static const uint64_t counts_for[] = { 0, UINT64_C(1) << 16, 1 };

static struct {
	_Atomic uint64_t team;     /* see team_at */
	/* How often counting has begun, times 2^32 (an odd number: it is under way); and the threads in each state since. */
	_Atomic uint64_t count __attribute__((aligned(64)));
	_Atomic uint32_t arrived;  /* waits that have begun since the last opening */
	_Atomic uint32_t opener;   /* the number of the line that has announced that */
	_Atomic uint32_t longest;  /* what members have said since that they expect, at most, ns */
	_Atomic uint32_t in_vain;
	_Atomic uint32_t helpers;  /* to be woken, as a set */
} own;

static __thread struct {
	uint32_t counted; /* the counting in which it has this state */
	uint8_t state;
	bool late;        /* to its wait it came when the next phase had begun */
	uint8_t unread;   /* phases since its CPU time was read where it had let others go on */
	uint8_t tried;    /* readings of it to learn what phases are worth */
	uint32_t began;   /* the phase of the team when its own began */
	uint32_t phase;   /* and when it came to its wait */
	uint32_t valued;  /* the phase of which it has said what it is worth */
	uint32_t object;  /* what it waits for */
	uint64_t yielded; /* when it yielded last, in ticks */
	uint64_t base;    /* what its note said before it came to its wait */
	uint32_t expected;
	uint32_t phases;  /* of its line, when it was last seen to meet others elsewhere */
	uint64_t met;     /* and when that was, ns */
} with_others __attribute__((tls_model("initial-exec")));

static inline uint32_t counting(void)
{
	return (uint32_t)(GET(own.count) >> 32);
}

/* Who was computing is not known any more. */
static void counts_anew(bool goes_on)
{
	uint64_t seen = GET(own.count), next = ((seen >> 32 | 1) + (goes_on ? 2 : 1)) << 32;
	if (!atomic_compare_exchange_strong(&own.count, &seen, next))
		return;
	SET(own.arrived, 0);
	SET(own.opener, 0);
	SET(own.in_vain, 0);
}

/* Whether members are counted: while phases are. */
static bool are_counted(const struct evenly_note *team)
{
	bool is_measured = GET(team->measured) != EVENLY_UNMEASURED;
	if (is_measured != (counting() & 1))
		counts_anew(is_measured);
	return is_measured;
}

/* Counts this thread in this state, and no longer in another. */
static void counts_as(uint8_t state)
{
	uint64_t seen = GET(own.count), next;
	do {
		next = seen + counts_for[state];
		if (with_others.counted == seen >> 32)
			next -= counts_for[with_others.state];
	} while (!atomic_compare_exchange_weak_explicit(&own.count, &seen, next, memory_order_relaxed, memory_order_relaxed));
	with_others.counted = (uint32_t)(next >> 32);
	with_others.state = state;
}

static bool is_counted_as(uint8_t state)
{
	return with_others.state == state && with_others.counted == counting();
}

static void is_no_member(void)
{
	if (with_others.state)
		counts_as(UNCOUNTED);
}

/* Whether a thread counts as one that meets others here. */
static bool meets_here(line_t *line, const struct evenly_note *team)
{
	uint32_t meets = GET(note_of(line)->meets), phases = GET(line->phases);
	if (LIKELY(meets == number_of_team(team)))
		return true;
	if (meets && (phases != with_others.phases || !with_others.met)) {
		with_others.phases = phases;
		with_others.met = GET(line->entered);
	}
	if (meets && (GET(has_ranks) || GET(line->entered) - with_others.met < ELSEWHERE)) {
		is_no_member();
		return false;
	}
	meets_in(line, team);
	return true;
}

/* What the phase is worth that ends, once. */
static void says_worth(struct evenly_note *team, uint32_t phase)
{
	if (with_others.valued != phase)
		adds_worth(team);
	with_others.valued = phase;
}

/* Where the phase of this thread begins after its wait, in `sites`. */
static uint32_t next_site(void)
{
	return site_of((const void *)(uintptr_t)with_others.object);
}

/* A member ends a phase that takes what was expected, as far as is known. Its CPU time is not read: the kernel ends a slice that
 * is over where it is asked for that, and whoever has the CPU next may need a lock that this thread holds. */
static void seems_to_finish(line_t *line, const struct evenly_note *team)
{
	if (GET(team->measured) < EVENLY_TIMED)
		return;
	struct evenly_note *note = note_of(line);
	uint32_t expected = computes.sites[next_site()].usual;
	SET(note->base, GET(note->base) + GET(note->expected));
	SET(note->expected, expected);
	if (expected > GET(own.longest))
		SET(own.longest, expected);
}

/* A member begins a phase, and has computed in the one before until now. Nothing is known of either where its CPU time may not be
 * read. */
static COLD void begins_next(const struct evenly_note *team, bool may_read)
{
	bool timed = may_read && GET(team->measured) >= EVENLY_TIMED;
	uint32_t phase = GET(team->phase), next = next_site();
	/* Else it has seen the end of a wait before it blocked. */
	bool is_one = may_read && computes.began && phase - with_others.began == 1;
	bool learns_worth = may_read && !computes.sites[next].learnt && with_others.tried < UINT8_MAX;
	with_others.tried += learns_worth;
	uint64_t t = timed || is_one || learns_worth ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
	if (is_one)
		learns(computes.site, t - computes.began);
	computes.site = next;
	computes.began = t;
	with_others.began = phase;
	line_t *line = timed ? mine() : NULL;
	if (!line)
		return;
	SET(note_of(line)->base, t);
	SET(note_of(line)->expected, computes.sites[next].usual);
}

/* A thread comes to a wait. It may go on with the same phase. */
static void comes_to_wait(line_t *line, struct evenly_note *team, uint32_t object)
{
	uint32_t phase = GET(team->phase);
	/* It yielded, and saw that its wait was over. */
	if (is_counted_as(IS_IN_WAIT) && phase != with_others.phase) {
		computes.began = 0;
		with_others.began = phase;
	}
	with_others.late = is_counted_as(COMPUTES) && phase != with_others.began;
	with_others.base = GET(note_of(line)->base);
	with_others.expected = GET(note_of(line)->expected);
	counts_as(IS_IN_WAIT);
	atomic_fetch_add_explicit(&own.arrived, 1, memory_order_relaxed);
	with_others.phase = phase;
	with_others.object = object;
	says_worth(team, phase);
	seems_to_finish(line, team);
	SET(note_of(line)->finished, phase - with_others.late);
}

/* It goes on. If no phase has begun meanwhile, with the one that it was in. */
static void goes_on_from_wait(struct evenly_note *team)
{
	counts_as(COMPUTES);
	if (with_others.late || GET(team->phase) != with_others.phase) {
		begins_next(team, true);
		return;
	}
	line_t *line = GET(team->measured) >= EVENLY_TIMED ? mine() : NULL;
	if (!line)
		return;
	SET(note_of(line)->finished, with_others.phase - 1);
	SET(note_of(line)->base, with_others.base);
	SET(note_of(line)->expected, with_others.expected);
}

/* A thread is about to wait for others, at something of this name; its team, if something is to be said of that. */
static struct evenly_note *waits_for_others(line_t *line, uint32_t object)
{
	struct evenly_note *team = line ? team_at(&own.team, EVENLY_OWN) : NULL;
	if (!team || !meets_here(line, team) || !are_counted(team))
		return NULL;
	comes_to_wait(line, team, object);
	return team;
}

/* No phase is as short, in ticks: some 10 us. */
#define NO_PHASE (UINT64_C(1) << 15)

/* A thread that waits in other ways here is about to yield; its team, if that may be a wait. */
static struct evenly_note *yields_to_others(void)
{
	line_t *line = mine();
	struct evenly_note *team = line && !here.outer && !here.by_runtime ? team_at(&own.team, EVENLY_OWN) : NULL;
	if (!team || with_others.counted != counting() || GET(team->measured) == EVENLY_UNMEASURED
		|| GET(note_of(line)->meets) != number_of_team(team))
		return NULL;
	if (with_others.state != IS_IN_WAIT || ticks() - with_others.yielded > NO_PHASE)
		comes_to_wait(line, team, with_others.object);
	return team;
}

/* A thread is about to wake one that waits at something of this name, or all; its team, if by that a phase begins. */
static struct evenly_note *wakes_others(uint32_t object, bool all)
{
	uint32_t count = (uint32_t)GET(own.count), waiting = count & 0xffff, computing = count >> 16;
	if (LIKELY(!waiting))
		return NULL;
	line_t *line = mine();
	if (!line || here.by_runtime || here.outer)
		return NULL;
	struct evenly_note *team = team_at(&own.team, EVENLY_OWN);
	if (!team || !are_counted(team))
		return NULL;
	if (!all && computing > is_counted_as(COMPUTES)) {
		if (atomic_fetch_add_explicit(&own.in_vain, 1, memory_order_relaxed) >= VAIN_WAKES)
			counts_anew(true);
		return NULL;
	}
	if (!meets_here(line, team))
		return NULL;
	/* One may be woken after the other. */
	uint32_t arrived = atomic_exchange_explicit(&own.arrived, 0, memory_order_relaxed);
	if (!arrived && GET(own.opener) == number_of(line))
		return NULL;
	SET(own.opener, number_of(line));
	SET(own.in_vain, 0);
	counts_as(COMPUTES);
	with_others.object = object;
	says_worth(team, GET(team->phase));
	seems_to_finish(line, team);
	SET(team->finished, object);
	uint32_t helpers = announces_opening(team, atomic_exchange_explicit(&own.longest, 0, memory_order_relaxed));
	atomic_fetch_or_explicit(&own.helpers, helpers, memory_order_relaxed);
	return team;
}

/* Helpers are woken after the others: they would take the CPU of who wakes these, and somebody else have it next. And by who
 * has it first from then on. */
static void wake_own_helpers(struct evenly_note *team)
{
	if (GET(own.helpers))
		wake_helpers(team, atomic_exchange_explicit(&own.helpers, 0, memory_order_relaxed));
}

/* It does not wait any longer. */
static void goes_on_with_others(struct evenly_note *team)
{
	if (!team)
		return;
	wake_own_helpers(team);
	goes_on_from_wait(team);
}

/* In one of so many. */
#define UNREAD 8

/* It has woken them. Where it may hold the lock for which they wait next its CPU time is read in some phases only. */
static void has_woken_others(struct evenly_note *team, bool locked)
{
	if (!team)
		return;
	wake_own_helpers(team);
	begins_next(team, !locked || with_others.unread++ % UNREAD == 0);
}

/* A thread waits at an object, by this call, and has entered a wrapper for it. */
#define WAITS_IN(entered, object, call)                                                 \
	({                                                                              \
		struct evenly_note *team_ = waits_for_others(entered, name_of(object)); \
		__typeof__(call) result_ = call;                                        \
		goes_on_with_others(team_);                                             \
		result_;                                                                \
	})

/* It is said meanwhile that it waits. */
#define WAITS_AT(object, call)                           \
	({                                               \
		WAITS(EVENLY_LOCK, name_of(object));     \
		WAITS_IN(entered, object, call);         \
	})

static inline void leave_unsaid(line_t **entered)
{
	if (has_waited(*entered))
		here.outer = NULL;
}

/* It is not said, as it does not spin: the kernel knows when it sleeps, and when it wants a CPU again. */
#define SLEEPS_AT(object, call)                                                  \
	({                                                                       \
		line_t *entered __attribute__((cleanup(leave_unsaid))) =         \
			begins_to_wait(__builtin_frame_address(0));              \
		WAITS_IN(entered, object, call);                                 \
	})

/* It wakes one that waits there, or all, by this call. `locked`: see has_woken_others. */
#define WAKES_AT(object, all, locked, call)                                        \
	({                                                                         \
		struct evenly_note *team_ = wakes_others(name_of(object), all);    \
		__typeof__(call) result_ = call;                                   \
		has_woken_others(team_, locked);                                   \
		result_;                                                           \
	})

/* ---------------------------------------------------------------- conditions */

EXPORT int AS(pthread_cond_wait)(pthread_cond_t *condition, pthread_mutex_t *mutex);
int AS(pthread_cond_wait)(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	int (*next)(pthread_cond_t *, pthread_mutex_t *) = known_condition(&cond_wait, "pthread_cond_wait");
	return WAITS_AT(condition, next(condition, mutex));
}

EXPORT int AS(pthread_cond_timedwait)(pthread_cond_t *condition, pthread_mutex_t *mutex,
	const struct timespec *until);
int AS(pthread_cond_timedwait)(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
	int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
		known_condition(&cond_timedwait, "pthread_cond_timedwait");
	return WAITS_AT(condition, next(condition, mutex, until));
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
	const struct timespec *until)
{
	int (*next)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
		NEXT("pthread_cond_clockwait");
	return WAITS_AT(condition, next(condition, mutex, clock, until));
}

EXPORT int AS(pthread_cond_signal)(pthread_cond_t *condition);
int AS(pthread_cond_signal)(pthread_cond_t *condition)
{
	int (*next)(pthread_cond_t *) = known_condition(&cond_signal, "pthread_cond_signal");
	return WAKES_AT(condition, false, true, next(condition));
}

EXPORT int AS(pthread_cond_broadcast)(pthread_cond_t *condition);
int AS(pthread_cond_broadcast)(pthread_cond_t *condition)
{
	int (*next)(pthread_cond_t *) = known_condition(&cond_broadcast, "pthread_cond_broadcast");
	return WAKES_AT(condition, true, true, next(condition));
}

/* ---------------------------------------------------------------- futexes */

static long pass_on(long number, const long of[6])
{
	return SYSCALL(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

/* A system call of the program for a futex. */
static COLD long asks_futex(const long of[6])
{
	const void *at = (const void *)of[0];
	line_t *line = mine();
	/* By a runtime of OpenMP. */
	if (line && GET(line->state) != EVENLY_COMPUTING)
		return pass_on(SYS_futex, of);
	switch (of[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
		return SLEEPS_AT(at, pass_on(SYS_futex, of));
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
	case FUTEX_WAKE_OP:
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE:
		return WAKES_AT(at, (uint32_t)of[2] > 1, false, pass_on(SYS_futex, of));
	}
	return pass_on(SYS_futex, of);
}

EXPORT long syscall(long number, ...)
{
	long of[6];
	TAKE_ARGUMENTS(number, of);
	return number == SYS_futex && header ? asks_futex(of) : pass_on(number, of);
}

#endif

/*
 * Cooperative waiting: barriers of teams of threads, in place of those of the runtime or ahead of them.
 * A part of waiting.c.
 *
 * A thread that waits keeps its CPU and spins while no other member of its team needs that CPU. Where one does, it gives
 * the CPU away: it sleeps on a futex. Runtimes know only how many threads there are, and spin or block all alike. This is
 * the spin-block of the Adaptive loops paper (section 2.5.3); the status word that the kernel keeps there is what the
 * members write, and where evenly has put each. The last to arrive wakes those who sleep, with one call, and with none
 * where all spin.
 *
 * Invariants: a barrier opens when all members have arrived, and never before. Once a team leaves its barriers to the
 * runtime (`left`), all members of the barrier that is not open yet go to the runtime's: it is set only by a member
 * that has not arrived, so that none can have passed. Memory of a team is not given back while a thread may be in it.
 * Who is a member is never read from the mapping, and a thread that has no line there is one, too: the others would
 * wait for it for ever.
 */
#ifndef EVENLY_WAITING_TEAM_H
#define EVENLY_WAITING_TEAM_H

#include <linux/futex.h>

/* Barriers of a program that are kept apart, by their addresses: phases that begin at one are alike. */
#define SITES 9

/* What a member of a team writes, on a cache line of its own. */
struct member {
	_Atomic uint32_t arrived; /* the barrier that it has reached last, by its number */
	_Atomic uint32_t cpu;     /* where it was when it arrived */
	_Atomic uint32_t line;    /* the number of its line; 0: none */
	uint32_t doublings;       /* of the time for which it spins although its CPU is needed */
	/* Where phases are measured. */
	uint64_t began;           /* CPU time of the thread when its last barrier had opened, ns; 0: not known */
	uint32_t site;            /* which barrier of the program that was */
	uint32_t usual[SITES];    /* ns of CPU time that phases took that began at each */
};
_Static_assert(sizeof(struct member) == 64, "a member is a cache line");

/* The barrier of a team. */
struct evenly_team {
	_Atomic uint64_t arrivals; /* the number of the last barrier that is open, times 2^32; members that wait at the next */
	char first[56];
	_Atomic uint32_t opened;   /* that number, set after; what sleeping members wait on */
	_Atomic uint32_t sleeping; /* members that sleep, or are about to */
	_Atomic uint32_t left;     /* 1: barriers are left to the runtime, until the region ends */
	_Atomic uint32_t line;     /* the number of the team's line; 0: none */
	_Atomic uint32_t numbers;  /* members that have a number */
	uint32_t room;             /* members at most */
	uint32_t unanswered;       /* openings since one woke a helper of evenly */
	line_t *of;                /* the team's line */
	char second[24];
	struct member members[];
};
_Static_assert(sizeof(struct evenly_team) == 128, "what all wait on and what all change are cache lines");

/* ns for which a thread spins whose CPU another needs: two round trips of a cache line, about, to begin with. Doubled
 * when the other turns out to have been elsewhere, so that sleeping was in vain (section 2.5.3), at most so often. */
#define PATIENCE 400
#define DOUBLINGS 7
/* ns after which it sleeps whoever needs its CPU. */
#define PATIENCE_ANYWHERE 1000000
/* ns after which a member that sleeps looks whether it still should, if it is not woken. */
#define SLEEP_NS 20000000
/* Turns of spinning between two looks at the clock and at the others. */
#define TURNS 16
/* Openings that wake nobody until evenly is taken to be gone. */
#define UNANSWERED 1000

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static size_t size_of_team(uint32_t room)
{
	return sizeof(struct evenly_team) + room * sizeof(struct member);
}

/* Memory for a team of as many members; NULL where there is none. */
static COLD struct evenly_team *new_team(uint32_t members)
{
	/* What is left of the page costs nothing. */
	uint32_t room = members < 62 ? 62 : members;
	struct evenly_team *team =
		mmap(NULL, size_of_team(room), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (team == MAP_FAILED)
		return NULL;
	team->room = room;
	return team;
}

/* Where evenly has put the thread of a line, plus 1; 0 where it may run anywhere. */
static inline uint32_t home(uint32_t line)
{
	return is_number(line) ? GET(notes[line - 1].home) : 0;
}

/* A member that has not reached the barrier and needs the CPU on which this one has spun for so long: it was put there,
 * or was there when it last arrived. After some time any: the kernel can take it to this CPU, should it lack one, and
 * where evenly was killed it may be elsewhere than it was put. NULL where there is none. */
static const struct member *who_needs(const struct evenly_team *team, uint32_t barrier, uint32_t cpu, uint64_t spun)
{
	uint32_t members = GET(team->numbers);
	const struct member *anywhere = NULL;
	for (uint32_t i = 0; i < members && i < team->room; i++) {
		const struct member *other = &team->members[i];
		/* Others have arrived, or take no part any more. */
		if (GET(other->arrived) != barrier - 1)
			continue;
		uint32_t put = home(GET(other->line));
		if ((put ? put - 1 : GET(other->cpu)) == cpu)
			return other;
		if (spun > PATIENCE_ANYWHERE)
			anywhere = other;
	}
	return anywhere;
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *within)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, within, NULL, 0);
}

/* Those that sleep look again. Sequentially consistent, as in `sleeps`: either this sees that one sleeps, or that one
 * sees that it need not. */
static void wake_members(struct evenly_team *team)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (GET(team->sleeping))
		futex(&team->opened, FUTEX_WAKE, INT32_MAX, NULL);
}

/* Whether the barrier is open. Later ones may be, too, where there are more threads than a barrier waits for. */
static inline bool is_open(const struct evenly_team *team, uint32_t barrier)
{
	return (int32_t)(atomic_load_explicit(&team->opened, memory_order_acquire) - barrier) >= 0;
}

static void sleeps(struct evenly_team *team, uint32_t barrier)
{
	const struct timespec within = { .tv_nsec = SLEEP_NS };
	atomic_fetch_add_explicit(&team->sleeping, 1, memory_order_seq_cst);
	uint32_t opened = atomic_load_explicit(&team->opened, memory_order_seq_cst);
	if (!GET(team->left) && (int32_t)(opened - barrier) < 0)
		futex(&team->opened, FUTEX_WAIT, opened, &within);
	atomic_fetch_sub_explicit(&team->sleeping, 1, memory_order_relaxed);
}

/* Whether the members of a team say what they compute. */
static inline bool is_measured(const struct evenly_team *team)
{
	uint32_t line = GET(team->line);
	return is_number(line) && GET(notes[line - 1].measured);
}

/* A member has finished a phase. The next one is expected to take what those took that began at the same barrier, the
 * last one as much as all before. */
static COLD void measure(const struct evenly_team *team, struct member *self, const void *at)
{
	uint32_t line = GET(self->line);
	uint64_t t = clock_ns(CLOCK_THREAD_CPUTIME_ID), took = t - self->began;
	if (self->began) {
		uint32_t computed = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX, *usual = &self->usual[self->site];
		*usual = *usual ? *usual / 2 + computed / 2 : computed;
	}
	self->site = (uint32_t)((uintptr_t)at >> 2) % SITES;
	if (!is_number(line))
		return;
	SET(notes[line - 1].base, t);
	SET(notes[line - 1].expected, self->usual[self->site]);
	SET(notes[line - 1].finished, GET(notes[GET(team->line) - 1].phase));
}

/* A member goes on, and so begins a phase, unless it has gone on already. */
static COLD void goes_on(struct member *self)
{
	uint32_t line = GET(self->line);
	self->began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (is_number(line))
		SET(notes[line - 1].base, self->began);
}

/* The barrier of a team that is measured has opened: a phase begins. Where again and again no helper is woken evenly is gone: those that
 * know themselves when they are needed wait now and then, too. */
static inline void announce(struct evenly_team *team)
{
	struct evenly_note *note = &notes[GET(team->line) - 1];
	SET(note->opened, clock_ns(CLOCK_MONOTONIC));
	atomic_fetch_add_explicit(&note->phase, 1, memory_order_release);
	uint32_t armed = GET(note->armed);
	if (armed && syscall(SYS_futex, &note->phase, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, armed) > 0) {
		team->unanswered = 0;
	} else if (++team->unanswered > UNANSWERED) {
		SET(note->armed, 0);
		SET(note->measured, 0);
		team->unanswered = 0;
	}
}

/* Waits until the barrier is open; false where it has been left to the runtime. */
static COLD bool waits(struct evenly_team *team, struct member *self, uint32_t barrier)
{
	uint64_t began = 0;
	for (unsigned turn = 1; !is_open(team, barrier); turn++) {
		/* Whoever left it to the runtime had passed all barriers before, so that the look at them comes last. */
		if (atomic_load_explicit(&team->left, memory_order_acquire))
			return is_open(team, barrier);
		relax();
		if (turn % TURNS)
			continue;
		/* The kernel's: the rate of the other is in the mapping, where it can be anything. */
		uint64_t t = clock_ns(CLOCK_MONOTONIC);
		if (!began)
			began = t;
		uint32_t cpu = (uint32_t)sched_getcpu();
		const struct member *other = who_needs(team, barrier, cpu, t - began);
		if (!other || t - began < (uint64_t)PATIENCE << self->doublings)
			continue;
		sleeps(team, barrier);
		bool in_vain = GET(other->cpu) != cpu;
		if (!in_vain)
			self->doublings = 0;
		else if (self->doublings < DOUBLINGS)
			self->doublings++;
	}
	return true;
}

enum met {
	NOT_MET = 0,  /* the runtime's barrier is to be used */
	MET = 1,
	MET_LAST = 2, /* and this thread was the last */
};

/* A barrier of a team; it opens for so many members. `at` is where in the program it is. */
static enum met meets(struct place place, const void *at)
{
	struct evenly_team *team = place.team;
	uint32_t number = place.number, members = place.members;
	if (!team || number >= team->room || atomic_load_explicit(&team->left, memory_order_acquire))
		return NOT_MET;
	int before = errno;
	struct member *self = &team->members[number];
	SET(self->cpu, (uint32_t)sched_getcpu());
	bool measured = is_measured(team);
	if (measured)
		measure(team, self, at);
	/* So many wait at the next barrier; those beyond, of whom there are none in a region, at the ones after it. */
	uint64_t arrivals = atomic_fetch_add_explicit(&team->arrivals, 1, memory_order_acq_rel);
	uint32_t waiting = (uint32_t)arrivals;
	uint32_t barrier = (uint32_t)(arrivals >> 32) + 1 + waiting / members;
	SET(self->arrived, barrier);
	enum met met = MET_LAST;
	if (waiting % members + 1 < members) {
		met = waits(team, self, barrier) ? MET : NOT_MET;
	} else {
		while (!is_open(team, barrier - 1))
			relax();
		atomic_fetch_add_explicit(&team->arrivals, (UINT64_C(1) << 32) - members, memory_order_acq_rel);
		atomic_store_explicit(&team->opened, barrier, memory_order_release);
		/* The helpers first: a member that is woken on this CPU may run at once, and the announcement wait until it has
		 * done its part. */
		if (measured)
			announce(team);
		wake_members(team);
	}
	if (measured)
		goes_on(self);
	else
		self->began = 0;
	errno = before;
	return met;
}

/* Leaves the barriers of a team to the runtime, until its region ends. Called by a member that has not arrived. */
static void leave_to_runtime(struct evenly_team *team)
{
	if (!team || GET(team->left))
		return;
	int before = errno;
	atomic_store_explicit(&team->left, 1, memory_order_release);
	wake_members(team);
	errno = before;
}

/* A team is to be used for another region, in which nobody is yet. */
static void renew(struct evenly_team *team)
{
	if (!GET(team->left))
		return;
	/* Those who had arrived at the barrier that was left are not at the next one. */
	uint32_t barrier = GET(team->opened) + 1;
	SET(team->arrivals, (uint64_t)barrier << 32);
	SET(team->opened, barrier);
	SET(team->left, 0);
}

#endif

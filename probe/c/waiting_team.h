/*
 * Cooperative waiting: barriers of teams of libgomp, in place of those of the runtime.
 * A part of waiting.c.
 *
 * A thread that waits keeps its CPU and spins while no other member of its team needs that CPU. Where one does, it gives
 * the CPU away: it sleeps on a futex. Runtimes know only how many threads there are, and spin or block all alike. This is
 * the spin-block of the Adaptive loops paper (section 2.5.3); the status word that the kernel keeps there is what the
 * members write, and where evenly has put each. The last to arrive wakes those who sleep, with one call, and with none
 * where all spin.
 *
 * Invariants: a thread spins for a bounded time, and a real-time one not at all. A barrier opens when all members have
 * arrived, and never before. Once a team leaves its barriers to the runtime (LEFT), all members of the barrier that is
 * not open yet go to the runtime's: it is set only by a member that has not arrived, so that none can have passed. What
 * a member waits for stands in one word, on which it sleeps: nothing that happens before it sleeps is missed. Memory of
 * a team is not given back while a thread may be in it. Who is a member is never read from the mapping, and a thread
 * that has no line there is one, too: the others would wait for it for ever.
 *
 * tests/programs/team_model.c runs this file in every order of its steps, and team_threads.c under ThreadSanitizer.
 */
#ifndef EVENLY_WAITING_TEAM_H
#define EVENLY_WAITING_TEAM_H

/* What a member of a team writes, on a cache line of its own. */
struct member {
	_Atomic uint32_t arrived; /* the barrier that it has reached last, by its number */
	_Atomic uint32_t cpu;     /* where it was when it arrived */
	_Atomic uint32_t line;    /* the number of its line; 0: none */
	uint32_t doublings;       /* of the time for which it spins although its CPU is needed */
	char rest[48];
};
_Static_assert(sizeof(struct member) == 64, "a member is a cache line");

/* The barrier of a team. */
struct evenly_team {
	_Atomic uint64_t arrivals; /* the number of the last barrier that is open, times 2^32; members that wait at the next */
	char first[56];
	_Atomic uint32_t opened;   /* that number twice, set after, and LEFT; what sleeping members wait on */
	_Atomic uint32_t sleeping; /* members that sleep, or are about to */
	_Atomic uint32_t numbers;  /* members that have a number */
	uint32_t room;             /* members at most */
	char second[48];
	struct member members[];
};
_Static_assert(sizeof(struct evenly_team) == 128, "what all wait on and what all change are cache lines");

/* In `opened`: barriers are left to the runtime, until the region ends. */
#define LEFT 1u

/* ns for which a thread spins whose CPU another needs: two round trips of a cache line, about, to begin with. Doubled
 * when the other turns out to have been elsewhere, so that sleeping was in vain (section 2.5.3), at most so often. */
#define PATIENCE 400
#define DOUBLINGS 7
/* ns after which it sleeps whoever needs its CPU. */
#define MOST_PATIENCE 1000000
/* ns after which a member that sleeps looks whether it still should, if it is not woken. */
#define SLEEP_NS 20000000
/* Turns of spinning between two looks at the clock and at the others. A model of this has fewer. */
#ifndef TURNS
#define TURNS 16
#endif

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

/* A member that has not reached the barrier and needs the CPU on which this one spins: it was put there, or was there when
 * it last arrived. NULL where there is none. */
static const struct member *who_needs(const struct evenly_team *team, uint32_t barrier, uint32_t cpu)
{
	uint32_t members = GET(team->numbers);
	for (uint32_t i = 0; i < members && i < team->room; i++) {
		const struct member *other = &team->members[i];
		/* Others have arrived, or take no part any more. */
		if (GET(other->arrived) != barrier - 1)
			continue;
		uint32_t put = home(GET(other->line));
		if ((put ? put - 1 : GET(other->cpu)) == cpu)
			return other;
	}
	return NULL;
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *within)
{
	return SYSCALL(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, within, NULL, 0);
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
static inline bool is_open(uint32_t opened, uint32_t barrier)
{
	return (int32_t)(opened - 2 * barrier) >= 0;
}

static void sleeps(struct evenly_team *team, uint32_t barrier)
{
	const struct timespec within = { .tv_nsec = SLEEP_NS };
	atomic_fetch_add_explicit(&team->sleeping, 1, memory_order_seq_cst);
	uint32_t opened = atomic_load_explicit(&team->opened, memory_order_seq_cst);
	if (!is_open(opened, barrier) && !(opened & LEFT))
		futex(&team->opened, FUTEX_WAIT, opened, &within);
	atomic_fetch_sub_explicit(&team->sleeping, 1, memory_order_relaxed);
}

/* A real-time thread keeps everybody off its CPU, and is not made to spin. */
static bool is_real_time(void)
{
	int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
	return policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE;
}

/* Waits until the barrier is open; false where it has been left to the runtime. */
static COLD bool waits(struct evenly_team *team, struct member *self, uint32_t barrier)
{
	uint64_t began = 0, patience = MOST_PATIENCE;
	for (unsigned turn = 1;; turn++) {
		uint32_t opened = atomic_load_explicit(&team->opened, memory_order_acquire);
		/* Whoever left it to the runtime had passed all barriers before. */
		if (is_open(opened, barrier))
			return true;
		if (opened & LEFT)
			return false;
		relax();
		if (turn % TURNS)
			continue;
		/* The kernel's: the rate of the other is in the mapping, where it can be anything. */
		uint64_t t = clock_ns(CLOCK_MONOTONIC);
		if (!began) {
			began = t;
			if (is_real_time()) {
				patience = 0;
				SET(doubts, true);
			}
		}
		uint32_t cpu = (uint32_t)sched_getcpu();
		const struct member *other = who_needs(team, barrier, cpu);
		/* Who needs it is a guess: where evenly was killed or a thread is new, it may be any. */
		if (t - began < patience && (!other || t - began < (uint64_t)PATIENCE << self->doublings))
			continue;
		sleeps(team, barrier);
		if (!other)
			continue;
		bool in_vain = GET(other->cpu) != cpu;
		if (!in_vain)
			self->doublings = 0;
		else if (self->doublings < DOUBLINGS)
			self->doublings++;
	}
}

/* Leaves the barriers of a team to the runtime, until its region ends. Called by a member that has not arrived. */
static void leave_to_runtime(struct evenly_team *team)
{
	if (!team || GET(team->opened) & LEFT)
		return;
	int before = errno;
	atomic_fetch_or_explicit(&team->opened, LEFT, memory_order_release);
	wake_members(team);
	errno = before;
}

/* A barrier of a team; it opens for so many members. False where the runtime's is to be used. */
static bool meets(struct place place)
{
	struct evenly_team *team = place.team;
	if (!team || atomic_load_explicit(&team->opened, memory_order_acquire) & LEFT)
		return false;
	/* Evenly has stopped to move it, or is gone. */
	if (place.watched && !cooperates(place.watched)) {
		leave_to_runtime(team);
		return false;
	}
	int before = errno;
	struct member *self = &team->members[place.number];
	SET(self->cpu, (uint32_t)sched_getcpu());
	uint64_t arrivals = atomic_fetch_add_explicit(&team->arrivals, 1, memory_order_acq_rel);
	uint32_t barrier = (uint32_t)(arrivals >> 32) + 1;
	SET(self->arrived, barrier);
	bool met = true;
	if ((uint32_t)arrivals + 1 < place.members) {
		met = waits(team, self, barrier);
	} else {
		atomic_store_explicit(&team->arrivals, (uint64_t)barrier << 32, memory_order_release);
		/* Without LEFT: all have arrived. */
		atomic_store_explicit(&team->opened, 2 * barrier, memory_order_release);
		wake_members(team);
	}
	errno = before;
	return met;
}

/* A team is to be used for another region, in which nobody is yet. */
static void renew(struct evenly_team *team)
{
	if (!(GET(team->opened) & LEFT))
		return;
	/* Those who had arrived at the barrier that was left are not at the next one. */
	uint32_t barrier = (uint32_t)(GET(team->arrivals) >> 32) + 1;
	SET(team->arrivals, (uint64_t)barrier << 32);
	SET(team->opened, 2 * barrier);
}

#endif

/*
 * Barriers of POSIX threads, observed. A part of waiting.c.
 *
 * The last to arrive is known by how many a barrier waits for. All barriers for as many threads are those of one team, so
 * that a phase goes from any of them to the next. Known gap: two teams of the same size are taken for one.
 *
 * Invariant: the C library's barrier alone decides who goes on. What is kept here may be lost: of two barriers with the same
 * place in the table the last one is observed.
 */
#ifndef EVENLY_WAITING_BARRIERS_H
#define EVENLY_WAITING_BARRIERS_H

#define BARRIERS 256
static struct observed {
	_Atomic(const void *) barrier; /* NULL: none */
	_Atomic uint32_t members;
	_Atomic uint64_t arrived;      /* since it was made */
} barriers[BARRIERS];

static struct observed *entry_of(const void *barrier)
{
	return &barriers[hash_of(barrier) >> 56];
}
_Static_assert(BARRIERS == 1 << 8, "the highest bits are the index");

/* A barrier that processes share is not observed: the counts are those of one process. */
static void observe_barrier(const pthread_barrier_t *barrier, const pthread_barrierattr_t *attributes, unsigned members)
{
	int shared = PTHREAD_PROCESS_PRIVATE;
	struct observed *entry = entry_of(barrier);
	bool own = !attributes || (!pthread_barrierattr_getpshared(attributes, &shared) && shared == PTHREAD_PROCESS_PRIVATE);
	if (!own || members < 2) {
		/* Another was here before it. */
		if (GET(entry->barrier) == barrier)
			SET(entry->barrier, NULL);
		return;
	}
	SET(entry->members, members);
	SET(entry->arrived, 0);
	atomic_store_explicit(&entry->barrier, barrier, memory_order_release);
}

EXPORT int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attributes, unsigned members)
{
	int (*next)(pthread_barrier_t *, const pthread_barrierattr_t *, unsigned) =
		NEXT("pthread_barrier_init");
	int result = next(barrier, attributes, members);
	if (header && result == 0)
		observe_barrier(barrier, attributes, members);
	return result;
}

/* The teams of all barriers for so many. */
#define TEAMS 16
static _Atomic uint64_t teams[TEAMS];

static struct evenly_note *team_for(uint32_t members)
{
	return team_at(&teams[members % TEAMS], EVENLY_TEAM);
}

/* A thread arrives at a barrier; its team, NULL where it is not observed. */
static struct evenly_note *arrives_at(const void *barrier, const void *caller)
{
	struct observed *entry = entry_of(barrier);
	if (atomic_load_explicit(&entry->barrier, memory_order_acquire) != barrier)
		return NULL;
	uint32_t members = GET(entry->members);
	uint64_t arrived = atomic_fetch_add_explicit(&entry->arrived, 1, memory_order_relaxed) + 1;
	line_t *line = mine();
	struct evenly_note *team = line && members ? team_for(members) : NULL;
	if (!team)
		return NULL;
	meets_in(line, team);
	if (GET(team->measured) != EVENLY_UNMEASURED)
		finishes(team, (const char *)caller + name_of(barrier));
	if (arrived % members == 0)
		opens(team, name_of(barrier));
	return team;
}

EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	int (*next)(pthread_barrier_t *) = NEXT("pthread_barrier_wait");
	WAITS(EVENLY_BARRIER, name_of(barrier));
	struct evenly_note *team = arrives_at(barrier, CALLER);
	int result = next(barrier);
	goes_on(team);
	return result;
}

#endif

/*
 * Barriers of POSIX threads. A part of waiting.c.
 *
 * Where threads wait cooperatively, a barrier that was made while this library was loaded is one of a team
 * (waiting_team.h), and the C library's is not used. Those that processes share, and those for which there is no room
 * here, are left to the C library.
 */
#ifndef EVENLY_WAITING_BARRIERS_H
#define EVENLY_WAITING_BARRIERS_H

/* Barriers of this process. A place and its memory stay when the barrier is destroyed, since threads may still be on
 * their way out of it, and are used for the next. */
#define BARRIERS 64
static struct {
	_Atomic(const void *) barrier;  /* NULL: none; the address of this table: being made */
	_Atomic uint32_t members;
	_Atomic(struct evenly_team *) team;
} barriers[BARRIERS];

/* Where a thread was last: it has the same number at a barrier from time to time. */
static __thread struct {
	uint32_t generation;
	const struct evenly_team *team;
	uint32_t number;
} at_barrier __attribute__((tls_model("initial-exec")));

/* The entry of a barrier; BARRIERS where it has none. Those before the first that was never used, as they are filled in
 * order. */
static unsigned entry_of(const void *barrier)
{
	for (unsigned i = 0; i < BARRIERS && GET(barriers[i].team); i++)
		if (atomic_load_explicit(&barriers[i].barrier, memory_order_acquire) == barrier)
			return i;
	return BARRIERS;
}

/* As barriers are made and destroyed; the barrier itself is in the hands of one thread then. */
static void remember_barrier(const void *barrier, unsigned members)
{
	for (unsigned i = 0; i < BARRIERS; i++) {
		const void *none = NULL;
		if (!atomic_compare_exchange_strong(&barriers[i].barrier, &none, barriers))
			continue;
		struct evenly_team *team = GET(barriers[i].team);
		if (!team || team->room < members)
			team = new_team(members);
		if (team) {
			SET(team->numbers, 0);
			SET(barriers[i].team, team);
			SET(barriers[i].members, members);
		}
		atomic_store_explicit(&barriers[i].barrier, team ? barrier : NULL, memory_order_release);
		return;
	}
}

static void forget_barrier(const void *barrier)
{
	unsigned i = entry_of(barrier);
	if (i < BARRIERS)
		atomic_store_explicit(&barriers[i].barrier, NULL, memory_order_release);
}

EXPORT int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attributes, unsigned members)
{
	int (*next)(pthread_barrier_t *, const pthread_barrierattr_t *, unsigned) =
		known(&barrier_init, "pthread_barrier_init", NULL);
	int shared = PTHREAD_PROCESS_PRIVATE;
	forget_barrier(barrier);
	int result = next(barrier, attributes, members);
	if (result == 0 && cooperates
		&& (!attributes || pthread_barrierattr_getpshared(attributes, &shared) == 0)
		&& shared == PTHREAD_PROCESS_PRIVATE)
		remember_barrier(barrier, members);
	return result;
}

EXPORT int pthread_barrier_destroy(pthread_barrier_t *barrier)
{
	int (*next)(pthread_barrier_t *) = known(&barrier_destroy, "pthread_barrier_destroy", NULL);
	forget_barrier(barrier);
	return next(barrier);
}

/* This thread's number at a barrier. One that comes after all numbers are given shares that of another: then
 * who needs which CPU is a guess. */
static uint32_t number_at(struct evenly_team *team)
{
	if (at_barrier.team == team && at_barrier.generation == *generation)
		return at_barrier.number;
	line_t *line = mine();
	uint16_t own = line ? number_of(line) : 0;
	uint32_t numbers = GET(team->numbers), i = 0;
	while (i < numbers && i < team->room && GET(team->members[i].line) != own)
		i++;
	if (i == numbers || i == team->room)
		i = atomic_fetch_add_explicit(&team->numbers, 1, memory_order_relaxed) % team->room;
	SET(team->members[i].line, own);
	at_barrier.generation = *generation;
	at_barrier.team = team;
	at_barrier.number = i;
	return i;
}

EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	int (*next)(pthread_barrier_t *) = known(&barrier_wait, "pthread_barrier_wait", NULL);
	WAITS(EVENLY_BARRIER, name_of(barrier));
	unsigned entry = entry_of(barrier);
	if (entry == BARRIERS)
		return next(barrier);
	struct evenly_team *team = GET(barriers[entry].team);
	struct place in = { team, number_at(team), GET(barriers[entry].members) };
	enum met met = meets(in, CALLER);
	return met == MET_LAST ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}

#endif

/*
 * The barriers of a team (waiting_team.h) under every order of steps of a few threads, up to a bound.
 *
 * A stateless model checker: threads are coroutines of one, which stop at each access to what decides (`arrivals`,
 * `opened`, `sleeping`; the rest is about when to sleep), and where one stops another may go on. All choices of a run are
 * kept; the next run takes the last one that has another. Bounded are preemptions, and stores that others see late.
 * Stores wait in a buffer of their thread: an ordinary one may be overtaken by any other, one that releases by none. They
 * are seen at the latest when the thread makes a step that orders them (a fence, a read-modify-write that releases, a system
 * call). Loads are not made late, so what is wrong for want of an acquire is not found here, but by ThreadSanitizer
 * (team_threads.c). Who sleeps is only woken: that it looks again after a while would hide what is missed.
 *
 * Found is: a member that goes on from a barrier before all have arrived, or without seeing what they wrote before; a
 * barrier that some members pass and others leave to the runtime; and whatever ends with members that sleep for ever.
 *
 * Usage: team_model MEMBERS BARRIERS PREEMPTIONS DELAYS [LEAVES_AT]
 * With LEAVES_AT member 0 leaves the barriers to the runtime before it comes to this one, counted from 0. The team is
 * then used for a second region, in which it does not.
 *
 * BROKEN is a number that takes away something on which the barriers rely, so that the checker has to find it:
 * 1 the fence before its opener looks who sleeps, 2 waking, 3 that a futex compares before it sleeps, 4 that a
 * read-modify-write comes after the stores before it, 5 that LEFT is in the word that the futex compares.
 */
#define _GNU_SOURCE
#include "team_alone.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#ifndef BROKEN
#define BROKEN 0
#endif

#define MOST_MEMBERS 4
#define MOST_BARRIERS 8
#define MOST_CHOICES 100000
#define MOST_LATE 8
#define STACK 65536

/* ---------------------------------------------------------------- choices */

static struct { int taken, of; } choices[MOST_CHOICES];
static int choice, known;

/* One of so many ways; the first one in a run that comes here for the first time. */
static int choose(int of)
{
	if (choice == MOST_CHOICES) {
		puts("a run has too many choices");
		exit(3);
	}
	if (choice == known) {
		choices[choice].taken = 0;
		choices[choice].of = of;
		known++;
	}
	return choices[choice++].taken;
}

/* Whether there is another run: all choices up to the last that has another way. */
static bool next_run(void)
{
	while (known > 0 && choices[known - 1].taken + 1 == choices[known - 1].of)
		known--;
	if (known == 0)
		return false;
	choices[known - 1].taken++;
	choice = 0;
	return true;
}

/* ---------------------------------------------------------------- threads */

/* A store that others do not see yet. */
struct late {
	void *at;
	size_t size;
	uint64_t value;
	bool releases;
};

static struct thread {
	ucontext_t start;
	jmp_buf at;
	char stack[STACK];
	bool started, ended;
	const char *top;       /* of its stack, where it has stopped */
	uint64_t time;
	const void *sleeps_on; /* a futex; NULL: awake */
	int runtime_barrier;   /* waits at that of the runtime; -1: does not */
	bool spins;            /* until memory changes */
	struct late late[MOST_LATE];
	int lates;
} threads[MOST_MEMBERS];
static jmp_buf scheduler;
static int members, barriers, leaves_at, region, running, preemptions, delays, most_preemptions, most_delays;
static long runs;

static void wrong(const char *what)
{
	printf("%s, in run %ld\n", what, runs);
	exit(1);
}

static void changed(void)
{
	for (int i = 0; i < members; i++)
		threads[i].spins = false;
}

static void write_through(struct thread *thread, int i)
{
	struct late *late = &thread->late[i];
	memcpy(late->at, &late->value, late->size);
	memmove(late, late + 1, (size_t)(--thread->lates - i) * sizeof *late);
	changed();
}

static void write_all(struct thread *thread)
{
	while (thread->lates)
		write_through(thread, 0);
}

/* A store is seen before others but not before those to the same place, and one that releases before none. */
static bool may_be_seen(const struct thread *thread, int i)
{
	for (int j = 0; j < i; j++)
		if (thread->late[i].releases || thread->late[j].at == thread->late[i].at)
			return false;
	return true;
}

static bool runs_on(const struct thread *thread)
{
	return !thread->ended && !thread->sleeps_on && thread->runtime_barrier < 0;
}

/* Goes on with one of the threads; returns where this one goes on. */
static void step(void)
{
	threads[running].top = __builtin_frame_address(0);
	if (!_setjmp(threads[running].at))
		_longjmp(scheduler, 1);
}

/* Goes on with this thread until it stops. */
static void resume(struct thread *thread)
{
	if (_setjmp(scheduler))
		return;
	if (thread->started)
		_longjmp(thread->at, 1);
	thread->started = true;
	setcontext(&thread->start);
}

/* ---------------------------------------------------------------- memory */

static uint64_t value_at(const void *at, size_t size)
{
	uint64_t value = 0;
	const struct thread *self = &threads[running];
	for (int i = self->lates - 1; i >= 0; i--)
		if (self->late[i].at == at)
			return self->late[i].value;
	memcpy(&value, at, size);
	return value;
}

/* Whether it decides who goes on; defined where the team is. */
static bool decides(const void *at);
/* Whether it may be seen late: what decides, and what members write before a barrier. */
static bool matters(const void *at);

static uint64_t load(const void *at, size_t size)
{
	if (decides(at))
		step();
	return value_at(at, size);
}

static void put(struct thread *self, struct late store)
{
	if (self->lates == MOST_LATE)
		write_through(self, 0);
	self->late[self->lates++] = store;
}

static void store(void *at, size_t size, uint64_t value, memory_order order)
{
	struct thread *self = &threads[running];
	if (!matters(at)) {
		memcpy(at, &value, size);
		return;
	}
	if (decides(at))
		step();
	put(self, (struct late){ at, size, value, order != memory_order_relaxed });
	bool late = delays < most_delays && choose(2);
	delays += late;
	if (late)
		return;
	/* What comes before it, where that has to. */
	while (!may_be_seen(self, self->lates - 1))
		write_through(self, 0);
	write_through(self, self->lates - 1);
}

/* A read-modify-write; this many are added, or these bits set. */
static uint64_t modify(void *at, size_t size, uint64_t more, uint64_t bits, memory_order order)
{
	step();
	struct thread *self = &threads[running];
	if (order != memory_order_relaxed && BROKEN != 4)
		write_all(self);
	uint64_t before = value_at(at, size), after = (before + more) | bits;
	for (int i = 0; i < self->lates; i++)
		if (self->late[i].at == at)
			write_through(self, i--);
	memcpy(at, &after, size);
	changed();
	return before;
}

static void fence(void)
{
	if (BROKEN != 1)
		write_all(&threads[running]);
}

static long system_call(long number, const void *word, int operation, uint32_t value, ...)
{
	(void)number;
	step();
	write_all(&threads[running]);
	if ((operation & FUTEX_CMD_MASK) == FUTEX_WAKE) {
		for (int i = 0; i < members && BROKEN != 2; i++)
			if (threads[i].sleeps_on == word)
				threads[i].sleeps_on = NULL;
	} else if (BROKEN == 3 || (*(const uint32_t *)word ^ value) <= (BROKEN == 5)) {
		threads[running].sleeps_on = word;
		step();
	}
	return 0;
}

/* A thread that spins looks at the clock. Much time has passed since it looked last, forwards or backwards: it is more than
 * any patience. Or none has, and then nothing new can come of another turn before memory has changed. */
static uint64_t some_time(void)
{
	bool others = false;
	for (int i = 0; i < members; i++)
		others |= i != running && runs_on(&threads[i]) && !threads[i].spins;
	if (!others || choose(2) == 0)
		return threads[running].time ^= UINT64_C(1) << 40;
	threads[running].spins = true;
	step();
	return threads[running].time;
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(at, order) ((void)(order), (typeof(0 + *(at)))load((const void *)(at), sizeof *(at)))
#define atomic_store_explicit(at, value, order) store((void *)(at), sizeof *(at), (uint64_t)(value), order)
#define atomic_fetch_add_explicit(at, more, order) modify((void *)(at), sizeof *(at), (uint64_t)(more), 0, order)
#define atomic_fetch_sub_explicit(at, less, order) modify((void *)(at), sizeof *(at), -(uint64_t)(less), 0, order)
#define atomic_fetch_or_explicit(at, bits, order) modify((void *)(at), sizeof *(at), 0, bits, order)
#define atomic_thread_fence(order) fence()
#define TURNS 1
#define __builtin_ia32_pause() (void)0
#define syscall system_call
#define sched_getcpu() 0
#define sched_getscheduler(pid) SCHED_OTHER
#define clock_ns(clock) some_time()
#include "waiting_team.h"

/* ---------------------------------------------------------------- what is checked */

static struct evenly_team *team;
/* What members write before a barrier; how many have come to it; and how many have passed it or left it to the runtime. */
static _Atomic uint32_t written[MOST_MEMBERS];
static int come[2 * MOST_BARRIERS], passed[2 * MOST_BARRIERS], left[2 * MOST_BARRIERS];

static bool decides(const void *at)
{
	return at == &team->arrivals || at == &team->opened || at == &team->sleeping;
}

static bool matters(const void *at)
{
	const char *byte = at;
	return decides(at) || (byte >= (const char *)written && byte < (const char *)(written + MOST_MEMBERS));
}

/* The runtime's barrier. */
static void runtime_barrier(int barrier)
{
	left[barrier]++;
	threads[running].runtime_barrier = barrier;
	if (left[barrier] == members)
		for (int i = 0; i < members; i++)
			threads[i].runtime_barrier = -1;
	else
		step();
}

static void member(int number)
{
	struct place place = { .team = team, .number = (uint32_t)number, .members = (uint32_t)members };
	if (region && number == 0) {
		renew(team);
		write_all(&threads[running]);
		for (int i = 0; i < members; i++)
			threads[i].runtime_barrier = -1;
	}
	for (int i = 0; i < barriers; i++) {
		int barrier = region * barriers + i;
		if (number == 0 && barrier == leaves_at)
			leave_to_runtime(team);
		SET(written[number], (uint32_t)barrier + 1);
		come[barrier]++;
		if (!meets(place)) {
			runtime_barrier(barrier);
			continue;
		}
		if (come[barrier] < members)
			wrong("a member has gone on before all have come");
		passed[barrier]++;
		for (int other = 0; other < members; other++)
			if (GET(written[other]) < (uint32_t)barrier + 1)
				wrong("a member does not see what another wrote before the barrier");
	}
	write_all(&threads[running]);
	threads[running].ended = true;
	step();
}

/* ---------------------------------------------------------------- states */

/* Those that have been gone on from, by a hash of all that decides what follows. */
static uint64_t *seen;
static size_t seen_size, seen_count;

static uint64_t mixed(uint64_t hash, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t word = 0;
		memcpy(&word, (const char *)bytes + i, size - i < sizeof word ? size - i : sizeof word);
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return hash;
}

static uint64_t state(void)
{
	int budget[] = { region, running, preemptions, delays };
	uint64_t hash = mixed(1, budget, sizeof budget);
	hash = mixed(hash, team, size_of_team((uint32_t)members));
	hash = mixed(hash, (const void *)written, sizeof written);
	hash = mixed(hash, come, sizeof come);
	hash = mixed(hash, passed, sizeof passed);
	hash = mixed(hash, left, sizeof left);
	for (int i = 0; i < members; i++) {
		const struct thread *t = &threads[i];
		int flags[] = { t->started, t->ended, t->spins, t->sleeps_on != NULL, t->runtime_barrier, t->lates };
		hash = mixed(hash, flags, sizeof flags);
		hash = mixed(hash, &t->time, sizeof t->time);
		for (int j = 0; j < t->lates; j++) {
			uint64_t late[] = { (uintptr_t)t->late[j].at, t->late[j].value, t->late[j].releases };
			hash = mixed(hash, late, sizeof late);
		}
		if (!t->ended) {
			hash = mixed(hash, &t->at, sizeof t->at);
			hash = mixed(hash, t->top, (size_t)(t->stack + STACK - t->top));
		}
	}
	return hash + !hash;
}

/* Whether this one has been seen; it has, from now on. */
static bool is_seen(uint64_t hash)
{
	if (2 * seen_count >= seen_size) {
		uint64_t *old = seen;
		size_t size = seen_size;
		seen_size = size ? 2 * size : 1 << 16;
		seen = calloc(seen_size, sizeof *seen);
		if (!seen)
			exit(3);
		seen_count = 0;
		for (size_t i = 0; i < size; i++)
			if (old[i])
				is_seen(old[i]);
		free(old);
	}
	size_t i = hash & (seen_size - 1);
	for (; seen[i]; i = (i + 1) & (seen_size - 1))
		if (seen[i] == hash)
			return true;
	seen[i] = hash;
	seen_count++;
	return false;
}

/* ---------------------------------------------------------------- runs */

/* All members of a region begin; those of a second one when member 0 has prepared it. */
static void begin(void)
{
	running = -1;
	for (int i = 0; i < members; i++) {
		struct thread *thread = &threads[i];
		thread->started = thread->ended = thread->spins = false;
		thread->sleeps_on = NULL;
		thread->runtime_barrier = region && i ? 0 : -1;
		thread->time = 1;
		thread->top = thread->stack + STACK;
		memset(&thread->at, 0, sizeof thread->at);
		thread->lates = 0;
		getcontext(&thread->start);
		thread->start.uc_stack.ss_sp = thread->stack;
		thread->start.uc_stack.ss_size = STACK;
		makecontext(&thread->start, (void (*)(void))member, 1, i);
	}
}

/* In place of a thread: a store was made visible; none can go on; all that follows is known. */
enum { STORE_SEEN = -1, NOBODY = -2, FOLLOWED = -3 };

/* The next thread to go on, or one of these. */
static int choose_thread(void)
{
	int ways[MOST_MEMBERS * (MOST_LATE + 1)], count = 0, visible = 0;
	bool all_spin = true;
	for (int i = 0; i < members; i++)
		all_spin &= !runs_on(&threads[i]) || threads[i].spins;
	/* One that spins goes on where nothing can change but by time. */
	bool goes_on = running >= 0 && runs_on(&threads[running]) && (!threads[running].spins || all_spin);
	if (goes_on)
		ways[count++] = running;
	for (int i = 0; i < members; i++) {
		if (i == running || !runs_on(&threads[i]) || (threads[i].spins && !all_spin))
			continue;
		if (!goes_on || preemptions < most_preemptions)
			ways[count++] = i;
	}
	for (int i = 0; i < members; i++)
		for (int j = 0; j < threads[i].lates; j++)
			if (may_be_seen(&threads[i], j))
				ways[count + visible++] = i << 8 | j;
	if (count + visible == 0)
		return NOBODY;
	if (choice == known && is_seen(state()))
		return FOLLOWED;
	int taken = choose(count + visible);
	if (taken >= count) {
		write_through(&threads[ways[taken] >> 8], ways[taken] & 255);
		return STORE_SEEN;
	}
	preemptions += goes_on && ways[taken] != running;
	return ways[taken];
}

/* False where the rest is that of an earlier run. */
static bool run_region(void)
{
	begin();
	for (int next; (next = choose_thread()) != NOBODY;) {
		if (next == FOLLOWED)
			return false;
		if (next == STORE_SEEN)
			continue;
		running = next;
		threads[next].spins = false;
		resume(&threads[next]);
	}
	for (int i = 0; i < members; i++)
		if (!threads[i].ended)
			wrong("a member waits for ever");
	return true;
}

static void run(void)
{
	memset(team, 0, size_of_team(team->room));
	team->room = MOST_MEMBERS;
	*(uint32_t *)&team->numbers = (uint32_t)members;
	memset(come, 0, sizeof come);
	memset(passed, 0, sizeof passed);
	memset(left, 0, sizeof left);
	memset((void *)written, 0, sizeof written);
	preemptions = delays = 0;
	for (region = 0; region <= (leaves_at >= 0); region++)
		if (!run_region())
			return;
	for (int i = 0; i < 2 * barriers; i++)
		if (passed[i] && (left[i] || i == leaves_at))
			wrong("a barrier was passed by some and left to the runtime by others");
	if (leaves_at >= 0 && passed[2 * barriers - 1] < members)
		wrong("barriers are left to the runtime in the second region, too");
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	members = atoi(argv[1]);
	barriers = atoi(argv[2]);
	most_preemptions = atoi(argv[3]);
	most_delays = atoi(argv[4]);
	leaves_at = argc > 5 ? atoi(argv[5]) : -1;
	team = new_team((uint32_t)members);
	if (!team || members > MOST_MEMBERS || barriers > MOST_BARRIERS)
		return 2;
	do {
		runs++;
		run();
	} while (next_run());
	printf("%ld runs, %zu states\n", runs, seen_count);
	return 0;
}

/*
 * Phases, as they are observed: when the barrier of a team opens, and what each member computes until then.
 * A part of waiting.c.
 *
 * Threads count themselves as they arrive at a barrier, and then go to the runtime's. The last to arrive announces that
 * the barrier opens. It does so before the runtime wakes anybody: a member that is woken on the same CPU may run at once,
 * and the announcement would wait until it has done its part. The beginning of a parallel region is announced in the same
 * way, and its end is not.
 *
 * Invariant: nothing of the program depends on what is here. Where members do not all come to the same barriers (some
 * leave a region that was cancelled, one meets others within a target), openings are missed or announced at another
 * moment, and no more; a new region begins with a new count. The count is in the mapping, so nobody gives memory
 * back while a thread is on its way out of a barrier.
 */
#ifndef EVENLY_WAITING_PHASES_H
#define EVENLY_WAITING_PHASES_H

#include <linux/futex.h>

/* Barriers of a program that a thread keeps apart, by where they are: phases that begin at one are alike. A power of two:
 * a region with a barrier in it takes three, and of 45 in 64 places one in ten programs has some that find none of their own. */
#define SITES 128
/* Places of a hash table that are looked at for an entry: where half of them are in use nearly every one finds its own. */
#define PROBES 16
/* Phases of a site that are measured to learn what it is worth. */
#define LEARNT 16

/* What a thread knows of the phases that it computes. */
static __thread struct {
	uint64_t began; /* its CPU time when the last barrier had opened, ns; 0: not known */
	uint32_t site;  /* which barrier of the program that was */
	/* ns of CPU time that phases took that began at each: lately, and what they are worth, which is what they took at
	 * first and does not change any more: so many like that are worth so much more. */
	struct { uint32_t at, usual, worth, learnt; } sites[SITES];
} computes __attribute__((tls_model("initial-exec")));

/* Of what is at this place: the highest bits are an index. Fibonacci hashing: places differ in bits that are low, and are
 * alike in alignment. Twice, as once leaves places that are 144 bytes apart beside each other. */
static inline uint64_t hash_of(const void *at)
{
	uint64_t once = (uintptr_t)at * UINT64_C(0x9e3779b97f4a7c15);
	return (once ^ once >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline struct evenly_note *note_of(const line_t *line)
{
	return &notes[line - lines];
}

/* The number of a team, by which threads say that they meet in it. */
static inline uint32_t number_of_team(const struct evenly_note *team)
{
	return (uint32_t)(team - notes) + 1;
}

/* Whether barriers of a team may be replaced now, if its region is plain: while evenly moves it within phases. */
static inline bool cooperates(const struct evenly_note *team)
{
	uint32_t allowed = GET(header->cooperate);
	return allowed == EVENLY_ALWAYS || (allowed == EVENLY_MOVED && GET(team->measured) >= EVENLY_TIMED);
}

/* This thread meets the members of a team. */
static inline void meets_in(line_t *line, const struct evenly_note *team)
{
	uint32_t number = number_of_team(team);
	if (GET(note_of(line)->meets) != number)
		SET(note_of(line)->meets, number);
}

/* The place in `sites` for where a phase begins: its own, or a new one, in the end that of another. */
static uint32_t site_of(const void *at)
{
	/* Never 0, which is nobody's. */
	uint32_t name = (uint32_t)(hash_of(at) >> 32) | 1, first = name >> 25, place = first;
	_Static_assert(SITES == 1 << 7, "the highest bits are the index");
	for (unsigned tries = 0; tries < PROBES; tries++) {
		uint32_t i = (first + tries) % SITES;
		if (computes.sites[i].at == name)
			return i;
		if (!computes.sites[i].at) {
			place = i;
			break;
		}
	}
	memset(&computes.sites[place], 0, sizeof computes.sites[place]);
	computes.sites[place].at = name;
	return place;
}

/* A thread has computed for so many ns in the phase that has ended, which began at this place in `sites`. */
static void learns(uint32_t i, uint64_t took)
{
	uint32_t computed = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX, usual = computes.sites[i].usual;
	computes.sites[i].usual = usual ? usual / 2 + computed / 2 : computed;
	if (computes.sites[i].learnt >= LEARNT)
		return;
	int64_t more = (int64_t)computed - computes.sites[i].worth;
	computes.sites[i].worth += (uint32_t)(more / (int64_t)++computes.sites[i].learnt);
}

/* The phase that a member has finished is worth what those were that began at the same place. */
static inline void adds_worth(struct evenly_note *team)
{
	uint32_t worth = computes.sites[computes.site].worth;
	if (worth)
		atomic_fetch_add_explicit(&team->home, worth / EVENLY_WORTH + 1, memory_order_relaxed);
}

/* A member has finished a phase, and the next one begins at this place. That is expected to take what those took that
 * began there, the last one as much as all before. */
static COLD void finishes(struct evenly_note *team, const void *at)
{
	bool timed = GET(team->measured) >= EVENLY_TIMED;
	uint64_t t = timed || computes.began ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
	if (computes.began)
		learns(computes.site, t - computes.began);
	computes.began = 0;
	adds_worth(team);
	computes.site = site_of(at);
	line_t *line = timed ? mine() : NULL;
	if (!line)
		return;
	struct evenly_note *note = note_of(line);
	SET(note->base, t);
	SET(note->expected, computes.sites[computes.site].usual);
	SET(note->finished, GET(team->phase));
}

/* A phase begins that is measured: also where phases are only counted, until it is known what they are worth. */
static COLD void begins_phase(const struct evenly_note *team)
{
	bool timed = GET(team->measured) >= EVENLY_TIMED;
	if (!timed && computes.sites[computes.site].learnt)
		return;
	computes.began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	line_t *line = timed ? mine() : NULL;
	if (line)
		SET(note_of(line)->base, computes.began);
}

/* This thread goes on from a barrier, or begins its part of a region, and so begins a phase. */
static inline void goes_on(const struct evenly_note *team)
{
	computes.began = 0;
	if (LIKELY(!team || GET(team->measured) == EVENLY_UNMEASURED))
		return;
	begins_phase(team);
}

/* A phase begins: says so, without a call of the kernel. Which helpers are to be woken, as a set: those that are armed, if a phase in which
 * no thread is expected to take longer than this, in ns, can be long enough for them to have something to do. Nothing is measured for
 * an evenly that is gone. */
static uint32_t announces_opening(struct evenly_note *team, uint32_t longest)
{
	uint64_t t = clock_ns(CLOCK_MONOTONIC);
	SET(team->opened, t);
	SET(team->meets, GET(team->meets) + atomic_exchange_explicit(&team->home, 0, memory_order_relaxed));
	atomic_fetch_add_explicit(&team->phase, 1, memory_order_release);
	uint32_t least = GET(team->expected), armed = !least || longest > least ? GET(team->armed) : 0;
	if (t / UINT64_C(1000000000) > GET(team->until)) {
		SET(team->armed, 0);
		SET(team->measured, EVENLY_UNMEASURED);
	}
	return armed;
}

static void wake_helpers(struct evenly_note *team, uint32_t which)
{
	int before = errno;
	if (which)
		SYSCALL(SYS_futex, &team->phase, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, which);
	errno = before;
}

static COLD void announce(struct evenly_note *team)
{
	line_t *line = GET(team->expected) ? mine() : NULL;
	wake_helpers(team, announces_opening(team, line ? GET(note_of(line)->expected) : 0));
}

/* The barrier of a team opens, for those whose lines have this `object`. From here on they do not wait for each other, but
 * for a CPU: `account` goes by that, so the time is kept whether phases are counted or not. */
static inline void opens(struct evenly_note *team, uint32_t object)
{
	SET(team->finished, object);
	if (LIKELY(GET(team->measured) == EVENLY_UNMEASURED))
		SET(team->opened, now());
	else
		announce(team);
	/* Who comes last waits for nobody, though it may lose its CPU to those that it wakes. */
	line_t *line = mine();
	if (line && GET(line->state) == EVENLY_BARRIER)
		change(line, EVENLY_COMPUTING, 0);
}

/* When a thread that waits since `entered` had no one left to wait for; 0 where that is not known. */
static inline uint64_t all_there(const line_t *line, uint64_t entered)
{
	uint32_t meets = GET(note_of(line)->meets);
	if (!is_number(meets) || GET(lines[meets - 1].object))
		return 0;
	const struct evenly_note *team = &notes[meets - 1];
	uint64_t ended = GET(team->base), opened = GET(team->opened);
	if (ended > entered + EVENLY_CLOCKS)
		return ended;
	return opened > entered + EVENLY_CLOCKS && GET(team->finished) == GET(line->object) ? opened : 0;
}

/* `arrivals` is the number of the barrier at which members have arrived last, times this, and how many of them. Numbers have 44
 * bits; those of ranks are of calls (waiting_ranks.h). */
#define ARRIVALS (UINT64_C(1) << 20)
/* A number that is so much higher is of long ago, as they begin again after the highest: no member is that far ahead. */
#define FAR (UINT64_C(1) << 22)

/* Whether this is the last of so many members that arrive at barrier number `barrier`. A member that was not counted, since
 * counting began or another was cancelled, is missed at one barrier and not at the next. */
static bool is_last_at(struct evenly_note *team, uint64_t barrier, uint32_t members)
{
	uint64_t seen = GET(team->arrivals), this = barrier * ARRIVALS, with_this = 0;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		int64_t ahead = (int64_t)(seen / ARRIVALS * ARRIVALS - this);
		if (ahead > 0 && (uint64_t)ahead < FAR * ARRIVALS)
			return false;
		with_this = ahead == 0 ? seen + 1 : this + 1;
		if (atomic_compare_exchange_weak_explicit(&team->arrivals, &seen, with_this, memory_order_relaxed,
			    memory_order_relaxed))
			return with_this % ARRIVALS == members;
	}
	return false;
}

/* A region begins, before the runtime wakes any of its members: that is an opening. Its barriers are counted anew; nobody
 * is in one, as all have left those of the region before. */
static inline void opens_region(struct evenly_note *team)
{
	SET(team->arrivals, 0);
	opens(team, 0);
}

/* A member comes to where all meet, which is at this place in the program; whether it is the last. */
static inline bool comes_last(struct place *place, const void *at)
{
	struct evenly_note *team = place->watched;
	if (!team)
		return false;
	if (GET(team->measured) != EVENLY_UNMEASURED)
		finishes(team, at);
	return is_last_at(team, ++place->arrived, place->members);
}

/* A member ends its part of a region, with this function. What comes then begins with the next region: what the thread
 * that begins it does before is no phase. */
static inline void ends_part(struct place *place, const void *function)
{
	/* A barrier by which a region ends, and that is called by a jump, is known by the function, too: what comes after it is
	 * next to nothing, and what comes after the region is the next one. */
	const void *end = (const char *)function + 1;
	/* So late that it counts for this thread, too. */
	if (comes_last(place, end))
		SET(place->watched->base, now() + EVENLY_CLOCKS + 1000);
}

/* A member comes to a barrier within its region, which is at this place in the program. */
static inline void arrives(struct place *place, const void *at)
{
	if (comes_last(place, at))
		opens(place->watched, 0);
}

#endif

/*
 * The ranks of MPI as a team, observed: they meet in calls that wait for all ranks, and in exchanges of messages.
 * A part of waiting.c.
 *
 * MPI has all ranks call functions that wait for all in the same order, so each counts its own calls, and the last to come
 * to a call is known from a count in the mapping. The ranks of a job find that by the name of the job, or by the process
 * that has started them.
 *
 * Where each rank exchanges messages with some others in each iteration, it makes the same calls as they do, too, and goes on when
 * theirs have come: ranks that are all neighbours meet there as at a barrier. Each counts its calls from the last one that waits
 * for all. An exchange has several, of which the first one counts: ranks compute next to nothing between these, and who shares a
 * CPU comes to the last one too late to announce it, when others compute again. Where ranks do not make the same calls hardly an
 * exchange is found to open, and they are left alone for most of the time.
 *
 * Known gaps: where ranks run on other hosts, too, or in another mapping, the count is never full, so that no opening is
 * announced; of two communicators with all ranks, calls may come in another order; a thread that also meets others in
 * OpenMP counts there. Of exchanges: ranks that are no neighbours may be some iterations apart, and then no opening is found; nor
 * where a rank computes next to nothing; a call for all right behind an exchange opens as well; calls that test, or wait for some
 * of several requests (MPI_Test, MPI_Waitsome), are as many as chance has it and do not count, nor do those of threads that have
 * not initialised MPI.
 *
 * Invariant: as in waiting_phases.h, nothing of the program depends on what is here.
 */
#ifndef EVENLY_WAITING_RANKS_H
#define EVENLY_WAITING_RANKS_H

static struct {
	struct evenly_note *team; /* NULL: not observed */
	uint32_t members;
	_Atomic uint32_t for_all; /* calls that wait for all to which this one has come */
	_Atomic uint64_t arrived; /* the same times CALLS_FOR_ALL, and the exchanges since */
} ranks;
#define CALLS_FOR_ALL (UINT64_C(1) << 20)

/* No move is worth a phase of less CPU time, ns. */
#define BRIEF 50000
/* Nor one of less than this part of the longest. */
#define BRIEF_PART 8
/* Exchanges are left alone after so many calls that led to no opening, and one that did makes up for so many of these. */
#define IN_VAIN 1024
#define WORTH_IT 128
/* Ranks that are left alone look all at the same time whether they still should be: in one of so many spans of 2^27 ns. The clock is
 * asked once in so many calls. */
#define SPANS 32
#define UNASKED 16

/* What this thread knows of the calls of its rank. */
static __thread struct {
	bool first;       /* this thread has initialised MPI */
	bool met;         /* its line says that it meets the others */
	bool observed;    /* it is in a call that counts */
	bool exchanges;   /* its last phase ended at an exchange */
	bool alone;       /* exchanges are left alone */
	uint8_t unasked;  /* so many yet, without a look at the clock */
	uint32_t phase;   /* of the team, when its own last phase ended */
	uint32_t in_vain;
	uint64_t went_on; /* its CPU time at the end of the last call, ns; 0: not known */
	uint64_t longest; /* what it computes between two, at most, about, ns */
	uint64_t before;  /* within a call that ends no phase: what it had computed of that, ns */
} calls __attribute__((tls_model("initial-exec")));

/* Another one for each job that runs at a time; never 0. */
static uint32_t name_of_job(void)
{
	const char *name = getenv("PMIX_NAMESPACE");
	if (!name)
		return (uint32_t)getppid();
	uint32_t hash = 2166136261; /* FNV-1a */
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619;
	return hash ? hash : 1;
}

/* This process is one of so many ranks. */
static COLD void joins_ranks(uint32_t members)
{
	uint32_t name = name_of_job();
	_Atomic uint64_t *slot = &header->jobs[name % EVENLY_JOBS];
	uint64_t seen = atomic_load_explicit(slot, memory_order_acquire);
	uint32_t number = (uint32_t)seen;
	if (seen >> 32 != name || !is_number(number) || GET(lines[number - 1].kind) != EVENLY_TEAM) {
		line_t *line = claim(EVENLY_TEAM);
		if (!line)
			return;
		number = number_of(line);
		if (!atomic_compare_exchange_strong(slot, &seen, (uint64_t)name << 32 | number)) {
			/* Another rank was first, or another job has the place. */
			give_back(line, pid);
			number = (uint32_t)seen;
			if (seen >> 32 != name || !is_number(number))
				return;
		}
	}
	ranks.members = members;
	SET(has_ranks, members > 1);
	ranks.team = members > 1 ? &notes[number - 1] : NULL;
}

/* This thread comes to a call of its rank. The team, if something is to be said of that. */
static struct evenly_note *comes_with_ranks(void)
{
	line_t *line = mine();
	struct evenly_note *team = ranks.team;
	uint32_t meets = line ? GET(note_of(line)->meets) : 0;
	if (!line || (meets && meets != number_of_team(team) && meets != (uint32_t)GET(own.team)))
		return NULL;
	meets_in(line, team);
	calls.met = calls.observed = true;
	calls.before = 0;
	return LIKELY(GET(team->measured) == EVENLY_UNMEASURED) ? NULL : team;
}

/* A phase ends, for this rank, at a call with this number. */
static void ends_phase(struct evenly_note *team, uint64_t number, const void *caller)
{
	uint32_t phase = GET(team->phase);
	/* The exchange before has opened. */
	if (calls.exchanges && phase != calls.phase) {
		calls.in_vain = calls.in_vain > WORTH_IT ? calls.in_vain - WORTH_IT : 0;
		calls.alone &= calls.in_vain > 0;
	}
	calls.phase = phase;
	finishes(team, caller);
	if (is_last_at(team, number, ranks.members))
		announce(team);
}

/* This rank comes to a call that waits for all, at this place in the program. */
static void comes_to_all(const char *caller)
{
	uint64_t calls_for_all = atomic_fetch_add_explicit(&ranks.for_all, 1, memory_order_relaxed) + UINT64_C(1);
	SET(ranks.arrived, calls_for_all * CALLS_FOR_ALL);
	struct evenly_note *team = comes_with_ranks();
	if (!team)
		return;
	/* A phase that goes on through exchanges is another one. */
	ends_phase(team, calls_for_all * CALLS_FOR_ALL, caller + calls.alone);
	calls.exchanges = false;
}

/* Whether what a thread has computed since the last call, by its CPU time now, is no phase. */
static bool is_brief(uint64_t t)
{
	if (!calls.went_on)
		return false;
	uint64_t took = t - calls.went_on, longest = calls.longest;
	if (took < BRIEF)
		return true;
	/* One that is much longer, as when a file is written, counts little. */
	uint64_t most = 2 * longest + BRIEF;
	calls.longest = took <= longest ? longest - longest / 64 : took < most ? took : most;
	return took < longest / BRIEF_PART;
}

/* Whether exchanges are left alone, now. */
static bool is_left_alone(void)
{
	if (!calls.alone)
		return false;
	if (!calls.unasked) {
		if ((now() >> 27) % SPANS == 0)
			return false;
		calls.unasked = UNASKED;
	}
	calls.unasked--;
	return true;
}

/* This rank comes to a call that is part of an exchange, at this place in the program. */
static void comes_to_exchange(const char *caller)
{
	if (!calls.first)
		return;
	/* Of this thread alone. */
	uint64_t number = GET(ranks.arrived) + 1;
	SET(ranks.arrived, number);
	if (LIKELY(calls.met && (GET(ranks.team->measured) == EVENLY_UNMEASURED || is_left_alone()))) {
		calls.went_on = 0;
		return;
	}
	struct evenly_note *team = comes_with_ranks();
	if (!team)
		return;
	if (calls.in_vain < IN_VAIN)
		calls.in_vain++;
	else
		calls.alone = true;
	uint64_t t = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (is_brief(t)) {
		calls.before = computes.began ? t - computes.began : 0;
		return;
	}
	/* What it has computed is not known. */
	if (!calls.went_on)
		computes.began = 0;
	ends_phase(team, number, caller);
	calls.exchanges = true;
}

/* The call is over. */
static inline void goes_on_with_ranks(void)
{
	if (LIKELY(!calls.observed))
		return;
	calls.observed = false;
	goes_on(ranks.team);
	if (LIKELY(GET(ranks.team->measured) == EVENLY_UNMEASURED)) {
		calls.went_on = 0;
		return;
	}
	calls.went_on = computes.began ? computes.began : clock_ns(CLOCK_THREAD_CPUTIME_ID);
	line_t *line = calls.before && computes.began ? mine() : NULL;
	if (!line)
		return;
	/* What it had computed before is of the same phase. */
	computes.began -= calls.before;
	SET(note_of(line)->base, computes.began);
}

#endif

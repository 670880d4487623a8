/*
 * The ranks of MPI as a team: calls that wait for all ranks are its barriers, observed. A part of waiting.c.
 *
 * MPI has all ranks call such functions in the same order, so each counts its own calls, and the last to come to a call is
 * known from a count in the mapping. The ranks of a job find that by the name of the job, or by the process that has
 * started them.
 *
 * Known gaps: where ranks run on other hosts, too, or in another mapping, the count is never full, so that no opening is
 * announced; of two communicators with all ranks, calls may come in another order; a thread that also meets others in
 * OpenMP counts there.
 *
 * Invariant: as in waiting_phases.h, nothing of the program depends on what is here.
 */
#ifndef EVENLY_WAITING_RANKS_H
#define EVENLY_WAITING_RANKS_H

static struct {
	struct evenly_note *team; /* NULL: not observed */
	uint32_t members;
	_Atomic uint32_t arrived; /* calls of all ranks to which this one has come */
} ranks;

/* This thread is in such a call. */
static __thread bool with_ranks __attribute__((tls_model("initial-exec")));

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
	ranks.team = members > 1 ? &notes[number - 1] : NULL;
}

/* This rank comes to a call that waits for all, at this place in the program. */
static void comes_to_all(const void *caller)
{
	line_t *line = mine();
	struct evenly_note *team = ranks.team;
	uint32_t meets = line ? GET(note_of(line)->meets) : 0;
	uint32_t barrier = atomic_fetch_add_explicit(&ranks.arrived, 1, memory_order_relaxed) + 1;
	if (!line || (meets && meets != number_of_team(team)))
		return;
	meets_in(line, team);
	with_ranks = true;
	if (LIKELY(GET(team->measured) == EVENLY_UNMEASURED))
		return;
	finishes(team, caller);
	if (is_last_at(team, barrier, ranks.members))
		announce(team);
}

/* The call is over. */
static inline void goes_on_from_all(void)
{
	if (!with_ranks)
		return;
	with_ranks = false;
	goes_on(ranks.team);
}

#endif

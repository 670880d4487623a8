/*
 * Loops of which it is not proved that they wait: whether a thread that comes to the end of one does so as a thread would
 * that waits (handover.c). A turn that begins with the registers of an earlier one has carried nothing over, unless in
 * memory. It is asked at each turn, so that loops that work, where that is seldom so, are left alone after a few.
 */
#ifndef EVENLY_HANDOVER_DOUBT_H
#define EVENLY_HANDOVER_DOUBT_H

/* Turns with other registers, or that take long, that a place has before it is given up, if most of all are such. */
#define ENOUGH_DIFFER 64
/* It may also be given up after threads have gone past it so often without a wait. */
#define ENOUGH_PASS 1024
/* What that takes at least each time, in ns. */
#define TRAP 1000
/* Turns in succession with registers that were there before. */
#define SURE 8
/* How many turns a thread remembers of a place, */
#define REMEMBERED 8
/* and of how many places: a loop may call a function that has one. */
#define PLACES 8

struct turns {
	uint64_t at;   /* the place; 0: none */
	uint64_t seen[REMEMBERED]; /* of its registers there: what they hash to; 0: nothing */
	unsigned next;     /* where the next goes; 0: it has just come to this loop */
	unsigned repeated; /* turns in succession that were like one of those */
};

static __thread struct {
	struct turns of[PLACES];
	unsigned next; /* which is forgotten for another */
} turns __attribute__((tls_model("initial-exec")));

/* What this thread remembers of a place. */
static struct turns *turns_at(uint64_t at)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (turns.of[i].at == at)
			return &turns.of[i];
	struct turns *of = &turns.of[turns.next++ % PLACES];
	*of = (struct turns){ .at = at };
	return of;
}

static void give_up(struct evenly_place *place)
{
	SET(place->doubt, EVENLY_REFUTED);
	SET(place->wanted, 0);
}

/* Gives the place up where most turns do not look like those of a loop that waits. */
static void differs(struct evenly_place *place)
{
	uint32_t differ = atomic_fetch_add_explicit(&place->differs, 1, memory_order_relaxed) + 1;
	if (differ >= ENOUGH_DIFFER && differ > GET(place->traps) / 2)
		give_up(place);
}

/* Gives the place up where others have less of those who wait than those lose who do not, or sleep. */
static void passes(struct evenly_place *place)
{
	uint64_t passed = atomic_fetch_add_explicit(&place->passes, 1, memory_order_relaxed) + 1;
	uint64_t had = GET(place->given);
	if (passed >= ENOUGH_PASS && (passed * TRAP > had || GET(place->slept) > had))
		give_up(place);
}

/* Whether the thread that has come to this place, and goes back to another turn or not, seems to wait. */
static bool seems_to_wait(struct evenly_place *place, uint64_t at, bool goes_back, const ucontext_t *context, uint64_t now)
{
	struct turns *of = turns_at(at);
	if (!goes_back) {
		/* Another time is another wait, if it is one. */
		bool waited = of->repeated >= SURE;
		*of = (struct turns){ .at = at };
		if (!waited)
			passes(place);
		return false;
	}
	uint64_t registers = registers_of(context) | 1;
	/* Who only looks takes no longer. */
	bool is_short = now - here.last < LONGEST_TURN;
	for (unsigned i = 0; i < REMEMBERED && is_short; i++)
		if (of->seen[i] == registers) {
			if (++of->repeated == SURE)
				begins_to_wait(now);
			return of->repeated >= SURE;
		}
	/* What the first turn began with is not known. */
	if (of->next)
		differs(place);
	of->seen[of->next++ % REMEMBERED] = registers;
	of->repeated = 0;
	return false;
}

#endif

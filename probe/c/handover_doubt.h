/*
 * Loops of which it is not proved that they wait: whether a thread that comes to the end of one does so as a thread would
 * that waits (handover.c). A turn that begins with the registers of an earlier one has carried nothing over, unless in
 * memory. It is asked at each turn, so that loops that work, where that is seldom so, are left alone after a few.
 */
#ifndef EVENLY_HANDOVER_DOUBT_H
#define EVENLY_HANDOVER_DOUBT_H

/* Turns with other registers, or that take long, that a place has before it is given up, if most of all are such. */
#define ENOUGH_DIFFER 64
/* Turns in succession with registers that were there before. */
#define SURE 8
/* How many turns a thread remembers. */
#define REMEMBERED 8

static __thread struct {
	uint64_t at;   /* the place that it came to last */
	uint64_t seen[REMEMBERED]; /* of its registers there: what they hash to; 0: nothing */
	unsigned next;
	unsigned repeated; /* turns in succession that were like one of those */
} turns __attribute__((tls_model("initial-exec")));

/* Whether the thread that has come to this place seems to wait. Gives the place up where most turns differ. */
static bool seems_to_wait(struct evenly_place *place, uint64_t at, const ucontext_t *context, uint64_t now)
{
	uint64_t registers = registers_of(context) | 1;
	if (turns.at != at) {
		memset(&turns, 0, sizeof turns);
		turns.at = at;
	}
	/* Who only looks takes no longer. */
	bool is_short = now - here.last < LONGEST_TURN;
	for (unsigned i = 0; i < REMEMBERED && is_short; i++)
		if (turns.seen[i] == registers) {
			if (++turns.repeated == SURE)
				begins_to_wait(now);
			return turns.repeated >= SURE;
		}
	turns.seen[turns.next++ % REMEMBERED] = registers;
	turns.repeated = 0;
	uint64_t differ = atomic_fetch_add_explicit(&place->differs, 1, memory_order_relaxed) + 1;
	if (differ >= ENOUGH_DIFFER && differ > GET(place->traps) / 2) {
		SET(place->doubt, EVENLY_REFUTED);
		SET(place->wanted, 0);
	}
	return false;
}

#endif

/*
 * Whether a thread keeps its slices. Where another program computes on its CPU, each yield gives that one a whole slice of the
 * kernel, and the thread forfeits its own. After SLICES that it has lost so, each soon after the one before, it keeps them for
 * KEPT: it sleeps where it would yield. Where the next yield costs one again, it keeps them for twice as long.
 */
#ifndef EVENLY_HANDOVER_KEEPING_H
#define EVENLY_HANDOVER_KEEPING_H

#include <stdbool.h>
#include <stdint.h>

#define SLICES 3
/* In ns. */
#define KEPT 100000000
#define KEPT_AT_MOST 800000000

struct keeping {
	unsigned slices; /* how many it has lost soon after one another, or after it slept instead */
	uint64_t lost;   /* when it lost the last slice, or slept last instead, by the clock of who asks */
	uint64_t until;  /* it keeps them until then, CLOCK_MONOTONIC in ns */
	uint64_t length; /* for how long it keeps them, ns */
};

static inline bool keeps_slices(const struct keeping *keeping, uint64_t now)
{
	return now < keeping->until;
}

/* A yield has cost a slice, soon after the one before or not. */
static inline void has_lost_slice(struct keeping *keeping, bool is_soon, uint64_t now)
{
	keeping->slices = is_soon ? keeping->slices + 1 : 1;
	if (keeping->slices < SLICES || keeps_slices(keeping, now))
		return;
	uint64_t twice = 2 * keeping->length;
	keeping->length = keeping->slices == SLICES ? KEPT : twice > KEPT_AT_MOST ? KEPT_AT_MOST : twice;
	keeping->until = now + keeping->length;
}

#endif

/*
 * Whether a thread keeps its slices. Where another program computes on its CPU, each yield gives that one a whole slice of the
 * kernel, and the thread forfeits its own. After SLICES that it has lost so, each SOON after the one before, it keeps them for
 * KEPT: it sleeps where it would yield. Where the next yield costs one again, it keeps them for twice as long.
 */
#ifndef EVENLY_HANDOVER_KEEPING_H
#define EVENLY_HANDOVER_KEEPING_H

#include <stdbool.h>
#include <stdint.h>

#define SLICES 3
/* In ns. */
#define SOON 20000000
#define KEPT 100000000
#define KEPT_AT_MOST 800000000

struct keeping {
	unsigned slices; /* how many it has lost soon after one another */
	uint64_t until;  /* it keeps them until then; this and all others are CLOCK_MONOTONIC in ns */
	uint64_t lost;   /* when it lost the last slice */
	uint64_t length; /* for how long it keeps them */
};

static inline bool keeps_slices(const struct keeping *keeping, uint64_t now)
{
	return now < keeping->until;
}

static inline void has_lost_slice(struct keeping *keeping, uint64_t now)
{
	bool is_still = now >= keeping->until && now - keeping->until < SOON;
	keeping->slices = now - keeping->lost < SOON ? keeping->slices + 1 : 1;
	keeping->lost = now;
	if (keeping->slices < SLICES && !is_still)
		return;
	uint64_t twice = 2 * keeping->length;
	keeping->length = !is_still ? KEPT : twice > KEPT_AT_MOST ? KEPT_AT_MOST : twice;
	if (now + keeping->length > keeping->until)
		keeping->until = now + keeping->length;
}

/* The same, but those before do not count. */
static inline void has_lost_first_slice(struct keeping *keeping, uint64_t now)
{
	keeping->slices = 1;
	keeping->lost = now;
}

#endif

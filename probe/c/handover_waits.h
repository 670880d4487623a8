/*
 * How long a thread waits, by how long it did before. Who waits as long in each phase can sleep for most of it at once: each look
 * at whether the wait is over takes the CPU from whoever runs meanwhile, and is paid for by the thread.
 */
#ifndef EVENLY_HANDOVER_WAITS_H
#define EVENLY_HANDOVER_WAITS_H

#include <stdint.h>

/* How many waits a thread remembers. */
#define WAITS 8

/* The last waits of a thread, ns. */
struct waits {
	uint64_t lasted[WAITS];
	unsigned number;
};

static inline void has_waited(struct waits *waits, uint64_t ns)
{
	waits->lasted[waits->number++ % WAITS] = ns;
}

/* How long it waits yet where it has waited for so long, as it did each time of late: ns, less a quarter, so that what is slept
 * too long does not become what is expected. */
static inline uint64_t waits_yet(const struct waits *waits, uint64_t waited)
{
	uint64_t shortest = waits->lasted[0];
	for (unsigned i = 1; i < WAITS; i++)
		if (waits->lasted[i] < shortest)
			shortest = waits->lasted[i];
	return shortest > waited ? (shortest - waited) / 4 * 3 : 0;
}

#endif

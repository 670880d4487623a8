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
	uint64_t late; /* how much longer than it was to it slept last, in this one */
};

/* It has slept for so long where it was to sleep less: somebody else had the CPU, or it took time to wake up. */
static inline void has_slept(struct waits *waits, uint64_t ns, uint64_t wanted)
{
	waits->late = ns > wanted ? ns - wanted : 0;
}

/* A wait has lasted for so long. It may have ended before who slept last was late: that is not expected again, else it would be
 * slept through, and be late again. */
static inline void has_waited(struct waits *waits, uint64_t ns)
{
	waits->lasted[waits->number++ % WAITS] = ns > waits->late ? ns - waits->late : 0;
	waits->late = 0;
}

/* How long it waits yet where it has waited for so long, as it did each time of late: ns, less a quarter, so that who need not wait
 * any longer expects that less each time. */
static inline uint64_t waits_yet(const struct waits *waits, uint64_t waited)
{
	uint64_t shortest = waits->lasted[0];
	for (unsigned i = 1; i < WAITS; i++)
		if (waits->lasted[i] < shortest)
			shortest = waits->lasted[i];
	return shortest > waited ? (shortest - waited) / 4 * 3 : 0;
}

#endif

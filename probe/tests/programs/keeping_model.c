/* When a thread sleeps where it would yield (handover_keeping.h): says what is wrong, and ends with 1. */
#include "handover_keeping.h"

#include <stdio.h>

static int wrong;
#define EXPECT(what)                                    \
	if (!(what)) {                                  \
		printf("line %d: %s\n", __LINE__, #what); \
		wrong = 1;                              \
	}

int main(void)
{
	struct keeping keeping = { 0 };
	uint64_t now = 1000000000;
	/* Who works for long in between never does. */
	for (int i = 0; i < 100; i++) {
		has_lost_slice(&keeping, i % (SLICES - 1), now += 5000000);
		EXPECT(!keeps_slices(&keeping, now));
	}
	/* The third soon after two others. */
	for (int i = 0; i < SLICES; i++) {
		EXPECT(!keeps_slices(&keeping, now));
		has_lost_slice(&keeping, i > 0, now += 3000000);
	}
	EXPECT(keeps_slices(&keeping, now + KEPT - 1) && !keeps_slices(&keeping, now + KEPT));
	/* Slices that are lost meanwhile, as nobody else was seen, do not make it longer. */
	has_lost_slice(&keeping, true, now + 50000000);
	EXPECT(!keeps_slices(&keeping, now + KEPT));
	/* Then the first is enough, for twice as long each time. */
	for (uint64_t length = 2 * KEPT; length < 10 * (uint64_t)KEPT_AT_MOST; length *= 2) {
		uint64_t kept = length < KEPT_AT_MOST ? length : KEPT_AT_MOST;
		has_lost_slice(&keeping, true, now = keeping.until + 3000000);
		EXPECT(keeping.until == now + kept);
	}
	/* Unless it works for longer now. */
	has_lost_slice(&keeping, false, now = keeping.until + 3000000);
	EXPECT(!keeps_slices(&keeping, now));
	for (int i = 1; i < SLICES; i++)
		has_lost_slice(&keeping, true, now += 3000000);
	EXPECT(keeping.until == now + KEPT);
	return wrong;
}

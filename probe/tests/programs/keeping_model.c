/* When a thread sleeps where it would yield (handover_keeping.h): says what is wrong, and ends with 1. */
#include "handover_keeping.h"

#include "expect.h"

int main(void)
{
	struct keeping keeping = { 0 };
	uint64_t now = 1000000000;
	/* Who loses them long after one another never does, nor who works in between. */
	for (int i = 0; i < 100; i++) {
		has_lost_slice(&keeping, now += SOON);
		EXPECT(!keeps_slices(&keeping, now));
	}
	for (int i = 0; i < 100; i++) {
		if (i % 2)
			has_lost_first_slice(&keeping, now += 5000000);
		else
			has_lost_slice(&keeping, now += 5000000);
		EXPECT(!keeps_slices(&keeping, now));
	}
	/* The third soon after two others. */
	now += SOON;
	for (int i = 0; i < SLICES; i++) {
		EXPECT(!keeps_slices(&keeping, now));
		has_lost_slice(&keeping, now += 3000000);
	}
	EXPECT(keeps_slices(&keeping, now + KEPT - 1) && !keeps_slices(&keeping, now + KEPT));
	/* Then the first is enough, for twice as long each time. */
	for (uint64_t length = 2 * KEPT; length < 10 * (uint64_t)KEPT_AT_MOST; length *= 2) {
		uint64_t kept = length < KEPT_AT_MOST ? length : KEPT_AT_MOST;
		has_lost_slice(&keeping, now = keeping.until + 3000000);
		EXPECT(keeping.until == now + kept);
	}
	/* Unless it works in between now. */
	has_lost_first_slice(&keeping, now = keeping.until + 3000000);
	EXPECT(!keeps_slices(&keeping, now));
	now += SOON;
	for (int i = 0; i < SLICES; i++)
		has_lost_slice(&keeping, now += 3000000);
	EXPECT(keeping.until == now + KEPT);
	return wrong;
}

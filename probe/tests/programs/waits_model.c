/* What is expected of a thread that waits (handover_waits.h): says what is wrong, and ends with 1. */
#include "handover_waits.h"

#include "expect.h"

int main(void)
{
	struct waits waits = { 0 };
	for (int i = 0; i < WAITS; i++) {
		/* Nothing is expected until there are enough. */
		EXPECT(waits_yet(&waits, 0) == 0);
		has_waited(&waits, 400000 + 1000 * i);
	}
	EXPECT(waits_yet(&waits, 0) == 300000);
	EXPECT(waits_yet(&waits, 300000) == 75000);
	EXPECT(waits_yet(&waits, 400000) == 0 && waits_yet(&waits, 9000000) == 0);
	/* One that is short counts at once, and for as long as it is remembered. */
	has_waited(&waits, 4000);
	EXPECT(waits_yet(&waits, 0) == 3000);
	for (int i = 0; i < WAITS; i++)
		has_waited(&waits, 800000);
	EXPECT(waits_yet(&waits, 0) == 600000);
	/* What the last sleep took longer is not expected again. */
	for (int i = 0; i < WAITS; i++) {
		has_slept(&waits, 300000, 100000);
		has_slept(&waits, 3100000, 100000);
		has_waited(&waits, 3400000);
	}
	EXPECT(waits_yet(&waits, 0) == 300000);
	has_slept(&waits, 100000, 0);
	has_waited(&waits, 60000);
	EXPECT(waits_yet(&waits, 0) == 0);
	for (int i = 0; i < WAITS; i++)
		has_waited(&waits, 800000);
	/* Who always sleeps for as long as is expected, though it need not wait, soon does so no longer. */
	uint64_t slept = 600000;
	for (int i = 0; i < 30; i++) {
		slept = waits_yet(&waits, 0);
		has_slept(&waits, slept + 50000, slept);
		has_waited(&waits, slept + 50000);
	}
	EXPECT(slept < 2000);
	return wrong;
}

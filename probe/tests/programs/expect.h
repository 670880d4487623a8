/* What programs for tests expect: says what is not so, and goes on. */
#include <stdio.h>

/* What such a program ends with. */
static int wrong;
#define EXPECT(what)                                    \
	if (!(what)) {                                  \
		printf("line %d: %s\n", __LINE__, #what); \
		wrong = 1;                              \
	}

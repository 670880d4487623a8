/* What the programs that carry out jumps have in common. */
#include <stdio.h>

#define CHECK(what)                                           \
	do {                                                  \
		if (!(what)) {                                \
			printf("line %d: %s\n", __LINE__, #what); \
			return 1;                             \
		}                                             \
	} while (0)

// The points at which programs for tests of the probe stop.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Says where the program is, and goes on when the test says so.
static void step(const char *name)
{
	char byte;
	printf("%s\n", name);
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		exit(9);
}

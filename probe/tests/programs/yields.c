/* A library whose sched_yield costs a slice each time, as one beside another program does (-DLIBRARY), and a program that waits
 * by it: errno stays as it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#define CALLS 20

#ifdef LIBRARY
int slices;

int sched_yield(void)
{
	struct timespec slice = { .tv_nsec = 6000000 };
	slices++;
	return nanosleep(&slice, NULL);
}
#else
extern int slices;

int main(void)
{
	char byte;
	printf("ready\n");
	fflush(stdout);
	if (fread(&byte, 1, 1, stdin) != 1)
		return 1;
	errno = 77;
	for (int i = 0; i < CALLS; i++)
		if (sched_yield() != 0 || errno != 77)
			return 2;
	printf("%d\n", slices);
	return 0;
}
#endif

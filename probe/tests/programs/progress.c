/* A library by whose functions ranks look for messages (-DLIBRARY), one that waits by them (-DWAITS), and a program that loads
 * that for itself alone: the other functions of these names are found from there. -DYIELDS=n: the library yields by itself
 * at n of three looks. -DWORKS: what waits does some work after each third look, for less than a microsecond. */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>

#ifdef LIBRARY
static int looks;

unsigned ucp_worker_progress(void *worker)
{
	return worker == &looks && ++looks % 1000 == 0;
}

int opal_progress(void)
{
#ifdef YIELDS
	if (looks % 3 < YIELDS)
		sched_yield();
#endif
	return (int)ucp_worker_progress(&looks);
}
#elif defined(WAITS)
int opal_progress(void);

int wait_for(int events)
{
	int turns = 0;
	while (events) {
		turns++, events -= opal_progress();
#ifdef WORKS
		for (volatile int work = turns % 3 ? 0 : 1000; work; work--)
			;
#endif
	}
	return turns;
}
#else
int main(int argc, char **argv)
{
	char byte;
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*wait_for)(int) = library ? (int (*)(int))dlsym(library, "wait_for") : NULL;
	printf("ready\n");
	fflush(stdout);
	if (!wait_for || fread(&byte, 1, 1, stdin) != 1)
		return 1;
	int turns = wait_for(20);
	printf(turns == 20000 ? "done\n" : "%d\n", turns);
	return 0;
}
#endif

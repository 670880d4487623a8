/* Two threads on one CPU that go past a loop which may wait, and past one within the function that it calls. With `waits` each waits
 * for the other after PASSES times; with `passes` nobody waits. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PASSES 100
#define ROUNDS 60

static _Atomic int never, done[2];
static int waits;

__attribute__((noipa)) static int look(_Atomic int *what)
{
	return atomic_load(what);
}

__attribute__((noipa)) static int each(_Atomic int *what)
{
	int most = 0;
	for (int i = 0; i < 3; i++) {
		int found = look(what);
		most = found > most ? found : most;
	}
	return most;
}

__attribute__((noipa)) static void spin_while(_Atomic int *what, int less)
{
	while (each(what) < less)
		;
}

/* So much CPU time. */
static void works_ms(long ms)
{
	struct timespec began, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((now.tv_sec - began.tv_sec) * 1000000000 + now.tv_nsec - began.tv_nsec < ms * 1000000);
}

static void *run(void *argument)
{
	int self = argument != NULL;
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < PASSES; i++)
			spin_while(&never, 0);
		works_ms(1);
		atomic_store(&done[self], round);
		if (waits)
			spin_while(&done[!self], round);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	cpu_set_t one, may;
	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof may, &may);
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &may)) {
			CPU_SET(cpu, &one);
			break;
		}
	if (argc != 2 || sched_setaffinity(0, sizeof one, &one) != 0)
		return 8;
	waits = !strcmp(argv[1], "waits");
	printf("ready\n");
	fflush(stdout);
	getchar();
	pthread_t other;
	if (pthread_create(&other, NULL, run, &other) != 0)
		return 8;
	run(NULL);
	pthread_join(other, NULL);
	printf("done\n");
	return 0;
}

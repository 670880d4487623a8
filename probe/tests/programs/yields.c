/* A library by which a yield costs a slice each time, as one beside another program does (-DLIBRARY), and a program that waits
 * by it: errno stays as it is. With `works` it works before each; with `spins` it spins, and somebody else yields for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#define CALLS 20

#ifdef LIBRARY
_Atomic int slices, sleeps;

static int lose_slice(void)
{
	struct timespec slice = { .tv_nsec = 6000000 };
	slices++;
	return nanosleep(&slice, NULL);
}

int sched_yield(void)
{
	return lose_slice();
}

long syscall(long number, ...)
{
	va_list list;
	long a[6];
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_sched_yield)
		return lose_slice();
	sleeps += number == SYS_clock_nanosleep;
	long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#else
extern _Atomic int slices, sleeps;
static _Atomic int flag;

/* Ends the wait of the other thread as soon as that one has lost some slices, and sleeps instead. */
static void *end_wait(void *unused)
{
	struct timespec time = { .tv_nsec = 60000000 };
	int lost, slept;
	do {
		lost = slices;
		slept = sleeps;
		nanosleep(&time, NULL);
	} while (lost == 0 || slices > lost || sleeps < slept + 5);
	flag = 1;
	return unused;
}

static int spins(void)
{
	pthread_t other;
	if (pthread_create(&other, NULL, end_wait, NULL) != 0)
		return 3;
	while (!flag)
		__builtin_ia32_pause();
	return pthread_join(other, NULL);
}

/* Between two calls it computes for so many ms. */
static int yields(int ms)
{
	errno = 77;
	for (int i = 0; i < CALLS; i++) {
		for (clock_t end = clock() + ms * CLOCKS_PER_SEC / 1000; clock() < end;)
			;
		if (sched_yield() != 0 || errno != 77)
			return 2;
	}
	return 0;
}

int main(int count, char **words)
{
	char byte;
	printf("ready\n");
	fflush(stdout);
	if (fread(&byte, 1, 1, stdin) != 1)
		return 1;
	char what = count > 1 ? words[1][0] : 0;
	int status = what == 's' ? spins() : yields(what == 'w' ? 5 : 0);
	printf("%d\n", slices);
	return status;
}
#endif

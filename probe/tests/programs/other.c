// A library that another tool preloads: it counts barriers, and says how many at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static int count;

int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	__atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
	return ((int (*)(pthread_barrier_t *))dlsym(RTLD_NEXT, "pthread_barrier_wait"))(barrier);
}

__attribute__((destructor)) static void say(void)
{
	printf("barriers %d\n", count);
}

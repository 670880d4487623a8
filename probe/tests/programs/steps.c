// Programs for tests of the waiting probe: each comes to a point where it is known who waits and
// who computes, says so on standard output, and goes on when a byte comes on standard input.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "step.h"

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int go;

static void *at_barrier(void *unused)
{
	(void)unused;
	errno = 77;
	pthread_barrier_wait(&barrier);
	return errno == 77 ? NULL : (void *)1;
}

// The main thread does not come until the test says so.
static int barriers(void)
{
	pthread_t threads[2];
	void *wrong;
	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, at_barrier, NULL);
	step("waiting");
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &wrong);
		if (wrong)
			return 1;
	}
	step("over");
	return 0;
}

static void *at_condition(void *how)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1000;
	pthread_mutex_lock(&mutex);
	while (!go)
		switch ((long)how) {
		case 0: pthread_cond_wait(&condition, &mutex); break;
		case 1: pthread_cond_timedwait(&condition, &mutex, &until); break;
		default: pthread_cond_clockwait(&condition, &mutex, CLOCK_REALTIME, &until);
		}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static int conditions(void)
{
	pthread_t threads[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, at_condition, (void *)i);
	step("waiting");
	pthread_mutex_lock(&mutex);
	go = 1;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	struct timespec past = { .tv_sec = 1 };
	pthread_mutex_lock(&mutex);
	return pthread_cond_timedwait(&condition, &mutex, &past) == ETIMEDOUT ? 0 : 1;
}

static void cleaned(void *flag)
{
	*(int *)flag = 1;
	pthread_mutex_unlock(&mutex);
}

static int flag;

static void *cancelled(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(cleaned, &flag);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	pthread_cleanup_pop(0);
	return NULL;
}

static int cancel(void)
{
	pthread_t thread;
	void *result;
	pthread_create(&thread, NULL, cancelled, NULL);
	step("waiting");
	pthread_cancel(thread);
	pthread_join(thread, &result);
	step("over");
	return flag && result == PTHREAD_CANCELED ? 0 : 1;
}

static sigjmp_buf back;

static void jump(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static __attribute__((noinline)) int deep(int depth)
{
	volatile char room[4096] = { 0 };
	return depth ? deep(depth - 1) + room[0] : pthread_barrier_wait(&barrier);
}

static void *jumped(void *unused)
{
	(void)unused;
	if (!sigsetjmp(back, 1))
		deep(3);
	// Another one, that it does not leave.
	at_condition((void *)0);
	return NULL;
}

static int jumps(void)
{
	pthread_t thread;
	pthread_barrier_init(&barrier, NULL, 2);
	signal(SIGUSR1, jump);
	pthread_create(&thread, NULL, jumped, NULL);
	step("waiting");
	pthread_kill(thread, SIGUSR1);
	step("jumped");
	pthread_mutex_lock(&mutex);
	go = 1;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	return 0;
}

// Dies of its own fault within a wrapped call.
static int crash(void)
{
	return pthread_barrier_wait((pthread_barrier_t *)8);
}

static int forks(void)
{
	pthread_barrier_init(&barrier, NULL, 1);
	pthread_barrier_wait(&barrier);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 5; i++)
			pthread_barrier_wait(&barrier);
		step("forked");
		_exit(3);
	}
	int status;
	waitpid(child, &status, 0);
	pthread_barrier_wait(&barrier);
	step("parent");
	return WEXITSTATUS(status) == 3 ? 0 : 1;
}

static int execs(char **argv)
{
	char *next[] = { argv[0], "one", NULL };
	pthread_t threads[2];
	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, at_barrier, NULL);
	step("before");
	execv(argv[0], next);
	return 1;
}

static int one(void)
{
	pthread_barrier_init(&barrier, NULL, 1);
	pthread_barrier_wait(&barrier);
	step("one");
	return 0;
}

// Threads that come and go, four at a time, each with one wait.
static void *waits_once(void *own)
{
	pthread_barrier_wait(own);
	return NULL;
}

static int many(void)
{
	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 500; i++) {
		pthread_t threads[4];
		for (int j = 0; j < 4; j++)
			pthread_create(&threads[j], NULL, waits_once, &barrier);
		for (int j = 0; j < 4; j++)
			pthread_join(threads[j], NULL);
	}
	step("many");
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "barriers"))
		return barriers();
	if (!strcmp(what, "conditions"))
		return conditions();
	if (!strcmp(what, "cancel"))
		return cancel();
	if (!strcmp(what, "jumps"))
		return jumps();
	if (!strcmp(what, "crash"))
		return crash();
	if (!strcmp(what, "forks"))
		return forks();
	if (!strcmp(what, "execs"))
		return execs(argv);
	if (!strcmp(what, "one"))
		return one();
	if (!strcmp(what, "many"))
		return many();
	return 2;
}

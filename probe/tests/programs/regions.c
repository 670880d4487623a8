// Parallel regions for tests of the probe, as steps.c: three threads, of which the first does not come until it
// the test says so. Also built as a module, to be loaded by module.c.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "step.h"

static volatile int hold;

static void *task_of_another(const char *name)
{
	step(name);
	return NULL;
}

// Tasks that take at least so many microseconds, and wait for one of their own.
static void many_tasks(int rounds, unsigned us, long *sum)
{
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < 100; i++) {
#pragma omp task
			{
				if (us)
					usleep(us);
#pragma omp task
#pragma omp atomic
				*sum += 1;
#pragma omp taskwait
			}
		}
#pragma omp taskwait
	}
}

// The last instance of a region, which is plain until then, makes a task. Returns how many were done after its barrier.
static int task_before_barrier(void)
{
	int done = 0, seen = 0;
	for (int instance = 0; instance < 4; instance++) {
#pragma omp parallel shared(done, seen)
		{
			if (instance == 3 && omp_get_thread_num() == 0) {
#pragma omp task shared(done)
				done = 1;
			}
#pragma omp barrier
			if (omp_get_thread_num() == 0)
				seen = done;
		}
	}
	return seen;
}

int run(const char *what);
int run(const char *what)
{
	long sum = 0;
	int threads = 0;
	omp_set_num_threads(3);
	if (!strcmp(what, "regions")) {
#pragma omp parallel reduction(+ : sum)
		{
			sum += omp_get_thread_num();
			if (omp_get_thread_num() == 0) {
				threads = omp_get_num_threads();
				step("end");
			}
		}
		step("outside");
#pragma omp parallel
		{
			if (omp_get_thread_num() == 0)
				step("barrier");
#pragma omp barrier
			if (omp_get_thread_num() == 0)
				step("again");
		}
#pragma omp parallel for schedule(static, 1) reduction(+ : sum)
		for (int i = 0; i < 3; i++) {
			if (i == 0)
				step("for");
			sum += i;
		}
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : sum)
		for (int i = 0; i < 300; i++)
			sum += i;
#pragma omp parallel
		{
#pragma omp for schedule(static, 1)
			for (int i = 0; i < 3; i++)
				if (i == 0)
					step("loop");
			// Without this the barrier would be that of the region's end.
#pragma omp atomic
			sum += 1;
		}
		step("last");
		printf("sum %ld threads %d\n", sum, threads);
		return sum == 3 + 3 + 44850 + 3 && threads == 3 ? 0 : 1;
	}
	if (!strcmp(what, "nested")) {
		omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2) reduction(+ : sum)
		{
			if (omp_get_thread_num() == 0) {
#pragma omp parallel num_threads(2) reduction(+ : sum)
				{
					sum += 1;
					if (omp_get_thread_num() == 0)
						step("inner");
				}
				step("outer");
			}
		}
		step("last");
		return sum == 2 ? 0 : 1;
	}
	if (!strcmp(what, "crash")) {
#pragma omp parallel
		if (omp_get_thread_num() == 1)
			*(volatile int *)8 = 1;
		return 7;
	}
	if (!strcmp(what, "tasks")) {
		// The first thread makes a task and works on; another, which waits, executes it.
#pragma omp parallel
		{
			if (omp_get_thread_num() == 0) {
#pragma omp task shared(hold)
				{
					hold = 1;
					task_of_another("task");
				}
				while (!hold) {
				}
			}
		}
		step("last");
		return 0;
	}
	if (!strcmp(what, "taskwait")) {
		// Another thread executes the task that the first waits for.
#pragma omp parallel shared(sum)
		{
			if (omp_get_thread_num() == 0) {
#pragma omp task shared(hold)
				{
					hold = 1;
					task_of_another("wait");
				}
				while (!hold) {
				}
#pragma omp taskwait
				hold = 0;
#pragma omp taskgroup
				{
#pragma omp task shared(hold)
					{
						hold = 1;
						task_of_another("group");
					}
					while (!hold) {
					}
				}
				struct { long of[3]; } values = { { 0, 0, 0 } };
				for (int i = 0; i < 100; i++) {
					values.of[1] = i;
					// Its own copy of the values, at once and later.
#pragma omp task firstprivate(values) shared(sum) if (i % 2)
					{
#pragma omp atomic
						sum += values.of[1];
					}
				}
#pragma omp taskwait
			}
		}
		step("last");
		printf("sum %ld\n", sum);
		return 0;
	}
	if (!strcmp(what, "short")) {
		// The first thread waits for the group of which another executes the task, and a third at the end.
#pragma omp parallel shared(sum)
		{
			if (omp_get_thread_num() == 0) {
#pragma omp taskgroup
				{
#pragma omp task shared(sum, hold)
					{
						hold = 1;
						many_tasks(2000, 0, &sum);
						task_of_another("short");
					}
					while (!hold) {
					}
				}
			}
		}
		step("last");
		printf("sum %ld\n", sum);
		return 0;
	}
	if (!strcmp(what, "before")) {
#pragma omp parallel shared(sum)
		{
			if (omp_get_thread_num() == 0)
				many_tasks(2000, 0, &sum);
		}
		printf("sum %ld, %d before the barrier\n", sum, task_before_barrier());
		return 0;
	}
	if (!strcmp(what, "longer")) {
#pragma omp parallel shared(sum)
		{
			if (omp_get_thread_num() == 0) {
				many_tasks(2000, 0, &sum);
				many_tasks(10, 100, &sum);
			}
		}
		return run("tasks");
	}
	if (!strcmp(what, "taskloop")) {
#pragma omp parallel
		{
			if (omp_get_thread_num() == 0) {
#pragma omp taskloop grainsize(1) nogroup
				for (int i = 0; i < 2; i++)
					if (i == 0)
						task_of_another("loop");
			}
		}
		step("last");
		return 0;
	}
	return 2;
}

#ifndef MODULE
int main(int argc, char **argv)
{
	return run(argc > 1 ? argv[1] : "");
}
#endif

// Parallel regions that are the same several times, and then do what barriers of the probe do not model: tasks of all kinds,
// regions within, targets, loops that hand on values. Their answers are wrong where a barrier opens too early, or where
// a task is lost. Usage: plain THREADS. Prints a line for each part.
#define _GNU_SOURCE
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64, ROUNDS = 6, USUAL = 2, PHASES = 20, UNUSUAL = 7, TASKS = 40 };
static int threads;
static _Atomic long shared[MOST * 64];
static long done;

static void wrong(const char *what)
{
	printf("%s: wrong\n", what);
	exit(1);
}

static void takes_time(void)
{
	for (volatile int i = 0; i < 2000; i++)
		;
}

// Each writes what the next reads after the barrier.
static void meets(int self, long phase, const char *what)
{
	int next = (self + 1) % threads;
	atomic_store_explicit(&shared[self * 8], phase + self, memory_order_relaxed);
#pragma omp barrier
	if (atomic_load_explicit(&shared[next * 8], memory_order_relaxed) != phase + next)
		wrong(what);
#pragma omp barrier
}

static void task(void)
{
	takes_time();
#pragma omp atomic
	done++;
}

static void tasks(int self)
{
	if (self == 1)
		for (int i = 0; i < TASKS; i++) {
#pragma omp task
			task();
		}
}

static void a_taskloop(int self)
{
	if (self == 0) {
#pragma omp taskloop nogroup num_tasks(TASKS)
		for (int i = 0; i < TASKS; i++)
			task();
	}
}

static void a_taskgroup(int self)
{
	if (self == 0) {
#pragma omp taskgroup
		tasks(1);
	}
}

static void a_region_within(int self)
{
	if (self == 1) {
#pragma omp parallel for num_threads(2) schedule(dynamic)
		for (int i = 0; i < TASKS; i++)
			task();
	}
}

// A loop and a barrier of the innermost team.
static void meets_nobody(void)
{
#pragma omp for schedule(dynamic)
	for (int i = 0; i < 2; i++)
		takes_time();
#pragma omp barrier
}

static void a_target(int self)
{
	if (self == 0)
		for (int i = 0; i < TASKS; i++) {
#pragma omp target nowait map(tofrom : done)
			task();
		}
}

// The host runs it as a team of one thread.
static void a_loop_in_a_target(int self)
{
	if (self == 1) {
#pragma omp target map(tofrom : done)
		{
			meets_nobody();
#pragma omp parallel for num_threads(2) schedule(dynamic)
			for (int i = 0; i < TASKS; i++)
				task();
		}
	}
}

static void data_of_a_target(int self)
{
	static long value;
	(void)value; // Without a device nothing is copied.
	if (self == 0) {
#pragma omp target enter data map(to : value) nowait depend(out : value)
		for (int i = 0; i < TASKS; i++) {
#pragma omp task depend(inout : value)
			task();
#pragma omp target update to(value) nowait depend(inout : value)
		}
#pragma omp target exit data map(from : value) nowait depend(inout : value)
	}
}

static void a_loop_that_hands_on(int self)
{
	(void)self;
#pragma omp for ordered(1) schedule(static, 1)
	for (int i = 0; i < TASKS; i++) {
#pragma omp ordered depend(sink : i - 1)
		long before;
#pragma omp atomic read
		before = done;
		if (before != i)
			wrong("order");
		task();
#pragma omp ordered depend(source)
	}
}

static void a_value_for_all(int self)
{
	int value = -1;
#pragma omp single copyprivate(value)
	{
		takes_time();
		value = TASKS;
	}
	if (value != TASKS)
		wrong("copyprivate");
	if (self == 0)
		done = value;
}

static void a_reduction_of_tasks(int self)
{
	static long sum;
	if (self == 0)
		sum = 0;
#pragma omp barrier
#pragma omp for reduction(task, + : sum)
	for (int i = 0; i < TASKS; i++) {
#pragma omp task in_reduction(+ : sum)
		sum++;
	}
	if (self == 0)
		done = sum;
}

// As gcc before 4.9 begins a region.
void GOMP_parallel_start(void (*)(void *), void *, unsigned);
void GOMP_parallel_end(void);

static void old_part(void *unused)
{
	(void)unused;
	task();
}

static void an_old_region(int self)
{
	if (self == 0)
		for (int i = 0; i < TASKS; i++) {
			GOMP_parallel_start(old_part, NULL, 1);
			old_part(NULL);
			GOMP_parallel_end();
		}
}

// All that is modelled.
static void nothing_unusual(int self)
{
#pragma omp for schedule(dynamic)
	for (int i = 0; i < TASKS - 6; i++)
		task();
#pragma omp for schedule(guided) nowait
	for (int i = 0; i < 2; i++)
		task();
#pragma omp sections
	{
#pragma omp section
		task();
#pragma omp section
		task();
	}
#pragma omp single
	task();
#pragma omp critical
	if (self == 0)
		task();
#pragma omp for ordered schedule(static, 1)
	for (int i = 0; i < threads; i++) {
#pragma omp ordered
		takes_time();
	}
}

// A function of its own for each region.
#define PART(name, does)                                                              \
	static void name(void)                                                        \
	{                                                                             \
		for (int round = 0; round < ROUNDS; round++) {                        \
			_Pragma("omp parallel num_threads(threads)")                  \
			{                                                             \
				int self = omp_get_thread_num();                      \
				for (long phase = 0; phase < PHASES; phase++) {       \
					meets(self, phase, #name);                    \
					if (round < USUAL || phase != UNUSUAL)        \
						continue;                             \
					if (self == 0)                                \
						done = 0;                             \
					meets(self, -phase, #name);                   \
					does(self);                                   \
					meets(self, -phase, #name);                   \
					if (done != TASKS)                            \
						wrong(#does);                         \
				}                                                     \
			}                                                             \
		}                                                                     \
		printf(#does "\n");                                                   \
	}
PART(part1, nothing_unusual)
PART(part2, tasks)
PART(part3, a_taskloop)
PART(part4, a_taskgroup)
PART(part5, a_region_within)
PART(part6, a_target)
PART(part7, a_loop_that_hands_on)
PART(part8, a_value_for_all)
PART(part9, a_reduction_of_tasks)
PART(part10, an_old_region)
PART(part11, a_loop_in_a_target)
PART(part12, data_of_a_target)

int main(int argc, char **argv)
{
	threads = argc > 1 ? atoi(argv[1]) : 0;
	if (threads < 2 || threads > MOST)
		return 2;
	omp_set_max_active_levels(2);
	part1(), part2(), part3(), part4(), part5(), part6(), part7(), part8(), part9();
	part10(), part11(), part12();
	return 0;
}

/* A library that counts calls of sched_yield (-DLIBRARY), and a program in which one thread of two executes TASKS tasks: says how
 * often it yielded meanwhile. */
#define TASKS 200

#ifdef LIBRARY
#include <sys/syscall.h>
#include <unistd.h>

__thread int yields;

int sched_yield(void)
{
	yields++;
	return (int)syscall(SYS_sched_yield);
}
#else
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

extern __thread int yields;
static atomic_int done, left = TASKS;

int main(void)
{
	getchar();
#pragma omp parallel num_threads(2)
	{
#pragma omp single nowait
		{
			for (int i = 0; i < TASKS; i++) {
#pragma omp task
				done++;
			}
			int before = yields;
#pragma omp taskwait
			printf("%d tasks, %s\n", done, yields - before > TASKS / 2 ? "yields" : "goes on");
			left = 0;
		}
		while (left)
			usleep(100);
	}
	return 0;
}
#endif

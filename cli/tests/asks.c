// Three threads that meet at barriers, and ask between them how many CPUs there are, until they have done so often while the
// kernel keeps the thread that asks on one CPU. Prints the least that each way of asking has said then.
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ASKED = 200, COMMANDS = 5, MOST_S = 120 };

static int is_kept_on_one_cpu(void)
{
	unsigned long mask[16] = { 0 };
	int count = 0;
	syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
	for (int i = 0; i < 16; i++)
		count += __builtin_popcountl(mask[i]);
	return count == 1;
}

static void lower(long *least, long said)
{
	if (said < *least)
		*least = said;
}

// What a program says that is started now.
static long nproc(void)
{
	long said = -1;
	FILE *output = popen("nproc", "r");
	if (!output || fscanf(output, "%ld", &said) != 1)
		said = -1;
	if (output)
		pclose(output);
	return said;
}

int main(void)
{
	double began = omp_get_wtime();
	long runtime = 1024, configured = 1024, command = 1024;
	int asked = 0, commands = 0, goes_on = 1;
#pragma omp parallel num_threads(3)
	while (goes_on) {
		for (volatile int i = 0; i < 400000; i++)
			;
#pragma omp barrier
#pragma omp master
		{
			if (is_kept_on_one_cpu()) {
				lower(&runtime, omp_get_num_procs());
				lower(&configured, sysconf(_SC_NPROCESSORS_ONLN));
				asked++;
				if (asked % (ASKED / COMMANDS) == 0) {
					lower(&command, nproc());
					commands++;
				}
			}
			goes_on = asked < ASKED && omp_get_wtime() - began < MOST_S;
		}
#pragma omp barrier
	}
	if (asked < ASKED || commands < COMMANDS)
		return 1;
	printf("%ld %ld %ld\n", runtime, configured, command);
	return 0;
}

// Threads that meet at barriers of OpenMP until a file is there, and check each time that all others have come as far, and
// that what they have computed is what they computed first. Prints how often something was wrong.
//   armed THREADS STEPS FACTOR DIES FILE
// Each second thread computes FACTOR times STEPS. With DIES = 1 the team has one thread less in each second of its parts,
// so that a thread ends, and another one begins.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 64 };

static long computed(long steps)
{
	unsigned long x = 1;
	for (long i = 0; i < steps; i++) {
		x = x * 6364136223846793005UL + 1442695040888963407UL;
		__asm__ volatile("" : "+r"(x));
	}
	return (long)(x >> 1);
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	int n = atoi(argv[1]), dies = atoi(argv[4]);
	long steps = atol(argv[2]), factor = atol(argv[3]);
	// Phases of a part. It takes up to a second to learn how a new thread is to be moved, so those that end live for longer.
	long phases = dies ? 1500 : 300;
	long first[2] = { computed(steps), computed(steps * factor) };
	long came[MOST] = { 0 };
	long wrong = 0;
	for (int part = 0; access(argv[5], F_OK) != 0; part++) {
		int team = dies && part % 2 ? n - 1 : n;
		for (int i = 0; i < team; i++)
			came[i] = 0;
#pragma omp parallel num_threads(team) reduction(+ : wrong)
		{
			int me = omp_get_thread_num();
			for (long phase = 1; phase <= phases; phase++) {
				wrong += computed(me % 2 ? steps * factor : steps) != first[me % 2];
				came[me] = phase;
#pragma omp barrier
				for (int i = 0; i < team; i++)
					wrong += came[i] != phase;
#pragma omp barrier
			}
		}
	}
	printf("%ld wrong\n", wrong);
	return 0;
}

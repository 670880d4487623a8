// Regions and tasks that end in a call of the runtime or of MPI, which compilers make a jump: the function called then returns
// to whoever has called the region. To be compiled with -O2. Usage: tails, or as a module; with -DMPI as ranks.
#include <stdio.h>
#include <unistd.h>
#ifdef MPI
#include <mpi.h>
#endif

enum { ROUNDS = 20 };
static int counts[5];

static void barrier(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp atomic
		counts[0]++;
#pragma omp barrier
	}
}

static void taskwait(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp task
		{
#pragma omp atomic
			counts[1]++;
#pragma omp taskwait
		}
#pragma omp taskwait
	}
}

static void loop(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp for schedule(dynamic)
		for (int i = 0; i < 10; i++)
			__atomic_fetch_add(&counts[2], 1, __ATOMIC_RELAXED);
	}
}

static void sections(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp sections
		{
#pragma omp section
			__atomic_fetch_add(&counts[3], 1, __ATOMIC_RELAXED);
#pragma omp section
			__atomic_fetch_add(&counts[3], 2, __ATOMIC_RELAXED);
		}
	}
}

static void single(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp single
		counts[4]++;
	}
}

#ifdef MODULE
// While dlopen has the lock of the loader.
__attribute__((constructor)) static void early(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp atomic
		counts[0]++;
#pragma omp barrier
#pragma omp single
		counts[4]++;
	}
}
#endif

void jump(void)
{
#pragma omp parallel num_threads(3)
	{
#pragma omp for schedule(dynamic)
		for (int i = 0; i < 10; i++)
			__atomic_fetch_add(&counts[2], 1, __ATOMIC_RELAXED);
#pragma omp single
		counts[4]++;
	}
}

int run(const char *what)
{
	(void)what;
	for (int round = 0; round < ROUNDS; round++) {
		barrier();
		taskwait();
		loop();
		sections();
		single();
	}
	for (int i = 0; i < 5; i++)
		printf("%d\n", counts[i]);
	return 0;
}

#ifdef MPI
static void rank(void *unused)
{
	(void)unused;
#pragma omp parallel num_threads(1)
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	int provided, number;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
	for (int round = 0; round < ROUNDS; round++)
		rank(NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &number);
	if (number == 0)
		printf("met\n");
	return MPI_Finalize();
}
#elif !defined MODULE
int main(void)
{
	return run("");
}
#endif

/*
 * Small messages at a steady rate: pairs of ranks exchange 8 bytes, compute a while, and exchange again; a
 * rank that is alone sends them to itself, and never waits. For measuring what a probe costs. The work is
 * given as a number of steps, so that runs that are compared do the same; --calibrate finds out how many steps
 * make the rate that is wanted.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int me, n;

static void refuse(const char *what, const char *argument)
{
	if (me == 0)
		fprintf(stderr, "mpi_rate: %s%s; see mpi_rate --help\n", what, argument);
	MPI_Finalize();
	exit(2);
}

static uint64_t number(const char *text, const char *option)
{
	char *end;
	unsigned long long value = text ? strtoull(text, &end, 10) : 0;
	if (!text || end == text || *end || *text == '-' || value > 1000000000)
		refuse("a whole number up to 1000000000 is needed for ", option);
	return value;
}

/* Steps that depend on each other: the compiler can leave none out. */
static uint64_t work(uint64_t steps, uint64_t x)
{
	for (uint64_t k = 0; k < steps; k++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	return x;
}

/* One exchange with the other rank of the pair. */
static uint64_t exchange(uint64_t value)
{
	int other = n == 1 ? 0 : me ^ 1;
	uint64_t in = 0;
	MPI_Request request;
	MPI_Irecv(&in, 1, MPI_UINT64_T, other, 0, MPI_COMM_WORLD, &request);
	MPI_Send(&value, 1, MPI_UINT64_T, other, 0, MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return in;
}

static double cpu_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* So many exchanges with so much work between them: what they took in seconds, and in seconds of CPU time;
 * each of the slowest rank. */
struct took {
	double wall, cpu;
};

static struct took run(uint64_t messages, uint64_t steps, uint64_t *x)
{
	struct took longest;
	MPI_Barrier(MPI_COMM_WORLD);
	double begun = MPI_Wtime(), cpu_begun = cpu_time();
	for (uint64_t k = 0; k < messages; k++)
		*x = work(steps, *x ^ exchange(*x + k));
	double took[2] = { MPI_Wtime() - begun, cpu_time() - cpu_begun }, all[2];
	MPI_Allreduce(took, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	longest.wall = all[0];
	longest.cpu = all[1];
	return longest;
}

int main(int argc, char **argv)
{
	uint64_t messages = 100000, steps = 0, rate = 0, x;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--messages"))
			messages = number(argv[++i], "--messages");
		else if (!strcmp(argv[i], "--steps"))
			steps = number(argv[++i], "--steps");
		else if (!strcmp(argv[i], "--calibrate"))
			rate = number(argv[++i], "--calibrate");
		else if (!strcmp(argv[i], "--help")) {
			if (me == 0)
				puts("usage: mpi_rate [--messages N] [--steps N] | --calibrate RATE\n"
				     "  --messages N      messages of each rank (100000)\n"
				     "  --steps N         steps of computation after each (0)\n"
				     "  --calibrate RATE  print the steps with which each rank sends RATE a second\n"
				     "Example: mpirun -n 2 mpi_rate --messages 200000 --steps 8000");
			MPI_Finalize();
			return 0;
		} else
			refuse("no such option: ", argv[i]);
	}
	if (n % 2 != 0 && n != 1)
		refuse("one rank, or an even number of them, is needed", "");
	x = (uint64_t)me + 1;
	run(1000, 100, &x);
	if (rate) {
		/* The fastest of several: the rate of an undisturbed run. */
		double idle = 1e9, busy = 1e9;
		for (int k = 0; k < 9; k++) {
			double t = run(5000, 0, &x).cpu / 5000;
			idle = t < idle ? t : idle;
			t = run(5000, 5000, &x).cpu / 5000;
			busy = t < busy ? t : busy;
		}
		double wanted = (1.0 / (double)rate - idle) / ((busy - idle) / 5000);
		if (me == 0)
			printf("%llu\n", (unsigned long long)(wanted > 0 ? wanted : 0));
	} else {
		struct took took = run(messages, steps, &x);
		uint64_t sum;
		MPI_Reduce(&x, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
		if (me == 0)
			printf("{\"program\":\"mpi_rate\",\"ranks\":%d,\"messages\":%llu,\"steps\":%llu,"
			       "\"seconds\":%.9f,\"cpu_s\":%.9f,\"checksum\":\"%016llx\"}\n",
				n, (unsigned long long)messages, (unsigned long long)steps, took.wall, took.cpu,
				(unsigned long long)sum);
	}
	MPI_Finalize();
	return 0;
}

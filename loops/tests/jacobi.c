/* Jacobi by threads of pthreads: the sum is the same for each number of threads, and each policy. */
#include <evenly/loops.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 66, COLUMNS = 32, STEPS = 50 };
static double grids[2][ROWS][COLUMNS];
static evenly_region *sweep;
static int64_t changed[16];

/* Integers without a sign are in their own order; those with one stay as they are. */
static void reduces(evenly_loop *loop, size_t thread)
{
	const uint64_t large = UINT64_MAX - thread;
	const unsigned char small = thread ? 200 : 7;
	const long negative = thread ? 3 : -5;
	if (evenly_reduce_int64(loop, EVENLY_MAX, thread ? 1 : large) != UINT64_MAX ||
	    evenly_reduce_int64(loop, EVENLY_MIN, thread ? large : 1ULL) != 1 ||
	    evenly_reduce_uint64(loop, EVENLY_MIN, thread ? large : 2) != 2 ||
	    evenly_reduce_int64(loop, EVENLY_MIN, small) != 7 || evenly_reduce_int64(loop, EVENLY_MIN, negative) != -5)
		abort();
	/* It is a function all the same. */
	int64_t (*by_address)(evenly_loop *, int, int64_t) = evenly_reduce_int64;
	if (by_address(loop, EVENLY_MIN, negative) != -5)
		abort();
}

static void *steps(void *number)
{
	size_t thread = (size_t)number;
	for (int step = 0; step < STEPS; step++) {
		double(*from)[COLUMNS] = grids[step % 2], (*to)[COLUMNS] = grids[1 - step % 2];
		evenly_loop *loop = evenly_begin(sweep, thread, 1, ROWS - 1, 1);
		int64_t lb, ub, stride, rows = 0;
		while (evenly_next_task(loop, &lb, &ub, &stride))
			for (int64_t i = lb; i < ub; i += stride, rows++)
				for (int j = 1; j < COLUMNS - 1; j++)
					to[i][j] = (from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]) / 4;
		changed[thread] = evenly_reduce_int64(loop, EVENLY_SUM, rows);
		reduces(loop, thread);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	size_t threads = (size_t)(argc > 1 ? atoi(argv[1]) : 2);
	for (int i = 0; i < ROWS; i++)
		grids[0][i][0] = grids[1][i][0] = i;
	evenly_team *team = evenly_team_new(threads);
	sweep = evenly_region_new(team, "sweep", EVENLY_FIXED, EVENLY_STENCIL);
	for (int grid = 0; grid < 2; grid++)
		evenly_team_array(team, grids[grid], sizeof(double), 2, (size_t[]){ROWS, COLUMNS});
	evenly_region_uses(sweep, EVENLY_READS, grids[0], sizeof(double), COLUMNS, 0);
	evenly_region_uses(sweep, EVENLY_WRITES, grids[1], sizeof(double), COLUMNS, 0);
	if (argc > 2)
		evenly_region_policy(sweep, argv[2]);
	pthread_t started[16];
	for (size_t t = 0; t < threads; t++)
		pthread_create(&started[t], NULL, steps, (void *)t);
	uint64_t iterations = 0;
	for (size_t t = 0; t < threads; t++) {
		pthread_join(started[t], NULL);
		iterations += evenly_region_iterations(sweep, t);
	}
	double sum = 0;
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			sum += grids[0][i][j];
	printf("%.9f %llu %lld\n", sum, (unsigned long long)iterations, (long long)changed[threads - 1]);
	evenly_region_free(sweep);
	evenly_team_free(team);
	return 0;
}

/* Parallel loops whose iterations follow the machine: each thread of a team is given as many as it gets done in the same time as
 * the others. For C11 and C++17 (for Fortran: loops.f90 beside this file); link with -levenly_loops (the static library needs
 * -lpthread -ldl -lm as well).
 *
 *     evenly_team *team = evenly_team_new(threads);
 *     evenly_team_array(team, grid, sizeof(double), 2, (size_t[]){rows, columns}); // or not: then nothing is checked
 *     evenly_region *sweep = evenly_region_new(team, "sweep", EVENLY_FIXED, EVENLY_STENCIL);
 *     evenly_region_uses(sweep, EVENLY_WRITES, &grid[0][0], sizeof(double), columns, 0);
 *
 *     // by each thread of the team: of OpenMP, pthreads, or whatever else makes threads
 *     evenly_loop *loop = evenly_begin(sweep, thread, 1, rows - 1, 1);
 *     int64_t lb, ub, stride;
 *     while (evenly_next_task(loop, &lb, &ub, &stride))
 *         for (int64_t i = lb; i < ub; i += stride) // i++ where the stride is 1: compilers vectorise that
 *             ...
 *
 * All threads of a team begin the same loops, with the same bounds, in the same order, and go on until there is no further task
 * (no break, return, goto or longjmp out of it). OpenMP may start fewer threads than it is asked for: omp_get_num_threads() says how
 * many there are. evenly_next_task returns 0 when all threads have carried out all of theirs: it is a barrier at the end of the loop
 * (but for evenly_region_overtakes), and there is none at its begin.
 *
 * What a program does wrong is said in one line on the standard error, and the program is aborted, as it would have a wrong answer;
 * see evenly_loops_on_error. Of a thread that has not come to a loop for 5 s, or to its end for 10 s, the standard error has a line, once
 * for each team; it is waited for all the same. A process may exit within a loop: its other threads wait until it is gone. */
#ifndef EVENLY_LOOPS_H
#define EVENLY_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct evenly_team evenly_team;
typedef struct evenly_region evenly_region;
typedef struct evenly_loop evenly_loop;

/* Whether iterations have all about the same to do. */
enum evenly_load { EVENLY_FIXED = 0, EVENLY_VARIABLE = 1 };
/* Which iterations use the same data: none, those that follow one another (which are kept together), or nobody knows (which are kept
 * together if their load is fixed). */
enum evenly_access { EVENLY_INDEPENDENT = 0, EVENLY_STENCIL = 1, EVENLY_UNKNOWN = 2 };
enum evenly_use { EVENLY_READS = 0, EVENLY_WRITES = 1 };
enum evenly_operation { EVENLY_SUM = 0, EVENLY_MIN = 1, EVENLY_MAX = 2 };

/* A team of so many threads, which the program makes, and numbers from 0 on. Freed after all of its loops. */
evenly_team *evenly_team_new(size_t threads);
void evenly_team_free(evenly_team *team);

/* An array that loops share has so many dimensions, of so many elements each: grid[rows][columns] has sizes {rows, columns}. A loop
 * that would leave it, as it is declared by evenly_region_uses, is then an error. That holds for loops that are begun for the first
 * time after it; until something else is said of the same address, as when the memory is used for another array; 0 dimensions: that
 * nobody knows. */
void evenly_team_array(evenly_team *team, const void *array, size_t element_bytes, size_t dimensions, const size_t *sizes);

/* A loop, which is declared once, and then begun as often as it is carried out. It is freed when evenly_next_task has returned 0 to
 * all threads, and none of them reduces any longer. */
evenly_region *evenly_region_new(evenly_team *team, const char *name, int load, int access);
void evenly_region_free(evenly_region *region);

/* It uses array[a * i + b] and what follows up to the next iteration; i is the variable of the loop. Before it is begun. What
 * is declared decides where iterations are: next to their data, and not two threads in one cache line. */
void evenly_region_uses(evenly_region *region, int use, const void *array, size_t element_bytes, int64_t a, int64_t b);

/* How iterations are handed out: auto (found by trying; if not said), static, static-steal, rp, rp-steal, guided, factoring,
 * awf-b. Before it is begun. In the environment, EVENLY_LOOPS=NAME says so for all loops for which the program does not. Only by
 * static each thread has the same iterations each time; by all others one thread may carry out all of a loop. */
void evenly_region_policy(evenly_region *region, const char *name);

/* The loop ends when all of its iterations are carried out, even if a thread has not begun it: one whose CPU somebody else has. That
 * thread is given nothing, and goes on to the next loop, while the others may be any number of loops ahead. To be said only where
 * what a thread reads outside of loops is its own, or is not written any more: neither by another thread after the loop (bounds,
 * pointers that are swapped) nor by later loops (results that it looks at between two loops). If not said, no thread goes on before
 * all have come. Before it is begun. */
void evenly_region_overtakes(evenly_region *region);

/* Begins the loop `for (i = lb; i < ub; i += stride)`, or `i > ub` where stride is negative. */
evenly_loop *evenly_begin(evenly_region *region, size_t thread, int64_t lb, int64_t ub, int64_t stride);

/* Gives the thread its next part, and returns 1; or returns 0 when the loop has ended. */
int evenly_next_task(evenly_loop *loop, int64_t *lb, int64_t *ub, int64_t *stride);

/* What all threads give, put together in the order of their numbers: each gets the same. By all threads, after the loop, which wait
 * for each other; after several loops in the same order. A sum differs in its last digits as iterations are divided in other ways.
 * In C evenly_reduce_int64 is evenly_reduce_uint64 where an unsigned type of 64 bits is given, which has another order; with a
 * floating-point number, of which it would lose a part, it does not compile. */
double evenly_reduce_double(evenly_loop *loop, int operation, double given);
int64_t evenly_reduce_int64(evenly_loop *loop, int operation, int64_t given);
uint64_t evenly_reduce_uint64(evenly_loop *loop, int operation, uint64_t given);
#ifndef __cplusplus
/* There is none: what cannot be called with arguments does not compile, and its name says why. */
void evenly_reduce_double_is_meant(void);
/* A name within its own macro is that of the function. unsigned long is of 32 bits somewhere: it has the same order by either. */
#define evenly_reduce_int64(loop, operation, given)                                                                               \
	_Generic((given), unsigned long: evenly_reduce_uint64, unsigned long long: evenly_reduce_uint64,                           \
		 float: evenly_reduce_double_is_meant, double: evenly_reduce_double_is_meant,                                      \
		 long double: evenly_reduce_double_is_meant, default: evenly_reduce_int64)(loop, operation, given)
#endif

/* The thread leaves the loop before its end, as by an exception: the loop is given up, for all threads. After the end of a loop it
 * does nothing. */
void evenly_abandon(evenly_loop *loop);

/* Whether a loop has been given up. */
int evenly_failed(const evenly_region *region);

/* How many iterations a thread has carried out so far. */
uint64_t evenly_region_iterations(const evenly_region *region, size_t thread);

/* What is called, with one line, where a program does something wrong; NULL is to print it and abort. Where it returns, the loop
 * is given up, for good: evenly_begin returns NULL, for which evenly_next_task returns 0, and evenly_failed says so. It is called
 * once for each reason, by the thread that is the first to see it. Other loops of the team go on. */
void evenly_loops_on_error(void (*handler)(const char *message));

#ifdef __cplusplus
} /* extern "C" */

#include <stdexcept>
#include <type_traits>

namespace evenly {

/* A loop that is given up where an exception leaves it, so that no other thread waits for this one: their next() throws. To be used
 * with an error handler that returns. */
class loop {
	evenly_region *region;
	evenly_loop *own;
	/* Then the thread may have begun another one, which is not this object's to give up. */
	bool has_ended = false;

public:
	loop(evenly_region *of, size_t thread, int64_t from, int64_t to, int64_t by = 1)
	    : region(of), own(evenly_begin(of, thread, from, to, by))
	{
		if (own && evenly_failed(region))
			evenly_abandon(own);
		check();
	}
	loop(const loop &) = delete;
	loop &operator=(const loop &) = delete;
	~loop()
	{
		if (own && !has_ended)
			evenly_abandon(own);
	}
	bool next(int64_t &lb, int64_t &ub, int64_t &stride)
	{
		if (!has_ended && evenly_next_task(own, &lb, &ub, &stride))
			return true;
		has_ended = true;
		check();
		return false;
	}
	/* As a double, or in all its digits where it is an integer. */
	template <typename T> T reduce(int operation, T given)
	{
		static_assert(std::is_arithmetic<T>::value, "numbers are reduced");
		T all;
		if constexpr (std::is_integral<T>::value) {
			static_assert(sizeof(T) <= sizeof(int64_t), "integers have at most 64 bits");
			if constexpr (std::is_unsigned<T>::value)
				all = static_cast<T>(evenly_reduce_uint64(own, operation, given));
			else
				all = static_cast<T>(evenly_reduce_int64(own, operation, given));
		} else
			all = static_cast<T>(evenly_reduce_double(own, operation, static_cast<double>(given)));
		check();
		return all;
	}

private:
	void check() const
	{
		if (!own || evenly_failed(region))
			throw std::runtime_error("a loop of evenly was given up");
	}
};

} // namespace evenly
#endif
#endif

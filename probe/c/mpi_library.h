/*
 * The MPI library behind the probe that counts: its functions, its handles, and what the probe knows of the
 * process.
 */
#ifndef EVENLY_MPI_LIBRARY_H
#define EVENLY_MPI_LIBRARY_H

#ifndef EVENLY_MESSAGES_H /* these stand before this where evenly has it compiled */
#include "messages.h"
#endif
#ifndef EVENLY_CLOCK_H
#include "clock.h"
#endif
#ifndef EVENLY_NEXT_H
#include "next.h"
#endif
#ifndef EVENLY_SHARED_H
#include "shared.h"
#endif
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(MPI_Fint) == sizeof(int), "integers of Fortran are those of C");

/* ---------------------------------------------------------------- functions of the MPI library */

#define COLD __attribute__((noinline, cold))
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* The library with the MPI that was initialised first. It stays loaded. */
static _Atomic(void *) home;
/* Another one has been initialised, too: which of them a call is for depends on who calls. */
static _Atomic bool several_mpis;

/* The caller: the object before this one that calls on to it, or what has called that. */
static const void *first_caller(const void *caller)
{
	Dl_info here_, before;
	struct evenly_stamp *(*stamp)(void) = (struct evenly_stamp *(*)(void))dlsym(RTLD_DEFAULT, EVENLY_STAMP);
	if (stamp && dladdr(caller, &here_) && dladdr((void *)stamp, &before) && here_.dli_fbase == before.dli_fbase)
		return stamp()->caller;
	return caller;
}

/* What is called where no MPI library has the function. Only a program comes here that has asked whether there is such a
 * function, and was shown the wrapper. */
static int no_function(void)
{
	return MPI_ERR_OTHER;
}

/* What this caller means by a name; NULL where nothing is. */
static void *of_mpi(const char *name, const void *caller)
{
	void *at = of_either(dlsym(RTLD_NEXT, name), name, first_caller(caller));
	return at ? at : of_runtime(name);
}

static COLD void *look_up(_Atomic(void *) *slot, const char *name, const void *caller)
{
	int before = errno;
	void *at = NULL;
	void *library = atomic_load(&home);
	if (library && !atomic_load(&several_mpis)) {
		at = dlsym(library, name);
		if (!at)
			at = dlsym(RTLD_NEXT, name);
		/* Relaxed: what it points to was there before any thread. One that another object brings may go with it,
		 * and is not kept. */
		if (at)
			atomic_store_explicit(slot, at, memory_order_relaxed);
	}
	if (!at)
		at = of_mpi(name, caller);
	errno = before;
	return at ? at : (void *)no_function;
}

/* The function that a wrapper calls on to. */
static inline void *next_of(_Atomic(void *) *slot, const char *name, const void *caller)
{
	void *at = atomic_load_explicit(slot, memory_order_relaxed);
	return at && !atomic_load_explicit(&several_mpis, memory_order_relaxed) ? at : look_up(slot, name, caller);
}

static COLD void *look_up_at_home(_Atomic(void *) *slot, const char *name)
{
	int before = errno;
	void *library = atomic_load(&home);
	void *at = library ? dlsym(library, name) : NULL;
	if (at)
		atomic_store_explicit(slot, at, memory_order_relaxed);
	errno = before;
	return at ? at : (void *)no_function;
}

/* A function of the MPI whose messages are counted. */
static inline void *at_home(_Atomic(void *) *slot, const char *name)
{
	void *at = atomic_load_explicit(slot, memory_order_relaxed);
	return at ? at : look_up_at_home(slot, name);
}

/* Calls a function of that MPI that is not wrapped, or past its wrapper. */
#define PMPI(name, params, ...)                                              \
	({                                                                   \
		static _Atomic(void *) next_;                                \
		((int(*) params)at_home(&next_, "PMPI_" #name))(__VA_ARGS__); \
	})

/* A variable of it, which may be in the program. */
static void *variable(const char *name)
{
	void *library = atomic_load(&home);
	void *at = dlsym(RTLD_DEFAULT, name);
	return at || !library ? at : dlsym(library, name);
}

/* Handles. Those of Open MPI are addresses of its variables; those of MPICH are numbers. */
#ifdef OPEN_MPI
#define PREDEFINED(type, name, mpich) ((type)variable(name))
#define FROM_FORTRAN(type, name)                                                             \
	static type name(MPI_Fint handle)                                                    \
	{                                                                                    \
		static _Atomic(void *) next;                                                 \
		return ((type(*)(MPI_Fint))at_home(&next, "P" #type "_f2c"))(handle);         \
	}
FROM_FORTRAN(MPI_Comm, comm_from)
static MPI_Datatype type_from(MPI_Fint handle)
{
	static _Atomic(void *) next;
	return ((MPI_Datatype(*)(MPI_Fint))at_home(&next, "PMPI_Type_f2c"))(handle);
}
FROM_FORTRAN(MPI_Win, win_from)
FROM_FORTRAN(MPI_Request, request_from)
#else
#define PREDEFINED(type, name, mpich) (mpich)
#define comm_from(handle) ((MPI_Comm)(handle))
#define type_from(handle) ((MPI_Datatype)(handle))
#define win_from(handle) ((MPI_Win)(handle))
#define request_from(handle) ((MPI_Request)(handle))
#endif

/* ---------------------------------------------------------------- state */

static _Atomic uint64_t outside_words, uncounted_words;

static struct {
	_Atomic bool running; /* MPI has been initialised, and the numbers are asked for */
	bool several;     /* threads may call at the same time */
	pid_t pid;
	int rank, ranks;
	MPI_Comm world;
	MPI_Group world_group;
	int comm_key, win_key;
	struct evenly_tally *sent, *fetched;
	_Atomic uint64_t *outside;   /* messages to ranks that are not in MPI_COMM_WORLD */
	_Atomic uint64_t *uncounted; /* collectives that were not counted */
	_Atomic uint64_t mpi_ns;     /* CPU time in MPI, of windows that are closed */
	struct evenly_rank *shared;  /* what evenly reads while the program runs; NULL where it does not */
	/* In ticks: an interval outside that is long, time in MPI that closes a window, a long brief call. */
	uint64_t long_from, mpi_from, brief_to;
	double ns_per_tick;
	uint64_t ticks_began, ns_began, wall_began, cpu_began;
	atomic_flag written;
} run = { .outside = &outside_words, .uncounted = &uncounted_words, .written = ATOMIC_FLAG_INIT };

static inline bool counts(void)
{
	/* Relaxed: what else is in `run` a thread sees that may call MPI, which it learns from the one that has initialised
	 * it. */
	return atomic_load_explicit(&run.running, memory_order_relaxed);
}

static inline void add(_Atomic uint64_t *to, uint64_t amount)
{
	/* Relaxed: counts, read at the end by one thread, which the program has synchronised with all that
	 * call MPI (MPI 4.0, 11.2.2), or by evenly, which takes each for itself. Where one thread calls at a
	 * time no locked operation is needed. */
	if (run.several)
		atomic_fetch_add_explicit(to, amount, memory_order_relaxed);
	else
		atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + amount,
			memory_order_relaxed);
}

#endif

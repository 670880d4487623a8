/*
 * How a wrapper is made, for C and for Fortran.
 */
#ifndef EVENLY_MPI_WRAP_H
#define EVENLY_MPI_WRAP_H

#ifndef EVENLY_MPI_PROFILE_H /* these stand before this where evenly has it compiled */
#include "mpi_profile.h"
#endif
#ifndef EVENLY_WORDS_H
#include "words.h"
#endif

/* ---------------------------------------------------------------- C */

#define EVENLY_WORD void *
#define L1 a0
#define L2 a1
#define L3 a2
#define L4 a3
#define L5 a4
#define L6 a5
#define L7 a6
#define L8 a7
#define L9 a8
#define L10 a9
#define L11 a10
#define L12 a11
#define L13 a12
#define L14 a13
_Static_assert(sizeof(EVENLY_WORD) == 8, "arguments are words");
/* So many words as there are arguments in a list in parentheses, which may be that of LIST; of none, one. */
#define LIST(...) __VA_ARGS__
#define NTH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, nth, ...) nth
#define NUMBER(...) NTH(__VA_ARGS__, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#define WORDS(args) JOIN(P, NUMBER args)
#define NAMES(args) JOIN(A, NUMBER args)

/*
 * MPI_<name>: what the program calls takes words, so that it can pass them on to an MPI whose handles are of another size.
 * Where this rank counts it goes on to the function with the arguments of mpi.h, which is the same symbol under both
 * names: called, then looked at where that was no error. What the MPI library has refused is not looked at, as to ask it
 * about wrong arguments is an error which ends the program, unless that handles errors of MPI_COMM_WORLD.
 */
#define WRAP_AS(brief, name, params, args, before, after)                                              \
	int counted_##name params __asm__("evenly_counted_" #name) __attribute__((visibility("hidden")));   \
	int counted_##name params                                                                           \
	{                                                                                                   \
		static _Atomic(void *) next;                                                                \
		unsigned entered = enter(brief);                                                            \
		if (entered) {                                                                              \
			before;                                                                             \
		}                                                                                           \
		int rc = ((int(*) params)at_home(&next, "PMPI_" #name)) args;                               \
		if (entered && rc == MPI_SUCCESS) {                                                         \
			after;                                                                              \
		}                                                                                           \
		leave(entered);                                                                             \
		return rc;                                                                                  \
	}                                                                                                   \
	int words_##name(WORDS(args)) __asm__("evenly_counted_" #name) __attribute__((visibility("hidden"))); \
	int evenly_##name(WORDS(args)) __asm__("MPI_" #name);                                               \
	int evenly_##name(WORDS(args))                                                                      \
	{                                                                                                   \
		static _Atomic(void *) next;                                                                \
		if (!counts())                                                                              \
			return ((int (*)(WORDS(args)))next_of(&next, "PMPI_" #name, CALLER))(NAMES(args));  \
		return words_##name(NAMES(args));                                                           \
	}
#define COUNTED(name, params, args, count) WRAP_AS(false, name, params, args, , count)
#define BRIEF(name, params, args, count) WRAP_AS(true, name, params, args, , count)
/* Before the call, which does not return or makes the request another. */
#define COUNTED_BEFORE(name, params, args, count) WRAP_AS(false, name, params, args, count, )
#define BRIEF_BEFORE(name, params, args, count) WRAP_AS(true, name, params, args, count, )

/* ---------------------------------------------------------------- Fortran */

/*
 * All arguments are addresses, and what is called is the next function of the same name, so that only
 * their number has to be known. Both libraries' Fortran functions call C functions past the wrappers
 * above (PMPI_...); where one does not, `enter` sees that it is inside of a call. Names: as gfortran, flang
 * and ifort make them of mpif.h and `use mpi`, and as `use mpi_f08` of Open MPI has them.
 */
/* Whether the last argument, which is NULL where the program does not ask, says that a call was no error. */
static inline bool went_well(const void *error)
{
	return !error || *(const MPI_Fint *)error == MPI_SUCCESS;
}

#define FORTRAN_NAME(brief, symbol, n, before, after)                               \
	void symbol(P##n);                                                         \
	void symbol(P##n)                                                          \
	{                                                                          \
		enum { by_value = 0 };                                             \
		static _Atomic(void *) next;                                       \
		unsigned entered = enter(brief);                                   \
		if (entered) {                                                     \
			before;                                                    \
		}                                                                  \
		((void (*)(P##n))next_of(&next, #symbol, CALLER))(A##n);           \
		if (entered && went_well(L##n)) {                                  \
			after;                                                     \
		}                                                                  \
		leave(entered);                                                    \
	}
#define FORTRAN_AS(brief, name, n, before, after)                  \
	FORTRAN_NAME(brief, mpi_##name##_, n, before, after)       \
	FORTRAN_NAME(brief, mpi_##name##_f08_, n, before, after)
#define FORTRAN(name, n, count) FORTRAN_AS(false, name, n, , count)
#define FORTRAN_BRIEF(name, n, count) FORTRAN_AS(true, name, n, , count)
#define FORTRAN_BEFORE(name, n, count) FORTRAN_AS(false, name, n, count, )
#define FORTRAN_BRIEF_BEFORE(name, n, count) FORTRAN_AS(true, name, n, count, )
#define FORTRAN_TIMED(name, n) FORTRAN_AS(false, name, n, , )

/*
 * The functions of MPI-4 in C that take large counts (MPI_Send_c) have the same arguments at the same places as
 * those of Fortran, so that what is counted is written down once for both: here arguments are words, and so
 * are the addresses that are Fortran's. They are defined under another name in C, as mpi.h declares them with
 * their own types.
 */
#if MPI_VERSION >= 4
_Static_assert(sizeof(MPI_Count) == 8, "arguments are words");
#define LARGE_AS(brief, name, n, before, after)                                     \
	int evenly_##name##_c(P##n) __asm__("MPI_" #name "_c");                     \
	int evenly_##name##_c(P##n)                                                 \
	{                                                                           \
		enum { by_value = 1 };                                              \
		static _Atomic(void *) next;                                        \
		unsigned entered = enter(brief);                                    \
		if (entered) {                                                      \
			before;                                                     \
		}                                                                   \
		int rc = ((int(*)(P##n))next_of(&next, "PMPI_" #name "_c", CALLER))(A##n);  \
		if (entered && rc == MPI_SUCCESS) {                                 \
			after;                                                      \
		}                                                                   \
		leave(entered);                                                     \
		return rc;                                                          \
	}
#else
#define LARGE_AS(brief, name, n, before, after)
#endif
#define LARGE(name, n, count) LARGE_AS(false, name, n, , count)
#define LARGE_BRIEF(name, n, count) LARGE_AS(true, name, n, , count)

/* The arguments of either; `by_value` says whose. */
#define WORD(i) ((intptr_t)a##i)
#define FINT(i) (*(const MPI_Fint *)a##i)
#define INT(i) (by_value ? (int)WORD(i) : FINT(i))
#define COUNT(i) (by_value ? (int64_t)WORD(i) : (int64_t)FINT(i))
#define TYPE(i) (by_value ? (MPI_Datatype)WORD(i) : type_from(FINT(i)))
#define COMM(i) (by_value ? (MPI_Comm)WORD(i) : comm_from(FINT(i)))
#define WIN(i) (by_value ? (MPI_Win)WORD(i) : win_from(FINT(i)))
#define REQUEST(i) (by_value ? *(const MPI_Request *)a##i : request_from(FINT(i)))
#define ONE(i) ((struct counts){ .one = COUNT(i) })
#define EACH(i)                                                                     \
	((struct counts){ .ints = by_value ? NULL : (const int *)a##i,              \
		.large = by_value ? (const MPI_Count *)a##i : NULL })
#define IN_PLACE(i) (by_value ? a##i == MPI_IN_PLACE : fortran_in_place(a##i))
/* Those of C that take ints. */
#define OF_ONE(all) ((struct counts){ .one = all })
#define OF_EACH(several) ((struct counts){ .ints = several })

/* Whether a buffer is the MPI_IN_PLACE of Fortran, which is a variable. */
static bool fortran_in_place(const void *buffer)
{
#ifdef OPEN_MPI
	return buffer == variable("mpi_fortran_in_place_");
#else
	void **in_place = variable("MPIR_F_MPI_IN_PLACE");
	return in_place && buffer == *in_place;
#endif
}

/* Collectives with types for each rank or neighbour; the types of Fortran are numbers. */
static void count_types(struct counts counts, const void *types, bool by_value, MPI_Comm comm, bool neighbours)
{
	void (*count)(struct counts, const MPI_Datatype *, bool, MPI_Comm) =
		neighbours ? count_neighbours : count_alltoall;
	if (by_value) {
		count(counts, types, false, comm);
		return;
	}
	const struct members *m = members_of(comm);
	int n = !m ? 0 : neighbours ? m->degree : m->size;
	MPI_Datatype *converted = malloc(sizeof *converted * (size_t)(n + 1));
	for (int i = 0; converted && i < n; i++)
		converted[i] = type_from(((const MPI_Fint *)types)[i]);
	if (m && converted)
		count(counts, converted, false, comm);
	free(converted);
}

#endif

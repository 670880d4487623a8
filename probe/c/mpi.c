/*
 * Who computes how much and who talks to whom in an MPI program, counted while it runs.
 *
 * A library for LD_PRELOAD: it stands before the MPI library (the profiling interface, MPI 4.0, chapter
 * 15), counts, and calls on. `evenly map --profile` builds it for the MPI that the program uses, starts
 * the program with it, and reads what it writes: a file for each rank, `rank-N.json` in
 * $EVENLY_PROFILE_DIR, of schema evenly.profile/1. `evenly run --probe on` reads the same numbers while the
 * program runs, in the file that $EVENLY_MESSAGES names (messages.h). Without these variables it only passes
 * calls on.
 *
 *   messages  a tally for each rank of MPI_COMM_WORLD: sent to it; fetched from it (one-sided reads).
 *             Collectives count as messages of the algorithm that docs/map.md ("Profiles") writes down,
 *             whatever the MPI library makes of them.
 *   load      CPU time of the process outside MPI: all of its CPU time less that of calls.
 *
 * Invariants: it sends nothing itself; the program sees the same results; nothing here ends the program or writes to
 * its files; whatever is shared between threads is atomic or under a lock; calls that the MPI library makes of its own
 * functions are not counted twice (`depth`). It knows the handles of one MPI. The program may use another, as one does
 * that a launcher of this MPI starts, or two of them in one process: then every argument is passed on as it came, and
 * nothing is counted. It refers to no symbol of MPI when it is linked, so that it can be loaded into
 * anything (a launcher, a shell) without harm: all is looked up when it is needed.
 *
 * Not counted, and said in docs/map.md: persistent collectives and partitioned communication (MPI-4),
 * collectives between groups (intercommunicators; they are in "uncounted"), files, and reading of memory that
 * ranks share.
 */
#ifndef EVENLY_MPI_WRAP_H
#include "mpi_wrap.h"
#endif

/* ---------------------------------------------------------------- beginning and end, wrapped */

#define BEGIN(name, n)                                                        \
	int evenly_##name(P##n) __asm__("MPI_" #name);                        \
	int evenly_##name(P##n)                                               \
	{                                                                     \
		bool outermost = here.depth++ == 0;                           \
		int (*next)(P##n) = before_init("PMPI_" #name, CALLER);       \
		int rc = next(A##n);                                          \
		if (outermost && rc == MPI_SUCCESS)                           \
			after_init();                                         \
		here.depth--;                                                 \
		return rc;                                                    \
	}
#define FORTRAN_BEGIN(symbol, n)                                   \
	void symbol(P##n);                                         \
	void symbol(P##n)                                          \
	{                                                          \
		bool outermost = here.depth++ == 0;                \
		void (*next)(P##n) = before_init(#symbol, CALLER); \
		next(A##n);                                        \
		if (outermost && went_well(L##n))                  \
			after_init();                              \
		here.depth--;                                      \
	}
BEGIN(Init, 2)
BEGIN(Init_thread, 4)
FORTRAN_BEGIN(mpi_init_, 1)
FORTRAN_BEGIN(mpi_init_f08_, 1)
FORTRAN_BEGIN(mpi_init_thread_, 3)
FORTRAN_BEGIN(mpi_init_thread_f08_, 3)
COUNTED_BEFORE(Finalize, (void), (), finish("finalize"))
FORTRAN_BEFORE(finalize, 1, finish("finalize"))
COUNTED_BEFORE(Abort, (MPI_Comm comm, int code), (comm, code), finish("abort"))
FORTRAN_BEFORE(abort, 3, finish("abort"))

/* ---------------------------------------------------------------- point to point */

#define SEND(name, fortran)                                                                          \
	COUNTED(name, (const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm), \
		(buffer, count, type, to, tag, comm), count_send(count, type, to, comm))                  \
	FORTRAN(fortran, 7, count_send(COUNT(1), TYPE(2), INT(3), COMM(5)))                       \
	LARGE(name, 7, count_send(COUNT(1), TYPE(2), INT(3), COMM(5)))
#define SEND_REQUEST(name, fortran, counting, f_counting)                                                  \
	BRIEF(name,                                                                                        \
		(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,         \
			MPI_Request *request),                                                             \
		(buffer, count, type, to, tag, comm, request), counting)                                   \
	FORTRAN_BRIEF(fortran, 8, f_counting)                                                              \
	LARGE_BRIEF(name, 8, f_counting)
#define ISEND(name, fortran)                                                         \
	SEND_REQUEST(name, fortran, count_send(count, type, to, comm),               \
		count_send(COUNT(1), TYPE(2), INT(3), COMM(5)))
#define SEND_INIT(name, fortran)                                                     \
	SEND_REQUEST(name, fortran, keep_send(count, type, to, comm, *request),      \
		keep_send(COUNT(1), TYPE(2), INT(3), COMM(5), REQUEST(6)))

SEND(Send, send)
SEND(Bsend, bsend)
SEND(Ssend, ssend)
SEND(Rsend, rsend)
ISEND(Isend, isend)
ISEND(Ibsend, ibsend)
ISEND(Issend, issend)
ISEND(Irsend, irsend)
SEND_INIT(Send_init, send_init)
SEND_INIT(Bsend_init, bsend_init)
SEND_INIT(Ssend_init, ssend_init)
SEND_INIT(Rsend_init, rsend_init)

COUNTED(Sendrecv,
	(const void *buffer, int count, MPI_Datatype type, int to, int tag, void *in, int in_count,
		MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status),
	(buffer, count, type, to, tag, in, in_count, in_type, from, in_tag, comm, status),
	count_send(count, type, to, comm))
FORTRAN(sendrecv, 13, count_send(COUNT(1), TYPE(2), INT(3), COMM(10)))
LARGE(Sendrecv, 13, count_send(COUNT(1), TYPE(2), INT(3), COMM(10)))
COUNTED(Sendrecv_replace,
	(void *buffer, int count, MPI_Datatype type, int to, int tag, int from, int in_tag, MPI_Comm comm,
		MPI_Status *status),
	(buffer, count, type, to, tag, from, in_tag, comm, status), count_send(count, type, to, comm))
FORTRAN(sendrecv_replace, 10, count_send(COUNT(1), TYPE(2), INT(3), COMM(7)))
LARGE(Sendrecv_replace, 10, count_send(COUNT(1), TYPE(2), INT(3), COMM(7)))
#if MPI_VERSION >= 4
BRIEF(Isendrecv,
	(const void *buffer, int count, MPI_Datatype type, int to, int tag, void *in, int in_count,
		MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Request *request),
	(buffer, count, type, to, tag, in, in_count, in_type, from, in_tag, comm, request),
	count_send(count, type, to, comm))
FORTRAN_BRIEF(isendrecv, 13, count_send(COUNT(1), TYPE(2), INT(3), COMM(10)))
LARGE_BRIEF(Isendrecv, 13, count_send(COUNT(1), TYPE(2), INT(3), COMM(10)))
BRIEF(Isendrecv_replace,
	(void *buffer, int count, MPI_Datatype type, int to, int tag, int from, int in_tag, MPI_Comm comm,
		MPI_Request *request),
	(buffer, count, type, to, tag, from, in_tag, comm, request), count_send(count, type, to, comm))
FORTRAN_BRIEF(isendrecv_replace, 10, count_send(COUNT(1), TYPE(2), INT(3), COMM(7)))
LARGE_BRIEF(Isendrecv_replace, 10, count_send(COUNT(1), TYPE(2), INT(3), COMM(7)))
#endif

BRIEF(Start, (MPI_Request *request), (request), persistent(*request, false))
FORTRAN_BRIEF(start, 2, persistent(REQUEST(0), false))
BRIEF(Startall, (int count, MPI_Request requests[]), (count, requests),
	for (int i = 0; i < count; i++) persistent(requests[i], false))
FORTRAN_BRIEF(startall, 3, for (int i = 0; i < INT(0); i++) persistent(request_from(((const MPI_Fint *)a1)[i]), false))
BRIEF_BEFORE(Request_free, (MPI_Request *request), (request), persistent(*request, true))
FORTRAN_BRIEF_BEFORE(request_free, 2, persistent(REQUEST(0), true))

/* ---------------------------------------------------------------- collectives, blocking and not */

/* n: arguments of the blocking one in Fortran. */
#define WITHOUT_COUNTS(name, iname, fortran, ifortran, n, in, params, args, count, f_count)        \
	COUNTED(name, (LIST params), (LIST args), count)                                           \
	COUNTED(iname, (LIST params, MPI_Request *request), (LIST args, request), count)           \
	FORTRAN(fortran, n, f_count)                                                               \
	FORTRAN(ifortran, in, f_count)
#define COLLECTIVE(name, iname, fortran, ifortran, n, in, params, args, count, f_count)            \
	WITHOUT_COUNTS(name, iname, fortran, ifortran, n, in, params, args, count, f_count)        \
	LARGE(name, n, f_count)                                                                    \
	LARGE(iname, in, f_count)

WITHOUT_COUNTS(Barrier, Ibarrier, barrier, ibarrier, 2, 3, (MPI_Comm comm), (comm), count_barrier(comm),
	count_barrier(COMM(0)))
COLLECTIVE(Bcast, Ibcast, bcast, ibcast, 6, 7,
	(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
	(buffer, count, type, root, comm), count_bcast(count, type, root, comm),
	count_bcast(COUNT(1), TYPE(2), INT(3), COMM(4)))
COLLECTIVE(Reduce, Ireduce, reduce, ireduce, 8, 9,
	(const void *buffer, void *in, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
	(buffer, in, count, type, op, root, comm), count_reduce(count, type, root, comm),
	count_reduce(COUNT(2), TYPE(3), INT(5), COMM(6)))
COLLECTIVE(Allreduce, Iallreduce, allreduce, iallreduce, 7, 8,
	(const void *buffer, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(buffer, in, count, type, op, comm), count_allreduce(count, type, comm),
	count_allreduce(COUNT(2), TYPE(3), COMM(5)))
COLLECTIVE(Scan, Iscan, scan, iscan, 7, 8,
	(const void *buffer, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(buffer, in, count, type, op, comm), count_scan(count, type, comm),
	count_scan(COUNT(2), TYPE(3), COMM(5)))
COLLECTIVE(Exscan, Iexscan, exscan, iexscan, 7, 8,
	(const void *buffer, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(buffer, in, count, type, op, comm), count_scan(count, type, comm),
	count_scan(COUNT(2), TYPE(3), COMM(5)))
COLLECTIVE(Gather, Igather, gather, igather, 9, 10,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type, int root,
		MPI_Comm comm),
	(buffer, count, type, in, in_count, in_type, root, comm), count_gather(count, type, root, comm),
	count_gather(COUNT(1), TYPE(2), INT(6), COMM(7)))
COLLECTIVE(Gatherv, Igatherv, gatherv, igatherv, 10, 11,
	(const void *buffer, int count, MPI_Datatype type, void *in, const int in_counts[], const int places[],
		MPI_Datatype in_type, int root, MPI_Comm comm),
	(buffer, count, type, in, in_counts, places, in_type, root, comm), count_gather(count, type, root, comm),
	count_gather(COUNT(1), TYPE(2), INT(7), COMM(8)))
COLLECTIVE(Scatter, Iscatter, scatter, iscatter, 9, 10,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type, int root,
		MPI_Comm comm),
	(buffer, count, type, in, in_count, in_type, root, comm), count_scatter(OF_ONE(count), type, root, comm),
	count_scatter(ONE(1), TYPE(2), INT(6), COMM(7)))
COLLECTIVE(Scatterv, Iscatterv, scatterv, iscatterv, 10, 11,
	(const void *buffer, const int counts[], const int places[], MPI_Datatype type, void *in, int in_count,
		MPI_Datatype in_type, int root, MPI_Comm comm),
	(buffer, counts, places, type, in, in_count, in_type, root, comm),
	count_scatter(OF_EACH(counts), type, root, comm),
	count_scatter(EACH(1), TYPE(3), INT(7), COMM(8)))
/* What is received says how much each part is also where MPI_IN_PLACE is sent. */
COLLECTIVE(Allgather, Iallgather, allgather, iallgather, 8, 9,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type,
		MPI_Comm comm),
	(buffer, count, type, in, in_count, in_type, comm), count_allgather(OF_ONE(in_count), in_type, comm),
	count_allgather(ONE(4), TYPE(5), COMM(6)))
COLLECTIVE(Allgatherv, Iallgatherv, allgatherv, iallgatherv, 9, 10,
	(const void *buffer, int count, MPI_Datatype type, void *in, const int in_counts[], const int places[],
		MPI_Datatype in_type, MPI_Comm comm),
	(buffer, count, type, in, in_counts, places, in_type, comm),
	count_allgather(OF_EACH(in_counts), in_type, comm),
	count_allgather(EACH(4), TYPE(6), COMM(7)))
COLLECTIVE(Alltoall, Ialltoall, alltoall, ialltoall, 8, 9,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type,
		MPI_Comm comm),
	(buffer, count, type, in, in_count, in_type, comm),
	count_alltoall(OF_ONE(in_count), &in_type, true, comm),
	MPI_Datatype type = TYPE(5); count_alltoall(ONE(4), &type, true, COMM(6)))
COLLECTIVE(Alltoallv, Ialltoallv, alltoallv, ialltoallv, 10, 11,
	(const void *buffer, const int counts[], const int places[], MPI_Datatype type, void *in,
		const int in_counts[], const int in_places[], MPI_Datatype in_type, MPI_Comm comm),
	(buffer, counts, places, type, in, in_counts, in_places, in_type, comm),
	bool same = buffer == MPI_IN_PLACE;
	count_alltoall(OF_EACH(same ? in_counts : counts), same ? &in_type : &type, true, comm),
	bool same = IN_PLACE(0); MPI_Datatype type = same ? TYPE(7) : TYPE(3);
	count_alltoall(same ? EACH(5) : EACH(1), &type, true, COMM(8)))
COLLECTIVE(Alltoallw, Ialltoallw, alltoallw, ialltoallw, 10, 11,
	(const void *buffer, const int counts[], const int places[], const MPI_Datatype types[], void *in,
		const int in_counts[], const int in_places[], const MPI_Datatype in_types[], MPI_Comm comm),
	(buffer, counts, places, types, in, in_counts, in_places, in_types, comm),
	bool same = buffer == MPI_IN_PLACE;
	count_alltoall(OF_EACH(same ? in_counts : counts), same ? in_types : types, false, comm),
	bool same = IN_PLACE(0);
	count_types(same ? EACH(5) : EACH(1), same ? a7 : a3, by_value, COMM(8), false))
COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block, reduce_scatter_block, ireduce_scatter_block, 7, 8,
	(const void *buffer, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(buffer, in, count, type, op, comm), count_alltoall(OF_ONE(count), &type, true, comm),
	MPI_Datatype type = TYPE(3); count_alltoall(ONE(2), &type, true, COMM(5)))
COLLECTIVE(Reduce_scatter, Ireduce_scatter, reduce_scatter, ireduce_scatter, 7, 8,
	(const void *buffer, void *in, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(buffer, in, counts, type, op, comm), count_alltoall(OF_EACH(counts), &type, true, comm),
	MPI_Datatype type = TYPE(3); count_alltoall(EACH(2), &type, true, COMM(5)))
COLLECTIVE(Neighbor_allgather, Ineighbor_allgather, neighbor_allgather, ineighbor_allgather, 8, 9,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type,
		MPI_Comm comm),
	(buffer, count, type, in, in_count, in_type, comm), count_neighbours(OF_ONE(count), &type, true, comm),
	MPI_Datatype type = TYPE(2); count_neighbours(ONE(1), &type, true, COMM(6)))
COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv, neighbor_allgatherv, ineighbor_allgatherv, 9, 10,
	(const void *buffer, int count, MPI_Datatype type, void *in, const int in_counts[], const int places[],
		MPI_Datatype in_type, MPI_Comm comm),
	(buffer, count, type, in, in_counts, places, in_type, comm),
	count_neighbours(OF_ONE(count), &type, true, comm),
	MPI_Datatype type = TYPE(2); count_neighbours(ONE(1), &type, true, COMM(7)))
COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall, neighbor_alltoall, ineighbor_alltoall, 8, 9,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type,
		MPI_Comm comm),
	(buffer, count, type, in, in_count, in_type, comm), count_neighbours(OF_ONE(count), &type, true, comm),
	MPI_Datatype type = TYPE(2); count_neighbours(ONE(1), &type, true, COMM(6)))
COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv, neighbor_alltoallv, ineighbor_alltoallv, 10, 11,
	(const void *buffer, const int counts[], const int places[], MPI_Datatype type, void *in,
		const int in_counts[], const int in_places[], MPI_Datatype in_type, MPI_Comm comm),
	(buffer, counts, places, type, in, in_counts, in_places, in_type, comm),
	count_neighbours(OF_EACH(counts), &type, true, comm),
	MPI_Datatype type = TYPE(3); count_neighbours(EACH(1), &type, true, COMM(8)))
COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw, neighbor_alltoallw, ineighbor_alltoallw, 10, 11,
	(const void *buffer, const int counts[], const MPI_Aint places[], const MPI_Datatype types[], void *in,
		const int in_counts[], const MPI_Aint in_places[], const MPI_Datatype in_types[], MPI_Comm comm),
	(buffer, counts, places, types, in, in_counts, in_places, in_types, comm),
	count_neighbours(OF_EACH(counts), types, false, comm), count_types(EACH(1), a3, by_value, COMM(8), true))

/* ---------------------------------------------------------------- one-sided */

/* With a request (R...) and without; n: arguments of the one without in Fortran. */
#define ONE_SIDED(name, rname, fortran, rfortran, n, rn, params, args, count, f_count)             \
	BRIEF(name, (LIST params), (LIST args), count)                                           \
	BRIEF(rname, (LIST params, MPI_Request *request), (LIST args, request), count)           \
	FORTRAN_BRIEF(fortran, n, f_count)                                                       \
	FORTRAN_BRIEF(rfortran, rn, f_count)                                                     \
	LARGE_BRIEF(name, n, f_count)                                                            \
	LARGE_BRIEF(rname, rn, f_count)

ONE_SIDED(Put, Rput, put, rput, 9, 10,
	(const void *buffer, int count, MPI_Datatype type, int target, MPI_Aint place, int there,
		MPI_Datatype there_type, MPI_Win win),
	(buffer, count, type, target, place, there, there_type, win), count_put(count, type, target, win),
	count_put(COUNT(1), TYPE(2), INT(3), WIN(7)))
ONE_SIDED(Get, Rget, get, rget, 9, 10,
	(void *buffer, int count, MPI_Datatype type, int target, MPI_Aint place, int there,
		MPI_Datatype there_type, MPI_Win win),
	(buffer, count, type, target, place, there, there_type, win), count_get(count, type, target, win),
	count_get(COUNT(1), TYPE(2), INT(3), WIN(7)))
ONE_SIDED(Accumulate, Raccumulate, accumulate, raccumulate, 10, 11,
	(const void *buffer, int count, MPI_Datatype type, int target, MPI_Aint place, int there,
		MPI_Datatype there_type, MPI_Op op, MPI_Win win),
	(buffer, count, type, target, place, there, there_type, op, win), count_put(count, type, target, win),
	count_put(COUNT(1), TYPE(2), INT(3), WIN(8)))
ONE_SIDED(Get_accumulate, Rget_accumulate, get_accumulate, rget_accumulate, 13, 14,
	(const void *buffer, int count, MPI_Datatype type, void *in, int in_count, MPI_Datatype in_type,
		int target, MPI_Aint place, int there, MPI_Datatype there_type, MPI_Op op, MPI_Win win),
	(buffer, count, type, in, in_count, in_type, target, place, there, there_type, op, win),
	count_both(count, type, in_count, in_type, target, win),
	count_both(COUNT(1), TYPE(2), COUNT(4), TYPE(5), INT(6), WIN(11)))
BRIEF(Fetch_and_op,
	(const void *buffer, void *in, MPI_Datatype type, int target, MPI_Aint place, MPI_Op op, MPI_Win win),
	(buffer, in, type, target, place, op, win), count_both(1, type, 1, type, target, win))
FORTRAN_BRIEF(fetch_and_op, 8, count_both(1, TYPE(2), 1, TYPE(2), INT(3), WIN(6)))
BRIEF(Compare_and_swap,
	(const void *buffer, const void *compare, void *in, MPI_Datatype type, int target, MPI_Aint place,
		MPI_Win win),
	(buffer, compare, in, type, target, place, win), count_both(1, type, 1, type, target, win))
FORTRAN_BRIEF(compare_and_swap, 8, count_both(1, TYPE(3), 1, TYPE(3), INT(4), WIN(6)))

/* ---------------------------------------------------------------- what waits */

BRIEF(Irecv,
	(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
	(buffer, count, type, from, tag, comm, request), )
FORTRAN_BRIEF(irecv, 8, )
LARGE_BRIEF(Irecv, 8, )

/*
 * All others that wait, of which nothing is counted: their arguments are words in C, too, so that those of each
 * MPI's header need not be repeated.
 */
#define TIMED(name, n)                                                              \
	int evenly_##name(P##n) __asm__("MPI_" #name);                              \
	int evenly_##name(P##n)                                                     \
	{                                                                           \
		static _Atomic(void *) next;                                        \
		unsigned entered = enter(false);                                    \
		int rc = ((int(*)(P##n))next_of(&next, "PMPI_" #name, CALLER))(A##n); \
		leave(entered);                                                     \
		return rc;                                                          \
	}
#define CALL(name, fortran, n, ...) TIMED(name, n) FORTRAN_TIMED(fortran, WITH_ERROR_##n)
#define CALL_PEER CALL
#define CALL_NEW CALL
#define CALL_GONE CALL
#define CALL_TEXT(name, fortran, n, kind) TIMED(name, n) FORTRAN_TIMED(fortran, WITH_TEXTS_##n)
#if MPI_VERSION >= 4
#define CALL_LARGE(name, n, ...) TIMED(name, n)
#else
#define CALL_LARGE(name, n, ...)
#endif
#define CALL_LARGE_PEER CALL_LARGE
/* Windows whose address Fortran takes as a type(c_ptr). */
FORTRAN_NAME(false, mpi_win_allocate_cptr_, 7, , )
FORTRAN_NAME(false, mpi_win_allocate_shared_cptr_, 7, , )
#define EVENLY_UNCOUNTED
#ifndef EVENLY_MPI_CALLS_FOLLOW /* they stand behind this where evenly has it compiled */
#include "mpi_calls.h"
#endif

/*
 * Who sends how much to whom while MPI programs run: the file that the MPI probe (mpi.c) shares with evenly.
 *
 * A header, an index of ranks, and behind it the tallies of each rank: two for each rank of MPI_COMM_WORLD,
 * as struct evenly_tally. Ranks map it and write; evenly (probe, module messages) has made it and
 * reads. Its name is in $EVENLY_MESSAGES. It is sparse and never grows; pages that are not used cost nothing.
 *
 * Everything of a rank has one writer, its process. Tallies only go up. `cpu` and `mpi` change together, and
 * `open` with them, bracketed by `seq`, odd while that is written (a seqlock); `open` changes alone, too, which
 * is one store. Readers delay no writer: they read twice, and take what was the same with the same even `seq`.
 *
 * An entry is never used again: the numbers of a program that has ended stay. It is that of a thread only if
 * that was started before `registered`.
 */
#ifndef EVENLY_MESSAGES_H
#define EVENLY_MESSAGES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stdint.h>

#define EVENLY_MESSAGES_MAGIC UINT64_C(0x7373656d796c6e65) /* "enlymess", little-endian */
#define EVENLY_MESSAGES_VERSION 1
#define EVENLY_MESSAGES_HEADER 4096
#define EVENLY_MESSAGES_RANKS 16384
/* All of the file. */
#define EVENLY_MESSAGES_SIZE (UINT64_C(256) << 20)
#define EVENLY_MESSAGES_VARIABLE "EVENLY_MESSAGES"
/* What the file's name in /proc begins with, so that nothing else is opened by mistake. */
#define EVENLY_MESSAGES_NAME "/memfd:evenly-messages"

struct evenly_messages {
	uint64_t magic;
	uint32_t version;
	uint32_t rank_size;         /* of an entry of the index */
	uint32_t ranks;             /* how many there is room for */
	uint32_t unused;
	char boot[40];              /* boot_id of the host */
	uint64_t pid_namespace;     /* inode of the PID namespace in which numbers of processes are right */
	uint64_t size;
	/* Written by programs. */
	_Atomic uint64_t next;      /* where the tallies of the next rank begin */
	_Atomic uint32_t count;     /* entries that were taken; more than there are where ranks found no room */
	_Atomic uint32_t refused;   /* ranks that found no room */
};

struct evenly_tally {
	_Atomic uint64_t messages, bytes;
};

struct evenly_rank {
	_Atomic uint32_t pid;       /* 0 until all that follows is there */
	uint32_t tid;               /* of the thread that has initialised MPI, which the times are of */
	uint32_t rank;              /* in MPI_COMM_WORLD */
	uint32_t ranks;
	uint64_t registered;        /* CLOCK_BOOTTIME when MPI had been initialised, ns */
	uint64_t place;             /* of what was sent to each rank; behind it, of what was fetched from each */
	uint64_t mult;              /* ns in a tick of the counter of `open`, times 2^32 */
	uint64_t began;             /* CPU time of the thread when MPI had been initialised, ns */
	_Atomic uint64_t outside;   /* messages to ranks that are not in MPI_COMM_WORLD */
	_Atomic uint64_t uncounted; /* collectives that were not counted */
	/* Another cache line. */
	_Alignas(64) _Atomic uint64_t cpu; /* CPU time of the thread when it was last read, ns */
	_Atomic uint64_t mpi;       /* of that in MPI, since it was initialised, ns */
	_Atomic uint64_t open;      /* in a call that may wait: ticks that it computed since `cpu`, and 1; else 0 */
	_Atomic uint64_t ended;     /* CLOCK_BOOTTIME at MPI_Finalize, MPI_Abort or exit, ns; 0 before */
	_Atomic uint32_t seq;       /* of the three before `ended` */
};

/*
 * Not in the file: what the waiting probe (waiting.c) and the MPI probe share in a thread, as the
 * one calls on to the other. To read the cycle counter is most of what both cost, so that the one takes the
 * reading of the other that was made a moment ago. `of` says which that is, and the one that takes it clears it. Where a
 * process has two MPIs, whose function is to be called on depends on who calls: on the way to the MPI probe that is
 * the other library, which says who has called it.
 */
struct evenly_stamp {
	uint64_t ticks;
	uint32_t of;
	const void *caller;
};
enum { EVENLY_STAMP_NONE, EVENLY_STAMP_ENTERED, EVENLY_STAMP_LEFT };
/* A function of waiting.c: this thread's. */
#define EVENLY_STAMP "evenly_waiting_stamp"

_Static_assert(sizeof(struct evenly_rank) == 128, "an entry is two cache lines");
_Static_assert(sizeof(struct evenly_messages) <= EVENLY_MESSAGES_HEADER, "the header has its place");

#endif

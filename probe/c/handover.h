/*
 * Where threads that spin hand over their CPU: the mapping that programs share with evenly.
 *
 * evenly finds in the code of a program the instructions that are executed once a turn of a loop that waits (`pause`, or
 * the jump back), writes them into the table of places, and then a breakpoint over each, from outside. A
 * thread that comes to one is sent SIGTRAP, and the handler (handover.c) gives its CPU away before it goes on as the
 * instruction would have.
 *
 * A place is never taken out of the table, so that a breakpoint is known for what it is for as long as it may be there: in
 * a forked process too, which inherits them. Where a place is no longer wanted, or evenly is gone, the next thread that
 * comes to it puts the instruction back.
 *
 * Addresses mean something only within a process and those that it has forked since it executed its program. These share
 * the number of a *space*.
 */
#ifndef EVENLY_HANDOVER_H
#define EVENLY_HANDOVER_H

#include <stdatomic.h>
#include <stdint.h>

#define EVENLY_HANDOVER_MAGIC UINT64_C(0x7265766f646e6168) /* "handover", little-endian */
#define EVENLY_HANDOVER_VERSION 7
#define EVENLY_HANDOVER_VARIABLE "EVENLY_HANDOVER"
/* What the file's name in /proc begins with. */
#define EVENLY_HANDOVER_NAME "/memfd:evenly-handover"
/* Processes that can take part at the same time. */
#define EVENLY_SPACES 1024
/* Instructions in all of them: a power of two. */
#define EVENLY_PLACES 8192
/* What is thought of a place: that threads may wait there, and that they do not. Else it is proved that they do. */
#define EVENLY_DOUBTED 1
#define EVENLY_REFUTED 2
/* How many places are looked through for an address, from the one that it hashes to. */
#define EVENLY_NEAR 32

/* A process that takes part. */
struct evenly_space {
	_Atomic uint64_t who;   /* its number, plus 2^32 times the space of its addresses; 0: free */
	_Atomic uint32_t taken; /* 1: nothing is to be changed in it, as it filters system calls */
	uint32_t unused;
};

/* An instruction at which threads wait. */
struct evenly_place {
	/* Written by evenly, the address last. */
	_Atomic uint64_t at;     /* its address; 0: none */
	_Atomic uint32_t space;
	_Atomic uint32_t wanted; /* 1: threads hand over here */
	/* Written by programs. */
	_Atomic uint64_t traps;  /* how often threads came to it */
	_Atomic uint64_t given;  /* ns for which others ran meanwhile, or threads slept so that others could */
	_Atomic uint64_t slept;  /* ns for which threads slept here */
	/* Written by evenly, before the address. */
	_Atomic uint32_t first;  /* what the instruction begins with: two bytes, or all four (aarch64) */
	/* Written by both. */
	_Atomic uint32_t doubt;  /* 0, EVENLY_DOUBTED, EVENLY_REFUTED */
	/* Written by programs. */
	_Atomic uint32_t differs; /* turns with registers that no thread had there before, where it is doubted */
	_Atomic uint32_t passes;  /* how often threads left the loop without a wait, where it is doubted */
	/* The process that changes the instruction says so first, and leaves it as it is while another one does. 0: none; a process
	 * that is gone says nothing any longer. */
	_Atomic uint32_t changed_outside; /* written by evenly */
	_Atomic uint32_t changed_inside;  /* written by programs */
};

struct evenly_handover {
	uint64_t magic;
	uint32_t version;
	uint32_t size;           /* of all of it */
	char boot[40];           /* boot_id of the host */
	uint64_t pid_namespace;  /* inode of the PID namespace in which numbers of processes are right */
	/* Written by evenly. */
	_Atomic uint32_t until;  /* CLOCK_MONOTONIC in s until which CPUs are handed over; 0: they are not */
	_Atomic uint32_t others; /* CLOCK_MONOTONIC in s until which other programs compute on the CPUs */
	/* Written by programs. */
	_Atomic uint32_t last;   /* the space that was given last */
	/* No instructions, but calls: */
	struct evenly_place progress; /* by which ranks of MPI wait (handover_progress.h) */
	struct evenly_place yields;   /* of sched_yield (handover_yield.h) */
	struct evenly_space spaces[EVENLY_SPACES] __attribute__((aligned(64)));
	struct evenly_place places[EVENLY_PLACES];
};

_Static_assert(sizeof(struct evenly_place) == 64, "a place is a cache line");

/* The place that an address of a space hashes to. */
static inline uint32_t evenly_first_place(uint32_t space, uint64_t at)
{
	return (uint32_t)((at + (uint64_t)space * 64) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % EVENLY_PLACES;
}

#endif

/*
 * Who computes and who waits: the mapping that programs share with evenly.
 *
 * A file of one header and an array of lines, mapped by every process that has the probe (waiting.c), read
 * by evenly (probe, module waiting), which has made it. Its name is in $EVENLY_PROBE. It is sparse,
 * so that it has room for all threads from the beginning and never grows; pages that are not used cost nothing.
 *
 * A line is a cache line and belongs to one thread, its only writer. A reader never holds anybody up, and
 * may die at any time: a write is bracketed by `seq`, odd while it lasts (a seqlock), and who reads an odd
 * one, or two different ones, reads again or goes without. A program that dies in between leaves an odd one
 * for ever, which is why a reader must not insist.
 *
 * A thread gets its line when it first waits or enters a parallel region, and gives it back when it ends. A
 * line of what was killed is given back by the next process that starts. So a line may be old: it is that
 * of a thread only if that was started before `registered`.
 *
 * A line of kind TEAM belongs to the thread that begins parallel regions; it shows those who take part
 * whether their region goes on. A thread that has ended its part of a region cannot know when the region
 * ended, as it is within its runtime then. So its line stays as it is, and waiting that began in region R of
 * team T is over when T's `region` is another or `state` is COMPUTING; `entered` of T is when that was. From
 * then on the thread is outside. Where tasks were made in the region that cannot be followed (`object` of T), those
 * who wait at its barriers and its end may execute them, and count as computing.
 */
#ifndef EVENLY_WAITING_H
#define EVENLY_WAITING_H

#include <stdatomic.h>
#include <stdint.h>

#define EVENLY_MAGIC UINT64_C(0x74696177796c6e65) /* "enlywait", little-endian */
#define EVENLY_VERSION 5
#define EVENLY_HEADER 4096
#define EVENLY_LINES 65535
/* Behind the lines, for each a note on its phases. */
#define EVENLY_NOTES (EVENLY_HEADER + EVENLY_LINES * UINT64_C(64))
#define EVENLY_SIZE (EVENLY_NOTES + EVENLY_LINES * UINT64_C(64))
/* CPUs of which masks are known. */
#define EVENLY_CPUS 1024
/* Jobs of MPI that can be kept apart. */
#define EVENLY_JOBS 16
#define EVENLY_VARIABLE "EVENLY_PROBE"
/* What the file's name in /proc begins with, so that nothing else is opened by mistake. */
#define EVENLY_NAME "/memfd:evenly-waiting"

struct evenly_header {
	uint64_t magic;
	uint32_t version;
	uint32_t line_size;
	uint32_t lines;            /* how many there are room for */
	uint32_t ticks;            /* 1: the cycle counter is the kernel's clock, and can be used for it */
	char boot[40];             /* boot_id of the host */
	uint64_t pid_namespace;    /* inode of the PID namespace in which numbers of threads are right */
	/* Written by programs. */
	_Atomic uint32_t high;     /* no line from here on was ever used */
	_Atomic uint32_t changes;  /* goes up whenever a line is given or taken */
	_Atomic uint64_t free;     /* list of free lines: a count that goes up, and the number of the first + 1 */
	_Atomic uint64_t mult;     /* ns in a tick of the cycle counter, times 2^32; 0 where not known yet */
	_Atomic uint32_t refused;  /* threads for which there was no line */
	_Atomic uint32_t attached; /* processes that have mapped this */
	_Atomic uint32_t unseen_mpi; /* 1: one of them had MPI, and the library that knows no MPI */
	/* Written by evenly, before programs start. */
	_Atomic uint32_t cooperate;  /* enum evenly_cooperate */
	/* Written by evenly, at any time. */
	_Atomic uint32_t pins;       /* CLOCK_MONOTONIC in s until which threads may be kept on single CPUs; 0: they are not */
	_Atomic uint32_t bound;      /* goes up where masks turn out to be set by others, after `bound` of the process */
	_Atomic uint64_t base[EVENLY_CPUS / 64]; /* the mask with which the program was started */
	/* Written by programs. */
	_Atomic uint64_t jobs[EVENLY_JOBS]; /* of each the number of its team's line, plus 2^32 times its name; 0: none */
};

/* Whether barriers of regions that are plain are replaced, so that threads wait cooperatively (waiting_team.h). */
enum evenly_cooperate {
	EVENLY_NEVER = 0,
	EVENLY_MOVED = 1,  /* while their team is moved within phases */
	EVENLY_ALWAYS = 2, /* for tests */
};

enum evenly_kind {
	EVENLY_FREE = 0,
	EVENLY_THREAD = 1,
	EVENLY_TEAM = 2,
	EVENLY_RANK = 3,
	EVENLY_OWN = 4, /* a team, of all that wait in code of the program */
};

enum evenly_state {
	EVENLY_COMPUTING = 0,
	EVENLY_BARRIER = 1,    /* waits at a barrier */
	EVENLY_LOCK = 2,       /* for a condition, a lock, tasks of others */
	EVENLY_MPI = 3,        /* in an MPI call that waits for one or some */
	EVENLY_COLLECTIVE = 4, /* in an MPI call of all ranks */
	EVENLY_END = 5,        /* at the end of a parallel region */
	EVENLY_OUTSIDE = 6,    /* in no parallel region, waiting for the next */
};

/* What members of a team may do in a region while they wait. */
enum evenly_tasks {
	EVENLY_UNSEEN_TASKS = 1, /* tasks were made that waiting threads may execute unseen */
	EVENLY_SEEN_TASKS = 2,   /* they have executed tasks, so that all being there does not end their waiting */
};

/* Whom an MPI call waits for. */
enum evenly_peer {
	EVENLY_PEER_UNKNOWN = 0,
	EVENLY_PEER_WORLD = 1,  /* a rank of MPI_COMM_WORLD */
	EVENLY_PEER_OTHER = 2,  /* of a communicator of which it is not known who is in it */
	EVENLY_PEER_ANYONE = 3, /* MPI_ANY_SOURCE; with EVENLY_ALL for a rank: all of MPI_COMM_WORLD */
};

/* `object` of a thread in MPI. */
#define EVENLY_CALL_BITS 9   /* the number of the call in mpi_calls.h, from 1 */
#define EVENLY_PEER_BITS 2   /* above it, enum evenly_peer */
#define EVENLY_RANK_BITS 21  /* above these, the rank; those beyond are not known */
#define EVENLY_ALL 1

struct evenly_line {
	_Atomic uint32_t tid;        /* of a team: its thread's */
	_Atomic uint32_t pid;        /* 0: free */
	_Atomic uint64_t registered; /* CLOCK_BOOTTIME when it got the line, ns */
	_Atomic uint64_t entered;    /* CLOCK_MONOTONIC when it came into this state, ns */
	_Atomic uint64_t waited;     /* ns of all waiting before that */
	_Atomic uint64_t outside;    /* ns outside of parallel regions, of those that were started for them */
	_Atomic uint32_t object;     /* what is waited for: bits 4 to 35 of the address; of MPI the call and
	                                whom it waits for, see above; of a team enum evenly_tasks; of free
	                                lines the next + 1 */
	_Atomic uint32_t region;     /* which region of the team it takes part in; of a team: the last */
	_Atomic uint32_t phases;     /* barriers, collectives and ends of regions reached */
	_Atomic uint32_t waits;      /* waits of all kinds begun: each ends an iteration of computing */
	_Atomic uint32_t seq;
	_Atomic uint16_t team;       /* number of the team's line + 1; 0: in none */
	_Atomic uint8_t state;       /* of a team: END while a region goes on, COMPUTING else */
	_Atomic uint8_t kind;
};

/* Two threads that read the clock at the same moment differ by less, in ns. */
#define EVENLY_CLOCKS 4000

/* The unit of what phases are worth: ns of CPU time. */
#define EVENLY_WORTH 256

/* How much a team says of its phases. */
enum evenly_measured {
	EVENLY_UNMEASURED = 0,
	EVENLY_COUNTED = 1, /* when its barriers open */
	EVENLY_TIMED = 2,   /* and what its members compute in between */
};

/* What evenly and a program let each other know of a thread or a team from phase to phase. A phase goes from one opening
 * of a team's barrier to the next. */
struct evenly_note {
	/* Written by evenly. */
	_Atomic uint32_t home;    /* of a thread: the CPU where evenly has put it, plus 1; 0 where it may run anywhere; of a
	                             team, written by the program: what the phase that ends is worth to those who have
	                             arrived, in EVENLY_WORTH */
	_Atomic uint32_t armed;   /* of a team: whom to wake when its barrier opens, as a set for FUTEX_WAKE_BITSET; 0: nobody */
	_Atomic uint32_t measured; /* of a team: enum evenly_measured */
	/* Written by the program. */
	_Atomic uint32_t phase;    /* of a team: how often its barrier has opened while that was counted; a futex */
	_Atomic uint64_t opened;   /* of a team: CLOCK_MONOTONIC when it opened last, counted or not, ns */
	_Atomic uint64_t base;     /* of a thread: its CPU time when it arrived at a barrier last, or left it since, ns;
	                              of a team: CLOCK_MONOTONIC when all had ended their parts of a region, ns */
	_Atomic uint32_t expected; /* of a thread: ns of CPU time that it will take for the next phase, as far as can be
	                              said when it arrives; of a team, written by evenly: an opening wakes whom it arms
	                              only where who announces it expects more; 0: always */
	_Atomic uint32_t finished; /* of a thread: the phase of its team that it has finished last; of a team: what those
	                              waited for at whose barrier it opened last, as `object` of their lines */
	_Atomic uint64_t arrivals; /* of a team: members that have arrived at its barrier, see waiting_phases.h */
	_Atomic uint32_t meets;    /* of a thread: the number of the line of the team that it meets at barriers; 0: none; of a
	                              team: what its phases that were counted have been worth, in EVENLY_WORTH, see
	                              waiting_phases.h */
	_Atomic uint32_t until;   /* of a team, written by evenly: CLOCK_MONOTONIC in s until which it is measured */
	_Atomic uint32_t bound;   /* of a thread: 1 where masks were set in its process, by itself or, as evenly says, by others */
	_Atomic uint32_t replaced; /* of a team: regions of which the barriers were replaced */
};

_Static_assert(sizeof(struct evenly_note) == 64, "a note is a cache line");
_Static_assert(sizeof(struct evenly_line) == 64, "a line is a cache line");
_Static_assert(sizeof(struct evenly_header) <= EVENLY_HEADER, "the header has its place");

#endif

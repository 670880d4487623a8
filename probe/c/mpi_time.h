/*
 * How much of the CPU time of an MPI program is that of MPI.
 */
#ifndef EVENLY_MPI_TIME_H
#define EVENLY_MPI_TIME_H

#ifndef EVENLY_MPI_LIBRARY_H /* these stand before this where evenly has it compiled */
#include "mpi_library.h"
#endif

/* ---------------------------------------------------------------- time */

/*
 * The CPU time of calls. A clock of CPU time costs a system call, which is too much for each call of
 * MPI; the cycle counter costs some ns. So intervals, in calls and between them, are measured in ticks, and
 * CPU time is read at the end of a window: where MPI has had MPI_NS since the last reading, or after an
 * interval outside of LONG_NS. The CPU time of the window is then first that of the intervals outside, as
 * far as it reaches, and the rest is that of MPI. For a rank that waits gives its CPU away, by yielding or
 * sleeping, for however short; but one that computes keeps it until its slice ends, and is gone for long
 * then. So time in MPI is never more than the thread had of the CPU, and where the CPU is shared the ticks
 * in MPI, much of which others had, are not taken for CPU time.
 *
 * What is wrong then: of a long interval outside in which others had the CPU, MPI_NS at most of MPI before
 * it count as load; and where others had the CPU for less than LONG_NS outside, MPI after it in the same
 * window does.
 *
 * Even the counter is dear (13 ns on a virtual machine): of calls that never wait one in SAMPLE is timed,
 * and stands for all of them; the time of the others, which is among that outside, is taken from there. The
 * number is odd so that calls made in turns get their turn. One that took longer than BRIEF_NS (it was
 * interrupted, or does more than others, as the first to a rank may) stands for itself alone, and each of
 * the next ALL calls is timed, as are the first.
 */
#define LONG_NS 100000
#define MPI_NS 50000
#define BRIEF_NS 10000
#define SAMPLE 17
#define ALL (10 * SAMPLE)

static __thread struct {
	unsigned depth;  /* calls inside of calls */
	uint64_t began, left;  /* ticks */
	uint64_t known_ns;     /* CPU time when it was last read */
	uint64_t outside, mpi; /* ticks since then */
	uint64_t hidden;       /* of those outside: of calls that were not timed */
	uint64_t since_brief;  /* ticks outside since a brief call was timed */
	unsigned untimed;      /* calls since one that never waits was timed */
	unsigned all;          /* so many more of these are timed without exception */
	struct evenly_rank *shared; /* where its times are published: of the thread that has initialised MPI */
	uint64_t mpi_ns;            /* CPU time in MPI, of its windows that are closed */
	bool unpublished;                /* a window was closed since the times were published */
	struct evenly_stamp *stamp; /* of the waiting probe, loaded before this one, where it is there */
} here __attribute__((tls_model("initial-exec"))) = { .all = ALL };

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Reads CPU time, and divides what is new between MPI and the rest. */
static __attribute__((noinline)) void close_window(void)
{
	uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	double mpi = (double)less(cpu, here.known_ns) - (double)less(here.outside, here.hidden) * run.ns_per_tick;
	if (mpi > 0) {
		add(&run.mpi_ns, (uint64_t)mpi);
		here.mpi_ns += (uint64_t)mpi;
	}
	here.unpublished = true;
	here.known_ns = cpu;
	/* Hidden time may be of windows before: what is left of it is of the next. */
	here.hidden = less(here.hidden, here.outside);
	here.outside = here.mpi = 0;
}

/* Publishes the times of this thread. A call that waits may last for seconds, in which CPU time goes up
 * and nothing is written: so `open` says that it lasts, and what the thread had computed before it. */
static inline void publish(uint64_t open)
{
	struct evenly_rank *to = here.shared;
	if (!here.unpublished) {
		/* The other two are as they were, so that this one is right beside them at any moment. Release:
		 * who sees it does not see what they were before. */
		atomic_store_explicit(&to->open, open, memory_order_release);
		return;
	}
	/* A seqlock with one writer: the fence keeps the odd number before what it announces, the release
	 * the even one behind it. */
	uint32_t seq = atomic_load_explicit(&to->seq, memory_order_relaxed);
	atomic_store_explicit(&to->seq, seq + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	here.unpublished = false;
	atomic_store_explicit(&to->cpu, here.known_ns, memory_order_relaxed);
	atomic_store_explicit(&to->mpi, here.mpi_ns, memory_order_relaxed);
	atomic_store_explicit(&to->open, open, memory_order_relaxed);
	atomic_store_explicit(&to->seq, seq + 2, memory_order_release);
}

/* What a call is to `leave`: within another, or not to be counted; not timed; one that may wait; one that
 * does not, and stands for itself; one that stands for SAMPLE of them. */
enum { INSIDE, UNTIMED, WAITS, ALONE, FOR_OTHERS };

/* When a call was entered: the library before this one has looked. */
static inline uint64_t entered_at(void)
{
	struct evenly_stamp *stamp = here.stamp;
	if (!stamp || stamp->of != EVENLY_STAMP_ENTERED)
		return ticks();
	stamp->of = EVENLY_STAMP_NONE;
	return stamp->ticks;
}

/* Begins a call; `brief` is one that never waits. */
static inline unsigned enter(bool brief)
{
	if (here.depth++ || !counts())
		return INSIDE;
	unsigned entered = WAITS;
	if (brief) {
		if (here.all) {
			here.all--;
			entered = ALONE;
		} else {
			if (++here.untimed < SAMPLE)
				return UNTIMED;
			here.untimed = 0;
			entered = FOR_OTHERS;
		}
	}
	uint64_t now = entered_at();
	/* A counter that goes backwards gives a huge number, which is long. */
	uint64_t outside = now - here.left;
	here.outside += outside;
	here.since_brief += outside;
	if (outside >= run.long_from)
		close_window();
	here.began = now;
	if (here.shared && entered == WAITS)
		publish(less(here.outside, here.hidden) + 1);
	return entered;
}

static inline void leave(unsigned entered)
{
	here.depth--;
	if (entered == INSIDE || entered == UNTIMED)
		return;
	uint64_t now = ticks();
	if (here.stamp) {
		here.stamp->ticks = now;
		here.stamp->of = EVENLY_STAMP_LEFT;
	}
	uint64_t took = now - here.began;
	here.mpi += took;
	here.left = now;
	if (entered != WAITS) {
		uint64_t others = (SAMPLE - 1) * took;
		if (took >= run.brief_to)
			here.all = ALL;
		else if (entered == FOR_OTHERS)
			here.hidden += others < here.since_brief ? others : here.since_brief;
		here.since_brief = 0;
	}
	if (here.mpi >= run.mpi_from)
		close_window();
	if (here.shared && (entered == WAITS || here.unpublished))
		publish(0);
}

#endif

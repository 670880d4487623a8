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
#ifndef EVENLY_MESSAGES_H /* these stand before this where evenly has it compiled */
#include "messages.h"
#endif
#ifndef EVENLY_NEXT_H
#include "next.h"
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

/* Who calls: the object before this one that calls on to it, or whoever has called that. */
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
	_Atomic bool running; /* MPI has been initialised, and somebody wants the numbers */
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
	struct evenly_rank *shared; /* where its times are told: of the thread that has initialised MPI */
	uint64_t mpi_ns;            /* CPU time in MPI, of its windows that are closed */
	bool untold;                /* a window was closed since the times were published */
	struct evenly_stamp *stamp; /* of the library before this one that tells who waits, where it is there */
} here __attribute__((tls_model("initial-exec"))) = { .all = ALL };

static uint64_t ns_of(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return ns_of(CLOCK_MONOTONIC);
#endif
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Reads CPU time, and divides what is new between MPI and the rest. */
static __attribute__((noinline)) void close_window(void)
{
	uint64_t cpu = ns_of(CLOCK_THREAD_CPUTIME_ID);
	double mpi = (double)less(cpu, here.known_ns) - (double)less(here.outside, here.hidden) * run.ns_per_tick;
	if (mpi > 0) {
		add(&run.mpi_ns, (uint64_t)mpi);
		here.mpi_ns += (uint64_t)mpi;
	}
	here.untold = true;
	here.known_ns = cpu;
	/* Hidden time may be of windows before: what is left of it is of the next. */
	here.hidden = less(here.hidden, here.outside);
	here.outside = here.mpi = 0;
}

/* Tells evenly the times of this thread. A call that waits may last for seconds, in which CPU time goes up
 * and nothing is written: so `open` says that it lasts, and what the thread had computed before it. */
static inline void publish(uint64_t open)
{
	struct evenly_rank *to = here.shared;
	if (!here.untold) {
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
	here.untold = false;
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
	if (here.shared && (entered == WAITS || here.untold))
		publish(0);
}

/* ---------------------------------------------------------------- ranks of communicators */

struct members {
	int size, me;
	bool inter;
	int *world;      /* their ranks in MPI_COMM_WORLD, negative where they are not in it; NULL: the same */
	int degree;      /* of a topology: to how many this rank sends */
	int *neighbours;
};

static struct members all;
/* Goes up when a communicator or window is freed: what was remembered of its handle is void. */
static _Atomic unsigned generation;
static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;

static void release(void *value)
{
	struct members *m = value;
	atomic_fetch_add_explicit(&generation, 1, memory_order_release);
	free(m->world);
	free(m->neighbours);
	free(m);
}

static int forget_comm(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)extra;
	release(value);
	return MPI_SUCCESS;
}

static int forget_win(MPI_Win win, int key, void *value, void *extra)
{
	(void)win, (void)key, (void)extra;
	release(value);
	return MPI_SUCCESS;
}

/* A duplicate is looked at anew. */
static int copy_comm(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
	(void)comm, (void)key, (void)extra, (void)value, (void)copy;
	*flag = 0;
	return MPI_SUCCESS;
}

static int copy_win(MPI_Win win, int key, void *extra, void *value, void *copy, int *flag)
{
	(void)win, (void)key, (void)extra, (void)value, (void)copy;
	*flag = 0;
	return MPI_SUCCESS;
}

/* The members of a group; NULL where that cannot be found out. Frees the group. */
static struct members *of_group(MPI_Group group)
{
	int size = 0;
	if (PMPI(Group_size, (MPI_Group, int *), group, &size) != MPI_SUCCESS || size < 0)
		return NULL;
	struct members *m = calloc(1, sizeof *m);
	int *ranks = malloc(sizeof(int) * (size_t)(size + 1));
	if (m)
		m->world = malloc(sizeof(int) * (size_t)(size + 1));
	if (m && m->world && ranks) {
		m->size = size;
		for (int i = 0; i < size; i++) {
			ranks[i] = i;
			m->world[i] = -1;
		}
		PMPI(Group_translate_ranks, (MPI_Group, int, const int *, MPI_Group, int *), group, size, ranks,
			run.world_group, m->world);
		for (int i = 0; i < size; i++)
			if (m->world[i] < 0 || m->world[i] >= run.ranks)
				m->world[i] = -1;
	} else if (m) {
		free(m->world);
		free(m);
		m = NULL;
	}
	free(ranks);
	PMPI(Group_free, (MPI_Group *), &group);
	return m;
}

static void find_neighbours(struct members *m, MPI_Comm comm)
{
	int kind = MPI_UNDEFINED;
	PMPI(Topo_test, (MPI_Comm, int *), comm, &kind);
	if (kind == MPI_CART) {
		int dims = 0;
		PMPI(Cartdim_get, (MPI_Comm, int *), comm, &dims);
		m->neighbours = malloc(sizeof(int) * (size_t)(2 * dims + 1));
		if (!m->neighbours)
			return;
		int rc = MPI_SUCCESS;
		for (int d = 0; d < dims && rc == MPI_SUCCESS; d++)
			rc = PMPI(Cart_shift, (MPI_Comm, int, int, int *, int *), comm, d, 1, &m->neighbours[2 * d],
				&m->neighbours[2 * d + 1]);
		m->degree = rc == MPI_SUCCESS ? 2 * dims : 0;
	} else if (kind == MPI_GRAPH) {
		int n = 0;
		PMPI(Graph_neighbors_count, (MPI_Comm, int, int *), comm, m->me, &n);
		m->neighbours = malloc(sizeof(int) * (size_t)(n + 1));
		if (!m->neighbours)
			return;
		if (PMPI(Graph_neighbors, (MPI_Comm, int, int, int *), comm, m->me, n, m->neighbours) == MPI_SUCCESS)
			m->degree = n;
	} else if (kind == MPI_DIST_GRAPH) {
		int in = 0, out = 0, weighted = 0;
		PMPI(Dist_graph_neighbors_count, (MPI_Comm, int *, int *, int *), comm, &in, &out, &weighted);
		m->neighbours = malloc(sizeof(int) * (size_t)(out + 1));
		/* Sources, and weights of both, which nobody wants. */
		int *rest = calloc((size_t)(2 * in + out + 1), sizeof(int));
		if (m->neighbours && rest
			&& PMPI(Dist_graph_neighbors, (MPI_Comm, int, int *, int *, int, int *, int *), comm, in, rest,
				   rest + in, out, m->neighbours, rest + 2 * in) == MPI_SUCCESS)
			m->degree = out;
		free(rest);
	}
}

static struct members *look_at_comm(MPI_Comm comm)
{
	int inter = 0;
	MPI_Group group;
	if (PMPI(Comm_test_inter, (MPI_Comm, int *), comm, &inter) != MPI_SUCCESS)
		return NULL;
	int rc = inter ? PMPI(Comm_remote_group, (MPI_Comm, MPI_Group *), comm, &group)
		       : PMPI(Comm_group, (MPI_Comm, MPI_Group *), comm, &group);
	struct members *m = rc == MPI_SUCCESS ? of_group(group) : NULL;
	if (!m)
		return NULL;
	m->inter = inter;
	PMPI(Comm_rank, (MPI_Comm, int *), comm, &m->me);
	if (!inter)
		find_neighbours(m, comm);
	return m;
}

static const struct members *members_of(MPI_Comm comm)
{
	static __thread struct {
		MPI_Comm comm;
		unsigned generation;
		const struct members *members;
	} last __attribute__((tls_model("initial-exec")));
	if (comm == run.world)
		return &all;
	unsigned now = atomic_load_explicit(&generation, memory_order_acquire);
	if (last.members && last.comm == comm && last.generation == now)
		return last.members;
	struct members *m = NULL;
	int found = 0;
	/* The lock keeps two threads from putting something there, of which one would be freed again. */
	pthread_mutex_lock(&building);
	PMPI(Comm_get_attr, (MPI_Comm, int, void *, int *), comm, run.comm_key, &m, &found);
	if (!found) {
		m = look_at_comm(comm);
		if (m)
			PMPI(Comm_set_attr, (MPI_Comm, int, void *), comm, run.comm_key, m);
	}
	pthread_mutex_unlock(&building);
	last.comm = comm;
	last.generation = now;
	last.members = m;
	return m;
}

static const struct members *members_of_win(MPI_Win win)
{
	struct members *m = NULL;
	int found = 0;
	pthread_mutex_lock(&building);
	PMPI(Win_get_attr, (MPI_Win, int, void *, int *), win, run.win_key, &m, &found);
	if (!found) {
		MPI_Group group;
		if (PMPI(Win_get_group, (MPI_Win, MPI_Group *), win, &group) == MPI_SUCCESS)
			m = of_group(group);
		if (m)
			PMPI(Win_set_attr, (MPI_Win, int, void *), win, run.win_key, m);
	}
	pthread_mutex_unlock(&building);
	return m;
}

/* ---------------------------------------------------------------- what is counted */

/* How much each of several gets: the same, or what stands in an array, of either kind. */
struct counts {
	int64_t one;
	const int *ints;
	const MPI_Count *large;
};

static int64_t count_at(struct counts counts, int i)
{
	return counts.ints ? counts.ints[i] : counts.large ? counts.large[i] : counts.one;
}

/* Of nothing the type need not be one. */
static uint64_t bytes_of(int64_t count, MPI_Datatype type)
{
	int size = 0;
	if (count <= 0)
		return 0;
	PMPI(Type_size, (MPI_Datatype, int *), type, &size);
	return size > 0 ? (uint64_t)size * (uint64_t)count : 0;
}

/* The rank in MPI_COMM_WORLD; negative where it is none. */
static int in_world(const struct members *m, int i)
{
	return m->world ? m->world[i] : i;
}

static void add_to(struct evenly_tally *tallies, int world, uint64_t messages, uint64_t bytes)
{
	if (world < 0) {
		add(run.outside, messages);
		return;
	}
	add(&tallies[world].messages, messages);
	add(&tallies[world].bytes, bytes);
}

/* One message to a member. MPI_PROC_NULL is negative in both libraries. */
static void tell(const struct members *m, int to, uint64_t bytes)
{
	if (m && to >= 0 && to < m->size)
		add_to(run.sent, in_world(m, to), 1, bytes);
}

static void count_send(int64_t count, MPI_Datatype type, int to, MPI_Comm comm)
{
	if (to >= 0)
		tell(members_of(comm), to, bytes_of(count, type));
}

/* Members of one group, for a collective. */
static const struct members *collective(MPI_Comm comm)
{
	const struct members *m = members_of(comm);
	if (m && !m->inter)
		return m;
	add(run.uncounted, 1);
	return NULL;
}

/* Dissemination. */
static void count_barrier(MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int64_t k = 1; m && k < m->size; k *= 2)
		tell(m, (int)((m->me + k) % m->size), 0);
}

/* A binomial tree: from the root, whose number counts as 0, to v + 1, v + 2, v + 4... below the lowest
 * bit of v. */
static void count_bcast(int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m || root < 0 || root >= m->size)
		return;
	uint64_t bytes = bytes_of(count, type);
	int64_t v = (m->me - root + m->size) % m->size;
	for (int64_t bit = 1; bit < m->size && !(v & bit); bit *= 2)
		if (v + bit < m->size)
			tell(m, (int)((v + bit + root) % m->size), bytes);
}

/* The same tree, the other way. */
static void count_reduce(int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m || root < 0 || root >= m->size || m->me == root)
		return;
	int v = (m->me - root + m->size) % m->size;
	tell(m, ((v & (v - 1)) + root) % m->size, bytes_of(count, type));
}

/* Recursive doubling among the first 2^k; the others give theirs to one of these and get the result. */
static void count_allreduce(int64_t count, MPI_Datatype type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m)
		return;
	uint64_t bytes = bytes_of(count, type);
	int power = 1;
	while (power <= m->size / 2)
		power *= 2;
	if (m->me >= power) {
		tell(m, m->me - power, bytes);
		return;
	}
	for (int bit = 1; bit < power; bit *= 2)
		tell(m, m->me ^ bit, bytes);
	if (m->me < m->size - power)
		tell(m, m->me + power, bytes);
}

/* Each to the root. */
static void count_gather(int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (m && m->me != root)
		tell(m, root, bytes_of(count, type));
}

/* The root to each. */
static void count_scatter(struct counts counts, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int i = 0; m && m->me == root && i < m->size; i++)
		if (i != root)
			tell(m, i, bytes_of(count_at(counts, i), type));
}

/* Around a ring: all parts but the right neighbour's own, to it. */
static void count_allgather(struct counts counts, MPI_Datatype type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m || m->size < 2)
		return;
	int right = (m->me + 1) % m->size;
	uint64_t bytes = 0;
	bool one = !counts.ints && !counts.large;
	if (one)
		bytes = bytes_of(counts.one, type) * (uint64_t)(m->size - 1);
	for (int i = 0; !one && i < m->size; i++)
		if (i != right)
			bytes += bytes_of(count_at(counts, i), type);
	add_to(run.sent, in_world(m, right), (uint64_t)m->size - 1, bytes);
}

/* Each to each other; types may be one for all. */
static void count_alltoall(struct counts counts, const MPI_Datatype *types, bool one_type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int i = 0; m && i < m->size; i++)
		if (i != m->me)
			tell(m, i, bytes_of(count_at(counts, i), types[one_type ? 0 : i]));
}

/* Recursive doubling without an end: to 1, 2, 4... further. */
static void count_scan(int64_t count, MPI_Datatype type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	uint64_t bytes = m ? bytes_of(count, type) : 0;
	for (int64_t k = 1; m && m->me + k < m->size; k *= 2)
		tell(m, (int)(m->me + k), bytes);
}

/* To each neighbour of the topology. */
static void count_neighbours(struct counts counts, const MPI_Datatype *types, bool one_type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int i = 0; m && i < m->degree; i++)
		if (m->neighbours[i] >= 0)
			tell(m, m->neighbours[i], bytes_of(count_at(counts, i), types[one_type ? 0 : i]));
}

static void count_put(int64_t count, MPI_Datatype type, int target, MPI_Win win)
{
	if (target >= 0)
		tell(members_of_win(win), target, bytes_of(count, type));
}

static void count_get(int64_t count, MPI_Datatype type, int target, MPI_Win win)
{
	const struct members *m = target >= 0 ? members_of_win(win) : NULL;
	if (m && target < m->size)
		add_to(run.fetched, in_world(m, target), 1, bytes_of(count, type));
}

/* There and back. */
static void count_both(
	int64_t count, MPI_Datatype type, int64_t back, MPI_Datatype back_type, int target, MPI_Win win)
{
	count_put(count, type, target, win);
	count_get(back, back_type, target, win);
}

/* ---------------------------------------------------------------- persistent sends */

struct persistent {
	struct persistent *next;
	MPI_Request request;
	int to;  /* in MPI_COMM_WORLD */
	uint64_t bytes;
};

#define CHAINS 1024
static struct persistent *persistents[CHAINS];
static pthread_mutex_t persisting = PTHREAD_MUTEX_INITIALIZER;

static struct persistent **chain_of(MPI_Request request)
{
	uint64_t h = (uint64_t)(uintptr_t)request * 0x9e3779b97f4a7c15u;
	return &persistents[h >> 54];
}

static void keep_send(int64_t count, MPI_Datatype type, int to, MPI_Comm comm, MPI_Request request)
{
	const struct members *m = to >= 0 ? members_of(comm) : NULL;
	struct persistent *p = m && to < m->size ? malloc(sizeof *p) : NULL;
	if (!p)
		return;
	p->request = request;
	p->to = in_world(m, to);
	p->bytes = bytes_of(count, type);
	pthread_mutex_lock(&persisting);
	p->next = *chain_of(request);
	*chain_of(request) = p;
	pthread_mutex_unlock(&persisting);
}

/* Counts a start, or forgets the request. What is not there is something else, as a receive. */
static void persistent(MPI_Request request, bool forget)
{
	pthread_mutex_lock(&persisting);
	for (struct persistent **p = chain_of(request); *p; p = &(*p)->next) {
		if ((*p)->request != request)
			continue;
		if (forget) {
			struct persistent *old = *p;
			*p = old->next;
			free(old);
		} else {
			add_to(run.sent, (*p)->to, 1, (*p)->bytes);
		}
		break;
	}
	pthread_mutex_unlock(&persisting);
}

/* ---------------------------------------------------------------- beginning and end */

/* A file that is written without stdio, which allocates: a program may call MPI_Abort in a signal handler. */
struct output {
	int file;
	bool ok;
	size_t held;
	char bytes[4096];
};

static void flush(struct output *to)
{
	for (size_t at = 0; to->ok && at < to->held;) {
		ssize_t n = write(to->file, to->bytes + at, to->held - at);
		if (n >= 0)
			at += (size_t)n;
		else if (errno != EINTR)
			to->ok = false;
	}
	to->held = 0;
}

/* Text of 1000 bytes at most. */
static __attribute__((format(printf, 2, 3))) void put(struct output *to, const char *format, ...)
{
	va_list arguments;
	if (sizeof to->bytes - to->held < 1000)
		flush(to);
	va_start(arguments, format);
	int n = vsnprintf(to->bytes + to->held, sizeof to->bytes - to->held, format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= sizeof to->bytes - to->held)
		to->ok = false;
	else
		to->held += (size_t)n;
}

static void write_tallies(struct output *to, const char *name, struct evenly_tally *tallies)
{
	const char *comma = "";
	put(to, ",\n\"%s\":[", name);
	for (int i = 0; i < run.ranks; i++) {
		uint64_t messages = atomic_load_explicit(&tallies[i].messages, memory_order_relaxed);
		uint64_t bytes = atomic_load_explicit(&tallies[i].bytes, memory_order_relaxed);
		if (!messages)
			continue;
		put(to, "%s\n[%d,%llu,%llu]", comma, i, (unsigned long long)messages, (unsigned long long)bytes);
		comma = ",";
	}
	put(to, "]");
}

/* A name without what JSON would have to escape. */
static void host_name(char *name, size_t size)
{
	if (gethostname(name, size) != 0)
		name[0] = 0;
	name[size - 1] = 0;
	for (char *c = name; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
}

static bool write_to(int file, const char *ended, uint64_t wall, uint64_t cpu, uint64_t mpi)
{
	char host[256];
	struct output to = { .file = file, .ok = file >= 0 };
	host_name(host, sizeof host);
	/* Whole numbers only: the program may have set a language in which 1.5 is 1,5. */
	put(&to,
		"{\"schema\":\"evenly.profile/1\",\"rank\":%d,\"ranks\":%d,\"host\":\"%s\",\"pid\":%d,\"cpu\":%d,\n"
		"\"ended\":\"%s\",\"wall_ns\":%llu,\"cpu_ns\":%llu,\"compute_ns\":%llu,\"mpi_ns\":%llu,"
		"\"outside_messages\":%llu,\"uncounted_collectives\":%llu",
		run.rank, run.ranks, host, (int)run.pid, sched_getcpu(), ended, (unsigned long long)wall,
		(unsigned long long)cpu, (unsigned long long)less(cpu, mpi), (unsigned long long)mpi,
		(unsigned long long)atomic_load(run.outside), (unsigned long long)atomic_load(run.uncounted));
	write_tallies(&to, "sent", run.sent);
	write_tallies(&to, "fetched", run.fetched);
	put(&to, "}\n");
	flush(&to);
	return to.ok;
}

static int make(const char *path)
{
	return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

/* Leaves an empty file of this name beside the profiles, which says all that is to be said. */
static void note(const char *name)
{
	const char *dir = getenv("EVENLY_PROFILE_DIR");
	char path[4096];
	if (!dir || (size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
		return;
	int file = make(path);
	if (file >= 0)
		close(file);
}

/* Writes the profile, once, under another name first: whoever reads it reads all of it. Where it cannot be written
 * evenly misses it. */
static void finish(const char *ended)
{
	if (!counts() || getpid() != run.pid || atomic_flag_test_and_set(&run.written))
		return;
	int before = errno;
	/* The last window of this thread, which may be in no call. Those of others go without: MPI_NS at most. */
	if (!here.depth)
		here.outside += ticks() - here.left;
	close_window();
	if (here.shared)
		publish(0);
	if (run.shared)
		atomic_store_explicit(&run.shared->ended, ns_of(CLOCK_BOOTTIME), memory_order_relaxed);
	uint64_t mpi = atomic_load(&run.mpi_ns);
	uint64_t cpu = less(ns_of(CLOCK_PROCESS_CPUTIME_ID), run.cpu_began);
	uint64_t wall = less(ns_of(CLOCK_MONOTONIC), run.wall_began);

	const char *dir = getenv("EVENLY_PROFILE_DIR");
	char path[4096], made[4096];
	if (dir && (size_t)snprintf(path, sizeof path, "%s/rank-%d.json", dir, run.rank) < sizeof path
		&& (size_t)snprintf(made, sizeof made, "%s/.rank-%d.%d", dir, run.rank, (int)run.pid) < sizeof made) {
		int file = make(made);
		bool ok = write_to(file, ended, wall, cpu, mpi);
		if (file >= 0 && close(file) != 0)
			ok = false;
		/* A rank of that number that was there before belongs to another program that the command ran. */
		if (ok && link(made, path) != 0 && errno == EEXIST)
			note("again");
		unlink(made);
	}
	errno = before;
}

/* Whether the MPI at home is the one whose handles are known here. */
static bool is_known(void)
{
	static char version[16384]; /* twice the longest there is */
	int length = 0;
	if (PMPI(Get_library_version, (char *, int *), version, &length) != MPI_SUCCESS)
		return false;
#ifdef OPEN_MPI
	return !strncmp(version, "Open MPI", 8);
#else
	/* Its kin has the same handles. */
	return strstr(version, "MPICH") || strstr(version, "MVAPICH") || strstr(version, "Intel(R) MPI");
#endif
}

/* Whether the file is of this host and numbers its processes as this one does: ranks may have been started
 * elsewhere, with the same variables. */
static bool fits(const struct evenly_messages *h)
{
	char boot[sizeof h->boot] = "";
	struct stat namespace;
	if (h->magic != EVENLY_MESSAGES_MAGIC || h->version != EVENLY_MESSAGES_VERSION
		|| h->rank_size != sizeof(struct evenly_rank) || h->ranks != EVENLY_MESSAGES_RANKS
		|| h->size != EVENLY_MESSAGES_SIZE)
		return false;
	int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = file < 0 ? 0 : read(file, boot, sizeof boot - 1);
	if (file >= 0)
		close(file);
	if (n > 0 && boot[n - 1] == '\n')
		boot[n - 1] = 0;
	return n > 0 && !strncmp(boot, h->boot, sizeof boot) && stat("/proc/self/ns/pid", &namespace) == 0
		&& namespace.st_ino == h->pid_namespace;
}

/* A part of the file, mapped from the page on that it begins in. */
static void *mapped(int file, uint64_t from, uint64_t size)
{
	uint64_t within = from % (uint64_t)sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, size + within, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(from - within));
	return at == MAP_FAILED ? NULL : at + within;
}

/* Takes an entry and tallies in the file that evenly reads. Nothing happens where that cannot be. */
static void share(void)
{
	char link[sizeof EVENLY_MESSAGES_NAME];
	const char *name = getenv(EVENLY_MESSAGES_VARIABLE);
	if (!name || readlink(name, link, sizeof link) < (ssize_t)sizeof EVENLY_MESSAGES_NAME - 1
		|| memcmp(link, EVENLY_MESSAGES_NAME, sizeof EVENLY_MESSAGES_NAME - 1))
		return;
	int file = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file < 0)
		return;
	struct stat stat;
	uint64_t index = EVENLY_MESSAGES_HEADER + EVENLY_MESSAGES_RANKS * sizeof(struct evenly_rank);
	struct evenly_messages *header = NULL;
	/* As in waiting.c: what is not sealed may be cut off. */
	int seals = fcntl(file, F_GET_SEALS);
	if (seals >= 0 && seals & F_SEAL_SHRINK && fstat(file, &stat) == 0
		&& stat.st_size >= (off_t)EVENLY_MESSAGES_SIZE)
		header = mapped(file, 0, index);
	if (header && fits(header)) {
		uint64_t size = 2 * sizeof(struct evenly_tally) * (uint64_t)run.ranks;
		uint32_t number = atomic_fetch_add(&header->count, 1);
		/* Each begins a cache line, as different processes write them. */
		uint64_t place = number < EVENLY_MESSAGES_RANKS
			? atomic_fetch_add(&header->next, (size + 63) / 64 * 64) : EVENLY_MESSAGES_SIZE;
		struct evenly_tally *tallies = NULL;
		/* Any program can have written anything there. */
		if (place >= index && place % 64 == 0 && place < EVENLY_MESSAGES_SIZE
			&& size <= EVENLY_MESSAGES_SIZE - place)
			tallies = mapped(file, place, size);
		if (tallies) {
			struct evenly_rank *rank = (struct evenly_rank *)((char *)header + EVENLY_MESSAGES_HEADER);
			rank += number;
			rank->tid = (uint32_t)gettid();
			rank->rank = (uint32_t)run.rank;
			rank->ranks = (uint32_t)run.ranks;
			rank->registered = ns_of(CLOCK_BOOTTIME);
			rank->place = place;
			rank->mult = (uint64_t)(run.ns_per_tick * 4294967296.0);
			rank->began = here.known_ns;
			atomic_store_explicit(&rank->cpu, here.known_ns, memory_order_relaxed);
			run.shared = here.shared = rank;
			run.sent = tallies;
			run.fetched = tallies + run.ranks;
			run.outside = &rank->outside;
			run.uncounted = &rank->uncounted;
			/* Release: whoever sees the number sees all before it. */
			atomic_store_explicit(&rank->pid, (uint32_t)run.pid, memory_order_release);
		} else {
			atomic_fetch_add(&header->refused, 1);
		}
	}
	/* Mapped it stays, where it is of use. */
	if (header && !run.shared)
		munmap(header, index);
	close(file);
}

/* Before MPI is initialised: from here on the two clocks are compared. Returns what initialises it. */
static void *before_init(const char *name, const void *caller)
{
	int before = errno;
	Dl_info info;
	/* Once, so that both are of one library whatever others load meanwhile. */
	void *init = of_mpi("PMPI_Init", caller), *library = NULL;
	if (init && dladdr(init, &info) && info.dli_fname)
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	void *known = NULL;
	if (!atomic_compare_exchange_strong(&home, &known, library) && library != known) {
		/* Of which of them a call is nobody knows: nothing is counted any more. */
		atomic_store(&several_mpis, true);
		if (atomic_exchange(&run.running, false)) {
			if (run.shared)
				atomic_store_explicit(&run.shared->ended, ns_of(CLOCK_BOOTTIME), memory_order_relaxed);
			note("other-mpi");
		}
	}
	void *at = of_mpi(name, caller);
	run.ticks_began = ticks();
	run.ns_began = ns_of(CLOCK_MONOTONIC);
	errno = before;
	return at ? at : (void *)no_function;
}

static void start_to_count(void)
{
	if (!(getenv("EVENLY_PROFILE_DIR") || getenv(EVENLY_MESSAGES_VARIABLE)))
		return;
	/* Clocks are compared for 2 ms at least; starting MPI takes longer. */
	uint64_t passed;
	while ((passed = ns_of(CLOCK_MONOTONIC) - run.ns_began) < 2000000)
		nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	uint64_t ticks_passed = ticks() - run.ticks_began;
	run.ns_per_tick = ticks_passed ? (double)passed / (double)ticks_passed : 1;
	run.long_from = (uint64_t)(LONG_NS / run.ns_per_tick);
	run.mpi_from = (uint64_t)(MPI_NS / run.ns_per_tick);
	run.brief_to = (uint64_t)(BRIEF_NS / run.ns_per_tick);

	if (!is_known()) {
		note("other-mpi");
		return;
	}
	int level = MPI_THREAD_SINGLE;
	MPI_Comm parent = PREDEFINED(MPI_Comm, "ompi_mpi_comm_null", MPI_COMM_NULL);
	MPI_Comm none = parent;
	run.world = PREDEFINED(MPI_Comm, "ompi_mpi_comm_world", MPI_COMM_WORLD);
	PMPI(Comm_get_parent, (MPI_Comm *), &parent);
	/* Ranks that a program starts itself are not placed by its launcher. */
	if (parent != none)
		return;
	PMPI(Query_thread, (int *), &level);
	PMPI(Comm_rank, (MPI_Comm, int *), run.world, &run.rank);
	PMPI(Comm_size, (MPI_Comm, int *), run.world, &run.ranks);
	PMPI(Comm_group, (MPI_Comm, MPI_Group *), run.world, &run.world_group);
	PMPI(Comm_create_keyval, (MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *),
		copy_comm, forget_comm, &run.comm_key, NULL);
	PMPI(Win_create_keyval, (MPI_Win_copy_attr_function *, MPI_Win_delete_attr_function *, int *, void *),
		copy_win, forget_win, &run.win_key, NULL);
	run.pid = getpid();
	here.known_ns = ns_of(CLOCK_THREAD_CPUTIME_ID);
	share();
	if (!run.shared && !getenv("EVENLY_PROFILE_DIR"))
		return;
	if (!run.shared) {
		run.sent = calloc((size_t)run.ranks, sizeof *run.sent);
		run.fetched = calloc((size_t)run.ranks, sizeof *run.fetched);
	}
	if (!run.sent || !run.fetched)
		return;
	run.several = level == MPI_THREAD_MULTIPLE;
	all = (struct members){ .size = run.ranks, .me = run.rank };
	run.wall_began = ns_of(CLOCK_MONOTONIC);
	run.cpu_began = ns_of(CLOCK_PROCESS_CPUTIME_ID);
	struct evenly_stamp *(*stamp)(void) = (struct evenly_stamp *(*)(void))dlsym(RTLD_DEFAULT, EVENLY_STAMP);
	here.stamp = stamp ? stamp() : NULL;
	here.left = ticks();
	atomic_store(&run.running, true);
}

static void after_init(void)
{
	int before = errno;
	if (!atomic_load(&several_mpis) && !counts())
		start_to_count();
	errno = before;
}

__attribute__((destructor)) static void at_exit(void)
{
	finish("exit");
}

/* ---------------------------------------------------------------- C */

/*
 * What a call is passed on with: words, whatever its arguments are. Integers, handles and addresses all are one each, in
 * the calling conventions of Linux on 64-bit machines, and none of these functions has an argument of floating point.
 */
#define P1 void *a0
#define P2 P1, void *a1
#define P3 P2, void *a2
#define P4 P3, void *a3
#define P5 P4, void *a4
#define P6 P5, void *a5
#define P7 P6, void *a6
#define P8 P7, void *a7
#define P9 P8, void *a8
#define P10 P9, void *a9
#define P11 P10, void *a10
#define P12 P11, void *a11
#define P13 P12, void *a12
#define P14 P13, void *a13
#define A1 a0
#define A2 A1, a1
#define A3 A2, a2
#define A4 A3, a3
#define A5 A4, a4
#define A6 A5, a5
#define A7 A6, a6
#define A8 A7, a7
#define A9 A8, a8
#define A10 A9, a9
#define A11 A10, a10
#define A12 A11, a11
#define A13 A12, a12
#define A14 A13, a13
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
_Static_assert(sizeof(void *) == 8, "arguments are words");
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
#define TIMED(name, params, args) WRAP_AS(false, name, params, args, , )
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

TIMED(Recv,
	(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status),
	(buffer, count, type, from, tag, comm, status))
FORTRAN_TIMED(recv, 8)
LARGE(Recv, 8, )
BRIEF(Irecv,
	(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
	(buffer, count, type, from, tag, comm, request), )
FORTRAN_BRIEF(irecv, 8, )
LARGE_BRIEF(Irecv, 8, )
TIMED(Mrecv, (void *buffer, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status),
	(buffer, count, type, message, status))
FORTRAN_TIMED(mrecv, 6)
LARGE(Mrecv, 6, )
TIMED(Probe, (int from, int tag, MPI_Comm comm, MPI_Status *status), (from, tag, comm, status))
FORTRAN_TIMED(probe, 5)
TIMED(Iprobe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status),
	(from, tag, comm, flag, status))
FORTRAN_TIMED(iprobe, 6)
TIMED(Mprobe, (int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status),
	(from, tag, comm, message, status))
FORTRAN_TIMED(mprobe, 6)
TIMED(Improbe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),
	(from, tag, comm, flag, message, status))
FORTRAN_TIMED(improbe, 7)
TIMED(Wait, (MPI_Request *request, MPI_Status *status), (request, status))
FORTRAN_TIMED(wait, 3)
TIMED(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]), (count, requests, statuses))
FORTRAN_TIMED(waitall, 4)
TIMED(Waitany, (int count, MPI_Request requests[], int *which, MPI_Status *status),
	(count, requests, which, status))
FORTRAN_TIMED(waitany, 5)
TIMED(Waitsome, (int count, MPI_Request requests[], int *done, int which[], MPI_Status statuses[]),
	(count, requests, done, which, statuses))
FORTRAN_TIMED(waitsome, 6)
TIMED(Test, (MPI_Request *request, int *flag, MPI_Status *status), (request, flag, status))
FORTRAN_TIMED(test, 4)
TIMED(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]),
	(count, requests, flag, statuses))
FORTRAN_TIMED(testall, 5)
TIMED(Testany, (int count, MPI_Request requests[], int *which, int *flag, MPI_Status *status),
	(count, requests, which, flag, status))
FORTRAN_TIMED(testany, 6)
TIMED(Testsome, (int count, MPI_Request requests[], int *done, int which[], MPI_Status statuses[]),
	(count, requests, done, which, statuses))
FORTRAN_TIMED(testsome, 6)
TIMED(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
FORTRAN_TIMED(comm_dup, 3)
TIMED(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
FORTRAN_TIMED(comm_create, 4)
TIMED(Comm_split, (MPI_Comm comm, int colour, int key, MPI_Comm *made), (comm, colour, key, made))
FORTRAN_TIMED(comm_split, 5)
TIMED(Comm_split_type, (MPI_Comm comm, int kind, int key, MPI_Info info, MPI_Comm *made),
	(comm, kind, key, info, made))
FORTRAN_TIMED(comm_split_type, 6)
TIMED(Comm_free, (MPI_Comm *comm), (comm))
FORTRAN_TIMED(comm_free, 2)
TIMED(Cart_create,
	(MPI_Comm comm, int dims, const int size[], const int periodic[], int reorder, MPI_Comm *made),
	(comm, dims, size, periodic, reorder, made))
FORTRAN_TIMED(cart_create, 7)
TIMED(Win_create, (void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win),
	(base, size, unit, info, comm, win))
FORTRAN_TIMED(win_create, 7)
LARGE(Win_create, 7, )
TIMED(Win_allocate, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win),
	(size, unit, info, comm, base, win))
FORTRAN_TIMED(win_allocate, 7)
FORTRAN_NAME(false, mpi_win_allocate_cptr_, 7, , )
LARGE(Win_allocate, 7, )
TIMED(Win_free, (MPI_Win *win), (win))
FORTRAN_TIMED(win_free, 2)
TIMED(Win_fence, (int assertion, MPI_Win win), (assertion, win))
FORTRAN_TIMED(win_fence, 3)
TIMED(Win_start, (MPI_Group group, int assertion, MPI_Win win), (group, assertion, win))
FORTRAN_TIMED(win_start, 4)
TIMED(Win_complete, (MPI_Win win), (win))
FORTRAN_TIMED(win_complete, 2)
TIMED(Win_post, (MPI_Group group, int assertion, MPI_Win win), (group, assertion, win))
FORTRAN_TIMED(win_post, 4)
TIMED(Win_wait, (MPI_Win win), (win))
FORTRAN_TIMED(win_wait, 2)
TIMED(Win_lock, (int kind, int rank, int assertion, MPI_Win win), (kind, rank, assertion, win))
FORTRAN_TIMED(win_lock, 5)
TIMED(Win_unlock, (int rank, MPI_Win win), (rank, win))
FORTRAN_TIMED(win_unlock, 3)
TIMED(Win_lock_all, (int assertion, MPI_Win win), (assertion, win))
FORTRAN_TIMED(win_lock_all, 3)
TIMED(Win_unlock_all, (MPI_Win win), (win))
FORTRAN_TIMED(win_unlock_all, 2)
TIMED(Win_flush, (int rank, MPI_Win win), (rank, win))
FORTRAN_TIMED(win_flush, 3)
TIMED(Win_flush_all, (MPI_Win win), (win))
FORTRAN_TIMED(win_flush_all, 2)
TIMED(Win_flush_local, (int rank, MPI_Win win), (rank, win))
FORTRAN_TIMED(win_flush_local, 3)
TIMED(Win_flush_local_all, (MPI_Win win), (win))
FORTRAN_TIMED(win_flush_local_all, 2)

/*
 * Others that wait, of which nothing is counted: their arguments are words in C, too, so that those of each
 * MPI's header need not be repeated. n: arguments in Fortran, where behind the last come the lengths of texts
 * that are among them; to pass on more than there are does no harm.
 */
#define PASSED(name, fortran, n)                                                    \
	int evenly_##name(P##n) __asm__("MPI_" #name);                              \
	int evenly_##name(P##n)                                                     \
	{                                                                           \
		static _Atomic(void *) next;                                        \
		unsigned entered = enter(false);                                    \
		int rc = ((int(*)(P##n))next_of(&next, "PMPI_" #name, CALLER))(A##n); \
		leave(entered);                                                     \
		return rc;                                                          \
	}                                                                           \
	FORTRAN_TIMED(fortran, n)
PASSED(Request_get_status, request_get_status, 4)
PASSED(Win_test, win_test, 3)
PASSED(Comm_dup_with_info, comm_dup_with_info, 4)
PASSED(Comm_create_group, comm_create_group, 5)
PASSED(Intercomm_create, intercomm_create, 7)
PASSED(Intercomm_merge, intercomm_merge, 4)
PASSED(Cart_sub, cart_sub, 4)
PASSED(Graph_create, graph_create, 7)
PASSED(Dist_graph_create, dist_graph_create, 10)
PASSED(Dist_graph_create_adjacent, dist_graph_create_adjacent, 11)
PASSED(Comm_spawn, comm_spawn, 11)
PASSED(Comm_spawn_multiple, comm_spawn_multiple, 12)
PASSED(Comm_connect, comm_connect, 7)
PASSED(Comm_accept, comm_accept, 7)
PASSED(Comm_join, comm_join, 3)
PASSED(Comm_disconnect, comm_disconnect, 2)
PASSED(Win_create_dynamic, win_create_dynamic, 4)
PASSED(Win_allocate_shared, win_allocate_shared, 7)
FORTRAN_NAME(false, mpi_win_allocate_shared_cptr_, 7, , )
LARGE(Win_allocate_shared, 7, )

/* Files: those that all ranks which have one open call together. */
#define FILE_COUNTED(name, fortran, n) \
	PASSED(name, fortran, n)       \
	LARGE(name, n, )
PASSED(File_open, file_open, 7)
PASSED(File_close, file_close, 2)
PASSED(File_set_view, file_set_view, 8)
PASSED(File_set_size, file_set_size, 3)
PASSED(File_preallocate, file_preallocate, 3)
PASSED(File_sync, file_sync, 2)
PASSED(File_seek_shared, file_seek_shared, 4)
FILE_COUNTED(File_read_all, file_read_all, 6)
FILE_COUNTED(File_read_at_all, file_read_at_all, 7)
FILE_COUNTED(File_read_ordered, file_read_ordered, 6)
FILE_COUNTED(File_write_all, file_write_all, 6)
FILE_COUNTED(File_write_at_all, file_write_at_all, 7)
FILE_COUNTED(File_write_ordered, file_write_ordered, 6)
FILE_COUNTED(File_read_all_begin, file_read_all_begin, 5)
PASSED(File_read_all_end, file_read_all_end, 4)
FILE_COUNTED(File_read_at_all_begin, file_read_at_all_begin, 6)
PASSED(File_read_at_all_end, file_read_at_all_end, 4)
FILE_COUNTED(File_read_ordered_begin, file_read_ordered_begin, 5)
PASSED(File_read_ordered_end, file_read_ordered_end, 4)
FILE_COUNTED(File_write_all_begin, file_write_all_begin, 5)
PASSED(File_write_all_end, file_write_all_end, 4)
FILE_COUNTED(File_write_at_all_begin, file_write_at_all_begin, 6)
PASSED(File_write_at_all_end, file_write_at_all_end, 4)
FILE_COUNTED(File_write_ordered_begin, file_write_ordered_begin, 5)
PASSED(File_write_ordered_end, file_write_ordered_end, 4)

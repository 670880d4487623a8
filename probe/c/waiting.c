/*
 * Who computes and who waits, published by the program itself while it runs.
 *
 * A library for LD_PRELOAD. It stands before barriers and conditions of POSIX threads, futexes, libgomp and
 * before MPI (of any kind: it knows of a call only how many arguments to pass on), and is a tool of libomp
 * (OMPT); it writes what it sees into the mapping that waiting.h describes. Without $EVENLY_PROBE it only
 * passes calls on.
 *
 * It observes, and hides the masks by which evenly moves threads (waiting_masks.h). In regions of libgomp that are plain
 * (waiting_plain.h) it replaces barriers (waiting_team.h).
 *
 * Invariants: the program sees the same results, errno among them. Nothing is allocated, no thread is
 * started, no signal is handled or blocked, and nothing is locked but by the loader (waiting_next.h). Nothing here ends
 * the program or writes to its files: what cannot be followed is passed on. All that map the file can write to all of it, so nothing that is read from
 * there is trusted: an index is within the bounds that were compiled, and a loop has an end. MPI is asked for nothing but, when it has been
 * initialised and when communicators are made, who is which rank. A wait within a wait (MPI that uses
 * conditions) belongs to the outer one. What leaves a wrapper by another way (a signal handler that jumps,
 * a thread that is cancelled) leaves nothing behind that counts.
 *
 * What libgomp does inside cannot be seen: it calls its own functions past any preload. What can be seen is
 * when each thread begins and ends its part of a region, as the function that it is given can be another,
 * and when the region is over for the thread that began it. From there to there everybody waited, but for
 * tasks, which are executed where threads wait: when each begins and ends is seen in the same way. Tasks of loops
 * (GOMP_taskloop) and those that end when an event comes (detach) cannot be followed so: in a region in which
 * one was made no thread is reported as waiting at barriers and ends, nor in one with short tasks (waiting_tasks.h). With
 * libomp tasks of loops are distinguished.
 *
 * Not seen: barriers that a program makes itself, but for those at which threads block (waiting_own.h); regions of programs
 * that were compiled by a gcc before 4.9; parallel regions nested in more than three others; MPI from Fortran 2008 of MPICH; collective calls
 * that do not block, but for the waiting for them; input and output of files that is not collective.
 */
#define _GNU_SOURCE
#include "waiting.h"
#include "clock.h"
/* Not by the wrapper (below), to which it would be one that is unloaded. */
static int lets_go(void *library);
#define EVENLY_LETS_GO lets_go
#include "next.h"
#include "shared.h"
#include "system_call.h"
#include "words.h"
#ifdef EVENLY_MPI_CALLS
#include "messages.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define COLD __attribute__((noinline, cold))
#define LIKELY(x) __builtin_expect(!!(x), 1)

typedef struct evenly_line line_t;

static struct evenly_header *header;
static line_t *lines;
static struct evenly_note *notes;
static uint32_t pid;
static pthread_key_t key;
/* Where the program needs all keys, it gets this one. */
static _Atomic bool keeps_key;
/* Whether something was met with which no barrier of this process is to be replaced. */
static _Atomic bool doubts;

/* Zero in a process that was forked, whichever way: then nothing that threads remember is theirs. */
static uint32_t no_generation = 2;
static volatile uint32_t *generation = &no_generation;
static uint32_t last_generation = 2;
static bool attached;

/* The two clocks when this process began, for their ratio. */
static uint64_t began_ticks, began_ns;

/* Regions within regions that are seen. */
#define NESTING 4

/* Where a thread is in the team of a region. */
struct place {
	struct evenly_note *watched; /* of the team; NULL: its barriers are not observed */
	struct evenly_team *team;    /* NULL: its barriers are left to the runtime */
	struct code *code;           /* of the region; NULL: they are so always */
	uint32_t number, members;
	uint32_t arrived;            /* barriers of the region to which it has come */
};

static __thread struct {
	uint32_t generation; /* that in which the rest is true; 1 is none */
	bool busy;           /* getting a line */
	bool by_runtime;     /* libomp has said that this thread waits */
	line_t *line;
	const void *outer;   /* the stack frame of the wrapper that waits */
	line_t *teams[NESTING];
	unsigned depth;      /* regions that this thread has begun */
	struct { struct place place; uint16_t team; uint32_t region; } parts[2 * NESTING]; /* outer ones, libomp's */
	unsigned part;
	struct place place; /* in the team whose barriers it waits at */
	const void *code;   /* the function of the program that this library has called last: a region, or a task */
	struct { uint64_t at; uint32_t phase; } begun; /* when this thread began a region last that might have been replaced */
	const void *begins_at; /* where in the program this thread has begun its last region, with libomp */
	struct evenly_team *own_teams[NESTING]; /* of the regions that it begins */
	/* The clock: ns at a tick, and for how many ticks from there that holds. */
	uint64_t at_ticks, at_ns, holds, mult;
} here __attribute__((tls_model("initial-exec"))) = { .generation = 1 };

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* Past the wrapper of this library. */
static _Atomic(void *) next_syscall;
static COLD void *find_syscall(void)
{
	int before = errno;
	void *at = dlsym(RTLD_NEXT, "syscall");
	errno = before;
	SET(next_syscall, at);
	return at;
}

static inline long (*to_kernel(void))(long, ...)
{
	void *at = GET(next_syscall);
	return (long (*)(long, ...))(LIKELY(at) ? at : find_syscall());
}
#define SYSCALL(...) to_kernel()(__VA_ARGS__)

/* ---------------------------------------------------------------- time */

/*
 * The kernel's clock takes twice as long as the cycle counter (27 and 12 ns on a virtual machine), too much
 * for a barrier. So ns are counted from a reading of it, which is repeated ten times a second: a ratio found
 * over 10 ms is right to some parts in a million, which makes less than a microsecond then.
 */
static COLD uint64_t read_clock(uint64_t t)
{
	uint64_t ns = clock_ns(CLOCK_MONOTONIC);
	if (!header || !header->ticks)
		return ns;
	uint64_t mult = GET(header->mult);
	if (!mult && ns - began_ns > 10000000 && t > began_ticks) {
		mult = (uint64_t)(((unsigned __int128)(ns - began_ns) << 32) / (t - began_ticks));
		SET(header->mult, mult);
	}
	if (mult) {
		here.at_ticks = t;
		here.at_ns = ns;
		here.mult = mult;
		here.holds = (UINT64_C(100000000) << 32) / mult;
	}
	return ns;
}

/* The moment of a reading of the cycle counter that was made just now. */
static inline uint64_t ns_at(uint64_t t)
{
	uint64_t passed = t - here.at_ticks;
	/* One that goes backwards gives a huge number. */
	return LIKELY(passed < here.holds) ? here.at_ns + (passed * here.mult >> 32) : read_clock(t);
}

static inline uint64_t now(void)
{
	return ns_at(ticks());
}

/* ---------------------------------------------------------------- lines */

/* Relaxed and a fence before the fields, release after them: who sees a field sees an odd `seq` or a new
 * one. There is one writer, so that no locked operation is needed. */
static inline void begin_write(line_t *line)
{
	SET(line->seq, GET(line->seq) + 1);
	atomic_thread_fence(memory_order_release);
}

static inline void end_write(line_t *line)
{
	atomic_store_explicit(&line->seq, GET(line->seq) + 1, memory_order_release);
}

static uint16_t number_of(const line_t *line)
{
	return (uint16_t)(line - lines + 1);
}

/* How often an exchange is tried that others can spoil. Each that fails means that another thread has succeeded, so
 * that this is never reached, unless something writes all over the mapping. */
#define TRIES 10000

/* Whether this is the number of a line. It comes from the mapping, where any program can have written anything. */
static bool is_number(uint32_t number)
{
	return number - 1 < EVENLY_LINES;
}
_Static_assert(EVENLY_LINES >= UINT16_MAX, "any number of a team is that of a line");

static line_t *mine(void);
static inline void change(line_t *line, uint8_t state, uint32_t object);
#include "waiting_phases.h"
#include "waiting_team.h"
static void is_no_member(void);
/* This process is a rank of MPI. */
static _Atomic bool has_ranks;

/* This process, or what started it, has set affinity masks (waiting_masks.h). */
static _Atomic bool sets_masks;
static bool begin_masks(void);
static void begins_process(void);

/* A line of the list, or one that was never used. Acquire and release: what its last owner wrote is seen. A list that
 * leads out of the mapping is left as it is. */
static line_t *take(void)
{
	uint64_t head = atomic_load_explicit(&header->free, memory_order_acquire);
	for (unsigned tries = 0; tries < TRIES && is_number((uint32_t)head); tries++) {
		line_t *line = &lines[(uint32_t)head - 1];
		/* It may be taken meanwhile, and this be nonsense: then the count is another. */
		uint64_t next = ((head >> 32) + 1) << 32 | GET(line->object);
		if (atomic_compare_exchange_weak_explicit(&header->free, &head, next, memory_order_acq_rel,
			    memory_order_acquire))
			return line;
	}
	uint32_t high = GET(header->high);
	for (unsigned tries = 0; tries < TRIES && high < EVENLY_LINES; tries++)
		if (atomic_compare_exchange_weak_explicit(&header->high, &high, high + 1, memory_order_acq_rel,
			    memory_order_relaxed))
			return &lines[high];
	return NULL;
}

static line_t *claim(uint8_t kind)
{
	line_t *line = take();
	if (!line) {
		atomic_fetch_add_explicit(&header->refused, 1, memory_order_relaxed);
		return NULL;
	}
	/* What was killed while it wrote has left an odd number. */
	if (GET(line->seq) & 1)
		SET(line->seq, GET(line->seq) + 1);
	begin_write(line);
	SET(line->tid, (uint32_t)SYSCALL(SYS_gettid));
	SET(line->pid, pid);
	SET(line->registered, clock_ns(CLOCK_BOOTTIME));
	SET(line->entered, now());
	SET(line->waited, 0);
	SET(line->outside, 0);
	SET(line->object, 0);
	SET(line->region, 0);
	SET(line->phases, 0);
	SET(line->waits, 0);
	SET(line->team, 0);
	SET(line->state, EVENLY_COMPUTING);
	SET(line->kind, kind);
	end_write(line);
	struct evenly_note *note = note_of(line);
	SET(note->home, 0);
	SET(note->armed, 0);
	SET(note->measured, EVENLY_UNMEASURED);
	SET(note->arrivals, 0);
	SET(note->opened, 0);
	SET(note->base, 0);
	SET(note->expected, 0);
	SET(note->meets, 0);
	SET(note->until, 0);
	SET(note->bound, GET(sets_masks));
	SET(note->replaced, 0);
	atomic_fetch_add_explicit(&header->changes, 1, memory_order_release);
	return line;
}

/* Puts a line of `owner` on the list, unless another thread does. */
static void give_back(line_t *line, uint32_t owner)
{
	if (!atomic_compare_exchange_strong(&line->pid, &owner, 0))
		return;
	if (GET(line->seq) & 1)
		SET(line->seq, GET(line->seq) + 1);
	begin_write(line);
	SET(line->kind, EVENLY_FREE);
	SET(line->tid, 0);
	end_write(line);
	uint64_t head = GET(header->free), first;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		SET(line->object, is_number((uint32_t)head) ? (uint32_t)head : 0);
		first = ((head >> 32) + 1) << 32 | number_of(line);
		if (atomic_compare_exchange_weak_explicit(&header->free, &head, first, memory_order_acq_rel,
			    memory_order_relaxed))
			break;
	}
	atomic_fetch_add_explicit(&header->changes, 1, memory_order_release);
}

/* A thread ends. */
static void thread_ends(void *value)
{
	(void)value;
	if (here.generation != *generation || !here.line)
		return;
	is_no_member();
	give_back(here.line, pid);
	here.line = NULL;
	for (unsigned i = 0; i < NESTING; i++) {
		if (here.teams[i])
			give_back(here.teams[i], pid);
		if (here.own_teams[i])
			munmap(here.own_teams[i], size_of_team(here.own_teams[i]->room));
	}
	memset(here.teams, 0, sizeof here.teams);
	/* It keeps the generation: other destructors that wait get no new line. */
}

/* Lines of programs that were killed, and of what this process was before exec. */
static void sweep(void)
{
	uint32_t high = atomic_load_explicit(&header->high, memory_order_acquire);
	uint32_t alive = 0;
	for (uint32_t i = 0; i < high && i < EVENLY_LINES; i++) {
		uint32_t owner = GET(lines[i].pid);
		if (!owner || owner == alive)
			continue;
		if (owner != pid && process_is_there((uint32_t)owner))
			alive = owner;
		else
			give_back(&lines[i], owner);
	}
}

/* Whether the mapping has the layout that this library knows. */
static bool fits(const struct evenly_header *h)
{
	return h->magic == EVENLY_MAGIC && h->version == EVENLY_VERSION && h->line_size == sizeof(line_t)
		&& h->lines == EVENLY_LINES && is_of_this_host(h->boot, h->pid_namespace);
}

/* Maps the file; nothing happens where that cannot be. True where this process is to have a line from its beginning on. */
static bool attach(void)
{
	size_t size = EVENLY_SIZE;
	int file = open_shared(EVENLY_VARIABLE, EVENLY_NAME, size);
	if (file < 0)
		return false;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), *page = MAP_FAILED;
	close(file);
	if (at != MAP_FAILED && fits(at))
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0
		&& pthread_key_create(&key, thread_ends) == 0
		&& pthread_atfork(NULL, NULL, begins_process) == 0) {
		SET(keeps_key, true);
		header = at;
		lines = (line_t *)((char *)at + EVENLY_HEADER);
		notes = (struct evenly_note *)((char *)at + EVENLY_NOTES);
		pid = (uint32_t)getpid();
		began_ns = clock_ns(CLOCK_MONOTONIC);
		began_ticks = ticks();
		bool needs_line = begin_masks();
		sweep();
		atomic_fetch_add_explicit(&header->attached, 1, memory_order_relaxed);
		*(uint32_t *)page = last_generation = 3;
		generation = page;
		return needs_line;
	}
	if (page != MAP_FAILED)
		munmap(page, 4096);
	if (at != MAP_FAILED)
		munmap(at, size);
	return false;
}

/* The first call of a thread, also in a process that was forked. */
static COLD line_t *first(void)
{
	int before = errno;
	line_t *line = NULL;
	/* Not while libraries before this one are initialised, nor in a signal handler while this goes on. */
	if (!attached || here.busy)
		return NULL;
	here.busy = true;
	if (!*generation) {
		pid = (uint32_t)getpid();
		*generation = ++last_generation;
		SET(doubts, true);
	}
	here.line = NULL;
	here.outer = NULL;
	here.by_runtime = false;
	here.depth = here.part = 0;
	here.place = (struct place){ 0 };
	memset(here.own_teams, 0, sizeof here.own_teams);
	memset(here.teams, 0, sizeof here.teams);
	if (header) {
		line = here.line = claim(EVENLY_THREAD);
		if (line && GET(keeps_key))
			pthread_setspecific(key, &here);
	}
	here.generation = *generation;
	here.busy = false;
	errno = before;
	return line;
}

/* This thread's line; NULL where it has none. */
static line_t *mine(void)
{
	return LIKELY(here.generation == *generation) ? here.line : first();
}

/* ---------------------------------------------------------------- states */

/* When the region was over in which a thread of this line began to wait; 0 where it goes on. Where later
 * ones are over, too, it is not known: then it is as if it had been at once. */
static uint64_t over(const line_t *line, uint64_t entered)
{
	uint16_t team = GET(line->team);
	if (!team)
		return 0;
	const line_t *t = &lines[team - 1];
	uint32_t region = GET(line->region), last = GET(t->region);
	bool goes_on = GET(t->state) != EVENLY_COMPUTING;
	if (region == last && goes_on)
		return 0;
	/* Begun anew: `entered` is still when the one before ended, see begin_region. */
	bool next = last == region + 1 && goes_on;
	uint64_t ended = GET(t->entered);
	return (region == last || next) && ended > entered ? ended : entered;
}

/* Whether it may have executed tasks of its team while it seemed to wait: for all of the team, or for tasks. */
static bool with_tasks(const line_t *line, uint8_t state)
{
	uint16_t team = GET(line->team);
	bool for_tasks = state == EVENLY_LOCK && !GET(line->object);
	return team && (state == EVENLY_BARRIER || state == EVENLY_END || for_tasks)
		&& (GET(lines[team - 1].object) & EVENLY_UNSEEN_TASKS);
}

/* Until when a thread of this line was outside of regions: since the next one began it has waited for a CPU, if it is a
 * member of that. */
static uint64_t until_next(const line_t *line, uint64_t since, uint64_t t)
{
	uint16_t team = GET(line->team);
	if (!team || GET(lines[team - 1].region) != GET(line->region) + 1)
		return t;
	uint64_t began = GET(notes[team - 1].opened);
	return began >= since && began < t ? began : t;
}

/* Adds what has passed since `entered` to what it was spent on. Within a write. */
static inline void account(line_t *line, uint64_t t)
{
	uint8_t state = GET(line->state);
	uint64_t entered = GET(line->entered), end = t;
	bool outside = state == EVENLY_OUTSIDE;
	if (state == EVENLY_COMPUTING || t < entered)
		return;
	if (outside) {
		end = entered;
	} else if (state == EVENLY_BARRIER || state == EVENLY_END) {
		uint64_t ended = over(line, entered), there = all_there(line, entered);
		outside = ended && ended < t;
		if (outside)
			end = ended;
		/* From then on it has waited for a CPU. */
		if (there && there < end)
			end = there;
	}
	if (!with_tasks(line, state))
		SET(line->waited, GET(line->waited) + (end - entered));
	if (outside)
		SET(line->outside, GET(line->outside) + (until_next(line, end, t) - end));
}

static inline void change_at(line_t *line, uint8_t state, uint32_t object, uint64_t t)
{
	begin_write(line);
	account(line, t);
	SET(line->entered, t);
	SET(line->object, object);
	SET(line->state, state);
	if (state != EVENLY_COMPUTING && state != EVENLY_OUTSIDE) {
		SET(line->waits, GET(line->waits) + 1);
		if (state != EVENLY_LOCK && state != EVENLY_MPI)
			SET(line->phases, GET(line->phases) + 1);
	}
	end_write(line);
}

static inline void change(line_t *line, uint8_t state, uint32_t object)
{
	change_at(line, state, object, now());
}

static inline uint32_t name_of(const void *object)
{
	return (uint32_t)((uintptr_t)object >> 4);
}

/* The wait that a jump has ended, at a time that is not known. */
static COLD void forget(line_t *line)
{
	begin_write(line);
	SET(line->entered, now());
	SET(line->state, EVENLY_COMPUTING);
	end_write(line);
}

/* A wrapper begins to wait; NULL where that is not to be counted. `frame` is its own: stacks grow downwards,
 * so one that is above the wrapper that waits shows that this one was left by a jump. One that is below may be
 * within it, and is taken for that: of a program that jumps and then waits further down nothing is counted
 * until it waits further up. */
static inline line_t *begins_to_wait(const void *frame)
{
	line_t *line = mine();
	if (!line || here.by_runtime || (here.outer && (uintptr_t)here.outer > (uintptr_t)frame))
		return NULL;
	/* In a task that is executed unseen at the end of a region: after it the thread is there again. */
	if (GET(line->state) == EVENLY_END && with_tasks(line, EVENLY_END))
		return NULL;
	if (here.outer)
		forget(line);
	here.outer = frame;
	return line;
}

static inline line_t *enter(uint8_t state, uint32_t object, const void *frame)
{
	line_t *line = begins_to_wait(frame);
	if (line)
		change(line, state, object);
	return line;
}

/* Whether a wrapper that waited is left by the thread that entered it: not so in a process that was forked
 * within. */
static inline bool has_waited(line_t *entered)
{
	return entered && here.generation == *generation && here.line == entered;
}

/* Called by the compiler, however the wrapper is left. */
static inline void leave(line_t **entered)
{
	if (!has_waited(*entered))
		return;
	change(*entered, EVENLY_COMPUTING, 0);
	here.outer = NULL;
}

#define WAITS(state, object)                                                            \
	line_t *entered __attribute__((cleanup(leave), unused)) =                       \
		enter(state, object, __builtin_frame_address(0))

#include "waiting_next.h"

/* ---------------------------------------------------------------- POSIX threads */

/* Of these there are two on this machine, for structures of different sizes. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define CONDITION "GLIBC_2.3.2"
#define AS(name) evenly_##name
__asm__(".symver evenly_pthread_cond_wait,pthread_cond_wait@@GLIBC_2.3.2");
__asm__(".symver evenly_pthread_cond_timedwait,pthread_cond_timedwait@@GLIBC_2.3.2");
__asm__(".symver evenly_pthread_cond_signal,pthread_cond_signal@@GLIBC_2.3.2");
__asm__(".symver evenly_pthread_cond_broadcast,pthread_cond_broadcast@@GLIBC_2.3.2");
#else
#define CONDITION NULL
#define AS(name) name
#endif

static _Atomic(void *) cond_wait, cond_timedwait, cond_signal, cond_broadcast;

/* Looks for an MPI library that this library does not wrap, and reports it: it is the reason why no rank is seen to
 * wait. Looked at the start, as a program may never reach its end; and at the end, for modules that it has loaded
 * meanwhile. */
#ifndef EVENLY_MPI_CALLS
static int is_mpi(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size, (void)unused;
	const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	return name && (!strncmp(name, "/libmpi.so", 10) || !strncmp(name, "/libmpich.so", 12));
}

__attribute__((destructor)) static void look_for_mpi(void)
{
	if (header && !GET(header->unseen_mpi) && dl_iterate_phdr(is_mpi, NULL))
		SET(header->unseen_mpi, 1);
}
#else
static void look_for_mpi(void)
{
}
#endif

/* Of these there is one each. */
static const char *const of_posix[] = {
	"pthread_barrier_wait", "pthread_barrier_init", "pthread_cond_clockwait", "dlclose", "pthread_create", "pthread_key_create", "sched_yield", "sched_getaffinity", "pthread_getaffinity_np", "sched_setaffinity",
	"pthread_setaffinity_np", "pthread_attr_setaffinity_np",
};

/* Before the program runs: to look for them later may mean to wait for a thread that loads a library, and that
 * waits for this very thread. */
__attribute__((constructor)) static void begin(void)
{
	int before = errno;
	find_syscall();
	bool needs_line = attach();
	attached = true;
	if (needs_line)
		mine();
	look_for_mpi();
	errno = before;
	for (unsigned i = 0; i < sizeof of_posix / sizeof *of_posix; i++)
		keep(of_posix[i], NULL, dlsym(RTLD_NEXT, of_posix[i]), 0);
	openmp_of_all = dlsym(RTLD_NEXT, "GOMP_parallel");
	if (openmp_of_all)
		find_openmp(NULL, NULL);
	look_up(&cond_wait, "pthread_cond_wait", CONDITION, NULL);
	look_up(&cond_timedwait, "pthread_cond_timedwait", CONDITION, NULL);
	look_up(&cond_signal, "pthread_cond_signal", CONDITION, NULL);
	look_up(&cond_broadcast, "pthread_cond_broadcast", CONDITION, NULL);
}

static inline void *known_condition(_Atomic(void *) *slot, const char *name)
{
	void *at = GET(*slot);
	return LIKELY(at) ? at : look_up(slot, name, CONDITION, NULL);
}

static int lets_go(void *library)
{
	return ((int (*)(void *))NEXT("dlclose"))(library);
}

/* From its beginning on functions may be gone, and until its end ones may be kept that are on their way. */
EXPORT int dlclose(void *library)
{
	atomic_fetch_add(&closed, 1);
	int result = lets_go(library);
	atomic_fetch_add(&closed, 1);
	return result;
}

/* The team of a place: its line, plus 2^32 times the generation in which that is true. NULL where there is no line for it. */
static struct evenly_note *team_at(_Atomic uint64_t *slot, uint8_t kind)
{
	uint64_t seen = GET(*slot);
	if (LIKELY(seen >> 32 == *generation))
		return &notes[(uint32_t)seen - 1];
	line_t *line = claim(kind);
	if (!line)
		return NULL;
	uint64_t own = (uint64_t)*generation << 32 | number_of(line);
	if (atomic_compare_exchange_strong(slot, &seen, own))
		return note_of(line);
	/* Another thread was first. */
	give_back(line, pid);
	return &notes[(uint32_t)seen - 1];
}

#include "waiting_barriers.h"
#include "waiting_own.h"

/* There are so many keys (PTHREAD_KEYS_MAX), and this library has one. Without it lines of threads that end are given back
 * when the process has ended. */
EXPORT int pthread_key_create(pthread_key_t *made, void (*ends)(void *))
{
	int (*next)(pthread_key_t *, void (*)(void *)) = NEXT("pthread_key_create");
	int result = next(made, ends);
	if (result == EAGAIN && atomic_exchange(&keeps_key, false) && pthread_key_delete(key) == 0)
		result = next(made, ends);
	return result;
}

#include "waiting_masks.h"
#include "waiting_plain.h"
#include "waiting_tasks.h"
#include "waiting_openmp.h"
#include "waiting_yield.h"
/* A library of its own, so that programs that ask whether there is MPI find none where there is none. */
#ifdef EVENLY_MPI_CALLS
#include "waiting_mpi.h"
#endif

/*
 * Who computes and who waits, told by the program itself while it runs.
 *
 * A library for LD_PRELOAD. It stands before barriers and conditions of POSIX threads, before libgomp and
 * before MPI (of any kind: it knows of a call only how many arguments to pass on), and is a tool of libomp
 * (OMPT); it writes what it sees into the mapping that waiting.h describes. Without $EVENLY_PROBE it only
 * passes calls on.
 *
 * Invariants: the program sees the same results, errno among them. Nothing is allocated, no thread is
 * started, nothing is locked, no signal is handled or blocked. Nothing here ends the program or writes to its files:
 * what cannot be followed is passed on. All that map the file can write to all of it, so nothing that is read from
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
 * one was made nobody is said to wait at barriers and ends. With libomp they are told apart.
 *
 * Not seen: barriers that a program makes itself; regions of programs that were compiled by a gcc before
 * 4.9; parallel regions nested in more than three others; MPI from Fortran 2008 of MPICH; collective calls
 * that do not block, but for the waiting for them; input and output of files that is not collective.
 */
#define _GNU_SOURCE
#include "waiting.h"
#include "next.h"
#ifdef EVENLY_MPI_CALLS
#include "messages.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
static uint32_t pid;
static pthread_key_t key;

/* Zero in a process that was forked, whichever way: then nothing that threads remember is theirs. */
static uint32_t no_generation = 2;
static volatile uint32_t *generation = &no_generation;
static uint32_t last_generation = 2;
static bool attached;

/* The two clocks when this process began, for their ratio. */
static uint64_t began_ticks, began_ns;

/* Regions within regions that are seen. */
#define NESTING 4

static __thread struct {
	uint32_t generation; /* that in which the rest is true; 1 is none */
	bool busy;           /* getting a line */
	bool by_runtime;     /* libomp has said that this thread waits */
	line_t *line;
	const void *outer;   /* the stack frame of the wrapper that waits */
	line_t *teams[NESTING];
	unsigned depth;      /* regions that this thread has begun */
	struct { uint16_t team; uint32_t region; } parts[2 * NESTING]; /* outer ones, libomp's */
	unsigned part;
	/* The clock: ns at a tick, and for how many ticks from there that holds. */
	uint64_t at_ticks, at_ns, holds, mult;
} here __attribute__((tls_model("initial-exec"))) = { .generation = 1 };

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* ---------------------------------------------------------------- time */

static uint64_t clock_ns(clockid_t clock)
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
	return 0;
#endif
}

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
 * one. Nobody else writes, so that no locked operation is needed. */
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
	SET(line->tid, (uint32_t)syscall(SYS_gettid));
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
	atomic_fetch_add_explicit(&header->changes, 1, memory_order_release);
	return line;
}

/* Puts a line of `owner` on the list, unless somebody else does. */
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
	give_back(here.line, pid);
	here.line = NULL;
	for (unsigned i = 0; i < NESTING; i++)
		if (here.teams[i])
			give_back(here.teams[i], pid);
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
		if (owner != pid && (getpgid((pid_t)owner) >= 0 || errno != ESRCH))
			alive = owner;
		else
			give_back(&lines[i], owner);
	}
}

/* Whether the mapping is of this host and numbers its processes as this one does: programs may have been
 * started elsewhere, with the same variables. */
static bool fits(const struct evenly_header *h)
{
	char boot[sizeof h->boot] = "";
	struct stat namespace;
	if (h->magic != EVENLY_MAGIC || h->version != EVENLY_VERSION || h->line_size != sizeof(line_t)
		|| h->lines != EVENLY_LINES)
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

/* Maps the file; nothing happens where that cannot be. */
static void attach(void)
{
	char link[sizeof EVENLY_NAME];
	const char *name = getenv(EVENLY_VARIABLE);
	if (!name || readlink(name, link, sizeof link) < (ssize_t)sizeof EVENLY_NAME - 1
		|| memcmp(link, EVENLY_NAME, sizeof EVENLY_NAME - 1))
		return;
	int file = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file < 0)
		return;
	struct stat stat;
	size_t size = EVENLY_HEADER + EVENLY_LINES * sizeof(line_t);
	void *at = MAP_FAILED, *page = MAP_FAILED;
	/* To touch what another process has cut off is SIGBUS. Only what is sealed, which a file of a file system cannot
	 * be, keeps its length. */
	int seals = fcntl(file, F_GET_SEALS);
	if (seals >= 0 && seals & F_SEAL_SHRINK && fstat(file, &stat) == 0 && stat.st_size >= (off_t)size)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (at != MAP_FAILED && fits(at))
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0
		&& pthread_key_create(&key, thread_ends) == 0) {
		header = at;
		lines = (line_t *)((char *)at + EVENLY_HEADER);
		pid = (uint32_t)getpid();
		began_ns = clock_ns(CLOCK_MONOTONIC);
		began_ticks = ticks();
		sweep();
		atomic_fetch_add_explicit(&header->attached, 1, memory_order_relaxed);
		*(uint32_t *)page = last_generation = 3;
		generation = page;
		return;
	}
	if (page != MAP_FAILED)
		munmap(page, 4096);
	if (at != MAP_FAILED)
		munmap(at, size);
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
	}
	here.line = NULL;
	here.outer = NULL;
	here.by_runtime = false;
	here.depth = here.part = 0;
	memset(here.teams, 0, sizeof here.teams);
	if (header) {
		line = here.line = claim(EVENLY_THREAD);
		if (line)
			pthread_setspecific(key, &here);
	}
	here.generation = *generation;
	here.busy = false;
	errno = before;
	return line;
}

/* This thread's line; NULL where it has none. */
static inline line_t *mine(void)
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

/* Whether it may have executed tasks of its team while it seemed to wait. */
static bool with_tasks(const line_t *line, uint8_t state)
{
	uint16_t team = GET(line->team);
	return team && (state == EVENLY_BARRIER || state == EVENLY_END) && GET(lines[team - 1].object);
}

/* Adds what has passed since `entered` to what it was spent on. Within a write. */
static inline void account(line_t *line, uint64_t t)
{
	uint8_t state = GET(line->state);
	uint64_t entered = GET(line->entered), end = t;
	if (state == EVENLY_COMPUTING || t < entered)
		return;
	if (state == EVENLY_OUTSIDE) {
		end = entered;
	} else if (state == EVENLY_BARRIER || state == EVENLY_END) {
		uint64_t ended = over(line, entered);
		if (ended && ended < t)
			end = ended;
	}
	if (!with_tasks(line, state))
		SET(line->waited, GET(line->waited) + (end - entered));
	if (end < t)
		SET(line->outside, GET(line->outside) + (t - end));
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

/* ---------------------------------------------------------------- what is behind */

/* What is called where no library has the function. A program that is linked against it has one, so that only a
 * program comes here which has asked whether there is such a function, and was shown the wrapper. An error for POSIX
 * and for MPI (MPI_ERR_OTHER or MPI_ERR_INTERN, which are 16 or less in each); of libgomp 0 is no error. */
static long no_function(void)
{
	return 16;
}

static long no_libgomp(void)
{
	return 0;
}

/* The next function of this name. */
static COLD void *look_up(_Atomic(void *) *slot, const char *name, const char *version, const void *caller)
{
	int before = errno;
	void *next = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
	if (!next)
		next = dlsym(RTLD_NEXT, name);
	void *at = of_either(next, name, caller);
	/* Relaxed: what it points to was there before any thread. */
	if (at == next && at)
		SET(*slot, at);
	if (!at)
		at = of_runtime(name);
	if (!at)
		at = strncmp(name, "GOMP_", 5) ? (void *)no_function : (void *)no_libgomp;
	errno = before;
	return at;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))
#define NEXT(name)                                                                     \
	({                                                                             \
		static _Atomic(void *) next_;                                          \
		void *at_ = GET(next_);                                                \
		LIKELY(at_) ? at_ : look_up(&next_, name, NULL, CALLER);               \
	})

/* ---------------------------------------------------------------- POSIX threads */

/* Of these there are two on this machine, for structures of different sizes. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define CONDITION "GLIBC_2.3.2"
#define AS(name) evenly_##name
__asm__(".symver evenly_pthread_cond_wait,pthread_cond_wait@@GLIBC_2.3.2");
__asm__(".symver evenly_pthread_cond_timedwait,pthread_cond_timedwait@@GLIBC_2.3.2");
#else
#define CONDITION NULL
#define AS(name) name
#endif

static _Atomic(void *) barrier_wait, cond_wait, cond_timedwait, cond_clockwait;

/* Of what a program uses as it begins or ends: MPI that this library does not stand before is told, as nobody
 * would know why no rank is seen to wait. That which is in the program from the start, as programs need not end
 * so that there is an end to look at; and modules that it has loaded meanwhile. */
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

/* Before the program runs: to look for them later may mean to wait for somebody who loads a library, and who
 * waits for this very thread. */
__attribute__((constructor)) static void begin(void)
{
	int before = errno;
	attach();
	attached = true;
	look_for_mpi();
	errno = before;
	look_up(&barrier_wait, "pthread_barrier_wait", NULL, NULL);
	look_up(&cond_wait, "pthread_cond_wait", CONDITION, NULL);
	look_up(&cond_timedwait, "pthread_cond_timedwait", CONDITION, NULL);
	look_up(&cond_clockwait, "pthread_cond_clockwait", NULL, NULL);
}

static inline void *known(_Atomic(void *) *slot, const char *name, const char *version)
{
	void *at = GET(*slot);
	return LIKELY(at) ? at : look_up(slot, name, version, NULL);
}

EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	int (*next)(pthread_barrier_t *) = known(&barrier_wait, "pthread_barrier_wait", NULL);
	WAITS(EVENLY_BARRIER, name_of(barrier));
	return next(barrier);
}

EXPORT int AS(pthread_cond_wait)(pthread_cond_t *condition, pthread_mutex_t *mutex);
int AS(pthread_cond_wait)(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	int (*next)(pthread_cond_t *, pthread_mutex_t *) = known(&cond_wait, "pthread_cond_wait", CONDITION);
	WAITS(EVENLY_LOCK, name_of(condition));
	return next(condition, mutex);
}

EXPORT int AS(pthread_cond_timedwait)(pthread_cond_t *condition, pthread_mutex_t *mutex,
	const struct timespec *until);
int AS(pthread_cond_timedwait)(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
	int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
		known(&cond_timedwait, "pthread_cond_timedwait", CONDITION);
	WAITS(EVENLY_LOCK, name_of(condition));
	return next(condition, mutex, until);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
	const struct timespec *until)
{
	int (*next)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
		known(&cond_clockwait, "pthread_cond_clockwait", NULL);
	WAITS(EVENLY_LOCK, name_of(condition));
	return next(condition, mutex, clock, until);
}

/* ---------------------------------------------------------------- parallel regions */

/* This thread begins a region; the line of its team, NULL where that is not to be seen. end_region is called
 * in either case. */
static line_t *begin_region(void)
{
	line_t *line = mine();
	if (!line)
		return NULL;
	unsigned level = here.depth++;
	if (level >= NESTING || here.outer)
		return NULL;
	line_t *team = here.teams[level];
	if (!team)
		team = here.teams[level] = claim(EVENLY_TEAM);
	if (!team)
		return NULL;
	/* `entered` stays: when the region before was over. */
	begin_write(team);
	SET(team->region, GET(team->region) + 1);
	SET(team->object, 0);
	SET(team->state, EVENLY_END);
	end_write(team);
	return team;
}

/* The region is over: everybody has ended. */
static void end_region(line_t *team)
{
	line_t *line = mine();
	if (!line || !here.depth)
		return;
	here.depth--;
	if (!team || GET(team->tid) != GET(line->tid))
		return;
	begin_write(team);
	SET(team->entered, now());
	SET(team->state, EVENLY_COMPUTING);
	end_write(team);
}

/* This thread begins, or goes back to, its part of a region. */
static void take_part(line_t *line, uint16_t team, uint32_t region)
{
	uint64_t t = now();
	begin_write(line);
	account(line, t);
	SET(line->entered, t);
	SET(line->object, 0);
	SET(line->team, team);
	SET(line->region, region);
	SET(line->state, EVENLY_COMPUTING);
	end_write(line);
}

/* ---------------------------------------------------------------- libgomp */

struct region {
	void *first;  /* of the data: libgomp looks at it where there are reductions */
	void (*function)(void *);
	void *data;
	line_t *team, *master;
	uint16_t outer_team;  /* of the master */
	uint32_t number, outer_region;
};

/* What a thread does in a region. */
static void part(void *argument)
{
	struct region *region = argument;
	line_t *line = mine();
	if (line) {
		here.outer = NULL;
		take_part(line, number_of(region->team), region->number);
	}
	region->function(region->data);
	/* Nothing of the region is touched from here on: it is gone as soon as all have ended. */
	line = mine();
	if (line)
		change(line, EVENLY_END, 0);
}

static bool begins(struct region *region, void (*function)(void *), void *data)
{
	region->team = begin_region();
	region->master = mine();
	if (!region->team)
		return false;
	region->first = data ? *(void **)data : NULL;
	region->function = function;
	region->data = data;
	region->number = GET(region->team->region);
	region->outer_team = GET(region->master->team);
	region->outer_region = GET(region->master->region);
	return true;
}

static void ended(struct region *region)
{
	line_t *line = mine();
	/* First the thread, so that all of the time until now is waiting. Not in a process that was forked in
	 * the region. */
	if (region->team && line && line == region->master)
		take_part(line, region->outer_team, region->outer_region);
	end_region(region->team);
}

#define P1 long a0
#define P2 P1, long a1
#define P3 P2, long a2
#define P4 P3, long a3
#define P5 P4, long a4
#define P6 P5, long a5
#define P7 P6, long a6
#define P8 P7, long a7
#define P9 P8, long a8
#define P10 P9, long a9
#define P11 P10, long a10
#define P12 P11, long a11
#define P13 P12, long a12
#define P0 void
#define A0
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

/*
 * Arguments are passed on as words, whatever they are: integers, handles and addresses all are one each, in
 * the calling conventions of Linux on 64-bit machines, and the halves that an int does not fill are passed
 * on with it. None of these functions has an argument of floating point.
 */
_Static_assert(sizeof(long) == sizeof(void *) && sizeof(long) == 8, "arguments are words");

/* Of libgomp there may be several in a process, so what is called is kept only where it is the one of all.
 * In place of libgomp there may be libomp, which has the same functions and tells more (below). */
static COLD bool is_libgomp(void *at)
{
	Dl_info info;
	return !dladdr(at, &info) || !info.dli_fname || strstr(info.dli_fname, "libgomp");
}

#define REGION(name, n)                                                                     \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		static _Atomic int gomp; /* 0: not known, 1: it is, 2: it is another */     \
		long (*next)(P##n) = NEXT(#name);                                           \
		if (!GET(gomp))                                                             \
			SET(gomp, is_libgomp((void *)next) ? 1 : 2);                        \
		if (GET(gomp) == 2)                                                         \
			return next(A##n);                                                  \
		struct region region;                                                       \
		if (begins(&region, (void (*)(void *))a0, (void *)a1)) {                    \
			a0 = (long)part;                                                    \
			a1 = (long)&region;                                                 \
		}                                                                           \
		long result = next(A##n);                                                   \
		ended(&region);                                                             \
		return result;                                                              \
	}
REGION(GOMP_parallel, 4)
REGION(GOMP_parallel_reductions, 4)
REGION(GOMP_parallel_sections, 5)
REGION(GOMP_parallel_loop_static, 8)
REGION(GOMP_parallel_loop_dynamic, 8)
REGION(GOMP_parallel_loop_guided, 8)
REGION(GOMP_parallel_loop_nonmonotonic_dynamic, 8)
REGION(GOMP_parallel_loop_nonmonotonic_guided, 8)
REGION(GOMP_parallel_loop_runtime, 7)
REGION(GOMP_parallel_loop_nonmonotonic_runtime, 7)
REGION(GOMP_parallel_loop_maybe_nonmonotonic_runtime, 7)

/* Barriers, and what has one at its end. */
#define GOMP_WAIT(name, n, state)                                                           \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		long (*next)(P##n) = NEXT(#name);                                           \
		WAITS(state, 0);                                                            \
		return next(A##n);                                                          \
	}
GOMP_WAIT(GOMP_barrier, 0, EVENLY_BARRIER)
GOMP_WAIT(GOMP_barrier_cancel, 0, EVENLY_BARRIER)
GOMP_WAIT(GOMP_loop_end, 0, EVENLY_BARRIER)
GOMP_WAIT(GOMP_loop_end_cancel, 0, EVENLY_BARRIER)
GOMP_WAIT(GOMP_sections_end, 0, EVENLY_BARRIER)
GOMP_WAIT(GOMP_sections_end_cancel, 0, EVENLY_BARRIER)
GOMP_WAIT(GOMP_workshare_task_reduction_unregister, 1, EVENLY_BARRIER)
GOMP_WAIT(GOMP_single_copy_start, 0, EVENLY_LOCK)

/* It is executed by whoever of the team waits. */
static void task_is_made(void)
{
	line_t *line = mine();
	uint16_t team = line ? GET(line->team) : 0;
	line_t *of = team ? &lines[team - 1] : NULL;
	/* The only field of a line that others than its thread write; never one of another process. */
	if (of && GET(of->kind) == EVENLY_TEAM && GET(of->pid) == pid && !GET(of->object))
		SET(of->object, 1);
}

#define GOMP_TASKS(name, n)                                                                 \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		long (*next)(P##n) = NEXT(#name);                                           \
		task_is_made();                                                             \
		return next(A##n);                                                          \
	}
GOMP_TASKS(GOMP_taskloop, 11)
GOMP_TASKS(GOMP_taskloop_ull, 11)

/* libomp says itself who waits for tasks. */
#define IS_LIBGOMP(next)                                                                    \
	({                                                                                  \
		static _Atomic int gomp_; /* as in REGION */                                \
		if (!GET(gomp_))                                                            \
			SET(gomp_, is_libgomp((void *)next) ? 1 : 2);                       \
		GET(gomp_) == 1;                                                            \
	})
#define WAIT_FOR_TASKS(name, n)                                                             \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		long (*next)(P##n) = NEXT(#name);                                           \
		if (!IS_LIBGOMP(next))                                                      \
			return next(A##n);                                                  \
		WAITS(EVENLY_LOCK, 0);                                                      \
		return next(A##n);                                                          \
	}
WAIT_FOR_TASKS(GOMP_taskwait, 0)
WAIT_FOR_TASKS(GOMP_taskwait_depend, 1)
WAIT_FOR_TASKS(GOMP_taskgroup_end, 0)

/* A task as it is made: libgomp has it copied (`copy_task`) into memory of its own before GOMP_task returns. */
struct made_task {
	void (*function)(void *);
	void (*copy)(void *, void *);
	void *data;
	size_t size, before;
};

/* What stands before the data of a task in that memory. */
struct task {
	void (*function)(void *);
	size_t before;  /* bytes until the data */
};

static void copy_task(void *to, void *from)
{
	const struct made_task *made = from;
	char *data = (char *)to + made->before;
	*(struct task *)to = (struct task){ made->function, made->before };
	if (made->copy)
		made->copy(data, made->data);
	else if (made->size)
		memcpy(data, made->data, made->size);
}

/* A thread that waits executes a task, computes meanwhile, and goes on waiting: that is no other wait. */
static void execute_task(void *argument)
{
	const struct task *task = argument;
	line_t *line = mine();
	uint8_t state = line ? GET(line->state) : EVENLY_COMPUTING;
	uint32_t object = line ? GET(line->object) : 0;
	const void *outer = here.outer;
	bool waits = state != EVENLY_COMPUTING && state != EVENLY_OUTSIDE;
	if (waits) {
		here.outer = NULL;
		change(line, EVENLY_COMPUTING, 0);
	}
	task->function((char *)argument + task->before);
	/* Not in a process that was forked by the task. */
	if (!waits || mine() != line)
		return;
	here.outer = outer;
	begin_write(line);
	SET(line->entered, now());
	SET(line->object, object);
	SET(line->state, state);
	end_write(line);
}

/* GOMP_TASK_FLAG_DETACH: libgomp writes to the data that it is given. */
#define DETACHED (1 << 13)

/* (function, data, copying, size, alignment, at once, flags, dependences, priority, event) */
EXPORT long GOMP_task(P10);
long GOMP_task(P10)
{
	long (*next)(P10) = NEXT("GOMP_task");
	if (!IS_LIBGOMP(next) || !mine())
		return next(A10);
	if (a6 & DETACHED) {
		task_is_made();
		return next(A10);
	}
	size_t align = (size_t)a4 > sizeof(struct task) ? (size_t)a4 : sizeof(struct task);
	struct made_task made = { (void (*)(void *))a0, (void (*)(void *, void *))a2, (void *)a1, (size_t)a3, align };
	return next((long)execute_task, (long)&made, (long)copy_task, (long)(align + made.size), (long)align, a5, a6, a7,
		a8, a9);
}

/* ---------------------------------------------------------------- libomp */

/* The interface for tools of OpenMP 5.0 (4.5), as far as it is used. */
union ompt_data { uint64_t value; void *ptr; };
typedef void (*ompt_callback)(void);
typedef int (*ompt_set_callback)(int event, ompt_callback callback);
typedef ompt_callback (*ompt_lookup)(const char *name);
struct ompt_tool {
	int (*initialize)(ompt_lookup lookup, int device, union ompt_data *tool);
	void (*finalize)(union ompt_data *tool);
	union ompt_data tool;
};
enum { PARALLEL_BEGIN = 3, PARALLEL_END = 4, TASK_SCHEDULE = 6, IMPLICIT_TASK = 7, SYNC_WAIT = 16 };
enum { SCOPE_BEGIN = 1, SCOPE_END = 2 };
enum { TASKWAIT = 5, TASKGROUP = 6 };
enum { INITIAL_TASK = 1 };
/* What this tool keeps of a task. */
enum { TASK_WAITS = 1, TASK_IN_PART = 2 };

static void runtime_says(line_t *line, uint8_t state)
{
	here.by_runtime = state != EVENLY_COMPUTING;
	change(line, state, 0);
}

static void on_parallel_begin(union ompt_data *task, const void *frame, union ompt_data *parallel,
	unsigned wanted, int flags, const void *code)
{
	(void)task, (void)frame, (void)wanted, (void)flags, (void)code;
	parallel->ptr = begin_region();
}

static void on_parallel_end(union ompt_data *parallel, union ompt_data *task, int flags, const void *code)
{
	(void)task, (void)flags, (void)code;
	end_region(parallel->ptr);
}

static void on_implicit_task(int end, union ompt_data *parallel, union ompt_data *task, unsigned of,
	unsigned index, int flags)
{
	(void)of;
	line_t *line = flags & INITIAL_TASK ? NULL : mine();
	if (!line)
		return;
	unsigned size = sizeof here.parts / sizeof *here.parts;
	if (end == SCOPE_BEGIN) {
		line_t *team = parallel ? parallel->ptr : NULL;
		if (!team || here.part >= size)
			return;
		here.parts[here.part].team = GET(line->team);
		here.parts[here.part++].region = GET(line->region);
		task->value = TASK_IN_PART;
		here.by_runtime = false;
		take_part(line, number_of(team), GET(team->region));
	} else if (task && task->value & TASK_IN_PART && here.part) {
		here.part--;
		/* Those who were started for the region have nothing to do until the next. They keep its team:
		 * what they waited is accounted when they are told that they have. */
		if (index != 0) {
			runtime_says(line, EVENLY_OUTSIDE);
		} else {
			here.by_runtime = false;
			take_part(line, here.parts[here.part].team, here.parts[here.part].region);
		}
	}
}

static void on_sync_wait(int kind, int end, union ompt_data *parallel, union ompt_data *task, const void *code)
{
	(void)parallel, (void)code;
	line_t *line = mine();
	/* With MPI inside of a call, or in no region. */
	if (!line || here.outer)
		return;
	if (end == SCOPE_BEGIN) {
		if (task)
			task->value |= TASK_WAITS;
		runtime_says(line, kind == TASKWAIT || kind == TASKGROUP ? EVENLY_LOCK : EVENLY_BARRIER);
	} else if (end == SCOPE_END) {
		if (task)
			task->value &= ~(uint64_t)TASK_WAITS;
		runtime_says(line, EVENLY_COMPUTING);
	}
}

/* A thread that waits executes the task of another, or goes on waiting. */
static void on_task_schedule(union ompt_data *prior, int status, union ompt_data *next)
{
	(void)prior, (void)status;
	line_t *line = next && !here.outer ? mine() : NULL;
	if (line && here.by_runtime != ((next->value & TASK_WAITS) != 0))
		runtime_says(line, next->value & TASK_WAITS ? EVENLY_BARRIER : EVENLY_COMPUTING);
}

static int ompt_initialize(ompt_lookup lookup, int device, union ompt_data *tool)
{
	(void)device, (void)tool;
	ompt_set_callback set = (ompt_set_callback)lookup("ompt_set_callback");
	if (!set)
		return 0;
	set(PARALLEL_BEGIN, (ompt_callback)on_parallel_begin);
	set(PARALLEL_END, (ompt_callback)on_parallel_end);
	set(IMPLICIT_TASK, (ompt_callback)on_implicit_task);
	set(SYNC_WAIT, (ompt_callback)on_sync_wait);
	set(TASK_SCHEDULE, (ompt_callback)on_task_schedule);
	return 1;
}

static void ompt_finalize(union ompt_data *tool)
{
	(void)tool;
}

/* There can be one tool; that of the user comes first. */
EXPORT struct ompt_tool *ompt_start_tool(unsigned version, const char *runtime)
{
	static struct ompt_tool tool = { ompt_initialize, ompt_finalize, { 0 } };
	const char *libraries = getenv("OMP_TOOL_LIBRARIES");
	struct ompt_tool *(*next)(unsigned, const char *) = dlsym(RTLD_NEXT, "ompt_start_tool");
	struct ompt_tool *other = next ? next(version, runtime) : NULL;
	if (other || (libraries && *libraries) || !getenv(EVENLY_VARIABLE))
		return other;
	return &tool;
}

/* ---------------------------------------------------------------- MPI */

/* A library of its own, so that programs that ask whether there is MPI are not told so where there is none. */
#ifdef EVENLY_MPI_CALLS

enum {
	CALL_NONE,
#define CALL(name, fortran, n, kind) CALL_##name,
#define CALL_PEER(name, fortran, n, kind, peer, comm) CALL_##name,
#define CALL_ALL(name, fortran, n, kind, comm) CALL_##name,
#define CALL_NEW(name, fortran, n, kind, made) CALL_##name,
#define CALL_GONE CALL
#define CALL_INIT CALL
#define CALL_TEXT CALL
#define CALL_LARGE(name, n, kind) CALL_##name,
#define CALL_LARGE_PEER(name, n, kind, peer, comm) CALL_##name,
#define CALL_LARGE_ALL(name, n, kind, comm) CALL_##name,
#include "mpi_calls.h"
#undef CALL
#undef CALL_PEER
#undef CALL_ALL
#undef CALL_NEW
#undef CALL_GONE
#undef CALL_INIT
#undef CALL_TEXT
#undef CALL_LARGE
#undef CALL_LARGE_PEER
#undef CALL_LARGE_ALL
	CALLS
};
_Static_assert(CALLS <= 1 << EVENLY_CALL_BITS, "each call has a number");
_Static_assert(EVENLY_CALL_BITS + EVENLY_PEER_BITS + EVENLY_RANK_BITS == 32, "they fill a word");

/*
 * Whom a call waits for. Its argument is a rank of a communicator; evenly wants to know which rank of
 * MPI_COMM_WORLD that is. To ask MPI would take too long in a call, so that is done when a communicator is made,
 * and kept under the number by which C, or Fortran, knows it, until it is freed. What is kept is little: a
 * communicator that had to make room, has more than MEMBERS members which are not those of MPI_COMM_WORLD in their
 * order, or was made by a call that is not in the table, is said to be another. MPI is asked by the thread that has
 * just called it, and only where its kind is known, and with it what its handles are.
 */
enum { WAYS = 4, KNOWN = 64 * WAYS, SLOTS = 64, MEMBERS = 256 };

static struct {
	_Atomic uint64_t world, fortran_world; /* the keys of MPI_COMM_WORLD; never a key where not known */
	_Atomic uint64_t mask;     /* what of an argument in C is a handle */
	_Atomic uint64_t fortran;  /* what makes those of Fortran other keys */
	_Atomic int any_source;
	_Atomic bool several;      /* there is more than one MPI in this process */
	/* Of the thread that has `busy`. */
	atomic_flag busy;
	uint32_t pid;      /* the process that is a rank */
	void *init;        /* PMPI_Init of its MPI */
	bool has_addresses; /* Open MPI: a handle is an address, and that of Fortran a number */
	long comm_null;
	int ranks;
	int (*comm_size)(long, int *), (*comm_remote_size)(long, int *), (*comm_compare)(long, long, int *);
	int (*comm_test_inter)(long, int *), (*comm_group)(long, long *), (*comm_remote_group)(long, long *);
	int (*translate)(long, int, const int *, long, int *), (*group_free)(long *);
	long (*from_fortran)(int);
	int (*to_fortran)(long);
	unsigned next_slot;
} mpi = { .world = ~UINT64_C(0), .fortran_world = ~UINT64_C(0), .busy = ATOMIC_FLAG_INIT };

/* Communicators by their keys, each in one of WAYS places: with one alone, two of few would be in each other's place
 * now and then, and nobody would know one of them. */
static struct { _Atomic uint64_t key; _Atomic uint32_t slot; } known_comms[KNOWN];
/* Their members. */
static struct {
	uint64_t keys[2];
	_Atomic int size;            /* -1: the same as MPI_COMM_WORLD */
	_Atomic int world[MEMBERS];  /* negative: not of MPI_COMM_WORLD */
} slots[SLOTS];

static inline unsigned place_of(uint64_t key)
{
	return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> 58) * WAYS;
}
_Static_assert(KNOWN == WAYS << (64 - 58), "a place is one of the table");

/* Where this key is; KNOWN where it is not. Acquire, and once more the key, by who calls: what is read in between is
 * of this communicator, unless it was freed and made again while it was used. */
static inline unsigned find(uint64_t key)
{
	unsigned first = place_of(key);
	for (unsigned place = first; place < first + WAYS; place++)
		if (atomic_load_explicit(&known_comms[place].key, memory_order_acquire) == key)
			return place;
	return KNOWN;
}

static inline uint32_t told(uint32_t call, uint32_t peer, uint32_t rank)
{
	return call | peer << EVENLY_CALL_BITS | rank << (EVENLY_CALL_BITS + EVENLY_PEER_BITS);
}

/* What a call tells that waits for this rank of that communicator. */
static inline uint32_t waits_for(uint32_t call, int rank, uint64_t key)
{
	uint64_t world = GET(mpi.world);
	if (world == ~UINT64_C(0))
		return call;
	if (rank < 0)
		return rank == GET(mpi.any_source) ? told(call, EVENLY_PEER_ANYONE, 0) : call;
	if (rank >= 1 << EVENLY_RANK_BITS)
		return call;
	if (key == world || key == GET(mpi.fortran_world))
		return told(call, EVENLY_PEER_WORLD, (uint32_t)rank);
	unsigned place = find(key);
	if (place < KNOWN) {
		uint32_t slot = GET(known_comms[place].slot);
		int size = GET(slots[slot].size);
		int at = size < 0 ? rank : rank < size ? GET(slots[slot].world[rank]) : -1;
		atomic_thread_fence(memory_order_acquire);
		if (at >= 0 && GET(known_comms[place].key) == key)
			return told(call, EVENLY_PEER_WORLD, (uint32_t)at);
	}
	return told(call, EVENLY_PEER_OTHER, (uint32_t)rank);
}

/* The same of one that waits for all of that communicator: it tells where these are all of MPI_COMM_WORLD. */
static inline uint32_t waits_for_all(uint32_t call, uint64_t key)
{
	uint64_t world = GET(mpi.world);
	uint32_t all = told(call, EVENLY_PEER_ANYONE, EVENLY_ALL);
	if (world == ~UINT64_C(0))
		return call;
	if (key == world || key == GET(mpi.fortran_world))
		return all;
	unsigned place = find(key);
	if (place == KNOWN)
		return call;
	int size = GET(slots[GET(known_comms[place].slot)].size);
	atomic_thread_fence(memory_order_acquire);
	return size < 0 && GET(known_comms[place].key) == key ? all : call;
}

static inline uint64_t key_in_c(long comm)
{
	return (uint64_t)comm & GET(mpi.mask);
}

static inline uint64_t key_in_fortran(long comm)
{
	return *(const uint32_t *)comm | GET(mpi.fortran);
}

#define IN_C_FOR(name, peer, comm) waits_for(CALL_##name, (int)peer, key_in_c(comm))
#define IN_FORTRAN_FOR(name, peer, comm) waits_for(CALL_##name, *(const int *)peer, key_in_fortran(comm))
#define IN_C_FOR_ALL(name, comm) waits_for_all(CALL_##name, key_in_c(comm))
#define IN_FORTRAN_FOR_ALL(name, comm) waits_for_all(CALL_##name, key_in_fortran(comm))

static void drop_key(uint64_t key, uint32_t slot)
{
	unsigned place = find(key);
	if (place < KNOWN && (slot == SLOTS || GET(known_comms[place].slot) == slot))
		atomic_compare_exchange_strong(&known_comms[place].key, &key, 0);
}

/* Keeps who is in a communicator. One that other threads just keep is left out. */
static COLD void learn(long comm)
{
	int size = 0, inter = 0, order = 3;
	long world = (long)GET(mpi.world), group = 0, of_world = 0;
	if (!comm || comm == mpi.comm_null || atomic_flag_test_and_set(&mpi.busy))
		return;
	mpi.comm_test_inter(comm, &inter);
	(inter ? mpi.comm_remote_size : mpi.comm_size)(comm, &size);
	/* MPI_IDENT and MPI_CONGRUENT are 0 and 1 in each MPI. */
	if (!inter && size == mpi.ranks)
		mpi.comm_compare(comm, world, &order);
	bool same = order <= 1;
	if (same || size <= MEMBERS) {
		uint32_t slot = mpi.next_slot++ % SLOTS;
		uint64_t keys[2] = { key_in_c(comm), 0 };
		if (mpi.has_addresses)
			keys[1] = (uint32_t)mpi.to_fortran(comm) | GET(mpi.fortran);
		for (int i = 0; i < 2; i++)
			if (slots[slot].keys[i])
				drop_key(slots[slot].keys[i], slot);
		/* Release: who sees what is written from here on does not see the keys any more. */
		atomic_thread_fence(memory_order_release);
		SET(slots[slot].size, same ? -1 : size);
		if (!same) {
			(inter ? mpi.comm_remote_group : mpi.comm_group)(comm, &group);
			mpi.comm_group(world, &of_world);
			for (int rank = 0; rank < size; rank++) {
				int at = -1;
				mpi.translate(group, 1, &rank, of_world, &at);
				SET(slots[slot].world[rank], at < 1 << EVENLY_RANK_BITS ? at : -1);
			}
			mpi.group_free(&group);
			mpi.group_free(&of_world);
		}
		for (int i = 0; i < 2; i++) {
			slots[slot].keys[i] = keys[i];
			if (!keys[i])
				continue;
			unsigned place = find(keys[i]), first = place_of(keys[i]);
			for (unsigned at = first; place == KNOWN && at < first + WAYS; at++)
				if (!GET(known_comms[at].key))
					place = at;
			if (place == KNOWN)
				place = first + slot % WAYS;
			SET(known_comms[place].key, 0);
			atomic_thread_fence(memory_order_release);
			SET(known_comms[place].slot, slot);
			/* Release: who finds the key finds its members. */
			atomic_store_explicit(&known_comms[place].key, keys[i], memory_order_release);
		}
	}
	atomic_flag_clear(&mpi.busy);
}

static bool is_rank(void)
{
	return GET(mpi.world) != ~UINT64_C(0);
}

/* A handle as it stands in memory. */
static long handle_in_c(long at)
{
	return mpi.has_addresses ? *(const long *)at : (long)*(const uint32_t *)at;
}

static long handle_in_fortran(long at)
{
	return mpi.has_addresses ? mpi.from_fortran(*(const int *)at) : (long)*(const uint32_t *)at;
}

/* A communicator was made, unless that was within another call, which frees it perhaps where nobody sees it, or an
 * error. */
static inline void made_in_c(const line_t *entered, int error, long at)
{
	if (entered && !error && at && is_rank())
		learn(handle_in_c(at));
}

static inline void made_in_fortran(const line_t *entered, const int *error, long at)
{
	if (entered && !(error && *error) && is_rank())
		learn(handle_in_fortran(at));
}

/* A communicator is about to be freed. */
static COLD void forget_comm(long comm)
{
	if (!comm)
		return;
	drop_key(key_in_c(comm), SLOTS);
	if (mpi.has_addresses)
		drop_key((uint32_t)mpi.to_fortran(comm) | GET(mpi.fortran), SLOTS);
}

static inline void gone_in_c(long at)
{
	if (at && is_rank())
		forget_comm(handle_in_c(at));
}

static inline void gone_in_fortran(long at)
{
	if (is_rank())
		forget_comm(handle_in_fortran(at));
}

/* A function of MPI itself, past those who stand before it; NULL where there is none. */
static void *of_mpi(const char *name, const void *caller)
{
	void *at = of_caller(name, caller);
	return at ? at : dlsym(RTLD_NEXT, name);
}

/* A variable of it, which may be in the program. */
static long variable_of_mpi(const char *name, const void *caller)
{
	void *at = dlsym(RTLD_DEFAULT, name);
	return (long)(at ? at : of_caller(name, caller));
}

/* As NEXT: where there are two MPIs it depends on who calls. */
#define NEXT_OF_MPI(name)                                                              \
	({                                                                             \
		static _Atomic(void *) next_;                                          \
		void *at_ = GET(next_);                                                \
		LIKELY(at_ && !GET(mpi.several)) ? at_ : look_up(&next_, name, NULL, CALLER); \
	})

/* What the handles of this MPI are, and which rank this process is. */
static bool look_at_mpi(const void *caller, int *rank)
{
	int (*version)(char *, int *) = of_mpi("PMPI_Get_library_version", caller);
	int (*initialized)(int *) = of_mpi("PMPI_Initialized", caller);
	int (*comm_rank)(long, int *) = of_mpi("PMPI_Comm_rank", caller);
	Dl_info info;
	char text[16384] = "";
	int length = 0, yes = 0;
	mpi.comm_size = of_mpi("PMPI_Comm_size", caller);
	mpi.comm_remote_size = of_mpi("PMPI_Comm_remote_size", caller);
	mpi.comm_compare = of_mpi("PMPI_Comm_compare", caller);
	mpi.comm_test_inter = of_mpi("PMPI_Comm_test_inter", caller);
	mpi.comm_group = of_mpi("PMPI_Comm_group", caller);
	mpi.comm_remote_group = of_mpi("PMPI_Comm_remote_group", caller);
	mpi.translate = of_mpi("PMPI_Group_translate_ranks", caller);
	mpi.group_free = of_mpi("PMPI_Group_free", caller);
	if (!version || !initialized || !comm_rank || !mpi.comm_size || !mpi.comm_remote_size || !mpi.comm_compare
		|| !mpi.comm_test_inter || !mpi.comm_group || !mpi.comm_remote_group || !mpi.translate
		|| !mpi.group_free)
		return false;
	/* That of the standard ABI has other handles. */
	if (initialized(&yes) || !yes || version(text, &length) || !dladdr((void *)comm_rank, &info)
		|| !info.dli_fname || strstr(info.dli_fname, "mpi_abi"))
		return false;
	long world, self;
	uint64_t mask = ~UINT64_C(0), fortran = 0;
	if (!strncmp(text, "Open MPI", 8)) {
		world = variable_of_mpi("ompi_mpi_comm_world", caller);
		self = variable_of_mpi("ompi_mpi_comm_self", caller);
		mpi.comm_null = variable_of_mpi("ompi_mpi_comm_null", caller);
		mpi.from_fortran = of_mpi("PMPI_Comm_f2c", caller);
		mpi.to_fortran = of_mpi("PMPI_Comm_c2f", caller);
		if (!world || !self || !mpi.comm_null || !mpi.from_fortran || !mpi.to_fortran)
			return false;
		fortran = UINT64_C(1) << 63;
		mpi.has_addresses = true;
		SET(mpi.any_source, -1);
	} else if (strstr(text, "MPICH") || strstr(text, "Intel(R) MPI")) {
		/* What the ABI of MPICH and its kin says. */
		world = 0x44000000;
		self = 0x44000001;
		mpi.comm_null = 0x04000000;
		mask = UINT32_MAX;
		mpi.has_addresses = false;
		SET(mpi.any_source, -2);
	} else {
		return false;
	}
	if (comm_rank(world, rank) || mpi.comm_size(world, &mpi.ranks))
		return false;
	SET(mpi.mask, mask);
	SET(mpi.fortran, fortran);
	SET(mpi.fortran_world, mpi.has_addresses ? (uint32_t)mpi.to_fortran(world) | fortran : (uint64_t)world);
	SET(mpi.world, (uint64_t)world);
	learn(self);
	return true;
}

/* MPI is about to be initialised. Where that is another one than before, as modules may load, handles are of the one or
 * of the other and nobody knows of which: from then on nothing is made of any. */
static COLD void becomes_rank(const void *caller)
{
	int before = errno;
	void *init = of_mpi("PMPI_Init", caller);
	if (!mpi.init) {
		mpi.init = init;
	} else if (init != mpi.init) {
		SET(mpi.several, true);
		SET(mpi.world, ~UINT64_C(0));
	}
	errno = before;
}

/* MPI has been initialised. */
static COLD void became_rank(const void *caller)
{
	int rank = -1;
	if (!mine() || mpi.pid == pid || GET(mpi.several))
		return;
	int before = errno;
	if (look_at_mpi(caller, &rank) && rank >= 0) {
		mpi.pid = pid;
		line_t *line = claim(EVENLY_RANK);
		if (line) {
			begin_write(line);
			SET(line->object, (uint32_t)rank);
			SET(line->region, (uint32_t)mpi.ranks);
			end_write(line);
		}
	}
	errno = before;
}

static __thread struct evenly_stamp stamp;

EXPORT struct evenly_stamp *evenly_waiting_stamp(void);
struct evenly_stamp *evenly_waiting_stamp(void)
{
	return &stamp;
}

/* As `enter` and `leave`, beside the MPI probe, where that is behind: it takes the reading of the counter with
 * which the call was entered, and leaves the one that it made at the end. */
static inline void enter_mpi(line_t *line, uint8_t state, uint32_t object)
{
	uint64_t t = ticks();
	change_at(line, state, object, ns_at(t));
	stamp.ticks = t;
	stamp.of = EVENLY_STAMP_ENTERED;
}

static inline void leave_mpi(line_t **entered)
{
	uint64_t t = stamp.of == EVENLY_STAMP_LEFT ? stamp.ticks : ticks();
	stamp.of = EVENLY_STAMP_NONE;
	if (!has_waited(*entered))
		return;
	change_at(*entered, EVENLY_COMPUTING, 0, ns_at(t));
	here.outer = NULL;
}

/* Whom it waits for is looked for only where that is to be told. */
#define WAITS_IN_MPI(state, object)                                                     \
	line_t *entered __attribute__((cleanup(leave_mpi))) =                           \
		begins_to_wait(__builtin_frame_address(0));                             \
	if (entered)                                                                    \
		enter_mpi(entered, state, object)

#define FORTRAN(symbol, n, kind, object, before, after)      \
	EXPORT void symbol(P##n);                            \
	void symbol(P##n)                                    \
	{                                                    \
		before;                                      \
		void (*next)(P##n) = NEXT_OF_MPI(#symbol);   \
		WAITS_IN_MPI(EVENLY_##kind, object);         \
		stamp.caller = CALLER;                       \
		next(A##n);                                  \
		after;                                       \
	}
#define IN_C(name, n, kind, object, before, after)                     \
	EXPORT int MPI_##name(P##n);                                   \
	int MPI_##name(P##n)                                           \
	{                                                              \
		before;                                                \
		int (*next)(P##n) = NEXT_OF_MPI("MPI_" #name);         \
		WAITS_IN_MPI(EVENLY_##kind, object);                   \
		stamp.caller = CALLER;                                 \
		int result = next(A##n);                               \
		after;                                                 \
		return result;                                         \
	}
#define NOTHING (void)0
/* Of either form of Fortran. */
#define WITH_ERROR(name, fortran, n, kind, object, before, after)                     \
	WITH_ERROR_##n(mpi_##fortran##_, kind, object, before, after)                 \
	WITH_ERROR_##n(mpi_##fortran##_f08_, kind, object, before, after)
#define CALL(name, fortran, n, kind)                                                  \
	IN_C(name, n, kind, CALL_##name, NOTHING, NOTHING)                            \
	WITH_ERROR(name, fortran, n, kind, CALL_##name, NOTHING, NOTHING)
#define CALL_PEER(name, fortran, n, kind, peer, comm)                                 \
	IN_C(name, n, kind, IN_C_FOR(name, a##peer, a##comm), NOTHING, NOTHING)       \
	WITH_ERROR(name, fortran, n, kind, IN_FORTRAN_FOR(name, a##peer, a##comm), NOTHING, NOTHING)
#define CALL_ALL(name, fortran, n, kind, comm)                                        \
	IN_C(name, n, kind, IN_C_FOR_ALL(name, a##comm), NOTHING, NOTHING)            \
	WITH_ERROR(name, fortran, n, kind, IN_FORTRAN_FOR_ALL(name, a##comm), NOTHING, NOTHING)
/* The error is behind what C has. */
#define CALL_NEW(name, fortran, n, kind, made)                                        \
	IN_C(name, n, kind, CALL_##name, NOTHING, made_in_c(entered, result, a##made)) \
	WITH_ERROR(name, fortran, n, kind, CALL_##name, NOTHING,                      \
		made_in_fortran(entered, (const int *)a##n, a##made))
#define CALL_GONE(name, fortran, n, kind)                                             \
	IN_C(name, n, kind, CALL_##name, gone_in_c(a0), NOTHING)                      \
	WITH_ERROR(name, fortran, n, kind, CALL_##name, gone_in_fortran(a0), NOTHING)
#define CALL_INIT(name, fortran, n, kind)                                             \
	IN_C(name, n, kind, CALL_##name, becomes_rank(CALLER), became_rank(CALLER))                \
	WITH_ERROR(name, fortran, n, kind, CALL_##name, becomes_rank(CALLER), became_rank(CALLER))
/* With the lengths of two texts at most. */
#define CALL_TEXT(name, fortran, n, kind)                                             \
	IN_C(name, n, kind, CALL_##name, NOTHING, NOTHING)                            \
	WITH_TEXTS_##n(mpi_##fortran##_, kind, CALL_##name)                           \
	WITH_TEXTS_##n(mpi_##fortran##_f08_, kind, CALL_##name)
/* Programs that ask whether there are such calls are told so only where there are. */
#ifdef EVENLY_MPI_LARGE
#define CALL_LARGE(name, n, kind) IN_C(name, n, kind, CALL_##name, NOTHING, NOTHING)
#define CALL_LARGE_PEER(name, n, kind, peer, comm)                                    \
	IN_C(name, n, kind, IN_C_FOR(name, a##peer, a##comm), NOTHING, NOTHING)
#define CALL_LARGE_ALL(name, n, kind, comm)                                           \
	IN_C(name, n, kind, IN_C_FOR_ALL(name, a##comm), NOTHING, NOTHING)
#else
#define CALL_LARGE(name, n, kind)
#define CALL_LARGE_PEER(name, n, kind, peer, comm)
#define CALL_LARGE_ALL(name, n, kind, comm)
#endif
#define WITH_ERROR_0(symbol, kind, object, before, after) FORTRAN(symbol, 1, kind, object, before, after)
#define WITH_ERROR_1(symbol, kind, object, before, after) FORTRAN(symbol, 2, kind, object, before, after)
#define WITH_ERROR_2(symbol, kind, object, before, after) FORTRAN(symbol, 3, kind, object, before, after)
#define WITH_ERROR_3(symbol, kind, object, before, after) FORTRAN(symbol, 4, kind, object, before, after)
#define WITH_ERROR_4(symbol, kind, object, before, after) FORTRAN(symbol, 5, kind, object, before, after)
#define WITH_ERROR_5(symbol, kind, object, before, after) FORTRAN(symbol, 6, kind, object, before, after)
#define WITH_ERROR_6(symbol, kind, object, before, after) FORTRAN(symbol, 7, kind, object, before, after)
#define WITH_ERROR_7(symbol, kind, object, before, after) FORTRAN(symbol, 8, kind, object, before, after)
#define WITH_ERROR_8(symbol, kind, object, before, after) FORTRAN(symbol, 9, kind, object, before, after)
#define WITH_ERROR_9(symbol, kind, object, before, after) FORTRAN(symbol, 10, kind, object, before, after)
#define WITH_ERROR_10(symbol, kind, object, before, after) FORTRAN(symbol, 11, kind, object, before, after)
#define WITH_ERROR_12(symbol, kind, object, before, after) FORTRAN(symbol, 13, kind, object, before, after)
#define WITH_TEXTS_5(symbol, kind, object) FORTRAN(symbol, 8, kind, object, NOTHING, NOTHING)
#define WITH_TEXTS_6(symbol, kind, object) FORTRAN(symbol, 9, kind, object, NOTHING, NOTHING)
#define WITH_TEXTS_8(symbol, kind, object) FORTRAN(symbol, 11, kind, object, NOTHING, NOTHING)
#define WITH_TEXTS_9(symbol, kind, object) FORTRAN(symbol, 12, kind, object, NOTHING, NOTHING)
#include "mpi_calls.h"
/* Windows whose address Fortran takes as a type(c_ptr). */
FORTRAN(mpi_win_allocate_cptr_, 7, COLLECTIVE, CALL_Win_allocate, NOTHING, NOTHING)
FORTRAN(mpi_win_allocate_shared_cptr_, 7, COLLECTIVE, CALL_Win_allocate_shared, NOTHING, NOTHING)

#endif

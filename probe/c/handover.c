/*
 * Threads that spin give their CPU to others of the program, and take it back: see handover.h.
 *
 * A library for LD_PRELOAD. It handles SIGTRAP for breakpoints that evenly has put on instructions by which programs say
 * that they wait (`pause`), and on the jumps back of loops that wait without, or may. All other traps are the program's: its
 * own handler is called, which it sets, reads and is shown as if this one were not there.
 *
 * A trap that is blocked ends a process. So SIGTRAP is never blocked in fact: it is taken out of each mask that the program
 * sets, and shown in each that it reads. evenly looks from outside whether that is so (masks that are set by system calls
 * of the program's own) before it changes anything.
 *
 * Without $EVENLY_HANDOVER all calls are passed on.
 *
 * Invariants: no signal is sent by this library but a trap that the program is to die of, no thread is started, nothing is
 * allocated, and no call of the program is interrupted: a thread that meets a breakpoint is in code of its own. Handlers of
 * the program may interrupt this one, and jump out of it.
 */
#define _GNU_SOURCE
#include "handover.h"
#include "clock.h"
#include "handover_keeping.h"
#include "handover_waits.h"
#include "shared.h"
#include "system_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* What is stood before. Looked up when the process begins: some may be called in signal handlers. */
#define WRAPPED(of)                                                                                        \
	of(sigaction) of(signal) of(__sysv_signal) of(sigset) of(sigignore) of(sighold) of(sigrelse)          \
	of(sigblock) of(sigsetmask) of(pthread_sigmask) of(sigprocmask) of(sigsuspend) of(ppoll)              \
	of(__ppoll_chk) of(pselect) of(epoll_pwait) of(epoll_pwait2) of(pthread_attr_setsigmask_np) of(prctl) \
	of(syscall) of(sched_yield)
#define DECLARE(name) static void *next_##name;
WRAPPED(DECLARE)

static void find_next(void)
{
#define FIND(name)                  \
	if (!next_##name)           \
		next_##name = dlsym(RTLD_NEXT, #name);
	WRAPPED(FIND)
}

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* NULL: this process takes no part, and the program's signals are its own. */
static struct evenly_handover *shared;
static struct evenly_space *own;
static uint32_t space;

static __thread struct {
	bool blocks;    /* the program means SIGTRAP to be blocked */
	uint64_t last;  /* CLOCK_MONOTONIC when this thread left the handler, ns */
	uint64_t turn;  /* the shortest time from there to the next breakpoint: a turn of a loop that waits */
	uint64_t began; /* when its wait began */
	uint64_t spun;  /* ns since it slept last in which nobody else had a use for the CPU */
	struct waits waits; /* those in loops that are proved to wait */
	int slack;      /* what its timers may be late, while it sleeps with less; 0: it does not */
} here __attribute__((tls_model("initial-exec")));

/* Past the C library, which programs may stand before as well, and past the wrapper of this library. -1 for any error. */
static long call(long number, long a, long b, long c, long d)
{
	long (*next)(long, ...) = (long (*)(long, ...))next_syscall;
	return next ? next(number, a, b, c, d, 0L, 0L) : -1;
}
#define CALL_(n, a, b, c, d, ...) call(n, (long)(a), (long)(b), (long)(c), (long)(d))
#define CALL(...) CALL_(__VA_ARGS__, 0, 0, 0, 0, 0)

/* ---------------------------------------------------------------- handing over */

/* A turn of a loop that waits takes less, with the trap. */
#define LONGEST_TURN 5000
/* ns in which nobody does any work. */
#define NO_WORK 120
/* Where another thread ran for so long, the CPU was of use to somebody. */
#define OF_USE 20000
/* How long a thread offers its CPU without anybody taking it before it sleeps. */
#define OFFERED 50000
/* How long it sleeps at least and at most, and which part of what it has waited. */
#define SHORTEST 20000
#define LONGEST 1000000
#define PART 8
/* And at most where it is not proved that it waits. */
#define LONGEST_IN_DOUBT 50000

/* Also where a handler of the program has jumped out of the sleep. */
static void restore_slack(void)
{
	if (here.slack)
		CALL(SYS_prctl, PR_SET_TIMERSLACK, here.slack);
	here.slack = 0;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec time = { .tv_nsec = (long)ns };
	/* Else it may be 50 us later. */
	int slack = (int)CALL(SYS_prctl, PR_GET_TIMERSLACK);
	if (slack > 1) {
		here.slack = slack;
		CALL(SYS_prctl, PR_SET_TIMERSLACK, 1);
	}
	/* Not by the library, where a thread could be cancelled. */
	CALL(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
	restore_slack();
}

static void count(_Atomic uint64_t *what, uint64_t by)
{
	atomic_fetch_add_explicit(what, by, memory_order_relaxed);
}

/* Sleeps for most of what this thread waits yet, where waits of its kind are remembered and that is known; else in proportion to
 * how long it has waited since it began. Counts it there. Returns when that has ended. */
static uint64_t sleep_part(struct evenly_place *place, _Atomic uint64_t *as, struct waits *waits, uint64_t began, uint64_t now)
{
	uint64_t part = (now - began) / PART, yet = waits ? waits_yet(waits, now - began) : 0;
	uint64_t longest = GET(place->doubt) ? LONGEST_IN_DOUBT : LONGEST;
	if (part < yet)
		part = yet;
	part = part < SHORTEST ? SHORTEST : part > longest ? longest : part;
	sleep_ns(part);
	uint64_t then = clock_ns(CLOCK_MONOTONIC);
	if (waits)
		has_slept(waits, then - now, part);
	count(as, then - now);
	return then;
}

/* A yield that takes longer has cost a slice, in ns. */
#define SLICE 1500000

/* A yield to a thread of the same program takes as long as one to others, and costs nothing: so it sleeps instead only while
 * evenly sees others. */
static bool sleeps_instead(const struct keeping *keeping, uint64_t now)
{
	return keeps_slices(keeping, now) && now / 1000000000 < GET(shared->others);
}

static __thread struct keeping at_places __attribute__((tls_model("initial-exec")));

/* If this thread waits now, then from here on. */
static void begins_to_wait(uint64_t now)
{
	here.began = now;
	here.spun = 0;
}

/* Whether this thread has done no more than to look again since the last time; else this is another wait. */
static bool waits_still(uint64_t now)
{
	uint64_t since = now - here.last, turn = here.turn + here.turn / 8 + 1;
	/* Turns may take longer from now on, as one was short by chance, or this is another loop. */
	here.turn = here.turn && turn < since ? turn : since;
	if (here.turn > LONGEST_TURN)
		here.turn = LONGEST_TURN;
	bool is_same = since <= 2 * here.turn || since < NO_WORK;
	if (!is_same)
		begins_to_wait(now);
	return is_same;
}

static void give(struct evenly_place *place, struct waits *waits, uint64_t now)
{
	restore_slack();
	bool is_proved = !GET(place->doubt);
	if (is_proved && sleeps_instead(&at_places, now)) {
		sleep_part(place, &place->given, waits, here.began, now);
	} else if (here.spun < OFFERED) {
		CALL(SYS_sched_yield);
		uint64_t then = clock_ns(CLOCK_MONOTONIC), away = then - now;
		if (away > OF_USE) {
			count(&place->given, away);
			here.spun = 0;
			if (away > SLICE && is_proved)
				has_lost_slice(&at_places, then);
		} else {
			here.spun += then - (here.last > here.began ? here.last : here.began);
		}
	} else {
		sleep_part(place, &place->slept, waits, here.began, now);
		here.spun = 0;
	}
}

static void hand_over(struct evenly_place *place, uint64_t now)
{
	uint64_t began = here.began;
	if (!waits_still(now) && began)
		has_waited(&here.waits, here.last > began ? here.last - began : 0);
	give(place, &here.waits, now);
}

/* ---------------------------------------------------------------- the trap */

static struct evenly_place *find(uint64_t at)
{
	uint32_t first = evenly_first_place(space, at);
	for (uint32_t i = 0; i < EVENLY_NEAR; i++) {
		struct evenly_place *place = &shared->places[(first + i) % EVENLY_PLACES];
		uint64_t found = atomic_load_explicit(&place->at, memory_order_acquire);
		if (!found)
			return NULL;
		if (found == at && GET(place->space) == space)
			return place;
	}
	return NULL;
}

#include "handover_machine.h"

/* Writes it. False where that cannot be. */
static bool write_back(struct evenly_place *place, uint64_t at)
{
	/* Not by the library, where a thread could be cancelled. */
	long memory = CALL(SYS_openat, AT_FDCWD, "/proc/self/mem", O_WRONLY | O_CLOEXEC);
	if (memory < 0)
		return false;
	/* Their lowest byte comes first on all of these processors. What is behind the breakpoint is executed by nobody, for as
	 * long as that is there. */
	uint32_t first = GET(place->first);
	long behind = HIDDEN_BYTES - BREAKPOINT_BYTES;
	bool done = !behind
		|| CALL(SYS_pwrite64, memory, (char *)&first + BREAKPOINT_BYTES, behind, at + BREAKPOINT_BYTES) == behind;
	done = done && CALL(SYS_pwrite64, memory, &first, BREAKPOINT_BYTES, at) == BREAKPOINT_BYTES;
	CALL(SYS_close, memory);
	return done;
}

/* Puts the instruction back. Where that cannot be, or somebody else changes it, each thread that comes there traps and goes on. */
static bool restore(struct evenly_place *place, uint64_t at)
{
	uint32_t own_pid = (uint32_t)getpid(), other = 0;
	/* A handler of the program could jump out. */
	uint64_t all = ~UINT64_C(0), before = 0;
	CALL(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
	bool is_ours = atomic_compare_exchange_strong(&place->changed_inside, &other, own_pid)
		|| (!process_is_there(other) && atomic_compare_exchange_strong(&place->changed_inside, &other, own_pid));
	uint32_t outside = atomic_load(&place->changed_outside);
	bool done = is_ours && (!outside || !process_is_there(outside)) && write_back(place, at);
	if (is_ours)
		atomic_store(&place->changed_inside, 0);
	CALL(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof all);
	return done;
}

/* This process has filters of system calls of which nothing is known. */
static _Atomic bool stands_down;

/* Takes all breakpoints out of this process, and has evenly write no more. */
static void stand_down(void)
{
	SET(stands_down, true);
	if (own)
		SET(own->taken, 1);
	for (uint32_t i = 0; i < EVENLY_PLACES; i++) {
		struct evenly_place *place = &shared->places[i];
		uint64_t at = atomic_load_explicit(&place->at, memory_order_acquire);
		if (at && GET(place->space) == space && GET(place->wanted))
			for (unsigned tries = 0; tries < 1000 && !restore(place, at); tries++)
				CALL(SYS_sched_yield);
	}
}

/* What the program has made of SIGTRAP, and of SIGILL where that is handled here. Two threads that set it at the same time may
 * leave parts of both. */
static struct sigaction of_program, of_program_illegal;
static bool has_guard;

/* NULL for any other signal. */
static struct sigaction *kept(int signal)
{
	return signal == SIGTRAP ? &of_program : signal == SIGILL && has_guard ? &of_program_illegal : NULL;
}

static int (*set_action)(int, const struct sigaction *, struct sigaction *);
static int (*set_mask)(int, const sigset_t *, sigset_t *);

/* A signal that is not ours. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
	struct sigaction action = *kept(signal);
	bool was_sent = info->si_code <= 0;
	if (!(action.sa_flags & SA_SIGINFO) && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
		if (action.sa_handler == SIG_IGN && was_sent)
			return;
		/* As the kernel does it, it ends the process. */
		struct sigaction by_default = { .sa_handler = SIG_DFL };
		set_action(signal, &by_default, NULL);
		/* An invalid instruction is executed again. */
		if (was_sent || signal == SIGTRAP)
			CALL(SYS_tgkill, getpid(), CALL(SYS_gettid), signal);
		return;
	}
	if (action.sa_flags & SA_RESETHAND)
		*kept(signal) = (struct sigaction){ .sa_handler = SIG_DFL };
	sigset_t before;
	if (signal == SIGILL && !(action.sa_flags & SA_NODEFER))
		sigaddset(&action.sa_mask, signal);
	sigdelset(&action.sa_mask, SIGTRAP);
	set_mask(SIG_BLOCK, &action.sa_mask, &before);
	if (action.sa_flags & SA_SIGINFO)
		action.sa_sigaction(signal, info, context);
	else
		action.sa_handler(signal);
	set_mask(SIG_SETMASK, &before, NULL);
}

#include "handover_doubt.h"

static void trapped(int signal, siginfo_t *info, void *context)
{
	int before = errno;
	uint64_t at = trapped_at(context);
	struct evenly_place *place = info->si_code == BREAKPOINT_CODE ? find(at) : NULL;
	if (!place) {
		pass_on(signal, info, context);
		return;
	}
	uint64_t next = goes_on_at(at, GET(place->first), context);
	if (!next) {
		/* Evenly makes no place of any other instruction; if one is there, it is executed as it is. */
		restore(place, at);
		go_on(context, at);
		errno = before;
		return;
	}
	go_on(context, next);
	count(&place->traps, 1);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	bool waits = !GET(place->doubt) || seems_to_wait(place, at, next < at, context, now);
	if (GET(place->wanted) && now / 1000000000 < GET(shared->until)) {
		if (waits)
			hand_over(place, now);
	} else {
		restore(place, at);
	}
	here.last = clock_ns(CLOCK_MONOTONIC);
	errno = before;
}

/* A debugger has taken the trap of a breakpoint, and let the thread go on behind it, where the guard is. The thread goes on as the
 * instruction would have that both hide. */
static void met_guard(int signal, siginfo_t *info, void *context)
{
	int before = errno;
	uint64_t at = trapped_at(context);
	struct evenly_place *place = info->si_code > 0 ? find(at) : NULL;
	if (place) {
		uint64_t next = goes_on_at(at, GET(place->first), context);
		go_on(context, next ? next : at);
	} else {
		pass_on(signal, info, context);
	}
	errno = before;
}

static bool handle(void)
{
	if (!BREAKPOINT_BYTES)
		return false;
	/* On the stack of the thread: alternative stacks can be too small for two handlers. A handler of the program that
	 * interrupts this one may come to a breakpoint as well, so that the signal is not blocked meanwhile. */
	struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER };
	if (set_action(SIGTRAP, &action, &of_program) != 0)
		return false;
	action.sa_sigaction = met_guard;
	has_guard = HIDDEN_BYTES > BREAKPOINT_BYTES && set_action(SIGILL, &action, &of_program_illegal) == 0;
	return true;
}

/* ---------------------------------------------------------------- beginning */

/* What this process was before it executed this program, and processes of the same number that are gone. To be done before
 * a trap is handled, as evenly changes nothing in a process that does not. */
static void forget_others(void)
{
	uint32_t pid = (uint32_t)getpid();
	for (uint32_t i = 0; i < EVENLY_SPACES; i++) {
		uint64_t who = GET(shared->spaces[i].who);
		if (who && (uint32_t)who == pid)
			atomic_compare_exchange_strong(&shared->spaces[i].who, &who, 0);
	}
}

/* This process, in the first place that is free, or of a process that is gone. */
static struct evenly_space *take_space(bool taken)
{
	uint64_t who = (uint64_t)space << 32 | (uint32_t)getpid();
	for (uint32_t i = 0; i < EVENLY_SPACES; i++) {
		struct evenly_space *at = &shared->spaces[i];
		uint64_t owner = GET(at->who);
		if (owner && process_is_there((uint32_t)owner))
			continue;
		if (!atomic_compare_exchange_strong(&at->who, &owner, who))
			continue;
		SET(at->taken, taken);
		return at;
	}
	return NULL;
}

/* A forked process has the breakpoints of its parent, and is one of its own. */
static void is_forked(void)
{
	int before = errno;
	bool taken = own && GET(own->taken);
	struct stat namespace;
	/* In another namespace of processes its number means something else. */
	bool same = stat("/proc/self/ns/pid", &namespace) == 0 && namespace.st_ino == shared->pid_namespace;
	own = NULL;
	if (same) {
		forget_others();
		own = take_space(taken);
	}
	errno = before;
}

/* Whether the file has the layout that this library knows. */
static bool fits(const struct evenly_handover *h)
{
	return h->magic == EVENLY_HANDOVER_MAGIC && h->version == EVENLY_HANDOVER_VERSION && h->size == sizeof *h
		&& is_of_this_host(h->boot, h->pid_namespace);
}

/* SIGTRAP can have been blocked by what executed this program. */
static void unblock(void)
{
	sigset_t trap, before;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	here.blocks = set_mask(SIG_UNBLOCK, &trap, &before) == 0 && sigismember(&before, SIGTRAP) == 1;
}

__attribute__((constructor)) static void begin(void)
{
	int before = errno;
	int file = open_shared(EVENLY_HANDOVER_VARIABLE, EVENLY_HANDOVER_NAME, sizeof *shared);
	void *at = file < 0 ? MAP_FAILED
			    : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file >= 0)
		close(file);
	find_next();
	set_action = (int (*)(int, const struct sigaction *, struct sigaction *))next_sigaction;
	set_mask = (int (*)(int, const sigset_t *, sigset_t *))next_pthread_sigmask;
	if (at != MAP_FAILED && fits(at) && set_action && set_mask && pthread_atfork(NULL, NULL, is_forked) == 0) {
		shared = at;
		/* 0 is none. Numbers come back after four thousand million programs. */
		do
			space = atomic_fetch_add(&shared->last, 1) + 1;
		while (!space);
		forget_others();
		if (handle()) {
			unblock();
			own = take_space(false);
		} else {
			shared = NULL;
		}
	}
	if (at != MAP_FAILED && !shared)
		munmap(at, sizeof *shared);
	errno = before;
}

#include "handover_signals.h"
#include "handover_yield.h"
#include "handover_progress.h"

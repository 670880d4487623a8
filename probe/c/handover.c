/*
 * Threads that spin give their CPU to others of the program, and take it back: see handover.h.
 *
 * A library for LD_PRELOAD. It handles SIGTRAP for breakpoints that evenly has put on instructions `pause` (0xf3 0x90), by
 * which programs say that they wait: only the first byte is another (0xcc), so that what follows is a `nop` whatever
 * becomes of the signal. All other traps are the program's: its own handler is called, which it sets, reads and is shown as
 * if this one were not there.
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
#include "shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* NULL: this process takes no part, and the program's signals are its own. */
static struct evenly_handover *shared;
static struct evenly_space *own;
static uint32_t space;

static __thread struct {
	bool blocks;    /* the program means SIGTRAP to be blocked */
	uint64_t last;  /* CLOCK_MONOTONIC when this thread left the handler, ns */
	uint64_t began; /* when its wait began */
	uint64_t spun;  /* ns of it in which nobody else had a use for the CPU */
} here __attribute__((tls_model("initial-exec")));

/* ---------------------------------------------------------------- handing over */

/* A thread that comes to a breakpoint within so many ns after the last is still in the same wait. */
#define SAME_WAIT 5000
/* Where another thread ran for so long, the CPU was of use to somebody. */
#define OF_USE 20000
/* How long a thread offers its CPU without anybody taking it before it sleeps. */
#define OFFERED 50000
/* How long it sleeps at least and at most, and which part of what it has waited. */
#define SHORTEST 20000
#define LONGEST 1000000
#define PART 8

static void sleep_ns(uint64_t ns)
{
	struct timespec time = { .tv_nsec = (long)ns };
	/* Else it may be 50 us later. */
	int slack = prctl(PR_GET_TIMERSLACK);
	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, 1);
	/* Not by the library, where a thread could be cancelled. */
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
}

static void count(_Atomic uint64_t *what, uint64_t by)
{
	atomic_fetch_add_explicit(what, by, memory_order_relaxed);
}

static void hand_over(struct evenly_place *place, uint64_t now)
{
	if (now - here.last > SAME_WAIT) {
		here.began = now;
		here.spun = 0;
	}
	if (here.spun < OFFERED) {
		syscall(SYS_sched_yield);
		uint64_t then = clock_ns(CLOCK_MONOTONIC), away = then - now;
		if (away > OF_USE) {
			count(&place->given, away);
			here.spun = 0;
		} else {
			here.spun += then - (here.last > here.began ? here.last : here.began);
		}
	} else {
		uint64_t part = (now - here.began) / PART;
		sleep_ns(part < SHORTEST ? SHORTEST : part > LONGEST ? LONGEST : part);
		count(&place->slept, clock_ns(CLOCK_MONOTONIC) - now);
	}
}

/* ---------------------------------------------------------------- the trap */

#define BREAKPOINT 0xcc
#define PAUSE 0xf3
#define NOP 0x90

static struct evenly_place *find(uint64_t at)
{
	uint32_t first = evenly_first_place(at);
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

/* Puts the instruction back. Where that cannot be, each thread that comes there traps and goes on. */
static void restore(uint64_t at)
{
	const unsigned char pause = PAUSE;
	int memory = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
	if (memory < 0)
		return;
	ssize_t unused = pwrite(memory, &pause, 1, (off_t)at);
	(void)unused;
	close(memory);
}

/* What the program has made of SIGTRAP. Written while no other thread does, as of any other signal. */
static struct sigaction of_program;
static int (*set_action)(int, const struct sigaction *, struct sigaction *);
static int (*set_mask)(int, const sigset_t *, sigset_t *);

/* A trap that is not ours. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
	struct sigaction action = of_program;
	bool was_sent = info->si_code <= 0;
	if (!(action.sa_flags & SA_SIGINFO) && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
		if (action.sa_handler == SIG_IGN && was_sent)
			return;
		/* As the kernel does it, it ends the process. */
		struct sigaction by_default = { .sa_handler = SIG_DFL };
		set_action(SIGTRAP, &by_default, NULL);
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGTRAP);
		return;
	}
	if (action.sa_flags & SA_RESETHAND)
		of_program = (struct sigaction){ .sa_handler = SIG_DFL };
	sigset_t before;
	set_mask(SIG_BLOCK, &action.sa_mask, &before);
	if (action.sa_flags & SA_SIGINFO)
		action.sa_sigaction(signal, info, context);
	else
		action.sa_handler(signal);
	set_mask(SIG_SETMASK, &before, NULL);
}

#if defined(__x86_64__)
static void trapped(int signal, siginfo_t *info, void *context)
{
	int before = errno;
	greg_t *next = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	uint64_t at = (uint64_t)*next - 1;
	/* Of the instruction itself. */
	struct evenly_place *place = info->si_code == SI_KERNEL ? find(at) : NULL;
	if (!place || *(unsigned char *)*next != NOP) {
		errno = before;
		pass_on(signal, info, context);
		return;
	}
	*next += 1;
	count(&place->traps, 1);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	if (GET(place->wanted) && now / 1000000000 < GET(shared->until))
		hand_over(place, now);
	else
		restore(at);
	here.last = clock_ns(CLOCK_MONOTONIC);
	errno = before;
}

static bool handle(void)
{
	/* On the stack of the thread: alternative stacks can be too small for two handlers. A handler of the program that
	 * interrupts this one may come to a breakpoint as well, so that the signal is not blocked meanwhile. */
	struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER };
	return set_action(SIGTRAP, &action, &of_program) == 0;
}
#else
static bool handle(void)
{
	return false;
}
#endif

/* ---------------------------------------------------------------- beginning */

/* This process, in the first place that is free, or of a process that is gone. */
static struct evenly_space *take_space(void)
{
	uint32_t pid = (uint32_t)getpid();
	for (uint32_t i = 0; i < EVENLY_SPACES; i++) {
		struct evenly_space *at = &shared->spaces[i];
		uint32_t owner = GET(at->pid);
		/* What this process was before it executed this program is gone, too. */
		if (owner && owner != pid && (getpgid((pid_t)owner) >= 0 || errno != ESRCH))
			continue;
		if (!atomic_compare_exchange_strong(&at->pid, &owner, pid))
			continue;
		SET(at->taken, of_program.sa_handler != SIG_DFL);
		atomic_store_explicit(&at->space, space, memory_order_release);
		return at;
	}
	return NULL;
}

/* A forked process has the breakpoints of its parent, and is one of its own. */
static void is_forked(void)
{
	int before = errno;
	own = take_space();
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
	*(void **)&set_action = dlsym(RTLD_NEXT, "sigaction");
	*(void **)&set_mask = dlsym(RTLD_NEXT, "pthread_sigmask");
	if (at != MAP_FAILED && fits(at) && set_action && set_mask && pthread_atfork(NULL, NULL, is_forked) == 0) {
		shared = at;
		/* 0 is none. Numbers come back after four thousand million programs. */
		do
			space = atomic_fetch_add(&shared->last, 1) + 1;
		while (!space);
		if (handle()) {
			unblock();
			own = take_space();
		} else {
			shared = NULL;
		}
	}
	if (at != MAP_FAILED && !shared)
		munmap(at, sizeof *shared);
	errno = before;
}

#include "handover_signals.h"

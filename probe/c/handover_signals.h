/*
 * The program's own view of SIGTRAP: what it does with the signal is kept, and shown, but not carried out (handover.c).
 * Not seen: masks that are set by setcontext, or by a handler in its context; system calls of the program's own.
 */
#ifndef EVENLY_HANDOVER_SIGNALS_H
#define EVENLY_HANDOVER_SIGNALS_H

/* Programs still call what should be called no longer. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* The next function of this name; calls that come before this library has begun look it up. */
#define NEXT(name)                        \
	if (!next_##name)                 \
		find_next();              \
	__typeof__(&name) next = (__typeof__(&name))next_##name;

/* Signals of which the program means SIGTRAP to be blocked while they are handled. */
static _Atomic uint64_t with_trap;

static bool has_trap(const sigset_t *set)
{
	return set && sigismember(set, SIGTRAP) == 1;
}

/* The set without SIGTRAP, where it has it: itself otherwise. */
static const sigset_t *without(const sigset_t *set, sigset_t *copy)
{
	if (!shared || !has_trap(set))
		return set;
	*copy = *set;
	sigdelset(copy, SIGTRAP);
	return copy;
}

static void replace(struct sigaction *kept, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction before = *kept;
	if (action)
		*kept = *action;
	if (old)
		*old = before;
}

EXPORT int sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	NEXT(sigaction)
	if (!shared)
		return next(signal, action, old);
	struct sigaction *own_action = kept(signal);
	if (own_action) {
		replace(own_action, action, old);
		return 0;
	}
	uint64_t bit = signal > 0 && signal <= 64 ? UINT64_C(1) << (signal - 1) : 0;
	bool had = GET(with_trap) & bit;
	struct sigaction changed;
	if (action && has_trap(&action->sa_mask)) {
		changed = *action;
		sigdelset(&changed.sa_mask, SIGTRAP);
	}
	bool has = action && has_trap(&action->sa_mask);
	int result = next(signal, has ? &changed : action, old);
	if (result == 0 && old && had)
		sigaddset(&old->sa_mask, SIGTRAP);
	if (result == 0 && action) {
		if (has)
			atomic_fetch_or(&with_trap, bit);
		else
			atomic_fetch_and(&with_trap, ~bit);
	}
	return result;
}

typedef void (*handler_t)(int);

/* The older ways to set a handler, which the C library does not do by its own sigaction that could be stood before. */
static handler_t set_handler(struct sigaction *kept, handler_t handler, int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags }, old;
	sigemptyset(&action.sa_mask);
	replace(kept, &action, &old);
	return old.sa_handler;
}

EXPORT handler_t signal(int number, handler_t handler)
{
	NEXT(signal)
	struct sigaction *own_action = shared ? kept(number) : NULL;
	return own_action ? set_handler(own_action, handler, SA_RESTART) : next(number, handler);
}

EXPORT handler_t __sysv_signal(int number, handler_t handler)
{
	NEXT(__sysv_signal)
	struct sigaction *own_action = shared ? kept(number) : NULL;
	if (!own_action)
		return next(number, handler);
	return set_handler(own_action, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

/* Their other names. */
EXPORT int __sigaction(int signal, const struct sigaction *action, struct sigaction *old) __THROW
	__attribute__((alias("sigaction")));
EXPORT handler_t ssignal(int number, handler_t handler) __THROW __attribute__((alias("signal")));
EXPORT handler_t bsd_signal(int number, handler_t handler) __THROW __attribute__((alias("signal")));
EXPORT handler_t sysv_signal(int number, handler_t handler) __THROW __attribute__((alias("__sysv_signal")));

EXPORT int sigignore(int number)
{
	NEXT(sigignore)
	struct sigaction *own_action = shared ? kept(number) : NULL;
	if (!own_action)
		return next(number);
	set_handler(own_action, SIG_IGN, 0);
	return 0;
}

EXPORT int sighold(int number)
{
	NEXT(sighold)
	if (!shared || number != SIGTRAP)
		return next(number);
	here.blocks = true;
	return 0;
}

EXPORT int sigrelse(int number)
{
	NEXT(sigrelse)
	if (shared && number == SIGTRAP)
		here.blocks = false;
	return next(number);
}

EXPORT handler_t sigset(int number, handler_t handler)
{
	NEXT(sigset)
	struct sigaction *own_action = shared ? kept(number) : NULL;
	if (!own_action)
		return next(number, handler);
	if (number != SIGTRAP) {
		if (handler != SIG_HOLD)
			return set_handler(own_action, handler, 0);
		/* It is blocked in fact. */
		return next(number, handler) == SIG_HOLD ? SIG_HOLD : own_action->sa_handler;
	}
	bool blocked = here.blocks;
	here.blocks = handler == SIG_HOLD;
	if (handler == SIG_HOLD)
		return blocked ? SIG_HOLD : of_program.sa_handler;
	handler_t before = set_handler(own_action, handler, 0);
	return blocked ? SIG_HOLD : before;
}

#define TRAP_BIT (1 << (SIGTRAP - 1))

EXPORT int sigblock(int mask)
{
	NEXT(sigblock)
	if (!shared)
		return next(mask);
	int before = next(mask & ~TRAP_BIT) | (here.blocks ? TRAP_BIT : 0);
	here.blocks |= (mask & TRAP_BIT) != 0;
	return before;
}

EXPORT int sigsetmask(int mask)
{
	NEXT(sigsetmask)
	if (!shared)
		return next(mask);
	int before = next(mask & ~TRAP_BIT) | (here.blocks ? TRAP_BIT : 0);
	here.blocks = (mask & TRAP_BIT) != 0;
	return before;
}

/* As `next` does, which is one of the two below. */
static int set_own_mask(int (*next)(int, const sigset_t *, sigset_t *), int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;
	bool sets = set, has = has_trap(set), had = here.blocks;
	int result = next(how, without(set, &copy), old);
	if (!shared || result != 0)
		return result;
	if (old && had)
		sigaddset(old, SIGTRAP);
	if (sets && how == SIG_SETMASK)
		here.blocks = has;
	else if (has)
		here.blocks = how == SIG_BLOCK;
	return result;
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	NEXT(pthread_sigmask)
	return set_own_mask(next, how, set, old);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	NEXT(sigprocmask)
	return set_own_mask(next, how, set, old);
}

/* Handlers run under the masks of these, too. */
EXPORT int sigsuspend(const sigset_t *set)
{
	NEXT(sigsuspend)
	sigset_t copy;
	return next(without(set, &copy));
}

EXPORT int ppoll(struct pollfd *files, nfds_t n, const struct timespec *limit, const sigset_t *set)
{
	NEXT(ppoll)
	sigset_t copy;
	return next(files, n, limit, without(set, &copy));
}

EXPORT int pselect(int n, fd_set *reads, fd_set *writes, fd_set *excepts, const struct timespec *limit,
	const sigset_t *set)
{
	NEXT(pselect)
	sigset_t copy;
	return next(n, reads, writes, excepts, limit, without(set, &copy));
}

EXPORT int epoll_pwait(int file, struct epoll_event *events, int n, int limit, const sigset_t *set)
{
	NEXT(epoll_pwait)
	sigset_t copy;
	return next(file, events, n, limit, without(set, &copy));
}

EXPORT int pthread_attr_setsigmask_np(pthread_attr_t *attributes, const sigset_t *set)
{
	NEXT(pthread_attr_setsigmask_np)
	sigset_t copy;
	return next(attributes, without(set, &copy));
}

/* What ppoll is called where calls are checked. */
EXPORT int __ppoll_chk(struct pollfd *files, nfds_t n, const struct timespec *limit, const sigset_t *set, size_t size)
{
	NEXT(__ppoll_chk)
	sigset_t copy;
	return next(files, n, limit, without(set, &copy), size);
}

EXPORT int epoll_pwait2(int file, struct epoll_event *events, int n, const struct timespec *limit, const sigset_t *set)
{
	NEXT(epoll_pwait2)
	sigset_t copy;
	return next(file, events, n, limit, without(set, &copy));
}

/* ---------------------------------------------------------------- filters of system calls */

/* Those of the handler may not pass the filter. */
EXPORT int prctl(int option, ...)
{
	NEXT(prctl)
	va_list more;
	va_start(more, option);
	unsigned long a = va_arg(more, unsigned long), b = va_arg(more, unsigned long);
	unsigned long c = va_arg(more, unsigned long), d = va_arg(more, unsigned long);
	va_end(more);
	if (shared && option == PR_SET_SECCOMP)
		stand_down();
	return next(option, a, b, c, d);
}

EXPORT long syscall(long number, ...)
{
	NEXT(syscall)
	long of[6];
	TAKE_ARGUMENTS(number, of);
	bool filters = number == SYS_seccomp || (number == SYS_prctl && of[0] == PR_SET_SECCOMP);
	if (shared && filters)
		stand_down();
	return next(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

#endif

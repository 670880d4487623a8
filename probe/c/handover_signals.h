/*
 * The program's own view of SIGTRAP: what it does with the signal is kept, and shown, but not carried out (handover.c).
 */
#ifndef EVENLY_HANDOVER_SIGNALS_H
#define EVENLY_HANDOVER_SIGNALS_H

/* The next function of this name; for calls that come before this library has begun, too. */
#define NEXT(name)                                                                        \
	static _Atomic(__typeof__(&name)) kept;                                           \
	__typeof__(&name) next = GET(kept);                                               \
	if (!next) {                                                                      \
		next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                        \
		SET(kept, next);                                                          \
	}

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

static void action_of_trap(const struct sigaction *action, struct sigaction *old)
{
	struct sigaction before = of_program;
	if (action) {
		of_program = *action;
		if (own)
			SET(own->taken, 1);
	}
	if (old)
		*old = before;
}

EXPORT int sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	NEXT(sigaction)
	if (!shared)
		return next(signal, action, old);
	if (signal == SIGTRAP) {
		action_of_trap(action, old);
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
static handler_t set_handler(handler_t handler, int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags }, old;
	sigemptyset(&action.sa_mask);
	action_of_trap(&action, &old);
	return old.sa_handler;
}

EXPORT handler_t signal(int number, handler_t handler)
{
	NEXT(signal)
	return shared && number == SIGTRAP ? set_handler(handler, SA_RESTART) : next(number, handler);
}

EXPORT handler_t __sysv_signal(int number, handler_t handler)
{
	NEXT(__sysv_signal)
	return shared && number == SIGTRAP ? set_handler(handler, (int)(SA_RESETHAND | SA_NODEFER)) : next(number, handler);
}

/* A mask of this thread is another now. */
static void masked(int how, bool has, bool had, sigset_t *old)
{
	if (old && had)
		sigaddset(old, SIGTRAP);
	if (how == SIG_SETMASK)
		here.blocks = has;
	else if (has)
		here.blocks = how == SIG_BLOCK;
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	NEXT(pthread_sigmask)
	sigset_t copy;
	bool has = has_trap(set), had = here.blocks, sets = set;
	int result = next(how, without(set, &copy), old);
	if (shared && result == 0)
		masked(sets ? how : SIG_BLOCK, has, had, old);
	return result;
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	NEXT(sigprocmask)
	sigset_t copy;
	bool has = has_trap(set), had = here.blocks, sets = set;
	int result = next(how, without(set, &copy), old);
	if (shared && result == 0)
		masked(sets ? how : SIG_BLOCK, has, had, old);
	return result;
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

#endif

/*
 * Ranks of MPI that wait: the functions by which their libraries look once whether a message has come. They are called again
 * and again through the table of symbols, in loops that call too much to be proved to wait.
 *
 * Open MPI waits by opal_progress, MPICH by ucp_worker_progress where it is built with UCX (Debian's is); not by a function
 * of this kind where it is built with libfabric.
 */
#ifndef EVENLY_HANDOVER_PROGRESS_H
#define EVENLY_HANDOVER_PROGRESS_H

#include <link.h>

/* A rank that waits looks again within so many ns. */
#define AGAIN 1000
/* It waits where it has done nothing but to look for so many ns: about what it costs to yield. Programs that look in between,
 * and go on with their work, would do so at each look. */
#define LASTS 1000
/* Open MPI yields at a look that found nothing, if it is told to; not where it counts what has come for others. So many looks
 * without say that it does not. */
#define YIELDED 64
/* Places in code that call, of which a thread knows whom. */
#define CALLERS 32

static __thread struct {
	int depth;     /* one is called by the other */
	bool waits;    /* nothing had come the last time */
	unsigned yields; /* calls of sched_yield before it looked */
	unsigned yielded; /* looks for which its library is taken to yield by itself, as it did in one before */
	uint64_t turn; /* as that of loops */
} looks __attribute__((tls_model("initial-exec")));

/* Whether a function is found by this handle, other than `own`: then its library stays. */
static bool has(void *library, const char *name, void *own, void **found)
{
	void *function = dlsym(library, name);
	struct link_map *map;
	Dl_info info;
	if (!function || function == own)
		return false;
	if (dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP) && *map->l_name)
		dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
	*found = function;
	return true;
}

/* The function of this name that this library's `own` stands before: that of the caller's library, as there may be two; else
 * the next one, else any that was loaded for another library alone. It may be called from this library, where one jumps to
 * the other. NULL: there is none. */
static void *behind(const char *name, void *own, void *caller)
{
	void *found = NULL;
	struct link_map *map, *here_is;
	Dl_info info;
	if (!dladdr1(own, &info, (void **)&here_is, RTLD_DL_LINKMAP))
		return NULL;
	if (dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) && map != here_is && *map->l_name) {
		void *library = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
		if (library && has(library, name, own, &found))
			return found;
	}
	if (has(RTLD_NEXT, name, own, &found))
		return found;
	for (map = here_is; map->l_prev; map = map->l_prev)
		;
	for (; map; map = map->l_next) {
		void *library = *map->l_name ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (library && has(library, name, own, &found))
			break;
		if (library)
			dlclose(library);
	}
	return found;
}

/* The same, once for each caller. */
#define NEXT_OF(name)                                                                                   \
	static __thread struct {                                                                        \
		void *caller;                                                                           \
		__typeof__(&name) next;                                                                 \
	} known[CALLERS] __attribute__((tls_model("initial-exec")));                                    \
	void *caller = __builtin_return_address(0);                                                     \
	unsigned at = (unsigned)((uintptr_t)caller >> 2) % CALLERS;                                     \
	if (known[at].caller != caller) {                                                               \
		known[at].next = (__typeof__(&name))behind(#name, (void *)name, caller);                \
		known[at].caller = caller;                                                              \
	}                                                                                               \
	__typeof__(&name) next = known[at].next;

/* To be called before each look. Whether it is one of a rank that waits: it has done nothing for a while but to look. */
static bool looks_again(void)
{
	if (!looks.depth)
		looks.yields = yields.calls;
	if (looks.depth++ || !shared || !GET(shared->until) || GET(stands_down) || looks.yielded)
		return false;
	uint64_t now = clock_ns(CLOCK_MONOTONIC), turn_of_loops = here.turn;
	if (now - here.last >= AGAIN) {
		begins_to_wait(now);
		return false;
	}
	/* Ranks and loops have turns of their own. */
	here.turn = looks.turn;
	bool waits = waits_still(now) && looks.waits && now - here.began >= LASTS;
	looks.turn = here.turn;
	here.turn = turn_of_loops;
	return waits;
}

static void let_others_run(void)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	int before = errno;
	if (now / 1000000000 >= GET(shared->until))
		return;
	count(&shared->progress.traps, 1);
	/* A rank that waits for one message may have to answer another, which does not end its wait. */
	give(&shared->progress, NULL, now);
	errno = before;
}

/* To be called after it, with whether something had come as far as is known. */
static void looked(bool waits, bool found)
{
	if (--looks.depth || !shared || !GET(shared->until))
		return;
	looks.waits = !found;
	if (looks.yields != yields.calls)
		looks.yielded = YIELDED;
	else if (looks.yielded)
		looks.yielded--;
	if (looks.yielded)
		return;
	if (waits && !found)
		let_others_run();
	here.last = clock_ns(CLOCK_MONOTONIC);
}

EXPORT int opal_progress(void)
{
	NEXT_OF(opal_progress)
	bool waits = looks_again();
	int events = next ? next() : 0;
	/* Open MPI 4.1 counts more than what has come. */
	looked(waits, false);
	return events;
}

EXPORT unsigned ucp_worker_progress(void *worker)
{
	NEXT_OF(ucp_worker_progress)
	bool waits = looks_again();
	unsigned events = next ? next(worker) : 0;
	looked(waits, events > 0);
	return events;
}

#endif

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

static __thread struct {
	int depth;  /* one is called by the other */
	bool waits; /* nothing had come the last time */
} looks __attribute__((tls_model("initial-exec")));

/* The function of this name that this library's `own` stands before, also where it was loaded for another library alone. Not
 * found by who calls: that may be this library, where one jumps to the other. */
static void *behind(const char *name, void *own)
{
	void *found = dlsym(RTLD_NEXT, name);
	struct link_map *map;
	Dl_info info;
	if (found || !dladdr1(own, &info, (void **)&map, RTLD_DL_LINKMAP))
		return found;
	while (map->l_prev)
		map = map->l_prev;
	for (; map && !found; map = map->l_next) {
		void *library = *map->l_name ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (!library)
			continue;
		found = dlsym(library, name);
		found = found == own ? NULL : found;
		dlclose(library);
	}
	return found;
}

/* To be called after each look, with whether something had come as far as is known. */
static void looked(bool found)
{
	if (--looks.depth || !shared || !GET(shared->until))
		return;
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	/* It may compute between looks: then it does not wait. */
	bool waits = !found && looks.waits && now - here.last < LONGEST_TURN;
	looks.waits = !found;
	if (waits && now / 1000000000 < GET(shared->until)) {
		int before = errno;
		count(&shared->progress.traps, 1);
		hand_over(&shared->progress, now);
		errno = before;
	}
	here.last = clock_ns(CLOCK_MONOTONIC);
}

EXPORT int opal_progress(void)
{
	static int (*_Atomic next)(void);
	if (!next)
		next = (int (*)(void))behind("opal_progress", (void *)opal_progress);
	looks.depth++;
	int events = next ? next() : 0;
	/* Open MPI 4.1 counts more than what has come. */
	looked(false);
	return events;
}

EXPORT unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*_Atomic next)(void *);
	if (!next)
		next = (unsigned (*)(void *))behind("ucp_worker_progress", (void *)ucp_worker_progress);
	looks.depth++;
	unsigned events = next ? next(worker) : 0;
	looked(events > 0);
	return events;
}

#endif

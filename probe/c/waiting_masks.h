/*
 * Affinity masks, as the program would see them without evenly. A part of waiting.c.
 *
 * While evenly keeps threads on single CPUs, a program that asks for the mask of a thread is given the one that it was
 * started with: runtimes size their pools by it (omp_get_num_procs, nproc, os.sched_getaffinity). A process or thread that
 * begins on the CPU of a thread that evenly has put there goes back to that mask at once.
 *
 * A program that sets masks itself sees what is, from then on, and so do the programs that it starts: which masks are
 * its own is not known here. Nor is it where a mask is set past the C library (libnuma, libomp): then what is set is
 * left as it is, and OMP_PROC_BIND and the like are asked. Where evenly finds a mask that somebody else has set
 * (`taskset -p`), it says so, and that counts as if the process had.
 */
#ifndef EVENLY_WAITING_MASKS_H
#define EVENLY_WAITING_MASKS_H

/* Whether evenly keeps threads on single CPUs. It says so before it puts the first there, until a second after it has let
 * all go, so that a mask that was read or inherited before is known, too; and again and again: one that was killed lets
 * them go without. */
static bool pins(void)
{
	uint32_t until = header ? GET(header->pins) : 0;
	return until && clock_ns(CLOCK_MONOTONIC) / UINT64_C(1000000000) <= until;
}

/* What the lines of a process say of it. */
struct told {
	bool known; /* it has some */
	bool bound; /* masks were set in it */
};

static struct told told_of(uint32_t process)
{
	struct told told = { 0 };
	uint32_t high = atomic_load_explicit(&header->high, memory_order_acquire);
	for (uint32_t i = 0; i < high && i < EVENLY_LINES; i++)
		if (GET(lines[i].pid) == process) {
			told.known = true;
			told.bound |= GET(notes[i].bound) != 0;
		}
	return told;
}

/* Whether masks were set in this process: by itself, or by somebody else. */
static bool masks_were_set(void)
{
	static _Atomic uint32_t asked;
	uint32_t bound = atomic_load_explicit(&header->bound, memory_order_acquire);
	if (GET(asked) != bound) {
		SET(asked, bound);
		if (told_of(pid).bound)
			SET(sets_masks, true);
	}
	return GET(sets_masks);
}

/* Where the mask is that of a thread which evenly has put on a CPU: the program's. It holds that CPU: it is in the
 * mapping, where any program can have written anything. */
static bool without_evenly(size_t size, cpu_set_t *mask)
{
	unsigned cpu = 0;
	if (!header || !pins() || CPU_COUNT_S(size, mask) != 1)
		return false;
	while (!CPU_ISSET_S(cpu, size, mask))
		cpu++;
	if (cpu >= EVENLY_CPUS || !(GET(header->base[cpu / 64]) >> cpu % 64 & 1) || masks_were_set())
		return false;
	for (unsigned other = 0; other < EVENLY_CPUS && other < 8 * size; other++)
		if (GET(header->base[other / 64]) >> other % 64 & 1)
			CPU_SET_S(other, size, mask);
	return true;
}

/* A process or thread that has begun: back to the program's mask, if it is on the CPU of its parent. */
static bool leaves_cpu_of_parent(void)
{
	int before = errno;
	unsigned long mask[EVENLY_CPUS / (8 * sizeof(long))] = { 0 };
	long size = pins() ? SYSCALL(SYS_sched_getaffinity, 0, sizeof mask, mask) : 0;
	bool leaves = size > 0 && without_evenly((size_t)size, (cpu_set_t *)mask)
		&& SYSCALL(SYS_sched_setaffinity, 0, (size_t)size, mask) == 0;
	errno = before;
	return leaves;
}

/* A process that was forked begins. Where masks were set it gets a line, by which what it starts knows that. */
static void begins_process(void)
{
	int before = errno;
	if (header && masks_were_set())
		mine();
	else
		leaves_cpu_of_parent();
	errno = before;
}

/* All lines of a process. */
static void mark(uint32_t process)
{
	uint32_t high = atomic_load_explicit(&header->high, memory_order_acquire);
	for (uint32_t i = 0; i < high && i < EVENLY_LINES; i++)
		if (GET(lines[i].pid) == process)
			SET(notes[i].bound, 1);
}

/* Whether a number stands for a thread of this process, as calls for masks have it. */
static bool is_of_this_process(pid_t thread)
{
	return thread == 0 || SYSCALL(SYS_tgkill, getpid(), thread, 0) == 0;
}

/* Masks were set in a process, given by itself or by a thread. */
static void masks_are_set(pid_t process)
{
	if (!header)
		return;
	int before = errno;
	bool own = is_of_this_process(process);
	if (own) {
		SET(sets_masks, true);
		/* What this process becomes by exec has to know. */
		mine();
	}
	mark(own ? pid : (uint32_t)process);
	errno = before;
}

/* Before lines of old are given back: whether what this process was before exec, or its parent, has set masks. True where
 * this process is to have a line, by which what it becomes by exec knows that. */
static bool begin_masks(void)
{
	static const char *const variables[] =
		{ "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET" };
	struct told was = told_of(pid), parent = told_of((uint32_t)getppid());
	bool bound = was.bound || parent.bound;
	for (unsigned i = 0; i < sizeof variables / sizeof *variables; i++)
		bound |= getenv(variables[i]) != NULL;
	SET(sets_masks, bound);
	/* Once for each process: what it set since is its own. */
	return was.known || parent.bound || (parent.known && leaves_cpu_of_parent());
}

/* Threads that have been made and have not begun. Nothing is allocated: where there is no room a thread begins without. */
#define STARTS 64
static struct start {
	_Atomic uint32_t taken;
	void *(*function)(void *);
	void *argument;
} starts[STARTS];

static void *begins_thread(void *start)
{
	struct start *own = start;
	void *(*function)(void *) = own->function, *argument = own->argument;
	atomic_store_explicit(&own->taken, 0, memory_order_release);
	leaves_cpu_of_parent();
	return function(argument);
}

/* A thread that is made by one which evenly has put on a CPU does not stay there. */
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NEXT("pthread_create");
	uint32_t none = 0;
	unsigned i = pins() ? 0 : STARTS;
	for (; i < STARTS; i++, none = 0)
		if (atomic_compare_exchange_strong_explicit(&starts[i].taken, &none, 1, memory_order_acquire,
			    memory_order_relaxed))
			break;
	if (i == STARTS)
		return next(thread, attributes, function, argument);
	starts[i].function = function;
	starts[i].argument = argument;
	int result = next(thread, attributes, begins_thread, &starts[i]);
	if (result)
		atomic_store_explicit(&starts[i].taken, 0, memory_order_release);
	return result;
}

EXPORT int sched_getaffinity(pid_t process, size_t size, cpu_set_t *mask)
{
	int (*next)(pid_t, size_t, cpu_set_t *) = NEXT("sched_getaffinity");
	int result = next(process, size, mask);
	if (result == 0 && header) {
		int before = errno;
		if (is_of_this_process(process))
			without_evenly(size, mask);
		errno = before;
	}
	return result;
}

EXPORT int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *mask)
{
	int (*next)(pthread_t, size_t, cpu_set_t *) = NEXT("pthread_getaffinity_np");
	int result = next(thread, size, mask);
	if (result == 0)
		without_evenly(size, mask);
	return result;
}

EXPORT int sched_setaffinity(pid_t process, size_t size, const cpu_set_t *mask)
{
	int (*next)(pid_t, size_t, const cpu_set_t *) = NEXT("sched_setaffinity");
	int result = next(process, size, mask);
	if (result == 0)
		masks_are_set(process);
	return result;
}

EXPORT int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *mask)
{
	int (*next)(pthread_t, size_t, const cpu_set_t *) = NEXT("pthread_setaffinity_np");
	int result = next(thread, size, mask);
	if (result == 0)
		masks_are_set(0);
	return result;
}

EXPORT int pthread_attr_setaffinity_np(pthread_attr_t *attributes, size_t size, const cpu_set_t *mask)
{
	int (*next)(pthread_attr_t *, size_t, const cpu_set_t *) = NEXT("pthread_attr_setaffinity_np");
	int result = next(attributes, size, mask);
	if (result == 0 && size > 0)
		masks_are_set(0);
	return result;
}

#endif

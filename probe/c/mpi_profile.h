/*
 * Where the counts go: the file of a rank, at its end, and the file in memory that evenly reads while it runs.
 */
#ifndef EVENLY_MPI_PROFILE_H
#define EVENLY_MPI_PROFILE_H

#ifndef EVENLY_MPI_COUNTS_H /* these stand before this where evenly has it compiled */
#include "mpi_counts.h"
#endif

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

/* Gives a file its name, unless there is one of that name. At once where the file system can do that: a rank may be killed
 * at any time, and one with both names is not read. */
static int become(const char *made, const char *path)
{
	int failed = -1;
#ifdef SYS_renameat2
	failed = (int)syscall(SYS_renameat2, AT_FDCWD, made, AT_FDCWD, path, 1 /* RENAME_NOREPLACE */);
	if (failed && errno != ENOSYS && errno != EINVAL)
		return failed;
#endif
	return failed ? link(made, path) : 0;
}

/* Writes the profile, once, under another name first: a reader sees all of it or nothing. Where it cannot be written
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
		atomic_store_explicit(&run.shared->ended, clock_ns(CLOCK_BOOTTIME), memory_order_relaxed);
	uint64_t mpi = atomic_load(&run.mpi_ns);
	uint64_t cpu = less(clock_ns(CLOCK_PROCESS_CPUTIME_ID), run.cpu_began);
	uint64_t wall = less(clock_ns(CLOCK_MONOTONIC), run.wall_began);

	const char *dir = getenv("EVENLY_PROFILE_DIR");
	char path[4096], made[4096];
	if (dir && (size_t)snprintf(path, sizeof path, "%s/rank-%d.json", dir, run.rank) < sizeof path
		&& (size_t)snprintf(made, sizeof made, "%s/.rank-%d.%d", dir, run.rank, (int)run.pid) < sizeof made) {
		int file = make(made);
		bool ok = write_to(file, ended, wall, cpu, mpi);
		if (file >= 0 && close(file) != 0)
			ok = false;
		/* A rank of that number that was there before belongs to another program that the command ran. */
		if (ok && become(made, path) != 0 && errno == EEXIST)
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

/* Whether the file has the layout that this library knows. */
static bool fits(const struct evenly_messages *h)
{
	return h->magic == EVENLY_MESSAGES_MAGIC && h->version == EVENLY_MESSAGES_VERSION
		&& h->rank_size == sizeof(struct evenly_rank) && h->ranks == EVENLY_MESSAGES_RANKS
		&& h->size == EVENLY_MESSAGES_SIZE && is_of_this_host(h->boot, h->pid_namespace);
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
	int file = open_shared(EVENLY_MESSAGES_VARIABLE, EVENLY_MESSAGES_NAME, EVENLY_MESSAGES_SIZE);
	if (file < 0)
		return;
	uint64_t index = EVENLY_MESSAGES_HEADER + EVENLY_MESSAGES_RANKS * sizeof(struct evenly_rank);
	struct evenly_messages *header = mapped(file, 0, index);
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
			rank->registered = clock_ns(CLOCK_BOOTTIME);
			rank->place = place;
			rank->mult = (uint64_t)(run.ns_per_tick * 4294967296.0);
			rank->began = here.known_ns;
			atomic_store_explicit(&rank->cpu, here.known_ns, memory_order_relaxed);
			run.shared = here.shared = rank;
			run.sent = tallies;
			run.fetched = tallies + run.ranks;
			run.outside = &rank->outside;
			run.uncounted = &rank->uncounted;
			/* Release: a reader that sees the number sees all before it. */
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
		/* Which of them a call is for is not known: nothing is counted any more. */
		atomic_store(&several_mpis, true);
		if (atomic_exchange(&run.running, false)) {
			if (run.shared)
				atomic_store_explicit(&run.shared->ended, clock_ns(CLOCK_BOOTTIME), memory_order_relaxed);
			note("other-mpi");
		}
	}
	void *at = of_mpi(name, caller);
	run.ticks_began = ticks();
	run.ns_began = clock_ns(CLOCK_MONOTONIC);
	errno = before;
	return at ? at : (void *)no_function;
}

static void start_to_count(void)
{
	if (!(getenv("EVENLY_PROFILE_DIR") || getenv(EVENLY_MESSAGES_VARIABLE)))
		return;
	/* Clocks are compared for 2 ms at least; starting MPI takes longer. */
	uint64_t passed;
	while ((passed = clock_ns(CLOCK_MONOTONIC) - run.ns_began) < 2000000)
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
	here.known_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
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
	run.wall_began = clock_ns(CLOCK_MONOTONIC);
	run.cpu_began = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
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

#endif

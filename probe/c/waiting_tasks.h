/*
 * Tasks that are too short to be seen one by one.
 *
 * To see a task takes some 80 ns: of tasks of a microsecond that would be a tenth. So while a thread makes such tasks
 * (or, with libomp, executes them) they are left unseen, and in their regions no thread is reported as waiting at
 * barriers and ends: whoever waits there may execute tasks. From time to time some are seen again.
 */
#ifndef EVENLY_WAITING_TASKS_H
#define EVENLY_WAITING_TASKS_H

/* From tasks of this length on, what it takes to see them is less than half a percent. */
#define SHORT_TASK_NS 20000
/* So many short tasks in a row on one thread are enough. */
#define SHORT_TASKS 64
/* Then so many runs of so many tasks are not seen. After each run it is looked whether its tasks took long after all. */
#define UNSEEN_RUNS 256
#define RUN 64

/* How often a thread has found that tasks are short. */
static _Atomic uint32_t found_short;

static __thread struct {
	uint32_t seen;      /* tasks that this thread has executed since */
	uint64_t since;
	uint32_t known;     /* the value of found_short that it has acted on */
	uint32_t runs;      /* how many are still not to be seen */
	uint32_t unseen;    /* how many tasks of this one: its region is marked, and has left the barriers to the runtime */
	uint64_t looked_at; /* when this run began */
	bool ended;         /* libomp has just executed one */
} tasks __attribute__((tls_model("initial-exec")));

/* This thread has executed a task, and that was seen. */
static void task_was_seen(uint64_t at)
{
	if (tasks.seen++ == 0) {
		tasks.since = at;
	} else if (tasks.seen > SHORT_TASKS) {
		tasks.seen = 0;
		if (at - tasks.since < SHORT_TASKS * SHORT_TASK_NS)
			atomic_fetch_add_explicit(&found_short, 1, memory_order_relaxed);
	}
}

/* A run of tasks that are not seen begins, unless those of the last one took long. */
static COLD bool begins_run(void)
{
	uint64_t at = now();
	uint32_t found = GET(found_short);
	if (!tasks.runs && found != tasks.known)
		tasks.runs = UNSEEN_RUNS;
	else if (at - tasks.looked_at > RUN * SHORT_TASK_NS)
		tasks.runs = 0;
	tasks.known = found;
	tasks.looked_at = at;
	if (!tasks.runs)
		return false;
	tasks.runs--;
	tasks.unseen = RUN - 1;
	return true;
}

/* Whether the next task of this thread is the first of a run, or of what is left of one in this region. */
static inline bool begins_unseen(void)
{
	return (tasks.runs || GET(found_short) != tasks.known) && begins_run();
}

/* Whether the next task of this thread belongs to a run that has begun: then nothing is to be done for it. */
static inline bool continues_unseen(void)
{
	if (!tasks.unseen)
		return false;
	tasks.unseen--;
	return true;
}

/* Whether this thread makes, or executes, tasks that are not seen. */
static inline bool is_in_runs(void)
{
	return tasks.unseen || tasks.runs;
}

/* What is to be done for the first of a run has not been done in this region. */
static inline void comes_to_region(void)
{
	tasks.unseen = 0;
}

#endif

/*
 * Who waits in parallel regions of OpenMP: wrappers of libgomp, and a tool of libomp (OMPT).
 * A part of waiting.c.
 */
#ifndef EVENLY_WAITING_OPENMP_H
#define EVENLY_WAITING_OPENMP_H

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
	opens_region(note_of(team));
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
	comes_to_region();
}

/* Barriers for the region that this thread begins, with so many members at most. */
static struct evenly_team *barriers_of(uint32_t members)
{
	struct evenly_team *team = here.own_teams[here.depth - 1];
	if (!team || team->room < members) {
		if (team)
			munmap(team, size_of_team(team->room));
		team = here.own_teams[here.depth - 1] = new_team(members);
	}
	if (team)
		renew(team);
	return team;
}

/* This thread is member number `number` of the team of a region, with so many. Either may have no line. */
static void joins(line_t *line, line_t *of, struct evenly_team *team, uint32_t number, uint32_t members)
{
	bool meets_others = members > 1 && number < members;
	bool fits = team && meets_others && members <= team->room;
	here.place = (struct place){
		.watched = of && meets_others ? note_of(of) : NULL,
		.team = fits ? team : NULL,
		.number = number,
		.members = members,
	};
	if (here.place.watched && line)
		meets_in(line, here.place.watched);
	if (fits) {
		SET(team->members[number].line, line ? number_of(line) : 0);
		SET(team->numbers, members);
	}
	goes_on(here.place.watched);
}

/* ---------------------------------------------------------------- libgomp */

struct region {
	void *first;  /* of the data: libgomp looks at it where there are reductions */
	void (*function)(void *);
	void *data;
	line_t *team, *master;
	struct evenly_team *barriers; /* NULL where they are left to the runtime */
	struct code *code;    /* NULL where they are so always */
	bool met;             /* it has had several members */
	struct place outer;   /* where the master is in the region around it, */
	uint32_t generation;  /* in this process */
	uint16_t outer_team;  /* of the master */
	uint32_t number, outer_region;
	/* Asked by each member. To look for them takes a lock that the master may hold, as within dlopen. */
	long (*number_in_team)(void), (*size_of_team)(void);
};

/* A region with a real-time thread is not plain. */
static void judges_itself(void)
{
	struct code *code = here.place.code;
	if (code && GET(code->plain) == UNKNOWN && is_real_time())
		leave_barriers();
}

/* A member of a region that may be found to be plain. */
static void is_judged(struct region *region)
{
	here.place.code = region->code;
	judges_itself();
	if (here.place.number == 0)
		region->met = here.place.members > 1;
}

/* What a thread does in a region. */
static void part(void *argument)
{
	struct region *region = argument;
	line_t *line = mine();
	struct place outer = here.place;
	uint32_t began_in = here.generation;
	if (line) {
		here.outer = NULL;
		take_part(line, number_of(region->team), region->number);
	}
	joins(line, region->team, region->barriers, (uint32_t)region->number_in_team(),
		(uint32_t)region->size_of_team());
	if (region->code)
		is_judged(region);
	void (*function)(void *) = region->function;
	const void *code = here.code;
	here.code = (const void *)function;
	function(region->data);
	here.code = code;
	/* It may have become one. */
	judges_itself();
	/* Nothing of the region is touched from here on but its barrier: it is gone as soon as all have ended. */
	line = mine();
	if (line)
		change(line, EVENLY_END, 0);
	/* Not in a process that was forked in the region. */
	if (here.generation != began_in)
		return;
	ends_part(&here.place, (const void *)function);
	meets(here.place);
	here.place = outer;
}

/* Phases up to so many ns gain by barriers that are replaced, and longer ones lose by them: the end of a region has both. */
#define SHORT 300000

/* Whether the phases of a team have been short since this thread began a region before. It has just begun one. */
static bool are_short(const struct evenly_note *team)
{
	uint32_t phase = GET(team->phase), phases = phase - here.begun.phase;
	uint64_t at = GET(team->opened), took = at - here.begun.at;
	here.begun.phase = phase;
	here.begun.at = at;
	return phases && took / phases < SHORT;
}

/* Replaces the barriers of a region, if that is allowed, it has turned out to be plain, and the team is one that evenly
 * moves and whose phases are short. `members` is 0 where the program leaves that to libgomp. */
static void replace_barriers(struct region *region, const void *runtime, uint32_t members)
{
	bool nested = region->outer.members > 1 || here.depth > 1;
	if (GET(header->cooperate) == EVENLY_NEVER || !runtime || nested || GET(doubts) || !is_replaceable(runtime))
		return;
	region->code = code_of((const void *)region->function);
	struct evenly_note *note = note_of(region->team);
	if (!region->code || GET(region->code->plain) != PLAIN || !cooperates(note))
		return;
	if (!are_short(note) && GET(header->cooperate) != EVENLY_ALWAYS)
		return;
	if (!members)
		members = (uint32_t)((int (*)(void))NEXT_BY(region->function, "omp_get_max_threads"))();
	region->barriers = members ? barriers_of(members) : NULL;
	if (region->barriers)
		SET(note->replaced, GET(note->replaced) + 1);
}

/* `runtime` is a function of libgomp, the one that all of the process call, where the region can be plain; otherwise NULL. */
static bool begins(struct region *region, void (*function)(void *), void *data, uint32_t members, const void *runtime)
{
	/* Those of the region around it. */
	leave_barriers();
	region->team = begin_region();
	region->master = mine();
	region->barriers = NULL;
	region->code = NULL;
	region->met = false;
	region->outer = here.place;
	region->generation = here.generation;
	/* Its barriers are not those of the region around it, also where it cannot be followed. */
	here.place.watched = NULL;
	here.place.team = NULL;
	here.place.code = NULL;
	if (!region->team)
		return false;
	region->first = data ? *(void **)data : NULL;
	region->function = function;
	region->data = data;
	region->number_in_team = NEXT_BY(function, "omp_get_thread_num");
	region->size_of_team = NEXT_BY(function, "omp_get_num_threads");
	region->number = GET(region->team->region);
	region->outer_team = GET(region->master->team);
	region->outer_region = GET(region->master->region);
	replace_barriers(region, runtime, members);
	return true;
}

static void ended(struct region *region)
{
	line_t *line = mine();
	/* First the thread, so that all of the time until now is waiting. Not in a process that was forked in
	 * the region. */
	if (region->team && line && line == region->master)
		take_part(line, region->outer_team, region->outer_region);
	if (here.generation == region->generation)
		here.place = region->outer;
	uint8_t unknown = UNKNOWN;
	if (region->code && region->met)
		atomic_compare_exchange_strong(&region->code->plain, &unknown, PLAIN);
	end_region(region->team);
}

#define EVENLY_WORD long
_Static_assert(sizeof(EVENLY_WORD) == sizeof(void *) && sizeof(EVENLY_WORD) == 8, "arguments are words");

/* Of libgomp there may be several in a process, so what is called is kept only where it is the one of all.
 * In place of libgomp there may be libomp, which has the same functions and reports more (below). */
static COLD bool is_libgomp(void *at, _Atomic(void *) answered[2])
{
	static const char question[] = "is libgomp";
	static char no, yes;
	uint32_t closed_by_then = GET(closed);
	void *answer = recall(question, at);
	if (!answer) {
		struct object object = object_of(at);
		answer = !object.name || strstr(object.name, "libgomp") ? &yes : &no;
		keep(question, at, answer, closed_by_then);
	}
	SET(answered[answer == &yes], at);
	return answer == &yes;
}

/* One place in the program can call both: modules may have different runtimes. */
#define IS_LIBGOMP(next)                                                                    \
	({                                                                                  \
		static _Atomic(void *) answered_[2]; /* for these last: no, and yes */      \
		void *asked_ = (void *)(next);                                              \
		LIKELY(GET(answered_[1]) == asked_)                                         \
			|| (GET(answered_[0]) != asked_ && is_libgomp(asked_, answered_));  \
	})

#define REGION(name, n, plain)                                                              \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		static _Atomic(void *) of_all;                                              \
		/* By the region: who calls may have jumped here. */                        \
		long (*next)(P##n) = NEXT_FOR((const void *)a0, of_all, #name);             \
		if (!IS_LIBGOMP(next))                                                      \
			return next(A##n);                                                  \
		struct region region;                                                       \
		if (begins(&region, (void (*)(void *))a0, (void *)a1, (uint32_t)a2,         \
			    plain ? GET(of_all) : NULL)) {                                  \
			a0 = (long)part;                                                    \
			a1 = (long)&region;                                                 \
		}                                                                           \
		long result = next(A##n);                                                   \
		ended(&region);                                                             \
		return result;                                                              \
	}
REGION(GOMP_parallel, 4, true)
REGION(GOMP_parallel_reductions, 4, false)
REGION(GOMP_parallel_sections, 5, true)
REGION(GOMP_parallel_loop_static, 8, true)
REGION(GOMP_parallel_loop_dynamic, 8, true)
REGION(GOMP_parallel_loop_guided, 8, true)
REGION(GOMP_parallel_loop_nonmonotonic_dynamic, 8, true)
REGION(GOMP_parallel_loop_nonmonotonic_guided, 8, true)
REGION(GOMP_parallel_loop_runtime, 7, true)
REGION(GOMP_parallel_loop_nonmonotonic_runtime, 7, true)
REGION(GOMP_parallel_loop_maybe_nonmonotonic_runtime, 7, true)

/* What waits for some of the others, which may execute tasks meanwhile. */
#define GOMP_WAIT(name, n, state)                                                           \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		long (*next)(P##n) = NEXT(#name);                                           \
		leave_barriers();                                                           \
		WAITS(state, 0);                                                            \
		return next(A##n);                                                          \
	}
/* Barriers of the whole team. */
#define GOMP_MEETING(name, n)                                                               \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		long (*next)(P##n) = NEXT(#name);                                           \
		leave_barriers();                                                           \
		WAITS(EVENLY_BARRIER, 0);                                                   \
		arrives(&here.place, CALLER);                                               \
		long result = next(A##n);                                                   \
		goes_on(here.place.watched);                                                \
		return result;                                                              \
	}
/* Those that can be replaced: by a barrier of ours, and where libgomp has something to give back by the function that
 * does so without waiting. */
#define GOMP_REPLACEABLE(name, and_then)                                                    \
	EXPORT long name(void);                                                             \
	long name(void)                                                                     \
	{                                                                                   \
		static _Atomic(void *) of_all;                                              \
		long (*next)(void) = NEXT_IN(of_all, #name), result = 0;                    \
		/* Of another libgomp than that of the region, perhaps. */                  \
		if (!GET(of_all))                                                           \
			leave_barriers();                                                   \
		WAITS(EVENLY_BARRIER, 0);                                                   \
		arrives(&here.place, CALLER);                                               \
		if (meets(here.place))                                                      \
			and_then;                                                           \
		else                                                                        \
			result = next();                                                    \
		goes_on(here.place.watched);                                                \
		return result;                                                              \
	}
GOMP_REPLACEABLE(GOMP_barrier, (void)0)
GOMP_REPLACEABLE(GOMP_loop_end, ((long (*)(void))NEXT("GOMP_loop_end_nowait"))())
GOMP_REPLACEABLE(GOMP_sections_end, ((long (*)(void))NEXT("GOMP_sections_end_nowait"))())
GOMP_MEETING(GOMP_barrier_cancel, 0)
GOMP_MEETING(GOMP_loop_end_cancel, 0)
GOMP_MEETING(GOMP_sections_end_cancel, 0)
GOMP_MEETING(GOMP_workshare_task_reduction_unregister, 1)
GOMP_WAIT(GOMP_single_copy_start, 0, EVENLY_LOCK)

/* This thread's team has tasks that are seen, or not, in its region. */
static inline void has_tasks(const line_t *line, uint32_t seen)
{
	uint16_t team = line ? GET(line->team) : 0;
	line_t *of = team ? &lines[team - 1] : NULL;
	/* The only field of a line that others than its thread write; never one of another process. */
	if (of && GET(of->kind) == EVENLY_TEAM && GET(of->pid) == pid && !(GET(of->object) & seen))
		atomic_fetch_or_explicit(&of->object, seen, memory_order_relaxed);
}

/* Any thread of the team that waits executes it. */
static void task_is_made(void)
{
	leave_barriers();
	has_tasks(mine(), EVENLY_UNSEEN_TASKS);
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
#define WAIT_FOR_TASKS(name, n)                                                             \
	EXPORT long name(P##n);                                                             \
	long name(P##n)                                                                     \
	{                                                                                   \
		long (*next)(P##n) = NEXT(#name);                                           \
		if (!IS_LIBGOMP(next))                                                      \
			return next(A##n);                                                  \
		leave_barriers();                                                           \
		if (is_in_runs())                                                           \
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
		has_tasks(line, EVENLY_SEEN_TASKS);
		change(line, EVENLY_COMPUTING, 0);
	}
	const void *code = here.code;
	here.code = (const void *)task->function;
	task->function((char *)argument + task->before);
	here.code = code;
	/* Not in a process that was forked by the task. */
	if (!waits || mine() != line)
		return;
	here.outer = outer;
	uint64_t ended = now();
	task_was_seen(ended);
	begin_write(line);
	SET(line->entered, ended);
	SET(line->object, object);
	SET(line->state, state);
	end_write(line);
}

/* GOMP_TASK_FLAG_DETACH: libgomp writes to the data that it is given. */
#define DETACHED (1 << 13)

/* GOMP_task, where it is the same for all of the process. */
static _Atomic(void *) task_of_all;

/* (function, data, copying, size, alignment, at once, flags, dependences, priority, event) */
static __attribute__((noinline)) long makes_task(P10)
{
	long (*next)(P10) = NEXT_FOR((const void *)a0, task_of_all, "GOMP_task");
	/* Of a module with a libgomp of its own. */
	if (!IS_LIBGOMP(next) || continues_unseen())
		return next(A10);
	if (!mine() || a6 & DETACHED || begins_unseen()) {
		task_is_made();
		return next(A10);
	}
	/* Those who wait at the barrier are to execute it. */
	leave_barriers();
	size_t align = (size_t)a4 > sizeof(struct task) ? (size_t)a4 : sizeof(struct task);
	struct made_task made = { (void (*)(void *))a0, (void (*)(void *, void *))a2, (void *)a1, (size_t)a3, align };
	return next((long)execute_task, (long)&made, (long)copy_task, (long)(align + made.size), (long)align, a5, a6, a7,
		a8, a9);
}

EXPORT long GOMP_task(P10);
long GOMP_task(P10)
{
	long (*next)(P10) = (long (*)(P10))GET(task_of_all);
	/* Calls that leave the arguments where they are. */
	return LIKELY(next) && continues_unseen() ? next(A10) : makes_task(A10);
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
enum {
	PARALLEL_BEGIN = 3, PARALLEL_END = 4, TASK_SCHEDULE = 6, IMPLICIT_TASK = 7, SYNC_WAIT = 16, SYNC = 23
};
enum { SCOPE_BEGIN = 1, SCOPE_END = 2 };
enum { IMPLICIT = 2, TASKWAIT = 5, TASKGROUP = 6, REDUCTION = 7, END_OF_REGION = 9 };
enum { INITIAL_TASK = 1 };
enum { TASK_COMPLETE = 1, TASK_CANCEL = 3 };
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
	(void)task, (void)frame, (void)wanted, (void)flags;
	here.begins_at = code;
	parallel->ptr = begin_region();
}

static line_t *team_in(const union ompt_data *parallel)
{
	return parallel ? parallel->ptr : NULL;
}

static void on_parallel_end(union ompt_data *parallel, union ompt_data *task, int flags, const void *code)
{
	(void)task, (void)flags, (void)code;
	end_region(team_in(parallel));
}

static void on_implicit_task(int end, union ompt_data *parallel, union ompt_data *task, unsigned of,
	unsigned index, int flags)
{
	if (flags & INITIAL_TASK)
		return;
	line_t *line = mine();
	unsigned size = sizeof here.parts / sizeof *here.parts;
	if (end == SCOPE_BEGIN) {
		line_t *team = team_in(parallel);
		if (!team || here.part >= size)
			return;
		here.parts[here.part].place = here.place;
		if (line) {
			here.parts[here.part].team = GET(line->team);
			here.parts[here.part].region = GET(line->region);
			take_part(line, number_of(team), GET(team->region));
		}
		here.part++;
		task->value = TASK_IN_PART;
		here.by_runtime = false;
		joins(line, team, NULL, index, of);
	} else if (task && task->value & TASK_IN_PART && here.part) {
		here.part--;
		here.place = here.parts[here.part].place;
		if (!line)
			return;
		/* Those who were started for the region have nothing to do until the next. They keep its team:
		 * what they waited is accounted when the runtime reports it. */
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
	bool of_tasks = kind == TASKWAIT || kind == TASKGROUP;
	/* With MPI inside of a call, or in no region. */
	if (!line || here.outer)
		return;
	if (end == SCOPE_BEGIN) {
		if (of_tasks && is_in_runs())
			return;
		if (task)
			task->value |= TASK_WAITS;
		/* It has waited since it came to the barrier. */
		if (here.by_runtime)
			return;
		runtime_says(line, of_tasks ? EVENLY_LOCK : EVENLY_BARRIER);
	} else if (end == SCOPE_END) {
		/* It was left unseen where it began. */
		if (of_tasks && task && !(task->value & TASK_WAITS))
			return;
		if (task)
			task->value &= ~(uint64_t)TASK_WAITS;
		runtime_says(line, EVENLY_COMPUTING);
	}
}

/* A thread comes to a barrier of the runtime's, or leaves it. */
static void on_sync(int kind, int end, union ompt_data *parallel, union ompt_data *task, const void *code)
{
	(void)task;
	if (kind == TASKWAIT || kind == TASKGROUP || kind == REDUCTION)
		return;
	line_t *line = mine();
	/* Not those of a region around one that cannot be followed. */
	line_t *of = team_in(parallel);
	if (!here.place.watched || !of || here.place.watched != note_of(of))
		return;
	if (end == SCOPE_END) {
		goes_on(here.place.watched);
		return;
	}
	if (line && !here.outer)
		runtime_says(line, EVENLY_BARRIER);
	/* Before version 15 libomp says of the end of a region only where that began, and that only to whom began it. */
	if (kind == END_OF_REGION || (kind == IMPLICIT && (!code || code == here.begins_at)))
		ends_part(&here.place, here.begins_at);
	else
		arrives(&here.place, code);
}

/* A thread that waits executes the task of another, or goes on waiting. */
static void on_task_schedule(union ompt_data *prior, int status, union ompt_data *next)
{
	(void)prior;
	bool has_ended = status == TASK_COMPLETE || status == TASK_CANCEL;
	tasks.ended = has_ended && header;
	line_t *line = next && !here.outer ? mine() : NULL;
	if (!line)
		return;
	bool waits = next->value & TASK_WAITS;
	if (has_ended ? !waits && is_in_runs() : continues_unseen())
		return;
	if (!has_ended && begins_unseen()) {
		task_is_made();
		return;
	}
	if (here.by_runtime == waits)
		return;
	if (here.by_runtime)
		has_tasks(line, EVENLY_SEEN_TASKS);
	runtime_says(line, waits ? EVENLY_BARRIER : EVENLY_COMPUTING);
	if (waits)
		task_was_seen(GET(line->entered));
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
	set(SYNC, (ompt_callback)on_sync);
	set(TASK_SCHEDULE, (ompt_callback)on_task_schedule);
	return 1;
}

static void ompt_finalize(union ompt_data *tool)
{
	(void)tool;
}

/* There can be one tool; that of the user comes first. Who asks which tools are found is shown none of ours. */
EXPORT struct ompt_tool *ompt_start_tool(unsigned version, const char *runtime)
{
	static struct ompt_tool tool = { ompt_initialize, ompt_finalize, { 0 } };
	const char *libraries = getenv("OMP_TOOL_LIBRARIES");
	struct ompt_tool *(*next)(unsigned, const char *) = dlsym(RTLD_NEXT, "ompt_start_tool");
	struct ompt_tool *other = next ? next(version, runtime) : NULL;
	if (other || (libraries && *libraries) || getenv("OMP_TOOL_VERBOSE_INIT") || !getenv(EVENLY_VARIABLE))
		return other;
	return &tool;
}

#endif

/* What a program can do wrong, by name. Thread 0 goes on as it should; what it is told is printed. */
#include <evenly/loops.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static evenly_team *team;
static evenly_region *region, *other;
static const char *way;
static jmp_buf out;
static _Atomic int had_it_is_gone, has_ended;

/* The loops of both threads, by their first letters: that which is wrong, and the other one; + is a reduction, and s a sleep. */
static const struct plan {
	const char *way, *loops[2];
} plans[] = {
	{"orders", {"wo", "ow"}},      {"skips", {"wow", "ww"}},     {"goes on", {"w+o", "wo"}},
	{"goes on, and adds", {"w+o+", "wo+"}}, {"goes on twice", {"w+o+", "woo"}},
	{"is late", {"w", "sw"}},      {"adds late", {"w+w", "ws+w"}}, {"leaves", {"ww", "ww"}},
};

static void says(const char *message)
{
	/* In one write, as both threads may. */
	char line[512];
	int length = snprintf(line, sizeof line, "%s\n", message);
	if (write(1, line, (size_t)length) != length)
		_exit(3);
}

static int is(const char *name) { return !strcmp(way, name); }

static evenly_loop *go_on(evenly_region *of, size_t thread)
{
	int64_t lb, ub, stride;
	evenly_loop *loop = evenly_begin(of, thread, 0, 100, 1);
	while (evenly_next_task(loop, &lb, &ub, &stride)) {
		if (is("forks"))
			says("an iteration in a child");
		if (is("forks within")) {
			if (thread == 1)
				continue;
			/* The other thread is at the end of the loop. */
			usleep(200000);
			pid_t child = fork();
			if (child)
				waitpid(child, NULL, 0);
			else
				has_ended = 1;
		}
		if (thread == 0)
			continue;
		if (is("ends"))
			pthread_exit(NULL);
		if (is("exits")) {
			/* The other thread waits at the end of the loop. */
			usleep(20000);
			exit(42);
		}
		if (is("breaks off")) {
			/* It comes to the end of the program, as one of OpenMP comes to that of its region, and waits there. */
			sleep(12);
			continue;
		}
		if (is("leaves") || is("sums"))
			evenly_abandon(loop);
		if (is("jumps"))
			longjmp(out, 1);
		if (is("nests"))
			go_on(other, thread);
		if (is("breaks")) {
			go_on(other, thread);
			return NULL;
		}
		if (is("reduces"))
			evenly_reduce_double(loop, EVENLY_SUM, 1);
	}
	if (is("sums") && evenly_reduce_double(loop, EVENLY_SUM, 1) != 1)
		says("a sum of a loop that was given up");
	if (has_ended)
		_exit(0);
	return loop;
}

static void go_by_plan(size_t thread)
{
	const char *next = "w";
	for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
		if (is(plans[i].way))
			next = plans[i].loops[thread];
	evenly_loop *loop = NULL;
	evenly_region *of = region;
	for (; *next; next++) {
		if (*next == 's')
			sleep(7);
		else if (*next != '+')
			loop = go_on(of = *next == 'w' ? region : other, thread);
		else if (evenly_reduce_double(loop, EVENLY_SUM, 1) != 2 && !evenly_failed(of))
			says("a sum of one thread");
	}
}

static void *has_it_next(void *alone)
{
	int64_t lb, ub, stride, all = 0;
	evenly_loop *loop = evenly_begin(alone, 0, 0, 100, 1);
	evenly_next_task(loop, &lb, &ub, &stride);
	all += ub - lb;
	while (!had_it_is_gone)
		usleep(1000);
	while (evenly_next_task(loop, &lb, &ub, &stride))
		all += ub - lb;
	if (all != 100)
		says("not all of it was carried out");
	return NULL;
}

static void *had_it(void *alone)
{
	int64_t lb, ub, stride;
	evenly_loop *loop = evenly_begin(alone, 0, 0, 100, 1);
	while (evenly_next_task(loop, &lb, &ub, &stride))
		;
	pthread_t *next = malloc(sizeof *next);
	pthread_create(next, NULL, has_it_next, alone);
	usleep(20000);
	return next;
}

static void pools(void)
{
	evenly_team *one = evenly_team_new(1);
	evenly_region *alone = evenly_region_new(one, "alone", EVENLY_FIXED, EVENLY_INDEPENDENT);
	evenly_region_policy(alone, "rp-steal");
	pthread_t first;
	void *next;
	pthread_create(&first, NULL, had_it, alone);
	pthread_join(first, &next);
	had_it_is_gone = 1;
	pthread_join(*(pthread_t *)next, NULL);
	free(next);
	evenly_region_free(alone);
	evenly_team_free(one);
}

/* It declares something, and leaves once by return and once by longjmp. */
static void declares(const char *message)
{
	static int calls;
	says(message);
	evenly_region_policy(region, "static");
	if (calls++)
		longjmp(out, 1);
}

static void *second(void *unused)
{
	(void)unused;
	if (!setjmp(out))
		go_by_plan(1);
	else
		go_on(region, 1);
	return NULL;
}

/* For longer than a thread sleeps at a time. */
static void lasts(void)
{
	usleep(200000);
	says("exits");
}

int main(int argc, char **argv)
{
	way = argc > 1 ? argv[1] : "";
	if (is("exits") || is("returns"))
		atexit(lasts);
	if (argc < 3)
		evenly_loops_on_error(says);
	team = evenly_team_new(2);
	region = evenly_region_new(team, "sweep", EVENLY_FIXED, EVENLY_INDEPENDENT);
	other = evenly_region_new(team, "inner", EVENLY_FIXED, EVENLY_INDEPENDENT);
	evenly_region_policy(region, "static");
	if (is("null")) {
		evenly_region_uses(NULL, EVENLY_READS, NULL, 1, 1, 0);
		evenly_begin(NULL, 0, 0, 1, 1);
		evenly_region_new(NULL, "x", 0, 0);
		evenly_region_new(team, NULL, 0, 0);
		evenly_region_new(team, "x", 9, 0);
		evenly_region_policy(region, "fast");
		evenly_team_new(0);
		evenly_team_array(NULL, &team, 8, 1, (size_t[]){1});
		evenly_team_array(team, &team, 8, 1, NULL);
		evenly_team_array(team, &team, 8, 2, (size_t[]){SIZE_MAX, 2});
		return 0;
	}
	if (is("forks")) {
		pid_t child = fork();
		if (!child) {
			go_on(region, 0);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		return 0;
	}
	if (is("leaves its array") || is("stays in another array")) {
		/* Both threads go through rows 0 to 99. */
		static double rows[99][4];
		evenly_team_array(team, rows, sizeof(double), 2, (size_t[]){99, 4});
		evenly_region_uses(region, EVENLY_WRITES, rows, sizeof(double), 4, 0);
		if (is("stays in another array"))
			evenly_team_array(team, rows, sizeof(double), 0, NULL);
	}
	if (is("handles")) {
		evenly_loops_on_error(declares);
		evenly_region_policy(region, "fast");
		if (!setjmp(out))
			evenly_region_policy(region, "faster");
		evenly_region_overtakes(region);
		return 0;
	}
	if (is("pools")) {
		pools();
		return 0;
	}
	pthread_t thread;
	pthread_create(&thread, NULL, second, NULL);
	if (is("returns")) {
		/* In the middle of the loop. */
		int64_t lb, ub, stride;
		evenly_next_task(evenly_begin(region, 0, 0, 100, 1), &lb, &ub, &stride);
		usleep(20000);
		return 42;
	}
	go_by_plan(0);
	pthread_join(thread, NULL);
	evenly_region_free(region);
	evenly_region_free(other);
	evenly_team_free(team);
	return 0;
}

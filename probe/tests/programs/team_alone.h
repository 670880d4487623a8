/* What waiting_team.h needs of waiting.c, for programs that have it alone. */
#ifndef EVENLY_TEAM_ALONE_H
#define EVENLY_TEAM_ALONE_H

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SYSCALL syscall
#define COLD __attribute__((noinline, cold))
#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

struct evenly_note {
	_Atomic uint32_t home;
};
static struct evenly_note notes[1];
static _Atomic bool doubts;

struct place {
	struct evenly_note *watched;
	struct evenly_team *team;
	uint32_t number, members;
};

static inline bool is_number(uint32_t number)
{
	return number - 1 < 1;
}

static inline bool cooperates(const struct evenly_note *team)
{
	(void)team;
	return true;
}

#endif

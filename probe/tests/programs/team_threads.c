/*
 * The barriers of a team (waiting_team.h) with real threads, for ThreadSanitizer: what a thread writes before a barrier,
 * without atomics, all others read after it. A barrier that does not order them is a data race, and is reported on any
 * machine. The loads that team_model.c does not make late are checked so.
 *
 * Usage: team_threads THREADS BARRIERS REGIONS
 * In every other region thread 0 leaves the barriers to the runtime halfway.
 *
 * BROKEN is a number that takes away an order on which the barriers rely: 1 that loads acquire, 2 that arriving releases
 * and acquires, 3 that opening releases. What the fence is for is no order of data, and ThreadSanitizer does not know it.
 */
#define _GNU_SOURCE
#include "team_alone.h"

#include <pthread.h>
#include <stdio.h>

#include "clock.h"

#if BROKEN == 1
#define memory_order_acquire memory_order_relaxed
#elif BROKEN == 2
#define memory_order_acq_rel memory_order_relaxed
#elif BROKEN == 3
#define memory_order_release memory_order_relaxed
#endif
#include "waiting_team.h"

#define MOST_THREADS 8

static struct evenly_team *team;
static uint32_t threads;
static int barriers, regions;
static pthread_barrier_t between_regions, of_runtime;
/* By turns: what is read after a barrier is written again after the next one. */
static struct { uint32_t value; char rest[60]; } written[2][MOST_THREADS];

static void *member(void *argument)
{
	uint32_t number = (uint32_t)(uintptr_t)argument, count = 0;
	struct place place = { .team = team, .number = number, .members = threads };
	for (int region = 0; region < regions; region++) {
		pthread_barrier_wait(&between_regions);
		if (number == 0)
			renew(team);
		pthread_barrier_wait(&between_regions);
		for (int barrier = 0; barrier < barriers; barrier++) {
			if (number == 0 && region % 2 && barrier == barriers / 2)
				leave_to_runtime(team);
			count++;
			written[count & 1][number].value = count;
			if (!meets(place))
				pthread_barrier_wait(&of_runtime);
			for (uint32_t i = 0; i < threads; i++)
				if (written[count & 1][i].value != count) {
					printf("thread %u sees %u of %u at %u\n", number, written[count & 1][i].value, i, count);
					exit(1);
				}
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	threads = (uint32_t)atoi(argv[1]);
	barriers = atoi(argv[2]);
	regions = atoi(argv[3]);
	if (threads > MOST_THREADS || !(team = new_team(threads)))
		return 2;
	SET(team->numbers, threads);
	pthread_barrier_init(&between_regions, NULL, threads);
	pthread_barrier_init(&of_runtime, NULL, threads);
	pthread_t ids[MOST_THREADS];
	for (uint32_t i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, member, (void *)(uintptr_t)i))
			return 2;
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}

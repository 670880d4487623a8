// Prints the affinity masks of a process's threads as /proc has them, that is with
// CPUs that are offline.
//
//   masks PID                    one line per thread: "TID LIST", in the order of their ids
//   masks PID SECONDS EVERY_MS   watches, and prints each pair once that was seen
//
// A thread that ends meanwhile is left out.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PAIRS = 4096, MASK_BYTES = 128 };

static struct pair {
	int tid;
	char mask[MASK_BYTES];
} seen[MOST_PAIRS];
static int seen_count;

static int order(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	return x->tid != y->tid ? (x->tid > y->tid) - (x->tid < y->tid) : strcmp(x->mask, y->mask);
}

static void note(int tid, const char *mask)
{
	for (int i = 0; i < seen_count; i++)
		if (seen[i].tid == tid && !strcmp(seen[i].mask, mask))
			return;
	if (seen_count == MOST_PAIRS) {
		fprintf(stderr, "masks: more than %d pairs\n", MOST_PAIRS);
		exit(1);
	}
	seen[seen_count].tid = tid;
	snprintf(seen[seen_count++].mask, MASK_BYTES, "%s", mask);
}

static void look(int tid)
{
	char path[64], line[512], mask[MASK_BYTES];
	snprintf(path, sizeof path, "/proc/%d/status", tid);
	FILE *status = fopen(path, "r");
	if (!status)
		return;
	while (fgets(line, sizeof line, status))
		if (sscanf(line, "Cpus_allowed_list: %127s", mask) == 1)
			note(tid, mask);
	fclose(status);
}

// Whether the process is there.
static int look_at_all(const char *pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%s/task", pid);
	DIR *tasks = opendir(path);
	if (!tasks)
		return 0;
	for (struct dirent *entry; (entry = readdir(tasks));)
		if (entry->d_name[0] != '.')
			look(atoi(entry->d_name));
	closedir(tasks);
	return 1;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: masks PID [SECONDS EVERY_MS]\n");
		return 2;
	}
	double end = now() + (argc == 4 ? atof(argv[2]) : 0);
	long every_ms = argc == 4 ? atol(argv[3]) : 1;
	struct timespec pause = { every_ms / 1000, every_ms % 1000 * 1000000 };
	while (look_at_all(argv[1]) && now() < end)
		nanosleep(&pause, NULL);
	qsort(seen, (size_t)seen_count, sizeof *seen, order);
	for (int i = 0; i < seen_count; i++)
		printf("%d %s\n", seen[i].tid, seen[i].mask);
	return 0;
}

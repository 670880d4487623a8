// Which masks a program sees while each of its threads is put on a CPU from outside, for which it stands in itself, past the C
// library. Usage: masks. Prints a line for each part: a number of CPUs. "masks told" prints what is shown to it, waits for a
// line on standard input, and then prints what it, a thread and a program that it starts see.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(int cpu)
{
	cpu_set_t mask;
	CPU_ZERO(&mask);
	CPU_SET(cpu, &mask);
	syscall(SYS_sched_setaffinity, 0, sizeof mask, &mask);
}

static int shown(void)
{
	cpu_set_t one, other;
	sched_getaffinity(0, sizeof one, &one);
	pthread_getaffinity_np(pthread_self(), sizeof other, &other);
	return CPU_EQUAL(&one, &other) ? CPU_COUNT(&one) : -1;
}

// What the kernel has.
static int real(void)
{
	unsigned long mask[16] = { 0 };
	syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
	int count = 0;
	for (int i = 0; i < 16; i++)
		count += __builtin_popcountl(mask[i]);
	return count;
}

static void *in_thread(void *result)
{
	*(int *)result = real();
	return result;
}

static void waits_at_barrier(void)
{
	pthread_barrier_t barrier;
	pthread_barrier_init(&barrier, NULL, 1);
	pthread_barrier_wait(&barrier);
}

static int starts_thread(void)
{
	pthread_t thread;
	int result = 0;
	pthread_create(&thread, NULL, in_thread, &result);
	pthread_join(thread, NULL);
	return result;
}

static int told(const char *self)
{
	char command[9000];
	waits_at_barrier();
	put(sched_getcpu());
	printf("put: %d\n", shown());
	fflush(stdout);
	if (getchar() == EOF)
		return 3;
	printf("told: %d\nthread: %d\n", shown(), starts_thread());
	fflush(stdout);
	snprintf(command, sizeof command, "%s command; (%s deeper; true); true", self, self);
	return system(command);
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		put(atoi(argv[2]));
		return execl("/proc/self/exe", argv[0], argv[1], NULL);
	}
	if (argc > 1 && strcmp(argv[1], "told")) {
		printf("%s: %d of %d\n", argv[1], shown(), real());
		return 0;
	}
	char self[4096], command[9000];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	self[length > 0 ? length : 0] = 0;
	if (argc > 1)
		return told(self);
	waits_at_barrier();
	int first = sched_getcpu();
	put(first);
	printf("put: %d\n", shown());
	printf("thread: %d\n", starts_thread());
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(real());
	int status = 0;
	waitpid(child, &status, 0);
	printf("fork: %d\n", WEXITSTATUS(status));
	fflush(stdout);
	snprintf(command, sizeof command, "exec %s command", self);
	if (system(command))
		return 3;
	// What is started on one CPU stays there.
	snprintf(command, sizeof command, "taskset -c %d %s bound", first, self);
	if (system(command))
		return 3;
	// Past the C library, as numactl does it: it stays there as well, but is shown what hides masks of evenly.
	snprintf(command, sizeof command, "exec %s past %d", self, first);
	if (system(command))
		return 3;
	// From here on its masks are its own.
	cpu_set_t mask;
	CPU_ZERO(&mask);
	CPU_SET(first, &mask);
	if (sched_setaffinity(0, sizeof mask, &mask))
		return 4;
	printf("set: %d\n", shown());
	fflush(stdout);
	printf("thread: %d\n", starts_thread());
	fflush(stdout);
	snprintf(command, sizeof command, "exec %s own", self);
	if (system(command))
		return 3;
	// A shell that starts others in processes of their own.
	snprintf(command, sizeof command, "%s below; (%s deeper; true); true", self, self);
	return system(command);
}

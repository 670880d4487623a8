// Which masks a program sees while each of its threads is put on a CPU from outside, for which it stands in itself, past the C
// library. Usage: masks. Prints a line for each part: a number of CPUs.
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

int main(int argc, char **argv)
{
	if (argc > 2) {
		put(atoi(argv[2]));
		return execl("/proc/self/exe", argv[0], argv[1], NULL);
	}
	if (argc > 1) {
		printf("%s: %d of %d\n", argv[1], shown(), real());
		return 0;
	}
	char self[4096], command[5000];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	self[length > 0 ? length : 0] = 0;
	pthread_barrier_t barrier;
	pthread_barrier_init(&barrier, NULL, 1);
	pthread_barrier_wait(&barrier);
	int first = sched_getcpu();
	put(first);
	printf("put: %d\n", shown());
	pthread_t thread;
	int result = 0;
	pthread_create(&thread, NULL, in_thread, &result);
	pthread_join(thread, NULL);
	printf("thread: %d\n", result);
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
	pthread_create(&thread, NULL, in_thread, &result);
	pthread_join(thread, NULL);
	printf("thread: %d\n", result);
	fflush(stdout);
	snprintf(command, sizeof command, "exec %s own", self);
	return system(command);
}

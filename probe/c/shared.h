/*
 * The files in memory through which both probes talk to evenly: which one is meant, and whether it can be used. Nothing
 * that is found there is trusted.
 */
#ifndef EVENLY_SHARED_H
#define EVENLY_SHARED_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a file is of this host and numbers its processes as this one does: programs may have been started elsewhere,
 * with the same variables. `boot` is a boot_id. */
static bool is_of_this_host(const char boot[40], uint64_t pid_namespace)
{
	char own[40] = "";
	struct stat namespace;
	int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = file < 0 ? 0 : read(file, own, sizeof own - 1);
	if (file >= 0)
		close(file);
	if (n > 0 && own[n - 1] == '\n')
		own[n - 1] = 0;
	return n > 0 && !strncmp(own, boot, sizeof own) && stat("/proc/self/ns/pid", &namespace) == 0
		&& namespace.st_ino == pid_namespace;
}

/* Opens the file of at least this size that a variable names, if it leads to a file that was made by this name;
 * otherwise -1. */
static int open_shared(const char *variable, const char *made_as, uint64_t size)
{
	char link[64];
	struct stat stat;
	size_t length = strlen(made_as);
	const char *name = getenv(variable);
	if (!name || readlink(name, link, sizeof link) < (ssize_t)length || memcmp(link, made_as, length))
		return -1;
	int file = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file < 0)
		return -1;
	/* To touch what another process has cut off is SIGBUS. Only what is sealed, which a file of a file system cannot
	 * be, keeps its length. */
	int seals = fcntl(file, F_GET_SEALS);
	if (seals >= 0 && seals & F_SEAL_SHRINK && fstat(file, &stat) == 0 && stat.st_size >= (off_t)size)
		return file;
	close(file);
	return -1;
}

/* Whether a process of this number is there, also where it is another user's. */
static inline bool process_is_there(uint32_t pid)
{
	return getpgid((pid_t)pid) >= 0 || errno != ESRCH;
}

#endif

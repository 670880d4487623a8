/*
 * The function that a wrapper calls on to, for both probes. Nothing here ends the program, writes to its files or
 * waits for another thread but for the loader's own locks.
 */
#ifndef EVENLY_NEXT_H
#define EVENLY_NEXT_H

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* How a library is let go of that was there before. */
#ifndef EVENLY_LETS_GO
#define EVENLY_LETS_GO dlclose
#endif

/* A function as the object sees it that calls: one that was loaded for a part of the program only (a module of an
 * interpreter) has libraries of its own, which RTLD_NEXT does not find, perhaps other ones than the next module. */
static void *of_caller(const char *name, const void *caller)
{
	Dl_info info;
	void *at = NULL, *library = NULL;
	if (caller && dladdr(caller, &info) && info.dli_fname)
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (library) {
		at = dlsym(library, name);
		EVENLY_LETS_GO(library);
	}
	return at;
}

/* Whether a library is that of a runtime itself. */
static bool is_of_runtime(const char *path)
{
	static const char *const names[] = { "libmpi", "libgomp", "libomp", "libiomp" };
	const char *name = strrchr(path, '/');
	name = name ? name + 1 : path;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* The path of a runtime that is loaded, behind so many others. */
struct evenly_runtime {
	unsigned before;
	char path[4096];
};

static int find_runtime(struct dl_phdr_info *info, size_t size, void *found)
{
	(void)size;
	struct evenly_runtime *runtime = found;
	const char *path = info->dlpi_name ? info->dlpi_name : "";
	if (!is_of_runtime(path) || strlen(path) >= sizeof runtime->path || runtime->before--)
		return 0;
	strcpy(runtime->path, path);
	return 1;
}

/* A function that an object brings with it comes before one that all can see, where both are of a runtime: Open MPI makes
 * its own visible to all when it is initialised, also to modules with another MPI. NULL where there is none. */
static void *of_either(void *visible, const char *name, const void *caller)
{
	Dl_info info;
	bool another = visible && dladdr(visible, &info) && info.dli_fname && !is_of_runtime(info.dli_fname);
	void *at = another ? NULL : of_caller(name, caller);
	return at ? at : visible;
}

/* A function of any runtime that is loaded: where the caller has jumped here (a tail call), the return address is
 * that of another object. dlopen is not called within the walk over the objects, as the two take the loader's locks
 * in different orders. */
static void *of_runtime(const char *name)
{
	void *at = NULL;
	for (unsigned before = 0; !at; before++) {
		struct evenly_runtime runtime = { .before = before };
		if (!dl_iterate_phdr(find_runtime, &runtime))
			break;
		void *library = dlopen(runtime.path, RTLD_LAZY | RTLD_NOLOAD);
		if (library) {
			at = dlsym(library, name);
			EVENLY_LETS_GO(library);
		}
	}
	return at;
}

#endif

// Loads a module that uses OpenMP or MPI, as an interpreter does: for itself only.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *module = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!module) {
		fprintf(stderr, "%s\n", argc > 2 ? dlerror() : "usage: module FILE WHAT");
		return 8;
	}
	int (*run)(const char *) = (int (*)(const char *))dlsym(module, "run");
	return run(argv[2]);
}

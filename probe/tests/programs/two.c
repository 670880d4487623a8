// Loads two modules, each for itself only, as an interpreter does. Each has an MPI, and the two take turns.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *modules[2];
	for (int i = 0; i < 2; i++) {
		modules[i] = argc > 2 ? dlopen(argv[1 + i], RTLD_NOW | RTLD_LOCAL) : NULL;
		if (!modules[i]) {
			fprintf(stderr, "%s\n", argc > 2 ? dlerror() : "usage: two FILE FILE");
			return 8;
		}
	}
	int (*begin[2])(void), (*talk[2])(int), (*end[2])(void);
	for (int i = 0; i < 2; i++) {
		begin[i] = (int (*)(void))dlsym(modules[i], "begin");
		talk[i] = (int (*)(int))dlsym(modules[i], "talk");
		end[i] = (int (*)(void))dlsym(modules[i], "end");
	}
	// The first is in use before the second begins, and while it is in use.
	if (begin[0]() || talk[0](1) || begin[1]())
		return 1;
	for (int number = 2; number < 6; number++)
		if (talk[number % 2](number))
			return 2;
	return end[0]() || talk[1](6) || end[1]() ? 3 : 0;
}

// Loads a module that uses OpenMP or MPI, as an interpreter does: for itself only. With a second one, both are used by turns.
// Usage: module FILE WHAT [FILE]
#include <dlfcn.h>
#include <stdio.h>

static void *loaded(const char *file)
{
	void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!module)
		fprintf(stderr, "%s\n", dlerror());
	return module;
}

static int run(void *module, const char *what)
{
	return ((int (*)(const char *))dlsym(module, "run"))(what);
}

// A region at the end of a function, which compilers make a jump: what it returns to is this program.
static void jump(void *module)
{
	((void (*)(void))dlsym(module, "jump"))();
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: module FILE WHAT [FILE]\n");
		return 8;
	}
	void *module = loaded(argv[1]);
	if (!module)
		return 8;
	if (argc == 3)
		return run(module, argv[2]);
	void *other = loaded(argv[3]);
	if (!other)
		return 8;
	for (int round = 0; round < 3; round++) {
		jump(module);
		jump(other);
		if (run(module, argv[2]) || run(other, argv[2]))
			return 1;
	}
	return 0;
}

/*
 * The functions behind the wrappers. A part of waiting.c.
 *
 * Where all of a process can see the same from the beginning, functions are looked for once. A module that was loaded for
 * itself only has libraries of its own: then it depends on who calls.
 */
#ifndef EVENLY_WAITING_NEXT_H
#define EVENLY_WAITING_NEXT_H

#include "gomp_calls.h"

/* Whether this is within this library. The linker knows where that begins and ends. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
static inline bool is_own(const void *address)
{
	return (uintptr_t)address - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start;
}

/* What is called where no library has the function. A program that is linked against it has one, so that only a
 * program comes here which has asked whether there is such a function, and was shown the wrapper. An error for POSIX
 * and for MPI (MPI_ERR_OTHER or MPI_ERR_INTERN, which are 16 or less in each); of libgomp 0 is no error. */
static long no_function(void)
{
	return 16;
}

static long no_libgomp(void)
{
	return 0;
}

/* Functions that have been found, by name and by who calls, or by the object of that: to look for one takes a lock of the
 * loader, which another thread of the team may hold (dlopen, while constructors of the module run). With how often a library
 * was closed by then: afterwards both may be others. */
#define KEPT 1024
static struct kept {
	_Atomic uint32_t seq; /* odd while it is written */
	_Atomic uint32_t closed;
	_Atomic(const char *) name; /* in this library */
	_Atomic(const void *) of;   /* NULL: of all of the process */
	_Atomic(void *) at;
} kept[KEPT];
static _Atomic uint32_t closed;

/* Places for a function, of which those of a team's members do not drive each other out. */
#define PLACES 8

static size_t first_place(const char *name, const void *of)
{
	uint64_t mixed = (uintptr_t)of;
	for (const char *c = name; *c; c++)
		mixed = (mixed ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
	return mixed ^ mixed >> 32;
}

static bool is_for(const struct kept *place, const char *name, const void *of)
{
	const char *its_name = GET(place->name);
	return its_name && GET(place->of) == of && !strcmp(its_name, name);
}

/* Whether what is kept there may be gone. What all can see from the beginning stays. */
static bool is_old(const struct kept *place, uint32_t closed_by_now)
{
	return GET(place->of) && GET(place->closed) != closed_by_now;
}

static void *recall(const char *name, const void *of)
{
	size_t first = first_place(name, of);
	for (unsigned i = 0; i < PLACES; i++) {
		struct kept *place = &kept[(first + i) % KEPT];
		uint32_t seq = atomic_load_explicit(&place->seq, memory_order_acquire);
		bool is_it = is_for(place, name, of) && !is_old(place, GET(closed));
		void *at = GET(place->at);
		atomic_thread_fence(memory_order_acquire);
		if (is_it && !(seq & 1) && GET(place->seq) == seq)
			return at;
	}
	return NULL;
}

static void keep(const char *name, const void *of, void *at, uint32_t closed_by_then)
{
	size_t first = first_place(name, of);
	struct kept *place = &kept[first % KEPT];
	for (unsigned i = 0; i < PLACES; i++) {
		struct kept *next = &kept[(first + i) % KEPT];
		if (!GET(next->name) || is_for(next, name, of) || is_old(next, closed_by_then)) {
			place = next;
			break;
		}
	}
	uint32_t seq = GET(place->seq);
	if (!at || seq & 1
		|| !atomic_compare_exchange_strong_explicit(&place->seq, &seq, seq + 1, memory_order_acquire,
			memory_order_relaxed))
		return;
	atomic_thread_fence(memory_order_release);
	SET(place->name, name);
	SET(place->of, of);
	SET(place->closed, closed_by_then);
	SET(place->at, at);
	atomic_store_explicit(&place->seq, seq + 2, memory_order_release);
}

/* An object that is loaded, by an address in it. dladdr would take that lock. */
struct object {
	uintptr_t address;
	const void *headers; /* NULL: there is none */
	const char *name;    /* while it is loaded */
};

static int is_in_object(struct dl_phdr_info *info, size_t size, void *looked_for)
{
	(void)size;
	struct object *object = looked_for;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || object->address - (info->dlpi_addr + part->p_vaddr) >= part->p_memsz)
			continue;
		object->headers = info->dlpi_phdr;
		object->name = info->dlpi_name;
		return 1;
	}
	return 0;
}

static struct object object_of(const void *address)
{
	struct object object = { .address = (uintptr_t)address };
	dl_iterate_phdr(is_in_object, &object);
	return object;
}

/* What members of a team call. */
static const char *const of_openmp[] = {
#define NAME(name) #name,
	GOMP_FOLLOWED(NAME) GOMP_LEAVING(NAME)
#undef NAME
	"GOMP_loop_end_nowait", "GOMP_sections_end_nowait", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads",
	"omp_get_cancellation",
};

/* Whether there was an OpenMP that all can see when the program began: then modules that are loaded later have that, too. One
 * that becomes visible later is not that of modules which have their own. */
static bool openmp_of_all;

/* A function as the loader has it; `of_all`: for all of the process. Never one of this library, which would call itself without
 * end. */
static void *as_loaded(const char *name, const char *version, const void *caller, bool *of_all)
{
	void *next = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
	if (!next)
		next = dlsym(RTLD_NEXT, name);
	bool of_openmp = name[0] == 'G' || !strncmp(name, "omp_", 4);
	void *at = of_openmp && openmp_of_all ? next : of_either(next, name, caller);
	*of_all = at && at == next && (!of_openmp || openmp_of_all);
	return at && !is_own(at) ? at : of_runtime(name);
}

/* For all members of a team, by who begins a region. */
static void find_openmp(const void *caller, const void *of)
{
	uint32_t closed_by_then = GET(closed);
	bool of_all;
	for (unsigned i = 0; i < sizeof of_openmp / sizeof *of_openmp; i++)
		keep(of_openmp[i], of, as_loaded(of_openmp[i], NULL, caller, &of_all), closed_by_then);
}

/* A function that is not known to be the same for all of the process; `of_all` is set where it turns out to be. */
static void *for_caller(const char *name, const char *version, const void *caller, bool *of_all)
{
	uint32_t closed_by_then = GET(closed);
	void *at = caller ? recall(name, caller) : NULL;
	if (at)
		return at;
	const void *object = caller ? object_of(caller).headers : NULL;
	at = object ? recall(name, object) : NULL;
	if (!at && object && !openmp_of_all && !strncmp(name, "GOMP_parallel", 13))
		find_openmp(caller, object);
	if (!at)
		at = as_loaded(name, version, caller, of_all);
	if (caller && !*of_all)
		keep(name, caller, at, closed_by_then);
	return at;
}

/* The next function of this name. */
static COLD void *look_up(_Atomic(void *) *slot, const char *name, const char *version, const void *caller)
{
	int before = errno;
	void *at = recall(name, NULL);
	bool of_all = at;
	if (!at)
		at = for_caller(name, version, caller, &of_all);
	/* Relaxed: what it points to was there before any thread. */
	if (of_all)
		SET(*slot, at);
	errno = before;
	return at ? at : name[0] == 'G' ? (void *)no_libgomp : (void *)no_function;
}

/* Who calls a wrapper, by the address to which that returns. At the end of a region or task the program may have jumped here
 * (a tail call): then that is in this library, which has called the region. */
static inline const void *who_calls(const void *returns_to)
{
	return is_own(returns_to) ? here.code : returns_to;
}

#define CALLER who_calls(__builtin_extract_return_addr(__builtin_return_address(0)))
/* The next function of this name for who calls, which is kept in `slot` where it is the same for all of the process. */
#define NEXT_FOR(caller, slot, name)                                                   \
	({                                                                             \
		void *at_ = GET(slot);                                                 \
		LIKELY(at_) ? at_ : look_up(&slot, name, NULL, caller);                \
	})
#define NEXT_IN(slot, name) NEXT_FOR(CALLER, slot, name)
#define NEXT_BY(caller, name)                                                          \
	({                                                                             \
		static _Atomic(void *) next_;                                          \
		NEXT_FOR((const void *)(caller), next_, name);                         \
	})
#define NEXT(name) NEXT_BY(CALLER, name)

#endif

/*
 * Which parallel regions of libgomp are plain, so that their barriers may be replaced (waiting_team.h).
 * A part of waiting.c.
 *
 * A region is known by its function. Its first instance is observed. It was plain if its threads called nothing of libgomp
 * but what is listed as known (gomp_calls.h), and none of them was a real-time one. From then on its barriers are
 * replaced, while evenly moves the team within phases. This is a guess, which may be wrong at any time: whatever is not
 * listed leaves the barriers to the runtime before it acts, in every instance, and marks the region for good.
 *
 * Nothing is replaced where another libgomp than those that were read can be meant, where cancellation is switched on, in a
 * process that was forked, or once a real-time thread was met.
 */
#ifndef EVENLY_WAITING_PLAIN_H
#define EVENLY_WAITING_PLAIN_H

#include "gomp_calls.h"

enum { UNKNOWN = 0, PLAIN = 1, NOT_PLAIN = 2 };

/* What is known of a region. */
struct code {
	_Atomic uintptr_t function;
	_Atomic uint8_t plain; /* see above */
};

/* Regions of a program that are kept; a power of two. */
#define CODES 1024
static struct code codes[CODES];

/* What is known of a region with this function; NULL where there is no room. */
static struct code *code_of(const void *function)
{
	uintptr_t at = (uintptr_t)function;
	size_t first = hash_of(function) >> 54;
	_Static_assert(CODES == 1 << 10, "the highest bits are the index");
	for (size_t i = 0; i < PROBES; i++) {
		struct code *code = &codes[(first + i) % CODES];
		uintptr_t found = GET(code->function);
		if (found == at || (!found && atomic_compare_exchange_strong(&code->function, &found, at)) || found == at)
			return code;
	}
	return NULL;
}

/* This thread is about to do what barriers that are replaced do not model. */
static inline void leave_barriers(void)
{
	if (!here.place.code)
		return;
	/* All of the team may come here often. */
	if (GET(here.place.code->plain) != NOT_PLAIN)
		SET(here.place.code->plain, NOT_PLAIN);
	leave_to_runtime(here.place.team);
}

/* The functions that are not known: they leave the barriers to the runtime and jump on, with whatever arguments. */
#if defined(__x86_64__) && defined(__GLIBC__)
struct evenly_call {
	_Atomic(void *) next;
	const char *name;
};

__attribute__((used, visibility("hidden"))) void *evenly_leaves(struct evenly_call *call, const void *returns_to)
{
	leave_barriers();
	void *at = GET(call->next);
	return at ? at : look_up(&call->next, call->name, NULL, who_calls(returns_to));
}

#define SAVE(register) "\tpush %" register "\n\t.cfi_adjust_cfa_offset 8\n"
#define RESTORE(register) "\tpop %" register "\n\t.cfi_adjust_cfa_offset -8\n"
/* %rax: the number of vector registers of a call with a variable number of arguments. None of these functions is given
 * any. The stack is aligned after seven words. */
__asm__(".text\n\t.type evenly_leaves_and_goes_on,@function\nevenly_leaves_and_goes_on:\n\t.cfi_startproc\n"
	SAVE("rdi") SAVE("rsi") SAVE("rdx") SAVE("rcx") SAVE("r8") SAVE("r9") SAVE("rax")
	"\tmov %r11,%rdi\n\tmov 56(%rsp),%rsi\n\tcall evenly_leaves\n\tmov %rax,%r11\n"
	RESTORE("rax") RESTORE("r9") RESTORE("r8") RESTORE("rcx") RESTORE("rdx") RESTORE("rsi") RESTORE("rdi")
	"\tjmp *%r11\n\t.cfi_endproc\n\t.size evenly_leaves_and_goes_on,.-evenly_leaves_and_goes_on\n");
#define LEAVING(function)                                                                       \
	__attribute__((used, visibility("hidden"))) struct evenly_call evenly_call_##function = \
		{ NULL, #function };                                                            \
	__asm__(".text\n\t.globl " #function "\n\t.type " #function ",@function\n" #function    \
		":\n\t.cfi_startproc\n\tendbr64\n\tlea evenly_call_" #function                  \
		"(%rip),%r11\n\tjmp evenly_leaves_and_goes_on\n\t.cfi_endproc\n\t.size "        \
		#function ",.-" #function "\n");
GOMP_LEAVING(LEAVING)

/* Whether all symbols of the object in which this function is have versions that are listed. */
static bool has_known_versions(const void *function)
{
#define VERSION(name) name,
	static const char *const known[] = { GOMP_VERSIONS(VERSION) };
	Dl_info info;
	struct link_map *object = NULL;
	if (!dladdr1(function, &info, (void **)&object, RTLD_DL_LINKMAP) || !object)
		return false;
	const char *strings = NULL, *next = NULL;
	size_t versions = 0;
	for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
		/* The loader has made addresses of some. */
		uintptr_t value = entry->d_un.d_ptr, at = value < object->l_addr ? value + object->l_addr : value;
		if (entry->d_tag == DT_STRTAB)
			strings = (const char *)at;
		else if (entry->d_tag == DT_VERDEF)
			next = (const char *)at;
		else if (entry->d_tag == DT_VERDEFNUM)
			versions = entry->d_un.d_val;
	}
	if (!strings || !next || !versions)
		return false;
	for (size_t i = 0; i < versions; i++) {
		const ElfW(Verdef) *version = (const ElfW(Verdef) *)next;
		const char *name = strings + ((const ElfW(Verdaux) *)(next + version->vd_aux))->vda_name;
		bool found = version->vd_flags & VER_FLG_BASE;
		for (size_t j = 0; j < sizeof known / sizeof *known && !found; j++)
			found = !strcmp(name, known[j]);
		if (!found)
			return false;
		next += version->vd_next;
	}
	return true;
}
#else
static bool has_known_versions(const void *function)
{
	(void)function;
	return false;
}
#endif

/* Whether barriers of this libgomp can be replaced, by a function of it. All that a process calls are of the same. */
static bool is_replaceable(const void *function)
{
	static _Atomic int replaceable; /* 0: not known, 1: yes, 2: no */
	if (!GET(replaceable)) {
		int (*cancels)(void) = NEXT("omp_get_cancellation");
		SET(replaceable, has_known_versions(function) && !cancels() ? 1 : 2);
	}
	return GET(replaceable) == 1;
}

#endif

/*
 * Clocks of both probes: those of the kernel, and the cycle counter, which costs some ns where they cost a
 * system call.
 */
#ifndef EVENLY_CLOCK_H
#define EVENLY_CLOCK_H

#include <stdint.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Where there is no counter, ns. */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return clock_ns(CLOCK_MONOTONIC);
#endif
}

#endif

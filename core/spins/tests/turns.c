/* Loops without `pause`: those named wait_ leave nothing behind, those named work_ do. Asserted in turns.rs. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__aarch64__)
static inline uint64_t clock_now(void)
{
	uint64_t now;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
	return now;
}
#else
#include <x86intrin.h>
#define clock_now __rdtsc
#endif

_Atomic int flag, other;
_Atomic long serving;
volatile int plain;
volatile double level;
_Atomic int many[8];
struct node {
	struct node *next;
	int is_last;
};

void wait_flag(void)
{
	while (!atomic_load_explicit(&flag, memory_order_acquire))
		;
}

void wait_pointed_to(volatile int *at, int is)
{
	while (*at == is)
		;
}

void wait_index(volatile unsigned char *all, size_t i, int is)
{
	while (all[4 * i + 1] == is)
		;
}

void wait_ticket(void)
{
	long mine = atomic_fetch_add(&serving, 1);
	while (atomic_load(&serving) != mine)
		;
}

void wait_either(void)
{
	while (!plain && atomic_load(&flag) < 3)
		;
}

void wait_both(void)
{
	while (plain == 2 || flag == 3)
		;
}

void wait_fence(void)
{
	while (plain == 0)
		atomic_thread_fence(memory_order_seq_cst);
}

void wait_level(double at_least)
{
	while (level < at_least)
		;
}

void wait_behind(volatile int *volatile *at)
{
	while (**at == 0)
		;
}

void wait_bit(void)
{
	while (!(atomic_load(&flag) >> 5 & 1))
		;
}

void work_store(void);

void wait_for_ever(void)
{
	for (;;)
		;
}

/* A test-and-set lock. */
void wait_exchange(void)
{
	while (atomic_exchange(&flag, 1))
		;
}

void wait_compare(void)
{
	int free;
	do
		free = 0;
	while (!atomic_compare_exchange_strong(&flag, &free, 1));
}

/* All of them, again and again. */
void wait_all(void)
{
	for (;;) {
		int there = 0;
		for (int i = 0; i < 8; i++)
			there += many[i];
		if (there == 8)
			return;
	}
}

#if !defined(__aarch64__)
/* The way out may stand before, and a jump back to it around other waits. */
__attribute__((visibility("hidden"))) struct shared { _Atomic int flag; } *shared;
__attribute__((visibility("hidden"))) int phases, kind;
void wait_among_others(int is)
{
	for (int p = 0; p < phases; p++)
		switch (kind) {
		case 1: {
			int expected;
			do
				expected = is + 1;
			while (!atomic_compare_exchange_weak(&shared->flag, &expected, expected));
			break;
		}
		case 2:
			while (atomic_load(&shared->flag) == is)
				__builtin_ia32_pause();
			break;
		case 3:
			work_store();
			break;
		}
}
#endif

void work_bounded(int n)
{
	for (int i = 0; i < n && !flag; i++)
		;
}

/* It goes through a list, though no address in the inner loop is another one. */
int work_each(struct node *volatile *at, struct node *volatile *end, void (*work)(struct node *))
{
	int n = 0;
	for (; at < end; at++) {
		if (!plain)
			continue;
		work(*at);
		n++;
	}
	return n;
}

int wait_until(uint64_t until)
{
	while (!flag)
		if (clock_now() > until)
			return 0;
	return 1;
}

int work_list(struct node *at)
{
	while (!at->is_last)
		at = at->next;
	return at->is_last;
}

size_t work_length(const char *text)
{
	size_t n = 0;
	while (text[n])
		n++;
	return n;
}

void work_time(uint64_t until)
{
	while (clock_now() < until)
		;
}

void work_add(int by)
{
	int was = atomic_load(&flag);
	while (!atomic_compare_exchange_weak(&flag, &was, was + by))
		;
}

void work_store(void)
{
	while (!flag)
		plain = 1;
}

void work_counts(void)
{
	while (atomic_fetch_add(&flag, 1) < 100)
		;
}

/* Each turn writes what the one before has read. */
void work_exchange(void)
{
	int value = 0;
	while (value < 100)
		value = atomic_exchange(&flag, value + 1);
}

void work_memory(void)
{
	while (atomic_exchange(&flag, plain + 1) < 100)
		;
}

uint32_t work_random(uint32_t x)
{
	while (x & 0xffff0000u) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
	}
	return x;
}

/* The pointer is to the variable itself. */
int work_own(void)
{
	int x = 0;
	volatile int *at = &x;
	while (*at < 100)
		x = *at + 1;
	return x;
}

int work_cmov(const int *a, int n)
{
	int most = 0, last = 0;
	do {
		last = most;
		most = a[most & 7] > most ? a[most & 7] : most;
	} while (most != last && n);
	return most;
}

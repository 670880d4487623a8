/* Ways to wait, and some that are none: what is found in them is asserted in found.rs. */
#include <stdatomic.h>

_Atomic int flag;
_Atomic long serving;
int work(void);
#if defined(__aarch64__)
#define PAUSE __asm__ volatile(HINT)
#else
#define PAUSE __builtin_ia32_pause()
#endif

void barrier(int n)
{
	while (atomic_load_explicit(&flag, memory_order_acquire) == n)
		PAUSE;
}

void ticket(void)
{
	long mine = atomic_fetch_add(&serving, 1);
	while (atomic_load(&serving) != mine)
		PAUSE;
}

void test_and_set(void)
{
	while (atomic_exchange(&flag, 1))
		while (flag)
			PAUSE;
}

/* As runtimes spin before they sleep. */
void bounded(int n)
{
	for (int i = 0; i < n && !flag; i++)
		PAUSE;
}

void calls(void)
{
	while (!work())
		PAUSE;
}

/* It takes a time, and no longer. */
void delay(int n)
{
	for (int i = 0; i < n; i++)
		PAUSE;
}

/* As those that back off, longer and longer. */
void back_off(void)
{
	for (int most = 1; atomic_load_explicit(&flag, memory_order_acquire); most = most < 1024 ? 2 * most : most)
		for (int i = 0; i < most; i++)
			PAUSE;
}

#if !defined(__aarch64__)
/* The address of the flag comes by the register in which the delay is counted. */
struct flags { _Atomic int other, flag; } *flags;
void back_off_through(int is)
{
	while (atomic_load_explicit(&flags->flag, memory_order_acquire) == is)
		for (int i = 0; i < 50; i++)
			PAUSE;
}

struct node { struct node *volatile next; };

/* It takes nodes away from a list, with delays. */
void empty(struct node *_Atomic *head)
{
	struct node *first, *next;
	do {
		first = atomic_load(head);
		next = first->next;
		atomic_compare_exchange_strong(head, &first, next);
		for (int i = 0; i < 50; i++)
			PAUSE;
	} while (next);
}

/* The same, and the register of the list is made of itself by way of another one. */
struct node *list_end_by_two(struct node *at)
{
	struct node *next;
	while ((next = at->next)) {
		for (int i = 0; i < 50; i++)
			PAUSE;
		if (flag)
			return at;
		at = next;
	}
	return at;
}

/* It goes through a list. */
struct node *list_end(struct node *at)
{
	while (at->next) {
		at = at->next;
		for (int i = 0; i < 50; i++)
			PAUSE;
	}
	return at;
}
#endif

void back_off_and_try(void)
{
	int most = 16;
	while (atomic_exchange(&flag, 1)) {
		for (int i = 0; i < most; i++)
			PAUSE;
		if (most < 1024)
			most *= 2;
	}
}

/* It works between two delays. */
void paced(int *values, int n)
{
	for (int k = 0; k < n && !flag; k++) {
		values[k] += k;
		for (int i = 0; i < n; i++)
			PAUSE;
	}
}

/* It adds up what others write, with delays. */
int sums(volatile int *values, int n, int delay)
{
	int sum = 0;
	for (int k = 0; k < n; k++) {
		sum += values[k];
		for (int i = 0; i < delay; i++)
			PAUSE;
	}
	return sum;
}

void once(void)
{
	PAUSE;
	flag = 1;
}

/* The bytes of a pause within a constant. */
int constant(int n)
{
	return n ^ 0x5590f355;
}

/*
 * Breakpoints by kind of processor: where a thread has trapped, with what in its registers, and where it would have gone on.
 */
#ifndef EVENLY_HANDOVER_MACHINE_H
#define EVENLY_HANDOVER_MACHINE_H

static uint64_t mixed(uint64_t hash, const void *words, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof hash) {
		uint64_t word;
		memcpy(&word, (const char *)words + i, sizeof word);
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return hash;
}

#if defined(__x86_64__)
#define BREAKPOINT_CODE SI_KERNEL
#define BREAKPOINT_BYTES 1
/* Two, as behind the breakpoint of a jump there is a guard. */
#define HIDDEN_BYTES 2

#define PAUSE 0xf3
#define NOP 0x90
#define JUMP_SHORT 0xeb
#define JUMP_NEAR 0xe9
#define TWO_BYTES 0x0f

/* Whether a conditional jump of this kind is taken (the lower four bits of its opcode). */
static bool is_taken(unsigned kind, uint64_t flags)
{
	bool carry = flags & 1, parity = flags & 4, zero = flags & 0x40, sign = flags & 0x80, overflow = flags & 0x800;
	bool is[] = { overflow, carry, zero, carry || zero, sign, parity, sign != overflow, zero || sign != overflow };
	return is[kind >> 1 & 7] != (kind & 1);
}

/* Where it goes on after the instruction that begins with these two bytes, as they may not be there now; 0 where it is none
 * that has places. */
static uint64_t after(uint64_t at, uint32_t hidden, uint64_t flags)
{
	unsigned char first = (unsigned char)hidden, second = (unsigned char)(hidden >> 8);
	uint64_t next = at + 2;
	int32_t distance = (signed char)second;
	bool taken = true;
	if (first == PAUSE)
		return second == NOP ? next : 0;
	if (first == JUMP_NEAR) {
		next = at + 5;
		memcpy(&distance, (const void *)(at + 1), sizeof distance);
		memcpy(&distance, &second, 1);
	} else if (first == TWO_BYTES && second >> 4 == 8) {
		next = at + 6;
		memcpy(&distance, (const void *)(at + 2), sizeof distance);
		taken = is_taken(second, flags);
	} else if (first >> 4 == 7) {
		taken = is_taken(first, flags);
	} else if (first != JUMP_SHORT) {
		return 0;
	}
	return taken ? next + (uint64_t)(int64_t)distance : next;
}

/* The breakpoint itself has been executed; a guard behind it has not. */
static uint64_t trapped_at(const ucontext_t *context)
{
	return (uint64_t)context->uc_mcontext.gregs[REG_RIP] - BREAKPOINT_BYTES;
}

static uint64_t goes_on_at(uint64_t at, uint32_t first, const ucontext_t *context)
{
	return after(at, first, (uint64_t)context->uc_mcontext.gregs[REG_EFL]);
}

static void go_on(ucontext_t *context, uint64_t at)
{
	context->uc_mcontext.gregs[REG_RIP] = (greg_t)at;
}

static uint64_t registers_of(const ucontext_t *context)
{
	/* The general ones come first; what follows are flags and why it trapped. */
	uint64_t hash = mixed(1, context->uc_mcontext.gregs, (REG_RIP - REG_R8) * sizeof(greg_t));
	const fpregset_t floating = context->uc_mcontext.fpregs;
	return floating ? mixed(hash, floating->_xmm, sizeof floating->_xmm) : hash;
}

#elif defined(__aarch64__)
#include <asm/sigcontext.h>

#define BREAKPOINT_CODE TRAP_BRKPT
#define BREAKPOINT_BYTES 4
#define HIDDEN_BYTES 4

#define YIELD 0xd503203f
#define WFE 0xd503205f
#define ISB 0xd5033fdf

/* So many bits of a word as a number of words with a sign, in bytes. */
static uint64_t distance(uint32_t word, unsigned from, unsigned bits)
{
	return (uint64_t)((int64_t)((uint64_t)(word >> from) << (64 - bits)) >> (64 - bits)) * 4;
}

/* Whether a condition holds (`b.eq` is 0). */
static bool is_taken(unsigned condition, uint64_t flags)
{
	bool negative = flags >> 31 & 1, zero = flags >> 30 & 1, carry = flags >> 29 & 1, overflow = flags >> 28 & 1;
	bool is[] = { zero, carry, negative, overflow, carry && !zero, negative == overflow,
		      !zero && negative == overflow, true };
	bool always = condition >> 1 == 7;
	return is[condition >> 1] != (condition & 1 && !always);
}

/* Where it goes on after this instruction; 0 where it is none that has places. */
static uint64_t after(uint64_t at, uint32_t word, const uint64_t *registers, uint64_t flags)
{
	/* What an `isb` does the return from the handler does as well. */
	if (word == YIELD || word == WFE || word == ISB)
		return at + 4;
	if (word >> 26 == 5)
		return at + distance(word, 0, 26);
	if (word >> 24 == 0x54 && !(word & 0x10))
		return at + (is_taken(word & 0xf, flags) ? distance(word, 5, 19) : 4);
	uint64_t value = (word & 0x1f) < 31 ? registers[word & 0x1f] : 0;
	bool if_not_zero = word >> 24 & 1;
	if ((word & 0x7e000000) == 0x34000000) {
		value = word >> 31 ? value : (uint32_t)value;
		return at + ((value != 0) == if_not_zero ? distance(word, 5, 19) : 4);
	}
	if ((word & 0x7e000000) == 0x36000000) {
		unsigned bit = (word >> 31) << 5 | (word >> 19 & 0x1f);
		return at + ((value >> bit & 1) == if_not_zero ? distance(word, 5, 14) : 4);
	}
	return 0;
}

static uint64_t trapped_at(const ucontext_t *context)
{
	return context->uc_mcontext.pc;
}

static uint64_t goes_on_at(uint64_t at, uint32_t first, const ucontext_t *context)
{
	const mcontext_t *machine = &context->uc_mcontext;
	return after(at, first, (const uint64_t *)machine->regs, machine->pstate);
}

static void go_on(ucontext_t *context, uint64_t at)
{
	context->uc_mcontext.pc = at;
}

static uint64_t registers_of(const ucontext_t *context)
{
	const mcontext_t *machine = &context->uc_mcontext;
	uint64_t hash = mixed(1, machine->regs, sizeof machine->regs);
	hash = mixed(hash, &machine->sp, sizeof machine->sp);
	/* Records, of which the last is empty. */
	const unsigned char *at = machine->__reserved, *end = at + sizeof machine->__reserved;
	while (at + sizeof(struct _aarch64_ctx) <= end) {
		struct _aarch64_ctx head;
		memcpy(&head, at, sizeof head);
		if (head.magic == FPSIMD_MAGIC)
			return mixed(hash, ((const struct fpsimd_context *)at)->vregs, sizeof((struct fpsimd_context *)0)->vregs);
		if (!head.magic || head.size < sizeof head)
			break;
		at += head.size;
	}
	return hash;
}

#else
/* None is known. */
#define BREAKPOINT_CODE 0
#define BREAKPOINT_BYTES 0
#define HIDDEN_BYTES 0

static uint64_t trapped_at(const ucontext_t *context)
{
	(void)context;
	return 0;
}

static uint64_t goes_on_at(uint64_t at, uint32_t first, const ucontext_t *context)
{
	(void)at, (void)first, (void)context;
	return 0;
}

static void go_on(ucontext_t *context, uint64_t at)
{
	(void)context, (void)at;
}

static uint64_t registers_of(const ucontext_t *context)
{
	return mixed(1, context, 0);
}
#endif

#endif

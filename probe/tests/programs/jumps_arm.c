/* Jumps of aarch64 as handover.c carries them out, beside what the processor does. */
#include "../../c/handover.c"
#include "jumps.h"

#define CONDITIONS(of)                                                                                \
	of(0, "eq") of(1, "ne") of(2, "cs") of(3, "cc") of(4, "mi") of(5, "pl") of(6, "vs") of(7, "vc") \
	of(8, "hi") of(9, "ls") of(10, "ge") of(11, "lt") of(12, "gt") of(13, "le") of(14, "al") of(15, "nv")

static bool by_processor(unsigned condition, uint64_t flags)
{
	bool taken = false;
	switch (condition) {
#define TRY(number, name)                                                                                          \
	case number:                                                                                               \
		__asm__ volatile("msr nzcv, %1\n\tmov %w0, #1\n\tb." name " 1f\n\tmov %w0, #0\n1:"                 \
				 : "=&r"(taken) : "r"(flags) : "cc");                                               \
		break;
	CONDITIONS(TRY)
	}
	return taken;
}

/* The word of an instruction as the assembler makes it. */
#define WORD(name, code)                                          \
	__asm__(".text\n\t.balign 4\n\t.globl " #name "\n" #name ": " code "\n\t"); \
	extern const uint32_t name[];
WORD(b_on, "b .+8") WORD(b_back, "b .-8") WORD(cbz_w, "cbz w3, .+8") WORD(cbnz_x, "cbnz x3, .-8")
WORD(tbz_4, "tbz w3, #4, .+8") WORD(tbnz_40, "tbnz x3, #40, .-8") WORD(cbz_zero, "cbz xzr, .-8")
WORD(hint_yield, "yield") WORD(hint_wfe, "wfe") WORD(barrier, "isb") WORD(adds, "add x0, x0, #1") WORD(calls, "bl .+8")

static uint64_t goes(const uint32_t *word, uint64_t x3)
{
	uint64_t registers[31] = { [3] = x3 };
	return after(4096, *word, registers, 0);
}

int main(void)
{
	for (unsigned condition = 0; condition < 16; condition++)
		for (uint64_t bits = 0; bits < 16; bits++) {
			uint64_t flags = bits << 28, registers[31] = { 0 };
			bool taken = by_processor(condition, flags);
			/* b.c -8 */
			uint32_t word = 0x54000000 | (0x7fffe << 5) | condition;
			CHECK(after(4096, word, registers, flags) == (taken ? 4096 - 8 : 4096 + 4));
		}
	CHECK(goes(b_on, 0) == 4096 + 8 && goes(b_back, 0) == 4096 - 8);
	CHECK(goes(cbz_w, 0) == 4096 + 8 && goes(cbz_w, 1) == 4096 + 4 && goes(cbz_w, UINT64_C(1) << 32) == 4096 + 8);
	CHECK(goes(cbnz_x, 0) == 4096 + 4 && goes(cbnz_x, UINT64_C(1) << 32) == 4096 - 8 && goes(cbz_zero, 9) == 4096 - 8);
	CHECK(goes(tbz_4, 16) == 4096 + 4 && goes(tbz_4, ~UINT64_C(16)) == 4096 + 8);
	CHECK(goes(tbnz_40, UINT64_C(1) << 40) == 4096 - 8 && goes(tbnz_40, UINT64_C(1) << 8) == 4096 + 4);
	CHECK(goes(hint_yield, 0) == 4096 + 4 && goes(hint_wfe, 0) == 4096 + 4 && goes(barrier, 0) == 4096 + 4);
	CHECK(goes(adds, 0) == 0 && goes(calls, 0) == 0);
	printf("done\n");
	return 0;
}

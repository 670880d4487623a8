/* Conditional jumps as handover.c carries them out, beside what the processor does. */
#include "../../c/handover.c"
#include "jumps.h"

/* The flags that jumps look at. */
static const uint64_t flags[] = { 1, 4, 0x40, 0x80, 0x800 };

#define SET(kind, name)                                                                            \
	case kind:                                                                                 \
		__asm__ volatile("push %1\n\tpopfq\n\tset" name " %0" : "=r"(taken) : "r"(with) : "cc", "memory"); \
		break;

static bool by_processor(unsigned kind, uint64_t with)
{
	unsigned char taken = 0;
	switch (kind) {
	SET(0, "o") SET(1, "no") SET(2, "c") SET(3, "nc") SET(4, "z") SET(5, "nz") SET(6, "be") SET(7, "a")
	SET(8, "s") SET(9, "ns") SET(10, "p") SET(11, "np") SET(12, "l") SET(13, "ge") SET(14, "le") SET(15, "g")
	}
	return taken;
}

int main(void)
{
	for (unsigned kind = 0; kind < 16; kind++)
		for (unsigned of = 0; of < 32; of++) {
			uint64_t with = 0x202;
			for (unsigned i = 0; i < 5; i++)
				with |= of >> i & 1 ? flags[i] : 0;
			bool taken = by_processor(kind, with);
			/* Breakpoints and guards hide the first two bytes. */
			unsigned char brief[] = { 0xcc, 0xd6 }, far[] = { 0xcc, 0xd6, 0, 0xff, 0xff, 0xff };
			uint64_t b = (uint64_t)brief, f = (uint64_t)far;
			CHECK(is_taken(kind, with) == taken);
			CHECK(after(b, 0x8070 | kind, with) == b + 2 - (taken ? 128 : 0));
			CHECK(after(f, 0x800f | kind << 8, with) == f + 6 - (taken ? 256 : 0));
		}
	unsigned char hidden[] = { 0xcc, 0xd6, 0xff, 0xff, 0xff };
	uint64_t at = (uint64_t)hidden;
	CHECK(after(at, 0xfeeb, 0) == at && after(at, 0x7eeb, 0) == at + 128);
	CHECK(after(at, 0xfbe9, 0) == at);
	CHECK(after(at, 0x90f3, 0) == at + 2);
	CHECK(after(at, 0xfef3, 0) == 0 && after(at, 0xfe0f, 0) == 0 && after(at, 0x9000, 0) == 0);
	printf("done\n");
	return 0;
}

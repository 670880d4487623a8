/*
 * What a wrapper of `syscall` is given: nobody says how many arguments, so there are always six. For both libraries that stand before it.
 */
#ifndef EVENLY_SYSTEM_CALL_H
#define EVENLY_SYSTEM_CALL_H

#include <stdarg.h>

/* Takes those behind `number` into an array of six. */
#define TAKE_ARGUMENTS(number, into)                     \
	do {                                             \
		va_list more_;                           \
		va_start(more_, number);                 \
		for (int i_ = 0; i_ < 6; i_++)           \
			(into)[i_] = va_arg(more_, long); \
		va_end(more_);                           \
	} while (0)

#endif

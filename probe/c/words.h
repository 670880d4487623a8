/*
 * The parameters and arguments of a wrapper, for both probes: words, whatever they are. Integers, handles and addresses
 * all are one each, in the calling conventions of Linux on 64-bit machines, and the halves that an int does not fill are
 * passed on with it. No function that is wrapped so has an argument of floating point. EVENLY_WORD is the type of a word.
 */
#ifndef EVENLY_WORDS_H
#define EVENLY_WORDS_H

#define P0 void
#define P1 EVENLY_WORD a0
#define P2 P1, EVENLY_WORD a1
#define P3 P2, EVENLY_WORD a2
#define P4 P3, EVENLY_WORD a3
#define P5 P4, EVENLY_WORD a4
#define P6 P5, EVENLY_WORD a5
#define P7 P6, EVENLY_WORD a6
#define P8 P7, EVENLY_WORD a7
#define P9 P8, EVENLY_WORD a8
#define P10 P9, EVENLY_WORD a9
#define P11 P10, EVENLY_WORD a10
#define P12 P11, EVENLY_WORD a11
#define P13 P12, EVENLY_WORD a12
#define P14 P13, EVENLY_WORD a13
#define A0
#define A1 a0
#define A2 A1, a1
#define A3 A2, a2
#define A4 A3, a3
#define A5 A4, a4
#define A6 A5, a5
#define A7 A6, a6
#define A8 A7, a7
#define A9 A8, a8
#define A10 A9, a9
#define A11 A10, a10
#define A12 A11, a11
#define A13 A12, a12
#define A14 A13, a13

/* How many a function of Fortran has that has so many in C: the error behind them; and where texts are among them, as in
 * few, the lengths of two at most. */
#define WITH_ERROR_0 1
#define WITH_ERROR_1 2
#define WITH_ERROR_2 3
#define WITH_ERROR_3 4
#define WITH_ERROR_4 5
#define WITH_ERROR_5 6
#define WITH_ERROR_6 7
#define WITH_ERROR_7 8
#define WITH_ERROR_8 9
#define WITH_ERROR_9 10
#define WITH_ERROR_10 11
#define WITH_ERROR_12 13
#define WITH_TEXTS_5 8
#define WITH_TEXTS_6 9
#define WITH_TEXTS_8 11
#define WITH_TEXTS_9 12

#endif

// What every workload shares: clocks, parsing of options, JSON output.
//
// Bad input ends the program with one line on stderr and exit status 2;
// anything that the machine refuses (memory, threads) with exit status 1.
#ifndef WORKLOADS_COMMON_H
#define WORKLOADS_COMMON_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_BAD_INPUT = 2 };

_Noreturn void die_input(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void die_machine(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Seconds of CLOCK_MONOTONIC.
double now_s(void);
// Seconds of CPU time that the calling thread has received.
double thread_cpu_s(void);
// Sleeps until `deadline_s` of CLOCK_MONOTONIC, or until a signal handler ran.
void sleep_until_s(double deadline_s);

// Each parses all of `text`, or dies naming the option and what it needs.
uint64_t parse_u64(const char *option, const char *text, uint64_t min, uint64_t max);
int64_t parse_i64(const char *option, const char *text, int64_t min, int64_t max);
double parse_double(const char *option, const char *text, double min, double max);
// Bytes, with an optional suffix K, M or G (powers of 1024).
uint64_t parse_size(const char *option, const char *text, uint64_t min, uint64_t max);
// "MIN,MAX" with MIN <= MAX.
void parse_range(const char *option, const char *text, double max, double out[2]);
// Comma-separated numbers; the caller frees the array.
double *parse_list(const char *option, const char *text, double min, double max, size_t *count);
// A CPU list in the kernel's syntax, such as 0-3,8.
cpu_set_t parse_cpus(const char *option, const char *text);

// Dies if arguments are left over after the options.
void no_more_arguments(int argc, char **argv);

void *checked_alloc(size_t count, size_t size);

// Computes, without end in sight, until `deadline_s` of CLOCK_MONOTONIC or until
// `*stop` is set (NULL: only the deadline counts). Returns the steps taken.
uint64_t burn_until(double deadline_s, const volatile _Atomic int *stop);

// A step of the splitmix64 generator; also used to mix values into a checksum.
uint64_t splitmix64(uint64_t x);
// A number in [0, 1) from a generator state.
double random_unit(uint64_t *state);

// Opens the file for results; NULL is stdout.
FILE *open_output(const char *path);
// Flushes and closes, and dies if anything was lost.
void close_output(FILE *out);
void json_seconds(FILE *out, const char *key, const double *values, size_t count, double origin);
// A JSON string of UTF-8 text; control characters become \u00XX.
void json_string(FILE *out, const char *bytes);
// A mask in the kernel's list syntax, as a JSON string.
void json_cpus(FILE *out, const cpu_set_t *cpus);

#endif

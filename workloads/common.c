#include "common.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void complain(const char *format, va_list arguments, const char *tail) {
    char line[1024];
    vsnprintf(line, sizeof line, format, arguments);
    fprintf(stderr, "%s: %s%s\n", program_invocation_short_name, line, tail);
}

void die_input(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments, "; see --help");
    va_end(arguments);
    exit(EXIT_BAD_INPUT);
}

void die_machine(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments, "");
    va_end(arguments);
    exit(EXIT_FAILURE);
}

static double clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double now_s(void) { return clock_s(CLOCK_MONOTONIC); }

double thread_cpu_s(void) { return clock_s(CLOCK_THREAD_CPUTIME_ID); }

void sleep_until_s(double deadline_s) {
    double whole = floor(deadline_s);
    struct timespec t = {.tv_sec = (time_t)whole, .tv_nsec = (long)((deadline_s - whole) * 1e9)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

uint64_t parse_u64(const char *option, const char *text, uint64_t min, uint64_t max) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < min || value > max)
        die_input("%s: '%s' is not a whole number from %llu to %llu", option, text,
                  (unsigned long long)min, (unsigned long long)max);
    return value;
}

int64_t parse_i64(const char *option, const char *text, int64_t min, int64_t max) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < min || value > max)
        die_input("%s: '%s' is not a whole number from %lld to %lld", option, text, (long long)min,
                  (long long)max);
    return value;
}

double parse_double(const char *option, const char *text, double min, double max) {
    char *end;
    double value = strtod(text, &end);
    // The negated comparison also refuses NaN.
    if (end == text || *end || !(value >= min && value <= max))
        die_input("%s: '%s' is not a number from %g to %g", option, text, min, max);
    return value;
}

uint64_t parse_size(const char *option, const char *text, uint64_t min, uint64_t max) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    switch (*end) {
    case 'K': case 'k': shift = 10; end++; break;
    case 'M': case 'm': shift = 20; end++; break;
    case 'G': case 'g': shift = 30; end++; break;
    default: break;
    }
    if (text[0] < '0' || text[0] > '9' || *end || errno || value > max >> shift ||
        value << shift < min)
        die_input("%s: '%s' is not a number of bytes from %llu to %llu (suffixes K, M, G)", option,
                  text, (unsigned long long)min, (unsigned long long)max);
    return value << shift;
}

double *parse_list(const char *option, const char *text, double min, double max, size_t *count) {
    size_t length = 1;
    for (const char *c = text; *c; c++) length += *c == ',';
    double *values = checked_alloc(length, sizeof *values);
    char *copy = strdup(text);
    if (!copy) die_machine("no memory");
    char *rest = copy;
    for (size_t i = 0; i < length; i++) values[i] = parse_double(option, strsep(&rest, ","), min, max);
    free(copy);
    *count = length;
    return values;
}

void parse_range(const char *option, const char *text, double max, double out[2]) {
    size_t count;
    double *values = parse_list(option, text, 0, max, &count);
    if (count != 2 || values[0] > values[1])
        die_input("%s: '%s' is not MIN,MAX with MIN <= MAX", option, text);
    out[0] = values[0];
    out[1] = values[1];
    free(values);
}

cpu_set_t parse_cpus(const char *option, const char *text) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const char *at = text;
    for (;;) {
        char *end;
        errno = 0;
        unsigned long first = strtoul(at, &end, 10), last = first;
        int ok = *at >= '0' && *at <= '9' && !errno;
        if (ok && *end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            ok = *at >= '0' && *at <= '9' && !errno;
        }
        if (!ok || last < first || last >= CPU_SETSIZE || (*end && *end != ','))
            die_input("%s: '%s' is not a CPU list such as 0-3,8", option, text);
        for (unsigned long cpu = first; cpu <= last; cpu++) CPU_SET(cpu, &cpus);
        if (!*end) return cpus;
        at = end + 1;
    }
}

void no_more_arguments(int argc, char **argv) {
    extern int optind;
    if (optind < argc) die_input("'%s' is not an option", argv[optind]);
}

void *checked_alloc(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) die_machine("no memory for %zu x %zu bytes", count, size);
    return memory;
}

uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

uint64_t burn_until(double deadline_s, const volatile _Atomic int *stop) {
    // Some tens of microseconds between two looks at the clock.
    enum { STEPS = 10000 };
    uint64_t state = 1, steps = 0;
    while (now_s() < deadline_s && !(stop && *stop)) {
        for (int i = 0; i < STEPS; i++) state = splitmix64(state);
        steps += STEPS;
        // A use that the compiler cannot see through, so that the loop stays.
        __asm__ volatile("" : : "r"(state));
    }
    return steps;
}

double random_unit(uint64_t *state) {
    *state = splitmix64(*state);
    return (double)(*state >> 11) * 0x1p-53;
}

FILE *open_output(const char *path) {
    if (!path) return stdout;
    FILE *out = fopen(path, "w");
    if (!out) die_machine("cannot write %s: %s", path, strerror(errno));
    return out;
}

void close_output(FILE *out) {
    if (fflush(out) || ferror(out) || (out != stdout && fclose(out)))
        die_machine("the result could not be written: %s", strerror(errno));
}

void json_seconds(FILE *out, const char *key, const double *values, size_t count, double origin) {
    fprintf(out, "\"%s\":[", key);
    for (size_t i = 0; i < count; i++) fprintf(out, "%s%.9f", i ? "," : "", values[i] - origin);
    fputc(']', out);
}

void json_string(FILE *out, const char *bytes) {
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)bytes; *c; c++) {
        if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f) fprintf(out, "\\u%04x", *c);
        else fputc(*c, out);
    }
    fputc('"', out);
}

void json_cpus(FILE *out, const cpu_set_t *cpus) {
    const char *comma = "";
    fputc('"', out);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus)) last++;
        if (last > cpu) fprintf(out, "%s%d-%d", comma, cpu, last);
        else fprintf(out, "%s%d", comma, cpu);
        comma = ",";
        cpu = last;
    }
    fputc('"', out);
}

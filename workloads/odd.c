// A zoo of programs that do unusual but legitimate things to their threads, for
// tests of whatever watches or moves them. All end by themselves.
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <linux/sched.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

enum { COMPUTING = 3, ACT_AFTER_MS = 300 };

static double start_s, end_s;
static int duration_given;
static const char *act_sign, *end_sign; // files; NULL where only time counts

// When the oddity happens: after 300 ms, or half-way through a shorter run.
static double act_s(void) {
    double middle = start_s + (end_s - start_s) / 2, usual = start_s + ACT_AFTER_MS * 1e-3;
    return usual < middle ? usual : middle;
}

static int is_there(const char *sign) {
    return sign && access(sign, F_OK) == 0;
}

static int over(void) {
    return now_s() >= end_s || is_there(end_sign);
}

static int time_to_act(void) {
    return over() || (act_sign ? is_there(act_sign) : now_s() >= act_s());
}

// A sign is looked for at such intervals.
static double next_look_s(void) {
    double next = now_s() + 0.005;
    return next < end_s ? next : end_s;
}

static void compute_until(int (*come)(void)) {
    while (!come()) burn_until(next_look_s(), NULL);
}

static void sleep_until(int (*come)(void)) {
    while (!come()) sleep_until_s(next_look_s());
}

static cpu_set_t own_mask(void) {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask)) die_machine("sched_getaffinity: %s", strerror(errno));
    return mask;
}

static void *compute(void *unused) {
    compute_until(over);
    return unused;
}

static pthread_t start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, argument);
    if (error) die_machine("cannot create a thread: %s", strerror(error));
    return thread;
}

static void start_computing(pthread_t *threads, size_t count) {
    for (size_t i = 0; i < count; i++) threads[i] = start(compute, NULL);
}

static void join_all(const pthread_t *threads, size_t count) {
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

// The kernel's name of a signal, or RTMIN+n.
static const char *signal_name(int signal, char buffer[24]) {
    const char *name = sigabbrev_np(signal);
    if (name) snprintf(buffer, 24, "SIG%s", name);
    else snprintf(buffer, 24, "SIGRTMIN+%d", signal - SIGRTMIN);
    return buffer;
}

static int parse_signal(const char *text) {
    if (*text >= '0' && *text <= '9') return (int)parse_u64("die-by", text, 1, (uint64_t)SIGRTMAX);
    const char *name = strncmp(text, "SIG", 3) ? text : text + 3;
    for (int signal = 1; signal < SIGRTMIN; signal++) {
        const char *known = sigabbrev_np(signal);
        if (known && !strcmp(known, name)) return signal;
    }
    die_input("die-by: '%s' is not a signal", text);
}

// ---- exec-nonleader

static void *exec_later(void *argument) {
    char **command = argument;
    compute_until(time_to_act);
    execvp(command[0], command);
    die_machine("cannot execute %s: %s", command[0], strerror(errno));
}

static int run_exec_nonleader(char **arguments) {
    pthread_t threads[COMPUTING];
    start_computing(threads, COMPUTING);
    start(exec_later, arguments);
    join_all(threads, COMPUTING);
    pause(); // execve ends this thread
    return EXIT_FAILURE;
}

// ---- leader-exit

static _Atomic int still_computing = COMPUTING;

static void *compute_without_leader(void *unused) {
    compute_until(over);
    // exit() by the last one: the status of the process is then certain.
    if (--still_computing == 0) {
        printf("{\"workload\":\"odd\",\"oddity\":\"leader-exit\",\"workers\":%d}\n", COMPUTING);
        exit(EXIT_SUCCESS);
    }
    return unused;
}

static int run_leader_exit(char **arguments) {
    (void)arguments;
    for (int i = 0; i < COMPUTING; i++) pthread_detach(start(compute_without_leader, NULL));
    pthread_exit(NULL);
}

// ---- names

struct named {
    const char *name;
    pid_t tid;
};

static void *compute_named(void *argument) {
    struct named *named = argument;
    prctl(PR_SET_NAME, named->name);
    named->tid = (pid_t)syscall(SYS_gettid);
    return compute(NULL);
}

static int run_names(char **arguments) {
    (void)arguments;
    // The third is five letters of three bytes each: all that a name can hold.
    struct named named[] = {{"a) b(", 0}, {"x\ny", 0}, {"あいうえお", 0}, {"", 0}};
    enum { NAMES = sizeof named / sizeof *named };
    pthread_t threads[NAMES];
    for (int i = 0; i < NAMES; i++) threads[i] = start(compute_named, &named[i]);
    join_all(threads, NAMES);
    printf("{\"workload\":\"odd\",\"oddity\":\"names\",\"threads\":[");
    for (int i = 0; i < NAMES; i++) {
        printf("%s{\"tid\":%d,\"name\":", i ? "," : "", named[i].tid);
        json_string(stdout, named[i].name);
        putchar('}');
    }
    puts("]}");
    return EXIT_SUCCESS;
}

// ---- self-pin

struct self_pin {
    cpu_set_t wanted, at_end;
    int error;
};

static void *compute_self_pinned(void *argument) {
    struct self_pin *pin = argument;
    compute_until(time_to_act);
    if (sched_setaffinity(0, sizeof pin->wanted, &pin->wanted)) pin->error = errno;
    compute_until(over);
    pin->at_end = own_mask();
    return NULL;
}

static int run_self_pin(char **arguments) {
    struct self_pin pin = {.wanted = parse_cpus("self-pin", arguments[0])};
    pthread_t threads[COMPUTING];
    start_computing(threads, COMPUTING - 1);
    threads[COMPUTING - 1] = start(compute_self_pinned, &pin);
    join_all(threads, COMPUTING);
    if (pin.error) die_machine("cannot pin to %s: %s", arguments[0], strerror(pin.error));
    int kept = CPU_EQUAL(&pin.wanted, &pin.at_end);
    printf("{\"workload\":\"odd\",\"oddity\":\"self-pin\",\"wanted\":");
    json_cpus(stdout, &pin.wanted);
    printf(",\"at_end\":");
    json_cpus(stdout, &pin.at_end);
    printf(",\"kept\":%s}\n", kept ? "true" : "false");
    return kept ? EXIT_SUCCESS : EXIT_FAILURE;
}

// ---- rt and deadline

struct policy_attributes { // struct sched_attr, which glibc 2.36 does not declare
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

struct special {
    struct policy_attributes attributes;
    pid_t tid;
    int error, policy_at_end;
    cpu_set_t at_start, at_end;
    _Atomic int settled;
};

// Computes for four milliseconds in ten: enough for a compute thread, were it not of its class.
static void *compute_in_turns(void *argument) {
    struct special *special = argument;
    special->tid = (pid_t)syscall(SYS_gettid);
    special->at_start = own_mask();
    if (syscall(SYS_sched_setattr, 0, &special->attributes, 0)) {
        special->error = errno;
        special->settled = 1;
        return NULL;
    }
    for (int turns = 0; !over(); turns++) {
        burn_until(now_s() + 0.004, NULL);
        sleep_until_s(now_s() + 0.006);
        if (turns == 5) special->settled = 1;
    }
    special->settled = 1;
    special->policy_at_end = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
    special->at_end = own_mask();
    return NULL;
}

static int run_special(const char *oddity, struct special *special) {
    pthread_t threads[COMPUTING];
    // First, and known by what it does when the others are found.
    pthread_t thread = start(compute_in_turns, special);
    while (!special->settled) sleep_until_s(now_s() + 0.005);
    start_computing(threads, COMPUTING);
    join_all(threads, COMPUTING);
    pthread_join(thread, NULL);
    if (special->error)
        die_machine("%s: sched_setattr: %s; it needs CAP_SYS_NICE and, in a cgroup, real-time bandwidth",
                    oddity, strerror(special->error));
    int kept = CPU_EQUAL(&special->at_start, &special->at_end) &&
               special->policy_at_end == (int)special->attributes.policy;
    printf("{\"workload\":\"odd\",\"oddity\":\"%s\",\"tid\":%d,\"policy\":%d,\"mask_at_start\":",
           oddity, special->tid, special->policy_at_end);
    json_cpus(stdout, &special->at_start);
    printf(",\"mask_at_end\":");
    json_cpus(stdout, &special->at_end);
    printf(",\"kept\":%s}\n", kept ? "true" : "false");
    return kept ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_rt(char **arguments) {
    struct special special = {.attributes = {
        .size = sizeof special.attributes,
        .policy = SCHED_FIFO,
        .priority = (uint32_t)parse_u64("rt", arguments[0], 1, 99),
    }};
    return run_special("rt", &special);
}

static int run_deadline(char **arguments) {
    (void)arguments;
    struct special special = {.attributes = {
        .size = sizeof special.attributes,
        .policy = SCHED_DEADLINE,
        .runtime_ns = 5000000,
        .deadline_ns = 10000000,
        .period_ns = 10000000,
    }};
    return run_special("deadline", &special);
}

// ---- exit-status and die-by

// At once, unless a duration was asked for: then after that much computing.
static void compute_if_asked(void) {
    if (!duration_given) return;
    pthread_t threads[COMPUTING];
    start_computing(threads, COMPUTING);
    join_all(threads, COMPUTING);
}

static int run_exit_status(char **arguments) {
    int status = (int)parse_u64("exit-status", arguments[0], 0, 255);
    compute_if_asked();
    return status;
}

static int run_die_by(char **arguments) {
    int signal = parse_signal(arguments[0]);
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    compute_if_asked();
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigaction(signal, &fatal, NULL); // fails for SIGKILL and SIGSTOP, which need it not
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    kill(getpid(), signal);
    die_machine("die-by: still alive after signal %d, whose default is not to kill", signal);
}

// ---- print-mask

static void *look_at_mask(void *mask) {
    *(cpu_set_t *)mask = own_mask();
    return NULL;
}

static int run_print_mask(char **arguments) {
    (void)arguments;
    // As a program that computes alone before it sizes its thread pool.
    cpu_set_t main_at_start = own_mask(), late;
    double second = start_s + 1;
    burn_until(second < end_s ? second : end_s, NULL);
    cpu_set_t main_later = own_mask();
    pthread_t thread = start(look_at_mask, &late);
    pthread_join(thread, NULL);
    printf("{\"workload\":\"odd\",\"oddity\":\"print-mask\",\"main\":");
    json_cpus(stdout, &main_at_start);
    printf(",\"main_count\":%d,\"main_later\":", CPU_COUNT(&main_at_start));
    json_cpus(stdout, &main_later);
    printf(",\"main_later_count\":%d,\"late_thread\":", CPU_COUNT(&main_later));
    json_cpus(stdout, &late);
    printf(",\"late_thread_count\":%d}\n", CPU_COUNT(&late));
    return EXIT_SUCCESS;
}

// ---- show-mask

// As a program that waits for work and looks at its mask now and then: it hardly computes.
static int run_show_mask(char **arguments) {
    (void)arguments;
    cpu_set_t last;
    CPU_ZERO(&last);
    while (!over()) {
        cpu_set_t mask = own_mask();
        if (!CPU_EQUAL(&mask, &last)) {
            printf("{\"workload\":\"odd\",\"oddity\":\"show-mask\",\"pid\":%d,\"mask\":", getpid());
            json_cpus(stdout, &mask);
            puts("}");
            fflush(stdout);
            last = mask;
        }
        sleep_until_s(now_s() + 0.05);
    }
    return EXIT_SUCCESS;
}

// ---- spawn-late

static int run_spawn_late(char **arguments) {
    size_t count = parse_u64("spawn-late", arguments[0], 1, 4096);
    sleep_until(time_to_act);
    pid_t parent = getpid(), child = fork();
    if (child < 0) die_machine("fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(EXIT_FAILURE);
        pthread_t *threads = checked_alloc(count, sizeof *threads);
        start_computing(threads, count);
        join_all(threads, count);
        free(threads);
        _exit(EXIT_SUCCESS);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) die_machine("waitpid: %s", strerror(errno));
    printf("{\"workload\":\"odd\",\"oddity\":\"spawn-late\",\"child\":%d,\"threads\":%zu,\"status\":%d}\n",
           child, count, status);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}

// ---- grow

struct grown {
    cpu_set_t mask;
    _Atomic int has_looked;
};

static void *look_and_compute(void *argument) {
    struct grown *grown = argument;
    grown->mask = own_mask();
    grown->has_looked = 1;
    return compute(NULL);
}

static void print_grown(size_t thread, const cpu_set_t *mask) {
    printf("{\"workload\":\"odd\",\"oddity\":\"grow\",\"thread\":%zu,\"mask\":", thread);
    json_cpus(stdout, mask);
    puts("}");
    fflush(stdout);
}

// As a program that computes while it starts its threads one after the other.
static int run_grow(char **arguments) {
    size_t count = parse_u64("grow", arguments[0], 1, 4096);
    pthread_t *threads = checked_alloc(count, sizeof *threads);
    struct grown *grown = checked_alloc(count, sizeof *grown);
    cpu_set_t own = own_mask();
    print_grown(0, &own);
    for (size_t i = 0; i < count; i++) {
        compute_until(time_to_act);
        // Each thread has a sign of its own.
        if (act_sign && unlink(act_sign)) die_machine("cannot take away %s: %s", act_sign, strerror(errno));
        threads[i] = start(look_and_compute, &grown[i]);
        while (!grown[i].has_looked) burn_until(next_look_s(), NULL);
        print_grown(i + 1, &grown[i].mask);
    }
    compute_until(over);
    join_all(threads, count);
    free(grown);
    free(threads);
    return EXIT_SUCCESS;
}

// ---- relay

// All threads have the same to do, but only two of them at a time: where these are on one CPU, the
// others are idle.
enum { RUNNERS = 2, MOST_IN_RELAY = 4096 };

static struct {
    pthread_mutex_t lock;
    sem_t *turns; // one for each thread
    size_t *resting, resting_count;
    uint64_t random, legs;
} relay = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 1};

static void *run_in_turns(void *turn) {
    size_t me = (size_t)((sem_t *)turn - relay.turns);
    for (;;) {
        while (sem_wait(turn)) {} // interrupted
        if (over()) return NULL;
        double end = thread_cpu_s() + 1e-3;
        while (thread_cpu_s() < end) burn_until(now_s() + 5e-5, NULL);
        pthread_mutex_lock(&relay.lock);
        relay.legs++;
        size_t at = (size_t)(random_unit(&relay.random) * (double)relay.resting_count);
        size_t next = relay.resting[at];
        relay.resting[at] = me;
        pthread_mutex_unlock(&relay.lock);
        sem_post(&relay.turns[next]);
    }
}

static int run_relay(char **arguments) {
    size_t count = parse_u64("relay", arguments[0], RUNNERS + 1, MOST_IN_RELAY);
    pthread_t *threads = checked_alloc(count, sizeof *threads);
    relay.turns = checked_alloc(count, sizeof *relay.turns);
    relay.resting = checked_alloc(count, sizeof *relay.resting);
    for (size_t i = 0; i < count; i++) sem_init(&relay.turns[i], 0, i < RUNNERS);
    for (size_t i = RUNNERS; i < count; i++) relay.resting[relay.resting_count++] = i;
    for (size_t i = 0; i < count; i++) threads[i] = start(run_in_turns, &relay.turns[i]);
    sleep_until(over);
    for (size_t i = 0; i < count; i++) sem_post(&relay.turns[i]);
    join_all(threads, count);
    printf("{\"workload\":\"odd\",\"oddity\":\"relay\",\"threads\":%zu,\"legs\":%llu}\n", count,
           (unsigned long long)relay.legs);
    free(threads);
    return EXIT_SUCCESS;
}

// ---- sigs

static volatile sig_atomic_t terminated;

static void print_signal(int signal, siginfo_t *info, void *context) {
    (void)info;
    (void)context;
    int error = errno;
    char line[32] = "SIG";
    const char *name = sigabbrev_np(signal);
    size_t length = 3;
    if (name) {
        while (*name) line[length++] = *name++;
    } else { // snprintf is not safe in a handler
        int above = signal - SIGRTMIN;
        for (const char *c = "RTMIN+"; *c; c++) line[length++] = *c;
        if (above >= 10) line[length++] = (char)('0' + above / 10);
        line[length++] = (char)('0' + above % 10);
    }
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, length) < 0) terminated = 1;
    if (signal == SIGTERM) terminated = 1;
    if (signal == SIGTSTP) raise(SIGSTOP); // stop, as the default would
    errno = error;
}

static int run_sigs(char **arguments) {
    (void)arguments;
    struct sigaction action = {.sa_sigaction = print_signal, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    sigset_t none;
    sigemptyset(&none);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        // Not those of faults; and 32 to SIGRTMIN-1 belong to the C library.
        int fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
        if (!fault && (signal < 32 || signal >= SIGRTMIN)) sigaction(signal, &action, NULL);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (write(STDOUT_FILENO, "ready\n", 6) < 0) die_machine("cannot write: %s", strerror(errno));
    while (!terminated && now_s() < end_s) {
        double slice = now_s() + 0.02;
        sleep_until_s(slice < end_s ? slice : end_s);
    }
    if (!terminated) die_machine("sigs: no SIGTERM came in time; see --duration-ms");
    return EXIT_SUCCESS;
}

// ---- inherit

static int run_inherit(char **arguments) {
    (void)arguments;
    char name[24];
    const char *comma = "";
    // First, so that nothing opened here is counted.
    DIR *directory = opendir("/proc/self/fd");
    if (!directory) die_machine("cannot open /proc/self/fd: %s", strerror(errno));
    printf("{\"workload\":\"odd\",\"oddity\":\"inherit\",\"fds\":[");
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory)) continue;
        printf("%s%s", comma, entry->d_name);
        comma = ",";
    }
    closedir(directory);

    printf("],\"ignored\":[");
    comma = "";
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) || action.sa_handler != SIG_IGN) continue;
        printf("%s\"%s\"", comma, signal_name(signal, name));
        comma = ",";
    }
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    printf("],\"blocked\":[");
    comma = "";
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        if (sigismember(&blocked, signal) != 1) continue;
        printf("%s\"%s\"", comma, signal_name(signal, name));
        comma = ",";
    }
    int death_signal = 0;
    prctl(PR_GET_PDEATHSIG, &death_signal);
    mode_t mask = umask(0);
    umask(mask);
    cpu_set_t cpus = own_mask();
    printf("],\"pid\":%d,\"ppid\":%d,\"pgid\":%d,\"sid\":%d,\"nice\":%d,\"policy\":%d,\"umask\":%u,"
           "\"parent_death_signal\":%d,\"no_new_privs\":%d,\"mask\":", getpid(), getppid(), getpgrp(),
           getsid(0), getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), (unsigned)mask, death_signal,
           prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    json_cpus(stdout, &cpus);
    puts("}");
    return EXIT_SUCCESS;
}

// ---- memory-on

static int run_memory_on(char **arguments) {
    unsigned long node = 1UL << parse_u64("memory-on", arguments[0], 0, 62);
    if (!arguments[1]) die_input("memory-on: PROG is needed");
    // MPOL_BIND, of the thread, and kept over execve. The kernel takes the count of bits plus one.
    if (syscall(SYS_set_mempolicy, 2, &node, 64UL))
        die_machine("memory-on: set_mempolicy: %s; there may be no node %s", strerror(errno), arguments[0]);
    execvp(arguments[1], arguments + 1);
    die_machine("cannot execute %s: %s", arguments[1], strerror(errno));
}

// ----

static const struct oddity {
    const char *name, *argument, *what;
    int (*run)(char **arguments);
} oddities[] = {
    {"exec-nonleader", "PROG ARGS..", "a thread that is not the leader calls execve while others compute",
     run_exec_nonleader},
    {"leader-exit", NULL, "main calls pthread_exit, three workers go on; status 0", run_leader_exit},
    {"names", NULL, "threads with parentheses, a newline, UTF-8 and nothing as names", run_names},
    {"self-pin", "CPU", "a worker pins itself after 300 ms; status 1 if its mask is not kept",
     run_self_pin},
    {"rt", "PRIO", "a SCHED_FIFO thread, 40 % busy; status 1 if its mask was changed", run_rt},
    {"deadline", NULL, "a SCHED_DEADLINE thread, 40 % busy; status 1 as above", run_deadline},
    {"exit-status", "N", "exits with status N", run_exit_status},
    {"die-by", "SIG", "dies by this signal (name or number)", run_die_by},
    {"print-mask", NULL, "the masks of main and of a thread created a second later", run_print_mask},
    {"show-mask", NULL, "its mask, each time that it has changed; it hardly computes", run_show_mask},
    {"spawn-late", "N", "after 300 ms a child process with N computing threads", run_spawn_late},
    {"grow", "N", "main computes and after 300 ms, or at each sign, which it removes, starts a computing\n"
     "                             thread, in all N: the masks that they begin with", run_grow},
    {"relay", "N", "N threads of which two compute at a time, each 1 ms, then another in its place",
     run_relay},
    {"sigs", NULL, "prints \"ready\", then each signal received; status 0 at SIGTERM, 1 without",
     run_sigs},
    {"memory-on", "NODE PROG ARGS..", "PROG with all of its memory on that NUMA node", run_memory_on},
    {"inherit", NULL, "what it inherited: descriptors, signals, group, session, nice, mask", run_inherit},
};
enum { ODDITIES = sizeof oddities / sizeof *oddities };

static void help(void) {
    printf("Usage: %s SUBCOMMAND [OPTIONS] [ARGUMENT..]\n"
           "Does one unusual thing.\n\n"
           "  --duration-ms N  for N ms at most (default 2000)\n"
           "  --act-on FILE    not at its time, but once FILE exists\n"
           "  --end-on FILE    and ends once FILE exists\n\n", program_invocation_short_name);
    for (int i = 0; i < ODDITIES; i++) {
        char left[40];
        snprintf(left, sizeof left, "%s %s", oddities[i].name,
                 oddities[i].argument ? oddities[i].argument : "");
        printf("  %-26s %s\n", left, oddities[i].what);
    }
    printf("\nExample: %s self-pin 1 --duration-ms 1000\n", program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

// Reads the options up to the first other argument ("+") or all of them ("").
static double parse_options(int argc, char **argv, const char *order, double duration_ms) {
    static const struct option long_options[] = {
        {"duration-ms", required_argument, NULL, 'd'}, {"act-on", required_argument, NULL, 'a'},
        {"end-on", required_argument, NULL, 'e'},      {"help", no_argument, NULL, 'h'}, {0}};
    optind = 0; // start anew
    for (int c; (c = getopt_long(argc, argv, order, long_options, NULL)) != -1;) {
        switch (c) {
        case 'h': help(); break;
        case 'a': act_sign = optarg; break;
        case 'e': end_sign = optarg; break;
        case 'd':
            duration_ms = parse_double("--duration-ms", optarg, 1, 1e8);
            duration_given = 1;
            break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    return duration_ms;
}

int main(int argc, char **argv) {
    double duration_ms = parse_options(argc, argv, "+", 2000);
    if (optind == argc) die_input("a subcommand is needed");
    argc -= optind;
    argv += optind;
    const struct oddity *oddity = NULL;
    for (int i = 0; i < ODDITIES; i++)
        if (!strcmp(argv[0], oddities[i].name)) oddity = &oddities[i];
    if (!oddity) die_input("'%s' is not a subcommand", argv[0]);
    int takes_command = oddity->run == run_exec_nonleader || oddity->run == run_memory_on;
    duration_ms = parse_options(argc, argv, takes_command ? "+" : "", duration_ms);

    int given = argc - optind, wanted = oddity->argument ? 1 : 0;
    if (given < wanted) die_input("%s: %s is needed", oddity->name, oddity->argument);
    if (given > wanted && !takes_command)
        die_input("%s: '%s' is one argument too many", oddity->name, argv[optind + wanted]);
    start_s = now_s();
    end_s = start_s + duration_ms * 1e-3;
    int status = oddity->run(argv + optind);
    close_output(stdout);
    return status;
}

/* What programs do that spin, and that must go on as it would without breakpoints. The first argument says what; each says
 * `ready`, waits for a byte, and says `done` if all was as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what)                                                                            \
	do {                                                                                   \
		if (!(what)) {                                                                 \
			printf("line %d: %s, errno %d\n", __LINE__, #what, errno);             \
			exit(9);                                                               \
		}                                                                              \
	} while (0)

#if defined(FAR)
/* The jump back is one of six bytes. */
#define PAUSE() __asm__ volatile(".skip 130, 0x90")
#elif defined(PLAIN)
#define PAUSE()
#else
#define PAUSE __builtin_ia32_pause
#endif

static _Atomic int flag, arrived, turns, handled, trapped;

__attribute__((noipa, unused)) static int look(_Atomic int *what)
{
	return atomic_load(what);
}

__attribute__((noipa)) static void spin_while(_Atomic int *what, int is)
{
#if defined(CALLS)
	while (look(what) == is)
		;
#else
	while (atomic_load(what) == is)
		PAUSE();
#endif
}

static void ready(void)
{
	char byte;
	printf("ready\n");
	fflush(stdout);
	CHECK(read(0, &byte, 1) == 1);
}

static void sleep_ms(long ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	while (nanosleep(&time, &time))
		;
}

static pthread_t start(void *(*run)(void *))
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	return thread;
}

/* ---------------------------------------------------------------- meeting */

#define MEETINGS 3000
static int members;

static void meet(void)
{
	int now = atomic_load(&turns);
	if (atomic_fetch_add(&arrived, 1) + 1 == members) {
		atomic_store(&arrived, 0);
		atomic_fetch_add(&turns, 1);
	} else {
		spin_while(&turns, now);
	}
}

static void *meets(void *unused)
{
	for (int i = 0; i < MEETINGS; i++)
		meet();
	return unused;
}

static void meetings(int n)
{
	pthread_t threads[64];
	members = n;
	atomic_store(&turns, 0);
	for (int i = 0; i < n; i++)
		threads[i] = start(meets);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	CHECK(atomic_load(&turns) == MEETINGS);
}

static void barrier(void)
{
	ready();
	meetings(5);
}

/* A loop that looks like a wait, as it stores nothing itself: its register is another one in each turn. */
static int steps;

__attribute__((noipa)) static int step(int by)
{
	return steps += by;
}

__attribute__((noipa)) static void work(int until)
{
	while (step(1) != until)
		;
}

static void works(void)
{
	ready();
	work(100000);
	CHECK(steps == 100000);
}

/* ---------------------------------------------------------------- signals of the program */

static void *sets_flag(void *unused)
{
	sleep_ms(30);
	atomic_store(&flag, 1);
	return unused;
}

static void masks(void)
{
	sigset_t all, found;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &found) == 0 && sigismember(&found, SIGTRAP) && sigismember(&found, SIGUSR1));
	sigset_t trap;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	CHECK(sigprocmask(SIG_UNBLOCK, &trap, &found) == 0 && sigismember(&found, SIGTRAP));
	CHECK(sigprocmask(SIG_BLOCK, NULL, &found) == 0 && !sigismember(&found, SIGTRAP) && sigismember(&found, SIGUSR1));
	CHECK(sigprocmask(SIG_BLOCK, &trap, &found) == 0 && !sigismember(&found, SIGTRAP));
	CHECK(sigprocmask(SIG_BLOCK, NULL, &found) == 0 && sigismember(&found, SIGTRAP));
	ready();
	pthread_t other = start(sets_flag);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
}

/* The older calls. */
static void old_masks(void)
{
	sigset_t found;
	CHECK(sigblock(~0) == 0 && sigblock(0) & 1 << (SIGTRAP - 1));
	CHECK(sigsetmask(0) & 1 << (SIGTRAP - 1) && sigblock(0) == 0);
	CHECK(sighold(SIGTRAP) == 0 && sigprocmask(SIG_BLOCK, NULL, &found) == 0 && sigismember(&found, SIGTRAP));
	CHECK(sigrelse(SIGTRAP) == 0 && sigprocmask(SIG_BLOCK, NULL, &found) == 0 && !sigismember(&found, SIGTRAP));
	ready();
	sigblock(~0);
	sighold(SIGTRAP);
	pthread_t other = start(sets_flag);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
}

static void on_alarm(int signal)
{
	(void)signal;
	int before = atomic_load(&turns);
	atomic_store(&flag, 1);
	/* Until the other thread has taken notice. */
	spin_while(&turns, before);
	atomic_fetch_add(&handled, 1);
}

static void *notices(void *unused)
{
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	for (;;) {
		spin_while(&flag, 0);
		atomic_store(&flag, 0);
		atomic_fetch_add(&turns, 1);
		if (atomic_load(&turns) > 60)
			return unused;
	}
}

/* Handlers with all signals blocked that spin, and interrupt threads that spin. */
static void handlers(void)
{
	struct sigaction action = { .sa_handler = on_alarm }, found;
	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(sigaction(SIGALRM, NULL, &found) == 0 && found.sa_handler == on_alarm && sigismember(&found.sa_mask, SIGTRAP));
	pthread_t other = start(notices);
	ready();
	for (int i = 0; i < 50; i++) {
		struct itimerval timer = { .it_value = { 0, 1000 } };
		setitimer(ITIMER_REAL, &timer, NULL);
		spin_while(&handled, i);
	}
	while (atomic_load(&turns) <= 60)
		atomic_store(&flag, 1);
	pthread_join(other, NULL);
}

/* A handler on a stack of its own that spins, and so is interrupted there as well. */
static void alternative(void)
{
	static char stack[16384];
	stack_t at = { .ss_sp = stack, .ss_size = sizeof stack };
	CHECK(sigaltstack(&at, NULL) == 0);
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_ONSTACK };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	pthread_t other = start(notices);
	ready();
	for (int i = 0; i < 50; i++) {
		CHECK(raise(SIGALRM) == 0);
		CHECK(atomic_load(&handled) == i + 1);
	}
	while (atomic_load(&turns) <= 60)
		atomic_store(&flag, 1);
	pthread_join(other, NULL);
	stack_t found;
	CHECK(sigaltstack(NULL, &found) == 0 && found.ss_sp == stack && found.ss_size == sizeof stack);
}

static _Atomic int depth;

static void again(int signal)
{
	int before = atomic_load(&turns);
	if (atomic_fetch_add(&depth, 1) < 5)
		CHECK(raise(signal) == 0);
	atomic_store(&flag, 1);
	spin_while(&turns, before);
	atomic_fetch_add(&handled, 1);
}

/* Handlers that interrupt themselves (SA_NODEFER), and spin. */
static void reentered(void)
{
	struct sigaction action = { .sa_handler = again, .sa_flags = SA_NODEFER };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	pthread_t other = start(notices);
	ready();
	for (int i = 0; i < 8; i++) {
		atomic_store(&depth, 0);
		CHECK(raise(SIGALRM) == 0);
		CHECK(atomic_load(&handled) == 6 * (i + 1));
	}
	while (atomic_load(&turns) <= 60)
		atomic_store(&flag, 1);
	pthread_join(other, NULL);
}

static void on_profile(int signal)
{
	(void)signal;
	atomic_fetch_add(&handled, 1);
}

/* A profiler by timers of CPU time interrupts threads that meet. */
static void profiled(void)
{
	struct sigaction action = { .sa_handler = on_profile, .sa_flags = SA_RESTART };
	struct itimerval each = { .it_interval = { 0, 1000 }, .it_value = { 0, 1000 } }, never = { 0 };
	CHECK(sigaction(SIGPROF, &action, NULL) == 0 && sigaction(SIGVTALRM, &action, NULL) == 0);
	ready();
	CHECK(setitimer(ITIMER_PROF, &each, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &each, NULL) == 0);
	meetings(5);
	CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &never, NULL) == 0);
	CHECK(atomic_load(&handled) > 0);
}

static void *sends(void *unused)
{
	for (int i = 0; i < 50; i++) {
		CHECK(kill(getpid(), SIGUSR1) == 0);
		spin_while(&handled, i);
	}
	return unused;
}

/* All signals are blocked by all threads, and taken by sigwait, then from a file. */
static void accepted(void)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	int file = signalfd(-1, &all, SFD_CLOEXEC), found;
	pthread_t other = start(sends);
	ready();
	for (int i = 0; i < 50; i++) {
		struct signalfd_siginfo info = { 0 };
		if (i % 2)
			CHECK(read(file, &info, sizeof info) == sizeof info);
		else
			CHECK(sigwait(&all, &found) == 0);
		CHECK((i % 2 ? (int)info.ssi_signo : found) == SIGUSR1);
		/* Until then the other one spins. */
		sleep_ms(1);
		atomic_fetch_add(&handled, 1);
	}
	pthread_join(other, NULL);
}

/* It is stopped and goes on, as by a shell. */
static void stopped(void)
{
	pid_t self = getpid();
	ready();
	pid_t child = fork();
	CHECK(child >= 0);
	for (int i = 0; i < 20 && !child; i++) {
		kill(self, SIGSTOP);
		sleep_ms(1);
		kill(self, SIGCONT);
		sleep_ms(1);
	}
	if (!child)
		_exit(0);
	meetings(5);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)context;
	CHECK(signal == SIGTRAP && (info->si_code == SI_KERNEL || info->si_code == SI_TKILL));
	sigset_t found;
	pthread_sigmask(SIG_BLOCK, NULL, &found);
	CHECK(sigismember(&found, SIGUSR2));
	atomic_fetch_add(&trapped, 1);
}

static void own_handler(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO }, found;
	sigaddset(&action.sa_mask, SIGUSR2);
	CHECK(sigaction(SIGTRAP, &action, &found) == 0 && found.sa_handler == SIG_DFL);
	ready();
	__asm__ volatile("int3");
	CHECK(raise(SIGTRAP) == 0);
	CHECK(atomic_load(&trapped) == 2);
	pthread_t other = start(sets_flag);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
	CHECK(sigaction(SIGTRAP, NULL, &found) == 0 && found.sa_sigaction == on_trap);
	CHECK(signal(SIGTRAP, SIG_IGN) == (void (*)(int))on_trap && raise(SIGTRAP) == 0);
	CHECK(signal(SIGTRAP, SIG_DFL) == SIG_IGN);
}

static void spins_then(int signal)
{
	(void)signal;
	pthread_t other = start(sets_flag);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
	atomic_fetch_add(&trapped, 1);
}

/* A handler of SIGTRAP that is set late, blocks all signals, and spins. */
static void late_handler(void)
{
	ready();
	struct sigaction action = { .sa_handler = spins_then };
	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	__asm__ volatile("int3");
	CHECK(atomic_load(&trapped) == 1);
}

static void dies(void)
{
	ready();
	__asm__ volatile("int3");
}

static void dies_if_sent(void)
{
	ready();
	raise(SIGTRAP);
}

/* ---------------------------------------------------------------- threads and processes */

static int spins_alone(void *unused)
{
	(void)unused;
	spin_while(&flag, 0);
	atomic_store(&turns, 1);
	syscall(SYS_exit, 0);
	return 0;
}

/* A thread that the C library does not know, without storage of its own. */
static void cloned(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
	ready();
	CHECK(clone(spins_alone, stack + sizeof stack, flags, NULL) > 0);
	sleep_ms(30);
	atomic_store(&flag, 1);
	spin_while(&turns, 0);
}

/* Under a debugger. */
static void traced(void)
{
	int pipes[2];
	CHECK(pipe(pipes) == 0);
	pid_t parent = getpid(), child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char is_there = ptrace(PTRACE_SEIZE, parent, NULL, NULL) == 0;
		CHECK(write(pipes[1], &is_there, 1) == 1);
		for (;;)
			pause();
	}
	/* Where only those that it names may. */
	prctl(PR_SET_PTRACER, child, 0, 0, 0);
	char is_there = 0;
	CHECK(read(pipes[0], &is_there, 1) == 1 && is_there);
	ready();
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* A debugger takes each trap, as it knows no breakpoint there, and has the thread go on. After a hundred it says that the wait is
 * over, and lets the program go when that has seen it. */
static void take_traps(pid_t of)
{
	int status, taken = 0;
	CHECK(ptrace(PTRACE_SEIZE, of, NULL, NULL) == 0);
	while (waitpid(of, &status, __WALL) == of && WIFSTOPPED(status)) {
		int sent = WSTOPSIG(status);
		if (sent == SIGTRAP && ++taken == 100)
			CHECK(ptrace(PTRACE_POKEDATA, of, &flag, (void *)1) == 0);
		if (sent == SIGUSR1) {
			CHECK(ptrace(PTRACE_DETACH, of, NULL, NULL) == 0);
			_exit(taken >= 100 ? 0 : 9);
		}
		ptrace(PTRACE_CONT, of, NULL, (void *)(long)(sent == SIGTRAP ? 0 : sent));
	}
	_exit(9);
}

/* As libgfortran's, which prints where it came from. */
static void dies_here(int signal)
{
	_exit(signal);
}

static void debugged(void)
{
	CHECK(signal(SIGILL, dies_here) == SIG_DFL);
	int pipes[2], status;
	char byte = 0;
	CHECK(pipe(pipes) == 0);
	/* Without breakpoints of its own it would take none. */
	ready();
	pid_t parent = getpid(), child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(read(pipes[0], &byte, 1) == 1);
		take_traps(parent);
	}
	prctl(PR_SET_PTRACER, child, 0, 0, 0);
	CHECK(write(pipes[1], &byte, 1) == 1);
	spin_while(&flag, 0);
	CHECK(raise(SIGUSR1) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void skips(int signal, siginfo_t *info, void *context)
{
	CHECK(signal == SIGILL && info->si_code > 0);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
	handled++;
}

/* The program's own use of the signal of the guard. */
static void illegal(void)
{
	struct sigaction before, own = { .sa_sigaction = skips, .sa_flags = SA_SIGINFO | SA_RESETHAND };
	CHECK(sigaction(SIGILL, NULL, &before) == 0 && before.sa_handler == SIG_DFL && before.sa_flags == 0);
	ready();
	CHECK(signal(SIGILL, SIG_IGN) == SIG_DFL && signal(SIGILL, SIG_DFL) == SIG_IGN);
	CHECK(sigaction(SIGILL, &own, NULL) == 0);
	__asm__ volatile("ud2");
	CHECK(handled == 1 && sigaction(SIGILL, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
	spin_while(&flag, 1);
}

static void dies_of_an_instruction(void)
{
	ready();
	__builtin_trap();
}

static void dies_of_being_sent_one(void)
{
	ready();
	raise(SIGILL);
}

static void forks(void)
{
	ready();
	for (int depth = 0; depth < 3; depth++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			meetings(3);
			continue;
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		if (depth > 0)
			exit(0);
		return;
	}
	exit(0);
}

static void executes(const char *self)
{
	ready();
	pid_t child = vfork();
	if (child == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	meetings(3);
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	execl(self, self, "barrier", NULL);
	CHECK(0);
}

static sigjmp_buf away;

static void jump(int signal)
{
	(void)signal;
	siglongjmp(away, 1);
}

static void jumps(void)
{
	static volatile int jumped;
	signal(SIGALRM, jump);
	ready();
	if (sigsetjmp(away, 1))
		jumped++;
	if (jumped < 50) {
		struct itimerval timer = { .it_value = { 0, 2000 } };
		setitimer(ITIMER_REAL, &timer, NULL);
		spin_while(&flag, 0);
	}
	CHECK(jumped == 50);
	meetings(3);
}

static void *spins_for_ever(void *unused)
{
	int type;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	spin_while(&flag, 0);
	return unused;
}

static void cancelled(void)
{
	ready();
	for (int i = 0; i < 20; i++) {
		pthread_t thread = start(spins_for_ever);
		sleep_ms(3);
		CHECK(pthread_cancel(thread) == 0);
		void *result;
		CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	}
}

static _Atomic int holds;

static void *holds_and_spins(void *unused)
{
	atomic_store(&holds, 1);
	spin_while(&flag, 0);
	/* A thread that is cancelled in the loop never gives it back. */
	atomic_store(&holds, 0);
	pthread_testcancel();
	return unused;
}

/* No thread is cancelled in a loop that has no place for that. */
static void deferred(void)
{
	pthread_t thread = start(holds_and_spins);
	printf("ready\n");
	fflush(stdout);
	sleep_ms(1);
	CHECK(pthread_cancel(thread) == 0);
	char byte;
	CHECK(read(0, &byte, 1) == 1);
	atomic_store(&flag, 1);
	void *result;
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && !atomic_load(&holds));
}

static void small(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
	ready();
	CHECK(pthread_create(&thread, &attributes, spins_for_ever, NULL) == 0);
	sleep_ms(30);
	atomic_store(&flag, 1);
	pthread_join(thread, NULL);
}

static void *in_calls(void *unused)
{
	struct timespec time = { .tv_nsec = 100000000 }, until;
	CHECK(nanosleep(&time, NULL) == 0);
	CHECK(poll(NULL, 0, 100) == 0);
	sem_t never;
	sem_init(&never, 0, 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	CHECK(sem_timedwait(&never, &until) == -1 && errno == ETIMEDOUT);
	sigset_t all;
	sigfillset(&all);
	time.tv_nsec = 100000000;
	CHECK(sigtimedwait(&all, NULL, &time) == -1 && errno == EAGAIN);
	atomic_store(&flag, 1);
	return unused;
}

/* No call of a thread ends early because another spins. */
static void calls(void)
{
	ready();
	pthread_t thread = start(in_calls), spinning = start(spins_for_ever);
	spin_while(&flag, 0);
	pthread_join(thread, NULL);
	pthread_join(spinning, NULL);
}

/* ---------------------------------------------------------------- what evenly leaves alone */

static void blocked(void)
{
	unsigned long all = ~0ul;
	CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8) == 0);
	ready();
	pthread_t other = start(sets_flag);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
}

static void filtered(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { .len = 1, .filter = &allow };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	ready();
}

/* A filter that ends what sleeps or opens files: the process has to be as it was before it. */
static void late_filter(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };
	ready();
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	pthread_t other = start(sets_flag);
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
}

static ucontext_t here, there;

static void routine(void)
{
	for (int i = 0;; i++) {
		spin_while(&turns, i);
		CHECK(swapcontext(&there, &here) == 0);
	}
}

/* Routines on stacks of their own, between which a thread changes. */
static void contexts(void)
{
	static char stack[16384];
	ready();
	members = 2;
	pthread_t other = start(meets);
	CHECK(getcontext(&there) == 0);
	there.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = sizeof stack };
	makecontext(&there, routine, 0);
	for (int i = 0; i < MEETINGS; i++) {
		meet();
		CHECK(swapcontext(&here, &there) == 0);
	}
	pthread_join(other, NULL);
}

/* It spins until a byte comes. */
static void *reads(void *unused)
{
	char byte;
	CHECK(read(0, &byte, 1) == 1);
	atomic_store(&flag, 1);
	return unused;
}

static void waits(void)
{
	pthread_t other = start(reads);
	printf("ready\n");
	fflush(stdout);
	spin_while(&flag, 0);
	pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{ "barrier", barrier }, { "masks", masks }, { "handlers", handlers }, { "own_handler", own_handler },
		{ "dies", dies }, { "dies_if_sent", dies_if_sent }, { "forks", forks }, { "jumps", jumps },
		{ "cancelled", cancelled }, { "small", small }, { "calls", calls }, { "blocked", blocked },
		{ "filtered", filtered }, { "waits", waits }, { "alternative", alternative }, { "reentered", reentered },
		{ "cloned", cloned }, { "traced", traced }, { "debugged", debugged }, { "illegal", illegal },
		{ "dies_of_an_instruction", dies_of_an_instruction }, { "dies_of_being_sent_one", dies_of_being_sent_one }, { "works", works }, { "old_masks", old_masks }, { "late_handler", late_handler },
		{ "deferred", deferred }, { "late_filter", late_filter }, { "profiled", profiled }, { "accepted", accepted },
		{ "stopped", stopped }, { "contexts", contexts },
	};
	CHECK(argc == 2);
	if (!strcmp(argv[1], "executes"))
		executes(argv[0]);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(argv[1], all[i].name)) {
			all[i].run();
			printf("done\n");
			return 0;
		}
	return 8;
}

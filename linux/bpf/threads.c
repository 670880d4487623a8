// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the scheduler does with the threads of a program, kept in an array that evenly maps and reads
// (--source bpf): for each thread the CPU time that it had, how long it waited for a CPU, how long it was
// blocked, where it is, and since when.
//
// Invariants:
// - Nothing is decided or changed here, and nothing but evenly's own two maps is written.
// - CPU time and waiting are the kernel's own counts, as /proc/PID/task/TID/schedstat shows them, taken at
//   the moment at which they are right; what has come on top since then is known from `since`. So a reading
//   by this source can be compared with one by another.
// - An account is written by one CPU at a time: the writer holds the lock of the run queue that the
//   thread is on (all programs below but the last two, which only set `ended`). A reader looks at
//   `seq` before and after: odd, or another, and it was being written.
//
// Only the fields of the kernel's structures that are used are declared here: where they really are is
// looked up in the running kernel's type information when this is loaded (CO-RE). Neither the kernel's
// headers nor those of libbpf are needed to compile it.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))
#define ALWAYS static inline __attribute__((always_inline))

// uapi/linux/bpf.h
enum { MAP_HASH = 1, MAP_ARRAY = 2 };
enum { MMAPABLE = 1 << 10 };
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime_get_ns)(void) = (void *)5;
static u32 (*smp_processor_id)(void) = (void *)8;
static u64 (*current_pid_tgid)(void) = (void *)14;

struct sched_entity {
    u64 sum_exec_runtime;
} RELOCATED;

struct sched_info {
    unsigned long pcount;
    unsigned long long run_delay;
} RELOCATED;

struct task_struct {
    u32 __state;
    int pid;
    struct sched_entity se;
    struct sched_info sched_info;
} RELOCATED;

// A thread that will never run again (include/linux/sched.h).
enum { TASK_DEAD = 0x80 };

// What a thread does. The numbers are those of linux/src/read/bpf.rs.
enum { UNSEEN, RUNNING, QUEUED, BLOCKED };

// The account of one thread: one cache line. linux/src/read/bpf.rs has the same.
struct slot {
    u32 seq;
    u32 tid;
    u32 state;
    // The one that it ran on last.
    u32 cpu;
    // The thread has ended, or goes by another number.
    u32 ended;
    u32 unused;
    // Until when what follows is counted, on CLOCK_MONOTONIC: from then on a running thread runs, a queued
    // one waits, and a blocked one is blocked.
    u64 since;
    // CPU time and waiting since the thread started, in nanoseconds, and how often it was given a CPU.
    u64 ran;
    u64 waited;
    u64 slices;
    // For how long it was blocked since it was seen first.
    u64 blocked;
};

// How many there are is said when this is loaded.
struct {
    int (*type)[MAP_ARRAY];
    int (*map_flags)[MMAPABLE];
    int (*max_entries)[1];
    u32 *key;
    struct slot *value;
} slots SEC(".maps");

// The slot of each thread that is watched, by its number. Evenly adds threads.
struct {
    int (*type)[MAP_HASH];
    int (*max_entries)[1];
    u32 *key;
    u32 *value;
} slot_of SEC(".maps");

// The kernel lets only such programs read its structures.
char terms[] SEC("license") = "Dual MIT/GPL";

ALWAYS struct slot *find(u32 tid)
{
    // The idle thread of a CPU.
    if (!tid)
        return 0;
    u32 *index = map_lookup(&slot_of, &tid);
    if (!index)
        return 0;
    u32 i = *index;
    struct slot *slot = map_lookup(&slots, &i);
    // An entry of the hash table can be used anew while it is looked at.
    return slot && slot->tid == tid ? slot : 0;
}

// These atomics return what was there before, which makes them full barriers (instruction_set.rst), on
// CPUs as well that store in another order than the program's.
ALWAYS void begin(struct slot *slot)
{
    // Odd, also where a writer of long ago, to whom the slot no longer belongs, left it odd.
    volatile u32 before = __sync_fetch_and_or(&slot->seq, 1);
    (void)before;
}

ALWAYS void end(struct slot *slot)
{
    volatile u32 before = __sync_fetch_and_add(&slot->seq, 1);
    (void)before;
}

// What has passed since `since` in the state that ends now, where no count of the kernel has it.
ALWAYS void close(struct slot *slot, u64 now)
{
    if (now <= slot->since)
        return;
    if (slot->state == QUEUED)
        slot->waited += now - slot->since;
    else if (slot->state == BLOCKED)
        slot->blocked += now - slot->since;
}

// Arguments of all kernels: preempt, prev, next.
SEC("tp_btf/sched_switch")
int evenly_switch(u64 *arguments)
{
    struct task_struct *prev = (void *)arguments[1];
    struct task_struct *next = (void *)arguments[2];
    u64 now = ktime_get_ns();

    struct slot *slot = find(prev->pid);
    if (slot) {
        u32 state = prev->__state;
        begin(slot);
        slot->ran = prev->se.sum_exec_runtime;
        slot->waited = prev->sched_info.run_delay;
        slot->slices = prev->sched_info.pcount;
        // One that is preempted on its way to sleep stays in the queue for now.
        slot->state = !state || arguments[0] ? QUEUED : BLOCKED;
        slot->cpu = smp_processor_id();
        slot->since = now;
        if (state & TASK_DEAD)
            slot->ended = 1;
        end(slot);
    }
    slot = find(next->pid);
    if (slot) {
        begin(slot);
        // The kernel adds this wait to its own count in a moment.
        if (slot->state != QUEUED)
            slot->waited = next->sched_info.run_delay;
        close(slot, now);
        slot->ran = next->se.sum_exec_runtime;
        slot->slices = next->sched_info.pcount + 1;
        slot->state = RUNNING;
        slot->cpu = smp_processor_id();
        slot->since = now;
        end(slot);
    }
    return 0;
}

ALWAYS int woken(struct task_struct *task)
{
    struct slot *slot = find(task->pid);
    // A thread that wakes itself has not slept yet: it is not in a queue, and no lock is held.
    if (!slot || (u32)current_pid_tgid() == (u32)task->pid)
        return 0;
    if (slot->state != BLOCKED && slot->state != UNSEEN)
        return 0;
    u64 now = ktime_get_ns();
    begin(slot);
    close(slot, now);
    slot->ran = task->se.sum_exec_runtime;
    slot->waited = task->sched_info.run_delay;
    slot->slices = task->sched_info.pcount;
    slot->state = QUEUED;
    slot->since = now;
    end(slot);
    return 0;
}

SEC("tp_btf/sched_wakeup")
int evenly_wakeup(u64 *arguments)
{
    return woken((void *)arguments[0]);
}

SEC("tp_btf/sched_wakeup_new")
int evenly_wakeup_new(u64 *arguments)
{
    return woken((void *)arguments[0]);
}

// The kernel counts CPU time: at least once a tick, also for a thread that has a CPU to itself and is
// never switched. Its clock may leave out time that a hypervisor or interrupts took.
SEC("tp_btf/sched_stat_runtime")
int evenly_runtime(u64 *arguments)
{
    struct task_struct *task = (void *)arguments[0];
    struct slot *slot = find(task->pid);
    if (!slot || (slot->state != RUNNING && slot->state != UNSEEN))
        return 0;
    begin(slot);
    if (slot->state == UNSEEN) {
        slot->waited = task->sched_info.run_delay;
        slot->slices = task->sched_info.pcount;
        slot->state = RUNNING;
    }
    slot->ran = task->se.sum_exec_runtime;
    slot->since = ktime_get_ns();
    end(slot);
    return 0;
}

ALWAYS int over(u32 tid)
{
    struct slot *slot = find(tid);
    if (slot) {
        map_delete(&slot_of, &tid);
        slot->ended = 1;
    }
    return 0;
}

SEC("tp_btf/sched_process_exit")
int evenly_exit(u64 *arguments)
{
    struct task_struct *task = (void *)arguments[0];
    return over(task->pid);
}

// A thread that is not the first of its process takes over that one's number.
SEC("tp_btf/sched_process_exec")
int evenly_exec(u64 *arguments)
{
    struct task_struct *task = (void *)arguments[0];
    u32 before = (u32)arguments[1];
    return before != (u32)task->pid ? over(before) : 0;
}

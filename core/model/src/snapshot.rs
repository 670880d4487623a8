//! What is observed at one balancing point of one domain.

use crate::{CpuId, CpuSet, Environment, Nanos, NodeIndex, Pid, ThreadId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Index of a thread in [`Snapshot::threads`].
pub type ThreadIndex = usize;
/// Index of a CPU in [`Snapshot::cpus`].
pub type CpuIndex = usize;

/// How a thread computes and waits in turns, by its own report, since it was registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Turns {
    /// Barriers, collectives and ends of parallel regions that it has reached.
    pub phases: u64,
    /// Waits of all kinds that it has begun.
    pub waits: u64,
    /// For how long it had nothing to wait for, whether it had a CPU or stood in a queue for one.
    pub runnable: Nanos,
    /// For how long it has waited for others.
    pub waited: Nanos,
    /// CPU time in which it computed.
    pub computed: Nanos,
    /// CPU time in which it only waited for others.
    pub spun: Nanos,
}

/// Memory of a process that is to be moved from one NUMA node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryMove {
    /// The process whose memory is to go.
    pub process: Pid,
    /// From this node, by its place in [`crate::Knowledge::nodes`].
    pub from: NodeIndex,
    /// The NUMA node that it goes to.
    pub to: NodeIndex,
}

/// One compute thread at a balancing point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThreadView {
    /// The thread, by its id and start time.
    pub id: ThreadId,
    /// The CPU it sits on: an index into [`Snapshot::cpus`]; not less than their number where it is on none of
    /// them, because its CPU was lost or the kernel has put it outside the domain.
    pub cpu: CpuIndex,
    /// Total progress since balancing began, P of the paper (section 2.1), in nanoseconds of CPU
    /// time on a CPU of full capacity. Signed: a thread that joins late starts at the mean of the others, and only
    /// differences count.
    pub progress: i64,
    /// CPU time received in the last period.
    pub ran: Nanos,
    /// Time spent runnable but waiting for its CPU in the last period.
    pub waited: Nanos,
    /// Time spent blocked in the last period.
    pub blocked: Nanos,
    /// Of `ran` and `waited` together, the time in which it only waited for others, by its own
    /// report: it spun, or wanted a CPU in order to spin. Zero where it reports nothing.
    pub spinning: Nanos,
    /// Its report of its turns, if it makes one.
    pub turns: Option<Turns>,
    /// Whether a plan may move it; false for a thread that has set its own affinity, and for
    /// real-time and deadline threads.
    pub movable: bool,
    /// Index into [`Snapshot::masks`]: where it may run (promise P1).
    pub mask: usize,
}

/// CPU time that a thread spent spinning which ran, waited for a CPU, and for a part of both only waited for
/// others. The kernel does not know what a thread does: of its CPU time it is the same part.
#[must_use]
pub fn spun(ran: Nanos, waited: Nanos, spinning: Nanos) -> Nanos {
    let wanted = (ran + waited).0.max(1);
    let spun = u128::from(ran.0) * u128::from(spinning.0) / u128::from(wanted);
    Nanos(u64::try_from(spun).unwrap_or(u64::MAX).min(ran.0))
}

impl ThreadView {
    /// Time in which it wanted a CPU in order to compute.
    #[must_use]
    pub fn demand(&self) -> Nanos {
        self.ran + self.waited - self.spinning
    }

    /// CPU time that it spent spinning.
    #[must_use]
    pub fn spun(&self) -> Nanos {
        spun(self.ran, self.waited, self.spinning)
    }

    /// CPU time in which it computed.
    #[must_use]
    pub fn computed(&self) -> Nanos {
        self.ran - self.spun()
    }
}

/// What a thread is in its program, for policies that look at memory and communication.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskView {
    /// The process that the thread belongs to.
    pub process: Pid,
    /// The number of its rank, or its own where threads are numbered: the number of its task in
    /// [`crate::Knowledge::profile`].
    pub number: Option<u64>,
    /// Bytes that its process has in memory; 0 where that is not known.
    pub process_bytes: f64,
    /// CPU time that it has computed for in all, waiting not included, where it reports that itself.
    pub computed: Option<Nanos>,
}

/// What a thread has sent to another, as the program counts it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkView {
    /// The thread that sends.
    pub from: ThreadIndex,
    /// The thread that receives.
    pub to: ThreadIndex,
    /// How many messages there were so far.
    pub messages: f64,
    /// Bytes of all of them.
    pub bytes: f64,
}

/// Where a process has memory of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryView {
    /// The process whose memory it is.
    pub process: Pid,
    /// Bytes on each of [`crate::Knowledge::nodes`], in their order.
    pub on: Vec<f64>,
    /// Bytes on nodes that are not among them, because they have no CPUs.
    pub elsewhere: f64,
}

/// The capacity of the fastest CPUs of a machine, in the kernel's unit.
pub const FULL_CAPACITY: u32 = 1024;

/// One CPU at a balancing point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuView {
    /// The CPU, by its number on the system.
    pub id: CpuId,
    /// Its speed when it has nothing else to do, of [`FULL_CAPACITY`] (the kernel's cpu_capacity).
    pub capacity: u32,
    /// Compute threads of this program on it.
    pub threads: u32,
    /// Mean progress rate of its threads over the last period, of the time in which they wanted
    /// to run: sum of CPU time over sum of CPU time and waiting, both without what they spun
    /// ([`ThreadView::spinning`]). 1 is a thread alone, whatever the
    /// capacity of the CPU, which a policy multiplies it by to compare CPUs. None where
    /// no thread wanted this CPU to compute. This is the paper's speed (section 2.1) with blocked time
    /// discounted per thread, from its own waiting time.
    pub speed: Option<f64>,
}

/// The state of one domain at one balancing point: all that a policy may look at.
///
/// What is costly to find out ([`Snapshot::memory`], [`Snapshot::links`], sizes of processes and what ranks
/// have computed) is there at the first point, and where the plan before asked for it ([`crate::Plan::asks`]).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// 0 where all threads are to be placed anew: at the beginning, and until it is done after threads have
    /// joined, CPUs have changed, a pause has ended or threads are to be pinned again. Else the number of
    /// the balancing point, at least 1; at points in a pause no policy is asked.
    pub point: u64,
    /// The time of the snapshot, by a clock that never goes back.
    pub now: Nanos,
    /// Length of the last period as it really was.
    pub elapsed: Nanos,
    /// What one reading may be wrong by: the tick, after which the kernel accounts for a running
    /// thread. Smaller differences in progress are noise.
    pub resolution: Nanos,
    /// The compute threads of the domain, in the order in which they joined it. Where one leaves, the indices
    /// of those after it change: from point to point a thread is known by [`ThreadView::id`].
    pub threads: Vec<ThreadView>,
    /// The CPUs of the domain that can be used now, in the order of their numbers.
    pub cpus: Vec<CpuView>,
    /// The distinct sets of CPUs where threads may run, as flags over `cpus`.
    pub masks: Vec<Vec<bool>>,
    /// Whether threads stay where they are put, so that one that is put beside another stays there.
    pub held: bool,
    /// Threads that other balancers, which were there first, place on each of `cpus`. Empty where
    /// there are none.
    pub taken: Vec<u32>,
    /// Threads of programs without evenly that compute on each of `cpus`, and are to be counted with those of the program.
    /// Empty where there are none.
    pub others: Vec<u32>,
    /// What each of `threads` is in its program. Empty where no policy asks
    /// ([`crate::Knowledge`]).
    pub tasks: Vec<TaskView>,
    /// How much each has sent to each so far. None where the program does not report it, or was not asked just
    /// now ([`TaskView::computed`] neither).
    pub links: Option<Vec<LinkView>>,
    /// Where processes have their memory, of those that were looked at just now. Empty at most points,
    /// because that is costly, and on a machine with one node.
    pub memory: Vec<MemoryView>,
    /// Memory that was to be moved by plans before, and stays where it is, or most of it.
    pub stayed: Vec<MemoryMove>,
    /// What is known beside.
    pub environment: Arc<Environment>,
}

impl CpuView {
    /// Progress per CPU time on it, relative to a CPU of full capacity.
    #[must_use]
    pub fn weight(&self) -> f64 {
        f64::from(self.capacity) / f64::from(FULL_CAPACITY)
    }
}

impl Snapshot {
    /// Whether the thread may run on the CPU.
    #[must_use]
    pub fn allows(&self, thread: ThreadIndex, cpu: CpuIndex) -> bool {
        self.threads
            .get(thread)
            .and_then(|t| self.masks.get(t.mask))
            .and_then(|m| m.get(cpu))
            .copied()
            .unwrap_or(false)
    }

    /// Whether threads are held beside others, more of them on some CPUs than on others.
    #[must_use]
    pub fn is_held_unevenly(&self) -> bool {
        let all = self.threads.len() + self.others.iter().sum::<u32>() as usize;
        self.held && !self.others.is_empty() && !all.is_multiple_of(self.cpus.len())
    }

    /// Mean progress of all threads; 0 where there are none.
    #[must_use]
    pub fn mean_progress(&self) -> f64 {
        if self.threads.is_empty() {
            return 0.0;
        }
        self.threads.iter().map(|t| t.progress as f64).sum::<f64>() / self.threads.len() as f64
    }

    /// The CPUs as a set.
    #[must_use]
    pub fn cpu_set(&self) -> CpuSet {
        self.cpus.iter().map(|c| c.id).collect()
    }
}

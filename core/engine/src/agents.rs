//! Those that act between two points of a [`crate::Balancer`].
//!
//! An [`Agent`] is woken at moments of its own: the balancer of one CPU (`secretary`), or the helper of one CPU that
//! moves a thread within a phase (`phase`). It is a state machine: whoever runs it asks what it does next, lets it act,
//! and wakes it when it wants. There is one runner live, and one in the simulator.
//!
//! ```text
//!             +---------------------- Again, or after Act ---------------------+
//!             v                                                                |
//!   woken --> next --+--> Again -----------------------------------------------+
//!                    +--> Act --> act, unless another changes masks just now --+
//!                    +--> Sleep: woken at that time
//!                    +--> Rest: woken when it is called
//! ```
//!
//! To the [`crate::Balancer`], which stays the caretaker of the domain, all of them together are its [`Agents`]. It takes
//! care of membership, spreading, pauses and the account, lets its agents move threads, and asks them at each of its
//! points what they have read and done.

use crate::machine::Failure;
use crate::{CostBreakdown, Machine, MoveRecord, Reader, Reading, Times};
use evenly_model::{CpuId, CpuSet, CpuView, Effort, Nanos, Pid, ThreadId};
use std::sync::Arc;

/// What an agent does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It goes on at once: it has only looked.
    Again,
    /// [`Agent::act`] is to be called, and then [`Agent::next`] in any case.
    Act,
    /// Nothing until then: it is woken in any case.
    Sleep(Nanos),
    /// Nothing until it is called.
    Rest,
}

/// How an agent is run.
pub enum Manner {
    /// A few threads serve all of them, wherever these run. One that cannot act at once does not act.
    Together,
    /// It has a thread of its own, which runs on the CPU that it serves, before others there. If it cannot act at once it
    /// waits.
    OnItsCpu(Arc<dyn Remote>),
}

/// One that acts between two points of the [`crate::Balancer`] of its domain.
///
/// Invariant: between two calls of [`Agent::next`] that end in [`Next::Again`] at most one thread of another CPU is read, so
/// that in virtual time others do something between.
pub trait Agent: Send {
    /// The CPU that it serves.
    fn cpu(&self) -> CpuId;

    /// What it does next, by what it sees through `machine`. Asked when it begins, when it is woken, and after it has gone on
    /// or acted.
    fn next(&mut self, machine: &mut dyn Reader) -> Next;

    /// Does what it wanted to. `machine` is what the caretaker changes masks through, so that it cannot be at work now.
    fn act(&mut self, machine: &mut dyn Machine);

    /// Its runner has spent so much CPU time on it since this was said last.
    fn took(&mut self, time: Nanos);

    /// Whether there is something to do for one that rests.
    fn is_called(&self) -> bool;

    /// Waits until it is called, for a fraction of a second at most; whether it was. For one with a thread of its own.
    fn wait(&self) -> bool {
        self.is_called()
    }

    /// Whether it asks for a point of the caretaker before the next is due.
    fn calls(&self) -> bool {
        false
    }

    /// How it is run.
    fn manner(&self) -> Manner;
}

/// What other threads do to an agent that has a thread of its own.
pub trait Remote: Send + Sync {
    /// Calls the agent: it waits no longer.
    fn call(&self);

    /// The agents of the domain do nothing from now on. Waits for nothing that one of them can hold.
    fn switch_off(&self);
}

/// All agents of a domain, as its [`crate::Balancer`] sees them.
///
/// Threads are named by their ids; of one that has not joined there is nothing to report.
pub trait Agents: Send {
    /// How many of their periods lie between two points of the balancer.
    fn periods_between_points(&self) -> f64;

    /// Whether what they cost depends on their period, which is then lengthened to keep the budget. Else they keep
    /// a part of it themselves.
    fn cost_by_period(&self) -> bool {
        true
    }

    /// A point begins. Their period is `period` from now on. Returns what they have done since the last
    /// point; the moves only where the last point asked to keep them, as this one does by `keep_moves`.
    fn begin_point(&mut self, period: Nanos, keep_moves: bool) -> Done;

    /// The CPU on which they have a thread; None where it is on none of theirs.
    fn place(&self, thread: ThreadId) -> Option<CpuId>;

    /// The last reading of a thread, and when it was made. A thread that they have not read lately is read
    /// through `machine`.
    fn read(&self, machine: &mut dyn Reader, thread: ThreadId, now: Nanos) -> (Reading, Nanos);

    /// The progress of a thread, by the CPUs on which it was.
    fn progress(&self, thread: ThreadId) -> Option<i64>;

    /// What a thread is expected to compute until all meet again, by what it took before; None where that is not known.
    fn expected(&self, thread: ThreadId) -> Option<Nanos> {
        let _ = thread;
        None
    }

    /// How often they have moved a thread.
    fn migrations(&self, thread: ThreadId) -> u64;

    /// The speed of a CPU, from 0 to 1 whatever its capacity; None where it has no thread.
    fn speed(&self, cpu: CpuId) -> Option<f64>;

    /// A thread joins, with its mask within the domain and its times as they were read `at` that time.
    /// Without `progress` it begins at the mean of the others. Returns its progress.
    fn join(
        &mut self,
        thread: ThreadId,
        mask: Arc<CpuSet>,
        times: Times,
        at: Nanos,
        progress: Option<i64>,
    ) -> i64;

    /// A thread leaves: they no longer move it. Returns how often they have.
    fn leave(&mut self, thread: ThreadId) -> u64;

    /// Where a thread is now, and whether they may move it.
    fn put(&mut self, thread: ThreadId, cpu: Option<CpuId>, movable: bool);

    /// The CPUs that can be used from now on, sorted.
    fn set_cpus(&mut self, usable: &[CpuView]);

    /// The threads from now on.
    fn set_threads(&mut self, threads: &mut dyn Iterator<Item = ThreadId>);

    /// Threads are compared by their progress since `began`; after the first time nothing is changed.
    fn begin(&mut self, began: Nanos);

    /// What they do until the next point.
    fn set_work(&self, work: Work);

    /// Threads are kept on single CPUs from now on, or are not, whoever moves them.
    fn hold(&self, _held: bool) {}

    /// Somebody else has set the mask of a thread of this process: it is to be shown masks as they are from now on.
    fn show_masks(&self, _process: Pid) {}

    /// How often the threads meet, as far as these agents need that to be known.
    fn rhythm(&self) -> Rhythm {
        Rhythm::NotNeeded
    }

    /// Whether one of them asks for a point before the next is due.
    fn calls(&self) -> bool {
        false
    }

    /// How often they have been put to work.
    fn activations(&self) -> u64 {
        0
    }

    /// What they have done and cost so far.
    fn account(&self) -> AgentTotals;
}

/// How often threads have met, and when they last did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epochs {
    /// Openings of their barrier, modulo 2^32.
    pub count: u32,
    /// When it opened last, by the monotonic clock.
    pub at: Nanos,
    /// Which barrier: numbers of different ones do not compare.
    pub of: u32,
    /// What they were worth, where they differ in length, modulo 2^32; always 0 where that is not known.
    pub worth: u32,
}

/// How often threads meet, as far as agents need it to move them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rhythm {
    /// They move threads whether these meet or not.
    NotNeeded,
    /// No barrier is known at which they meet: then the policy moves them.
    Unknown,
    /// So far; not counted while the agents rest.
    Epochs(Epochs),
}

/// What agents do until the next point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Nothing, and nothing is measured for them.
    Rest,
    /// They move no thread; epochs are counted.
    Count,
    /// They move threads, and epochs are counted.
    Move,
}

/// What agents have done since the last point.
#[derive(Debug, Default)]
pub struct Done {
    /// Their moves, where they were kept.
    pub moves: Vec<MoveRecord>,
    /// What could not be done.
    pub failures: Vec<Failure>,
}

/// What agents have done and cost, all together.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentTotals {
    /// How often they were woken.
    pub points: u64,
    /// How many threads they have moved.
    pub migrations: u64,
    /// How many moves the machine refused.
    pub failed: u64,
    /// CPU time that they took, with their wake-ups.
    pub cpu_time: Nanos,
    /// Where the time went.
    pub cost: CostBreakdown,
    /// What their searches have cost.
    pub effort: Effort,
}

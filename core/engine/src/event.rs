//! What the cycle reports to its observers: the recorder, the live view, the decision log.
//!
//! Invariant: records are complete in themselves. A reader needs the thread and domain records
//! that came before a point, and nothing else, to know who ran where, how far each thread was and
//! why it was moved.

use evenly_model::{CpuId, CpuSet, DomainId, Nanos, Pid, Reason, ThreadId, Turns, spun};
use serde::{Deserialize, Serialize};

/// What is known of a thread from the moment when it is admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMeta {
    /// The thread, by its id and start time.
    pub id: ThreadId,
    /// The process that it belongs to.
    pub pid: Pid,
    /// Its name, with anything that is not valid UTF-8 replaced.
    pub name: String,
}

/// One thread at a balancing point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadRecord {
    /// The thread that this is about.
    pub id: ThreadId,
    /// CPU on which it was found.
    pub cpu: CpuId,
    /// Total progress since balancing began, in nanoseconds of CPU time.
    pub progress: i64,
    /// CPU time received in the last period.
    pub ran: Nanos,
    /// Time waiting for the CPU in the last period.
    pub waited: Nanos,
    /// Time blocked in the last period.
    pub blocked: Nanos,
    /// Of `ran` and `waited`, the time in which it only waited for others, by its own report. None where
    /// it reports nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinning: Option<Nanos>,
    /// Its report of its turns, if it makes one, as the policy saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Minor page faults since the thread started, as last seen.
    #[serde(default)]
    pub minor_faults: u64,
    /// Major page faults since the thread started, as last seen.
    #[serde(default)]
    pub major_faults: u64,
}

impl ThreadRecord {
    /// CPU time in the last period that it spun. None where it reports nothing.
    #[must_use]
    pub fn spun(&self) -> Option<Nanos> {
        self.spinning.map(|spinning| spun(self.ran, self.waited, spinning))
    }
}

/// One CPU at a balancing point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// The CPU, by its number on the system.
    pub id: CpuId,
    /// Compute threads of the program on it.
    pub threads: u32,
    /// Speed, from 0 to 1; none where no thread wanted it.
    pub speed: Option<f64>,
}

/// One move that was carried out or tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The thread that was moved.
    pub id: ThreadId,
    /// The CPU that it was on.
    pub from: CpuId,
    /// The CPU on which it is now.
    pub to: CpuId,
    /// Why the policy moved it.
    pub reason: Reason,
    /// What stopped it, if it could not be carried out.
    pub error: Option<String>,
}

/// Everything about one balancing point of one domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointRecord {
    /// The domain whose point this is.
    pub domain: DomainId,
    /// Number of the point, from 0, in its domain.
    pub point: u64,
    /// Monotonic time since balancing began.
    pub at: Nanos,
    /// Length of the period that ended.
    pub elapsed: Nanos,
    /// Whether balancing was paused to measure its own effect.
    pub paused: bool,
    /// Whether threads stay where they are put, as the policy saw it.
    #[serde(default)]
    pub held: bool,
    /// Whether what threads spun was taken for progress though they reported it, as the policy saw it:
    /// phases are too short for anything else.
    #[serde(default)]
    pub spins_progress: bool,
    /// Whether agents move threads between this point and the next, so that at the point threads are spread and no more.
    #[serde(default)]
    pub agents: bool,
    /// Threads of others that were counted on each of `cpus`; nothing where none were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<u32>,
    /// The arm that decided at this point in place of the policy, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// CPU time that this point cost.
    pub cost: Nanos,
    /// What each thread did in the period that this point ends.
    pub threads: Vec<ThreadRecord>,
    /// What each CPU did in it.
    pub cpus: Vec<CpuRecord>,
    /// Threads that were moved at this point, or by agents since the last.
    pub moves: Vec<MoveRecord>,
    /// The parts of their CPUs that threads are to have from now on, where the policy said so at this point:
    /// relative to what they had when they were admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(ThreadId, f64)>,
}

/// What an observer is told of: a balancing point, or what happens between two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A domain, and the CPUs that can be used in it: at the start, and whenever they change.
    Domain {
        /// Monotonic time since balancing began.
        at: Nanos,
        /// The domain whose CPUs have changed.
        domain: DomainId,
        /// The CPUs that can be used from now on.
        cpus: CpuSet,
    },
    /// A compute thread joins a domain.
    Joined {
        /// Monotonic time since balancing began.
        at: Nanos,
        /// The domain that it joins.
        domain: DomainId,
        /// The thread, as it was recognised.
        thread: ThreadMeta,
    },
    /// A thread ended, no longer computes, or goes to another domain.
    Left {
        /// Monotonic time since balancing began.
        at: Nanos,
        /// The thread that is balanced no longer.
        id: ThreadId,
        /// Whether it has ended; else it no longer computes, or was handed over.
        ended: bool,
        /// The domain that it goes to, and will join soon. With none it no longer computes, or has
        /// ended.
        to: Option<DomainId>,
    },
    /// A balancing point was carried out.
    Point(PointRecord),
    /// Something to be said in words: the budget was exceeded, balancing stood down.
    Note {
        /// Monotonic time since balancing began.
        at: Nanos,
        /// What is said, as the report and the log have it.
        text: String,
    },
}

/// Receives events. Called from the balancer's own thread, so it must be quick and must not block.
pub trait Observer: Send {
    /// An event has happened; called in the order of time.
    fn event(&mut self, event: &Event);

    /// Whether points are wanted. Where no observer wants them they are not built.
    fn wants_points(&self) -> bool {
        true
    }
}

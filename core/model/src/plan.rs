//! What a policy decides: which thread goes where, and why.

use crate::{CpuIndex, MemoryMove, ThreadIndex};
use serde::{Deserialize, Serialize};

/// Why a thread is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The first distribution, or counts that differ by more than one.
    Spread,
    /// It is behind and goes to a fast CPU.
    Behind,
    /// It is ahead and makes room on a fast CPU.
    Ahead,
    /// Its CPU can no longer be used.
    Evicted,
    /// It spins while it waits for others, and makes room for those that compute.
    Waits,
    /// Load, communication or memory cost less with all threads placed anew.
    Mapped,
    /// With it the CPU with the most work has less of it.
    Paired,
    /// The policy wants it so, for a reason that is none of these.
    Other,
}

impl Reason {
    /// In words, for the decision log.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Spread => "spread evenly",
            Self::Behind => "behind, to a fast CPU",
            Self::Ahead => "ahead, makes room",
            Self::Evicted => "its CPU is gone",
            Self::Waits => "waits for others, makes room",
            Self::Mapped => "placed anew by load and communication",
            Self::Paired => "heavy threads beside light ones",
            Self::Other => "by its policy",
        }
    }
}

/// One thread to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Which thread: index into the snapshot.
    pub thread: ThreadIndex,
    /// To which CPU: index into the snapshot.
    pub to: CpuIndex,
    /// Why the policy moves it.
    pub reason: Reason,
}

/// What a thread is to have of the CPU that it shares with others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// Which thread: index into the snapshot.
    pub thread: ThreadIndex,
    /// Relative to what it had when it was registered; only ratios between threads matter.
    pub weight: f64,
}

/// What a policy that looks at threads one by one has looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Searches for a thread to swap with.
    pub searches: u64,
    /// Speeds that were read in them, all together.
    pub readings: u64,
    /// Threads that there were, summed over the searches: what reading all would have been.
    pub threads: u64,
    /// The most that were read in one search.
    pub most: u64,
}

impl Effort {
    /// Adds what another search has cost.
    pub fn add(&mut self, other: Self) {
        self.searches += other.searches;
        self.readings += other.readings;
        self.threads += other.threads;
        self.most = self.most.max(other.most);
    }
}

/// What is to be done at one balancing point. Re-used from point to point, so that the steady
/// state allocates nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The moves, in the order in which they are to be applied.
    pub moves: Vec<Move>,
    /// Memory that follows its threads, once these have been moved.
    pub memory: Vec<MemoryMove>,
    /// What threads are to have of their CPUs from now on: of all of them, or nothing where that stays
    /// as it is.
    pub weights: Vec<Weight>,
    /// Whether what is costly to find out is wanted at the next point: how much memory processes have and
    /// where, and what the program reports of its computing and its messages.
    pub asks: bool,
    /// What deciding has cost.
    pub effort: Effort,
}

impl Plan {
    /// Empties it, and keeps its space.
    pub fn clear(&mut self) {
        (self.asks, self.effort) = (false, Effort::default());
        self.moves.clear();
        self.memory.clear();
        self.weights.clear();
    }

    /// Adds a move, to be made after those before.
    pub fn push(&mut self, thread: ThreadIndex, to: CpuIndex, reason: Reason) {
        self.moves.push(Move { thread, to, reason });
    }
}

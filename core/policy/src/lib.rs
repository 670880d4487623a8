//! Policies: what to do at a balancing point, given what was observed.
//!
//! Invariant: a policy is a pure, deterministic function of the snapshots that it has seen. It
//! never moves a thread outside its mask, and never moves a thread that is not movable. Where every
//! thread is on a CPU of the snapshot, its plan does not increase the difference between the most and
//! the fewest threads on a CPU, unless that stays at most one; one that places threads by load
//! ([`PolicyInfo::places_load`]), where loads are known, never takes the last thread from a CPU
//! instead. The same code decides live, in the simulator and in replay.
//!
//! Each family of policies has a folder in `policies`, and `policies/list` names them all. This crate has what they share:
//! the trait, what is to be known of a policy ([`PolicyInfo`]), the speed of CPUs, and the [`Spreader`].

#![forbid(unsafe_code)]

pub mod speed;
mod spread;

use evenly_model::{Plan, Snapshot};

pub use spread::{Spreader, spread};

/// How a planned move is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// No thread is ever moved.
    Nothing,
    /// The thread is pinned to its CPU until it is moved again (paper, section 2).
    Pin,
    /// The thread is pinned for an instant and then released to the whole mask of its domain:
    /// it starts on its new CPU, and the kernel may pull it away when another falls idle.
    Nudge,
}

/// What a policy goes by, beside the progress of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but the progress of threads.
    Progress,
    /// What is known of machine and program ([`evenly_model::Knowledge`]): it balances load and not numbers of threads,
    /// over all NUMA nodes at once, so that all CPUs are one domain for it.
    Load,
    /// When threads wait for each other, which they report with the probe: it gives them parts of the CPUs that they share.
    Turns,
}

/// When a policy moves threads, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acts {
    /// It never moves one.
    Never,
    /// It places them, and then leaves them there: what others are held against (Eq. 1). It is not paused to see what it
    /// is worth, since the kernel would mix the threads, and another placement begin. It leaves places empty that threads
    /// leave, and nothing is said to be gained by it.
    Once,
    /// It moves them at balancing points.
    AtPoints(Mechanism),
    /// At balancing points, and in the simulator also at the moment when a thread blocks or ends, as the paper's reactive
    /// balancing does. It waits until a CPU has fallen idle: the report says for how long they were.
    WhenOneBlocks(Mechanism),
    /// By a balancer on each CPU, which pins threads, without a cycle that all have in common. What [`PolicyInfo::make`]
    /// makes is for recordings.
    OnEachCpu,
    /// At moments within phases while threads meet often, as they report with the probe; what [`PolicyInfo::make`] makes
    /// moves them at balancing points at other times.
    WithinPhases(Mechanism),
}

/// A policy at work. One instance serves one domain.
pub trait Policy: Send {
    /// Decides, by this snapshot and those before. `plan` comes empty; moves are carried out in the order in
    /// which they are pushed, as far as that leaves every CPU in use.
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan);
}

/// All that the rest of evenly has to know of a policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help.
    pub about: &'static str,
    /// What it goes by.
    pub needs: Needs,
    /// When it moves threads.
    pub acts: Acts,
    /// Makes an instance, which serves one domain.
    pub make: fn() -> Box<dyn Policy>,
    /// Policies that are tried in its place where they may be better, and take it where that is measured: its arms. They move
    /// threads at points, as what they do is compared with what it does from one point to the next.
    pub arms: &'static [PolicyInfo],
}

impl PolicyInfo {
    /// How its moves at balancing points are carried out.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        match self.acts {
            Acts::Never => Mechanism::Nothing,
            Acts::Once | Acts::OnEachCpu => Mechanism::Pin,
            Acts::AtPoints(how) | Acts::WhenOneBlocks(how) | Acts::WithinPhases(how) => how,
        }
    }

    /// Whether it acts when a thread blocks.
    #[must_use]
    pub fn is_reactive(&self) -> bool {
        matches!(self.acts, Acts::WhenOneBlocks(_))
    }

    /// Whether it is what others are held against.
    #[must_use]
    pub fn is_reference(&self) -> bool {
        self.acts == Acts::Once
    }

    /// Whether it balances load.
    #[must_use]
    pub fn places_load(&self) -> bool {
        self.needs == Needs::Load
    }

    /// Whether it gives threads parts of CPUs.
    #[must_use]
    pub fn gives_weights(&self) -> bool {
        self.needs == Needs::Turns
    }

    /// Whether it, or one of its arms, gives threads parts of CPUs.
    #[must_use]
    pub fn may_give_weights(&self) -> bool {
        self.gives_weights() || self.arms.iter().any(Self::gives_weights)
    }

    /// Whether each CPU has a balancer of its own.
    #[must_use]
    pub fn is_on_each_cpu(&self) -> bool {
        self.acts == Acts::OnEachCpu
    }

    /// Whether it moves threads within phases.
    #[must_use]
    pub fn moves_within_phases(&self) -> bool {
        matches!(self.acts, Acts::WithinPhases(_))
    }

    /// Whether it is paused now and then to see what it is worth.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        !self.is_reference() && !self.only_watches()
    }

    /// Whether it never moves a thread.
    #[must_use]
    pub fn only_watches(&self) -> bool {
        self.mechanism() == Mechanism::Nothing
    }
}

/// Spreads the threads evenly, whenever they are not, and does nothing else: what balancers that
/// decide each for its CPU leave to one hand.
#[derive(Debug, Clone, Default)]
pub struct Spreading(Spreader);

impl Policy for Spreading {
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        self.0.spread(snapshot, plan);
    }
}

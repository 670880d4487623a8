//! Policies: what to do at a balancing point, given what was observed.
//!
//! Invariant: a policy is a pure, deterministic function of the snapshots that it has seen. It
//! never moves a thread outside its mask, never moves a thread that is not movable, and its plan
//! never leaves two CPUs with thread counts that differ by more than one where the masks permit
//! better. The same code decides live, in the simulator and in replay.
//!
//! To add a policy: write its module here, and add one line to [`POLICIES`]. It is then there in
//! `run`, `attach`, `compare`, the help, the completions and the benchmarks.

#![forbid(unsafe_code)]

mod juggle;
mod reactive;
pub mod secretary;
pub mod shared;
mod spread;
pub mod stopping;

use evenly_model::{Plan, Snapshot};

pub use juggle::{Juggle, Margins};
pub use reactive::Reactive;
pub use secretary::Secretary;
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

/// A policy at work. One instance serves one domain.
pub trait Policy: Send {
    /// Decides. `plan` comes empty; moves are carried out in the order in which they are pushed.
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan);

    /// What its searches have cost so far; all 0 for one that does not search.
    fn effort(&self) -> Effort {
        Effort::default()
    }
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

/// An entry of the registry.
#[derive(Debug, Clone, Copy)]
pub struct PolicyInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help.
    pub about: &'static str,
    /// How its moves are carried out.
    pub mechanism: Mechanism,
    /// Makes an instance.
    pub make: fn() -> Box<dyn Policy>,
    /// Whether each CPU has a balancer of its own, without a cycle that all have in common. What
    /// `make` makes is then for recordings.
    pub decentral: bool,
}

impl PolicyInfo {
    /// Whether it is paused now and then to see what it is worth. `static` is what others are held
    /// against: a pause would let the kernel mix the threads, and another placement begin.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.name != STATIC
    }
}

const STATIC: &str = "static";

/// All policies, in the order of the help.
pub const POLICIES: &[PolicyInfo] = &[
    PolicyInfo {
        name: "hybrid",
        about: "Juggle's decisions; moved threads are let go as soon as one blocks or yields",
        mechanism: Mechanism::Nudge,
        make: || Box::new(Juggle::hybrid()),
        decentral: false,
    },
    PolicyInfo {
        name: "juggle",
        about: "swap threads that are behind with threads that are ahead; all stay pinned",
        mechanism: Mechanism::Pin,
        make: || Box::new(Juggle::new(Margins::default())),
        decentral: false,
    },
    PolicyInfo {
        name: "secretary",
        about: "each CPU reads a few threads to find one to swap with (OSLB); all stay pinned",
        mechanism: Mechanism::Pin,
        make: || Box::new(Secretary::new(stopping::CutOff::Uniform)),
        decentral: true,
    },
    PolicyInfo {
        name: "reactive",
        about: "fill CPUs whose threads end or block, up to 1.5 periods late; else stay",
        mechanism: Mechanism::Pin,
        make: || Box::new(Reactive::default()),
        decentral: false,
    },
    PolicyInfo {
        name: STATIC,
        about: "pin the threads evenly once",
        mechanism: Mechanism::Pin,
        make: || Box::new(Static::default()),
        decentral: false,
    },
    PolicyInfo {
        name: "observe",
        about: "watch, change nothing",
        mechanism: Mechanism::Nothing,
        make: || Box::new(Observe),
        decentral: false,
    },
];

/// The policy of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static PolicyInfo> {
    POLICIES.iter().find(|p| p.name == name)
}

/// Changes nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Observe;

impl Policy for Observe {
    fn decide(&mut self, _: &Snapshot, _: &mut Plan) {}
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

/// Spreads the threads evenly when balancing begins, and again only where threads or CPUs were
/// added or a CPU vanished. A thread that ends leaves its place empty: filling it would be
/// balancing, and this is what balancing is compared with (Eq. 1).
#[derive(Debug, Clone, Default)]
struct Static(Spreader);

impl Policy for Static {
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        let lost = |t: &evenly_model::ThreadView| t.cpu >= snapshot.cpus.len();
        if snapshot.point == 0 || snapshot.threads.iter().any(lost) {
            self.0.spread(snapshot, plan);
        }
    }
}

//! What a user can ask for: where thread times come from, what progress is, and how a program is balanced.
//!
//! Invariant: nothing here is looked up or changed; what can be wrong with an option is found where it is used.

use crate::limits::DomainKind;
use crate::machine::RankCounts;
use crate::mapping::{MapBy, Mapping};
use crate::share::Choice;
use crate::tuning::Tuning;
use crate::wait_reports::ReadWaitReports;
use evenly_engine::{Eligible, GuardOptions, Period};
use evenly_model::hpc::{Levels, Parameters};
use evenly_model::{CpuSet, Knowledge, Nanos};
use evenly_phase::Openings;
use evenly_policy::PolicyInfo;
use std::sync::Arc;

/// Which source of thread times is wanted, for threads that are balanced. Those that compute are found
/// by schedstat in any case ([`crate::scan`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceKind {
    /// `/proc/<pid>/task/<tid>/schedstat`, which needs no privileges.
    #[default]
    Schedstat,
    /// The taskstats netlink interface.
    Taskstats,
}

/// What is taken for the progress of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressKind {
    /// Retired instructions where CPUs differ in speed and instructions can be counted; else CPU
    /// time.
    #[default]
    Auto,
    /// CPU time, weighted by the capacity of CPUs as far as the kernel reports it.
    CpuTime,
    /// Retired instructions, which need hardware counters.
    Instructions,
}

/// How a program is to be balanced.
pub struct LiveOptions {
    /// The policy that decides which threads are moved.
    pub policy: &'static PolicyInfo,
    /// The balancing period: fixed, or as short as budget and scheduler allow.
    pub period: Period,
    /// The part of one CPU that balancing may use.
    pub budget: f64,
    /// The only CPUs that are balanced; None: all that the program may use.
    pub cpus: Option<CpuSet>,
    /// What is balanced on its own; None: by NUMA node where there is more than one.
    pub domain: Option<DomainKind>,
    /// Begin when this many threads compute.
    pub expected: Option<u32>,
    /// Which threads may be balanced.
    pub eligible: Option<Eligible>,
    /// How the regression guard checks that balancing helps.
    pub guard: GuardOptions,
    /// Where thread times come from.
    pub source: SourceKind,
    /// What is taken for the progress of threads.
    pub progress: ProgressKind,
    /// Seed of all that is random.
    pub seed: u64,
    /// What any thread of the program may use when balancing begins; nothing where that is not known.
    pub whole: CpuSet,
    /// Where the threads or ranks are to run; the policy balances within it.
    pub mapping: Option<Mapping>,
    /// What is known of the machine and the program, for a policy that places threads by load.
    pub knowledge: Option<Arc<Knowledge>>,
    /// Makes the reader of what threads report of their waiting, once for each domain; None where they
    /// report nothing.
    pub wait_reports: Option<Box<dyn Fn() -> Option<ReadWaitReports> + Send>>,
    /// The barriers of the program, for a policy that moves threads within phases; None where they are not known.
    pub openings: Option<Arc<dyn Openings>>,
    /// Reads what the ranks of the program count of their computing and their messages; None where they do
    /// not. For the first domain, which for a policy that places threads by load is the only one.
    pub counted_by: Option<RankCounts>,
    /// How threads are given parts of CPUs, by a policy that does that.
    pub shares: Choice,
    /// Parts of the machine, from the outermost on, for policies that give weights.
    pub levels: Levels,
    /// The parameters of such a policy at first.
    pub parameters: Parameters,
    /// Where its parameters are changed later.
    pub tuning: Option<Tuning>,
    /// What the tasks of the mapping, and those of the profile, are in the program.
    pub numbered_by: MapBy,
    /// Whether CPUs that are shared with other programs may change hands more often, where the program has no quota.
    pub beats: bool,
}

impl LiveOptions {
    /// With nothing asked for but a policy, a fixed period and a budget: no guard, no probe, no mapping.
    #[must_use]
    pub fn plain(policy: &'static PolicyInfo, period: Nanos, budget: f64, whole: CpuSet) -> Self {
        Self {
            policy,
            period: Period::Fixed(period),
            budget,
            cpus: None,
            domain: None,
            expected: None,
            eligible: None,
            guard: GuardOptions { enabled: false, ..GuardOptions::default() },
            source: SourceKind::Schedstat,
            progress: ProgressKind::CpuTime,
            seed: 1,
            whole,
            mapping: None,
            knowledge: None,
            wait_reports: None,
            openings: None,
            counted_by: None,
            shares: Choice::Auto,
            levels: Levels::new(),
            parameters: Parameters::default(),
            tuning: None,
            numbered_by: MapBy::Auto,
            beats: false,
        }
    }
}

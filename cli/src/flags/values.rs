//! Values that options of balancing take, and how they are read.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use evenly_linux::limits::DomainKind;
use evenly_linux::live::{ProgressKind, SourceKind};
use evenly_linux::mapping::MapBy;
use evenly_model::{CpuSet, or_meant, parse_duration};
use evenly_policies::{POLICIES, by_name, meant, names};
use evenly_policy::PolicyInfo;
use std::ffi::OsStr;

/// `--map-by`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum MapByArg {
    /// Ranks where a launcher has numbered the processes, else threads
    Auto,
    /// Threads that compute, in the order in which they were created
    Threads,
    /// Ranks by OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, MV2_COMM_WORLD_RANK or SLURM_PROCID; where
    /// there are none, processes in the order in which they were created
    Ranks,
}

impl From<MapByArg> for MapBy {
    fn from(by: MapByArg) -> Self {
        match by {
            MapByArg::Auto => Self::Auto,
            MapByArg::Threads => Self::Threads,
            MapByArg::Ranks => Self::Ranks,
        }
    }
}

/// `--shares`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SharesArg {
    /// Nice values where they can be restored and have effect between these threads, else control groups
    Auto,
    /// Nice values
    Nice,
    /// Control groups
    Group,
    /// Length of a thread's time slice (Linux 6.12 or newer): changes the order, not the shares
    Slice,
    /// hpc-uniform, hpc-adaptive: threads with more than an even share run above all normal threads, for a
    /// second at a time; refused where threads spin while they wait
    RoundRobin,
}

impl SharesArg {
    /// As it is written.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }
}

impl From<SharesArg> for evenly_linux::share::Choice {
    fn from(arg: SharesArg) -> Self {
        match arg {
            SharesArg::Auto => Self::Auto,
            SharesArg::Nice => Self::Nice,
            SharesArg::Group => Self::Group,
            SharesArg::Slice => Self::Slice,
            SharesArg::RoundRobin => Self::RoundRobin,
        }
    }
}

/// `--domain`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DomainArg {
    /// All CPUs together
    Machine,
    /// The CPUs of a NUMA node
    Numa,
    /// The CPUs that share their last cache
    Llc,
}

impl From<DomainArg> for DomainKind {
    fn from(d: DomainArg) -> Self {
        match d {
            DomainArg::Machine => Self::Machine,
            DomainArg::Numa => Self::Numa,
            DomainArg::Llc => Self::Llc,
        }
    }
}

/// `--source`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SourceArg {
    /// /proc/PID/task/TID/schedstat: needs nothing
    Schedstat,
    /// The taskstats netlink interface: needs CAP_NET_ADMIN
    Taskstats,
}

impl From<SourceArg> for SourceKind {
    fn from(s: SourceArg) -> Self {
        match s {
            SourceArg::Schedstat => Self::Schedstat,
            SourceArg::Taskstats => Self::Taskstats,
        }
    }
}

/// `--probe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeArg {
    /// With policies that need it: phase, hpc-auto, hpc-uniform, hpc-adaptive
    Auto,
    /// Nothing is loaded into the program
    Off,
    /// Barriers, conditions, OpenMP and MPI are observed inside the program: progress is what threads
    /// compute, and the report says how long each waited. With --policy nuco, messages and loads of MPI
    /// ranks are counted, and decide
    On,
}

/// `--cooperate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CooperateArg {
    /// While threads of libgomp are moved within phases of less than 0.3 ms, its barriers are replaced in parallel
    /// regions that do nothing but compute, loop and meet: a thread that waits spins while no other thread of its team
    /// needs its CPU, and sleeps where one does. Threads that spin in loops of their own hand over their CPU while more
    /// threads want to run than there are CPUs, those of other programs under evenly included. Where nothing is loaded
    /// into the program, CPUs change hands every 0.05 to 0.2 ms instead, while samples show that threads spin
    Auto,
    /// The same, but other programs that run under evenly are none of its concern
    Program,
    /// Threads wait as the program and its runtime have it
    Off,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ProgressArg {
    /// Instructions where CPUs differ in speed and instructions can be counted, else CPU time
    Auto,
    /// CPU time, by the capacity of CPUs where the kernel reports it
    CpuTime,
    /// Retired instructions: needs counters, and kernel.perf_event_paranoid of at most 2
    Instructions,
}

impl From<ProgressArg> for ProgressKind {
    fn from(p: ProgressArg) -> Self {
        match p {
            ProgressArg::Auto => Self::Auto,
            ProgressArg::CpuTime => Self::CpuTime,
            ProgressArg::Instructions => Self::Instructions,
        }
    }
}

/// What `--period` asks for: a fixed period, or `auto`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeriodArg(pub(crate) evenly_engine::Period);

pub(super) fn period(text: &str) -> Result<PeriodArg, String> {
    if text == "auto" {
        return Ok(PeriodArg(evenly_engine::Period::Auto));
    }
    parse_duration(text)
        .map(|d| PeriodArg(evenly_engine::Period::Fixed(d)))
        .map_err(|e| format!("{e}; or auto"))
}

/// Reads a name, and says which names there are, for completions: clap's own parser of possible values has
/// another message for all others.
#[derive(Clone)]
pub(super) struct Named<T> {
    pub(super) read: fn(&str) -> Result<T, String>,
    pub(super) names: fn() -> Vec<PossibleValue>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Named<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        self.read.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter()))
    }
}

fn policy_names() -> Vec<PossibleValue> {
    POLICIES.iter().map(|p| PossibleValue::new(p.name).help(p.about)).collect()
}

/// Of `evenly run`, where the probe can be loaded.
pub(super) fn default_policy() -> &'static PolicyInfo {
    by_name("auto").unwrap_or_else(policy_without_probe)
}

/// The default where nothing is loaded into the program.
pub(crate) fn policy_without_probe() -> &'static PolicyInfo {
    by_name("hybrid").unwrap_or_else(evenly_policies::reference)
}

/// `--policy` of what balances.
pub(super) fn policy() -> Named<&'static PolicyInfo> {
    let read = |name: &str| {
        by_name(name)
            .ok_or_else(|| format!("no such policy{}; the policies are {}", meant(name), names()))
    };
    Named { read, names: policy_names }
}

/// `--policy` of the simulator, which has others beside.
pub(super) fn simulated_policy() -> Named<String> {
    let read = |name: &str| {
        let arms = evenly_power5::arm_names();
        let is_known = name == evenly_sim::IDEAL || by_name(name).is_some();
        if is_known || arms.contains(&name) {
            return Ok(name.to_owned());
        }
        let near = or_meant(
            name,
            POLICIES.iter().map(|p| p.name).chain([evenly_sim::IDEAL]).chain(arms.iter().copied()),
        );
        Err(format!(
            "no such policy{near}; the policies are {}, {}, and with --power5 {}",
            evenly_sim::IDEAL,
            names(),
            arms.join(", ")
        ))
    };
    let names = || {
        let ideal = PossibleValue::new(evenly_sim::IDEAL).help("the paper's analysis itself");
        let mut all = vec![ideal];
        all.extend(policy_names());
        let others = evenly_power5::arm_names().into_iter().filter(|arm| by_name(arm).is_none());
        all.extend(others.map(|arm| PossibleValue::new(arm).help("with --power5")));
        all
    };
    Named { read, names }
}

/// The help of `--policies` of `evenly compare`.
pub(super) fn compared_help() -> String {
    format!(
        "What to compare, separated by commas: kernel, or a policy ({}); after a colon variables with which the \
         program is started (kernel:OMP_WAIT_POLICY=passive), then, of a policy, options of evenly run \
         (hybrid,juggle:--period=50ms --cpus=0,1); may be given more than once [default: \
         kernel,static,hybrid, and auto where the program can take the probe]",
        names()
    )
}

/// Which policy is used where none is asked for.
pub(super) const DEFAULT: &str = "[default: auto; hybrid with --probe off or --map]";
/// The same of a program that runs.
pub(super) const OF_ATTACH: &str = "[default: hybrid]";

/// The help of `--policy` for `-h`: the names of the policies, and the default.
pub(super) fn policy_list(default: &str) -> String {
    format!("The balancing policy: {} {default}", names())
}

/// The help of `--policy` of the simulator for `-h`.
pub(super) fn simulated_policies() -> String {
    format!(
        "What decides: {}, or {}, the paper's analysis itself [default: juggle, or that of the scenario]. With \
         --power5: {} [default: all of them]",
        names(),
        evenly_sim::IDEAL,
        evenly_power5::arm_names().join(", ")
    )
}

pub(super) fn policy_help(default: &str) -> String {
    let width = POLICIES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let list: Vec<String> =
        POLICIES.iter().map(|p| format!("  {:width$}  {}", p.name, p.about)).collect();
    format!("The balancing policy:\n{}\n\n{default}", list.join("\n"))
}

pub(super) fn cpu_list(text: &str) -> Result<CpuSet, String> {
    let set: CpuSet = text.parse().map_err(|e: evenly_model::CpuListError| e.to_string())?;
    if set.is_empty() {
        return Err(String::from("the list is empty; it needs at least one CPU, such as 0-3,8"));
    }
    Ok(set)
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 100.0 => Ok(p / 100.0),
        _ => Err(String::from("it must be more than 0 and at most 100")),
    }
}

/// The part of a CPU that others use, as a number or in percent.
pub(super) fn part(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.parse::<f64>().map(|p| p / whole) {
        Ok(p) if (0.0..=0.99).contains(&p) => Ok(p),
        _ => Err(String::from("it must be from 0 to 99%, such as 50% or 0.5")),
    }
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err(String::from("it must be a number that is more than 0")),
    }
}

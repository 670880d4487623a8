//! The arguments of `evenly simulate`.

use super::hpc_parameter;
use super::values::{Named, cpu_list, part, simulated_policies, simulated_policy};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use evenly_model::hpc::Parameter;
use evenly_model::{CpuSet, Nanos, or_meant, parse_duration};
use evenly_sim::{LOOP_KERNELS, LoopKernel, loop_kernel};
use std::path::PathBuf;

/// What has no meaning with `--loops`. An option that requires `--loops` has to say so itself: beside one of these, clap does not
/// ask for `--loops`.
const NOT_OF_LOOPS: [&str; 11] = [
    "threads", "phase", "period", "phases", "policy", "barrier", "jitter", "scenario", "replay",
    "power5", "sweep",
];

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Number of threads
    #[arg(long, value_name = "N", required_unless_present_any = ["sweep", "scenario", "replay", "power5",
        "loops"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(evenly_sim::MOST_THREADS)))]
    pub(crate) threads: Option<u32>,
    /// Number of CPUs; with --loops of all nodes together [default there: 16, or that of the
    /// file]
    #[arg(long, value_name = "M", required_unless_present_any = ["sweep", "scenario", "replay", "power5",
        "loops"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(evenly_sim::MOST_CPUS)))]
    pub(crate) cpus: Option<u32>,
    /// CPU time that a thread needs from one barrier to the next, for example 30s
    #[arg(long, required_unless_present_any = ["sweep", "scenario", "replay", "power5",
        "loops"],
        allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) phase: Option<Nanos>,
    /// Balancing period [default: 100ms, or that of the scenario]
    #[arg(long, allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) period: Option<Nanos>,
    /// Number of phases [default: 1]
    #[arg(long, value_name = "K",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) phases: Option<u32>,
    #[arg(long, value_name = "NAME", value_parser = simulated_policy(), hide_possible_values = true,
        help = simulated_policies())]
    pub(crate) policy: Option<String>,
    /// What threads do that wait for the others at the end of a phase [default: block]
    #[arg(long, value_enum)]
    pub(crate) barrier: Option<BarrierArg>,
    /// Let the period vary by a tenth, as `evenly run` does
    #[arg(long)]
    pub(crate) jitter: bool,
    /// Pause balancing now and then to see what it is worth, and end it where it loses, as `evenly run` does: usual, but
    /// where a scenario says otherwise
    #[arg(long, conflicts_with_all = ["replay", "power5", "loops", "sweep"])]
    pub(crate) guard: bool,
    /// Never pause: what the policy does where nothing watches it, as in the theory
    #[arg(long, conflicts_with_all = ["guard", "replay", "power5", "loops", "sweep"])]
    pub(crate) no_guard: bool,
    /// Run what this file describes (TOML): any machine, programs, interference
    #[arg(long, value_name = "FILE", conflicts_with_all = ["threads", "cpus", "phase", "phases",
        "barrier"])]
    pub(crate) scenario: Option<PathBuf>,
    /// Show this recording of `evenly run --record` to the policy: what would it have decided?
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["threads", "cpus", "phase",
        "period", "phases", "barrier", "jitter", "seed", "scenario"])]
    pub(crate) replay: Option<PathBuf>,
    /// Run a program of the HPCSched paper on a simulated POWER5, where ranks have priorities, and set
    /// what comes out beside the paper's tables
    #[arg(long, value_name = "CASE", value_parser = power5_cases(), conflicts_with_all = ["threads",
        "cpus", "phase", "period", "phases", "barrier", "jitter", "scenario", "replay"])]
    pub(crate) power5: Option<String>,
    /// With --power5: a parameter of the heuristics, for example high-util=90; a wrong
    /// name lists all of them (may be given more than once)
    #[arg(long, value_name = "KEY=VALUE", requires = "power5", value_parser = hpc_parameter)]
    pub(crate) set: Vec<(Parameter, f64)>,
    /// With --power5: how long a woken task waits for its CPU under CFS [default: 250us]
    #[arg(long, value_name = "DURATION", requires = "power5", allow_hyphen_values = true,
        value_parser = parse_duration)]
    pub(crate) latency: Option<Nanos>,
    /// Divide the iterations of parallel loops in all ways of libevenly_loops, on nodes that share memory by
    /// pages: a kernel, or the loops that FILE.toml describes; at least `steps = 100`, an
    /// `[[array]]` with `name`, `rows` and `row_bytes`, and a `[[loop]]` with `name`, `work = "1us"` and `writes` or
    /// `reads`. For each way it shows the time, that over the time of `plain`, the percentage that processors
    /// wait, pages moved, divisions, how many times as long the others take, and the percentage of iterations on
    /// one CPU that is loaded and on one that is free
    #[arg(long, value_name = "KERNEL|FILE.toml", value_parser = loops(), conflicts_with_all = NOT_OF_LOOPS)]
    pub(crate) loops: Option<LoopsArg>,
    /// With --loops: number of nodes [default: 4, or that of the file]
    #[arg(long, value_name = "N", requires = "loops", conflicts_with_all = NOT_OF_LOOPS,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) nodes: Option<u32>,
    /// With --loops: the CPUs that others use as well, for example 0-1,4-5 [default: half of each node]
    #[arg(long, value_name = "LIST", requires = "loops", conflicts_with_all = NOT_OF_LOOPS,
        value_parser = cpu_list)]
    pub(crate) loaded: Option<CpuSet>,
    /// With --loops: the part of these that others use, for example 50% or 0.5 [default: 50%]
    #[arg(long, value_name = "PART", requires = "loops", conflicts_with_all = NOT_OF_LOOPS,
        value_parser = part)]
    pub(crate) load: Option<f64>,
    /// With --loops: also with a scheduler on these CPUs that gives them to the others while the program waits, and
    /// back as soon as it need not wait any more
    #[arg(long, requires = "loops", conflicts_with_all = NOT_OF_LOOPS)]
    pub(crate) cooperate: bool,
    /// Run ideal with 3 to 64 threads on all smaller numbers of CPUs, with periods of 0.01 to 5
    /// phases (Figure 10 of the paper), on all cores
    #[arg(long, conflicts_with_all = ["threads", "cpus", "phase", "period", "phases", "policy",
        "barrier", "jitter", "seed", "json", "scenario", "replay", "power5", "loops"])]
    pub(crate) sweep: bool,
    /// Write the runs of --sweep to FILE as CSV; - is standard output
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the random numbers [default: 1, or that of the scenario]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write the result to FILE as JSON (evenly.simulate/1, with --replay evenly.replay/1, with
    /// --power5 evenly.power5/1, with --loops evenly.simulate-loops/1); with - to standard output, and the words to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// `--barrier`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BarrierArg {
    /// They sleep
    Block,
    /// They spin, and let others run first
    Yield,
    /// They spin
    Spin,
}

impl From<BarrierArg> for evenly_sim::Barrier {
    fn from(b: BarrierArg) -> Self {
        match b {
            BarrierArg::Block => Self::Block,
            BarrierArg::Yield => Self::Yield,
            BarrierArg::Spin => Self::Spin,
        }
    }
}

fn power5_cases() -> PossibleValuesParser {
    let cases = evenly_power5::CASES.into_iter();
    PossibleValuesParser::new(cases.map(|c| PossibleValue::new(c.id).help(c.about)))
}

/// `--loops`.
#[derive(Debug, Clone)]
pub(crate) enum LoopsArg {
    /// One that is built in.
    Kernel(&'static LoopKernel),
    /// What a file describes.
    File(PathBuf),
}

fn loops() -> Named<LoopsArg> {
    let read = |text: &str| {
        if let Some(kernel) = loop_kernel(text) {
            return Ok(LoopsArg::Kernel(kernel));
        }
        if text.contains(['.', '/']) {
            return Ok(LoopsArg::File(PathBuf::from(text)));
        }
        let names: Vec<&str> = LOOP_KERNELS.iter().map(|k| k.name).collect();
        let near = or_meant(text, names.iter().copied());
        let names = names.join(", ");
        Err(format!(
            "no such kernel{near}; the kernels are {names}; a file has a path, such as ./{text}"
        ))
    };
    let names = || LOOP_KERNELS.iter().map(|k| PossibleValue::new(k.name).help(k.about)).collect();
    Named { read, names }
}

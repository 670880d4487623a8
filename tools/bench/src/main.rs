//! `evenly-bench`: the demo, the benchmarks, and the benchmarks that need more CPUs than this
//! machine has.
//!
//! Invariant: every figure comes from runs that were made in this very call. A limit is the time
//! that one thread alone took in between the other runs, never a number kept from elsewhere, and
//! no run is left out because others disturbed it: how much they did stands beside the figures.

#![forbid(unsafe_code)]

mod args;
mod beside;
mod collapse;
mod commands;
mod cost;
mod demo;
mod figures;
mod grid;
mod host;
mod hosts;
mod labs;
mod loops;
mod measure;
mod measured;
mod mpi;
mod overhead;
mod probe;
mod real;
mod secretary;
mod show;
mod simulated;
mod suite;
mod together;
mod tools;
mod turning;
mod uneven;

use args::{Programs, cpu_list, take_two_cpus};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};
use evenly_errors::{parse, refused, said};
use evenly_model::CpuSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Exit status where the benchmarks could not be made, as evenly's own.
const FAILURE: u8 = 125;

/// Demo and benchmarks of evenly.
#[derive(Debug, Parser)]
#[command(name = "evenly-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// About a minute on two CPUs: static pinning, the kernel and evenly, and a picture
    Demo(DemoArgs),
    /// The benchmarks of this machine
    Run(RunArgs),
    /// The benchmarks that need more CPUs, in emulated machines
    Lab(LabArgs),
    /// A balancer for each CPU against one for all, on up to thousands of CPUs, in virtual time
    Secretary(secretary::SecretaryArgs),
    /// What profiling, and counting live, cost an MPI program that sends small messages
    Probe(probe::ProbeArgs),
    /// What the waiting probe costs the workloads
    Overhead(overhead::OverheadArgs),
    /// An MPI program profiled, mapped and run, on this machine and on two simulated hosts (needs root)
    Hosts(hosts::HostsArgs),
    /// Ranks and threads of unequal work that wait for each other: MetBench over MPI, triangular loops
    Uneven(uneven::UnevenArgs),
    /// Programs that collapse because their threads spin, with more threads than CPUs
    Collapse(collapse::CollapseArgs),
    /// Kernels whose parallel loops are handed out by OpenMP, evenly, oneTBB or rayon, beside a load on one of two CPUs
    Loops(loops::LoopsArgs),
    /// Two programs beside each other: how long both take, and how fairly
    Together(together::TogetherArgs),
    /// Real programs: LAMMPS, GROMACS, HPCC, NumPy, oneTBB, make; alone, beside others, under a quota
    Real(real::RealArgs),
    /// The default against the kernel over a grid: how threads wait, phases, threads, neighbours, unequal work
    Grid(grid::GridArgs),
}

#[derive(Debug, Args)]
struct DemoArgs {
    #[command(flatten)]
    programs: Programs,
    /// Where pictures and figures go
    #[arg(long, value_name = "DIR", default_value = "target/demo", overrides_with = "out")]
    out: PathBuf,
    /// Two CPUs to use, for example 0-1 [default: the first two that are allowed]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuSet>,
    /// Runs of each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// How long to wait, in seconds, where others use the CPUs
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait_s: u64,
    /// Run also where others use the CPUs, so that the figures are void
    #[arg(long)]
    despite_load: bool,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What both sets of benchmarks have.
#[derive(Debug, Args)]
struct Suite {
    #[command(flatten)]
    programs: Programs,
    /// Only benchmarks whose name contains this (may be given more than once)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    only: Vec<String>,
    /// Only this arm, such as kernel or evenly, beside the one that measures the limit (may be given more
    /// than once)
    #[arg(long = "arm", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    arms: Vec<String>,
    /// Name the benchmarks, and run none
    #[arg(long)]
    list: bool,
    /// Runs of each, instead of each benchmark's own number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: Option<u32>,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write everything to FILE as JSON (evenly.bench/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Suite {
    /// Those of `all` that are asked for; the others are asked for by name alone.
    fn chosen(
        &self,
        all: Vec<suite::Benchmark>,
        others: &[&str],
    ) -> anyhow::Result<Vec<suite::Benchmark>> {
        suite::chosen(all, others, (&self.only, &self.arms), self.runs)
    }
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    suite: Suite,
    /// A few minutes in all, with shorter phases and fewer runs
    #[arg(long)]
    quick: bool,
    /// Two CPUs to use, for example 0-1 [default: the first two that are allowed]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuSet>,
}

#[derive(Debug, Args)]
struct LabArgs {
    #[command(flatten)]
    suite: Suite,
    /// Fewer runs, and only the long phases
    #[arg(long)]
    quick: bool,
    /// Kernel of the emulated machine: the beginning of its version, or an image
    #[arg(long, default_value = "6.1", value_parser = NonEmptyStringValueParser::new())]
    kernel: String,
}

fn main() -> ExitCode {
    let cli = match parse::<Cli, _>(std::env::args_os()) {
        Ok(cli) => cli,
        Err(e) => return refuse(&e),
    };
    let result = match cli.command {
        Command::Demo(args) => run_demo(&args),
        Command::Run(args) => run_benchmarks(&args),
        Command::Lab(args) => run_labs(&args),
        Command::Secretary(args) => secretary::compare(&args),
        Command::Probe(args) => probe::compare(&args),
        Command::Overhead(args) => overhead::compare(&args),
        Command::Hosts(args) => hosts::compare(&args),
        Command::Uneven(args) => uneven::compare(&args),
        Command::Collapse(args) => collapse::compare(&args),
        Command::Loops(args) => loops::compare(&args),
        Command::Together(args) => together::compare(&args),
        Command::Real(args) => real::compare(&args),
        Command::Grid(args) => grid::compare(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            show::tell(&format!("evenly-bench: {}", said(&e)));
            ExitCode::from(FAILURE)
        }
    }
}

/// Help and version are no errors; anything else is one clear line and the status of a failure.
fn refuse(e: &clap::Error) -> ExitCode {
    match refused(e, &Cli::command(), std::env::args_os().nth(1)) {
        Some(line) => {
            show::tell(&format!("evenly-bench: {line}"));
            ExitCode::from(FAILURE)
        }
        None => {
            // A reader that has gone away is no failure of ours.
            let _ = e.print();
            ExitCode::from(if e.use_stderr() { FAILURE } else { 0 })
        }
    }
}

fn run_demo(args: &DemoArgs) -> anyhow::Result<()> {
    let cpus = take_two_cpus(args.cpus.as_ref())?;
    let tools = args.programs.find(&tools::DEMO)?;
    let options = demo::Options {
        runs: args.runs as usize,
        seed: args.seed,
        patience: Duration::from_secs(args.wait_s),
        despite_load: args.despite_load,
    };
    demo::demo(&tools, &cpus, options, &args.out)
}

fn run_benchmarks(args: &RunArgs) -> anyhow::Result<()> {
    let chosen = args.suite.chosen(suite::host(args.quick), &[suite::COST])?;
    let costs = suite::is_asked(suite::COST, &args.suite.only);
    if args.suite.list {
        let costs = costs.then(|| suite::listed(suite::COST, cost::WHAT));
        return show::print(&(suite::listing(&chosen) + &costs.unwrap_or_default()));
    }
    let tools = args.suite.programs.find(&tools::NEEDED)?;
    let cpus = take_two_cpus(args.cpus.as_ref())?;
    let mut all = figures::Report::new(host::HostRecord::this(&cpus), args.quick, args.suite.seed);
    let interrupted = show::interrupts()?;
    let mut executor = measure::HostExecutor::new(cpus.clone(), interrupted.clone());
    let site = measure::Site::host(&tools, args.suite.seed)?;
    for benchmark in &chosen {
        all.run(benchmark, &site, &mut executor)?;
    }
    if costs && !all.interrupted {
        let cost = cost::cost(&site, &cpus, args.quick, args.suite.runs, &interrupted)?;
        show::print(&cost.text())?;
        all.interrupted = cost.incomplete;
        all.cost = Some(cost);
    }
    all.finish(args.suite.json.as_deref())
}

fn run_labs(args: &LabArgs) -> anyhow::Result<()> {
    let suite = &args.suite;
    let cases = labs::loops::cases(args.quick, suite.runs);
    let benchmarks = suite.chosen(suite::lab(args.quick), &cases.map(|case| case.name))?;
    let loops = labs::loops::chosen(cases, &suite.only);
    if suite.list {
        let loops: String = loops.iter().map(labs::loops::Case::listed).collect();
        return show::print(&(suite::listing(&benchmarks) + &loops));
    }
    let asked = labs::Asked {
        benchmarks: &benchmarks,
        loops: &loops,
        kernel: &args.kernel,
        quick: args.quick,
        seed: suite.seed,
    };
    labs::labs(&suite.programs.find(&tools::NEEDED)?, &asked, suite.json.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_dev_gives_can_be_given_again() {
        let cli = ["evenly-bench", "demo", "--out", "a", "--workloads", "b", "--out", "c"];
        let Command::Demo(args) = Cli::parse_from(cli).command else { panic!("not the demo") };
        assert_eq!((args.out, args.programs.workloads), ("c".into(), "b".into()));
    }
}

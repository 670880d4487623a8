//! What the waiting probe costs whole programs: each workload with it and without, in turns.
//!
//! The probe is loaded as `evenly run --probe on` does it, but no reader takes what it publishes, so that nothing
//! else is measured. What is compared is the makespan that the program prints. Phases take about a
//! millisecond, so that there are many more waits than in most programs. Workloads that run for a given time
//! (`noise`, `churn`, `odd`) have none.
//!
//! Invariant: both arms do the same work, and no run is left out.

use crate::mpi::{ENVIRONMENT, MpiArg};
use crate::show::{Shown, interrupts, print, tell};
use crate::tools::{Tools, words};
use anyhow::Context;
use clap::Args;
use clap::ValueEnum as _;
use clap::builder::NonEmptyStringValueParser;
use evenly_compare::{Arm, Comparison, Metric, Options, ProcessExecutor};
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::mpi::Flavour;
use evenly_probe::waiting::Mapping;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The arguments of `evenly-bench overhead`.
#[derive(Debug, Args)]
pub(crate) struct OverheadArgs {
    /// Where the workloads were built to
    #[arg(long, value_name = "DIR", default_value = "target/workloads")]
    workloads: PathBuf,
    /// Only programs whose name contains this (may be given more than once)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    only: Vec<String>,
    /// Runs of each
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Names of the arms.
const PLAIN: &str = "without";
const PROBE: &str = "with";

/// A program with two threads or ranks.
struct Subject {
    name: String,
    argv: Vec<OsString>,
    /// Which calls of MPI the probe stands before.
    calls: Calls,
    /// The field that is compared.
    metric: &'static str,
    /// How often each thread or rank waits, by what it was asked for; none where the probe sees nothing.
    waits: Option<u64>,
}

/// Those of `workloads/` that are built with `make`; iterations of `spmd` in a millisecond.
fn with_threads(tools: &Tools, ms: u64) -> Vec<Subject> {
    let phases = format!("--phases 500 --iters {ms}");
    let mut all = Vec::new();
    let mut add = |program: &str, options: &str, waits: Option<u64>| {
        let path = tools.workload(program);
        if !path.is_file() {
            return tell(&format!("{program} is not built here (clang with libomp is needed)"));
        }
        let options = format!("--threads 2 {options}");
        let options = options.split_whitespace().map(OsString::from);
        let argv = [path.into_os_string()].into_iter().chain(options).collect();
        let name = program.to_owned();
        all.push(Subject { name, argv, calls: Calls::None, metric: "makespan_s", waits });
    };
    // Its barriers are its own.
    add("spmd", &phases, None);
    for runtime in ["gomp", "omp"] {
        add(&format!("omp_spmd-{runtime}"), &phases, Some(500));
        add(&format!("ep-{runtime}"), "--phases 2", Some(2));
        add(&format!("jacobi-{runtime}"), "--size 400 --sweeps 6000", Some(6_000));
        // 2,080 times as many iterations in a sweep.
        let triangle = format!("--rows 64 --sweeps 400 --iters {}", (ms / 1_000).max(1));
        add(&format!("triangle-{runtime}"), &triangle, Some(400));
    }
    all
}

/// Those of MPI, built into `dir`; without those of an MPI that is not here.
fn with_ranks(dir: &Path, ms: u64) -> Vec<Subject> {
    let common: [(&str, &str); 4] = [
        ("common.c", include_str!("../../../workloads/common.c")),
        ("common.h", include_str!("../../../workloads/common.h")),
        ("kernel.c", include_str!("../../../workloads/kernel.c")),
        ("kernel.h", include_str!("../../../workloads/kernel.h")),
    ];
    let poisson = ("poisson.h", include_str!("../../../workloads/poisson.h"));
    let metbench = ("metbench.c", include_str!("../../../workloads/metbench.c"));
    let stencil = ("mpi_stencil.c", include_str!("../../../workloads/mpi_stencil.c"));
    let rate = ("mpi_rate.c", include_str!("../../../workloads/mpi_rate.c"));
    let ring = format!("--iterations 500 --iters {ms} --loads 1 --sync neighbours");
    let mut all = Vec::new();
    for mpi in MpiArg::value_variants().iter().copied() {
        let mut add = |name: &str, sources: &[(&str, &str)], options: &str, metric, waits| {
            let program = dir.join(format!("{name}-{}", mpi.tool("of")));
            if let Err(e) = mpi.build(sources, &program) {
                return tell(&format!("{}: {name} is left out: {e:#}", mpi.words()));
            }
            let argv: Vec<OsString> = [mpi.tool("mpirun").as_str(), "-n", "2"]
                .into_iter()
                .map(OsString::from)
                .chain([program.into_os_string()])
                .chain(options.split_whitespace().map(OsString::from))
                .collect();
            let name = format!("{name}, {}", mpi.words());
            let calls = Calls::of(match mpi {
                MpiArg::Openmpi => Flavour::OpenMpi,
                MpiArg::Mpich => Flavour::Mpich,
            });
            all.push(Subject { name, argv, calls, metric, waits: Some(waits) });
        };
        let sources = |first| [&[first], &common[..], &[poisson]].concat();
        let barrier = format!("--iterations 500 --iters {ms} --loads 1");
        add("metbench", &sources(metbench), &barrier, "makespan_s", 500);
        add("metbench with neighbours", &sources(metbench), &ring, "makespan_s", 500);
        // Four exchanges in a sweep.
        let sweeps = "--size 600 --sweeps 1500 --uneven 1";
        add("mpi_stencil", &sources(stencil), sweeps, "makespan_s", 6_000);
        // A send and a wait each.
        add("mpi_rate", &[rate], "--messages 100000 --steps 5000", "seconds", 200_000);
    }
    all
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &OverheadArgs) -> anyhow::Result<()> {
    crate::args::take_two_cpus(None)?;
    let tools = Tools::find(Some(Path::new("/proc/self/exe")), &args.workloads, &["spmd"])?;
    let ms = tools.iterations_per_ms()?;
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let mapping = Mapping::new()?;
    let (variable, path) = mapping.variable();
    let mut executor = ProcessExecutor { interrupted: interrupts()?, ..ProcessExecutor::default() };
    let wanted = |s: &Subject| {
        args.only.is_empty() || args.only.iter().any(|word| s.name.contains(word.as_str()))
    };
    let mut text = String::from(
        "| program | waits of each thread a second | without, s | with, s | with over without |\n\
         |---|---|---|---|---|\n",
    );
    let mut logarithms = Vec::new();
    for subject in with_threads(&tools, ms).into_iter().chain(with_ranks(dir.path(), ms)) {
        if !wanted(&subject) {
            continue;
        }
        let library = keep(subject.calls, dir.path())?;
        let mut arms = [PLAIN, PROBE].map(|name| Arm::new(name, subject.argv.clone()));
        for arm in &mut arms {
            arm.env = ENVIRONMENT.map(|(name, value)| (name.into(), value.into())).into();
        }
        arms[1].env.push((variable.clone(), path.clone()));
        arms[1].env.push(("LD_PRELOAD".into(), preload(&library, None)?));
        let options = Options {
            command: words(&subject.argv),
            runs: args.runs as usize,
            warmup: 1,
            seed: args.seed,
            metric: Metric::Field(subject.metric.to_owned()),
            ..Options::default()
        };
        let mut shown = Shown::new(&subject.name);
        let found = evenly_compare::compare(&arms, &options, &mut executor, &mut shown);
        shown.bar.clear();
        let found = found.with_context(|| subject.name.clone())?;
        if let Some((row, ratio)) = row(&subject, &found) {
            text.push_str(&row);
            logarithms.push(ratio.ln());
        }
        if found.incomplete {
            break;
        }
    }
    anyhow::ensure!(!logarithms.is_empty(), "no program of these names has run; leave out --only");
    let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    let _ = writeln!(text, "| geometric mean of {} | | | | {mean:.4} |", logarithms.len());
    print(&text)
}

/// A line of the table, and the ratio in it. None where a program has not run.
fn row(subject: &Subject, found: &Comparison) -> Option<(String, f64)> {
    let of = |name: &str| found.results.iter().find(|r| r.policy == name);
    let (plain, probe) = (of(PLAIN)?, of(PROBE)?);
    // How much faster it is without.
    let over = plain.speedup_vs.get(PROBE)?;
    let interval =
        over.ci95.map_or_else(String::new, |[low, high]| format!(" [{low:.4}, {high:.4}]"));
    let waits = subject.waits.map_or_else(
        || String::from("none that is seen"),
        |n| format!("{:.0}", n as f64 / plain.median_s.unwrap_or(f64::INFINITY)),
    );
    let row = format!(
        "| {} | {waits} | {:.4} | {:.4} | {:.4}{interval} |\n",
        subject.name, plain.median_s?, probe.median_s?, over.ratio
    );
    Some((row, over.ratio))
}

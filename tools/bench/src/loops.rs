//! Kernels whose parallel loops are handed out by OpenMP, by evenly, and by other libraries (`workloads/loops`), beside another
//! program on one of two CPUs: time over that of OpenMP's static loops.
//!
//! Threads are bound, one to each CPU: what is compared is how iterations follow CPUs, not how the kernel moves threads.
//!
//! Invariant: all arms are interleaved, and each run's checksum is that of all others of the same kernel.

mod empty;
mod turns;

use crate::measure::{MOST_OTHERS, Running, TRIES, result};
use crate::measured::Measured;
use crate::show::{interrupts, print, table};
use crate::suite::is_asked;
use crate::tools::Tools;
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use evenly_compare::{Arm, Executor, ProcessExecutor, RunOutcome};
use evenly_linux::usage::Usage;
use evenly_model::CpuSet;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(120);

/// A kernel, its size in the paper's Table 1, and steps that take somewhat less than a second for two threads.
type Kernel<'a> = [&'a str; 3];

/// The kernels, and steps that take some 20 ms, or one.
const KERNELS: [(Kernel<'static>, &str); 6] = [
    (["matrix", "512", "80"], "1"),
    (["jacobi", "2048", "800"], "16"),
    (["sor", "4096", "250"], "4"),
    (["shallow", "2048", "40"], "1"),
    (["water", "9261", "12"], "1"),
    (["gauss", "2048", "1200"], "16"),
];

/// What else runs on the second CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Nothing,
    /// Computes for half of the time, in turns of 10 ms on average.
    Half,
    All,
}

const LOADS: [(Load, &str, &str); 3] = [
    (Load::Nothing, "free", "nothing beside it"),
    (Load::Half, "half", "a load of 50 %"),
    (Load::All, "all", "a load of 100 %"),
];

/// What decides who carries out an iteration.
#[derive(Debug, Clone, Copy)]
enum By {
    /// OpenMP, with this schedule.
    OpenMp(&'static str),
    /// evenly, by this policy; threads overtake each other.
    Policy(&'static str),
    /// The same, and all threads come to the end of each loop.
    Meets(&'static str),
    /// The library that the program is linked with.
    Library,
    /// So many steps by OpenMP's static loops, then as many by evenly, and so on.
    InTurn(&'static str),
    /// LB4OMP in the place of libomp, with this schedule.
    Lb4Omp(&'static str),
}

/// The name of an arm, its program, and who hands out iterations in it.
type Way = (&'static str, &'static str, By);

const ARMS: [Way; 11] = [
    (STATIC, "loops-gomp", By::OpenMp("static")),
    ("dynamic", "loops-gomp", By::OpenMp("dynamic")),
    ("guided", "loops-gomp", By::OpenMp("guided")),
    ("libomp dynamic", "loops-omp", By::OpenMp("dynamic")),
    ("libomp guided", "loops-omp", By::OpenMp("guided")),
    ("LB4OMP awf-b", "loops-omp", By::Lb4Omp("awf_b")),
    ("oneTBB", "loops-tbb", By::Library),
    ("rayon", "loops-rayon", By::Library),
    ("evenly", "loops-gomp", By::Policy("evenly")),
    ("rp", "loops-gomp", By::Policy("rp")),
    ("rp-steal", "loops-gomp", By::Policy("rp-steal")),
];
const STATIC: &str = "static";

/// The arguments of `evenly-bench loops`.
#[derive(Debug, Args)]
pub(crate) struct LoopsArgs {
    #[command(flatten)]
    programs: crate::args::Programs,
    /// Only cases whose name contains this (may be given more than once)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    only: Vec<String>,
    /// Only static, which is the reference, and the arm of this name (may be given more than once)
    #[arg(long, value_name = "NAME", value_parser = ARMS.map(|arm| arm.0))]
    arm: Vec<String>,
    /// Runs of each arm
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Two CPUs to use, for example 0-1 [default: the first two that are allowed]
    #[arg(long, value_name = "LIST", value_parser = crate::args::cpu_list)]
    cpus: Option<CpuSet>,
    /// Also LB4OMP, an OpenMP runtime with more schedules (adaptive weighted factoring), built into this directory: its
    /// libomp.so
    #[arg(long, value_name = "DIR")]
    lb4omp: Option<PathBuf>,
    /// Seed of intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Load {
    /// Whoever else runs, if anybody does.
    fn start(self, tools: &Tools, cpu: &str) -> anyhow::Result<Option<Running>> {
        let how: &[&str] = match self {
            Self::Nothing => return Ok(None),
            Self::Half => &["--busy-ms", "5,15", "--sleep-ms", "5,15"],
            Self::All => &["--always"],
        };
        let mut command = Command::new(tools.workload("noise"));
        command.args(["--cpu", cpu]).args(how);
        Running::quiet(&mut command).map(Some)
    }
}

/// A directory in which programs find the libomp.so of another one under the names that they know libomp by.
fn in_place_of_libomp(built: &Path) -> anyhow::Result<TempDir> {
    let library = built.join("libomp.so");
    let library = library
        .canonicalize()
        .with_context(|| format!("--lb4omp: there is no {}", library.display()))?;
    let dir = tempfile::tempdir().context("cannot make a directory for LB4OMP")?;
    // The second one is Debian's.
    for name in ["libomp.so", "libomp.so.5"] {
        symlink(&library, dir.path().join(name)).context("cannot link to LB4OMP")?;
    }
    Ok(dir)
}

/// What became of a kernel in an arm.
fn outcome(
    executor: &mut ProcessExecutor,
    tools: &Tools,
    [kernel, size, steps]: Kernel<'_>,
    (arm, program, by): Way,
    lb4omp: Option<&Path>,
) -> anyhow::Result<RunOutcome> {
    let program = tools.path(program)?.into_os_string();
    // A policy that is asked for takes the place of the latter.
    let mut env: Vec<(OsString, OsString)> =
        vec![("OMP_PROC_BIND".into(), "true".into()), ("EVENLY_LOOPS".into(), "auto".into())];
    let schedule = match by {
        By::OpenMp(schedule) | By::Lb4Omp(schedule) => Some(schedule),
        By::InTurn(_) => Some(STATIC),
        By::Policy(_) | By::Meets(_) | By::Library => None,
    };
    env.extend(schedule.map(|schedule| ("OMP_SCHEDULE".into(), schedule.into())));
    if let (By::Lb4Omp(_), Some(libraries)) = (by, lb4omp) {
        env.push(("LD_LIBRARY_PATH".into(), libraries.into()));
    }
    if let By::InTurn(steps) = by {
        env.push(("LOOPS_TURNS".into(), steps.into()));
    }
    if let By::Meets(_) = by {
        env.push(("LOOPS_MEET".into(), "1".into()));
    }
    let by = match by {
        By::Policy(policy) | By::Meets(policy) => policy,
        _ => "omp",
    };
    let words = [kernel, "2", by, size, steps].map(Into::into);
    let argv = std::iter::once(program).chain(words);
    let outcome = executor.run(&Arm { env, ..Arm::new(arm, argv) }, 0)?;
    // A schedule that a runtime does not know, it ignores, with a warning.
    let said = &outcome.stderr_tail;
    anyhow::ensure!(said.is_empty(), "{kernel} {arm}: it said {said}");
    Ok(outcome)
}

/// Seconds that a kernel took in an arm, and its checksum.
fn seconds(outcome: &RunOutcome, kernel: Kernel<'_>, way: Way) -> anyhow::Result<(f64, String)> {
    result(outcome).with_context(|| format!("{} {}", kernel[0], way.0))
}

/// The same, where its checksum is that of the first run; this is the first one where there is none.
fn checked(
    outcome: &RunOutcome,
    kernel: Kernel<'_>,
    way: Way,
    first: &mut Option<String>,
) -> anyhow::Result<f64> {
    let (took, checksum) = seconds(outcome, kernel, way)?;
    let first = first.get_or_insert_with(|| checksum.clone());
    let what = || format!("{} {}: checksum {checksum} instead of {first}", kernel[0], way.0);
    anyhow::ensure!(*first == checksum, what());
    Ok(took)
}

/// What runs are made with.
struct Bench<'a> {
    executor: ProcessExecutor,
    tools: Tools,
    cpus: CpuSet,
    /// The one that has the load.
    second: String,
    lb4omp: Option<&'a Path>,
    /// Runs that did not count, as others took too much of the CPUs.
    disturbed: u32,
}

impl Bench<'_> {
    /// What became of a kernel in an arm beside a load, again and again while others disturb it.
    fn run(&mut self, kernel: Kernel<'_>, way: Way, load: Load) -> anyhow::Result<RunOutcome> {
        let mut best: Option<(f64, RunOutcome)> = None;
        for _ in 0..TRIES {
            let before = Usage::now(&self.cpus)?;
            let other = load.start(&self.tools, &self.second)?;
            let came = outcome(&mut self.executor, &self.tools, kernel, way, self.lb4omp)?;
            drop(other);
            let load = Usage::now(&self.cpus)?.since(&before, self.cpus.len());
            let took = load.others + load.stolen;
            if best.as_ref().is_none_or(|(least, _)| took < *least) {
                best = Some((took, came));
            }
            if took <= MOST_OTHERS {
                break;
            }
            self.disturbed += 1;
        }
        Ok(best.context("it was not run")?.1)
    }

    /// Whether the user has interrupted.
    fn stops(&self) -> bool {
        self.executor.interrupted.load(Ordering::Relaxed)
    }

    /// The time of each arm in each run, in turn; None where the user interrupts.
    fn case(
        &mut self,
        kernel: Kernel<'_>,
        load: Load,
        arms: &[Way],
        runs: u32,
    ) -> anyhow::Result<Option<BTreeMap<&'static str, Vec<f64>>>> {
        let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut sum = None;
        for _ in 0..runs {
            for arm in arms {
                if self.stops() {
                    return Ok(None);
                }
                let outcome = self.run(kernel, *arm, load)?;
                let took = checked(&outcome, kernel, *arm, &mut sum)?;
                times.entry(arm.0).or_default().push(took);
            }
        }
        Ok(Some(times))
    }
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &LoopsArgs) -> anyhow::Result<()> {
    let cases =
        KERNELS.iter().flat_map(|(kernel, _)| LOADS.iter().map(move |load| (*kernel, *load)));
    let name =
        |(kernel, load): &(Kernel<'_>, (Load, &str, &str))| format!("{}-{}", kernel[0], load.1);
    let cases: Vec<_> = cases.filter(|case| is_asked(&name(case), &args.only)).collect();
    let with_empty = is_asked(empty::NAME, &args.only);
    let in_turn = turns::asked(&args.only);
    anyhow::ensure!(
        !cases.is_empty() || with_empty || !in_turn.is_empty(),
        "--only: no case is called so; there are {{kernel}}-{{free,half,all,turns}}, and {empty}",
        empty = empty::NAME
    );
    let tools = args.programs.find(&["noise", "loops-gomp"])?;
    let cpus = crate::args::take_two_cpus(args.cpus.as_ref())?;
    let second = cpus.iter().nth(1).context("two CPUs are needed")?.to_string();
    let lb4omp = args.lb4omp.as_deref().map(in_place_of_libomp).transpose()?;
    let lb4omp = lb4omp.as_ref().map(TempDir::path);
    let can_run = |(name, program, by): &Way| {
        let is_asked = args.arm.is_empty() || *name == STATIC || args.arm.iter().any(|a| a == name);
        is_asked
            && tools.path(program).is_ok()
            && (lb4omp.is_some() || !matches!(by, By::Lb4Omp(_)))
    };
    let arms: Vec<_> = ARMS.into_iter().filter(can_run).collect();
    let executor = ProcessExecutor {
        limit: Some(LIMIT),
        interrupted: interrupts()?,
        ..ProcessExecutor::default()
    };
    let mut bench = Bench { executor, tools, cpus, second, lb4omp, disturbed: 0 };
    if with_empty {
        print(&empty::measure(&mut bench, args.runs, args.seed)?)?;
    }
    if !in_turn.is_empty() {
        print(&turns::measure(&mut bench, &in_turn, args.runs, args.seed)?)?;
    }
    if cases.is_empty() {
        return Ok(());
    }
    let head = arms.iter().map(|arm| arm.0.to_owned());
    let mut rows = vec![
        std::iter::once("times of OpenMP's static".to_owned())
            .chain(head.skip(1))
            .collect::<Vec<_>>(),
    ];
    for (kernel, (load, _, what)) in cases {
        let Some(seconds) = bench.case(kernel, load, &arms, args.runs)? else { break };
        let ratio = |arm: &str| Measured::ratio(&seconds[arm], &seconds[STATIC], args.seed);
        let text = |arm: &Way| ratio(arm.0).map_or_else(|| "-".into(), |m| m.text(2));
        let mut row = vec![format!("{}, {what}", kernel[0])];
        row.extend(arms.iter().skip(1).map(text));
        crate::show::tell_above(&row.join("   "));
        rows.push(row);
    }
    let note = format!(
        "Two threads, each bound to a CPU; the load is on the second one. A load of 100 % has half of it, so that no less than 0.67 \
         can be had, and 0.75 to 0.86 of one of 50 %. Medians, 95 % intervals. Run again, as others took more than {:.0} % of the \
         CPUs: {}.\n",
        100.0 * MOST_OTHERS,
        bench.disturbed
    );
    print(&(table(&rows) + &note))
}

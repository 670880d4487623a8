//! Kernels whose parallel loops are handed out by OpenMP or by evenly (`workloads/loops`), beside another program on one of two
//! CPUs: time over that of OpenMP's static loops.
//!
//! Threads are bound, one to each CPU: what is compared is how iterations follow CPUs, not how the kernel moves threads.
//!
//! Invariant: all arms are interleaved, and each run's checksum is that of all others of the same kernel.

use crate::measure::{Running, result};
use crate::measured::Measured;
use crate::show::{interrupts, print, table};
use crate::suite::is_asked;
use crate::tools::Tools;
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use evenly_compare::{Arm, Executor, ProcessExecutor};
use evenly_model::CpuSet;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(120);

/// A kernel, its size in the paper's Table 1, and steps that take about a second for two threads.
type Kernel = [&'static str; 3];

const KERNELS: [Kernel; 6] = [
    ["matrix", "512", "50"],
    ["jacobi", "2048", "400"],
    ["sor", "4096", "150"],
    ["shallow", "2048", "6"],
    ["water", "9261", "6"],
    ["gauss", "2048", "1200"],
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

/// Who hands out iterations: the name of the arm, the program, and how.
const ARMS: [(&str, &str, &str); 8] = [
    (STATIC, "loops-gomp", "static"),
    ("dynamic", "loops-gomp", "dynamic"),
    ("guided", "loops-gomp", "guided"),
    ("libomp dynamic", "loops-omp", "dynamic"),
    ("libomp guided", "loops-omp", "guided"),
    ("evenly", "loops-gomp", ""),
    ("rp", "loops-gomp", ""),
    ("rp-steal", "loops-gomp", ""),
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
    /// Runs of each arm
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Two CPUs to use, for example 0-1 [default: the first two that are allowed]
    #[arg(long, value_name = "LIST", value_parser = crate::args::cpu_list)]
    cpus: Option<CpuSet>,
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

/// Seconds that a kernel takes in an arm, and its checksum.
fn run(
    executor: &mut ProcessExecutor,
    tools: &Tools,
    [kernel, size, steps]: Kernel,
    (arm, program, schedule): (&'static str, &str, &str),
) -> anyhow::Result<(f64, String)> {
    // Policies of evenly have the names of their arms.
    let by = if schedule.is_empty() { arm } else { "omp" };
    let program = tools.path(program)?.into_os_string();
    let words = [kernel, "2", by, size, steps].map(Into::into);
    let env = [("OMP_SCHEDULE", schedule), ("OMP_PROC_BIND", "true")];
    let env = env.into_iter().filter(|(_, value)| !value.is_empty());
    let env = env.map(|(name, value)| (name.into(), value.into())).collect();
    let argv = std::iter::once(program).chain(words);
    let outcome = executor.run(&Arm { env, ..Arm::new(arm, argv) }, 0)?;
    result(&outcome).with_context(|| format!("{kernel} {arm}"))
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &LoopsArgs) -> anyhow::Result<()> {
    let cases = KERNELS.iter().flat_map(|kernel| LOADS.iter().map(move |load| (*kernel, *load)));
    let name = |(kernel, load): &(Kernel, (Load, &str, &str))| format!("{}-{}", kernel[0], load.1);
    let cases: Vec<_> = cases.filter(|case| is_asked(&name(case), &args.only)).collect();
    anyhow::ensure!(
        !cases.is_empty(),
        "--only: no case is called so; there are {{kernel}}-{{free,half,all}}"
    );
    let programs = &args.programs;
    let needed = ["noise", "loops-gomp"];
    let tools = Tools::find(programs.evenly.as_deref(), &programs.workloads, &needed)?;
    let cpus = crate::args::take_two_cpus(args.cpus.as_ref())?;
    let second = cpus.iter().nth(1).context("two CPUs are needed")?.to_string();
    let has_libomp = tools.path("loops-omp").is_ok();
    let arms: Vec<_> = ARMS.into_iter().filter(|arm| has_libomp || arm.1 != "loops-omp").collect();
    let interrupted = interrupts()?;
    let mut executor = ProcessExecutor {
        limit: Some(LIMIT),
        interrupted: interrupted.clone(),
        ..ProcessExecutor::default()
    };
    let head = arms.iter().map(|arm| arm.0.to_owned());
    let mut rows = vec![
        std::iter::once("times of OpenMP's static".to_owned())
            .chain(head.skip(1))
            .collect::<Vec<_>>(),
    ];
    for (kernel, (load, _, what)) in cases {
        let mut seconds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut sum = None;
        for _ in 0..args.runs {
            for arm in &arms {
                if interrupted.load(Ordering::Relaxed) {
                    return print(&table(&rows));
                }
                let _other = load.start(&tools, &second)?;
                let (took, checksum) = run(&mut executor, &tools, kernel, *arm)?;
                let first = sum.get_or_insert_with(|| checksum.clone());
                anyhow::ensure!(
                    *first == checksum,
                    "{} {}: checksum {checksum} instead of {first}",
                    kernel[0],
                    arm.0
                );
                seconds.entry(arm.0).or_default().push(took);
            }
        }
        let ratio = |arm: &str| Measured::ratio(&seconds[arm], &seconds[STATIC], args.seed);
        let text =
            |arm: &(&str, &str, &str)| ratio(arm.0).map_or_else(|| "-".into(), |m| m.text(2));
        let mut row = vec![format!("{}, {what}", kernel[0])];
        row.extend(arms.iter().skip(1).map(text));
        crate::show::tell_above(&row.join("   "));
        rows.push(row);
    }
    let note = "Two threads, each bound to a CPU; the load is on the second one. A load of 100 % has half of it, so that no less \
                than 0.67 can be had, and 0.75 to 0.86 of one of 50 %. Medians, 95 % intervals.\n";
    print(&(table(&rows) + note))
}

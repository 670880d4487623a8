//! Programs that collapse because their threads spin: the museum in `workloads/collapse`, with more threads than CPUs.
//!
//! Each case is run with two threads, which is what the machine can do; under the kernel; under evenly as it is by default;
//! and in the best setting that its kind has, where there is one. A collapse takes a hundred times as long, so runs of the
//! kernel have a twentieth of the phases, and times are compared by phase.
//!
//! Invariant: all arms are interleaved, and each run's checksum is that of all others of the same work.

use crate::measured::Measured;
use crate::mpi::{ENVIRONMENT, METBENCH, MpiArg};
use crate::show::{interrupts, print, table};
use crate::suite::is_asked;
use crate::tools::Tools;
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use evenly_compare::{Arm, Executor, ProcessExecutor};
use evenly_model::CpuSet;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(60);
/// Runs of the kernel have so much less to do.
const SHORTER: u64 = 20;
/// Names of the arms.
const TWO: &str = "two threads";
const KERNEL: &str = "kernel";
const EVENLY: &str = "evenly";
const TUNED: &str = "tuned";

/// The arguments of `evenly-bench collapse`.
#[derive(Debug, Args)]
pub(crate) struct CollapseArgs {
    #[command(flatten)]
    pub(crate) programs: crate::args::Programs,
    /// Only cases whose name contains this (may be given more than once)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) only: Vec<String>,
    /// Name the cases, and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Runs of each arm
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) runs: u32,
    /// Two CPUs to use, for example 0-1 [default: the first two that are allowed]
    #[arg(long, value_name = "LIST", value_parser = crate::args::cpu_list)]
    pub(crate) cpus: Option<CpuSet>,
    /// Seed of intervals
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// How much n threads have to do, as times of what two have: the bound without moves within phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// A part for each thread in each phase: the CPU with most threads decides.
    Phases,
    /// A part for each thread, in any order.
    Work,
    /// The same for any number of threads.
    Fixed,
}

impl Bound {
    fn of(self, threads: u32) -> f64 {
        match self {
            Self::Phases => f64::from(threads.div_ceil(2)),
            Self::Work => f64::from(threads) / 2.0,
            Self::Fixed => 1.0,
        }
    }
}

/// One way to wait.
struct Kind {
    name: &'static str,
    what: &'static str,
    /// Phases of a run.
    phases: u64,
    bound: Bound,
    /// The words of a command with so many threads and phases, and iterations in a millisecond.
    command: fn(u32, u64, u64) -> Vec<String>,
    environment: &'static [(&'static str, &'static str)],
    /// Whose ranks these are, in place of threads.
    mpi: Option<MpiArg>,
    /// The best setting that there is for it: words, or variables, in place of the usual ones.
    tuned: Option<Tuned>,
}

#[derive(Clone, Copy)]
enum Tuned {
    Words(&'static str, &'static str),
    Variables(&'static [(&'static str, &'static str)]),
}

/// A barrier of its own with phases of so many microseconds.
fn spmd(barrier: &str, threads: u32, phases: u64, iterations: u64) -> Vec<String> {
    let words = format!(
        "spmd --threads {threads} --phases {phases} --iters {iterations} --barrier {barrier}"
    );
    words.split(' ').map(str::to_owned).collect()
}

fn openmp(runtime: &str, threads: u32, phases: u64, iterations: u64) -> Vec<String> {
    let words =
        format!("omp_spmd-{runtime} --threads {threads} --phases {phases} --iters {iterations}");
    words.split(' ').map(str::to_owned).collect()
}

/// A pattern of `collapse`, or of `collapse-bare`: the same in loops without `pause`.
fn pattern(of: [&str; 2], threads: u32, phases: u64, sizes: [u64; 2]) -> Vec<String> {
    let ([program, pattern], [iterations, held]) = (of, sizes);
    let words = format!(
        "{program} --pattern {pattern} --threads {threads} --phases {phases} --iters {iterations} --held {held}"
    );
    words.split(' ').map(str::to_owned).collect()
}

fn metbench(sync: &str, phases: u64, iterations: u64) -> Vec<String> {
    let words =
        format!("metbench --iterations {phases} --iters {iterations} --loads 1 --sync {sync}");
    words.split(' ').map(str::to_owned).collect()
}

const SPINNING_RANKS: &[(&str, &str)] = &[("OMPI_MCA_mpi_yield_when_idle", "0")];
const YIELDING_RANKS: &[(&str, &str)] = &[("OMPI_MCA_mpi_yield_when_idle", "1")];
const YIELDS: Option<Tuned> = Some(Tuned::Words("spin", "yield"));
const PASSIVE: Option<Tuned> = Some(Tuned::Variables(&[("OMP_WAIT_POLICY", "passive")]));
const ACTIVE_GOMP: &[(&str, &str)] =
    &[("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "infinite")];
const ACTIVE_OMP: &[(&str, &str)] =
    &[("KMP_BLOCKTIME", "infinite"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")];

fn kinds() -> Vec<Kind> {
    let kind = |name, what, phases, bound, command| Kind {
        name,
        what,
        phases,
        bound,
        command,
        environment: &[],
        mpi: None,
        tuned: None,
    };
    vec![
        Kind {
            tuned: YIELDS,
            ..kind(
                "c11-0.2ms",
                "barrier of C11 atomics, 0.2 ms",
                5_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms / 5),
            )
        },
        Kind {
            tuned: YIELDS,
            ..kind(
                "c11-15us",
                "barrier of C11 atomics, 15 us",
                60_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms * 15 / 1000),
            )
        },
        kind("rust-0.2ms", "barrier in Rust, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
            vec!["spin_barrier".into(), n.to_string(), p.to_string(), (ms / 5).to_string()]
        }),
        kind("yield-15us", "barrier with sched_yield, 15 us", 60_000, Bound::Phases, |n, p, ms| {
            spmd("yield", n, p, ms * 15 / 1000)
        }),
        kind("ticket-50us", "ticket lock held for 9 of 63 us", 20_000, Bound::Work, |n, p, ms| {
            pattern(["collapse", "ticket"], n, p, [ms * 54 / 1000, ms * 9 / 1000])
        }),
        kind("ttas-50us", "test-and-test-and-set, 9 of 63 us", 20_000, Bound::Work, |n, p, ms| {
            pattern(["collapse", "ttas"], n, p, [ms * 54 / 1000, ms * 9 / 1000])
        }),
        kind("spinlock-50us", "pthread_spin_lock, 9 of 63 us", 20_000, Bound::Work, |n, p, ms| {
            pattern(["collapse", "spinlock"], n, p, [ms * 54 / 1000, ms * 9 / 1000])
        }),
        kind("ticket-bare", "ticket lock without pause", 20_000, Bound::Work, |n, p, ms| {
            pattern(["collapse-bare", "ticket"], n, p, [ms * 54 / 1000, ms * 9 / 1000])
        }),
        kind("pipeline-bare", "pipeline without pause, 20 us", 60_000, Bound::Work, |n, p, ms| {
            pattern(["collapse-bare", "pipeline"], n, p, [ms * 20 / 1000, 1])
        }),
        kind("pipeline-20us", "pipeline over flags, 20 us", 60_000, Bound::Work, |n, p, ms| {
            pattern(["collapse", "pipeline"], n, p, [ms * 20 / 1000, 1])
        }),
        kind("pool-0.2ms", "pool whose idle workers spin", 5_000, Bound::Fixed, |n, p, ms| {
            pattern(["collapse", "pool"], n, p, [ms * 400 / 64 / 1000, 1])
        }),
        Kind {
            environment: ACTIVE_GOMP,
            tuned: PASSIVE,
            ..kind("libgomp-active", "libgomp, active, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                openmp("gomp", n, p, ms / 5)
            })
        },
        Kind {
            environment: ACTIVE_OMP,
            tuned: Some(Tuned::Variables(&[("KMP_LIBRARY", "throughput")])),
            ..kind("libomp-active", "libomp, active, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                openmp("omp", n, p, ms / 5)
            })
        },
        Kind {
            environment: SPINNING_RANKS,
            mpi: Some(MpiArg::Openmpi),
            tuned: Some(Tuned::Variables(YIELDING_RANKS)),
            ..kind(
                "openmpi-0.2ms",
                "Open MPI, barrier, 0.2 ms",
                5_000,
                Bound::Phases,
                |_, p, ms| metbench("barrier", p, ms / 5),
            )
        },
        Kind {
            mpi: Some(MpiArg::Mpich),
            ..kind("mpich-0.2ms", "MPICH, barrier, 0.2 ms", 5_000, Bound::Phases, |_, p, ms| {
                metbench("barrier", p, ms / 5)
            })
        },
        Kind {
            mpi: Some(MpiArg::Mpich),
            ..kind("mpich-ring", "MPICH, messages, 0.2 ms", 5_000, Bound::Phases, |_, p, ms| {
                metbench("neighbours", p, ms / 5)
            })
        },
        kind("block-0.2ms", "blocks: nothing to gain, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
            spmd("block", n, p, ms / 5)
        }),
    ]
}

#[derive(Debug)]
struct Measurement {
    what: String,
    /// Time of each arm over the bound.
    arms: [Option<Measured>; 3],
    /// Time of the kernel over that of evenly.
    speedup: Option<Measured>,
}

struct Bench<'a> {
    args: &'a CollapseArgs,
    tools: Tools,
    per_ms: u64,
    /// Where programs of MPI are.
    room: PathBuf,
    executor: ProcessExecutor,
}

impl Bench<'_> {
    /// Seconds that all phases of the case take in this arm, and the checksum.
    fn run(
        &mut self,
        kind: &Kind,
        threads: u32,
        arm: &'static str,
    ) -> anyhow::Result<(f64, String)> {
        let part = if arm == KERNEL { SHORTER } else { 1 };
        let mut words = (kind.command)(threads, kind.phases / part, self.per_ms);
        let mut environment = kind.environment.to_vec();
        match (arm, kind.tuned) {
            (TUNED, Some(Tuned::Words(from, to))) => {
                words.iter_mut().filter(|w| *w == from).for_each(|w| to.clone_into(w));
            }
            (TUNED, Some(Tuned::Variables(variables))) => environment = variables.to_vec(),
            _ => {}
        }
        let mut argv: Vec<OsString> = Vec::new();
        if arm == EVENLY {
            argv.push(self.tools.evenly.clone().into());
            argv.extend(["run", "-q", "--"].map(OsString::from));
        }
        if let Some(mpi) = kind.mpi {
            environment.extend(ENVIRONMENT);
            argv.extend([mpi.tool("mpirun"), "-n".into(), threads.to_string()].map(OsString::from));
            argv.push(self.room.join(mpi.tool("metbench")).into());
        } else {
            argv.push(self.tools.workload(&words[0]).into());
        }
        argv.extend(words[1..].iter().map(OsString::from));
        let env = environment.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        let outcome = self.executor.run(&Arm { env, ..Arm::new(arm, argv) }, 0)?;
        let text = crate::measure::printed(&outcome).unwrap_or_default();
        let printed: serde_json::Value = serde_json::from_str(text.trim())
            .with_context(|| format!("{} {arm}: it printed no result: {text}", kind.name))?;
        let seconds = printed["makespan_s"].as_f64().context("a result without makespan_s")?;
        Ok((seconds * part as f64, printed["checksum"].to_string()))
    }
}

/// Seconds of each arm, and what two threads took.
#[derive(Default)]
struct Seconds {
    of: BTreeMap<&'static str, Vec<f64>>,
    /// Checksums by number of threads and whether there was less to do.
    sums: BTreeMap<(u32, bool), String>,
}

impl Seconds {
    fn add(
        &mut self,
        bench: &mut Bench<'_>,
        kind: &Kind,
        threads: u32,
        arm: &'static str,
    ) -> anyhow::Result<()> {
        let (seconds, sum) = bench.run(kind, threads, arm)?;
        let first = self.sums.entry((threads, arm == KERNEL)).or_insert_with(|| sum.clone());
        anyhow::ensure!(*first == sum, "{} {arm}: checksum {sum} instead of {first}", kind.name);
        self.of.entry(arm).or_default().push(seconds);
        Ok(())
    }
}

impl Kind {
    fn measure(
        &self,
        threads: u32,
        bench: &mut Bench<'_>,
        interrupted: impl Fn() -> bool,
    ) -> anyhow::Result<Measurement> {
        let mut seconds = Seconds::default();
        for _ in 0..bench.args.runs {
            if interrupted() {
                break;
            }
            seconds.add(bench, self, 2, TWO)?;
            for arm in [KERNEL, EVENLY] {
                seconds.add(bench, self, threads, arm)?;
            }
            if self.tuned.is_some() {
                seconds.add(bench, self, threads, TUNED)?;
            }
        }
        let (bound, seed) = (self.bound.of(threads), bench.args.seed);
        let none = Vec::new();
        let two: &Vec<f64> = seconds.of.get(TWO).unwrap_or(&none);
        let of = |name: &'static str| seconds.of.get(name).unwrap_or(&none);
        let of_bound = |name| Some(Measured::ratio(of(name), two, seed)?.scaled(1.0 / bound));
        Ok(Measurement {
            what: format!("{}, {threads} threads", self.what),
            arms: [KERNEL, EVENLY, TUNED].map(of_bound),
            speedup: Measured::ratio(of(KERNEL), of(EVENLY), seed),
        })
    }
}

impl Measurement {
    fn row(&self) -> Vec<String> {
        let text = |m: Option<Measured>| m.map_or_else(|| "-".into(), |m| m.text(2));
        let mut row = vec![self.what.clone()];
        row.extend(self.arms.map(text));
        row.push(text(self.speedup));
        row
    }
}

fn report(cases: &[Measurement]) -> String {
    let head = ["on two CPUs, times of the bound", KERNEL, EVENLY, TUNED, "kernel / evenly"];
    let rows = cases.iter().map(Measurement::row);
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    let note = "The bound is what two threads take, times the work that there is more: no more can be had \
                without moves within phases. Medians, 95 % intervals.\n";
    table(&rows) + note
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &CollapseArgs) -> anyhow::Result<()> {
    let all = kinds();
    let cases: Vec<(&Kind, u32)> = all.iter().flat_map(|kind| [(kind, 3), (kind, 4)]).collect();
    let name = |&(kind, threads): &(&Kind, u32)| format!("{}-{threads}", kind.name);
    let chosen: Vec<&(&Kind, u32)> =
        cases.iter().filter(|case| is_asked(&name(case), &args.only)).collect();
    if chosen.is_empty() {
        let names: Vec<String> = cases.iter().map(name).collect();
        let only = args.only.join(", ");
        anyhow::bail!(
            "--only {only}: no case has that in its name; there are {}",
            names.join(", ")
        );
    }
    if args.list {
        let line = |case: &&(&Kind, u32)| format!("{:<20} {}\n", name(case), case.0.what);
        return print(&chosen.iter().map(line).collect::<String>());
    }
    let mut needed = vec![String::from("spmd")];
    let of_threads = chosen.iter().filter(|(kind, _)| kind.mpi.is_none());
    needed.extend(of_threads.map(|(kind, n)| (kind.command)(*n, 1, 1)[0].clone()));
    let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
    let programs = &args.programs;
    let tools = Tools::find(programs.evenly.as_deref(), &programs.workloads, &needed)?;
    crate::args::take_two_cpus(args.cpus.as_ref())?;
    let per_ms = tools.iterations_per_ms()?;
    let interrupted = interrupts()?;
    let executor = ProcessExecutor {
        limit: Some(LIMIT),
        interrupted: interrupted.clone(),
        ..ProcessExecutor::default()
    };
    let room = tempfile::tempdir().context("cannot make a directory")?;
    for mpi in [MpiArg::Openmpi, MpiArg::Mpich] {
        if chosen.iter().any(|(kind, _)| kind.mpi == Some(mpi)) {
            mpi.build(&METBENCH, &room.path().join(mpi.tool("metbench")))?;
        }
    }
    let mut bench = Bench { args, tools, per_ms, room: room.path().to_owned(), executor };
    let mut measured = Vec::new();
    for (kind, threads) in chosen {
        let stops = || interrupted.load(Ordering::Relaxed);
        if stops() {
            break;
        }
        let case = kind.measure(*threads, &mut bench, stops)?;
        crate::show::tell_above(&case.row().join("   "));
        measured.push(case);
    }
    print(&report(&measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three threads that meet have one CPU with two of them; three that do not share two CPUs.
    #[test]
    fn the_bound_is_what_has_to_be_done_after_two_threads() {
        let of = |bound: Bound| [2, 3, 4].map(|n| bound.of(n));
        assert_eq!(of(Bound::Phases), [1.0, 2.0, 2.0]);
        assert_eq!(of(Bound::Work), [1.0, 1.5, 2.0]);
        assert_eq!(of(Bound::Fixed), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn every_kind_has_a_program_and_phases_for_the_kernel_too() {
        let names: std::collections::BTreeSet<&str> = kinds().iter().map(|k| k.name).collect();
        assert_eq!(names.len(), kinds().len());
        for kind in kinds() {
            assert!(kind.phases / SHORTER > 100, "{}", kind.name);
            let words = (kind.command)(3, kind.phases, 500_000);
            assert!(words.len() > 3 && words.iter().all(|w| !w.is_empty()), "{words:?}");
            if let Some(Tuned::Words(from, _)) = kind.tuned {
                assert!(words.iter().any(|w| w == from), "{words:?}");
            }
        }
    }
}

//! Two programs beside each other: how long both take, and how evenly they are slowed down, under the kernel, each under evenly
//! for itself, and each under evenly with an account between them.
//!
//! The limit is what both take one after the other, each alone with as many threads as there are CPUs: no CPU is without work
//! then, and nobody waits for one. Where programs collapse that do not cooperate, they have fewer phases then; times are compared by
//! phase.
//!
//! Invariant: all arms are interleaved, both programs of a pair are started at the same moment, and each run's checksum is that of
//! all others of the same work.

use crate::args::Cases;
use crate::commands::{
    ACTIVE_GOMP, KERNEL, Program, Ready, SPINNING_RANKS, metbench, openmp, spmd,
};
use crate::measure::{Running, neighbour_cpu_s, result_in};
use crate::measured::Measured;
use crate::mpi::MpiArg;
use crate::show::{interrupts, print, table};
use anyhow::Context;
use clap::Args;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(90);
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(2);
/// Names of the arms.
const EACH: &str = "evenly, each";
const TOGETHER: &str = "evenly, together";
/// How much longer the work is together than in the other arms, where these collapse.
const SHORTER: u64 = 8;

/// The arguments of `evenly-bench together`.
#[derive(Debug, Args)]
pub(crate) struct TogetherArgs {
    #[command(flatten)]
    pub(crate) cases: Cases,
}

/// A program that ends when its phases are done.
#[derive(Clone, Copy)]
struct Job {
    program: Program,
    threads: u32,
    phases: u64,
    /// The words of a command with so many threads and phases, and iterations in a millisecond.
    command: fn(u32, u64, u64) -> Vec<String>,
    environment: &'static [(&'static str, &'static str)],
}

/// What runs beside the first program.
#[derive(Clone, Copy)]
enum Other {
    Job(Job),
    /// One thread that computes until the first has ended, not under evenly in any arm.
    Load,
}

struct Pair {
    name: &'static str,
    what: &'static str,
    first: Job,
    other: Other,
    /// How much less work there is in all arms but the last.
    shorter: u64,
}

fn pairs() -> Vec<Pair> {
    let workload = |threads, phases, command| Job {
        program: Program::Workload,
        threads,
        phases,
        command,
        environment: &[],
    };
    let ranks = |mpi, threads, phases, command| Job {
        program: Program::Ranks(mpi),
        environment: SPINNING_RANKS,
        ..workload(threads, phases, command)
    };
    let spins: fn(u32, u64, u64) -> Vec<String> = |n, p, ms| spmd("spin", n, p, ms / 5);
    let blocks: fn(u32, u64, u64) -> Vec<String> = |n, p, ms| spmd("block", n, p, ms / 5);
    let gomp: fn(u32, u64, u64) -> Vec<String> = |n, p, ms| openmp("omp_spmd-gomp", n, p, ms);
    let omp: fn(u32, u64, u64) -> Vec<String> = |n, p, ms| openmp("omp_spmd-omp", n, p, ms);
    let meets: fn(u32, u64, u64) -> Vec<String> = |_, p, ms| metbench("barrier", p, ms / 5);
    let products: fn(u32, u64, u64) -> Vec<String> =
        |_, p, _| vec!["python3".into(), p.to_string()];
    let numpy = Job { program: Program::NumPy, ..workload(2, 4_000, products) };
    let active = |threads| Job { environment: ACTIVE_GOMP, ..workload(threads, 1_200, gomp) };
    let open = |threads| ranks(MpiArg::Openmpi, threads, 6_000, meets);
    let same =
        |name, what, job: Job| Pair { name, what, first: job, other: Other::Job(job), shorter: 1 };
    let collapses = |pair| Pair { shorter: SHORTER, ..pair };
    vec![
        collapses(same(
            "spin-2-2",
            "barriers of C11 atomics, 0.2 ms, 2 + 2 threads",
            workload(2, 6_000, spins),
        )),
        same("block-2-2", "the same, which block, 2 + 2 threads", workload(2, 6_000, blocks)),
        same("gomp-2-2", "libgomp, 1 ms, 2 + 2 threads", workload(2, 1_200, gomp)),
        same("gomp-active-2-2", "libgomp, active, 1 ms, 2 + 2 threads", active(2)),
        same("gomp-3-3", "libgomp, 1 ms, 3 + 3 threads", workload(3, 800, gomp)),
        same("omp-2-2", "libomp, 1 ms, 2 + 2 threads", workload(2, 1_200, omp)),
        collapses(same("openmpi-2-2", "Open MPI, 0.2 ms, 2 + 2 ranks", open(2))),
        Pair {
            name: "openmpi-2-3",
            what: "Open MPI, 0.2 ms, 2 + 3 ranks",
            first: open(2),
            other: Other::Job(Job { phases: 4_000, ..open(3) }),
            shorter: SHORTER,
        },
        Pair {
            name: "mpich-2-3",
            what: "MPICH, 0.2 ms, 2 + 3 ranks",
            first: ranks(MpiArg::Mpich, 2, 6_000, meets),
            other: Other::Job(ranks(MpiArg::Mpich, 3, 4_000, meets)),
            shorter: SHORTER,
        },
        Pair {
            name: "openmpi-gomp",
            what: "Open MPI, 0.2 ms, 2 ranks; libgomp, 1 ms, 2 threads",
            first: open(2),
            other: Other::Job(workload(2, 1_200, gomp)),
            shorter: 2,
        },
        Pair {
            name: "spin-load",
            what: "barriers of C11 atomics, 0.2 ms, 2 threads; a load",
            first: workload(2, 6_000, spins),
            other: Other::Load,
            shorter: 1,
        },
        Pair {
            name: "gomp-load",
            what: "libgomp, 1 ms, 2 threads; a load",
            first: workload(2, 1_200, gomp),
            other: Other::Load,
            shorter: 1,
        },
        Pair {
            name: "openmpi-load",
            what: "Open MPI, 0.2 ms, 2 ranks; a load",
            first: open(2),
            other: Other::Load,
            shorter: 2,
        },
        same("numpy", "NumPy, OpenBLAS, twice", numpy),
    ]
}

/// What came of a run of both.
struct Outcome {
    /// Seconds of each, by all of its phases; of a load how much of a CPU it had.
    of: [f64; 2],
}

struct Bench<'a> {
    args: &'a TogetherArgs,
    programs: Ready,
    per_ms: u64,
    /// Checksums by words of the command, and threads or ranks.
    sums: BTreeMap<(Vec<String>, u32), String>,
}

/// A program that runs, and what it prints: of a pipe that nobody reads meanwhile it would fill the buffer, and wait.
struct Started {
    running: Running,
    out: File,
}

impl Started {
    fn new(words: &[OsString], env: &[(&str, &str)]) -> anyhow::Result<Self> {
        let name = words.first().context("a command without words")?;
        let mut command = Command::new(name);
        command.args(&words[1..]).envs(env.iter().copied());
        let out = tempfile::tempfile().context("cannot make a file for what is printed")?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot start {}", name.display()))?;
        Ok(Self { running: Running(child), out })
    }

    /// What it has printed, once it has ended.
    fn printed(&mut self) -> anyhow::Result<String> {
        let status = self.running.0.wait()?;
        let mut text = String::new();
        self.out.rewind()?;
        self.out.read_to_string(&mut text)?;
        anyhow::ensure!(status.success(), "it ended with {status}");
        Ok(text)
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.running.0.try_wait()?.is_some())
    }
}

impl Bench<'_> {
    fn start(
        &self,
        job: &Job,
        arm: &str,
        words: &[String],
        threads: u32,
    ) -> anyhow::Result<Started> {
        let options: &[&str] = match arm {
            EACH => &["run", "-q", "--cooperate", "program", "--"],
            TOGETHER => &["run", "-q", "--"],
            _ => &[],
        };
        let mut argv: Vec<OsString> = Vec::new();
        if !options.is_empty() {
            argv.push(self.programs.tools.evenly.clone().into());
            argv.extend(options.iter().map(OsString::from));
        }
        let program = self.programs.command(job.program, threads, words)?;
        argv.extend(program.words);
        let mut env = job.environment.to_vec();
        env.extend(program.environment);
        Started::new(&argv, &env)
    }

    /// Seconds that a program says it took. Its checksum is that of all others with these words and so many threads.
    fn result(
        &mut self,
        words: Vec<String>,
        threads: u32,
        started: &mut Started,
    ) -> anyhow::Result<f64> {
        let name = words.join(" ");
        let (seconds, sum) =
            started.printed().and_then(|text| result_in(&text)).with_context(|| name.clone())?;
        let first = self.sums.entry((words, threads)).or_insert_with(|| sum.clone());
        anyhow::ensure!(*first == sum, "{name}: checksum {sum} instead of {first}");
        Ok(seconds)
    }

    /// Seconds that all of a program's work takes with as many threads as there are CPUs, and nobody beside it.
    fn alone(&mut self, job: &Job) -> anyhow::Result<f64> {
        let words = (job.command)(2, job.phases, self.per_ms);
        let mut started = self.start(job, KERNEL, &words, 2)?;
        Ok(self.result(words, 2, &mut started)? * f64::from(job.threads) / 2.0)
    }

    fn both(&mut self, pair: &Pair, arm: &str) -> anyhow::Result<Outcome> {
        let part = if arm == TOGETHER { 1 } else { pair.shorter };
        let words = |job: &Job| (job.command)(job.threads, job.phases / part, self.per_ms);
        let (of_first, begin) = (words(&pair.first), Instant::now());
        let (mut other, of_other) = match &pair.other {
            Other::Job(job) => {
                let words = words(job);
                (self.start(job, arm, &words, job.threads)?, Some((words, job.threads)))
            }
            Other::Load => {
                let noise = self.programs.tools.workload("noise");
                (Started::new(&[noise.into(), "--always".into()], &[])?, None)
            }
        };
        let mut first = self.start(&pair.first, arm, &of_first, pair.first.threads)?;
        loop {
            let ended = [first.has_ended()?, other.has_ended()?];
            if ended[0] && (ended[1] || of_other.is_none()) {
                break;
            }
            anyhow::ensure!(begin.elapsed() < LIMIT, "{} {arm}: it does not end", pair.name);
            std::thread::sleep(LOOK);
        }
        let lasted = begin.elapsed().as_secs_f64();
        let first = self.result(of_first, pair.first.threads, &mut first)? * part as f64;
        let other = match of_other {
            Some((words, threads)) => self.result(words, threads, &mut other)? * part as f64,
            None => {
                other.running.terminate()?;
                let used = neighbour_cpu_s(&other.printed()?).context("a load without cpu_s")?;
                used / lasted
            }
        };
        Ok(Outcome { of: [first, other] })
    }
}

/// Seconds of both, and how unevenly they were slowed down, or how much of a CPU the load had, for each run of an arm.
#[derive(Default)]
struct Sample {
    seconds: Vec<f64>,
    other: Vec<f64>,
}

struct Measurement {
    what: &'static str,
    /// Time of each arm over the limit, and the second figure.
    arms: [(Option<Measured>, Option<Measured>); 3],
    /// Time of each for itself over that of both together.
    gain: Option<Measured>,
}

impl Pair {
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Measurement> {
        let mut limits = Vec::new();
        let mut samples: [Sample; 3] = Default::default();
        for _ in 0..bench.args.cases.runs {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            let first = bench.alone(&self.first)?;
            let other = match &self.other {
                Other::Job(job) => Some(bench.alone(job)?),
                Other::Load => None,
            };
            limits.push(self.limit(first, other));
            for (arm, sample) in [KERNEL, EACH, TOGETHER].into_iter().zip(&mut samples) {
                let Outcome { of: [a, b] } = bench.both(self, arm)?;
                sample.seconds.push(if other.is_some() { a.max(b) } else { a });
                sample.other.push(match other {
                    Some(other) => unevenness(a / first, b / other),
                    None => b,
                });
            }
        }
        let seed = bench.args.cases.seed;
        let arms = samples.each_ref().map(|sample| {
            let of_limit = Measured::ratio(&sample.seconds, &limits, seed);
            (of_limit, Measured::median(&sample.other, seed))
        });
        let gain = Measured::ratio(&samples[1].seconds, &samples[2].seconds, seed);
        Ok(Measurement { what: self.what, arms, gain })
    }

    /// Seconds of both, with no CPU ever without work; beside a load, in a fair share of two CPUs.
    fn limit(&self, first: f64, other: Option<f64>) -> f64 {
        let n = f64::from(self.first.threads);
        other.map_or(first * (n + 1.0) / n, |other| first + other)
    }
}

/// How many times as much one was slowed down as the other.
fn unevenness(a: f64, b: f64) -> f64 {
    a.max(b) / a.min(b)
}

impl Measurement {
    fn row(&self) -> Vec<String> {
        let text = |m: &Option<Measured>| m.as_ref().map_or_else(|| "-".into(), |m| m.text(2));
        let mut row = vec![self.what.to_owned()];
        for (seconds, other) in &self.arms {
            row.extend([text(seconds), text(other)]);
        }
        row.push(text(&self.gain));
        row
    }
}

fn report(cases: &[Measurement]) -> String {
    let head = [
        "on two CPUs, times of the limit",
        KERNEL,
        "uneven",
        EACH,
        "uneven",
        TOGETHER,
        "uneven",
        "each / together",
    ];
    let rows = cases.iter().map(Measurement::row);
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    let note = "The limit is what both take one after the other, each alone; beside a load, in a fair share. \
                Uneven: how many times as much one was slowed down as the other; beside a load, how much of a \
                CPU that had. Medians, 95 % intervals.\n";
    table(&rows) + note
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &TogetherArgs) -> anyhow::Result<()> {
    let all = pairs();
    let chosen = args.cases.of(&all, |pair| pair.name.to_owned())?;
    if args.cases.list {
        let line = |pair: &&Pair| format!("{:<20} {}\n", pair.name, pair.what);
        return print(&chosen.iter().map(line).collect::<String>());
    }
    let jobs = chosen.iter().flat_map(|pair| match pair.other {
        Other::Job(job) => vec![pair.first, job],
        Other::Load => vec![pair.first],
    });
    let needed = jobs.map(|job| (job.program, (job.command)(job.threads, 1, 1)));
    let programs = Ready::find(&args.cases.programs, needed)?;
    crate::args::take_two_cpus(args.cases.cpus.as_ref())?;
    let per_ms = programs.tools.iterations_per_ms()?;
    let interrupted = interrupts()?;
    let mut bench = Bench { args, programs, per_ms, sums: BTreeMap::new() };
    let mut measured = Vec::new();
    for pair in chosen {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let case = pair.measure(&mut bench, &interrupted)?;
        crate::show::tell_above(&case.row().join("   "));
        measured.push(case);
    }
    print(&report(&measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_a_name_and_work_for_the_kernel_too() {
        let all = pairs();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|pair| pair.name).collect();
        assert_eq!(names.len(), all.len());
        for pair in &all {
            assert!(pair.first.phases / pair.shorter >= 100, "{}", pair.name);
            let words = (pair.first.command)(3, pair.first.phases, 500_000);
            assert!(words.len() > 1 && words.iter().all(|w| !w.is_empty()), "{words:?}");
        }
    }

    /// Two jobs of two and of three ranks, 1 s for each rank: 5 s of work on two CPUs. Two threads beside a load have two thirds
    /// of two CPUs.
    #[test]
    fn at_the_limit_no_cpu_is_without_work() {
        let all = pairs();
        let of = |name: &str| all.iter().find(|pair| pair.name == name).unwrap();
        assert_eq!(of("openmpi-2-3").limit(1.0, Some(1.5)), 2.5);
        assert_eq!(of("gomp-load").limit(1.0, None), 1.5);
        assert_eq!((unevenness(2.0, 3.0), unevenness(3.0, 2.0)), (1.5, 1.5));
    }
}

//! Programs that collapse because their threads spin: the museum in `workloads/collapse`, with more threads than CPUs, or
//! beside others.
//!
//! Each case is run with two threads, which is what the machine can do; under the kernel; under evenly as it is by default;
//! under evenly where nothing is loaded into the program, as with `evenly attach`; and in the best setting that its kind has,
//! where there is one. A collapse takes a hundred times as long, so runs of the kernel have a twentieth of the phases, and
//! times are compared by phase.
//!
//! Invariant: all arms are interleaved, and each run's checksum is that of all others of the same work.

mod kinds;

use crate::args::Cases;
use crate::beside::{Beside, Group};
use crate::commands::{KERNEL, Program, Ready};
use crate::measure::result;
use crate::measured::Measured;
use crate::show::{interrupts, print, table};
use anyhow::Context;
use clap::Args;
use evenly_compare::{Arm, Executor, ProcessExecutor, RunError};
use kinds::{Kind, Tuned, kinds};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(60);
/// Names of the arms.
const TWO: &str = "two threads";
const EVENLY: &str = "evenly";
const OUTSIDE: &str = "evenly from outside";
const TUNED: &str = "tuned";

/// The arguments of `evenly-bench collapse`.
#[derive(Debug, Args)]
pub(crate) struct CollapseArgs {
    #[command(flatten)]
    pub(crate) cases: Cases,
    /// Put all programs that would have the CPUs for themselves beside this instead
    #[arg(long, value_enum)]
    pub(crate) beside: Option<Beside>,
}

#[derive(Debug)]
struct Measurement {
    what: String,
    /// Time of each arm over the bound.
    arms: [Option<Measured>; 4],
    /// Whether a run of it took too long.
    late: [bool; 4],
    /// Time of the kernel over that of evenly.
    speedup: Option<Measured>,
}

struct Bench<'a> {
    args: &'a CollapseArgs,
    programs: Ready,
    per_ms: u64,
    /// Under a quota; none where no case has one.
    group: Option<Group>,
    executor: ProcessExecutor,
}

impl Bench<'_> {
    /// Seconds that all phases of the case take in this arm, and the checksum. None where that takes too long.
    fn run(
        &mut self,
        kind: &Kind,
        threads: u32,
        arm: &'static str,
    ) -> anyhow::Result<Option<(f64, String)>> {
        let part = kind.part(arm);
        let mut words = (kind.command)(threads, kind.phases / part, self.per_ms);
        let mut environment = kind.environment.to_vec();
        if arm == TUNED {
            words = kind.tuned_words(words);
        }
        if let (TUNED, Some(Tuned::Variables(variables))) = (arm, kind.tuned) {
            environment = variables.to_vec();
        }
        let beside = if arm == TWO { Beside::Nobody } else { kind.beside };
        let mut argv: Vec<OsString> = Vec::new();
        if beside == Beside::Quota {
            argv.extend(self.group.as_ref().context("no quota")?.prefix());
        }
        let options: &[&str] = match arm {
            EVENLY => &["run", "-q", "--"],
            OUTSIDE => &["run", "-q", "--probe", "off", "--"],
            _ => &[],
        };
        if !options.is_empty() {
            argv.push(self.programs.tools.evenly.clone().into());
            argv.extend(options.iter().map(OsString::from));
        }
        let program = self.programs.command(kind.program, threads, &words)?;
        argv.extend(program.words);
        environment.extend(program.environment);
        let env: Vec<(OsString, OsString)> =
            environment.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        let noise = self.programs.tools.workload("noise");
        let other = beside.start(&noise, &argv, &env)?;
        let outcome = match self.executor.run(&Arm { env, ..Arm::new(arm, argv) }, 0) {
            Err(RunError::TimedOut { .. }) => return Ok(None),
            outcome => outcome?,
        };
        if let (Some(other), Beside::Copy) = (other, beside) {
            other.wait(LIMIT)?;
        }
        let (seconds, checksum) =
            result(&outcome).with_context(|| format!("{} {arm}", kind.name))?;
        Ok(Some((seconds * part as f64, checksum)))
    }
}

/// Seconds of each arm, and what two threads took.
#[derive(Default)]
struct Seconds {
    of: BTreeMap<&'static str, Vec<f64>>,
    /// Arms that took too long, and are not run again.
    late: BTreeSet<&'static str>,
    /// Checksums by number of threads, and which part of the work there was.
    sums: BTreeMap<(u32, u64), String>,
}

impl Seconds {
    fn add(
        &mut self,
        bench: &mut Bench<'_>,
        kind: &Kind,
        threads: u32,
        arm: &'static str,
    ) -> anyhow::Result<()> {
        if self.late.contains(arm) {
            return Ok(());
        }
        let Some((seconds, sum)) = bench.run(kind, threads, arm)? else {
            self.late.insert(arm);
            return Ok(());
        };
        let first = self.sums.entry((threads, kind.part(arm))).or_insert_with(|| sum.clone());
        anyhow::ensure!(*first == sum, "{} {arm}: checksum {sum} instead of {first}", kind.name);
        self.of.entry(arm).or_default().push(seconds);
        Ok(())
    }
}

impl Kind {
    /// Which part of its phases it has in this arm.
    fn part(&self, arm: &str) -> u64 {
        // Under a quota nothing is gained from outside, either.
        let collapses = arm == KERNEL || arm == OUTSIDE && self.beside == Beside::Quota;
        if collapses { self.shorter } else { 1 }
    }

    fn measure(
        &self,
        threads: u32,
        bench: &mut Bench<'_>,
        interrupted: impl Fn() -> bool,
    ) -> anyhow::Result<Measurement> {
        let mut seconds = Seconds::default();
        for _ in 0..bench.args.cases.runs {
            if interrupted() {
                break;
            }
            seconds.add(bench, self, 2, TWO)?;
            for arm in [KERNEL, EVENLY] {
                seconds.add(bench, self, threads, arm)?;
            }
            if self.outside && self.program == Program::Workload {
                seconds.add(bench, self, threads, OUTSIDE)?;
            }
            if self.tuned.is_some() {
                seconds.add(bench, self, threads, TUNED)?;
            }
        }
        let (bound, seed) = (self.bound.of(threads, self.beside), bench.args.cases.seed);
        let none = Vec::new();
        let two: &Vec<f64> = seconds.of.get(TWO).unwrap_or(&none);
        let of = |name: &'static str| seconds.of.get(name).unwrap_or(&none);
        let of_bound = |name| Some(Measured::ratio(of(name), two, seed)?.scaled(1.0 / bound));
        let arms = [KERNEL, EVENLY, OUTSIDE, TUNED];
        Ok(Measurement {
            what: format!("{}{}, {threads} threads", self.what, self.beside.text()),
            arms: arms.map(of_bound),
            late: arms.map(|name| seconds.late.contains(name)),
            speedup: Measured::ratio(of(KERNEL), of(EVENLY), seed),
        })
    }
}

impl Measurement {
    fn row(&self) -> Vec<String> {
        let text = |m: Option<Measured>| m.map_or_else(|| "-".into(), |m| m.text(2));
        let mut row = vec![self.what.clone()];
        let arms = self.arms.into_iter().zip(self.late);
        let late = format!("over {} s", LIMIT.as_secs());
        row.extend(arms.map(|(arm, is_late)| if is_late { late.clone() } else { text(arm) }));
        row.push(text(self.speedup));
        row
    }
}

fn report(cases: &[Measurement]) -> String {
    let head =
        ["on two CPUs, times of the bound", KERNEL, EVENLY, OUTSIDE, TUNED, "kernel / evenly"];
    let rows = cases.iter().map(Measurement::row);
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    let note = "The bound is what two threads take, times the work that there is more: no more can be had \
                without moves within phases; beside others, what a fair share of the CPUs allows. \
                Medians, 95 % intervals.\n";
    table(&rows) + note
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &CollapseArgs) -> anyhow::Result<()> {
    let mut all = kinds();
    if let Some(other) = args.beside {
        all.retain(|kind| kind.beside == Beside::Nobody || kind.program == Program::NumPy);
        all.iter_mut().for_each(|kind| kind.beside = other);
    }
    let cases: Vec<(&Kind, u32)> =
        all.iter().flat_map(|kind| kind.threads.iter().map(move |&n| (kind, n))).collect();
    let name = |&(kind, threads): &(&Kind, u32)| format!("{}-{threads}", kind.name);
    let chosen = args.cases.of(&cases, name)?;
    if args.cases.list {
        let line = |case: &&(&Kind, u32)| {
            format!("{:<20} {}{}\n", name(case), case.0.what, case.0.beside.text())
        };
        return print(&chosen.iter().map(line).collect::<String>());
    }
    let needed = chosen.iter().flat_map(|(kind, n)| {
        let words = (kind.command)(*n, 1, 1);
        [words.clone(), kind.tuned_words(words)].map(|words| (kind.program, words))
    });
    let programs = Ready::find(&args.cases.programs, needed)?;
    crate::args::take_two_cpus(args.cases.cpus.as_ref())?;
    let per_ms = programs.tools.iterations_per_ms()?;
    let interrupted = interrupts()?;
    let executor = ProcessExecutor {
        limit: Some(LIMIT),
        interrupted: interrupted.clone(),
        ..ProcessExecutor::default()
    };
    let limited = chosen.iter().any(|(kind, _)| kind.beside == Beside::Quota);
    let group = if limited { Some(Group::new()?) } else { None };
    let mut bench = Bench { args, programs, per_ms, group, executor };
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

    #[test]
    fn every_kind_has_a_program_and_phases_for_the_kernel_too() {
        let names: std::collections::BTreeSet<&str> = kinds().iter().map(|k| k.name).collect();
        assert_eq!(names.len(), kinds().len());
        for kind in kinds() {
            assert!(kind.phases / kind.shorter > 100, "{}", kind.name);
            let words = (kind.command)(3, kind.phases, 500_000);
            assert!(words.len() > 1 && words.iter().all(|w| !w.is_empty()), "{words:?}");
            if let Some(Tuned::Words(from, _)) = kind.tuned {
                assert!(words.iter().any(|w| w == from), "{words:?}");
            }
        }
    }
}

//! The default against the kernel and single policies, over a grid: how threads wait, how long phases are, how many threads there
//! are, with and without a program beside them, with equal and unequal work.
//!
//! Nobody knows before which cell a program is in, so what counts is the worst one. The figure of a cell is the speed under
//! the default over that in its best arm, the kernel included.
//!
//! The whole grid takes many hours. So each cell is added to a file when it is done, and those that are there are not measured again;
//! the heat map is drawn of what the file has.
//!
//! Invariant: all arms of a cell are interleaved, and each run's checksum is that of all others of the same work.

mod cells;
mod kept;
mod map;
mod simulated;

use crate::args::Cases;
use crate::commands::{KERNEL, Program, Ready, SPINNING_RANKS};
use crate::measure::{Running, result};
use crate::show::{interrupts, print, table, tell, tell_above};
use anyhow::Context;
use cells::{Cell, PHASES, cells};
use clap::Args;
use evenly_compare::{Arm, Executor, ProcessExecutor, RunError};
use evenly_policies::{by_name, meant, names};
use kept::{AUTO, Measurement, Runs};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A run may take so many times as long as it would with as many threads as CPUs; one that spins under the kernel may take a hundred
/// times as long, which nobody waits for.
const LATE: u32 = 30;
/// What stands beside the kernel and the default.
const POLICIES: [&str; 4] = ["phase", "hybrid", "static", "hpc-auto"];

/// The arguments of `evenly-bench grid`.
#[derive(Debug, Args)]
pub(crate) struct GridArgs {
    #[command(flatten)]
    pub(crate) cases: Cases,
    /// Only this policy beside the kernel and the default (may be given more than once) [default: phase, hybrid, static,
    /// hpc-auto]
    #[arg(long = "policy", value_name = "NAME", value_parser = policy)]
    policies: Vec<String>,
    /// How long a run takes with as many threads as CPUs, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Add each cell to FILE when it is done (JSON lines, evenly.bench-grid/1), and leave out those that are there
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Draw a heat map of all that is in the file, or of what was measured, to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// In virtual time: the cells that the simulator knows, each once
    #[arg(long)]
    simulated: bool,
}

/// The name of a policy.
fn policy(name: &str) -> Result<String, String> {
    let found = by_name(name).map(|p| p.name.to_owned());
    found.ok_or_else(|| format!("no such policy{}; the policies are {}", meant(name), names()))
}

impl GridArgs {
    fn policies(&self) -> Vec<String> {
        match self.policies.as_slice() {
            [] => POLICIES.map(str::to_owned).to_vec(),
            asked => asked.to_vec(),
        }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds * LATE))
    }
}

/// Measures cells on this machine.
struct Bench<'a> {
    args: &'a GridArgs,
    programs: Ready,
    per_ms: u64,
    executor: ProcessExecutor,
}

impl<'a> Bench<'a> {
    fn new(
        args: &'a GridArgs,
        chosen: &[&Cell],
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let needed = chosen.iter().map(|cell| cell.command(1, 1));
        let programs = Ready::find(&args.cases.programs, needed)?;
        crate::args::take_two_cpus(args.cases.cpus.as_ref())?;
        let per_ms = programs.tools.iterations_per_ms()?;
        let executor = ProcessExecutor {
            limit: Some(args.limit()),
            interrupted,
            ..ProcessExecutor::default()
        };
        Ok(Self { args, programs, per_ms, executor })
    }

    /// Names of the arms, and how evenly is called in each.
    fn arms(&self) -> Vec<(String, Vec<OsString>)> {
        let evenly = |options: &[&str]| {
            let mut words = vec![self.programs.tools.evenly.clone().into(), "run".into()];
            words.extend(["-q"].iter().chain(options).chain(&["--"]).map(OsString::from));
            words
        };
        let mut all = vec![(KERNEL.to_owned(), Vec::new()), (AUTO.to_owned(), evenly(&[]))];
        all.extend(self.args.policies().into_iter().map(|policy| {
            let words = evenly(&["--policy", &policy]);
            (policy, words)
        }));
        all
    }

    fn arm(&self, cell: &Cell, name: &str, before: Vec<OsString>) -> anyhow::Result<Arm> {
        let (program, words) = cell.command(self.args.seconds, self.per_ms);
        let command = self.programs.command(program, cell.threads, &words)?;
        let of_ranks =
            if matches!(program, Program::Ranks(_)) { SPINNING_RANKS } else { Default::default() };
        let env = of_ranks.iter().chain(&command.environment);
        let env = env.map(|(name, value)| (name.into(), value.into())).collect();
        let argv = before.into_iter().chain(command.words);
        Ok(Arm { env, ..Arm::new(name, argv) })
    }

    /// A run: its time and its checksum. None where it takes too long.
    fn run(&mut self, cell: &Cell, arm: &Arm, run: usize) -> anyhow::Result<Option<(f64, String)>> {
        let noise = self.programs.tools.workload("noise");
        let hog = cell.hog.then(|| Running::quiet(Command::new(noise).arg("--always")));
        let hog = hog.transpose()?;
        let outcome = match self.executor.run(arm, run) {
            Err(RunError::TimedOut { .. }) => return Ok(None),
            outcome => outcome?,
        };
        drop(hog);
        let told = || format!("{} {}: {}", cell.name(), arm.name, outcome.stderr_tail);
        result(&outcome).with_context(told).map(Some)
    }

    fn measure(&mut self, cell: &Cell) -> anyhow::Result<Measurement> {
        let arms = self.arms().into_iter();
        let arms: Vec<Arm> =
            arms.map(|(name, words)| self.arm(cell, &name, words)).collect::<Result<_, _>>()?;
        let of = |arm: &Arm| Runs { name: arm.name.clone(), seconds: Vec::new(), late: false };
        let mut runs: Vec<Runs> = arms.iter().map(of).collect();
        let mut sum: Option<String> = None;
        for round in 0..self.args.cases.runs as usize {
            for i in 0..arms.len() {
                // Each round begins with another one.
                let i = (i + round) % arms.len();
                if runs[i].late {
                    continue;
                }
                let Some((took, found)) = self.run(cell, &arms[i], round)? else {
                    runs[i].late = true;
                    runs[i].seconds = vec![self.args.limit().as_secs_f64()];
                    continue;
                };
                runs[i].seconds.push(took);
                let first = sum.get_or_insert_with(|| found.clone());
                let name = cell.name();
                anyhow::ensure!(*first == found, "{name}: checksum {found} instead of {first}");
            }
        }
        Ok(Measurement::new(cell, false, self.args.seconds, runs))
    }
}

/// A row for each way to wait and number of threads, a column for each length of phases.
fn report(measured: &[Measurement], seed: u64) -> String {
    let all = cells();
    let find = |row: &str, phase: &str| {
        let found = measured.iter().find(|m| m.cell == format!("{row}-{phase}"));
        found.map_or_else(String::new, |m| m.text(seed))
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    let head = ["speed over the kernel's"].into_iter().chain(PHASES.map(|(name, _)| name));
    rows.push(head.map(str::to_owned).collect());
    let mut names: Vec<String> = all.iter().map(Cell::row).collect();
    names.dedup();
    for name in names {
        let row: Vec<String> = PHASES.iter().map(|(phase, _)| find(&name, phase)).collect();
        if row.iter().any(|text| !text.is_empty()) {
            rows.push(std::iter::once(name).chain(row).collect());
        }
    }
    let worst = kept::worst(measured, seed).map_or_else(String::new, |(m, part, arm)| {
        format!("The worst cell is {}: {:.3} of {arm}, its best arm.\n", m.cell, part.value)
    });
    let note = "Medians of runs in turn, 95 % intervals; in brackets a better arm, and the default's speed over \
                its. -hog: a program that computes runs beside; -unequal: threads have 0.5 to 1.5 times \
                the mean work.\n";
    table(&rows) + note + &worst
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &GridArgs) -> anyhow::Result<()> {
    let (all, seed) = (cells(), args.cases.seed);
    let chosen = args.cases.of(&all, Cell::name)?;
    if args.cases.list {
        return print(&chosen.iter().map(|cell| cell.name() + "\n").collect::<String>());
    }
    let mut measured = args.file.as_deref().map(kept::read).transpose()?.unwrap_or_default();
    let is_there = |cell: &&Cell| measured.iter().any(|m| m.cell == cell.name());
    let (there, missing): (Vec<&Cell>, Vec<&Cell>) = chosen.iter().partition(|c| is_there(c));
    if !there.is_empty() {
        tell(&format!("{} cells are there, {} are measured", there.len(), missing.len()));
    }
    let interrupted = interrupts()?;
    let mut bench = match missing.is_empty() || args.simulated {
        true => None,
        false => Some(Bench::new(args, &missing, interrupted.clone())?),
    };
    let mut failed = Vec::new();
    for cell in missing {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let found = match &mut bench {
            Some(bench) => match bench.measure(cell) {
                Err(_) if interrupted.load(Ordering::Relaxed) => break,
                Ok(found) => Some(found),
                // The others may be measured all the same.
                Err(e) => {
                    tell_above(&format!("{}   {}", cell.name(), evenly_errors::said(&e)));
                    failed.push(cell.name());
                    None
                }
            },
            None => simulated::measure(cell, &args.policies(), args.seconds, args.limit()),
        };
        let Some(found) = found else { continue };
        tell_above(&format!("{}   {}", cell.name(), found.text(seed)));
        if let Some(file) = &args.file {
            kept::append(file, &found)?;
        }
        measured.push(found);
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, map::svg(&measured, seed))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    print(&report(&measured, seed))?;
    anyhow::ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_known_by_their_names() {
        assert_eq!(policy("hybrid").as_deref(), Ok("hybrid"));
        assert!(policy("hybird").is_err_and(|e| e.contains("hybrid, ")));
    }

    #[test]
    fn the_worst_cell_is_named() {
        let of = |cell, [kernel, auto, fixed]: [f64; 3]| {
            kept::measured(cell, &[(KERNEL, kernel), (AUTO, auto), ("static", fixed)])
        };
        let all = [of("block-2-20us", [2.0, 1.0, 1.5]), of("block-2-200us", [1.0, 2.0, 1.5])];
        let text = report(&all, 1);
        assert!(text.contains("block-2-200us: 0.500 of kernel"), "{text}");
        assert!(!text.contains("block-3"), "{text}");
    }
}

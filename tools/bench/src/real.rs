//! Real programs, as Debian has them, with inputs of ours: alone with as many threads as CPUs, with one more and with twice as
//! many; beside a program that computes, beside a second copy, and under a quota.
//!
//! The limit is what two threads take alone, times what the neighbours leave: all programs have the same work for any number
//! of threads. Times are those that programs print; of those that print none, and of a parallel compile job, the whole
//! command's. Beside a second copy it is the time of the slower of the two.
//!
//! Invariant: all arms of a case are interleaved, each run is made in a folder of its own with the same files, and its answer
//! is that of all others with so many threads.

mod programs;
mod report;

use crate::args::Cases;
use crate::beside::{Beside, Bound, Group};
use crate::commands::{KERNEL, python_with_numpy};
use crate::host::HostRecord;
use crate::measure::{MOST_OTHERS, Running, TRIES, printed};
use crate::show::{interrupts, print, tell, tell_above};
use crate::tools::Tools;
use anyhow::Context;
use clap::Args;
use evenly_compare::{Arm, Executor, ProcessExecutor, RunError, Status};
use evenly_linux::usage::Usage;
use evenly_model::CpuSet;
use programs::{Answer, Left, Needs, Places, Real, Words, of_npb_all, programs};
use report::{Measurement, Report, Runs};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(120);
/// Name of the arm that measures the limit.
const TWO: &str = "limit";
/// As evenly is by default, and policies that are asked for by name.
const AUTO: &str = "auto";
const ARMS: [&str; 5] = [AUTO, "phase", "hybrid", "static", "hpc-auto"];
const THREADS: [u32; 3] = [2, 3, 4];
/// In the folder of the first word, executes the rest.
const IN_FOLDER: &str = "cd \"$0\" && exec \"$@\"";

/// The arguments of `evenly-bench real`.
#[derive(Debug, Args)]
pub(crate) struct RealArgs {
    #[command(flatten)]
    cases: Cases,
    /// All numbers of threads beside this, and nothing else (may be given more than once)
    #[arg(long, value_enum)]
    beside: Vec<Beside>,
    /// Only this arm beside the kernel and the limit (may be given more than once) [default: all of them]
    #[arg(long = "arm", value_name = "NAME", value_parser = ARMS)]
    arms: Vec<String>,
    /// Also the NAS Parallel Benchmarks with OpenMP, version 3, of which this folder has programs (bt.A.x, cg.B.x, ft.A.x,
    /// lu.W.x, mg.B.x, sp.A.x, ua.W.x)
    #[arg(long, value_name = "DIR")]
    npb: Option<PathBuf>,
    /// Write everything to FILE as JSON (evenly.bench-real/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A program with so many threads, beside somebody.
#[derive(Clone, Copy)]
struct Case {
    program: Real,
    threads: u32,
    beside: Beside,
}

impl Case {
    fn name(&self) -> String {
        let beside = match self.beside {
            Beside::Nobody => "",
            Beside::Hog => "-hog",
            Beside::Copy => "-copy",
            Beside::Quota => "-quota",
        };
        format!("{}-{}{beside}", self.program.name, self.threads)
    }

    fn what(&self) -> String {
        format!("{}, {} threads{}", self.program.what, self.threads, self.beside.text())
    }

    /// The limit over what two threads take alone.
    fn bound(&self) -> f64 {
        Bound::Fixed.of(self.threads, self.beside)
    }
}

/// Each program alone with all numbers of threads, and beside others with as many as CPUs; or what is asked for.
fn cases(asked: &[Beside], has_npb: bool) -> Vec<Case> {
    let mut all = Vec::new();
    for program in programs().into_iter().chain(of_npb_all().into_iter().filter(|_| has_npb)) {
        let mut add = |threads, beside| all.push(Case { program, threads, beside });
        if asked.is_empty() {
            THREADS.into_iter().for_each(|threads| add(threads, Beside::Nobody));
            [Beside::Hog, Beside::Copy, Beside::Quota].into_iter().for_each(|b| add(2, b));
        }
        for beside in asked {
            THREADS.into_iter().for_each(|threads| add(threads, *beside));
        }
    }
    all
}

/// What is missing of what a program needs, if anything is.
fn missing(needs: Needs, tools: &Tools, npb: &Path) -> Option<String> {
    match needs {
        Needs::Commands(commands) => {
            let (command, package) = commands.iter().find(|(command, _)| !is_in_path(command))?;
            Some(format!("there is no {command}; on Debian: apt-get install {package}"))
        }
        Needs::NumPy => python_with_numpy().err().map(|e| e.to_string()),
        Needs::Workload(name) => tools.path(name).err().map(|e| e.to_string()),
        Needs::Npb(name) if npb.join(name).is_file() => None,
        Needs::Npb(name) => Some(format!("--npb: there is no {name} in {}", npb.display())),
    }
}

fn is_in_path(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(command).is_file())
}

struct Bench<'a> {
    args: &'a RealArgs,
    tools: Tools,
    cpus: CpuSet,
    places: Places,
    room: tempfile::TempDir,
    /// Folders with inputs, by program and threads.
    inputs: BTreeMap<(&'static str, u32), PathBuf>,
    /// How many folders of runs there were.
    folders: u32,
    group: Option<Group>,
    executor: ProcessExecutor,
    /// Answers, by program and threads.
    answers: BTreeMap<(&'static str, u32), String>,
    /// Runs that were disturbed.
    again: u32,
}

impl Bench<'_> {
    /// The folder with the input of a program, made the first time.
    fn input(&mut self, program: &Real, threads: u32) -> anyhow::Result<PathBuf> {
        let key = (program.name, threads);
        if let Some(folder) = self.inputs.get(&key) {
            return Ok(folder.clone());
        }
        let folder = self.room.path().join(format!("{}-{threads}", program.name));
        fs::create_dir(&folder).context("cannot make a folder for inputs")?;
        for (name, text) in (program.files)(threads) {
            fs::write(folder.join(name), text).context("cannot write an input")?;
        }
        for line in program.prepare {
            let words: Vec<&str> = line.split(' ').collect();
            let output = Command::new(words[0])
                .args(&words[1..])
                .current_dir(&folder)
                .stdin(Stdio::null())
                .output()
                .with_context(|| format!("cannot start {}", words[0]))?;
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(
                output.status.success(),
                "{}: `{line}` ended with {}: {}",
                program.name,
                output.status,
                last_line(&said)
            );
        }
        self.inputs.insert(key, folder.clone());
        Ok(folder)
    }

    /// A new folder with the files of this one.
    fn copied(&mut self, input: &Path) -> anyhow::Result<PathBuf> {
        self.folders += 1;
        let folder = self.room.path().join(format!("run{}", self.folders));
        fs::create_dir(&folder).context("cannot make a folder for a run")?;
        for entry in fs::read_dir(input)? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name())).context("cannot copy inputs")?;
        }
        Ok(folder)
    }

    /// The words of a command in a folder: under a quota, under evenly, or neither.
    fn argv(&self, case: &Case, arm: &str, folder: &Path, words: &Words) -> Vec<OsString> {
        let mut argv: Vec<OsString> = ["sh", "-c", IN_FOLDER].map(OsString::from).into();
        argv.push(folder.into());
        if let (Beside::Quota, Some(group)) = (case.beside, &self.group) {
            argv.extend(group.prefix());
        }
        if arm != KERNEL && arm != TWO {
            argv.extend([self.tools.evenly.clone().into(), "run".into(), "-q".into()]);
            if arm != AUTO {
                argv.extend(["--policy", arm].map(OsString::from));
            }
            argv.push("--".into());
        }
        argv.extend(words.argv.iter().cloned());
        argv
    }

    /// Checks what a run has left against all others of its kind: its time.
    fn answer(&mut self, case: &Case, arm: &str, left: &Left<'_>) -> anyhow::Result<f64> {
        let told = || format!("{} {arm}", case.name());
        let (seconds, found): Answer = (case.program.answer)(left).with_context(told)?;
        let key = (case.program.name, case.threads);
        let first = self.answers.entry(key).or_insert_with(|| found.clone());
        anyhow::ensure!(*first == found, "{}: the answer {found} instead of {first}", told());
        Ok(seconds)
    }

    /// One run of an arm, noted. None where that takes too long.
    fn run(&mut self, case: &Case, arm: &str) -> anyhow::Result<Option<[f64; 3]>> {
        let input = self.input(&case.program, case.threads)?;
        let words = (case.program.words)(&self.places, case.threads);
        let (folder, other_folder) = (self.copied(&input)?, self.copied(&input)?);
        let before = Usage::now(&self.cpus)?;
        let (begin, copy) = (Instant::now(), case.beside == Beside::Copy);
        let other = if copy {
            Some(self.second(
                &self.argv(case, arm, &other_folder, &words),
                &words,
                &other_folder,
            )?)
        } else {
            case.beside.start(&self.tools.workload("noise"), &[], &[])?
        };
        let argv = self.argv(case, arm, &folder, &words);
        let command = Arm { env: words.env.clone(), ..Arm::new(arm, argv) };
        let outcome = match self.executor.run(&command, 0) {
            Ok(outcome) => outcome,
            Err(e) => {
                if let Some(other) = other {
                    end(other)?;
                }
                return if let RunError::TimedOut { .. } = e { Ok(None) } else { Err(e.into()) };
            }
        };
        anyhow::ensure!(
            outcome.status == Status::Exited(0),
            "{} {arm}: it ended with {:?}: {}",
            case.name(),
            outcome.status,
            last_line(&outcome.stderr_tail)
        );
        let second = if copy {
            other.map(|other| other.wait(LIMIT)).transpose()?;
            Some(begin.elapsed().as_secs_f64())
        } else {
            // Only of one that has ended the time counts as ours.
            drop(other);
            None
        };
        let load = Usage::now(&self.cpus)?.since(&before, self.cpus.len());
        let stdout = printed(&outcome).unwrap_or_default();
        let left = Left { stdout: &stdout, folder: &folder, wall_s: outcome.seconds };
        let mut seconds = self.answer(case, arm, &left)?;
        if let Some(wall_s) = second {
            let stdout = fs::read_to_string(other_folder.join("stdout"))?;
            let left = Left { stdout: &stdout, folder: &other_folder, wall_s };
            seconds = seconds.max(self.answer(case, arm, &left)?);
        }
        for folder in [folder, other_folder] {
            // What stays is removed with the room.
            let _ = fs::remove_dir_all(folder);
        }
        Ok(Some([seconds, outcome.seconds, load.others + load.stolen]))
    }

    /// The same, again while others disturb it; the least disturbed run counts.
    fn undisturbed(&mut self, case: &Case, arm: &str) -> anyhow::Result<Option<[f64; 3]>> {
        let mut best: Option<[f64; 3]> = None;
        for _ in 0..TRIES {
            let Some(run) = self.run(case, arm)? else { return Ok(best) };
            if best.is_none_or(|best| run[2] < best[2]) {
                best = Some(run);
            }
            if run[2] <= MOST_OTHERS || self.executor.interrupted.load(Ordering::Relaxed) {
                break;
            }
            self.again += 1;
        }
        Ok(best)
    }

    /// A second copy in another folder, where it also writes what it prints.
    fn second(&self, argv: &[OsString], words: &Words, folder: &Path) -> anyhow::Result<Running> {
        let out = File::create(folder.join("stdout")).context("cannot make a file")?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).envs(words.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        Ok(Running(command.spawn().context("cannot start a second copy")?))
    }

    fn measure(
        &mut self,
        case: &Case,
        interrupted: impl Fn() -> bool,
    ) -> anyhow::Result<Measurement> {
        // Two threads alone are the limit themselves.
        let is_alone = case.threads == 2 && case.beside == Beside::Nobody;
        let alone = Case { threads: 2, beside: Beside::Nobody, ..*case };
        let asked = &self.args.arms;
        let is_asked = |arm: &&str| asked.is_empty() || asked.iter().any(|one| one == arm);
        let mut names = vec![KERNEL];
        names.extend(ARMS.into_iter().filter(is_asked));
        if !is_alone {
            names.insert(0, TWO);
        }
        let mut runs: Vec<Runs> = names.iter().map(|name| Runs::new(name)).collect();
        let count = runs.len();
        for round in 0..self.args.cases.runs as usize {
            for i in 0..count {
                let arm = &mut runs[(i + round) % count];
                if interrupted() || arm.late {
                    continue;
                }
                let of = if arm.name == TWO { &alone } else { case };
                match self.undisturbed(of, arm.name) {
                    Ok(Some(run)) => arm.add(run),
                    Ok(None) => arm.late = true,
                    Err(_) if interrupted() => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(Measurement::new(case, runs, self.args.cases.seed))
    }
}

/// Ends what ran beside one that failed, also where others are behind it: ranks, or a program under evenly.
fn end(other: Running) -> anyhow::Result<()> {
    other.terminate()?;
    other.wait(Duration::from_secs(10))?;
    Ok(())
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}

/// Leaves out the cases of programs that cannot be had, and says so: those that are left, and the names of the others.
fn there<'a>(
    chosen: Vec<&'a Case>,
    tools: &Tools,
    npb: &Path,
) -> anyhow::Result<(Vec<&'a Case>, Vec<String>)> {
    let mut lacks: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for case in &chosen {
        let program = &case.program;
        lacks.entry(program.name).or_insert_with(|| missing(program.needs, tools, npb));
    }
    for (name, why) in &lacks {
        if let Some(why) = why {
            tell(&format!("evenly-bench: {name} is left out: {why}"));
        }
    }
    let left: Vec<&Case> =
        chosen.into_iter().filter(|case| lacks[case.program.name].is_none()).collect();
    anyhow::ensure!(
        !left.is_empty(),
        "none of the programs is there; `./dev bench real` installs them"
    );
    let without = lacks.iter().filter(|(_, why)| why.is_some()).map(|(name, _)| (*name).to_owned());
    Ok((left, without.collect()))
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &RealArgs) -> anyhow::Result<()> {
    let all = cases(&args.beside, args.npb.is_some());
    let chosen = args.cases.of(&all, Case::name)?;
    if args.cases.list {
        let line = |case: &&Case| format!("{:<24} {}\n", case.name(), case.what());
        return print(&chosen.iter().map(line).collect::<String>());
    }
    let tools = args.cases.programs.find(&["noise"])?;
    // Runs are made in folders of their own.
    let npb =
        args.npb.as_ref().map(fs::canonicalize).transpose().context("--npb")?.unwrap_or_default();
    let (chosen, left_out) = there(chosen, &tools, &npb)?;
    let cpus = crate::args::take_two_cpus(args.cases.cpus.as_ref())?;
    let python = if chosen.iter().any(|case| case.program.needs == Needs::NumPy) {
        python_with_numpy()?
    } else {
        ""
    };
    let places = Places { python, loops: tools.workload("loops-tbb"), npb };
    let interrupted = interrupts()?;
    let executor = ProcessExecutor {
        limit: Some(LIMIT),
        interrupted: interrupted.clone(),
        ..ProcessExecutor::default()
    };
    let limited = chosen.iter().any(|case| case.beside == Beside::Quota);
    let group = if limited { Some(Group::new()?) } else { None };
    let mut report = Report::new(HostRecord::this(&cpus), &args.cases, left_out);
    let mut bench = Bench {
        args,
        tools,
        cpus,
        places,
        room: tempfile::tempdir().context("cannot make a directory")?,
        inputs: BTreeMap::new(),
        folders: 0,
        group,
        executor,
        answers: BTreeMap::new(),
        again: 0,
    };
    let stops = || interrupted.load(Ordering::Relaxed);
    for case in chosen {
        if stops() {
            break;
        }
        let measured = bench.measure(case, stops)?;
        tell_above(&measured.row().join("   "));
        report.cases.push(measured);
    }
    report.incomplete = stops();
    report.disturbed = bench.again;
    print(&report.text())?;
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        for asked in [&[][..], &[Beside::Hog], &[Beside::Copy, Beside::Quota]] {
            let all = cases(asked, true);
            let names: std::collections::BTreeSet<String> = all.iter().map(Case::name).collect();
            assert_eq!(names.len(), all.len());
            let each = if asked.len() == 1 { 3 } else { 6 };
            assert_eq!(all.len(), (programs().len() + of_npb_all().len()) * each);
            assert_eq!(cases(asked, false).len(), programs().len() * each);
        }
        assert!(cases(&[], false).iter().any(|case| case.name() == "lammps-3"));
        assert!(cases(&[Beside::Hog], true).iter().all(|case| case.name().ends_with("-hog")));
    }

    #[test]
    fn the_limit_counts_neighbours() {
        let of = |threads, beside| Case { program: programs()[0], threads, beside }.bound();
        assert_eq!((of(2, Beside::Nobody), of(4, Beside::Nobody)), (1.0, 1.0));
        assert_eq!((of(2, Beside::Hog), of(2, Beside::Copy)), (1.5, 2.0));
        assert_eq!(of(3, Beside::Quota), 2.0 / 1.5);
    }

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let tools = Tools::at("evenly", "nowhere");
        let needs = Needs::Commands(&[("sh", "dash"), ("no-such-command", "a-package")]);
        let said = missing(needs, &tools, Path::new("")).unwrap();
        assert_eq!(said, "there is no no-such-command; on Debian: apt-get install a-package");
        assert_eq!(missing(Needs::Commands(&[("sh", "dash")]), &tools, Path::new("")), None);
        assert!(missing(Needs::Workload("loops-tbb"), &tools, Path::new("")).is_some());
        let said = missing(Needs::Npb("lu.W.x"), &tools, Path::new("/nowhere")).unwrap();
        assert_eq!(said, "--npb: there is no lu.W.x in /nowhere");
    }
}

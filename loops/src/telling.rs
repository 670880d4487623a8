//! What loops tell of themselves where a variable names a file for it, as `evenly run` does: a line of JSON when the iterations of
//! a loop were divided anew, and one with the totals of each loop when a team is freed and when the process ends.
//!
//! Invariants:
//! - Where the variable is not set nothing is done for an instance.
//! - Nothing here fails a program, or holds it up for longer than a short write takes: what cannot be told is not.
//! - A process writes no more than some hundred lines, and each line by one write, so that those of several do not mix.

use crate::clock::time;
use crate::process::soon;
use evenly_iterations::{Measured, Policy, Powers};
use evenly_model::Nanos;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::time::ClockId;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Names the file. A relative path is that from where the program is when its first loop begins.
const VARIABLE: &str = "EVENLY_LOOPS_REPORT";
/// Name and version of the lines.
const SCHEMA: &str = "evenly.loops/1";
/// What the file of `evenly run` is called in `/proc`.
const IN_MEMORY: &[u8] = b"/memfd:evenly-loops (deleted)";
/// Most lines of a process of each kind, but for the totals at its end.
const LINES: u32 = 256;
/// Most loops of a process, by name; of others only their number is told.
const LOOPS: usize = 64;
/// Most characters of a name.
const NAME: usize = 100;

/// The loops of this process. None before the first that tells.
static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

struct Process {
    id: u32,
    path: Arc<Path>,
    /// Tells a process from another one with its number.
    since_ns: u64,
    loops: Vec<Arc<Told>>,
    left_out: u64,
    /// Lines so far: of divisions, and of totals.
    divided: u32,
    summed_up: u32,
}

/// All loops of a name by teams of the same size.
#[derive(Debug)]
struct Told {
    name: String,
    threads: usize,
    totals: Mutex<Totals>,
}

#[derive(Debug, Default)]
struct Totals {
    seconds: f64,
    instances: u64,
    iterations: Vec<u64>,
    powers: Vec<f64>,
    divisions: u64,
    policy: Policy,
    /// Since they were told.
    have_changed: bool,
}

/// What a loop tells.
#[derive(Debug)]
pub(crate) struct Teller {
    told: Arc<Told>,
    seen: Mutex<Seen>,
}

/// The powers by which it was divided last, and how often it was divided anew.
#[derive(Debug)]
struct Seen {
    powers: Vec<f64>,
    divisions: u64,
}

fn now_ns() -> u64 {
    time(ClockId::Monotonic).0
}

impl Process {
    /// None where nobody asks for it, or whoever does may not say where the process writes.
    fn new() -> Option<Self> {
        if crate::process::is_privileged() {
            return None;
        }
        let path = PathBuf::from(std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?);
        static HAS_HANDLER: AtomicBool = AtomicBool::new(false);
        if !HAS_HANDLER.swap(true, Relaxed) {
            // A child after `fork` has it as well.
            crate::process::at_exit(at_exit);
        }
        Some(Self {
            id: std::process::id(),
            // The program may go to another directory.
            path: std::path::absolute(&path).unwrap_or(path).into(),
            since_ns: now_ns(),
            loops: Vec::new(),
            left_out: 0,
            divided: 0,
            summed_up: 0,
        })
    }

    fn told(&mut self, name: &str, threads: usize) -> Option<Arc<Told>> {
        let name: String = name.chars().take(NAME).collect();
        let is_it = |told: &&Arc<Told>| told.name == name && told.threads == threads;
        if let Some(told) = self.loops.iter().find(is_it) {
            return Some(Arc::clone(told));
        }
        if self.loops.len() >= LOOPS {
            self.left_out += 1;
            return None;
        }
        let totals = Totals { iterations: vec![0; threads], ..Totals::default() };
        let told = Arc::new(Told { name, threads, totals: Mutex::new(totals) });
        self.loops.push(Arc::clone(&told));
        Some(told)
    }

    /// What each line begins with.
    fn line(&self, event: &str, told: &Told) -> String {
        let (id, since, name) = (self.id, self.since_ns, quoted(&told.name));
        format!(
            "{{\"schema\":\"{SCHEMA}\",\"pid\":{id},\"since_ns\":{since},\"event\":\"{event}\",\"loop\":{name}"
        )
    }

    /// The totals of those of which they have changed.
    fn sum_up(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for told in &self.loops {
            let Some(mut totals) = soon(&told.totals) else { continue };
            if std::mem::take(&mut totals.have_changed) {
                lines.push(format!(
                    "{},\"seconds\":{:.6},\"instances\":{},\"iterations\":{:?},\"powers\":{},\"divisions\":{},\"policy\":\"{}\",\
                     \"left_out\":{}}}\n",
                    self.line("totals", told),
                    totals.seconds,
                    totals.instances,
                    totals.iterations,
                    numbers(&totals.powers),
                    totals.divisions,
                    totals.policy,
                    self.left_out,
                ));
            }
        }
        lines
    }
}

impl Teller {
    /// For a loop that is new. None where nobody asks for it, or there are too many.
    pub(crate) fn new(name: &str, threads: usize) -> Option<Self> {
        let mut process = soon(&PROCESS)?;
        // What a child after `fork` knows of the loops of its parent is not told twice.
        if process.as_ref().is_none_or(|known| known.id != std::process::id()) {
            *process = Process::new();
        }
        let told = process.as_mut()?.told(name, threads)?;
        // The parts that it begins with, and has where its policy knows of no powers.
        let seen = Seen { powers: vec![1.0 / threads as f64; threads], divisions: 0 };
        Some(Self { told, seen: Mutex::new(seen) })
    }

    /// The loop begins an instance by this policy and these powers, and was divided anew so often.
    pub(crate) fn begins(&self, policy: Policy, powers: &Powers, divisions: u64) {
        if !matches!(policy, Policy::Rp | Policy::RpSteal) {
            return;
        }
        let Some(mut seen) = soon(&self.seen) else { return };
        if seen.powers == powers.get() && seen.divisions == divisions {
            return;
        }
        let anew = divisions.saturating_sub(seen.divisions);
        if anew > 0 {
            let told = soon(&self.told.totals).map(|mut totals| {
                totals.divisions += anew;
                totals.instances
            });
            if let Some(instances) = told {
                self.divided(instances, &seen.powers, powers.get());
            }
        }
        *seen = Seen { powers: powers.get().to_vec(), divisions };
    }

    fn divided(&self, instances: u64, before: &[f64], after: &[f64]) {
        let Some(mut process) = soon(&PROCESS) else { return };
        let known = process.as_mut().filter(|known| known.id == std::process::id());
        let Some(known) = known.filter(|known| known.divided < LINES) else { return };
        known.divided += 1;
        let mut line = known.line("divided", &self.told);
        let (now, before_words, after_words) = (now_ns(), numbers(before), numbers(after));
        // A `String` can be written to.
        let _ = write!(
            line,
            ",\"at_ns\":{now},\"instances\":{instances},\"before\":{before_words},\"after\":{after_words}"
        );
        if let Some((thread, pace)) = why(before, after) {
            let _ = write!(line, ",\"thread\":{thread},\"pace\":{pace:.4}");
        }
        let path = Arc::clone(&known.path);
        drop(process);
        append(&path, &format!("{line}}}\n"));
    }

    /// An instance has ended, of which threads did that; and how the next one begins.
    pub(crate) fn ends(
        &self,
        measured: &[Measured],
        makespan: Nanos,
        policy: Policy,
        powers: &Powers,
    ) {
        let Some(mut totals) = soon(&self.told.totals) else { return };
        totals.seconds += makespan.as_secs_f64();
        totals.instances += 1;
        let sums = totals.iterations.iter_mut().zip(measured);
        sums.for_each(|(sum, more)| *sum += more.iterations);
        if totals.powers != powers.get() {
            totals.powers = powers.get().to_vec();
        }
        (totals.policy, totals.have_changed) = (policy, true);
    }
}

/// A team was freed: tells what is known of all loops.
pub(crate) fn sum_up() {
    let Some(mut process) = soon(&PROCESS) else { return };
    let known = process.as_mut().filter(|known| known.id == std::process::id());
    let Some(known) = known.filter(|known| known.summed_up < LINES) else { return };
    let (lines, path) = (known.sum_up(), Arc::clone(&known.path));
    known.summed_up = known.summed_up.saturating_add(lines.len() as u32);
    drop(process);
    lines.iter().for_each(|line| append(&path, line));
}

/// The process ends: however much was told, what is left is told as well.
extern "C" fn at_exit() {
    if let Some(known) = soon(&PROCESS).as_mut().and_then(|process| process.as_mut()) {
        known.summed_up = 0;
    }
    sum_up();
}

/// The thread that got on at another pace than its powers say, and that pace, over the mean of all others by theirs. Of several
/// the one that differs most; where two change places the one that has, or had, least.
fn why(before: &[f64], after: &[f64]) -> Option<(usize, f64)> {
    let pace = |(&before, &after): (&f64, &f64)| {
        let pace = after / before * (1.0 - before) / (1.0 - after);
        // Of who keeps its part there is nothing to say.
        let differs = pace.is_finite() && pace > 0.0 && (pace.ln() * 1e6).round() != 0.0;
        differs.then(|| (pace, before.min(after)))
    };
    let paces = before.iter().zip(after).map(pace).enumerate();
    let known = paces.filter_map(|(thread, pace)| pace.map(|(pace, least)| (thread, pace, least)));
    let most = known.max_by(|(_, a, has_a), (_, b, has_b)| {
        // What is only rounded differently is the same.
        let by = |pace: &f64| (pace.ln().abs() * 1e6).round();
        by(a).total_cmp(&by(b)).then(has_b.total_cmp(has_a))
    });
    most.map(|(thread, pace, _)| (thread, pace))
}

/// Parts of 1, as JSON.
fn numbers(parts: &[f64]) -> String {
    let words: Vec<String> = parts.iter().map(|part| format!("{part:.4}")).collect();
    format!("[{}]", words.join(","))
}

/// A string, as JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // A `String` can be written to.
            c if c.is_control() => _ = write!(quoted, "\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Adds a line to a file. It is opened each time: a program may close what it does not know of, and then has a file of its own by
/// that number.
fn append(path: &Path, line: &str) {
    // Where that cannot be done nobody hears of it.
    let _ = try_append(path, line);
}

fn try_append(path: &Path, line: &str) -> rustix::io::Result<()> {
    // A write beyond such a limit ends a program by a signal.
    if rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some() {
        return Ok(());
    }
    // Nothing waits for a reader of a FIFO, and no terminal becomes that of the program.
    let mut flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // What is in memory is there, or gone.
    let in_memory = path.starts_with("/proc");
    flags.set(OFlags::CREATE, !in_memory);
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    if in_memory {
        // In another namespace the number is that of another process, which has other files.
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        if rustix::fs::readlink(link, Vec::new())?.as_bytes() != IN_MEMORY {
            return Ok(());
        }
    }
    rustix::io::write(&file, line.as_bytes()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_who_got_on_at_another_pace() {
        let close = |found: Option<(usize, f64)>, thread, pace: f64| {
            found.is_some_and(|(who, by)| who == thread && (by - pace).abs() < 1e-9)
        };
        // A load comes, and goes.
        let (equal, behind) = ([0.5, 0.5], [2.0 / 3.0, 1.0 / 3.0]);
        assert!(close(why(&equal, &behind), 1, 0.5));
        assert!(close(why(&behind, &equal), 1, 2.0));
        let (equal, behind) = ([0.25; 4], [2.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]);
        assert!(close(why(&equal, &behind), 3, 0.5));
        assert_eq!(why(&[1.0], &[1.0]), None);
        assert_eq!(why(&[0.6, 0.4], &[0.6, 0.4]), None);
        assert_eq!(why(&[0.0, 1.0], &[0.5, 0.5]), None);
    }

    #[test]
    fn names_are_strings_of_json() {
        assert_eq!(quoted("sweep"), "\"sweep\"");
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}

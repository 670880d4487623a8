//! What parallel loops of `libevenly_loops` have told of themselves: who had which share, and why it changed.
//!
//! Invariant: a line is whatever a program wrote. One that is not understood is counted, and nothing of it is taken; what is kept
//! of all others is limited.

use evenly_model::{Nanos, counted, printable};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Name and version of the lines.
const SCHEMA: &str = "evenly.loops/1";
/// A longer line is not read: two numbers for each of 1024 threads are less.
const LINE: usize = 64 << 10;
/// Most threads of a loop.
const THREADS: usize = 1024;
/// Most loops of all processes.
const LOOPS: usize = 256;
/// Of a loop the first divisions are kept.
const DIVISIONS: usize = 32;
/// Most loops of which is known that there was no room for them.
const MISSING: usize = 4096;
/// Most powers that are kept of all divisions.
const NUMBERS: usize = 1 << 16;
/// Most characters of a name.
const NAME: usize = 100;
/// So many shares are shown one by one.
const FEW: usize = 4;

/// The loops of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LoopsReport {
    /// Processes that have told of loops.
    pub processes: usize,
    /// Loops that are missing here because there were too many.
    pub left_out: u64,
    /// Lines that were not understood.
    pub not_read: u64,
    /// The loops; those first that took the most time.
    pub loops: Vec<LoopReport>,
    /// Powers that were kept so far.
    #[serde(skip)]
    numbers: usize,
    /// Loops for which there was no room, as far as there is room for that.
    #[serde(skip)]
    missing: BTreeSet<(Whose, String)>,
}

/// A process, which a number alone does not tell from a later one, and the threads of a loop.
type Whose = (i32, u64, usize);

/// All loops of a name, in one process, by teams of the same size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopReport {
    /// The process.
    pub pid: i32,
    /// The name of the loop.
    pub name: String,
    /// Threads of a team.
    pub threads: usize,
    /// How often it was carried out, as far as is known.
    pub instances: u64,
    /// The powers of its threads as they were known last, which all loops of a team have in common: the part of its iterations that
    /// each is given before others take some of it, as far as they follow powers.
    pub shares: Vec<f64>,
    /// How often iterations were divided anew.
    pub divisions: u64,
    /// The first of these.
    pub divided: Vec<DivisionReport>,
    /// What is told at the end; None where that did not come.
    pub totals: Option<LoopTotals>,
    #[serde(skip)]
    since_ns: u64,
    /// Loops of which its process does not tell.
    #[serde(skip)]
    left_out: u64,
}

/// What is told of a loop at its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopTotals {
    /// How iterations were handed out at last.
    pub policy: String,
    /// For how long it was carried out, in seconds.
    pub seconds: f64,
    /// Iterations that each thread has carried out.
    pub iterations: Vec<u64>,
}

/// The iterations of a loop were divided anew.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DivisionReport {
    /// When, in seconds since the start of the run.
    pub at_s: f64,
    /// How often the loop had been carried out before.
    pub instances: u64,
    /// The part of all iterations that each thread had before.
    pub before: Vec<f64>,
    /// And after it.
    pub after: Vec<f64>,
    /// The thread that got on at another pace than its part says.
    pub thread: Option<usize>,
    /// That pace over the mean of all others.
    pub pace: Option<f64>,
}

#[derive(Deserialize)]
struct Line {
    schema: String,
    pid: i32,
    since_ns: u64,
    #[serde(rename = "loop")]
    name: String,
    #[serde(flatten)]
    event: Event,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Divided {
        at_ns: u64,
        instances: u64,
        before: Vec<f64>,
        after: Vec<f64>,
        thread: Option<usize>,
        pace: Option<f64>,
    },
    Totals {
        seconds: f64,
        instances: u64,
        iterations: Vec<u64>,
        powers: Vec<f64>,
        divisions: u64,
        policy: String,
        left_out: u64,
    },
}

impl Event {
    /// How many threads it has, where it makes sense.
    fn threads(&self) -> Option<usize> {
        let are_parts = |parts: &[f64]| parts.iter().all(|part| (0.0..=1.0).contains(part));
        let (threads, makes_sense) = match self {
            Self::Divided { before, after, thread, pace, .. } => (
                after.len(),
                before.len() == after.len()
                    && are_parts(before)
                    && are_parts(after)
                    && thread.is_none_or(|thread| thread < after.len())
                    && pace.is_none_or(|pace| pace >= 0.0)
                    && thread.is_some() == pace.is_some(),
            ),
            Self::Totals { seconds, iterations, powers, .. } => (
                powers.len(),
                iterations.len() == powers.len() && are_parts(powers) && *seconds >= 0.0,
            ),
        };
        ((1..=THREADS).contains(&threads) && makes_sense).then_some(threads)
    }
}

/// A text from outside, of limited length.
fn short(text: &str) -> String {
    let short: String = text.chars().take(NAME).collect();
    printable(&short).into_owned()
}

impl LoopsReport {
    /// What these lines say of a run that began then. None where they say nothing.
    pub fn read(lines: impl Iterator<Item = Vec<u8>>, began: Nanos) -> Option<Self> {
        let mut report = Self::default();
        lines.filter(|line| !line.is_empty()).for_each(|line| report.add(&line, began));
        report.loops.sort_by(|a, b| b.weight().partial_cmp(&a.weight()).unwrap_or(Ordering::Equal));
        let mut processes: BTreeMap<(i32, u64), u64> = BTreeMap::new();
        for l in &report.loops {
            // Each process counts its own, and says so with each loop.
            let left_out = processes.entry((l.pid, l.since_ns)).or_default();
            *left_out = l.left_out.max(*left_out);
        }
        report.processes = processes.len();
        let missing = report.missing.len() as u64;
        report.left_out = processes.values().fold(missing, |sum, n| sum.saturating_add(*n));
        (report != Self::default()).then_some(report)
    }

    fn add(&mut self, line: &[u8], began: Nanos) {
        let read = (line.len() <= LINE).then(|| serde_json::from_slice::<Line>(line).ok());
        let read = read.flatten().filter(|line| line.schema == SCHEMA && line.pid > 0);
        let threads = read.as_ref().and_then(|line| line.event.threads());
        let (Some(line), Some(threads)) = (read, threads) else {
            self.not_read += 1;
            return;
        };
        let name = short(&line.name);
        let whose = (line.pid, line.since_ns, threads);
        let is_it = |l: &LoopReport| (l.pid, l.since_ns, l.threads) == whose && l.name == name;
        let at = self.loops.iter().position(is_it).or_else(|| {
            if self.loops.len() >= LOOPS {
                if self.missing.len() < MISSING {
                    self.missing.insert((whose, name.clone()));
                }
                return None;
            }
            self.loops.push(LoopReport {
                pid: line.pid,
                name: name.clone(),
                threads,
                instances: 0,
                shares: Vec::new(),
                divisions: 0,
                divided: Vec::new(),
                totals: None,
                since_ns: line.since_ns,
                left_out: 0,
            });
            Some(self.loops.len() - 1)
        });
        if let Some(at) = at {
            let keeps = self.numbers + 2 * threads <= NUMBERS;
            let kept = self.loops[at].add(line.event, began, keeps);
            self.numbers += if kept { 2 * threads } else { 0 };
        }
    }
}

impl LoopReport {
    /// Whether a division was kept.
    fn add(&mut self, event: Event, began: Nanos, keeps: bool) -> bool {
        match event {
            Event::Divided { at_ns, instances, before, after, thread, pace } => {
                self.instances = self.instances.max(instances);
                self.divisions = self.divisions.saturating_add(1);
                self.shares.clone_from(&after);
                let keeps = keeps && self.divided.len() < DIVISIONS;
                if keeps {
                    let at_s = Nanos(at_ns.saturating_sub(began.0)).as_secs_f64();
                    let division = DivisionReport { at_s, instances, before, after, thread, pace };
                    self.divided.push(division);
                }
                keeps
            }
            Event::Totals {
                seconds,
                instances,
                iterations,
                powers,
                divisions,
                policy,
                left_out,
            } => {
                self.left_out = self.left_out.max(left_out);
                self.instances = self.instances.max(instances);
                self.divisions = self.divisions.max(divisions);
                self.shares = powers;
                self.totals = Some(LoopTotals { policy: short(&policy), seconds, iterations });
                false
            }
        }
    }

    /// By what loops are put in order: their time, and how often they were carried out.
    fn weight(&self) -> (f64, u64) {
        (self.totals.as_ref().map_or(0.0, |totals| totals.seconds), self.instances)
    }

    /// As a line of text; with its process where there are several, and with what else there is.
    fn words(&self, of_several: bool, others: &str) -> String {
        let mut text = self.name.clone();
        if of_several {
            let _ = write!(text, " of process {}", self.pid);
        }
        text.push_str(others);
        let instances = counted(self.instances, "instance");
        match &self.totals {
            Some(totals) => {
                let _ = write!(text, ": {instances}, {}; {}", totals.policy, self.shares(totals));
            }
            None => {
                let powers = parts(&self.shares);
                let _ = write!(
                    text,
                    ": {instances} or more, as its process did not end by itself; powers {powers} at last"
                );
            }
        }
        text + &self.divisions()
    }

    /// Who had which share of all that was done; and by which powers it was divided at the end, if it was.
    fn shares(&self, totals: &LoopTotals) -> String {
        let all: f64 = totals.iterations.iter().map(|n| *n as f64).sum();
        let part = |n: &u64| *n as f64 / all.max(1.0);
        let done = parts(&totals.iterations.iter().map(part).collect::<Vec<_>>());
        if totals.policy.starts_with("rp") {
            return format!("iterations {done}, powers {} at the end", parts(&self.shares));
        }
        format!("iterations {done}")
    }

    fn divisions(&self) -> String {
        let (often, first) = match self.divisions {
            0 => return String::new(),
            1 => (String::from("once"), ""),
            2 => (String::from("twice"), "first "),
            n => (format!("{n} times"), "first "),
        };
        let mut text = format!("; divided anew {often}");
        if let Some(division) = self.divided.first() {
            let _ = write!(text, ", {first}after {:.1} s", division.at_s);
            if let (Some(thread), Some(pace)) = (division.thread, division.pace) {
                let _ = write!(text, ": thread {thread} got on {}", as_fast(pace));
            }
        }
        text
    }
}

/// Parts of 1, in percent.
fn parts(parts: &[f64]) -> String {
    let percent = |part: &f64| format!("{:.0}", 100.0 * part);
    if parts.len() > FEW {
        let (least, most) =
            parts.iter().fold((1.0, 0.0), |(low, high): (f64, f64), &p| (low.min(p), high.max(p)));
        let (least, most) = (percent(&least), percent(&most));
        return format!("{least} to {most} % of {} threads", parts.len());
    }
    let all: Vec<String> = parts.iter().map(|part| percent(part) + " %").collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => all.concat(),
    }
}

/// A pace over that of others.
fn as_fast(pace: f64) -> String {
    match pace {
        0.45..0.55 => String::from("half as fast"),
        1.9..2.1 => String::from("twice as fast"),
        ..0.01 => String::from("hardly at all"),
        ..0.1 => format!("{pace:.2} times as fast"),
        _ => format!("{pace:.1} times as fast"),
    }
}

impl LoopsReport {
    /// In lines of text, for at most so many loops.
    pub(crate) fn words(&self, most: usize) -> Vec<String> {
        let all = self.loops.len() as u64 + self.left_out;
        let (several, are_more) = (self.processes > 1, all > most as u64);
        let others = match (are_more, several) {
            (false, _) => String::new(),
            (true, false) => format!(" (of {all} loops)"),
            (true, true) => format!(" (of {all} loops in {} processes)", self.processes),
        };
        let words =
            |(i, l): (usize, &LoopReport)| l.words(several, if i == 0 { &others } else { "" });
        self.loops.iter().take(most).enumerate().map(words).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

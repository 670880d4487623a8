//! The report at the end of a run: at most eight lines of text, the whole of it where that is asked
//! for, and JSON (`evenly.run/1`).
//!
//! Invariant: every figure was measured in this run. Where nothing was measured the report says so
//! and claims nothing.

#![forbid(unsafe_code)]

mod loops;
mod ranks;
mod text;
mod verdict;

pub use loops::{DivisionReport, LoopReport, LoopTotals, LoopsReport};
pub use ranks::{EdgeReport, MessagesReport, ProbeReport, ProbeThread, RankReport, WaitedFor};
pub use text::MOST_LINES;

use evenly_engine::{DomainSummary, Placed, Summary, ThreadSummary};
use evenly_model::efficiency::Efficiency;
use evenly_model::{CpuSet, counted};
use evenly_policy::PolicyInfo;
use serde::Serialize;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "evenly.run/1";

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It ended with this exit status.
    Exit(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// It runs on: evenly was detached.
    RunsOn,
    /// It ended while evenly was attached.
    Gone,
}

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Name and version of the form, [`SCHEMA`].
    pub schema: &'static str,
    /// The version of evenly that has written it.
    pub evenly: &'static str,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The policy; its name in JSON.
    #[serde(serialize_with = "name")]
    pub policy: &'static PolicyInfo,
    /// How the program ended.
    pub ended: Ended,
    /// From start (or attaching) to end, in seconds.
    pub seconds: f64,
    /// For how long there were threads to balance, in seconds.
    pub balanced_s: f64,
    /// CPUs that the program could use when balancing began: no more than what the masks of the
    /// threads that were balanced allowed to any of them.
    pub cpus: CpuSet,
    /// CPU quota of the program at its end, in CPUs, if it had one.
    pub quota_cpus: Option<f64>,
    /// The period aimed at, in milliseconds.
    pub period_ms: f64,
    /// CPU time of evenly as a whole, in seconds.
    pub overhead_s: f64,
    /// The part of one CPU that balancing was allowed.
    pub budget: f64,
    /// Where thread times came from, as `--source` has it; None where balancing never began.
    pub source: Option<String>,
    /// Why the program could not be balanced, where that is so.
    pub failure: Option<String>,
    /// Whether balancing ever began.
    pub started: bool,
    /// The number of compute threads that evenly was to wait for (`--threads`).
    pub expected_threads: Option<u32>,
    /// Whether the user chose threads by name.
    pub filtered: bool,
    /// The options by which they were chosen, as given.
    #[serde(skip)]
    pub filter: Vec<String>,
    /// Where threads were chosen: names of those that were left, and of those that were left out.
    #[serde(skip)]
    pub names: [Vec<String>; 2],
    /// Number of ranks of the MPI program of which this evenly was started as a part.
    pub mpi_ranks: Option<u32>,
    /// Threads of the program at the last look, computing or not.
    pub all_threads: usize,
    /// Real-time and deadline threads among these: they are left alone.
    pub realtime_threads: usize,
    /// Processes of the program at the last look.
    pub processes: usize,
    /// What became of the mapping that was to be carried out, where there was one and balancing began.
    pub mapping: Option<Placed>,
    /// Domains, threads and notes.
    #[serde(flatten)]
    pub summary: Summary,
    /// Where the threads' time went. Filled in by [`RunReport::judged`]; None where nothing was
    /// balanced.
    pub efficiency: Option<Efficiency>,
    /// What the probe has reported, if the program had one.
    pub probe: Option<ProbeReport>,
    /// What threads that spun have handed over, if any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
    /// What came of CPUs that changed hands often, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metronome: Option<Metronome>,
    /// What parallel loops of `libevenly_loops` have told, if any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops: Option<LoopsReport>,
    /// What MPI ranks have counted while they ran, where they did.
    pub messages: Option<MessagesReport>,
    /// What pausing showed, for the domain with most comparisons.
    pub measured: Option<Measured>,
    /// Progress of the slowest thread over that of one left in the slowest slot throughout: an
    /// estimate, and None where it would mean nothing. Filled in by [`RunReport::judged`].
    pub gain: Option<f64>,
    /// The verdict. Filled in by [`RunReport::judged`].
    pub verdict: String,
}

/// What it takes to ask a thread that waits, in microseconds: at least a call, at most a trap and its way back.
const ASKING_US: [f64; 2] = [1.0, 3.0];

/// CPUs that threads which spun gave to others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HandedOver {
    /// How often a thread was asked.
    pub asked: u64,
    /// For how long others ran in its place, in seconds, all threads together.
    pub given_s: f64,
    /// For how long threads slept instead of spinning, in seconds, all together.
    pub slept_s: f64,
    /// Where that was most often: a function, with its line where that is known.
    pub place: Option<String>,
    /// On how many CPUs, on average, threads computed in pauses of it; before the first one, if they compute more since, just
    /// before it began. None where neither is known.
    pub cpus_without: Option<f64>,
    /// The same just before the pauses, or just after it began.
    pub cpus_with: Option<f64>,
}

impl HandedOver {
    fn words(&self) -> String {
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" in {place}"));
        format!(
            "threads that spun{place} let others run for {:.2} s, and slept for {:.2} s, all together",
            self.given_s, self.slept_s
        )
    }

    /// What it took of the program's own CPU time, which is time in which its threads waited.
    fn cost(&self) -> String {
        let [least, most] = ASKING_US.map(|us| self.asked as f64 * us / 1e6);
        let times = counted(self.asked, "time");
        format!(
            "{least:.2} to {most:.2} s in which waiting threads were asked {times} to hand over"
        )
    }
}

/// CPUs that changed hands often while threads spun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metronome {
    /// For how long they did, in seconds.
    pub seconds: f64,
    /// How often, in microseconds.
    pub interval_us: u64,
    /// CPU time that it took, in seconds.
    pub cpu_s: f64,
    /// Where threads spun: a function, with its line where that is known.
    pub place: Option<String>,
    /// On how many CPUs, on average, threads computed just before.
    pub cpus_without: f64,
    /// The same meanwhile.
    pub cpus_with: f64,
}

impl Metronome {
    fn words(&self) -> String {
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" in {place}"));
        format!(
            "threads spun{place}, so CPUs changed hands every {} ms for {:.2} s, which took {:.2} s of CPU time",
            self.interval_us as f64 / 1e3,
            self.seconds,
            self.cpu_s,
        )
    }
}

/// Effect of balancing as measured by pausing it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// How many stretches with balancing were compared with one without.
    pub pairs: u32,
    /// Rate of progress with balancing over that without.
    pub ratio: f64,
    /// The 95 % interval of the ratio; None where one comparison was made, or it has no upper end.
    pub ci95: Option<[f64; 2]>,
}

/// Threads that are blocked for more than this part of their time progress equally because they wait
/// for each other, and that says nothing about what balancing gained.
const MUCH_BLOCKED: f64 = 0.1;
/// A smaller gain is not shown.
const LEAST_GAIN: f64 = 1.02;
/// Up to this imbalance threads progress equally.
const BALANCED: f64 = 0.05;
/// A run that was balanced for a shorter time says nothing.
const SHORT_S: f64 = 0.5;
/// With fewer balancing points nothing is said of what balancing did: what threads got in so few
/// periods is as much chance and the kernel's doing.
const LEAST_POINTS: u64 = 10;

fn name<S: serde::Serializer>(policy: &&'static PolicyInfo, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(policy.name)
}

impl RunReport {
    /// Fills in what follows from the rest: the measured effect, the gain and the verdict.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.measured = self
            .summary
            .domains
            .iter()
            .map(|d| d.verdict)
            .filter(|v| v.pairs > 0)
            .max_by_key(|v| v.pairs)
            .map(|v| Measured {
                pairs: v.pairs,
                ratio: v.ratio,
                // Comparisons that differ by orders of magnitude have no upper end.
                ci95: (v.pairs > 1 && v.high.is_finite()).then_some([v.low, v.high]),
            });
        self.efficiency = self.summary.efficiency();
        // What was measured goes before what is estimated.
        self.gain = self.meaningful_gain().filter(|_| self.measured.is_none());
        self.verdict = self.verdict_text();
        self
    }

    fn total<T: std::iter::Sum>(&self, f: impl Fn(&DomainSummary) -> T) -> T {
        self.summary.domains.iter().map(f).sum()
    }

    fn migrations(&self) -> u64 {
        self.total(|d| d.migrations)
    }

    /// Whether balancing stood down, in any domain.
    fn stood_down(&self) -> bool {
        self.summary.domains.iter().any(|d| d.stood_down)
    }

    /// Whether no thread was moved or given another share. A mapping may have placed some.
    fn changed_nothing(&self) -> bool {
        self.migrations() == 0 && self.total(|d| d.weighings) == 0
    }

    /// Balancing points of the domain that has most of them.
    fn points(&self) -> u64 {
        self.summary.domains.iter().map(|d| d.points).max().unwrap_or(0)
    }

    fn has_few_points(&self) -> bool {
        self.points() < LEAST_POINTS
    }

    /// How few they were.
    fn too_few(&self) -> String {
        let (n, verb) = (self.points(), is(self.points()));
        format!(
            "{} in {:.2} s {verb} too few to say",
            counted(n, "balancing point"),
            self.balanced_s
        )
    }

    /// One that changed its domain has been counted in two.
    fn balanced_threads(&self) -> usize {
        self.total(|d| d.threads as usize).min(self.summary.threads.len())
    }

    /// The part of their time that all threads were blocked, or spun as far as that is known.
    fn blocked_share(&self) -> f64 {
        let time = |f: fn(&ThreadSummary) -> f64| self.summary.threads.iter().map(f).sum::<f64>();
        let all = time(|t| t.ran_s + t.waited_s + t.blocked_s);
        if all > 0.0 { time(|t| t.blocked_s + t.spun_s.unwrap_or(0.0)) / all } else { 0.0 }
    }

    /// The part of their time that threads spun. None if it is unknown for one of them.
    fn spun_share(&self) -> Option<f64> {
        let threads = &self.summary.threads;
        let spun: f64 = threads.iter().map(|t| t.spun_s).sum::<Option<f64>>()?;
        let all: f64 = threads.iter().map(|t| t.ran_s + t.waited_s + t.blocked_s).sum();
        (all > 0.0).then(|| spun / all)
    }

    /// Of all domains the slowest one's, where it says something: the policy balanced, the threads
    /// were the same all the time, computed, and did so for a while.
    fn meaningful_gain(&self) -> Option<f64> {
        let steady = self.summary.threads.len() <= self.total(|d| d.threads as usize);
        if !self.policy.is_guarded()
            || !steady
            || self.blocked_share() > MUCH_BLOCKED
            || self.balanced_s < SHORT_S
            || self.has_few_points()
            || self.imbalance() > BALANCED
        {
            return None;
        }
        let gain =
            self.summary.domains.iter().filter_map(|d| d.estimated_gain).min_by(f64::total_cmp)?;
        (gain >= LEAST_GAIN).then_some(gain)
    }

    fn imbalance(&self) -> f64 {
        self.summary.progress_spread().map_or(0.0, |s| s.imbalance())
    }
}

fn is(n: u64) -> &'static str {
    if n == 1 { "is" } else { "are" }
}

fn was(n: u64) -> &'static str {
    if n == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests;

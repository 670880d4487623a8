//! What a run amounted to: the report at its end, as about fifteen lines of text and as JSON
//! (`evenly.run/1`), and the verdict in plain words.
//!
//! Invariant: every figure was measured in this run. Where nothing was measured the report says so
//! and claims nothing.

#![forbid(unsafe_code)]

use evenly_engine::{ADVANCE, DomainSummary, Placed, Summary, ThreadSummary};
use evenly_model::efficiency::Efficiency;
use evenly_model::{CpuSet, Nanos, Pid, Tid, counted, printable};
use evenly_policy::PolicyInfo;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "evenly.run/1";

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It runs on: evenly was detached.
    RunsOn,
    /// It ended while evenly was attached.
    Gone,
}

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of evenly.
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
    /// The number of compute threads that the user told evenly to wait for.
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
    /// What the probe has told, where there was one in the program.
    pub probe: Option<ProbeReport>,
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

/// What the probe has told of the program's threads, each as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Processes that have had the probe.
    pub processes: u32,
    /// Times that a thread was not counted because there were too many.
    pub left_out: u64,
    /// Threads that have waited, or taken part in a parallel region.
    pub threads: Vec<ProbeThread>,
}

/// One thread, as it tells itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeThread {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The rank of its process in `MPI_COMM_WORLD`; None where it is none.
    pub rank: Option<u32>,
    /// For how long it waited for others, in seconds.
    pub waited_s: f64,
    /// For how long it was outside of parallel regions, in seconds, of those that are there for them.
    pub outside_s: f64,
    /// Barriers, collectives and ends of regions that it reached.
    pub phases: u32,
    /// Waits of all kinds that it began.
    pub waits: u32,
    /// How often it was seen to wait, of the times that it was looked at.
    pub seen_waiting: u32,
    /// For whom, where that is known: in calls of MPI that tell, at barriers.
    pub waited_for: Vec<WaitedFor>,
}

/// Whom a thread was seen to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitedFor {
    /// In which call of MPI; else `barrier`, or `region-end`.
    pub call: String,
    /// For which rank; None where any would do, and where it is a thread.
    pub rank: Option<u32>,
    /// Whether that is its rank in `MPI_COMM_WORLD`; else it is that in another communicator.
    pub world: bool,
    /// For which thread of its own process.
    pub tid: Option<Tid>,
    /// How often it was seen so.
    pub seen: u32,
}

/// What MPI ranks have counted of their computing and their messages, until they ended or the run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessagesReport {
    /// Whether threads were placed by these messages; else by what `--profile` or `--edges` say.
    pub decided: bool,
    /// From the first rank that had initialised MPI to the last that was done with it, in seconds.
    pub seconds: f64,
    /// Messages between ranks.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Messages to ranks that are not in the sender's `MPI_COMM_WORLD`.
    pub outside: u64,
    /// Collective calls that are not among the messages.
    pub uncounted: u64,
    /// Ranks that are missing here because there were too many.
    pub left_out: u32,
    /// The ranks, in the order in which they began.
    pub ranks: Vec<RankReport>,
    /// Who sent to whom. Where several programs ran they are added up.
    pub edges: Vec<EdgeReport>,
}

/// One rank: its thread that has initialised MPI, from then on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankReport {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Its number in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// CPU time outside of MPI, in seconds: its load.
    pub computed_s: f64,
    /// CPU time in MPI, in seconds.
    pub mpi_s: f64,
}

/// What one rank has sent to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EdgeReport {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// Messages.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl RankReport {
    /// The part of its CPU time for which it computed.
    fn share(&self) -> Option<f64> {
        let all = self.computed_s + self.mpi_s;
        (all > 0.0).then(|| self.computed_s / all)
    }
}

impl MessagesReport {
    /// As a line of text.
    fn words(&self) -> String {
        if self.ranks.is_empty() {
            return String::from(
                "no rank has counted any: none has initialised MPI, or a launcher handed on no \
                 environment",
            );
        }
        let ranks = counted(self.ranks.len() as u64, "rank");
        let mut text = if self.seconds > 0.0 {
            let rate = |n: u64| n as f64 / self.seconds;
            let (messages, mb) = (rate(self.messages), rate(self.bytes) / 1e6);
            format!("{ranks} sent {messages:.0} messages/s ({mb:.2} MB/s)")
        } else {
            format!("{ranks} sent {}", counted(self.messages, "message"))
        };
        let shares = || self.ranks.iter().filter_map(RankReport::share);
        if let Some(least) = shares().min_by(f64::total_cmp) {
            let most = shares().fold(0.0, f64::max);
            let _ = write!(
                text,
                " and computed for {:.0} to {:.0} % of their CPU time",
                100.0 * least,
                100.0 * most
            );
        }
        if !self.decided {
            text.push_str("; the messages of --profile or --edges counted instead");
        }
        text
    }
}

/// A thread that waited for less than this part of what the one did that waited most is not worth a word.
const MUCH: f64 = 0.1;
/// One that was seen to wait less often than that may have been seen so by chance.
const OFTEN: u32 = 4;
/// Columns of a line behind its name.
const ROOM: usize = 106;

impl ProbeReport {
    /// The threads that count: those of ranks, where there are any. What starts ranks waits for their end, and
    /// that is no waiting of the program.
    fn counted(&self) -> impl Iterator<Item = &ProbeThread> {
        let ranks = self.threads.iter().any(|t| t.rank.is_some());
        self.threads.iter().filter(move |t| t.rank.is_some() || !ranks)
    }

    /// Which process is which rank of its program.
    #[must_use]
    pub fn ranks(&self) -> BTreeMap<i32, u32> {
        self.threads.iter().filter_map(|t| Some((t.pid.0, t.rank?))).collect()
    }

    /// As a line of text.
    fn words(&self) -> String {
        let of = |f: fn(&ProbeThread) -> f64| self.counted().map(f);
        let Some(least) = of(|t| t.waited_s).min_by(f64::total_cmp) else {
            return String::from(match self.processes {
                0 => "it was loaded into no process",
                _ => "no thread waited for another in a way that it sees",
            });
        };
        let most = of(|t| t.waited_s).fold(0.0, f64::max);
        let all: f64 = of(|t| t.waited_s).sum();
        let ranks: BTreeSet<u32> = self.threads.iter().filter_map(|t| t.rank).collect();
        let whose = match ranks.len() {
            0 => String::new(),
            n => format!(" of {}", counted(n as u64, "rank")),
        };
        let mut text = format!(
            "{}{whose} waited {all:.2} s for others (least {least:.2}, most {most:.2} s)",
            counted(self.counted().count() as u64, "thread")
        );
        let outside: f64 = of(|t| t.outside_s).sum();
        if outside >= 0.005 {
            let _ = write!(text, ", and {outside:.2} s outside of parallel regions");
        }
        text
    }

    /// Which ranks, or threads, waited mostly for which one, as far as a line has room for it.
    #[must_use]
    pub fn for_whom(&self) -> Option<String> {
        let mut text = String::new();
        for (whom, Waiters { who, calls }) in self.mostly() {
            let who: Vec<i64> = who.into_iter().collect();
            let calls: Vec<&str> = calls.into_iter().take(2).collect();
            let (kind, id) = match whom {
                Waited::Rank(rank) => ("rank", i64::from(rank)),
                Waited::Thread(tid) => ("thread", i64::from(tid.0)),
            };
            let (who, calls) = (named(kind, &who), calls.join(", "));
            let more = if text.is_empty() {
                format!("{who} waited mostly for {kind} {id} ({calls})")
            } else {
                format!("; {who} for {kind} {id} ({calls})")
            };
            if text.len() + more.len() <= ROOM || text.is_empty() {
                text.push_str(&more);
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// Those for which others waited in most of the looks that found these waiting, with those and their calls;
    /// those first for which most waited. Of a program of ranks that is ranks.
    fn mostly(&self) -> Vec<(Waited, Waiters<'_>)> {
        let most = self.counted().map(|t| t.waited_s).fold(0.0, f64::max);
        let mut all: BTreeMap<Waited, Waiters<'_>> = BTreeMap::new();
        for t in self.counted() {
            if t.waited_s < MUCH * most || t.seen_waiting < OFTEN {
                continue;
            }
            let of = |w: &WaitedFor| match t.rank {
                Some(_) => w.rank.filter(|_| w.world).map(Waited::Rank),
                None => w.tid.map(Waited::Thread),
            };
            let mut seen: BTreeMap<Waited, u32> = BTreeMap::new();
            for (whom, n) in t.waited_for.iter().filter_map(|w| Some((of(w)?, w.seen))) {
                *seen.entry(whom).or_default() += n;
            }
            // Where it waits for all there may be several; then the one that was waited for most.
            let most = seen.into_iter().rev().max_by_key(|(_, n)| *n);
            let Some((whom, _)) = most.filter(|(_, n)| 2 * n > t.seen_waiting) else { continue };
            let waiters = all.entry(whom).or_default();
            waiters.who.insert(t.rank.map_or(i64::from(t.tid.0), i64::from));
            let calls = t.waited_for.iter().filter(|w| of(w) == Some(whom));
            waiters.calls.extend(calls.map(|w| w.call.as_str()));
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(whom, waiters)| (Reverse(waiters.who.len()), *whom));
        all
    }
}

/// One that others waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waited {
    Rank(u32),
    Thread(Tid),
}

/// Ranks, or threads, that wait for one, and in which calls.
#[derive(Default)]
struct Waiters<'a> {
    who: BTreeSet<i64>,
    calls: BTreeSet<&'a str>,
}

/// Such as "ranks 1, 2 and 3". Of many only the first are named.
fn named(kind: &str, all: &[i64]) -> String {
    let named: Vec<String> = all.iter().take(4).map(i64::to_string).collect();
    match (named.as_slice(), all.len().saturating_sub(4)) {
        ([only], _) => format!("{kind} {only}"),
        ([before @ .., last], 0) => format!("{kind}s {} and {last}", before.join(", ")),
        (named, more) => format!("{kind}s {} and {more} more", named.join(", ")),
    }
}

/// Effect of balancing as measured by pausing it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Number of comparisons.
    pub pairs: u32,
    /// Rate of progress with balancing over that without.
    pub ratio: f64,
    /// 95 % interval.
    pub ci95: Option<[f64; 2]>,
}

/// Threads that are blocked for more than this part of their time are kept level by their own
/// waiting, and their progress says nothing about what balancing gained.
const MUCH_BLOCKED: f64 = 0.1;
/// A gain below this is not worth a line.
const LEAST_GAIN: f64 = 1.02;
/// Threads are level up to this imbalance.
const LEVEL: f64 = 0.05;
/// Waiting that threads do not cause each other, as a share of their time, from where on it is said.
const INTERFERED: f64 = 0.1;
/// A run that was balanced for a shorter time says nothing.
const SHORT_S: f64 = 0.5;
/// With fewer balancing points nothing is said of what balancing did: what threads got in so few
/// periods is as much chance and the kernel's doing.
const LEAST_POINTS: u64 = 10;
/// How many domains and notes are shown one by one.
const SHOWN: usize = 3;
/// How many names of threads are shown.
const NAMES: usize = 5;
/// An interval whose ends are further apart than this factor says nothing, and is not shown.
const WIDE: f64 = 2.0;

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
                ci95: (v.pairs > 1).then_some([v.low, v.high]),
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

    /// Balancing points of the domain that has most of them.
    fn points(&self) -> u64 {
        self.summary.domains.iter().map(|d| d.points).max().unwrap_or(0)
    }

    fn has_few_points(&self) -> bool {
        self.points() < LEAST_POINTS
    }

    /// How few they were.
    fn too_few(&self) -> String {
        let verb = if self.points() == 1 { "is" } else { "are" };
        let points = counted(self.points(), "balancing point");
        format!("{points} in {:.2} s {verb} too few to say", self.balanced_s)
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

    /// The part of their time that threads spun. None where one did not tell.
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
            || self.imbalance() > LEVEL
        {
            return None;
        }
        let gain =
            self.summary.domains.iter().filter_map(|d| d.estimated_gain).min_by(f64::total_cmp)?;
        (gain >= LEAST_GAIN).then_some(gain)
    }

    fn imbalance(&self) -> f64 {
        self.summary.progress_level().map_or(0.0, |l| l.imbalance())
    }

    fn verdict_text(&self) -> String {
        if let Some(why) = &self.failure {
            return format!("The program was not balanced: {why}");
        }
        if !self.started {
            return format!("Nothing was balanced: {}.", self.why_not_started());
        }
        let mut text = self.verdict_of_placing();
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        if let Some(quota) = self.quota_cpus
            && quota < 0.99 * n.min(m) as f64
        {
            let _ = write!(
                text,
                " The CPU quota lets all threads together use {quota:.2} CPUs, which no balancing \
                 can change."
            );
        }
        text
    }

    fn why_not_started(&self) -> String {
        let real_time = self.realtime_threads;
        if let Some(expected) = self.expected_threads {
            return format!(
                "the {expected} compute threads that --threads waits for were never there at once"
            );
        }
        if self.filtered {
            return self.why_filtered();
        }
        if real_time > 0 && real_time + 1 >= self.all_threads {
            return format!(
                "{real_time} of the {} threads have a real-time or deadline class, and such \
                 threads are left alone",
                self.all_threads
            );
        }
        let none = "no two threads computed at the same time for a tenth of a second";
        match self.mpi_ranks {
            Some(ranks) if ranks > 1 => format!(
                "{none}. This evenly was started for one of {ranks} MPI ranks; to balance them all \
                 put it before the launcher: evenly run -- mpirun --bind-to none -n {ranks} PROGRAM"
            ),
            _ => String::from(none),
        }
    }

    fn why_filtered(&self) -> String {
        let options = self.filter.join(" ");
        let [left, left_out] = &self.names;
        let list = |names: &[String]| {
            let more = if names.len() > NAMES { ", ..." } else { "" };
            names.iter().take(NAMES).map(|n| printable(n)).collect::<Vec<_>>().join(", ") + more
        };
        if left.is_empty() && !left_out.is_empty() {
            return format!(
                "{options} leaves no thread; the names of threads were {}",
                list(left_out)
            );
        }
        let mut text = format!(
            "no two threads that {options} leaves computed at the same time for a tenth of a second"
        );
        if !left.is_empty() {
            let _ = write!(text, "; it leaves {}", list(left));
        }
        if !left_out.is_empty() {
            let _ = write!(text, ", and leaves out {}", list(left_out));
        }
        text
    }

    /// Says that there are threads which have masks of their own, where there are.
    fn own_masks(&self) -> Option<String> {
        let of = self.summary.threads.len();
        let n = self.summary.threads.iter().filter(|t| t.own_mask).count();
        let (verb, what) = if n == 1 {
            ("has", "an affinity mask of its own")
        } else {
            ("have", "affinity masks of their own")
        };
        (n > 0).then(|| {
            format!(
                "{n} of {of} threads {verb} {what} (OMP_PROC_BIND, mpirun --bind-to, taskset), which \
                 evenly leaves alone; try without binding (OMP_PROC_BIND=false, mpirun --bind-to \
                 none)"
            )
        })
    }

    /// What a mapping placed goes before what was balanced within it, which may be nothing at all.
    fn verdict_of_placing(&self) -> String {
        let Some(Placed { what, named, placed: placed @ 1.. }) = self.mapping else {
            return self.verdict_of_balancing();
        };
        let placed = if placed == named {
            format!(
                "{} {} placed where the mapping says",
                counted(placed, what),
                was(placed as u64)
            )
        } else {
            let all = counted(named, what);
            format!(
                "{placed} of the {all} in the mapping {} placed where it says",
                was(placed as u64)
            )
        };
        let stood_down = self.summary.domains.iter().any(|d| d.stood_down);
        if self.migrations() == 0 && self.total(|d| d.weighings) == 0 && !stood_down {
            return format!("{placed}; evenly moved nothing else.");
        }
        format!("{placed}. {}", self.verdict_of_balancing())
    }

    fn verdict_of_balancing(&self) -> String {
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        if self.policy.only_watches() {
            return format!("Only observed: nothing was changed.{}", self.prospect());
        }
        if self.summary.domains.iter().any(|d| d.stood_down) {
            return String::from(
                "Balancing did not pay for this program, so evenly stood down; the rest ran as \
                 without it.",
            );
        }
        if self.total(|d| d.weighings) > 0 && self.measured.is_none_or(|m| m.ci95.is_none()) {
            return String::from(
                "Threads with more work were given more of the CPUs that they share. evenly compare \
                 tells what that gained.",
            );
        }
        if self.migrations() == 0 {
            return self.verdict_without_moves(n, m);
        }
        if self.policy.is_reference {
            return String::from("The threads were spread evenly once and stayed where they were.");
        }
        if self.has_few_points() && self.measured.is_none() {
            let moves = counted(self.migrations(), "migration");
            return format!("{} what {moves} {} worth.", self.too_few(), was(self.migrations()));
        }
        let (imbalance, percent) = (self.imbalance(), 100.0 * self.imbalance());
        match (self.measured, self.gain) {
            (Some(Measured { ratio, ci95: Some([low, _]), .. }), _) if low > 1.0 => format!(
                "Balancing paid: the program progressed {ratio:.2} times as fast as in the \
                 stretches in which evenly paused."
            ),
            (Some(Measured { ratio, ci95: Some([low, high]), .. }), _) if high < 1.0 => format!(
                "Balancing has not paid so far: the program progressed {ratio:.2} times as fast as \
                 in the stretches in which evenly paused (95 % interval {low:.2} to {high:.2})."
            ),
            _ if self.policy.places_load => format!(
                "The threads were placed by load and communication, with {}. evenly compare tells \
                 what that gained.",
                counted(self.migrations(), "migration")
            ),
            (Some(Measured { ci95: Some(_), .. }), _) if imbalance <= LEVEL => String::from(
                "The threads were kept level; pausing showed no difference that these stretches \
                 can tell.",
            ),
            (Some(_), _) if imbalance <= LEVEL => String::from(
                "The threads were kept level; a single pause is too little to say what that was \
                 worth.",
            ),
            (None, Some(gain)) if imbalance <= LEVEL => format!(
                "The threads were kept level. A thread left in the slowest place all the time would \
                 have held the program up: against that, not against the kernel, it gained at most \
                 {gain:.2} times. evenly compare tells what it gained."
            ),
            _ if imbalance <= LEVEL => String::from(
                "The threads were level; how much of that is evenly's doing was not measured.",
            ),
            _ if self.balanced_s < SHORT_S => format!(
                "The program computed for only {:.2} s with all its threads, too short to level \
                 them.",
                self.balanced_s
            ),
            // Of those that tell whom they wait for it is known why.
            _ if self.blocked_share() > MUCH_BLOCKED
                || self.policy.gives_weights
                || self.whom().is_some() =>
            {
                format!("The threads {}", self.unequal())
            }
            _ => {
                let why = self.own_masks().map(|why| format!(": {why}")).unwrap_or_default();
                format!("The threads could not be kept level (imbalance {percent:.1} %){why}.")
            }
        }
    }

    fn verdict_without_moves(&self, n: usize, m: usize) -> String {
        let wait = self.most_wait();
        if m == 1 {
            String::from("Nothing to balance: there is only one CPU to use.")
        } else if self.has_few_points() && !self.policy.is_reference {
            match self.own_masks() {
                Some(why) => format!("evenly moved nothing: {why}."),
                None => format!("evenly moved nothing; {} more.", self.too_few()),
            }
        } else if self.policy.places_load {
            match self.own_masks() {
                Some(why) => format!("evenly moved nothing: {why}."),
                None => String::from(
                    "evenly moved nothing: no other place was better by load and communication.",
                ),
            }
        } else if n > 0 && (n < m || n.is_multiple_of(m)) && self.imbalance() <= LEVEL {
            let how = if n <= m {
                format!("each of the {n} threads had a CPU to itself")
            } else {
                format!("{n} threads on {m} CPUs divide evenly")
            };
            // Threads that share a CPU wait for each other.
            let shared = if n > m { 1.0 - m as f64 / n as f64 } else { 0.0 };
            let others = if wait > shared + INTERFERED {
                format!(
                    "they waited for CPUs {:.0} % of the time because of others, all of them alike",
                    100.0 * (wait - shared)
                )
            } else {
                String::from("nothing interfered")
            };
            format!("No benefit possible: {how}, and {others}. evenly moved nothing.")
        } else if self.balanced_s < SHORT_S {
            format!(
                "evenly moved nothing: the program computed for only {:.2} s with all its threads.",
                self.balanced_s
            )
        } else if let Some(why) = self.own_masks() {
            format!("evenly moved nothing: {why}.")
        } else if self.policy.is_reference {
            String::from("The threads were spread evenly already, and stayed where they were.")
        } else if wait < 0.02 {
            String::from("evenly moved nothing: the threads hardly waited for CPUs.")
        } else if self.imbalance() > LEVEL {
            format!("evenly moved nothing: the threads {}", self.unequal())
        } else {
            String::from("evenly moved nothing: no thread fell behind.")
        }
    }

    /// What is said of threads that progressed differently.
    fn unequal(&self) -> String {
        let text = "did not want the CPUs equally: they have unequal work, or wait for something else than a CPU";
        match self.whom() {
            Some(_) if !self.policy.gives_weights => {
                format!("{text}; --policy hpc-auto is for those that wait for each other.")
            }
            _ => format!("{text}."),
        }
    }

    /// Who waited for whom, where that is known.
    fn whom(&self) -> Option<String> {
        self.probe.as_ref().and_then(ProbeReport::for_whom)
    }

    /// The part of its time that the threads waited for a CPU, of the domain where that is most.
    fn most_wait(&self) -> f64 {
        self.summary.domains.iter().map(|d| d.wait_share).fold(0.0, f64::max)
    }

    /// What the observation says about trying to balance.
    fn prospect(&self) -> String {
        if self.has_few_points() {
            format!(" {} more.", self.too_few())
        } else if self.most_wait() < 0.02 {
            String::from(" The threads hardly waited for CPUs, so balancing has nothing to win.")
        } else if self.imbalance() > 0.03 {
            String::from(" Some threads progressed more than others: try without --policy observe.")
        } else {
            String::new()
        }
    }

    /// The report as text: one line that names what was balanced, at most a dozen lines of
    /// figures and notes, and the verdict. Ends with a newline.
    #[must_use]
    pub fn text(&self) -> String {
        let mut t = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut t);
        t
    }

    fn write(&self, t: &mut String) -> std::fmt::Result {
        if !self.started || self.failure.is_some() {
            writeln!(t, "evenly: {:.2} s, policy {}", self.seconds, self.policy.name)?;
            self.write_notes(t)?;
            return writeln!(t, "  {}", self.verdict);
        }
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        write!(t, "evenly: {}", counted(n, "thread"))?;
        if self.all_threads > n {
            write!(t, " (of {})", self.all_threads)?;
        }
        write!(t, " on {} ({})", counted(m, "CPU"), self.cpus)?;
        let domains = self.summary.domains.len();
        if domains > 1 {
            write!(t, " in {domains} domains")?;
        }
        writeln!(t, ", policy {}, {:.2} s", self.policy.name, self.seconds)?;
        if let Some(quota) = self.quota_cpus {
            writeln!(t, "  quota       {quota:.2} CPUs (cgroup)")?;
        }
        self.write_figures(t)?;
        self.write_notes(t)?;
        writeln!(t, "  {}", self.verdict)
    }

    fn write_notes(&self, t: &mut String) -> std::fmt::Result {
        for note in self.summary.notes.iter().take(SHOWN) {
            writeln!(t, "  note        {note}")?;
        }
        if self.summary.notes.len() > SHOWN {
            let more = self.summary.notes.len() - SHOWN;
            writeln!(t, "  note        and {more} more (-v shows all)")?;
        }
        Ok(())
    }

    fn write_figures(&self, t: &mut String) -> std::fmt::Result {
        if let Some(l) = self.summary.progress_level() {
            writeln!(
                t,
                "  progress    min {:.1}  mean {:.1}  max {:.1} % of a CPU per thread, imbalance \
                 {:.1} %",
                l.min * 100.0,
                l.mean * 100.0,
                l.max * 100.0,
                // Rounding can make it a hair less than 0.
                l.imbalance().abs() * 100.0
            )?;
        }
        let part = |f: fn(&DomainSummary) -> f64| {
            100.0 * self.total(f) / self.summary.domains.len().max(1) as f64
        };
        write!(
            t,
            "  waiting     {:.1} % for a CPU, {:.1} % blocked",
            part(|d| d.wait_share),
            part(|d| d.blocked_share)
        )?;
        if let Some(share) = self.spun_share() {
            write!(t, ", {:.1} % spinning", 100.0 * share)?;
        }
        writeln!(t)?;
        if let Some(efficiency) = &self.efficiency {
            writeln!(t, "  efficiency  {}", efficiency.words())?;
        }
        if let Some(probe) = &self.probe {
            writeln!(t, "  probe       {}", probe.words())?;
            if let Some(whom) = self.whom() {
                writeln!(t, "  for whom    {whom}")?;
            }
        }
        if let Some(messages) = &self.messages {
            writeln!(t, "  messages    {}", messages.words())?;
        }
        self.write_domains(t)?;
        let points: u64 = self.total(|d| d.points);
        let per_domain = points as f64 / self.summary.domains.len().max(1) as f64;
        let mean_ms = if per_domain > 0.0 { self.balanced_s * 1e3 / per_domain } else { 0.0 };
        let migrations = self.migrations();
        write!(t, "  migrations  {migrations}")?;
        if self.balanced_s > 0.0 && migrations > 0 {
            write!(t, " ({:.1} per second)", migrations as f64 / self.balanced_s)?;
        }
        let failed: u64 = self.total(|d| d.failed);
        if failed > 0 {
            write!(t, ", {failed} could not be made")?;
        }
        write!(t, "; {}", counted(points, "balancing point"))?;
        if points > 1 {
            write!(t, ", every {mean_ms:.1} ms")?;
        }
        writeln!(t)?;
        self.write_cost(t, points)?;
        if let Some(gain) = self.gain {
            writeln!(
                t,
                "  gain        at most {gain:.2} against threads left where they are (estimate)"
            )?;
        }
        let says_something = |m: &Measured| match m.ci95 {
            Some([low, high]) => low > 0.0 && high <= WIDE * low,
            None => false,
        };
        if let Some(m) = self.measured.filter(says_something) {
            write!(t, "  measured    {:.2} by pausing {}", m.ratio, counted(m.pairs, "time"))?;
            if let Some([low, high]) = m.ci95 {
                write!(t, " (95 % interval {low:.2} to {high:.2})")?;
            }
            writeln!(t)?;
        }
        Ok(())
    }

    fn write_domains(&self, t: &mut String) -> std::fmt::Result {
        let all = &self.summary.domains;
        if all.len() < 2 {
            return Ok(());
        }
        for d in all.iter().take(SHOWN) {
            let (n, id) = (d.threads as usize, d.id.to_string());
            writeln!(
                t,
                "  domain {id:<4} {} on CPUs {}, {}",
                counted(n, "thread"),
                d.cpus,
                counted(d.migrations, "migration")
            )?;
        }
        if all.len() > SHOWN {
            writeln!(t, "  domains     and {} more (--json has all)", all.len() - SHOWN)?;
        }
        Ok(())
    }

    fn write_cost(&self, t: &mut String, points: u64) -> std::fmt::Result {
        let cost = Nanos::from_secs_f64(self.total(|d| d.cpu_s) / (points.max(1) as f64));
        let each = |f: fn(&DomainSummary) -> Nanos| {
            Nanos(self.total(|d| f(d).0) / points.max(1)).to_string()
        };
        // The one that everybody has goes without saying.
        if let Some(source) = self.source.as_deref().filter(|s| *s != "schedstat") {
            writeln!(t, "  source      thread times by {source}")?;
        }
        let (used, part) = (self.overhead_s, self.overhead_s / self.seconds.max(1e-9));
        let advance = ADVANCE.as_secs_f64();
        write!(t, "  overhead    {:.2} % of one CPU ({used:.3} s", 100.0 * part)?;
        // In a short run that is much, and no more than was said that it takes.
        if part > self.budget && used <= self.budget * self.seconds + advance {
            return writeln!(t, "; {advance:.1} s in advance are allowed); a point {cost}");
        }
        writeln!(
            t,
            "); a point {cost} (elapsed: read {}, decide {}, apply {})",
            each(|d| d.cost.read),
            each(|d| d.cost.decide),
            each(|d| d.cost.apply),
        )
    }
}

fn was(n: u64) -> &'static str {
    if n == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests;

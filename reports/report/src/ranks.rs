//! What the probe has reported of threads, and what MPI ranks have counted.

use evenly_model::{Pid, Tid, counted};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What the probe has reported of the program's threads, each as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Processes that have had the probe.
    pub processes: u32,
    /// Times that a thread was not counted because there were too many.
    pub left_out: u64,
    /// Threads that have waited, or taken part in a parallel region.
    pub threads: Vec<ProbeThread>,
    /// Parallel regions of which the barriers were replaced.
    pub replaced: u64,
}

/// One thread, by its own reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeThread {
    /// The process of the rank.
    pub pid: Pid,
    /// The thread that calls MPI.
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
    /// For which thread or rank, where that is known: in calls of MPI that name it, and at barriers.
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
    /// How many messages ranks have sent each other.
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
    /// What each sent to each. Where several programs ran they are added up.
    pub edges: Vec<EdgeReport>,
}

/// One rank: its thread that has initialised MPI, from then on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankReport {
    /// The process of the rank.
    pub pid: Pid,
    /// The thread that calls MPI.
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
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// How many messages there were.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl ProbeReport {
    /// Barriers and ends of regions that the thread which reached most of them has reached.
    pub(crate) fn phases(&self) -> u32 {
        self.threads.iter().map(|t| t.phases).max().unwrap_or(0)
    }

    /// Waits of all kinds of the thread that began most of them.
    pub(crate) fn waits(&self) -> u32 {
        self.threads.iter().map(|t| t.waits).max().unwrap_or(0)
    }
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
    pub(crate) fn words(&self) -> String {
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
    pub(crate) fn words(&self) -> String {
        let of = |f: fn(&ProbeThread) -> f64| self.counted().map(f);
        let Some(least) = of(|t| t.waited_s).min_by(f64::total_cmp) else {
            return String::from(match self.processes {
                0 => "it was loaded into no process",
                _ => "it saw no thread wait for another",
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
            "{}{whose} waited {all:.2} s in all for others ({least:.2} to {most:.2} s each)",
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

//! `evenly run --probe on` with a policy that places threads by load: what the ranks of an MPI program
//! compute and send, counted by the MPI probe while they run.
//!
//! Invariant (promise P8): where that cannot be one line says why and what would mend it, and the program
//! runs without.

use crate::mpi_probe::built_probe;
use crate::probe::sanitizers;
use crate::tell;
use evenly_engine::{RankActivity, Tally};
use evenly_linux::clock::since_boot;
use evenly_linux::machine::RankCounts;
use evenly_model::{Nanos, ThreadId, Tid};
use evenly_probe::load::{Unseen, preload};
use evenly_probe::messages::{self, Mapping, Rank, Reader};
use evenly_probe::mpi::Used;
use evenly_report::{EdgeReport, MessagesReport, RankReport};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

/// So many ranks are listed in a report; programs can be started for days.
const MOST: usize = 4096;

/// The probe for a program that is to be started.
pub(crate) struct Counting {
    // The programs look for it in this process.
    mapping: Mapping,
    /// Whether the policy uses these counts, or messages were given by the user.
    decides: bool,
}

/// What a program has to be started with.
type Environment = Vec<(OsString, OsString)>;

impl Counting {
    /// The probe for this command, and variables with which it has to be started. None where it cannot be
    /// loaded, which is reported, and noted for the report.
    pub(crate) fn prepare(
        command: &[OsString],
        mpicc: Option<&OsStr>,
        decides: bool,
        quiet: bool,
        notes: &mut Vec<String>,
    ) -> Option<(Self, Environment)> {
        // Why nothing is loaded into it is said of the other probe.
        if !Unseen::of(command).is_empty() {
            return None;
        }
        match Self::new(command, mpicc, decides, quiet) {
            Ok(found) => Some(found),
            Err(e) => {
                let note = format!(
                    "--probe: messages are not counted: {}; those of --profile or --edges are used instead",
                    evenly_errors::said(&e)
                );
                if !quiet {
                    tell(&format!("evenly: {note}"));
                }
                notes.push(note);
                None
            }
        }
    }

    fn new(
        command: &[OsString],
        mpicc: Option<&OsStr>,
        decides: bool,
        quiet: bool,
    ) -> anyhow::Result<(Self, Environment)> {
        let used = Used::of(command)?;
        // One that is for another MPI counts nothing.
        anyhow::ensure!(
            used.flavour().is_some(),
            "'{}' is neither linked against Open MPI or MPICH nor started by their launchers",
            command.first().map(|c| c.to_string_lossy()).unwrap_or_default()
        );
        let (built, _) = built_probe(&used, mpicc, quiet)?;
        let before = std::env::var_os("LD_PRELOAD");
        let library = preload(&built.file, before.as_deref())?;
        let mapping = Mapping::new()?;
        let env = vec![("LD_PRELOAD".into(), library), mapping.variable(), sanitizers()];
        Ok((Self { mapping, decides }, env))
    }

    /// For the balancing cycle, which asks again and again.
    pub(crate) fn counts(&self) -> Result<RankCounts, messages::MessagesError> {
        Ok(counts(self.mapping.reader()?))
    }

    /// What has been counted.
    pub(crate) fn report(&self) -> MessagesReport {
        let mut ranks = Vec::new();
        // Where the file cannot be read there is nothing to say.
        let refused = self.mapping.reader().and_then(|mut r| r.read(&|_| true, &mut ranks));
        report(&ranks, refused.unwrap_or(0), self.decides, since_boot())
    }
}

/// What ranks have counted, in the words of the balancing cycle.
fn counts(mut reader: Reader) -> RankCounts {
    let per_second = u128::from(evenly_linux::clock::ticks_per_second());
    let mut seen: Vec<Rank> = Vec::new();
    Box::new(move |threads: &[(ThreadId, Nanos)], out| {
        let place: HashMap<Tid, usize> =
            threads.iter().enumerate().map(|(i, (id, _))| (id.tid, i)).collect();
        let of = |rank: &Rank| {
            let i = *place.get(&rank.tid)?;
            // Rounded down, as the kernel does.
            let started = u128::from(threads[i].0.start) * 1_000_000_000 / per_second;
            rank.is_of(Nanos(u64::try_from(started).ok()?)).then_some(i)
        };
        // A file that cannot be read says nothing.
        if reader.read(&|rank| of(rank).is_some(), &mut seen).is_err() {
            return false;
        }
        out.resize(threads.len(), None);
        for rank in &seen {
            if let Some(i) = of(rank) {
                out[i] = Some(activity_of(rank, threads[i].1));
            }
        }
        true
    })
}

fn activity_of(rank: &Rank, cpu: Nanos) -> RankActivity {
    let tally = |t: &messages::Tally| Tally {
        with: u64::from(t.with),
        messages: t.messages,
        bytes: t.bytes,
    };
    RankActivity {
        rank: u64::from(rank.rank),
        ranks: u64::from(rank.ranks),
        computed: rank.computed(Some(cpu)),
        sent: rank.sent.iter().map(tally).collect(),
        fetched: rank.fetched.iter().map(tally).collect(),
    }
}

fn report(ranks: &[Rank], refused: u32, decided: bool, now: Nanos) -> MessagesReport {
    let mut edges: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    let mut add = |from: u32, to: u32, t: &messages::Tally| {
        if from != to {
            let (messages, bytes) = edges.entry((from, to)).or_default();
            *messages = messages.saturating_add(t.messages);
            *bytes = bytes.saturating_add(t.bytes);
        }
    };
    for r in ranks {
        r.sent.iter().for_each(|t| add(r.rank, t.with, t));
        r.fetched.iter().for_each(|t| add(t.with, r.rank, t));
    }
    let began = ranks.iter().map(|r| r.registered).min().unwrap_or(now);
    let ended = ranks.iter().map(|r| r.ended.unwrap_or(now)).max().unwrap_or(now);
    let sum = |of: fn(&Rank) -> u64| ranks.iter().fold(0, |all: u64, r| all.saturating_add(of(r)));
    let of_edges = |of: fn(&(u64, u64)) -> u64| {
        edges.values().fold(0, |all: u64, edge| all.saturating_add(of(edge)))
    };
    let rank = |r: &Rank| RankReport {
        pid: r.pid,
        tid: r.tid,
        rank: r.rank,
        computed_s: (r.computed(None) - r.began).as_secs_f64(),
        mpi_s: r.mpi.as_secs_f64(),
    };
    let more = u32::try_from(ranks.len().saturating_sub(MOST)).unwrap_or(u32::MAX);
    MessagesReport {
        decided,
        seconds: (ended - began).as_secs_f64(),
        messages: of_edges(|(messages, _)| *messages),
        bytes: of_edges(|(_, bytes)| *bytes),
        outside: sum(|r| r.outside),
        uncounted: sum(|r| r.uncounted),
        left_out: refused.saturating_add(more),
        ranks: ranks.iter().take(MOST).map(rank).collect(),
        edges: (edges.iter())
            .map(|(&(from, to), &(messages, bytes))| EdgeReport { from, to, messages, bytes })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Pid;

    fn rank(rank: u32, cpu: u64, mpi: u64, open: Option<u64>) -> Rank {
        let tally = |with, messages, bytes| messages::Tally { with, messages, bytes };
        Rank {
            pid: Pid(10 + rank.cast_signed()),
            tid: Tid(10 + rank.cast_signed()),
            rank,
            ranks: 2,
            registered: Nanos(1_000_000_000 * u64::from(rank + 1)),
            ended: (rank == 0).then_some(Nanos(3_000_000_000)),
            began: Nanos(500_000_000),
            cpu: Nanos(cpu),
            mpi: Nanos(mpi),
            open: open.map(Nanos),
            outside: 1,
            uncounted: 2,
            sent: vec![tally(0, 5, 50), tally(1, 7, 70)],
            fetched: vec![tally(1 - rank, 2, 8)],
        }
    }

    #[test]
    fn what_is_counted_is_reported() {
        let ranks = [rank(0, 2_500_000_000, 500_000_000, None), rank(1, 0, 0, Some(7))];
        let r = report(&ranks, 3, true, Nanos(5_000_000_000));
        assert_eq!((r.seconds, r.messages, r.bytes), (4.0, 16, 136));
        assert_eq!((r.outside, r.uncounted, r.left_out), (2, 4, 3));
        assert_eq!((r.ranks[0].computed_s, r.ranks[0].mpi_s), (1.5, 0.5));
        let edge = |from, to, messages, bytes| EdgeReport { from, to, messages, bytes };
        // What is sent to oneself is no message; what 1 fetches from 0 goes from 0 to 1.
        assert_eq!(r.edges, [edge(0, 1, 9, 78), edge(1, 0, 7, 58)]);
        let none = report(&[], 0, true, Nanos(5));
        assert_eq!((none.seconds, none.messages), (0.0, 0));
    }

    #[test]
    fn the_cycle_receives_what_was_computed() {
        let busy = activity_of(&rank(1, 900, 300, None), Nanos(2_000));
        assert_eq!((busy.rank, busy.ranks, busy.computed), (1, 2, Nanos(1_700)));
        assert_eq!(busy.sent.len(), 2);
        // In a call that lasts: no CPU time since then is computing.
        assert_eq!(activity_of(&rank(1, 900, 300, Some(50)), Nanos(2_000)).computed, Nanos(650));
    }
}

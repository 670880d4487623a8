//! Profiles that `evenly map --profile` takes of MPI programs: a file of each rank, written by the
//! library in `probe/` as `evenly.profile/1` (`docs/schemas/evenly.profile-1.json`), and the tasks that
//! they are together ([`join`]).
//!
//! A rank says what it sent, and what it fetched from others (one-sided reads): each message is counted
//! by one rank, and an edge leads from where the data was to where it went.

use crate::edges::{Edges, MOST_TASKS};
use crate::error::{InputError, quoted};
use crate::json::{Mpi, SCHEMA_TASKS, wrong};
use crate::lines::Bounded;
use evenly_model::{Edge, Task};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufReader, Read};

/// Name and version of the format.
pub const SCHEMA_PROFILE: &str = "evenly.profile/1";

/// How a profiled rank came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankEnded {
    /// The rank called `MPI_Finalize`.
    Finalize,
    /// The rank called `MPI_Abort`.
    Abort,
    /// It exited without either.
    Exit,
}

/// Messages between this rank and another: its number, messages, bytes of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Peer(u64, u64, u64);

/// What one rank computed and sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankProfile {
    schema: String,
    /// Its number in `MPI_COMM_WORLD`.
    pub rank: u64,
    /// How many ranks there are.
    pub ranks: u64,
    /// The host on which the rank ran.
    pub host: String,
    /// The process that it was there.
    pub pid: i32,
    /// The CPU on which it was at its end; -1 where the system did not say.
    pub cpu: i32,
    /// How it came to its end.
    pub ended: RankEnded,
    /// From `MPI_Init` to the end, in ns.
    pub wall_ns: u64,
    /// CPU time of the process in that time, in ns; None in files of before it was written.
    pub cpu_ns: Option<u64>,
    /// CPU time outside MPI in that time, in ns.
    pub compute_ns: u64,
    /// CPU time in MPI, in ns.
    pub mpi_ns: u64,
    /// Messages to ranks that were started by the program itself, which are not in `sent`.
    pub outside_messages: u64,
    /// Calls of collectives whose messages are not in `sent`.
    pub uncounted_collectives: u64,
    sent: Vec<Peer>,
    fetched: Vec<Peer>,
}

/// Reads the file of a rank.
///
/// # Errors
/// The first thing that is wrong.
pub fn read_profile(input: impl Read, file: &str) -> Result<RankProfile, InputError> {
    let reader = BufReader::with_capacity(1 << 16, Bounded::new(input));
    let found: RankProfile =
        serde_json::from_reader(reader).map_err(|e| wrong(file, SCHEMA_PROFILE, &e))?;
    let refused = |what: String| Err(InputError::new(file, what));
    if found.schema != SCHEMA_PROFILE {
        return refused(format!(
            "its schema is {}; {SCHEMA_PROFILE} is needed",
            quoted(&found.schema)
        ));
    }
    if found.ranks == 0 || found.ranks > MOST_TASKS as u64 {
        return refused(format!("{} ranks were found; 1 to {MOST_TASKS} are needed", found.ranks));
    }
    let mut named = found.sent.iter().chain(&found.fetched).map(|p| p.0).chain([found.rank]);
    if let Some(rank) = named.find(|r| *r >= found.ranks) {
        return refused(format!("there is no rank {rank}: there are {}", found.ranks));
    }
    Ok(found)
}

impl RankProfile {
    /// All of its CPU time, which MPI may have.
    fn cpu_ns(&self) -> u64 {
        self.cpu_ns.unwrap_or_else(|| self.compute_ns.saturating_add(self.mpi_ns))
    }

    /// Whether it is known what it computed: to be called at all it has to compute something.
    fn is_known(&self) -> bool {
        self.compute_ns > 0 || self.cpu_ns() == 0
    }

    /// Its load: what it computed, or all of its CPU time where that is not known.
    fn load_s(&self) -> f64 {
        (if self.is_known() { self.compute_ns } else { self.cpu_ns() }) as f64 / 1e9
    }
}

/// What all ranks of a program have written.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// A task for each rank; its load is CPU time outside MPI, or all where that is not known.
    pub tasks: Vec<Task>,
    /// What each has sent to each.
    pub edges: Edges,
    /// What was left out, and what looks wrong.
    pub notes: Vec<String>,
}

/// Why profiles of ranks are not that of a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No rank has written a profile.
    #[error("no rank wrote a profile")]
    None,
    /// Some are missing: how many, the first of them, and of how many.
    #[error(
        "{missing} of {ranks} ranks wrote no profile (the first is rank {first}): a rank writes it \
         when it calls MPI_Finalize or MPI_Abort, or exits"
    )]
    Missing {
        /// How many are missing.
        missing: u64,
        /// The first of them.
        first: u64,
        /// How many ranks there were.
        ranks: u64,
    },
    /// They are of several programs.
    #[error(
        "the profiles are of programs with {0} and with {1} ranks: the command must start one MPI \
         program"
    )]
    Several(u64, u64),
    /// There are too many edges.
    #[error("{0}")]
    Edges(String),
}

/// Puts the profiles of all ranks together.
///
/// # Errors
/// Where they are not one of each rank of one program.
pub fn join(mut ranks: Vec<RankProfile>) -> Result<Profile, JoinError> {
    ranks.sort_by_key(|p| p.rank);
    ranks.dedup_by_key(|p| p.rank);
    let Some(n) = ranks.first().map(|p| p.ranks) else { return Err(JoinError::None) };
    if let Some(other) = ranks.iter().find(|p| p.ranks != n) {
        return Err(JoinError::Several(n, other.ranks));
    }
    if (ranks.len() as u64) < n {
        let first = (0..).zip(&ranks).find(|(k, p)| *k != p.rank).map(|(k, _)| k);
        let first = first.unwrap_or(ranks.len() as u64);
        return Err(JoinError::Missing { missing: n - ranks.len() as u64, first, ranks: n });
    }
    let mut edges = Edges::default();
    for p in &ranks {
        let sent = p.sent.iter().map(|s| (p.rank, s.0, s));
        let fetched = p.fetched.iter().map(|f| (f.0, p.rank, f));
        for (from, to, Peer(_, messages, bytes)) in sent.chain(fetched) {
            let edge = Edge { from, to, messages: *messages as f64, bytes: *bytes as f64 };
            edges.add(edge, &|_| true).map_err(JoinError::Edges)?;
        }
    }
    let task = |p: &RankProfile| Task {
        id: p.rank,
        load_s: p.load_s(),
        size_bytes: 0.0,
        core: None,
        movable: true,
    };
    Ok(Profile { tasks: ranks.iter().map(task).collect(), edges, notes: notes(&ranks) })
}

fn notes(ranks: &[RankProfile]) -> Vec<String> {
    let mut notes = Vec::new();
    let sum = |of: fn(&RankProfile) -> u64| ranks.iter().map(of).fold(0, u64::saturating_add);
    let unknown = ranks.iter().filter(|p| !p.is_known()).count();
    if unknown > 0 {
        let ranks = if unknown == 1 { "rank" } else { "ranks" };
        notes.push(format!(
            "load of {unknown} {ranks} is not known: time in MPI was found to be all of the CPU time; \
             all of it is taken for load, waiting too"
        ));
    }
    let outside = sum(|p| p.outside_messages);
    if outside > 0 {
        notes.push(format!(
            "{outside} messages to or from ranks that the program started itself are left out"
        ));
    }
    let uncounted = sum(|p| p.uncounted_collectives);
    if uncounted > 0 {
        notes.push(format!(
            "{uncounted} calls of collectives between groups (intercommunicators) are not counted"
        ));
    }
    let early = ranks.iter().filter(|p| p.ended != RankEnded::Finalize).count();
    if early > 0 {
        notes.push(format!("{early} of {} ranks ended without MPI_Finalize", ranks.len()));
    }
    notes
}

impl Profile {
    /// The tasks as `evenly.tasks/1`: what [`crate::read_tasks`] reads; `mpi` is the one that they are ranks
    /// of, where that is known. Ranks that exchanged messages in several ways are one edge.
    #[must_use]
    pub fn json(&self, mpi: Option<Mpi>) -> Value {
        let task = |t: &Task| json!({ "id": t.id, "load_s": t.load_s });
        let mut list = self.edges.list.clone();
        list.sort_by_key(|e| (e.from, e.to));
        list.dedup_by(|next, kept| {
            let same = (next.from, next.to) == (kept.from, kept.to);
            if same {
                kept.messages += next.messages;
                kept.bytes += next.bytes;
            }
            same
        });
        let edge = |e: &Edge| json!({ "from": e.from, "to": e.to, "messages": e.messages, "bytes": e.bytes });
        let mut value = json!({
            "schema": SCHEMA_TASKS,
            "received_in_loads": false,
            "processes": true,
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "edges": list.iter().map(edge).collect::<Vec<_>>(),
        });
        if let Some(mpi) = mpi {
            value["mpi"] = json!(mpi);
        }
        value
    }

    /// What was found, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        let loads = || self.tasks.iter().map(|t| t.load_s);
        let (least, most) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
        // Not `sum`, which is -0 for nothing.
        let sum = |of: fn(&Edge) -> f64| self.edges.list.iter().map(of).fold(0.0, |a, b| a + b);
        let (messages, bytes) = (sum(|e| e.messages), sum(|e| e.bytes));
        let n = self.tasks.len();
        let ranks = if n == 1 { "rank" } else { "ranks" };
        format!(
            "{n} {ranks} computed {least:.3} to {most:.3} s and sent each other {messages:.0} messages \
             with {bytes:.0} bytes"
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use crate::json::{Nature, read_tasks};

    fn rank(rank: u64, ranks: u64, sent: &str, fetched: &str) -> String {
        format!(
            r#"{{"schema":"evenly.profile/1","rank":{rank},"ranks":{ranks},"host":"h","pid":7,"cpu":3,
            "ended":"finalize","wall_ns":5,"compute_ns":{},"mpi_ns":1,"outside_messages":0,
            "uncounted_collectives":0,"sent":[{sent}],"fetched":[{fetched}]}}"#,
            (rank + 1) * 500_000_000
        )
    }

    fn read(text: &str) -> RankProfile {
        read_profile(text.as_bytes(), "p").unwrap()
    }

    #[test]
    fn ranks_become_tasks() {
        let first = rank(0, 2, "[1,3,300],[0,9,9]", "[1,1,8]");
        let value: Value = serde_json::from_str(&first).unwrap();
        let schema = include_str!("../../../docs/schemas/evenly.profile-1.json");
        let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        assert!(validator.is_valid(&value), "{:?}", validator.iter_errors(&value).next());
        let second = read(&rank(1, 2, "[0,2,20]", ""));
        let joined = join(vec![second, read(&first)]).unwrap();
        assert_eq!(joined.edges.to_itself, 1);
        assert_eq!(
            joined.summary(),
            "2 ranks computed 0.500 to 1.000 s and sent each other 6 messages with 328 bytes"
        );
        let text = joined.json(Some(Mpi::Mpich)).to_string();
        let (tasks, edges, nature) = read_tasks(text.as_bytes(), "t").unwrap();
        let ranks = Nature {
            received_in_loads: false,
            loads_are_said: true,
            processes: true,
            mpi: Some(Mpi::Mpich),
        };
        assert_eq!(nature, ranks);
        let unknown = joined.json(None).to_string();
        let (_, _, nature) = read_tasks(unknown.as_bytes(), "t").unwrap();
        assert_eq!(nature, Nature { mpi: None, ..ranks });
        assert_eq!(tasks.iter().map(|t| t.load_s).collect::<Vec<_>>(), [0.5, 1.0]);
        let edge = |from, to, messages, bytes| Edge { from, to, messages, bytes };
        // What rank 0 fetched came from rank 1.
        assert_eq!(edges.list, [edge(0, 1, 3.0, 300.0), edge(1, 0, 3.0, 28.0)]);
        assert!(joined.notes.is_empty());
        let silent = join(vec![read(&rank(0, 1, "", ""))]).unwrap();
        let said = "1 rank computed 0.500 to 0.500 s and sent each other 0 messages with 0 bytes";
        assert_eq!(silent.summary(), said);
    }

    #[test]
    fn what_is_odd_is_said() {
        let mut odd = read(&rank(0, 1, "", ""));
        (odd.outside_messages, odd.uncounted_collectives, odd.ended) = (2, 3, RankEnded::Abort);
        let notes = join(vec![odd]).unwrap().notes;
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("2 messages") && notes[1].starts_with("3 calls"), "{notes:?}");
        assert_eq!(notes[2], "1 of 1 ranks ended without MPI_Finalize");
    }

    /// A load of 0 would put all such ranks on one core.
    #[test]
    fn a_load_that_is_unknown_is_not_zero() {
        let of = |n: u64| rank(n, 3, "", "");
        let none = |n: u64| {
            of(n).replace(&format!("\"compute_ns\":{}", (n + 1) * 500_000_000), "\"compute_ns\":0")
        };
        let with_cpu = none(1).replace("\"wall_ns\":5", "\"wall_ns\":5,\"cpu_ns\":700000000");
        let before = none(2).replace("\"mpi_ns\":1", "\"mpi_ns\":600000000");
        let joined = join([of(0), with_cpu, before].map(|t| read(&t)).into()).unwrap();
        assert_eq!(joined.tasks.iter().map(|t| t.load_s).collect::<Vec<_>>(), [0.5, 0.7, 0.6]);
        assert_eq!(joined.notes.len(), 1, "{:?}", joined.notes);
        assert!(joined.notes[0].starts_with("load of 2 ranks is not known: "));
        // One that had no CPU time at all has computed nothing.
        let idle =
            none(0).replace("\"mpi_ns\":1", "\"mpi_ns\":0").replace("\"ranks\":3", "\"ranks\":1");
        let joined = join(vec![read(&idle)]).unwrap();
        assert_eq!((joined.tasks[0].load_s, joined.notes.len()), (0.0, 0));
    }

    #[test]
    fn what_is_no_program() {
        assert_eq!(join(Vec::new()), Err(JoinError::None));
        let of = |r, n| read(&rank(r, n, "", ""));
        assert_eq!(join(vec![of(0, 2), of(1, 3)]), Err(JoinError::Several(2, 3)));
        let missing = |missing, first, ranks| JoinError::Missing { missing, first, ranks };
        assert_eq!(join(vec![of(0, 4), of(3, 4)]), Err(missing(2, 1, 4)));
        assert_eq!(join(vec![of(0, 2)]), Err(missing(1, 1, 2)));
    }

    #[test]
    fn what_is_no_profile() {
        for (text, said) in [
            (String::new(), "p: it is empty; a JSON object with schema evenly.profile/1 is needed"),
            (rank(2, 2, "", ""), "p: there is no rank 2: there are 2"),
            (rank(0, 2, "[2,1,1]", ""), "p: there is no rank 2: there are 2"),
            (rank(0, 0, "", ""), "p: 0 ranks were found; 1 to"),
            (
                rank(0, 2, "", "").replace("profile/1", "profile/2"),
                "p: its schema is 'evenly.profile/2'",
            ),
            (rank(0, 2, "[1,-1,1]", ""), "p, line 3: invalid value"),
        ] {
            let error = read_profile(text.as_bytes(), "p").unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}

//! A mapping that is carried out on a running program: which thread is which of its tasks, and what
//! each may use then.
//!
//! A mapping (of `evenly map`, or of any other tool) gives CPUs to tasks by their numbers. The tasks of a
//! running program are its ranks, numbered by the launcher, or its threads, numbered by when they
//! were created. Only threads that compute count: those that the [`Tracker`](evenly_engine::Tracker) selects.
//!
//! Invariants:
//! - A thread is given CPUs only that it might use before (P1); where the mapping has none of these,
//!   it keeps what it has.
//! - A thread keeps its number for as long as it lives; no two threads have the same one, no two
//!   processes the same rank unless the launcher says so.
//! - What is kept grows with the mapping, not with the number of threads that come and go.

use evenly_engine::Placed;
use evenly_model::{CpuSet, Pid, ThreadId, counted};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

/// What the tasks of a mapping are in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapBy {
    /// Ranks where a launcher has numbered the processes, else threads.
    #[default]
    Auto,
    /// Threads that compute, in the order in which they were created, from 0.
    Threads,
    /// Processes by the rank that their launcher gave them; where it gave none, in the order in
    /// which they were created, from 0.
    Ranks,
}

/// A thread that is to be balanced from now on.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    /// The id of the thread, with its start time.
    pub id: ThreadId,
    /// The process that the thread belongs to.
    pub pid: Pid,
    /// The rank of its process, as the launcher says.
    pub rank: Option<u64>,
    /// The CPUs that it might use when it was admitted.
    pub may_use: &'a CpuSet,
}

/// Which thread is which task.
#[derive(Debug, Clone)]
pub struct Numbering {
    by: MapBy,
    /// Numbers below this are remembered.
    kept: u64,
    /// Numbers that were given here: to threads, or to processes.
    numbers: HashMap<ThreadId, u64>,
    processes: HashMap<Pid, u64>,
    /// A launcher has numbered processes of the program.
    launched: bool,
    next: u64,
    /// Numbers below `kept` that a task of the program had.
    seen: BTreeSet<u64>,
}

/// Most numbers of tasks that a note names.
const MOST_NAMED: usize = 5;

impl Numbering {
    /// With room for so many numbers: a thread that comes back has its own still if it is one of
    /// these.
    #[must_use]
    pub fn new(by: MapBy, kept: u64) -> Self {
        Self {
            by,
            kept,
            numbers: HashMap::new(),
            processes: HashMap::new(),
            launched: false,
            next: 0,
            seen: BTreeSet::new(),
        }
    }

    /// What the tasks are, in a word.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self.by {
            MapBy::Ranks => "rank",
            // It is never auto once there was one.
            MapBy::Threads | MapBy::Auto => "thread",
        }
    }

    /// How many of the tasks of a record, by their numbers, the program had, and which it had not.
    #[must_use]
    pub fn note(&self, recorded: impl ExactSizeIterator<Item = u64>) -> String {
        let all = recorded.len();
        let mut missing: Vec<u64> = recorded.filter(|n| !self.seen.contains(n)).collect();
        missing.sort_unstable();
        let there = all - missing.len();
        let mut note = format!(
            "of the {} that are recorded to communicate {there} were there",
            counted(all, self.what())
        );
        if !missing.is_empty() {
            let named: Vec<String> =
                missing.iter().take(MOST_NAMED).map(ToString::to_string).collect();
            let more = missing.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            note += &format!(
                "; not there: {}{more} ({}s are numbered from 0, --map-by)",
                named.join(", "),
                self.what()
            );
        }
        note
    }

    /// The numbers of threads that were found together. None for those of a process without a rank,
    /// beside others that have one.
    #[must_use]
    pub fn numbers(&mut self, found: &[Newcomer<'_>]) -> Vec<Option<u64>> {
        let ranked = found.iter().any(|n| n.rank.is_some());
        if self.by == MapBy::Auto && !found.is_empty() {
            self.by = if ranked { MapBy::Ranks } else { MapBy::Threads };
        }
        self.launched |= ranked;
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by_key(|&i| (found[i].id.start, found[i].id.tid.0));
        let mut numbers = vec![None; found.len()];
        for i in order {
            let newcomer = &found[i];
            numbers[i] = match self.by {
                MapBy::Ranks if self.launched => newcomer.rank,
                MapBy::Ranks => Some(self.process(newcomer.pid)),
                MapBy::Auto | MapBy::Threads => Some(self.thread(newcomer.id)),
            };
            self.seen.extend(numbers[i].filter(|number| *number < self.kept));
        }
        numbers
    }

    fn process(&mut self, pid: Pid) -> u64 {
        if let Some(&number) = self.processes.get(&pid) {
            return number;
        }
        let number = self.take_next();
        if number < self.kept {
            self.processes.insert(pid, number);
        }
        number
    }

    fn thread(&mut self, id: ThreadId) -> u64 {
        if let Some(&number) = self.numbers.get(&id) {
            return number;
        }
        let number = self.take_next();
        if number < self.kept {
            self.numbers.insert(id, number);
        }
        number
    }

    fn take_next(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

/// A mapping at work.
#[derive(Debug, Clone)]
pub struct Mapping {
    places: BTreeMap<u64, CpuSet>,
    /// Tasks that were there, and those of them that could not be put where they should be.
    seen: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    /// Tasks of the program that the mapping does not name: how many times one came, and the least.
    strangers: u64,
    first_stranger: Option<u64>,
    /// Threads without a rank, where ranks are mapped.
    without_rank: u64,
}

/// Most numbers that are listed one by one.
const MOST_LISTED: usize = 8;

impl Mapping {
    /// From the CPUs of each task.
    #[must_use]
    pub fn new(places: BTreeMap<u64, CpuSet>) -> Self {
        Self {
            places,
            seen: BTreeSet::new(),
            refused: BTreeSet::new(),
            strangers: 0,
            first_stranger: None,
            without_rank: 0,
        }
    }

    /// How many numbers a [`Numbering`] for it has to remember.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        self.places.keys().next_back().map_or(0, |last| last.saturating_add(1))
    }

    /// What each of these threads may use from now on, which have these numbers: what the mapping
    /// says of what it might use before. None where it says nothing, or nothing that can be.
    #[must_use]
    pub fn narrow(
        &mut self,
        found: &[Newcomer<'_>],
        numbers: &[Option<u64>],
    ) -> Vec<Option<CpuSet>> {
        self.without_rank += numbers.iter().filter(|n| n.is_none()).count() as u64;
        let pairs = found.iter().zip(numbers);
        pairs.map(|(newcomer, number)| self.place((*number)?, newcomer.may_use)).collect()
    }

    fn place(&mut self, number: u64, may_use: &CpuSet) -> Option<CpuSet> {
        let Some(wanted) = self.places.get(&number) else {
            self.strangers += 1;
            self.first_stranger = Some(self.first_stranger.map_or(number, |f| f.min(number)));
            return None;
        };
        self.seen.insert(number);
        let cpus = wanted.and(may_use);
        if cpus.is_empty() {
            self.refused.insert(number);
            return None;
        }
        // It may have been bound elsewhere when it was first seen.
        self.refused.remove(&number);
        Some(cpus)
    }

    /// How many of its tasks were put where it says.
    #[must_use]
    pub fn placed(&self, numbering: &Numbering) -> Placed {
        let placed = self.seen.difference(&self.refused).count();
        Placed { what: numbering.what(), named: self.places.len(), placed }
    }

    /// What there is to say about it at the end: what was put where it should be, what the mapping
    /// names and the program did not have, and the reverse.
    #[must_use]
    pub fn notes(&self, numbering: &Numbering) -> Vec<String> {
        let Placed { what, named, placed } = self.placed(numbering);
        let all = counted(named, what);
        let mut notes = vec![format!("of the {all} in the mapping {placed} had their place")];
        if !self.refused.is_empty() {
            notes.push(format!(
                "{what} {} may use none of the CPUs in the mapping, and was not moved",
                listed(self.refused.iter())
            ));
        }
        let absent: Vec<&u64> = self.places.keys().filter(|n| !self.seen.contains(n)).collect();
        if !absent.is_empty() {
            notes.push(format!(
                "the mapping names {what} {}, which the program did not have (threads that do not \
                 compute do not count)",
                listed(absent.iter())
            ));
        }
        if let Some(first) = self.first_stranger {
            notes.push(format!(
                "the mapping does not name {what} {first}{}; what it does not name was balanced as \
                 without it",
                if self.strangers > 1 {
                    format!(" and {} later or further threads", self.strangers - 1)
                } else {
                    String::new()
                }
            ));
        }
        if self.without_rank > 0 {
            notes.push(format!(
                "{} in processes without a rank, beside others with one: balanced as without the \
                 mapping",
                counted(self.without_rank, "thread")
            ));
        }
        notes
    }
}

fn listed<T: Display>(all: impl ExactSizeIterator<Item = T>) -> String {
    let more = all.len().saturating_sub(MOST_LISTED);
    let shown: Vec<String> = all.take(MOST_LISTED).map(|n| n.to_string()).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::{CpuId, Tid};

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// A mapping with its numbering.
    struct Mapped(Mapping, Numbering);

    impl Mapped {
        fn notes(&self) -> Vec<String> {
            self.0.notes(&self.1)
        }
    }

    fn mapping(places: &[(u64, &str)], by: MapBy) -> Mapped {
        let mapping = Mapping::new(places.iter().map(|(n, list)| (*n, cpus(list))).collect());
        let numbering = Numbering::new(by, mapping.numbers());
        Mapped(mapping, numbering)
    }

    /// Threads (process, thread, start, rank) that may all use CPUs 0 to 3.
    fn narrow(m: &mut Mapped, threads: &[(i32, i32, u64, Option<u64>)]) -> Vec<String> {
        let all = cpus("0-3");
        let found: Vec<Newcomer<'_>> = threads
            .iter()
            .map(|&(pid, tid, start, rank)| Newcomer {
                id: ThreadId { tid: Tid(tid), start },
                pid: Pid(pid),
                rank,
                may_use: &all,
            })
            .collect();
        let narrowed = m.0.narrow(&found, &m.1.numbers(&found));
        narrowed.iter().map(|n| n.as_ref().unwrap_or(&all).to_string()).collect()
    }

    #[test]
    fn threads_are_numbered_by_when_they_were_created_and_keep_their_numbers() {
        let mut m = mapping(&[(0, "3"), (1, "2"), (2, "1")], MapBy::Auto);
        assert_eq!(narrow(&mut m, &[(1, 12, 9, None), (1, 11, 8, None)]), ["2", "3"]);
        // One that comes back, and one that is new but older.
        assert_eq!(narrow(&mut m, &[(1, 12, 9, None), (1, 5, 1, None)]), ["2", "1"]);
        assert_eq!(m.notes(), ["of the 3 threads in the mapping 3 had their place"]);
        // More than the mapping names, again and again: nothing is kept of them.
        for tid in 100..200 {
            assert_eq!(narrow(&mut m, &[(1, tid, 20, None)]), ["0-3"]);
        }
        assert_eq!(m.1.numbers.len(), 3);
        let note = m.1.note([0, 2, 9].into_iter());
        assert_eq!(
            note,
            "of the 3 threads that are recorded to communicate 2 were there; not there: 9 (threads are \
             numbered from 0, --map-by)"
        );
        assert!(m.notes()[1].contains("does not name thread 3 and 99 later"), "{:?}", m.notes());
    }

    #[test]
    fn ranks_are_the_launchers() {
        let mut m = mapping(&[(0, "0"), (1, "1"), (5, "2")], MapBy::Auto);
        let found =
            [(7, 70, 3, Some(1)), (7, 71, 4, Some(1)), (8, 80, 1, Some(0)), (9, 9, 0, None)];
        assert_eq!(narrow(&mut m, &found), ["1", "1", "0", "0-3"]);
        // A later one without a rank is still none.
        assert_eq!(narrow(&mut m, &[(10, 10, 9, None), (11, 11, 9, Some(7))]), ["0-3", "0-3"]);
        let notes = m.notes().join("\n");
        assert!(notes.starts_with("of the 3 ranks in the mapping 2 had their place"), "{notes}");
        assert!(notes.contains("names rank 5, which the program did not have"), "{notes}");
        assert!(notes.contains("does not name rank 7;"), "{notes}");
        assert!(notes.contains("2 threads in processes without a rank"), "{notes}");
    }

    #[test]
    fn processes_without_ranks_are_numbered_where_ranks_are_asked_for() {
        let mut m = mapping(&[(0, "3"), (1, "2")], MapBy::Ranks);
        let found = [(8, 80, 5, None), (7, 70, 3, None), (7, 71, 6, None)];
        assert_eq!(narrow(&mut m, &found), ["2", "3", "3"]);
        assert_eq!(narrow(&mut m, &[(8, 81, 9, None)]), ["2"]);
        // And threads are, whatever the launcher says.
        let mut m = mapping(&[(0, "3"), (1, "2")], MapBy::Threads);
        assert_eq!(narrow(&mut m, &[(8, 80, 5, Some(1)), (7, 70, 3, Some(1))]), ["2", "3"]);
    }

    #[test]
    fn no_thread_is_given_what_it_might_not_use() {
        let mut m = mapping(&[(0, "0,2"), (1, "1")], MapBy::Threads);
        let (even, odd) = (cpus("2,4"), cpus("3,5"));
        let newcomer = |tid, may_use| Newcomer {
            id: ThreadId { tid: Tid(tid), start: 1 },
            pid: Pid(1),
            rank: None,
            may_use,
        };
        let found = [newcomer(1, &even), newcomer(2, &odd)];
        let narrowed = m.0.narrow(&found, &m.1.numbers(&found));
        assert_eq!(narrowed, [Some(CpuSet::single(CpuId(2))), None]);
        let notes = m.notes();
        assert_eq!(notes[0], "of the 2 threads in the mapping 1 had their place");
        assert!(notes[1].starts_with("thread 1 may use none of the CPUs"), "{notes:?}");
    }
}

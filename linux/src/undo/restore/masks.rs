//! Masks, thread by thread: whose each is, and what it is to be.

use super::{Affinity, Failure, RestoreReport, give_back};
use crate::affinity;
use crate::descent::{Tree, is_alive, tree};
use crate::journal::{JournalView, Record, RecordState};
use crate::proc::Proc;
use evenly_engine::RunState;
use evenly_model::{CpuSet, Pid, ThreadId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// Threads can be created while others are restored, and inherit; each pass catches those of the
/// one before.
const PASSES: usize = 5;

/// Outcome for one thread.
enum Outcome {
    Restored,
    Foreign,
    Unchanged,
    Gone,
    Failed(Failure),
}

/// Gives the threads of a journal their original masks, where the masks are still ours.
pub fn restore(view: &JournalView, proc: &Proc, machine: &mut dyn Affinity) -> RestoreReport {
    let mut work = Work::new(view, proc, machine);
    for _ in 0..PASSES {
        let before = work.restored();
        let tree = work.tree();
        work.recorded_threads(&tree);
        work.inherited_masks(&tree);
        if work.restored() == before {
            break;
        }
    }
    work.report()
}

struct Work<'a> {
    view: &'a JournalView,
    proc: &'a Proc,
    machine: &'a mut dyn Affinity,
    /// Records by process, without blank ones.
    by_process: BTreeMap<Pid, Vec<&'a Record>>,
    usable: HashMap<Pid, Option<CpuSet>>,
    outcomes: BTreeMap<ThreadId, Outcome>,
}

impl<'a> Work<'a> {
    fn new(view: &'a JournalView, proc: &'a Proc, machine: &'a mut dyn Affinity) -> Self {
        let mut by_process: BTreeMap<Pid, Vec<&Record>> = BTreeMap::new();
        for r in &view.records {
            by_process.entry(r.tgid).or_default().push(r);
        }
        let (usable, outcomes) = (HashMap::new(), BTreeMap::new());
        Self { view, proc, machine, by_process, usable, outcomes }
    }

    fn restored(&self) -> usize {
        self.outcomes.values().filter(|o| matches!(o, Outcome::Restored)).count()
    }

    fn report(self) -> RestoreReport {
        let mut report = RestoreReport::default();
        for outcome in self.outcomes.into_values() {
            match outcome {
                Outcome::Restored => report.restored += 1,
                Outcome::Foreign => report.foreign += 1,
                Outcome::Unchanged => report.unchanged += 1,
                Outcome::Gone => report.gone += 1,
                Outcome::Failed(failure) => report.failed.push(failure),
            }
        }
        report
    }

    fn recorded_threads(&mut self, tree: &Tree) {
        let view = self.view;
        for record in &view.records {
            // A restored thread is done: in a small cpuset its mask may still look like ours.
            if matches!(self.outcomes.get(&record.id), Some(Outcome::Restored)) {
                continue;
            }
            if let Some(outcome) = self.recorded_thread(record, tree) {
                self.outcomes.insert(record.id, outcome);
            }
        }
    }

    /// None where there is nothing to say: the thread was done with before.
    fn recorded_thread(&mut self, record: &Record, tree: &Tree) -> Option<Outcome> {
        let ended = record.state == RecordState::Ended;
        if !is_alive(self.proc, record.id) {
            return (!ended).then_some(Outcome::Gone);
        }
        let (id, original) = (record.id, &record.original);
        let current = match self.machine.get(id.tid) {
            Ok(mask) => mask,
            Err(e) => return Some(failed(id, original, &e)),
        };
        if current == *original {
            return (!ended).then_some(Outcome::Unchanged);
        }
        if record.state == RecordState::LeftAlone {
            return Some(Outcome::Foreign);
        }
        let usable = self.usable(record.tgid);
        let usable = usable.as_ref();
        // A record that was freed without the original mask having been set belongs to a balancer
        // that broke off.
        let given_back = ended && record.set.first() == Some(original);
        let is_ours = |set: &CpuSet| set != original && is_left_of(&current, set, usable);
        if !given_back && record.set.iter().any(is_ours) {
            return Some(self.set_back(id, original, usable));
        }
        if let Some(original) = self.exec_original(id, record.tgid, &current, usable) {
            return Some(self.set_back(id, &original, usable));
        }
        if is_left_of(&current, original, usable) {
            return (!ended).then_some(Outcome::Unchanged);
        }
        // Registered with an inherited mask, and not set before evenly died.
        if record.set.is_empty()
            && self.inherited_original(id, tree.get(&record.tgid), &current, usable).is_some()
        {
            return Some(self.set_back(id, original, usable));
        }
        (!ended).then_some(Outcome::Foreign)
    }

    /// The original mask of the thread that has become the leader by exec, if that happened.
    fn exec_original(
        &self,
        id: ThreadId,
        tgid: Pid,
        current: &CpuSet,
        usable: Option<&CpuSet>,
    ) -> Option<CpuSet> {
        if id.tid.0 != tgid.0 {
            return None;
        }
        let records = self.by_process.get(&tgid)?;
        let gone = records.iter().copied().filter(|r| {
            r.id.tid != id.tid && (r.state == RecordState::Ended || !is_alive(self.proc, r.id))
        });
        common_original(gone, current, usable)
    }

    fn set_back(&mut self, id: ThreadId, original: &CpuSet, usable: Option<&CpuSet>) -> Outcome {
        match give_back(self.machine, id.tid, original, usable) {
            Ok(()) => Outcome::Restored,
            Err(e) => failed(id, original, &e),
        }
    }

    fn usable(&mut self, process: Pid) -> Option<CpuSet> {
        self.usable.entry(process).or_insert_with(|| self.machine.usable(process)).clone()
    }

    /// The original mask of the thread from which one inherited its mask, if it did.
    fn inherited_original(
        &self,
        id: ThreadId,
        ancestors: Option<&Vec<Pid>>,
        current: &CpuSet,
        usable: Option<&CpuSet>,
    ) -> Option<CpuSet> {
        let older = ancestors?
            .iter()
            .filter_map(|a| self.by_process.get(a))
            .flatten()
            .copied()
            .filter(|r| r.id.start <= id.start && r.id.tid != id.tid);
        common_original(older, current, usable)
    }

    fn inherited_masks(&mut self, tree: &Tree) {
        let recorded: HashSet<ThreadId> = self.view.records.iter().map(|r| r.id).collect();
        for (&process, ancestors) in tree {
            for tid in self.proc.threads(process) {
                let Some(stat) = self.proc.thread_stat(tid) else { continue };
                let id = ThreadId { tid, start: stat.start };
                if recorded.contains(&id)
                    || matches!(self.outcomes.get(&id), Some(Outcome::Restored))
                    || stat.run_state() == RunState::Dead
                {
                    continue;
                }
                // A thread that cannot be read has ended, or is not ours to change.
                let Ok(current) = self.machine.get(tid) else { continue };
                let usable = self.usable(process);
                let usable = usable.as_ref();
                let original = self
                    .exec_original(id, process, &current, usable)
                    .or_else(|| self.inherited_original(id, Some(ancestors), &current, usable));
                if let Some(original) = original {
                    let outcome = self.set_back(id, &original, usable);
                    // A thread that ended meanwhile was never recorded: there is nothing to say.
                    if !matches!(outcome, Outcome::Gone) {
                        self.outcomes.insert(id, outcome);
                    }
                }
            }
        }
    }

    fn tree(&self) -> Tree {
        let first = |records: &[&Record]| records.iter().map(|r| r.id.start).min().unwrap_or(0);
        let starts = self.by_process.iter().map(|(&pid, records)| (pid, first(records))).collect();
        tree(self.proc, &starts)
    }
}

/// Whether `current` is what the kernel leaves of the mask `set`.
pub(crate) fn is_left_of(current: &CpuSet, set: &CpuSet, usable: Option<&CpuSet>) -> bool {
    current == set
        || usable.is_some_and(|usable| {
            let left = set.and(usable);
            // Where nothing is left the kernel allows all that can be used, but keeps the requested mask.
            if left.is_empty() { current == usable } else { *current == left }
        })
}

/// The original mask for a thread that has a mask of one of these records. Where the records
/// differ, it is what all of them allow: it holds the mask, and is outside none.
fn common_original<'r>(
    records: impl Iterator<Item = &'r Record>,
    current: &CpuSet,
    usable: Option<&CpuSet>,
) -> Option<CpuSet> {
    records
        .filter(|r| {
            r.set.iter().any(|set| {
                set != &r.original && set.is_subset(&r.original) && is_left_of(current, set, usable)
            })
        })
        .map(|r| r.original.clone())
        .reduce(|a, b| a.and(&b))
        .filter(|original| original != current)
}

fn failed(id: ThreadId, wanted: &CpuSet, e: &io::Error) -> Outcome {
    if affinity::is_gone(e) {
        return Outcome::Gone;
    }
    let reason = match e.raw_os_error() {
        Some(libc::EINVAL) => format!("none of the CPUs {wanted} can be used now"),
        Some(libc::EPERM) => {
            "not permitted: the thread belongs to another user; run evenly restore as that user or as root".to_owned()
        }
        _ => e.to_string(),
    };
    Outcome::Failed(Failure { id, wanted: wanted.clone(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, Journal, StateDir};
    use evenly_model::Tid;
    use std::fs;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// A machine of files and a table: threads with masks, and a cpuset.
    struct Fake {
        tmp: tempfile::TempDir,
        journal: Journal,
        masks: BTreeMap<Tid, CpuSet>,
        usable: CpuSet,
        refusal: Option<i32>,
    }

    impl Affinity for Fake {
        fn get(&mut self, tid: Tid) -> io::Result<CpuSet> {
            self.masks.get(&tid).cloned().ok_or(io::Error::from_raw_os_error(libc::ESRCH))
        }

        fn set(&mut self, tid: Tid, mask: &CpuSet) -> io::Result<()> {
            if let Some(e) = self.refusal {
                return Err(io::Error::from_raw_os_error(e));
            }
            let allowed = mask.and(&self.usable);
            if allowed.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            self.masks.insert(tid, allowed);
            Ok(())
        }

        fn usable(&mut self, _process: Pid) -> Option<CpuSet> {
            Some(self.usable.clone())
        }
    }

    impl Fake {
        fn new(usable: &str) -> Self {
            let tmp = tempfile::tempdir().unwrap();
            let dir = StateDir::at(&tmp.path().join("state")).unwrap();
            let journal = Journal::create(&dir, None).unwrap();
            Self { tmp, journal, masks: BTreeMap::new(), usable: cpus(usable), refusal: None }
        }

        /// A thread that lives, with its mask.
        fn thread(&mut self, tid: i32, tgid: i32, ppid: i32, start: u64, mask: &str) {
            let line = format!(
                "{tid} (x) S {ppid} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
            );
            let root = self.tmp.path().join("proc");
            for dir in [format!("{tgid}/task/{tid}"), format!("{tid}/task/{tid}")] {
                fs::create_dir_all(root.join(&dir)).unwrap();
                fs::write(root.join(dir).join("stat"), &line).unwrap();
            }
            if tid == tgid {
                fs::write(root.join(format!("{tid}/stat")), &line).unwrap();
            }
            self.masks.insert(Tid(tid), cpus(mask));
        }

        fn record(
            &self,
            tid: i32,
            tgid: i32,
            start: u64,
            original: &str,
            set: &[&str],
        ) -> journal::Slot {
            let id = ThreadId { tid: Tid(tid), start };
            let mut slot = self.journal.register(id, Pid(tgid), &cpus(original)).unwrap();
            for mask in set {
                self.journal.about_to_set(&mut slot, &cpus(mask));
            }
            slot
        }

        fn restore(&mut self) -> RestoreReport {
            let view = JournalView::open(&self.journal.path()).unwrap();
            let proc = Proc::at(&self.tmp.path().join("proc"));
            restore(&view, &proc, self)
        }

        fn mask(&self, tid: i32) -> String {
            self.masks[&Tid(tid)].to_string()
        }
    }

    fn counts(r: &RestoreReport) -> (usize, usize, usize, usize, usize) {
        (r.restored, r.foreign, r.unchanged, r.gone, r.failed.len())
    }

    #[test]
    fn recorded_threads() {
        let mut m = Fake::new("0-7");
        for (tid, mask) in [(10, "1"), (11, "2"), (12, "5"), (13, "0-3"), (14, "1"), (16, "1")] {
            m.thread(tid, 10, 1, 100, mask);
        }
        m.record(10, 10, 100, "0-3", &["2", "1"]); // the newest
        m.record(11, 10, 100, "0-3", &["2", "1"]); // the one before it
        m.record(12, 10, 100, "0-3", &["1"]); // set by the program
        m.record(13, 10, 100, "0-3", &["1"]); // given back already
        m.record(14, 10, 99, "0-3", &["1"]); // another thread with the same id
        m.record(15, 10, 100, "0-3", &["1"]); // ended
        let mut alone = m.record(16, 10, 100, "0-3", &["1"]);
        m.journal.leave_alone(&mut alone);
        assert_eq!(counts(&m.restore()), (2, 2, 1, 2, 0));
        let masks: Vec<String> = (10..=14).chain([16]).map(|t| m.mask(t)).collect();
        assert_eq!(masks, ["0-3", "0-3", "5", "0-3", "1", "1"]);
    }

    #[test]
    fn a_record_freed_before_its_mask_was_given_back_counts() {
        let mut m = Fake::new("0-7");
        m.thread(10, 10, 1, 100, "1");
        m.thread(11, 10, 1, 100, "1");
        let broke_off = m.record(10, 10, 100, "0-3", &["1"]);
        m.journal.forget(broke_off);
        // Given back and freed; then the program chose what had been ours.
        let given_back = m.record(11, 10, 100, "0-3", &["1", "0-3"]);
        m.journal.forget(given_back);
        assert_eq!(counts(&m.restore()), (1, 0, 0, 0, 0));
        assert_eq!((m.mask(10), m.mask(11)), ("0-3".into(), "1".into()));
    }

    #[test]
    fn inherited_masks_of_threads_and_descendants() {
        let mut m = Fake::new("0-7");
        m.thread(10, 10, 1, 100, "1");
        m.thread(11, 10, 1, 105, "1"); // created by thread 10
        m.thread(12, 10, 1, 105, "2"); // pinned by the program
        m.thread(20, 20, 10, 106, "1"); // a child
        m.thread(21, 20, 10, 107, "0-3"); // its thread that widened itself
        m.thread(30, 30, 20, 108, "1"); // a grandchild
        m.thread(40, 40, 1, 109, "1"); // a stranger
        m.thread(9, 9, 10, 90, "1"); // older than the thread that was narrowed
        m.record(10, 10, 100, "0-3", &["1"]);
        assert_eq!(counts(&m.restore()), (4, 0, 0, 0, 0));
        let masks: Vec<String> =
            [10, 11, 12, 20, 21, 30, 40, 9].into_iter().map(|t| m.mask(t)).collect();
        assert_eq!(masks, ["0-3", "0-3", "2", "0-3", "0-3", "0-3", "1", "1"]);
    }

    #[test]
    fn an_inherited_mask_of_unclear_origin_gets_what_all_allow() {
        let mut m = Fake::new("0-7");
        m.thread(10, 10, 1, 100, "1");
        m.thread(11, 10, 1, 100, "1");
        m.thread(12, 10, 1, 105, "1");
        m.record(10, 10, 100, "0-3", &["1"]);
        m.record(11, 10, 100, "1-5", &["1"]);
        m.restore();
        assert_eq!([m.mask(10), m.mask(11), m.mask(12)], ["0-3", "1-5", "1-3"]);
    }

    #[test]
    fn a_thread_met_with_an_inherited_mask_and_never_set() {
        let mut m = Fake::new("0-7");
        m.thread(10, 10, 1, 100, "0-3");
        m.thread(11, 10, 1, 105, "1");
        m.thread(12, 10, 1, 105, "1");
        m.record(10, 10, 100, "0-3", &["1"]);
        m.record(11, 10, 105, "0-3", &[]);
        m.record(12, 10, 105, "1", &[]); // set by the program, registered as such
        assert_eq!(counts(&m.restore()), (1, 0, 2, 0, 0));
        assert_eq!([m.mask(11), m.mask(12)], ["0-3", "1"]);
    }

    #[test]
    fn a_used_again_process_id_is_a_stranger() {
        let mut m = Fake::new("0-7");
        m.thread(10, 10, 1, 500, "1");
        m.thread(11, 10, 1, 500, "1");
        m.record(10, 10, 100, "0-3", &["1"]);
        assert_eq!(counts(&m.restore()), (0, 0, 0, 1, 0));
        assert_eq!([m.mask(10), m.mask(11)], ["1", "1"]);
    }

    #[test]
    fn exec_by_a_thread_that_is_not_the_leader() {
        let mut m = Fake::new("0-7");
        // Thread 15 called exec: it is 10 now, with the start time of the leader.
        m.thread(10, 10, 1, 100, "3");
        m.thread(16, 10, 1, 120, "3"); // created by the new program
        m.record(10, 10, 100, "0-3", &["1"]);
        m.record(15, 10, 110, "0-3", &["3"]);
        assert_eq!(counts(&m.restore()), (2, 0, 0, 1, 0));
        assert_eq!([m.mask(10), m.mask(16)], ["0-3", "0-3"]);
    }

    #[test]
    fn a_leader_that_sets_what_a_living_thread_has_from_us_means_it() {
        let mut m = Fake::new("0-7");
        m.thread(10, 10, 1, 100, "3");
        m.thread(15, 10, 1, 110, "3");
        m.record(10, 10, 100, "0-3", &["1"]);
        m.record(15, 10, 110, "0-3", &["3"]);
        assert_eq!(counts(&m.restore()), (1, 1, 0, 0, 0));
        assert_eq!([m.mask(10), m.mask(15)], ["3", "0-3"]);
    }

    #[test]
    fn masks_trimmed_by_a_cpuset_are_still_ours() {
        let mut m = Fake::new("2-3");
        m.thread(10, 10, 1, 100, "2"); // of 1-2
        m.thread(11, 10, 1, 100, "2-3"); // of 0: nothing was left, so all of the cpuset
        m.thread(12, 10, 1, 100, "2-3"); // of the original 0-3: never set
        m.record(10, 10, 100, "0-3", &["1-2"]);
        m.record(11, 10, 100, "0-3", &["0"]);
        m.record(12, 10, 100, "0-3", &[]);
        assert_eq!(counts(&m.restore()), (2, 0, 1, 0, 0));
        assert_eq!([m.mask(10), m.mask(11), m.mask(12)], ["2-3", "2-3", "2-3"]);
    }

    #[test]
    fn a_thread_that_could_use_everything_follows_its_cpuset_again() {
        let everything = CpuSet::from_words(&[u64::MAX; journal::MAX_MASK_WORDS]);
        struct Last(CpuSet);
        impl Affinity for Last {
            fn get(&mut self, _: Tid) -> io::Result<CpuSet> {
                Ok(self.0.clone())
            }
            fn set(&mut self, _: Tid, mask: &CpuSet) -> io::Result<()> {
                self.0 = mask.clone();
                Ok(())
            }
            fn usable(&mut self, _: Pid) -> Option<CpuSet> {
                None
            }
        }
        let mut last = Last(CpuSet::new());
        give_back(&mut last, Tid(10), &cpus("0-3"), Some(&cpus("0-3"))).unwrap();
        assert_eq!(last.0, everything);
        give_back(&mut last, Tid(10), &cpus("0-2"), Some(&cpus("0-3"))).unwrap();
        assert_eq!(last.0, cpus("0-2"));
        give_back(&mut last, Tid(10), &cpus("0-3"), None).unwrap();
        assert_eq!(last.0, cpus("0-3"));
    }

    #[test]
    fn failures_say_why_and_threads_that_vanish_are_none() {
        let mut m = Fake::new("4-7");
        m.thread(10, 10, 1, 100, "1");
        m.record(10, 10, 100, "0-3", &["1"]);
        let report = m.restore();
        assert_eq!(counts(&report), (0, 0, 0, 0, 1));
        assert_eq!(report.failed[0].reason, "none of the CPUs 0-3 can be used now");
        m.refusal = Some(libc::EPERM);
        assert!(m.restore().failed[0].reason.contains("not permitted"));
        m.refusal = Some(libc::ESRCH);
        assert_eq!(counts(&m.restore()), (0, 0, 0, 1, 0));
    }
}

use super::layout::{
    FIRST_CAPACITY, Layout, PARENT_PATH_LIMIT, WORD, at, field, kernel_mask_words, kind,
};
use super::*;
use crate::sched::Scheduling;
use evenly_model::{CpuId, CpuSet, Nanos, ThreadId, Tid};
use proptest::prelude::*;
use rustix::fs::Mode;
use std::sync::atomic::Ordering;

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn thread(tid: i32) -> ThreadId {
    ThreadId { tid: Tid(tid), start: 1_000 + tid as u64 }
}

fn fresh() -> (tempfile::TempDir, StateDir, Journal) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let journal = Journal::create(&dir, None).unwrap();
    (tmp, dir, journal)
}

fn read(journal: &Journal) -> JournalView {
    JournalView::open(&journal.path()).unwrap()
}

#[test]
fn what_is_recorded_is_read() {
    let (_tmp, _dir, journal) = fresh();
    let program = Process { pid: Pid(77), start: 5 };
    journal.set_program(program);
    journal.set_period(Nanos::from_millis(20));
    journal.heartbeat(Nanos(123));
    journal.publish_counts(&[(CpuId(1), 3), (CpuId(0), 0), (CpuId(u32::MAX), 9)]);
    let mut slot = journal.register(thread(78), Pid(77), &cpus("0-1")).unwrap();
    journal.about_to_set(&mut slot, &cpus("1"));
    journal.about_to_set(&mut slot, &cpus("0"));
    let view = read(&journal);
    assert_eq!(view.header.writer, Process::own());
    assert_eq!(view.header.program, Some(program));
    assert_eq!((view.header.heartbeat, view.header.period), (Nanos(123), Nanos(20_000_000)));
    assert_eq!(view.header.counts, [(CpuId(1), 3)]);
    assert!(view.header.is_of_this_boot() && view.header.is_of_this_pid_namespace());
    assert!(!view.header.clean);
    let record = Record {
        id: thread(78),
        tgid: Pid(77),
        state: RecordState::Live,
        original: cpus("0-1"),
        set: vec![cpus("0"), cpus("1")],
    };
    assert_eq!(view.records, [record]);
}

#[test]
fn what_others_are_told_is_read() {
    let (_tmp, _dir, journal) = fresh();
    assert_eq!(read(&journal).header.demand, Demand::default());
    let [given, until] = [1, 2].map(Nanos::from_millis);
    journal.say(2_500, given);
    journal.holds_until(until);
    assert_eq!(read(&journal).header.demand, Demand { wanted_milli: 2_500, given, until });
    // Whoever writes it, no more threads are believed than there can be.
    journal.say(u64::MAX, given);
    assert_eq!(read(&journal).header.demand.wanted_milli, 65_536_000);
}

#[test]
fn the_two_newest_masks_are_ours() {
    let (_tmp, _dir, journal) = fresh();
    let mut slot = journal.register(thread(5), Pid(5), &cpus("0-3")).unwrap();
    assert!(!journal.is_ours(&slot, &cpus("0-3")));
    journal.about_to_set(&mut slot, &cpus("1"));
    assert!(journal.is_ours(&slot, &cpus("1")));
    journal.about_to_set(&mut slot, &cpus("2"));
    journal.about_to_set(&mut slot, &cpus("3"));
    let ours: Vec<bool> =
        ["1", "2", "3"].iter().map(|c| journal.is_ours(&slot, &cpus(c))).collect();
    assert_eq!(ours, [false, true, true]);
    assert!(!journal.is_ours(&slot, &cpus("3,16000")));
}

#[test]
fn a_mask_that_could_not_be_set_does_not_push_out_the_one_in_force() {
    let (_tmp, _dir, journal) = fresh();
    let mut slot = journal.register(thread(5), Pid(5), &cpus("0-3")).unwrap();
    journal.about_to_set(&mut slot, &cpus("1"));
    for refused in ["2", "3", "0"] {
        journal.about_to_set(&mut slot, &cpus(refused));
        journal.not_set(&mut slot);
    }
    // Dying between the record and the call: the mask in force must still be known.
    journal.about_to_set(&mut slot, &cpus("2"));
    assert_eq!(read(&journal).records[0].set, [cpus("2"), cpus("1")]);
}

#[test]
fn freed_records_are_used_again_and_the_oldest_first() {
    let (_tmp, _dir, journal) = fresh();
    let slots: Vec<Slot> = (1..=FIRST_CAPACITY as i32)
        .map(|tid| journal.register(thread(tid), Pid(1), &cpus("0")).unwrap())
        .collect();
    for slot in slots.into_iter().take(2) {
        journal.forget(slot);
    }
    assert_eq!(read(&journal).records[0].state, RecordState::Ended);
    assert_eq!(journal.register(thread(9_001), Pid(1), &cpus("0")).unwrap(), Slot(0));
    let records = read(&journal).records;
    assert_eq!((records[0].id, records[0].state), (thread(9_001), RecordState::Live));
    assert_eq!((records[1].id, records[1].state), (thread(2), RecordState::Ended));
    assert_eq!(records.len(), FIRST_CAPACITY);
}

#[test]
fn it_grows_to_its_limit_and_then_says_that_it_is_full() {
    let (_tmp, _dir, journal) = fresh();
    let mut last = None;
    for tid in 1..=RECORD_LIMIT as i32 {
        last = Some(journal.register(thread(tid), Pid(1), &cpus("0-1")).unwrap());
    }
    let full = journal.register(thread(i32::MAX), Pid(1), &cpus("0-1")).unwrap_err();
    assert!(matches!(full, JournalError::Full { .. }), "{full}");
    let view = read(&journal);
    assert_eq!(view.records.len(), RECORD_LIMIT);
    assert_eq!(view.records[RECORD_LIMIT - 1].id, thread(RECORD_LIMIT as i32));
    journal.forget(last.unwrap());
    journal.register(thread(i32::MAX), Pid(1), &cpus("0-1")).unwrap();
}

#[test]
fn a_record_that_is_being_written_is_none_and_a_torn_older_mask_is_harmless() {
    let (_tmp, _dir, journal) = fresh();
    let mut slot = journal.register(thread(5), Pid(5), &cpus("0-3")).unwrap();
    journal.about_to_set(&mut slot, &cpus("1"));
    let second = journal.register(thread(6), Pid(5), &cpus("0-3")).unwrap();
    let (first, w) = (journal.layout.record(slot.0), journal.layout.mask_words);
    // Died in the middle of meeting: the state is not yet stored.
    let state = journal.layout.record(second.0);
    journal.file().map.word(state).store(RecordState::Blank as u64, Ordering::Relaxed);
    // Died in the middle of recording a mask: all its words are zero, or half of them stored.
    for torn in [0, 0b100] {
        journal.file().map.word(first + field::MASKS + 2 * w).store(torn, Ordering::Relaxed);
        let records = read(&journal).records;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].set, [cpus("1")]);
    }
}

#[test]
fn balancers_use_it_at_the_same_time() {
    let (_tmp, _dir, journal) = fresh();
    std::thread::scope(|s| {
        for balancer in 0..4 {
            let journal = &journal;
            s.spawn(move || {
                let mut kept = Vec::new();
                for i in 1..=2_000 {
                    let tid = balancer * 10_000 + i;
                    let mut slot = journal.register(thread(tid), Pid(1), &cpus("0-63")).unwrap();
                    journal.about_to_set(&mut slot, &CpuSet::single(CpuId((tid % 64) as u32)));
                    if i % 2 == 0 {
                        journal.forget(slot);
                    } else {
                        kept.push(slot);
                    }
                }
                kept
            });
        }
    });
    let mut live: Vec<Record> =
        read(&journal).records.into_iter().filter(|r| r.state == RecordState::Live).collect();
    live.sort_by_key(|r| r.id);
    let expected: Vec<i32> =
        (0..4).flat_map(|b| (1..=2_000).step_by(2).map(move |i| b * 10_000 + i)).collect();
    assert_eq!(live.iter().map(|r| r.id.tid.0).collect::<Vec<_>>(), expected);
    for r in live {
        assert_eq!(r.id, thread(r.id.tid.0));
        assert_eq!(r.set, [CpuSet::single(CpuId((r.id.tid.0 % 64) as u32))]);
    }
}

#[test]
fn finishing_removes_the_file_and_tells_the_guardian() {
    let (_tmp, _dir, journal) = fresh();
    let live = LiveJournal::open(&journal.path()).unwrap();
    assert!(!live.is_clean());
    let generation = journal.released_generation();
    live.raise_released();
    assert_eq!(journal.released_generation(), generation + 1);
    journal.finish().unwrap();
    assert!(live.is_clean() && !journal.path().exists());
    journal.finish().unwrap();
}

#[test]
fn a_process_keeps_one_journal_but_replaces_that_of_another_boot() {
    let (_tmp, dir, journal) = fresh();
    assert!(matches!(Journal::create(&dir, None), Err(JournalError::Exists { .. })));
    assert_eq!(dir.journals().unwrap(), [journal.path()]);
    journal.file().map.word(at::BOOT_ID).fetch_xor(1, Ordering::Relaxed);
    let second = Journal::create(&dir, None).unwrap();
    assert!(Header::open(&second.path()).unwrap().is_of_this_boot());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn directories_that_others_could_write_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let tmp = tempfile::tempdir().unwrap();
    let made = StateDir::at(&tmp.path().join("a/b")).unwrap();
    assert_eq!(fs::metadata(made.path()).unwrap().mode() & 0o777, 0o700);
    let link = tmp.path().join("link");
    symlink(made.path(), &link).unwrap();
    let e = StateDir::at(&link).unwrap_err().to_string();
    assert!(e.contains("not a directory") && e.contains("EVENLY_STATE_DIR"), "{e}");
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let e = StateDir::at(made.path()).unwrap_err().to_string();
    assert!(e.contains("its mode is 777"), "{e}");
    let file = tmp.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(StateDir::at(&file).is_err());
    assert!(StateDir::at(&file.join("below")).is_err());
}

#[test]
fn a_journal_that_cannot_be_written_is_an_error_that_names_it() {
    let (_tmp, dir, journal) = fresh();
    drop(journal);
    fs::remove_dir_all(dir.path()).unwrap();
    fs::write(dir.path(), "").unwrap();
    let e = Journal::create(&dir, None).unwrap_err().to_string();
    assert!(e.contains(dir.path().to_str().unwrap()) && e.contains("EVENLY_STATE_DIR"), "{e}");
}

#[test]
fn links_fifos_and_directories_are_not_read() {
    use std::os::unix::fs::symlink;
    let (_tmp, dir, journal) = fresh();
    let link = dir.path().join("1-1.journal");
    symlink(journal.path(), &link).unwrap();
    assert!(JournalView::open(&link).is_err());
    let fifo = dir.path().join("2-2.journal");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(JournalView::open(&fifo).is_err());
    assert!(JournalView::open(dir.path()).is_err());
}

/// The bytes of a journal with three threads.
fn sample() -> Vec<u8> {
    let (_tmp, _dir, journal) = fresh();
    for tid in 1..=3 {
        let mut slot = journal.register(thread(tid), Pid(1), &cpus("0-1")).unwrap();
        journal.about_to_set(&mut slot, &cpus("1"));
    }
    fs::read(journal.path()).unwrap()
}

fn with_word(bytes: &[u8], number: usize, value: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[number * WORD..][..WORD].copy_from_slice(&value.to_ne_bytes());
    bytes
}

#[test]
fn malformed_journals_are_refused_by_name_of_the_field() {
    let good = sample();
    let why = |number, value| JournalView::parse(&with_word(&good, number, value)).unwrap_err();
    assert_eq!(why(at::MAGIC, 0), Malformed::Magic);
    assert_eq!(why(at::VERSION, 99), Malformed::Version { found: 99 });
    for (number, value, field) in [
        (at::MASK_WORDS, 0, "mask words"),
        (at::MASK_WORDS, u64::MAX, "mask words"),
        (at::HEADER_BYTES, 8, "header length"),
        (at::RECORD_BYTES, 7, "record length"),
        (at::CAPACITY, u64::MAX, "capacity"),
        (at::WRITER_PID, 0, "process id of evenly"),
        (at::PROGRAM_PID, 1 << 40, "process id of the program"),
        (at::CLEAN, 2, "clean"),
    ] {
        match why(number, value) {
            Malformed::Field { field: found, .. } => assert_eq!(found, field),
            other => panic!("{field}: {other}"),
        }
    }
    assert!(matches!(why(at::CAPACITY, 1_000), Malformed::Short { .. }));
    let layout = Layout { mask_words: kernel_mask_words() };
    let record = layout.record(1);
    for (number, value) in [
        (record + field::STATE, 4),
        (record + field::STATE, 2 << kind::SHIFT | 1),
        (record + field::STATE, 3 << kind::SHIFT | 1),
        (record + field::STATE, kind::SCHEDULING << kind::SHIFT | 1),
        (record + field::IDS, 0),
        (record + field::IDS, u64::MAX),
        (layout.mask(record, 0), 0),
        (layout.mask(record, 1), 0),
    ] {
        let e = why(number, value);
        assert!(matches!(e, Malformed::Record { index: 1, .. }), "{e}");
    }
}

#[test]
fn a_journal_of_another_version_is_refused_in_one_line() {
    let (_tmp, dir, _journal) = fresh();
    let path = dir.path().join("1-1.journal");
    for version in [1, 3] {
        fs::write(&path, with_word(&sample(), at::VERSION, version)).unwrap();
        let line = format!(
            "journal {}: its version is {version}, this evenly reads version 2; nothing was changed: \
             remove the file if it is not needed",
            path.display()
        );
        assert_eq!(JournalView::open(&path).unwrap_err().to_string(), line);
        assert_eq!(Header::open(&path).unwrap_err().to_string(), line);
    }
}

fn scheduled(nice: i8) -> Scheduling {
    Scheduling { policy: 0, nice, priority: 0, reset_on_fork: false, slice: Nanos(3_000_000) }
}

#[test]
fn scheduling_and_directories_are_read_back() {
    let (_tmp, _dir, journal) = fresh();
    let mut slot = journal.register_scheduling(thread(5), Pid(4), &scheduled(0)).unwrap();
    for nice in [3, 4, 5] {
        journal.about_to_schedule(&mut slot, &scheduled(nice));
    }
    journal.about_to_schedule(&mut slot, &scheduled(9));
    journal.not_set(&mut slot);
    let parents = [Kind::Shares, Kind::Weight].map(|kind| Parent {
        kind,
        path: PathBuf::from(format!("/sys/fs/cgroup/a{}", "b".repeat(kind as usize * 9))),
        switched_on: kind == Kind::Weight,
    });
    for parent in &parents {
        journal.about_to_make_groups(parent).unwrap();
    }
    let view = read(&journal);
    assert_eq!(view.header.parents, parents);
    let [s] = &view.scheduling[..] else { panic!("{view:?}") };
    assert_eq!((s.id, s.tgid, s.state), (thread(5), Pid(4), RecordState::Live));
    // What was refused is not the newest; it may stand in place of the one before.
    assert_eq!((s.original, s.set[0]), (scheduled(0), scheduled(5)));
    assert!(view.records.is_empty());
    // A freed record keeps its kind, and may become one of another.
    journal.forget(slot);
    assert_eq!(read(&journal).scheduling[0].state, RecordState::Ended);
    // No room: for a fifth directory, and for a path that is too long.
    let long = PathBuf::from(format!("/{}", "x".repeat(PARENT_PATH_LIMIT)));
    assert!(journal.about_to_make_groups(&Parent { path: long, ..parents[0].clone() }).is_err());
    journal.about_to_make_groups(&parents[0]).unwrap();
    journal.about_to_make_groups(&parents[0]).unwrap();
    assert!(journal.about_to_make_groups(&parents[0]).is_err());
}

#[test]
fn directories_that_could_lead_elsewhere_are_refused() {
    let (_tmp, _dir, journal) = fresh();
    let path = PathBuf::from("/sys/fs/cgroup/one");
    let kind = Kind::Shares;
    journal.about_to_make_groups(&Parent { kind, path, switched_on: false }).unwrap();
    let good = fs::read(journal.path()).unwrap();
    let first = journal.layout.first_parent();
    let damage = |word, value| JournalView::parse(&with_word(&good, first + word, value));
    for (word, value) in [
        (0, 3),
        (0, 9),
        (1, 0),
        (1, 9_999),
        (2, u64::from_ne_bytes(*b"/a/../bc")),
        (2, u64::from_ne_bytes(*b"sys/fs/c")),
    ] {
        let e = damage(word, value).unwrap_err();
        assert!(matches!(e, Malformed::Parent { index: 0, .. }), "{e}");
    }
}

#[test]
fn a_cut_journal_is_refused_at_any_length() {
    let good = sample();
    assert!(JournalView::parse(&good).is_ok());
    for end in (0..good.len()).step_by(7) {
        assert!(JournalView::parse(&good[..end]).is_err(), "{end}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(JournalView::parse(&bytes).is_err());
    }

    #[test]
    fn damage_never_panics(
        changes in proptest::collection::vec((0usize..64, any::<u64>(), any::<bool>()), 1..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        use std::sync::OnceLock;
        static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = SAMPLE.get_or_init(sample).clone();
        for (number, value, small) in changes {
            bytes = with_word(&bytes, number, if small { value % 5 } else { value });
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = JournalView::parse(&bytes);
    }

    #[test]
    fn any_history_of_masks_is_read_back(
        history in proptest::collection::vec((0u32..64, any::<bool>()), 1..30),
    ) {
        let (_tmp, _dir, journal) = fresh();
        let mut slot = journal.register(thread(7), Pid(7), &cpus("0-63")).unwrap();
        // What is in force, and what is recorded before a call that may fail.
        let mut in_force: Option<CpuSet> = None;
        for (cpu, succeeds) in history {
            let mask = CpuSet::single(CpuId(cpu));
            journal.about_to_set(&mut slot, &mask);
            if succeeds {
                in_force = Some(mask);
            } else {
                journal.not_set(&mut slot);
            }
            let set = &read(&journal).records[0].set;
            prop_assert_eq!(set.first(), in_force.as_ref());
        }
    }
}

/// A journal with a thread whose mask was set.
fn with_a_thread() -> (tempfile::TempDir, StateDir, Journal, Slot) {
    let (tmp, dir, journal) = fresh();
    let mut slot = journal.register(thread(5), Pid(5), &cpus("0-3")).unwrap();
    journal.about_to_set(&mut slot, &cpus("1"));
    (tmp, dir, journal, slot)
}

#[test]
fn a_journal_in_its_place_is_not_made_anew() {
    let (_tmp, _dir, journal, _slot) = with_a_thread();
    assert_eq!(journal.make_anew(|_, _| panic!("nothing to hand over")).unwrap(), None);
}

#[test]
fn a_removed_journal_is_made_anew_with_all_that_is_in_it() {
    let (_tmp, dir, journal, mut slot) = with_a_thread();
    // More than one piece of the copy.
    for tid in 100..3_000 {
        journal.register(thread(tid), Pid(5), &cpus("0-3")).unwrap();
    }
    let old = LiveJournal::open(&journal.path()).unwrap();
    let before = read(&journal);
    fs::remove_dir_all(dir.path()).unwrap();
    let mut handed_over = None;
    let path = journal.make_anew(|file, path| {
        // Whole, and found by its name, before it is used.
        assert_eq!(JournalView::open(path).unwrap(), before);
        assert!(!old.is_clean());
        handed_over =
            Some(LiveJournal::of(file.try_clone_to_owned().unwrap(), path.into()).unwrap());
    });
    assert_eq!(path.unwrap(), Some(journal.path()));
    assert_eq!(dir.journals().unwrap(), [journal.path()]);
    assert!(old.is_clean(), "the old one must not be undone");
    journal.about_to_set(&mut slot, &cpus("2"));
    journal.register(thread(6), Pid(5), &cpus("0-3")).unwrap();
    let (view, handed_over) = (read(&journal), handed_over.unwrap());
    assert_eq!(
        view.records.iter().find(|r| r.id == thread(5)).unwrap().set,
        [cpus("2"), cpus("1")]
    );
    assert_eq!(view.records.len(), before.records.len() + 1);
    assert_eq!(handed_over.view().unwrap(), view);
    journal.finish().unwrap();
    assert!(handed_over.is_clean() && dir.journals().unwrap().is_empty());
}

#[test]
fn a_directory_that_comes_back_brings_no_second_journal() {
    let (tmp, dir, journal, mut slot) = with_a_thread();
    let moved = tmp.path().join("moved");
    fs::rename(dir.path(), &moved).unwrap();
    journal.make_anew(|_, _| ()).unwrap().unwrap();
    let left = Header::open(&moved.join(journal.path().file_name().unwrap())).unwrap();
    assert!(left.clean);
    journal.about_to_set(&mut slot, &cpus("3"));
    fs::remove_dir_all(dir.path()).unwrap();
    fs::rename(&moved, dir.path()).unwrap();
    journal.make_anew(|_, _| ()).unwrap().unwrap();
    let view = read(&journal);
    assert_eq!((view.header.clean, &view.records[0].set[0]), (false, &cpus("3")));
}

#[test]
fn a_directory_that_the_user_named_is_made_anew_nowhere_else() {
    let (_tmp, dir, journal, _slot) = with_a_thread();
    fs::remove_dir_all(dir.path()).unwrap();
    fs::write(dir.path(), "").unwrap();
    let e = journal.make_anew(|_, _| panic!("nothing to hand over")).unwrap_err().to_string();
    assert!(e.contains(dir.path().to_str().unwrap()) && e.contains("EVENLY_STATE_DIR"), "{e}");
    // It can still be undone, and finished.
    assert_eq!(journal.view().unwrap().records.len(), 1);
    journal.finish().unwrap();
}

#[test]
fn no_change_is_lost_while_it_is_made_anew() {
    let (_tmp, dir, journal) = fresh();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (1..=3)
            .map(|balancer| {
                let (journal, done) = (&journal, &done);
                s.spawn(move || {
                    let mut slot =
                        journal.register(thread(balancer), Pid(1), &cpus("0-63")).unwrap();
                    let mut set = 0;
                    while !done.load(Ordering::Relaxed) {
                        set += 1;
                        let mask = CpuSet::single(CpuId(set % 64));
                        journal.about_to_set(&mut slot, &mask);
                        assert!(journal.is_ours(&slot, &mask), "set number {set}");
                        // Records come and go meanwhile.
                        let tid = thread(1_000 * balancer + set as i32 % 500);
                        journal.forget(journal.register(tid, Pid(1), &cpus("0-63")).unwrap());
                    }
                    (thread(balancer), CpuSet::single(CpuId(set % 64)))
                })
            })
            .collect();
        for _ in 0..50 {
            fs::remove_dir_all(dir.path()).unwrap();
            journal.make_anew(|_, _| ()).unwrap().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        let view_of = |id| {
            let all = read(&journal).records;
            all.into_iter().find(|r| r.id == id && r.state == RecordState::Live).unwrap()
        };
        for writer in writers {
            let (id, mask) = writer.join().unwrap();
            assert_eq!(view_of(id).set[0], mask);
        }
    });
}

#[test]
fn a_release_that_went_into_the_old_one_is_not_lost() {
    let (_tmp, dir, journal, _slot) = with_a_thread();
    let old = LiveJournal::open(&journal.path()).unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    let generation = journal.released_generation();
    let mut new = None;
    journal
        .make_anew(|file, path| {
            old.raise_released();
            new = LiveJournal::of(file.try_clone_to_owned().unwrap(), path.into()).ok();
        })
        .unwrap();
    assert_eq!(journal.released_generation(), generation);
    new.unwrap().follows(&old);
    assert_ne!(journal.released_generation(), generation);
}

#[test]
fn a_journal_of_another_boot_is_a_former_one_only_on_a_file_system_of_this_host() {
    let (_tmp, _dir, journal) = fresh();
    let here = Path::new("/dev/shm");
    let ours = read(&journal).header;
    assert!(!ours.is_of_former_boot(here));
    let mut other = ours;
    other.boot_id ^= 1;
    // /proc stands for what is not known to belong to one host.
    assert!(!other.is_of_former_boot(Path::new("/proc/1-1.journal")));
    if state_dir::is_local(here) {
        assert!(other.is_of_former_boot(here));
    }
}

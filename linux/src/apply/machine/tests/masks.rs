//! Whose mask is it, and what is set.

use super::*;

#[test]
fn a_thread_is_placed_released_and_restored() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    t.machine.place(w.id, t.a, None).unwrap();
    assert_eq!(w.mask(), CpuSet::single(t.a));
    assert_eq!(t.record(w.id), (RecordState::Live, vec![CpuSet::single(t.a)]));
    t.machine.place(w.id, t.b, Some(&t.whole)).unwrap();
    assert_eq!(w.mask(), t.whole);
    t.machine.place(w.id, t.a, None).unwrap();
    t.machine.restore(w.id);
    assert_eq!(w.mask(), t.whole);
}

#[test]
fn a_thread_that_another_domain_takes_over_keeps_its_original_mask() {
    let Some(mut t) = bench() else { return };
    let root = Pid(std::process::id().cast_signed());
    let mut second =
        LinuxMachine::new(root, t.machine.masks.clone(), ThreadReader::new(Source::Schedstat, 64));
    let w = Worker::new();
    let (a, b) = (CpuSet::single(t.a), CpuSet::single(t.b));
    t.machine.confine(w.id, &a).unwrap();
    assert!(t.machine.release(w.id));
    assert_eq!(w.mask(), t.whole);
    assert_eq!(t.record(w.id).0, RecordState::Ended);
    second.confine(w.id, &b).unwrap();
    assert_eq!(w.mask(), b);
    let view = JournalView::open(&second.masks.journal.path()).unwrap();
    let live: Vec<_> =
        view.records.iter().filter(|r| r.id == w.id && r.state == RecordState::Live).collect();
    assert!(live.len() == 1 && t.whole.is_subset(&live[0].original), "{live:?}");
    // And back.
    assert!(second.release(w.id));
    t.machine.place(w.id, t.a, None).unwrap();
    assert_eq!(w.mask(), a);
    t.machine.restore(w.id);
    assert_eq!(w.mask(), t.whole);
    // One whose mask the program has set stays where it is.
    t.machine.place(w.id, t.a, None).unwrap();
    w.pin_itself(&b);
    assert!(!t.machine.release(w.id));
    assert_eq!(w.mask(), b);
}

#[test]
fn a_thread_with_the_same_id_is_not_taken_for_one_that_ended() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    let earlier = ThreadId { tid: w.id.tid, start: w.id.start - 1 };
    assert_eq!(t.machine.place(earlier, t.a, None), Err(ApplyError::Gone));
    assert_eq!(t.machine.confine(earlier, &CpuSet::single(t.a)), Err(ApplyError::Gone));
    t.machine.restore_inherited(earlier);
    t.machine.restore(earlier);
    assert_eq!(w.mask(), t.whole);
    // Registered, and ended since.
    t.machine.place(w.id, t.a, None).unwrap();
    let id = w.id;
    drop(w);
    assert_eq!(t.machine.place(id, t.b, None), Err(ApplyError::Gone));
}

#[test]
fn a_thread_that_the_journal_has_no_room_for_is_left_alone_and_reported() {
    let Some(mut t) = bench() else { return };
    let journal = t.machine.masks.journal.clone();
    for tid in 1..=crate::journal::RECORD_LIMIT as i32 {
        let id = ThreadId { tid: Tid(tid), start: 1 };
        let _ = journal.register(id, Pid(tid), &t.whole).unwrap();
    }
    let w = Worker::new();
    for refused in [t.machine.place(w.id, t.a, None), t.machine.confine(w.id, &CpuSet::single(t.a))]
    {
        let Err(ApplyError::Refused(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("full") && why.contains("left alone"), "{why}");
    }
    assert_eq!(w.mask(), t.whole);
}

#[test]
fn no_mask_is_set_outside_the_original_one() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    w.pin_itself(&CpuSet::single(t.b));
    let outside = CpuSet::single(t.a);
    // A cpuset of this one CPU would make it a thread that may use everything.
    assert_ne!(*t.machine.cpus.cpuset(), CpuSet::single(t.b));
    let refused = Err(ApplyError::Unusable { wanted: outside.clone() });
    assert_eq!(t.machine.place(w.id, t.a, None), refused);
    assert_eq!(t.machine.confine(w.id, &outside), refused);
    assert_eq!(w.mask(), CpuSet::single(t.b));
}

#[test]
fn a_mask_that_the_program_chose_is_left_until_it_is_given_back() {
    let Some(mut t) = bench() else { return };
    let (w, other) = (Worker::new(), Worker::new());
    // Also where another thread of the process has this mask from us.
    t.machine.place(other.id, t.b, None).unwrap();
    t.machine.place(w.id, t.a, None).unwrap();
    w.pin_itself(&CpuSet::single(t.b));
    // It is not touched at the first sight of it, and known as the program's own at the second.
    assert!(matches!(t.machine.place(w.id, t.a, None), Err(ApplyError::Unusable { .. })));
    let found = CpuSet::single(t.b);
    assert_eq!(t.machine.place(w.id, t.a, None), Err(ApplyError::Foreign { found }));
    t.machine.restore(w.id);
    assert_eq!(w.mask(), CpuSet::single(t.b));
    assert_eq!(t.record(w.id).0, RecordState::LeftAlone);
    // What we had set is the program's own too, now.
    w.pin_itself(&CpuSet::single(t.a));
    assert!(t.machine.place(w.id, t.b, None).is_err());
    assert_eq!(w.mask(), CpuSet::single(t.a));
    w.pin_itself(&t.whole);
    t.machine.place(w.id, t.a, None).unwrap();
    assert_eq!(t.record(w.id), (RecordState::Live, vec![CpuSet::single(t.a)]));
}

#[test]
fn a_thread_that_widens_itself_is_not_taken_for_one_that_a_cpuset_freed() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    t.machine.place(w.id, t.a, None).unwrap();
    t.machine.managed.get_mut(&w.id).unwrap().original = CpuSet::single(t.a);
    if t.whole != *t.machine.cpus.cpuset() {
        return evenly_testing::skip("whole-cpuset", "the mask is less than the cpuset");
    }
    w.pin_itself(&t.whole);
    t.machine.restore(w.id);
    assert!(matches!(t.machine.place(w.id, t.a, None), Err(ApplyError::Foreign { .. })));
    assert_eq!(w.mask(), t.whole);
}

#[test]
fn what_was_inherited_is_given_back_and_what_was_chosen_is_not() {
    let Some(mut t) = bench() else { return };
    let (w, older) = (Worker::new(), Worker::new());
    // Start times are counted in hundredths of a second.
    while ticks_since_boot() <= older.id.start {
        std::thread::yield_now();
    }
    t.machine.place(w.id, t.a, None).unwrap();
    older.pin_itself(&CpuSet::single(t.a));
    let child = w.starts_another();
    assert_eq!(child.mask(), CpuSet::single(t.a));
    t.machine.restore_inherited(older.id);
    t.machine.restore_inherited(child.id);
    assert_eq!((older.mask(), child.mask()), (CpuSet::single(t.a), t.whole.clone()));
    assert_eq!(t.record(child.id).0, RecordState::Ended);
    // One that is registered before what it inherited was restored is known as narrowed from the start.
    let second = w.starts_another();
    assert!(t.whole.is_subset(&t.machine.original_mask(second.id).unwrap()));
    assert_eq!(t.record(second.id), (RecordState::Live, vec![CpuSet::single(t.a)]));
    t.machine.restore(second.id);
    assert_eq!(second.mask(), t.whole);
}

#[test]
fn newcomers_get_back_what_they_inherited_at_the_first_look() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    t.machine.place(w.id, t.a, None).unwrap();
    let child = w.starts_another();
    t.machine.restore_inherited_all(&[w.id.tid, child.id.tid, Tid(i32::MAX)]);
    assert_eq!((w.mask(), child.mask()), (CpuSet::single(t.a), t.whole.clone()));
}

#[test]
fn a_cpu_that_does_not_exist_changes_nothing() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    t.machine.place(w.id, t.a, None).unwrap();
    let nowhere = CpuId(16_000);
    t.machine.managed.get_mut(&w.id).unwrap().original.insert(nowhere);
    let refused = t.machine.place(w.id, nowhere, None);
    assert_eq!(refused, Err(ApplyError::Unusable { wanted: CpuSet::single(nowhere) }));
    assert_eq!(w.mask(), CpuSet::single(t.a));
    assert_eq!(t.record(w.id).1[0], CpuSet::single(t.a));
}

#[test]
fn a_thread_that_becomes_a_real_time_thread_is_let_go() {
    let Some(mut t) = bench() else { return };
    let w = Worker::new();
    t.machine.place(w.id, t.a, None).unwrap();
    let tid = w.id.tid.0;
    let (say, became) = channel();
    w.run(move || {
        let p = libc::sched_param { sched_priority: 1 };
        // SAFETY: the kernel only reads the structure, which is live.
        say.send(unsafe { libc::sched_setscheduler(tid, libc::SCHED_FIFO, &raw const p) } == 0)
            .unwrap();
    });
    if !became.recv().unwrap() {
        return evenly_testing::skip("realtime", "not permitted to make a real-time thread");
    }
    assert!(matches!(t.machine.place(w.id, t.b, None), Err(ApplyError::Refused(_))));
    assert_eq!(w.mask(), t.whole);
}

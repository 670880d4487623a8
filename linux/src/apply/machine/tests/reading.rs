//! What is read of threads, and of which.

use super::*;
use crate::counters::Counted;

#[test]
fn a_reply_that_is_lost_is_no_end_of_a_thread() {
    let Some(mut t) = bench_by_taskstats() else { return };
    let w = Worker::new();
    let ended = (0..99).map(|i| ThreadId { tid: Tid(i32::MAX - i), start: 1 });
    let ids: Vec<ThreadId> = ended.chain([w.id]).collect();
    t.machine.place(w.id, t.a, None).unwrap();
    let mut out = Vec::new();
    let room = |t: &Bench, bytes| {
        let Source::Taskstats(stats) = t.machine.threads.source() else { panic!() };
        stats.set_room_for_replies(bytes);
    };
    t.machine.read(&ids, &mut out);
    assert!(out[..99].iter().all(|r| *r == Reading::Gone), "{out:?}");
    assert!(matches!(out[99], Reading::Times(_)), "{out:?}");
    room(&t, 1);
    t.machine.read(&ids, &mut out);
    assert_eq!((out.len(), out[99]), (100, Reading::Unknown));
    assert!(!out.iter().any(|r| matches!(r, Reading::Times(_))), "{out:?}");
    // It is still ours.
    assert!(t.machine.managed.contains_key(&w.id));
    room(&t, 100_000);
    t.machine.read(&ids, &mut out);
    assert!(matches!(out[99], Reading::Times(_)), "{out:?}");
    t.machine.restore(w.id);
    assert_eq!(w.mask(), t.whole);
}

/// The same way that instructions go, with what can be counted on every machine.
#[test]
fn what_threads_do_is_counted_beside_their_times() {
    let Some(t) = bench() else { return };
    let counters = match Counters::new(Counted::CpuTime, 8) {
        Ok(counters) => counters,
        Err(e) => return evenly_testing::skip("perf-events", e),
    };
    let (mut times, mut done) = (Vec::new(), vec![Some(1)]);
    let workers = [Worker::new(), Worker::new()];
    let ids = [workers[0].id, workers[1].id];
    let mut machine = t.machine;
    machine.retired(&ids, &mut done);
    assert!(done.is_empty(), "nothing counts yet");
    let mut machine = machine.counting(Some(counters));
    let mut read = |ids: &[ThreadId]| {
        machine.read(ids, &mut times);
        machine.retired(ids, &mut done);
        (times.clone(), done.clone())
    };
    let (_, first) = read(&ids);
    workers[1].run(|| {
        let mut x = 1u64;
        (0..20_000_000u64).for_each(|i| x = std::hint::black_box(x.wrapping_mul(31) ^ i));
    });
    let (times, second) = read(&ids);
    let done = [0, 1].map(|i| second[i].unwrap() - first[i].unwrap());
    assert!(done[1] > 1_000_000 && done[1] > 3 * done[0], "{done:?}");
    // Nanoseconds of CPU time are what the scheduler counts, too, which was read a moment earlier.
    let Reading::Times(own) = times[1] else { panic!("gone") };
    assert!(own.ran.0 * 5 / 4 + 10_000_000 >= done[1], "{own:?} {done:?}");
    // In another order, with one left out, and one that has ended.
    let (_, swapped) = read(&[ids[1], ids[0]]);
    assert!(swapped[0] >= second[1] && swapped[1] >= second[0] && swapped[1] < second[1]);
    assert_eq!(read(&[ids[1]]).1.len(), 1);
    let gone = ThreadId { start: ids[0].start + 1, ..ids[0] };
    assert_eq!(read(&[ids[1], gone]).1[1], None);
}

#[test]
fn threads_that_ended_unasked_are_forgotten() {
    let Some(mut t) = bench() else { return };
    let mut out = Vec::new();
    for _ in 0..100 {
        let w = Worker::new();
        t.machine.place(w.id, t.a, None).unwrap();
        t.machine.restore(w.id);
        drop(w);
        t.machine.read(&[], &mut out);
    }
    assert!(t.machine.managed.len() <= 65);
}

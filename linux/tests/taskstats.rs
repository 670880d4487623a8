//! The two sources of thread times against each other, on the running kernel. Where taskstats
//! cannot be used the tests are skipped, and only that the error names the way out is tested.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_linux::proc::{Stat, parse_schedstat, status_number};
use evenly_linux::taskstats::{TaskStats, TaskStatsError};
use evenly_model::{Nanos, Tid};
use evenly_testing::wait_until;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

fn open() -> Option<TaskStats> {
    match TaskStats::open() {
        Ok(stats) => Some(stats),
        Err(e) => {
            assert!(e.to_string().contains("schedstat"), "the way out is named: {e}");
            evenly_testing::skip("taskstats", e);
            None
        }
    }
}

fn schedstat(tid: Tid) -> (Nanos, Nanos) {
    let text = fs::read(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    let times = parse_schedstat(&text).unwrap();
    (times.ran, times.waited)
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}

/// Both sources show the same counters, so a reading of one lies between two of the other.
fn assert_agreement(stats: &mut TaskStats, tid: Tid) -> Nanos {
    let before = schedstat(tid);
    let between = stats.read(tid).unwrap().unwrap();
    let after = schedstat(tid);
    let all = format!("{before:?} {between:?} {after:?}");
    assert!(before.0 <= between.ran && between.ran <= after.0, "CPU time: {all}");
    assert!(before.1 <= between.waited && between.waited <= after.1, "waiting time: {all}");
    assert_eq!((between.times().ran, between.times().waited), (between.ran, between.waited));
    between.ran
}

#[test]
fn sources_agree_for_a_computing_thread() {
    let Some(mut stats) = open() else { return };
    let (tid, stop) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicBool::new(false)));
    let thread = std::thread::spawn({
        let (tid, stop) = (tid.clone(), stop.clone());
        move || {
            tid.store(own_tid().0, Relaxed);
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    wait_until("the thread starts", || tid.load(Relaxed) != 0);
    let tid = Tid(tid.load(Relaxed));
    let first = assert_agreement(&mut stats, tid);
    // Long enough for its counters to have moved many times.
    wait_until("the thread runs", || {
        assert_agreement(&mut stats, tid) > first + Nanos::from_millis(50)
    });
    stop.store(true, Relaxed);
    thread.join().unwrap();
    wait_until("it is seen that the thread has ended", || stats.read(tid).unwrap().is_none());
}

#[test]
fn sources_agree_for_a_sleeping_thread() {
    let Some(mut stats) = open() else { return };
    let tid = Arc::new(AtomicI32::new(0));
    let wake = Arc::new((Mutex::new(false), Condvar::new()));
    let thread = std::thread::spawn({
        let (tid, wake) = (tid.clone(), wake.clone());
        move || {
            let mut woken = wake.0.lock().unwrap();
            tid.store(own_tid().0, Relaxed);
            while !*woken {
                woken = wake.1.wait(woken).unwrap();
            }
        }
    });
    wait_until("the thread starts", || tid.load(Relaxed) != 0);
    let tid = Tid(tid.load(Relaxed));
    let read = |file| fs::read(format!("/proc/self/task/{tid}/{file}")).unwrap();
    let stat = || Stat::parse(&read("stat")).unwrap();
    wait_until("the thread sleeps", || stat().state == b'S');
    assert_agreement(&mut stats, tid);
    // Nothing moves now, so everything is equal to the nanosecond.
    let times = stats.read(tid).unwrap().unwrap();
    assert_eq!((times.ran, times.waited), schedstat(tid));
    let status = read("status");
    let number = |key| status_number(&status, key).unwrap();
    assert_eq!(times.voluntary_switches, number("voluntary_ctxt_switches"));
    assert_eq!(times.involuntary_switches, number("nonvoluntary_ctxt_switches"));
    assert_eq!(times.minor_faults, stat().minor_faults);
    assert_eq!(times.major_faults, stat().major_faults);
    *wake.0.lock().unwrap() = true;
    wake.1.notify_all();
    thread.join().unwrap();
}

#[test]
fn many_threads_are_read_in_order_and_the_dead_are_none() {
    let Some(mut stats) = open() else { return };
    let own = own_tid();
    // More than one batch, and several that are missing in each.
    let dead = |i: i32| i % 7 == 3;
    let tids: Vec<Tid> = (0..150).map(|i| if dead(i) { Tid(i32::MAX - i) } else { own }).collect();
    let mut seen = vec![None; tids.len()];
    stats
        .read_many(&tids, |i, times| {
            assert!(seen[i].is_none(), "thread {i} is reported twice");
            seen[i] = Some(times.is_some());
        })
        .unwrap();
    for (i, seen) in (0..).zip(seen) {
        assert_eq!(seen, Some(!dead(i)), "thread {i}");
    }
    stats.read_many(&[], |_, _| panic!("nothing was asked for")).unwrap();
}

#[test]
fn without_the_capability_the_error_names_it() {
    if open().is_none() {
        return;
    }
    // On a thread of its own, because the capability does not come back.
    let error = std::thread::spawn(|| {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(rustix::thread::CapabilitySet::NET_ADMIN);
        sets.permitted.remove(rustix::thread::CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, sets).unwrap();
        TaskStats::open().unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(error, TaskStatsError::Permission), "{error}");
    let text = error.to_string();
    assert!(text.contains("CAP_NET_ADMIN") && text.contains("--source schedstat"), "{text}");
}

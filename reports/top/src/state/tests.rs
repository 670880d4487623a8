//! The view, fed with made-up points.

use super::*;
use crate::{OtherEvenly, OtherState, synthetic};
use evenly_engine::{CpuRecord, Event, MoveRecord, PointRecord, ThreadRecord};
use evenly_model::{CpuSet, Tid};

const D: DomainId = DomainId(0);

fn id(tid: i32) -> ThreadId {
    ThreadId { tid: Tid(tid), start: 7 }
}

fn record(tid: i32, cpu: u32, progress_ms: i64, ran_ms: u64) -> ThreadRecord {
    ThreadRecord {
        id: id(tid),
        cpu: CpuId(cpu),
        progress: progress_ms * 1_000_000,
        ran: Nanos::from_millis(ran_ms),
        waited: Nanos::from_millis(100 - ran_ms),
        blocked: Nanos::ZERO,
        spinning: None,
        turns: None,
        minor_faults: 0,
        major_faults: 0,
    }
}

fn point(n: u64, threads: Vec<ThreadRecord>, moves: Vec<MoveRecord>) -> Event {
    Event::Point(PointRecord {
        domain: D,
        point: n,
        at: Nanos::from_millis(100 * (n + 1)),
        elapsed: Nanos::from_millis(100),
        paused: false,
        held: false,
        spins_progress: false,
        agents: false,
        others: Vec::new(),
        arm: None,
        cost: Nanos::from_micros(50),
        cpus: (0..2)
            .map(|c| {
                let on = threads.iter().filter(|t| t.cpu == CpuId(c)).count() as u32;
                CpuRecord {
                    id: CpuId(c),
                    threads: on,
                    speed: (on > 0).then(|| 1.0 / f64::from(on)),
                }
            })
            .collect(),
        threads,
        moves,
        weights: Vec::new(),
    })
}

fn moved(tid: i32, from: u32, to: u32, error: Option<&str>) -> MoveRecord {
    MoveRecord {
        id: id(tid),
        from: CpuId(from),
        to: CpuId(to),
        reason: Reason::Behind,
        error: error.map(str::to_owned),
    }
}

#[test]
fn standing_follows_the_paper_outside_one_period() {
    let period = Nanos::from_millis(100);
    let of = |ms: i64| Standing::of(ms * 1_000_000, 1e9, period);
    assert_eq!(of(899), Standing::Behind);
    assert_eq!(of(901), Standing::Even);
    assert_eq!(of(1_099), Standing::Even);
    assert_eq!(of(1_101), Standing::Ahead);
    // With a very short period the kernel's tick decides.
    assert_eq!(Standing::of(1_010_000_000, 1e9, Nanos::from_millis(1)), Standing::Even);
}

#[test]
fn sorted_worst_first_and_reversible() {
    let mut v = View::new(false);
    v.apply(&point(
        0,
        vec![record(1, 0, 2_000, 100), record(2, 1, 500, 50), record(3, 1, 600, 50)],
        vec![],
    ));
    let tids =
        |v: &View, s, r| v.rows(None, s, r).iter().map(|r| r.thread.id.tid.0).collect::<Vec<_>>();
    assert_eq!(tids(&v, Sort::Mean, false), [2, 3, 1]);
    assert_eq!(tids(&v, Sort::Mean, true), [1, 3, 2]);
    assert_eq!(tids(&v, Sort::Cpu, false), [1, 2, 3]);
    assert_eq!(tids(&v, Sort::Running, false), [1, 2, 3]);
    assert_eq!(tids(&v, Sort::Waiting, false), [2, 3, 1]);
    let rows = v.rows(None, Sort::Mean, false);
    assert_eq!(rows[0].standing, Standing::Behind);
    assert!((rows[0].lead + 533.333e6).abs() < 1e6, "{}", rows[0].lead);
    assert_eq!(rows[0].shares, Shares { running: 0.5, waiting: 0.5, ..Shares::default() });
}

#[test]
fn threads_that_are_even_keep_their_order() {
    let mut v = View::new(false);
    v.apply(&point(0, vec![record(1, 0, 1_010, 50), record(2, 1, 1_000, 50)], vec![]));
    let first = v.rows(None, Sort::Mean, false)[0].thread.id;
    v.apply(&point(1, vec![record(1, 0, 1_060, 50), record(2, 1, 1_070, 70)], vec![]));
    assert_eq!(v.rows(None, Sort::Mean, false)[0].thread.id, first);
}

#[test]
fn cpus_are_fast_slow_even_or_free() {
    let paces = |threads| {
        let mut v = View::new(false);
        v.apply(&point(0, threads, vec![]));
        v.domains[&D].paces().map(|(_, _, p)| p).collect::<Vec<_>>()
    };
    let (a, b, c) = (record(1, 0, 0, 50), record(2, 0, 0, 50), record(3, 1, 0, 100));
    assert_eq!(paces(vec![a, b, c]), [Pace::Slow, Pace::Fast]);
    assert_eq!(paces(vec![a, c]), [Pace::Even, Pace::Even]);
    assert_eq!(paces(vec![a, b]), [Pace::Even, Pace::Free]);
}

#[test]
fn own_moves_and_others_are_counted_separately() {
    let mut v = View::new(true);
    v.apply(&point(0, vec![record(1, 0, 0, 50)], vec![]));
    // Found where it was, moved by evenly from 0 to 1.
    v.apply(&point(1, vec![record(1, 1, 0, 50)], vec![moved(1, 0, 1, None)]));
    assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (1, 0));
    // Back on 0 without evenly's doing.
    v.apply(&point(2, vec![record(1, 0, 0, 50)], vec![]));
    assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (1, 1));
    // Found on 1 and moved to 0 at once: one of each, although the CPU is the same.
    v.apply(&point(3, vec![record(1, 0, 0, 50)], vec![moved(1, 1, 0, None)]));
    assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (2, 2));
    // A move that failed is in the history, and not counted.
    v.apply(&point(4, vec![record(1, 0, 0, 50)], vec![moved(1, 0, 1, Some("no"))]));
    assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (2, 2));
    assert_eq!(v.recent.len(), 5);
    let r = v.rates(None);
    // Five points of 100 ms: two moves of each kind in half a second.
    assert!((r.own - 4.0).abs() < 1e-9 && (r.other - 4.0).abs() < 1e-9, "{r:?}");
    assert!((r.overhead - 0.0005).abs() < 1e-9);
    assert_eq!((r.cost, r.period), (Nanos::from_micros(50), Nanos::from_millis(100)));
}

#[test]
fn rates_forget_what_is_older_than_the_window() {
    let mut v = View::new(false);
    v.apply(&point(0, vec![record(1, 0, 0, 50)], vec![]));
    v.apply(&point(1, vec![record(1, 1, 0, 50)], vec![]));
    assert!(v.rates(None).other > 0.0);
    for n in 2..40 {
        v.apply(&point(n, vec![record(1, 1, 0, 100)], vec![]));
    }
    assert_eq!(v.rates(None).other, 0.0);
    assert_eq!(v.threads[&id(1)].shares().running, 1.0);
    assert_eq!(v.threads[&id(1)].wandered, 1);
}

/// Programs whose efficiencies are known: parallel, load balance, communication, run queue,
/// synchronisation, and the share of run queues.
#[test]
fn efficiencies_are_those_of_the_window() {
    // Running, of that spinning, waiting for a CPU and asleep, in ms of a period of 100.
    type Times = (u64, Option<u64>, u64, u64);
    let threads = |all: &[Times]| -> Vec<ThreadRecord> {
        let of = |(i, &(ran, spun, waited, blocked)): (i32, &Times)| ThreadRecord {
            waited: Nanos::from_millis(waited),
            blocked: Nanos::from_millis(blocked),
            spinning: spun.map(Nanos::from_millis),
            ..record(i, i as u32 % 2, 0, ran)
        };
        (1..).zip(all).map(of).collect()
    };
    let known = |v: &View| {
        let e = v.efficiency(None).unwrap();
        let f = e.factors?;
        let factors = [f.parallel, f.load_balance, f.communication, f.run_queue];
        Some((factors, f.synchronisation, e.run_queue_share))
    };
    let near = |found: Option<([f64; 4], f64, f64)>, factors: [f64; 4], rest: [f64; 2]| {
        let (f, synchronisation, share) = found.unwrap();
        let all = f.into_iter().chain([synchronisation, share]);
        let close = all.zip(factors.into_iter().chain(rest)).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(close, "{found:?}");
    };
    let mut v = View::new(true);
    let mut points = 0;
    let mut pass = |v: &mut View, all: &[Times], n: u64| {
        for _ in 0..n {
            v.apply(&point(points, threads(all), vec![]));
            points += 1;
        }
    };
    assert_eq!(v.efficiency(None), None);
    // A CPU each, work of 4 and 1.
    pass(&mut v, &[(100, None, 0, 0), (25, None, 0, 75)], 4);
    near(known(&v), [0.625, 0.625, 1.0, 1.0], [1.0, 0.0]);
    assert_eq!(v.efficiency(Some(DomainId(1))), None);
    // The other thread spins instead, which is unknown unless a probe reports it.
    let mut v = View::new(true);
    pass(&mut v, &[(100, None, 0, 0), (100, None, 0, 0)], 4);
    assert_eq!(known(&v), None);
    let mut v = View::new(true);
    pass(&mut v, &[(100, Some(0), 0, 0), (100, Some(75), 0, 0)], 4);
    near(known(&v), [0.625, 0.625, 1.0, 1.0], [1.0, 0.0]);
    // Three on two CPUs, left where they are, and asleep at the barrier.
    let mut v = View::new(true);
    let three = [(50, None, 0, 50), (50, None, 50, 0), (50, None, 50, 0)];
    pass(&mut v, &three, 40);
    near(known(&v), [0.5, 1.0, 0.5, 0.5], [1.0, 1.0 / 3.0]);
    // What is over for as long as the window is forgotten: all wait for messages now.
    pass(&mut v, &[(75, None, 0, 25); 3], 24);
    near(known(&v), [0.75, 1.0, 0.75, 1.0], [0.75, 0.0]);
}

#[test]
fn a_lost_departure_is_healed_by_the_next_point() {
    let mut v = View::new(false);
    v.apply(&point(0, vec![record(1, 0, 0, 50), record(2, 1, 0, 50)], vec![]));
    v.apply(&point(1, vec![record(2, 1, 0, 50), record(3, 1, 0, 50)], vec![]));
    let mut tids: Vec<i32> = v.threads.keys().map(|i| i.tid.0).collect();
    tids.sort_unstable();
    assert_eq!(tids, [2, 3]);
}

#[test]
fn history_and_windows_are_bounded() {
    let mut v = View::new(true);
    for n in 0..5_000 {
        let cpu = (n % 2) as u32;
        v.apply(&point(n, vec![record(1, cpu, 0, 50)], vec![]));
    }
    assert_eq!(v.recent.len(), RECENT);
    assert!(v.threads[&id(1)].spent.steps.len() <= 9);
    assert!(v.domains[&D].traffic.steps.len() <= 9);
}

#[test]
fn a_reused_tid_is_another_thread() {
    let mut v = View::new(false);
    v.apply(&point(0, vec![record(1, 0, 5_000, 50)], vec![]));
    let reused = ThreadId { tid: Tid(1), start: 99 };
    let mut fresh = record(1, 0, 0, 50);
    fresh.id = reused;
    v.apply(&point(1, vec![fresh], vec![]));
    assert_eq!(v.threads.keys().collect::<Vec<_>>(), [&reused]);
}

#[test]
fn standing_down_differs_from_a_pause() {
    let mut v = View::new(false);
    let mut p = match point(0, vec![record(1, 0, 0, 50)], vec![]) {
        Event::Point(p) => p,
        _ => unreachable!(),
    };
    p.paused = true;
    v.apply(&Event::Point(p.clone()));
    assert!(v.paused(None) && !v.stood_down(None));
    v.apply(&Event::Note { at: Nanos::ZERO, text: "balancing stands down: x".into() });
    assert!(v.stood_down(None));
}

#[test]
fn changes_of_the_balancer_are_in_the_history() {
    let is = |pid, state| Some(OtherEvenly { pid: Pid(pid), state, given: Nanos::ZERO });
    let mut v = View::new(false);
    // The first state is no change, nor is the same state again.
    assert!(v.balanced_by(is(7, OtherState::Working)));
    assert!(!v.balanced_by(is(7, OtherState::Working)));
    assert!(v.recent.is_empty());
    // What the program has handed over is shown, and no news.
    let given = Nanos::from_millis(1_234);
    let gave = is(7, OtherState::Working).map(|b| OtherEvenly { given, ..b });
    assert!(!v.balanced_by(gave) && v.balancer == gave && v.recent.is_empty());
    for next in [
        is(7, OtherState::Stopped),
        is(7, OtherState::Working),
        is(7, OtherState::Gone),
        is(8, OtherState::Working),
    ] {
        assert!(v.balanced_by(next) && v.balancer == next);
    }
    // None is found any more.
    assert!(v.balanced_by(None) && v.balancer == is(8, OtherState::Gone));
    assert!(!v.balanced_by(None));
    let shown: Vec<String> = v.recent.iter().map(|r| format!("{:?}", r.what)).collect();
    let words = ["7) has stopped", "7) goes on", "7) has ended", "8) balances", "8) has ended"];
    assert_eq!(shown.len(), words.len());
    assert!(shown.iter().zip(words).all(|(shown, words)| shown.contains(words)), "{shown:?}");
}

#[test]
fn cpus_follow_the_domain() {
    let mut v = View::new(false);
    let cpus: CpuSet = "0-3".parse().unwrap();
    v.apply(&Event::Domain { at: Nanos::ZERO, domain: D, cpus });
    assert_eq!(v.domains[&D].cpus.len(), 4);
    v.apply(&Event::Domain { at: Nanos::ZERO, domain: D, cpus: "1".parse().unwrap() });
    assert_eq!(v.domains[&D].cpus.keys().collect::<Vec<_>>(), [&CpuId(1)]);
}

#[test]
fn a_whole_synthetic_run_adds_up() {
    let mut v = View::new(false);
    for e in synthetic::run(3, 2, 1, 100, true) {
        v.apply(&e);
    }
    assert_eq!(v.threads.len(), 3);
    let total: i64 = v.threads.values().map(|t| t.progress).sum();
    // Two CPUs were busy all the time.
    assert!((total as f64 / 2.0 / v.now.0 as f64 - 1.0).abs() < 0.02);
}

//! Threads that spin at their barriers, and report it (the probe): what they spin is no progress, and
//! balancing makes nearly as much of the CPUs as where they sleep.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{Event, Observer, Period, PeriodOptions};
use evenly_model::{Nanos, Reason};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Costs, Driver, DriverOptions, Kernel, Outcome, Scenario, Sharing, Sim, Start, replay,
    simulate,
};
use std::sync::{Arc, Mutex};

const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// Threads that need so many milliseconds a phase, on a machine as real ones are.
fn scenario(work: &[u64], cpus: usize, phases: u32, barrier: Barrier, probe: bool) -> Scenario {
    let mut s = Scenario {
        sharing: Sharing::Slices(ms(4)),
        tick: ms(4),
        kernel: Kernel { reactive: true, rotate: None },
        costs: Costs {
            point: Nanos::from_micros(50),
            refill: Nanos::from_micros(30),
            ..Costs::default()
        },
        phases,
        barrier,
        probe,
        ..Scenario::new(work.len(), cpus, ms(1))
    };
    s.threads.iter_mut().zip(work).for_each(|(t, w)| t.work = ms(*w));
    s
}

fn options(seed: u64) -> DriverOptions {
    let slice = ms(4);
    DriverOptions {
        period: PeriodOptions { period: Period::Auto, budget: 0.01, slice, seed },
        start: Start::AtOnce,
        ..DriverOptions::fixed(ms(20), seed)
    }
}

/// Mean makespan of three runs under hybrid, over what no placement can do better than: all CPUs busy with
/// work all the time, or the thread that has most to do.
fn over_bound(work: &[u64], cpus: usize, barrier: Barrier, probe: bool) -> f64 {
    let most = *work.iter().max().unwrap();
    let bound = (work.iter().sum::<u64>() as f64 / cpus as f64).max(most as f64);
    let phases = (4_000.0 / bound).clamp(4.0, 200.0) as u32;
    let took = |seed| {
        let s = Scenario { seed, ..scenario(work, cpus, phases, barrier, probe) };
        let out = simulate(Sim::new(s), by_name("hybrid").unwrap(), &options(seed), ms(1_000_000));
        out.makespan.unwrap().as_millis_f64()
    };
    (1..=3).map(took).sum::<f64>() / 3.0 / bound / f64::from(phases)
}

/// The claim of docs/probe.md: spinning, spinning that is reported, sleeping.
fn claim(work: &[u64], cpus: usize) -> [f64; 3] {
    let found = [
        over_bound(work, cpus, Barrier::Spin, false),
        over_bound(work, cpus, Barrier::Spin, true),
        over_bound(work, cpus, Barrier::Block, false),
    ];
    println!("| {work:?} | {cpus} | {:.2} | {:.2} | {:.2} |", found[0], found[1], found[2]);
    found
}

#[test]
fn unequal_work_is_balanced_though_threads_spin() {
    let one_heavy = |n: usize, heavy| (0..n).map(|i| if i == 0 { heavy } else { 100 }).collect();
    let cases: [(Vec<u64>, usize, f64, f64); 6] = [
        (vec![200, 100, 100], 2, 1.40, 1.15),
        (vec![300, 100, 100, 100], 2, 1.85, 1.45),
        (vec![400, 400, 100, 100, 100, 100], 4, 1.40, 1.06),
        (one_heavy(8, 800), 4, 1.65, 1.25),
        (one_heavy(16, 800), 4, 3.0, 1.6),
        ((1..=8).map(|i| 25 * i).collect(), 2, 1.5, 1.55),
    ];
    for (work, cpus, without, with) in cases {
        let [spin, reported, block] = claim(&work, cpus);
        assert!(spin > without, "{work:?} {spin}");
        assert!(reported < with, "{work:?} {reported}");
        // What no placement can mend: threads that spin beside others that compute.
        assert!(reported < 1.5 * block, "{work:?} {reported} {block}");
    }
}

#[test]
fn equal_work_loses_nothing() {
    for (n, cpus) in [(3, 2), (8, 7), (9, 4), (4, 2), (8, 2)] {
        for phase in [5, 20, 50, 200] {
            let [spin, reported, _] = claim(&vec![phase; n], cpus);
            assert!(reported < 1.02 * spin, "{n} {cpus} {phase} {reported} {spin}");
        }
    }
}

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Event>>>);

impl Observer for Events {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// A run, looked at after each point; what was recorded.
fn run(s: Scenario, policy: &str, mut look: impl FnMut(&Driver)) -> (Vec<Event>, Outcome) {
    let events = Events::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(events.clone())];
    let options = DriverOptions { jitter: false, ..options(1) };
    let mut driver = Driver::new(Sim::new(s), by_name(policy).unwrap(), &options);
    while driver.step(&mut observers) {
        look(&driver);
    }
    let outcome = driver.finish();
    let events = events.0.lock().unwrap().clone();
    (events, outcome)
}

#[test]
fn threads_that_spin_make_room_and_no_cpu_is_left_unused() {
    let work = [600, 100, 100, 100, 100, 100];
    let (mut most, mut alone) = (0, 0);
    let (events, _) = run(scenario(&work, 3, 4, Barrier::Spin, true), "juggle", |driver| {
        let counts: Vec<usize> = driver.sim.counts().into_iter().map(|(_, k)| k).collect();
        if counts.iter().sum::<usize>() == work.len() {
            assert!(counts.iter().all(|&k| k > 0), "{counts:?}");
            most = most.max(counts.iter().copied().max().unwrap_or_default());
            alone += usize::from(counts.contains(&1));
        }
    });
    // For most of the time one computes: alone on its CPU, the others on two.
    assert!(most <= 4 && alone > 60, "{most} {alone}");
    let moves = events.iter().flat_map(|e| match e {
        Event::Point(p) => p.moves.clone(),
        _ => Vec::new(),
    });
    assert!(moves.filter(|m| m.reason == Reason::Waits).count() >= 4);
}

#[test]
fn a_recording_shows_a_policy_what_it_saw() {
    for work in [vec![300, 100, 100, 100, 100], vec![10, 10, 10]] {
        let (events, _) = run(scenario(&work, 2, 30, Barrier::Spin, true), "juggle", |_| ());
        // Readings are exact for a policy that sees a recording.
        let r = replay(&events, by_name("juggle").unwrap());
        assert!(r.moved > 10, "{work:?} {r:?}");
        assert!(r.same * 20 > r.points * 17, "{work:?} {} of {}", r.same, r.points);
        let blind: Vec<Event> = events
            .into_iter()
            .map(|e| match e {
                Event::Point(mut p) => {
                    p.threads.iter_mut().for_each(|t| t.spinning = None);
                    Event::Point(p)
                }
                other => other,
            })
            .collect();
        let b = replay(&blind, by_name("juggle").unwrap());
        assert!(work.len() == 3 || b.same < r.same, "{} {}", b.same, r.same);
    }
}

/// Equal threads of which each has a CPU, but one that has twice the work: the kernel sees all of them
/// busy all the time.
#[test]
fn what_is_spun_is_known_exactly_where_no_cpu_is_shared() {
    let work = [200, 100, 100];
    let (_, out) = run(scenario(&work, 3, 20, Barrier::Spin, true), "static", |_| ());
    for t in &out.summary.threads {
        let heavy = t.id.tid.0 == 1_000;
        // None waits after its last phase.
        let known = if heavy { 0.0 } else { 1.9 };
        assert!((t.spun_s.unwrap() - known).abs() < 0.02, "{t:?}");
    }
    let f = out.summary.efficiency().unwrap().factors.unwrap();
    assert!((f.load_balance - 2.0 / 3.0).abs() < 0.02 && f.communication > 0.98, "{f:?}");
    // Long enough that it does not matter that two of them sleep at the end of the last period.
    let (_, out) = run(scenario(&work, 3, 60, Barrier::Spin, false), "static", |_| ());
    assert!(out.summary.threads.iter().all(|t| t.spun_s.is_none()));
    assert_eq!(out.summary.efficiency().unwrap().factors, None);
}

/// Two of three share a CPU, and each computes for half of the time.
#[test]
fn what_is_spun_beside_others_is_a_part_of_what_was_had() {
    let (_, out) = run(scenario(&[200; 3], 2, 20, Barrier::Spin, true), "static", |_| ());
    let all = &out.summary.threads;
    assert!(all.iter().all(|t| (t.computed_s() - 4.0).abs() < 0.3), "{all:#?}");
    let f = out.summary.efficiency().unwrap().factors.unwrap();
    assert!((f.parallel - 0.5).abs() < 0.03 && f.load_balance > 0.95, "{f:?}");
}

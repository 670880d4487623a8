//! Recorded runs, shown to policies.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{Event, GuardOptions, Observer, PointRecord};
use evenly_model::{CpuId, Nanos};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Driver, DriverOptions, Kernel, Replay, Scenario, Sharing, Sim, Stranger, replay,
};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Event>>>);

impl Observer for Events {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

fn recorded(policy: &str) -> Vec<Event> {
    let events = Events::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(events.clone())];
    let sim = Sim::new(Scenario::new(8, 7, Nanos::from_millis(2_000)));
    let options = DriverOptions::fixed(Nanos::from_millis(20), 1);
    let mut driver = Driver::new(sim, by_name(policy).unwrap(), &options);
    while driver.step(&mut observers) {}
    events.0.lock().unwrap().clone()
}

/// Threads of unequal work that spin at their barriers, and report it.
fn uneven(policy: &str, probe: bool) -> Vec<Event> {
    let unit = Nanos::from_millis(50);
    let mut s = Scenario { phases: 60, barrier: Barrier::Spin, probe, ..Scenario::new(4, 2, unit) };
    for (thread, load) in s.threads.iter_mut().zip([4, 1, 4, 1]) {
        thread.work = Nanos(unit.0 * load);
    }
    recorded_of(s, policy, false)
}

fn recorded_of(scenario: Scenario, policy: &str, guarded: bool) -> Vec<Event> {
    let events = Events::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(events.clone())];
    let options = DriverOptions::fixed(Nanos::from_millis(20), 1);
    let guard = GuardOptions { enabled: guarded, ..GuardOptions::default() };
    let options = DriverOptions { guard, ..options };
    let mut driver = Driver::new(Sim::new(scenario), by_name(policy).unwrap(), &options);
    while driver.step(&mut observers) {}
    events.0.lock().unwrap().clone()
}

/// Turns and weights are in the record: a policy that gives weights decides again what it decided.
#[test]
fn weights_are_given_again_as_they_were() {
    for policy in ["hpc-auto", "hpc-uniform", "hpc-adaptive"] {
        let events = uneven(policy, true);
        let r = seen_by(&events, policy);
        assert!(
            r.points > 80 && r.moved > 0 && r.weighed > 0 && r.lacks.is_none(),
            "{policy}: {r:?}"
        );
        assert_eq!((r.same, r.would_weigh), (r.points, r.weighed), "{policy}: {r:?}");
        assert_eq!(r, seen_by(&events, policy));
    }
    // What it would have made of a run in which no thread was moved.
    let r = seen_by(&uneven("static", true), "hpc-auto");
    assert!(r.moved + r.weighed == 0 && r.would_move > 0 && r.same < r.points, "{r:?}");
    assert!(r.lacks.is_none());
    // Where no thread reported turns, that is said.
    let r = seen_by(&uneven("static", false), "hpc-auto");
    assert!(r.would_weigh == 0 && r.lacks.unwrap().contains("--probe on"), "{r:?}");
}

/// The same under `auto`, whose arm acts for most of the time, and with equal threads that it moves within phases. Would catch:
/// an arm that is replayed as the policy whose place it took.
#[test]
fn arms_decide_again_what_they_decided() {
    for (loads, ms, arm) in [(&[4, 1, 4, 1][..], 20, true), (&[1, 1, 1], 2, false)] {
        let unit = Nanos::from_millis(ms);
        let mut s = Scenario {
            phases: if arm { 400 } else { 4_000 },
            barrier: Barrier::Spin,
            probe: true,
            ..Scenario::new(loads.len(), 2, unit)
        };
        for (thread, load) in s.threads.iter_mut().zip(loads) {
            thread.work = Nanos(unit.0 * load);
        }
        let events = recorded_of(s, "auto", true);
        let points = points(&events);
        let acted = points.iter().filter(|p| p.arm.as_deref() == Some("hpc-auto")).count();
        assert!(if arm { 2 * acted > points.len() } else { acted == 0 }, "{acted}");
        assert!(arm || points.iter().filter(|p| p.agents).count() > 20);
        let r = seen_by(&events, "auto");
        assert_eq!((r.same, r.would_move), (r.points, r.moved), "{r:?}");
        assert_eq!(r.would_weigh, r.weighed);
        assert!(r.lacks.unwrap().contains("chooses its arms"));
    }
}

/// Three threads that block in short phases divide evenly with a program that computes, four do not. Both are held, with the
/// fewest where that one is, but for pauses of the guard. Would catch: threads of others that are counted live, and not in
/// a replay; others that are no longer counted after a pause.
#[test]
fn threads_of_others_are_counted_again() {
    for n in [3, 4] {
        let s = Scenario {
            sharing: Sharing::Slices(Nanos::from_millis(3)),
            kernel: Kernel { reactive: true, rotate: None },
            phases: 20_000,
            barrier: Barrier::Block,
            strangers: vec![Stranger::always(CpuId(1))],
            ..Scenario::new(n, 2, Nanos::from_micros(200))
        };
        let events = recorded_of(s, "hybrid", true);
        let points = points(&events);
        let beside = |p: &PointRecord| p.held && !p.paused && p.others == [0, 1];
        let pause = points.iter().position(|p| p.paused).unwrap();
        for part in [&points[..pause], &points[pause..]] {
            let held: Vec<_> = part.iter().filter(|p| beside(p)).collect();
            assert!(held.len() > 10, "{n}: {} before or after {pause}", held.len());
            let on = held[held.len() - 1].threads.iter().filter(|t| t.cpu == CpuId(1)).count();
            assert_eq!(on, 1, "{n}");
        }
        let r = seen_by(&events, "hybrid");
        assert_eq!((r.same, r.would_move), (r.points, r.moved), "{n}: {r:?}");
    }
}

fn points(events: &[Event]) -> Vec<&PointRecord> {
    let all = events.iter();
    all.filter_map(|e| if let Event::Point(p) = e { Some(p) } else { None }).collect()
}

fn seen_by(events: &[Event], policy: &str) -> Replay {
    replay(events, by_name(policy).unwrap())
}

#[test]
fn a_policy_decides_again_what_it_decided() {
    let events = recorded("juggle");
    let r = seen_by(&events, "juggle");
    assert!(r.points > 80 && r.moved > 50, "{r:?}");
    assert_eq!((r.same, r.would_move), (r.points, r.moved));
}

#[test]
fn another_policy_would_have_decided_otherwise() {
    let events = recorded("juggle");
    let r = seen_by(&events, "static");
    assert!(r.moved > 50 && r.would_move == 0 && r.same < r.points);
    // And where nothing was done, this is what could have been.
    let r = seen_by(&recorded("static"), "juggle");
    assert_eq!(r.moved, 0);
    assert!(r.would_move > 50 && !r.decisions.is_empty());
    assert!(r.decisions.iter().all(|d| d.was.is_empty() && !d.would.is_empty()));
    assert_eq!(r, seen_by(&recorded("static"), "juggle"));
}

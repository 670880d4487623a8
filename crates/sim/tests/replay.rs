//! Recorded runs, shown to policies.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{Event, Observer};
use evenly_model::Nanos;
use evenly_policy::by_name;
use evenly_sim::{Driver, DriverOptions, Replay, Scenario, Sim, replay};
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
    let mut driver = Driver::new(sim, policy, &options).unwrap();
    while driver.step(&mut observers) {}
    events.0.lock().unwrap().clone()
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

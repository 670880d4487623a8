//! The picture of the README, in virtual time, so that it is the same on every machine:
//! `cargo run -p evenly-figures --example readme > docs/demo.svg`. `./dev demo` draws it from real runs.

use evenly_engine::{Event, Observer};
use evenly_model::Nanos;
use evenly_policy::by_name;
use evenly_sim::{Sim, parse, simulate_seen_by};
use evenly_trace::svg::{TimelineOptions, timeline};
use evenly_trace::{Header, Recording};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

const SCENARIO: &str = include_str!("../../../docs/scenarios/demo.toml");
const PANELS: [(&str, &str); 2] = [("Linux alone", "observe"), ("with evenly", "hybrid")];

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Event>>>);

impl Observer for Events {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let described = parse(SCENARIO)?;
    let mut recordings = Vec::new();
    for (label, policy) in PANELS {
        let seen = Events::default();
        let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(seen.clone())];
        let sim = Sim::new(described.scenario.clone());
        let policy = by_name(policy).ok_or("a policy of the pictures is not there")?;
        let options = described.options.for_policy(policy);
        simulate_seen_by(sim, policy, &options, Nanos::from_millis(10_000), &mut observers);
        let recording = Recording {
            header: Header::default(),
            events: seen.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            thinning: Vec::new(),
            end: None,
            truncated: false,
            unknown_lines: 0,
        };
        recordings.push((label, recording));
    }
    let panels: Vec<(&str, &Recording)> = recordings.iter().map(|(l, r)| (*l, r)).collect();
    let title = "Three threads on two CPUs, a spinning barrier every 100 ms of work (simulated)";
    let options =
        TimelineOptions { title: title.to_owned(), width: 900, ..TimelineOptions::default() };
    print!("{}", timeline(&panels, &options));
    Ok(())
}

//! Which thread ran where, over time: the pictures that `evenly report` makes of recordings, of simulated
//! runs.
//!
//! Invariant: one row of the CSV for each thread and period that was observed.

use evenly_draw::number;
use evenly_engine::Event;
use evenly_trace::Recording;
use evenly_trace::svg::{TimelineOptions, timeline};
use std::fmt::Write;

/// Runs, below each other on one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Lanes {
    runs: Vec<(String, Recording)>,
}

impl Lanes {
    /// Of runs with their labels.
    pub(crate) fn new(runs: Vec<(String, Vec<Event>)>) -> Self {
        Self { runs: runs.into_iter().map(|(l, events)| (l, Recording::of(events))).collect() }
    }

    pub(crate) fn csv(&self) -> String {
        let mut out = String::from("run,until_s,thread,cpu,ran_s,progress_s\n");
        for (label, recording) in &self.runs {
            let points = recording.events.iter().filter_map(|e| match e {
                Event::Point(p) => Some(p),
                _ => None,
            });
            for p in points {
                for (i, t) in p.threads.iter().enumerate() {
                    let _ = writeln!(
                        out,
                        "{label},{},{i},{},{},{}",
                        number(p.at.as_secs_f64()),
                        t.cpu,
                        number(t.ran.as_secs_f64()),
                        number(t.progress as f64 / 1e9)
                    );
                }
            }
        }
        out
    }

    pub(crate) fn svg(&self, title: &str) -> String {
        let runs: Vec<(&str, &Recording)> =
            self.runs.iter().map(|(l, r)| (l.as_str(), r)).collect();
        let options =
            TimelineOptions { title: title.to_owned(), width: 720, ..TimelineOptions::default() };
        timeline(&runs, &options)
    }
}

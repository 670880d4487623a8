//! Never slower (promise P7), on a real machine: balancing is paused to be measured, and begins again;
//! what evenly does agrees with its own comparisons.
//!
//! Whether comparisons show harm depends on where the kernel has the threads when they are pinned, and on what
//! else the machine does. That balancing ends where it harms, and after how many pauses, and that nothing is held
//! then, is tested in virtual time (`sim/tests/behaviour.rs`, `the_guard_ends_...`).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_engine::{Event, PointRecord};
use evenly_linux::affinity;
use evenly_model::{CpuSet, Nanos, Tid};
use evenly_trace::Recording;
use serde_json::Value;
use std::path::Path;

/// So many pauses are waited for, where balancing does not stand down before. (Where it pays they are ever rarer.)
const PAUSES: usize = 4;
/// Points at which masks are read once they have been given back.
const LOOKS: usize = 100;
/// What is said when balancing ends because it does not pay.
const STANDS_DOWN: &str = "balancing stands down";

#[test]
fn balancing_pauses_to_measure_its_effect() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let program = Running::computing(3);
    let pid = program.pid().to_string();
    let options = ["--policy", "juggle", "--period", "10ms", "--budget", "50", "--threads", "3"];
    let args = [&["attach"], &options[..], &[&pid]].concat();
    let mut evenly = state.start(&args);
    wait_until_narrowed(program.pid(), &whole, 3);
    // The program runs as it would without evenly, for a moment.
    wait_until("a pause", || narrowed(program.pid(), &whole) == 0);
    wait_until_narrowed(program.pid(), &whole, 3);
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let json = evenly.report();
    schema::valid(&json);
    assert!(json["measured"]["pairs"].as_u64() >= Some(1), "{json:#}");
}

/// Whether the comparisons in the report show that balancing harms: at least five, and the upper end
/// of their interval below 1 by more than a verdict may be wrong by.
fn harms(report: &Value) -> bool {
    let measured = &report["measured"];
    measured["pairs"].as_u64() >= Some(5) && measured["ci95"][1].as_f64().unwrap() < 0.995
}

/// How many pauses have ended by now. The last line of the recording may be written only in part.
fn pauses_over(record: &str) -> usize {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let events = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
    let points: Vec<Value> = events.filter(|e| e["event"] == "point").collect();
    points.windows(2).filter(|w| w[0]["paused"] == true && w[1]["paused"] != true).count()
}

/// When balancing stood down, and the points from then on: the first is the one at which it did.
fn after_standing_down(recording: &Recording) -> Option<(Nanos, Vec<&PointRecord>)> {
    let notes = recording.events.iter().filter_map(|e| match e {
        Event::Note { at, text } if text.starts_with(STANDS_DOWN) => Some(*at),
        _ => None,
    });
    let notes: Vec<Nanos> = notes.collect();
    assert!(notes.len() <= 1, "said {} times", notes.len());
    let down = *notes.first()?;
    let points = recording.events.iter().filter_map(|e| match e {
        Event::Point(p) if p.at >= down => Some(p),
        _ => None,
    });
    Some((down, points.collect()))
}

/// Two of eight threads have something to do at a time, and it is soon the turn of others: the kernel
/// finds each a CPU of its own, and pinning two to the same one halves their speed.
#[test]
#[ignore = "takes long: ./dev test --all"]
fn whether_it_stands_down_agrees_with_its_comparisons() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    let state = State::new();
    affinity::set(Tid(0), &two).unwrap();
    let program = Running::start(&[&workload("odd"), "relay", "8", "--duration-ms", "300000"]);
    affinity::set(Tid(0), &whole).unwrap();
    let pid = program.pid();
    wait_until("all threads", || masks(pid).len() == 9);
    let (record, pid_text) = (state.sign("record"), pid.to_string());
    // As soon as two are seen at work: each of the eight has just the part of a CPU from which it counts.
    let options = ["--policy", "juggle", "--period", "20ms", "--budget", "50", "--threads", "2"];
    let further = ["--domain", "machine", "--record", &record, &pid_text];
    let mut evenly = state.start(&[&["attach"], &options[..], &further].concat());
    wait_until_narrowed(pid, &two, 1);

    let stands_down = || evenly.decisions(STANDS_DOWN) > 0;
    wait_until("pauses that are over, or balancing to stand down", || {
        stands_down() || pauses_over(&record) >= PAUSES
    });
    if stands_down() {
        wait_until_restored(pid, &two);
        for _ in 0..LOOKS {
            assert_eq!(narrowed(pid, &two), 0, "{:?}", masks(pid));
            evenly.wait_until_point();
        }
    }
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    assert_eq!(narrowed(pid, &two), 0, "{:?}", masks(pid));

    let json = evenly.report_of_moves();
    let domains = json["domains"].as_array().unwrap();
    assert_eq!(domains.len(), 1, "{json:#}");
    let down = domains[0]["stood_down"] == true;
    eprintln!("stood down: {down}, {}", json["measured"]);
    assert_eq!(down, harms(&json), "{json:#}");
    let verdict = json["verdict"].as_str().unwrap();
    assert_eq!(verdict.contains("evenly stood down"), down, "{verdict}");
    assert_eq!(evenly.decisions(verdict), 1, "{}", evenly.stderr());
    // When it does, and in the report.
    assert_eq!(evenly.decisions(STANDS_DOWN), 2 * usize::from(down), "{}", evenly.stderr());

    let recording = Recording::read(Path::new(&record)).unwrap();
    let after = after_standing_down(&recording);
    assert_eq!(after.is_some(), down);
    let Some((at, points)) = after else { return };
    assert!(!points.is_empty());
    for p in points {
        assert!(p.paused && p.moves.is_empty(), "down at {at:?}, and then {p:#?}");
    }
}

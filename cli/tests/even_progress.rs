//! Threads progress evenly, by moves that the readings justify, and by no others.
//!
//! Under `secretary` the moves cannot be held against a recording: each balancer goes by what it reads at
//! that moment, and the point that reports its swap has what was read up to five periods later, when
//! the thread that was behind may be ahead. Its swaps are held against progress in virtual time
//! (`whoever_is_swapped_is_behind_at_that_moment`, sim/tests/decentral.rs); here, that they are
//! swaps, and that all progress evenly.
//!
//! Nothing here depends on how fast the machine is or what else it runs: what other work takes from
//! the threads is rightly balanced, so that each move is held against what was read at its own
//! balancing point, and progress is counted in CPU time. What balancing is worth in time is for the
//! benchmarks (`balanced-2-on-2`: the slow-down of a balanced program).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_engine::{Event, MoveRecord, PointRecord, ThreadRecord};
use evenly_model::Reason;
use evenly_trace::Recording;
use std::collections::BTreeMap;
use std::path::Path;

/// How many points of a balanced run are looked at.
const POINTS: usize = 60;

/// The points of a balanced run in which all threads of the program were there: it computes until there are
/// enough of them.
fn balanced(policy: &str, threads: usize) -> Vec<PointRecord> {
    let (state, program) = (State::new(), Running::computing(threads as u32));
    let (record, pid) = (state.sign("record"), program.pid().to_string());
    let n = threads.to_string();
    let options = ["--policy", policy, "--period", "10ms", "--budget", "50", "--no-guard"];
    let further = ["--domain", "machine", "--threads", &n, "--record", &record, &pid];
    let mut evenly = state.start(&[&["attach"], &options[..], &further].concat());
    let point = "\"event\":\"point\"";
    wait_until("enough points", || {
        assert!(evenly.is_alive(), "{}", evenly.stderr());
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        text.matches(point).count() >= POINTS + 2
    });
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let recording = Recording::read(Path::new(&record)).unwrap();
    let points = recording.events.into_iter().filter_map(|e| match e {
        Event::Point(p) if p.threads.len() == threads => Some(p),
        _ => None,
    });
    let points: Vec<PointRecord> = points.collect();
    assert!(points.len() >= POINTS, "{} points: {}", points.len(), evenly.stderr());
    points
}

fn thread<'a>(p: &'a PointRecord, m: &MoveRecord) -> &'a ThreadRecord {
    p.threads.iter().find(|t| t.id == m.id).unwrap()
}

/// Whether a thread hardly wanted a CPU in this period: it gives up its place first.
fn rested(p: &PointRecord, t: &ThreadRecord) -> bool {
    (t.ran + t.waited).0 * 20 <= p.elapsed.0
}

/// A move is one half of a swap of a thread that is behind with one that is ahead, or goes to a CPU
/// that had no thread of the program, or evens out how many threads the CPUs hold.
fn assert_justified(p: &PointRecord) {
    // Where the threads were before these moves.
    let mut counts: BTreeMap<_, usize> = p.cpus.iter().map(|c| (c.id, 0)).collect();
    for t in &p.threads {
        let at = p.moves.iter().find(|m| m.id == t.id).map_or(t.cpu, |m| m.from);
        *counts.entry(at).or_default() += 1;
    }
    for m in &p.moves {
        let (mine, from, to) = (thread(p, m), counts[&m.from], counts[&m.to]);
        match m.reason {
            Reason::Behind | Reason::Ahead => {
                let other = p.moves.iter().find(|o| {
                    (o.from, o.to) == (m.to, m.from) && o.id != m.id && o.reason != m.reason
                });
                let Some(other) = other.map(|o| thread(p, o)) else {
                    assert!(m.reason == Reason::Behind && to == 0, "{m:?} alone: {p:#?}");
                    continue;
                };
                let (behind, ahead) =
                    if m.reason == Reason::Behind { (mine, other) } else { (other, mine) };
                assert!(behind.progress < ahead.progress || rested(p, ahead), "{m:?}: {p:#?}");
            }
            // The first distribution, and what the kernel has undone of it.
            _ => {
                let outside = !p.cpus.iter().any(|c| c.id == m.from);
                assert!(from > to || m.from == m.to || outside, "{m:?}: {p:#?}");
            }
        }
    }
}

/// In the last point a thread may have ended before its half of a swap was made.
fn assert_all_justified(points: &[PointRecord]) {
    points[..points.len() - 1].iter().for_each(assert_justified);
}

fn are_moved_for_a_reason_only(policy: &str) {
    let Some(whole) = whole() else { return };
    assert_all_justified(&balanced(policy, whole.len()));
}

#[test]
fn under_juggle_threads_with_a_cpu_each_are_moved_for_a_reason_only() {
    are_moved_for_a_reason_only("juggle");
}

#[test]
fn under_hybrid_threads_with_a_cpu_each_are_moved_for_a_reason_only() {
    are_moved_for_a_reason_only("hybrid");
}

fn are_moved_where_they_are_behind(policy: &str) {
    let Some(whole) = whole() else { return };
    let points = balanced(policy, whole.len() + 1);
    assert_all_justified(&points);
    assert_even(policy, &points);
}

#[test]
fn juggle_moves_threads_that_are_behind_and_all_progress_evenly() {
    are_moved_where_they_are_behind("juggle");
}

#[test]
fn hybrid_moves_threads_that_are_behind_and_all_progress_evenly() {
    are_moved_where_they_are_behind("hybrid");
}

fn is_swap(m: &MoveRecord) -> bool {
    matches!(m.reason, Reason::Behind | Reason::Ahead)
}

/// Of n + 1 threads on n CPUs two share a CPU, and each of the others has one: left there, they get half
/// of what the others get. Taking turns, none is ever ahead by more than it gets in a few periods.
fn assert_even(policy: &str, points: &[PointRecord]) {
    let last = points.last().unwrap();
    let most = last.threads.iter().map(|t| t.progress).max().unwrap();
    let least = last.threads.iter().map(|t| t.progress).min().unwrap();
    let mean = last.threads.iter().map(|t| t.progress).sum::<i64>() / last.threads.len() as i64;
    let moved: Vec<usize> = (last.threads.iter())
        .map(|t| points.iter().flat_map(|p| &p.moves).filter(|m| m.id == t.id).count())
        .collect();
    assert!(
        (most - least) * 4 < mean,
        "{policy}: {least} to {most} ns of CPU time after {} points, moves {moved:?}",
        points.len()
    );
    // Other work may happen to make the CPUs equally fast: then no thread is ever behind, or by less than it gets in
    // a few periods, and none need be moved.
    let swaps = points.iter().flat_map(|p| &p.moves).filter(|m| is_swap(m)).count();
    assert!(
        swaps > 0 || (most - least) * 10 < mean,
        "{policy}: {least} to {most} ns of CPU time, and no thread was moved for it"
    );
}

#[test]
fn under_secretary_threads_are_swapped_in_pairs_and_progress_evenly() {
    let Some(whole) = whole() else { return };
    // A point is recorded every five periods.
    let points = balanced("secretary", whole.len() + 1);
    for p in &points[..points.len() - 1] {
        let moves: Vec<&MoveRecord> = p.moves.iter().filter(|m| is_swap(m)).collect();
        for pair in moves.chunks(2) {
            // The one that leaves others behind goes first, so that no CPU is left unused on the way.
            let [first, second] = pair else { panic!("half a swap: {p:#?}") };
            assert!(
                first.reason != second.reason
                    && (first.from, first.to) == (second.to, second.from)
                    && first.id != second.id,
                "no swap: {first:?}, {second:?}"
            );
        }
    }
    assert_even("secretary", &points);
}

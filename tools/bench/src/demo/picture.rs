//! Who ran where, as the program itself has noted it (`omp_spmd --trace`): the threads of some phases on
//! the CPUs, with and without evenly below each other.
//!
//! A recording of evenly's shows one state a period, and here a phase is shorter than that.

use anyhow::Context;
use evenly_engine::{CpuRecord, Event, PointRecord, ThreadMeta, ThreadRecord};
use evenly_model::stats::median;
use evenly_model::{CpuId, CpuSet, DomainId, Nanos, Pid, ThreadId, Tid};
use evenly_trace::{Recording, svg};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What is drawn as one state.
const SLOT_S: f64 = 20e-6;

/// Where and when a thread computed a part of a phase: a line of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct Piece {
    thread: usize,
    phase: u64,
    /// The CPU on which the piece ended.
    cpu: u32,
    /// Seconds of the monotonic clock.
    began_s: f64,
    ended_s: f64,
    /// CPU time of the piece, in seconds.
    ran_s: f64,
}

/// The pieces of a trace, in no order.
///
/// # Errors
/// Where a line is no piece.
pub(super) fn pieces(trace: &str) -> anyhow::Result<Vec<Piece>> {
    let piece = |line| serde_json::from_str(line).with_context(|| format!("not a piece: {line}"));
    trace.lines().map(piece).collect()
}

/// The pieces of `phases` phases in a row that took as long as most do, from the second half of the run: evenly has begun
/// by then. All where there are fewer.
pub(super) fn typical(pieces: &[Piece], phases: usize) -> Vec<Piece> {
    let mut began: BTreeMap<u64, f64> = BTreeMap::new();
    for p in pieces {
        let first = began.entry(p.phase).or_insert(p.began_s);
        *first = first.min(p.began_s);
    }
    let began: Vec<(u64, f64)> = began.into_iter().collect();
    let windows: Vec<(u64, u64, f64)> = (began.len() / 2..)
        .step_by(phases.max(1))
        .map_while(|i| Some((*began.get(i)?, *began.get(i + phases)?)))
        .map(|(first, after)| (first.0, after.0, after.1 - first.1))
        .collect();
    let usual = median(&windows.iter().map(|w| w.2).collect::<Vec<f64>>()).unwrap_or(0.0);
    let off = |w: &&(u64, u64, f64)| (w.2 - usual).abs();
    let chosen = windows.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
    let (from, to) = chosen.map_or((0, u64::MAX), |w| (w.0, w.1));
    pieces.iter().copied().filter(|p| (from..to).contains(&p.phase)).collect()
}

/// What a thread got within a stretch of time, on each CPU, in seconds.
fn ran(pieces: &[Piece], thread: usize, from: f64, to: f64) -> BTreeMap<u32, f64> {
    let mut on = BTreeMap::new();
    for p in pieces.iter().filter(|p| p.thread == thread) {
        let within = p.ended_s.min(to) - p.began_s.max(from);
        if within > 0.0 {
            // Where in the piece it had no CPU is not known.
            *on.entry(p.cpu).or_insert(0.0) += p.ran_s * within / (p.ended_s - p.began_s);
        }
    }
    on
}

/// The pieces as a recording that begins with the first.
pub(super) fn recording(pieces: &[Piece], cpus: &CpuSet) -> Recording {
    let domain = DomainId(0);
    let id = |thread: usize| ThreadId { tid: Tid(thread as i32 + 1), start: 0 };
    let mut events = vec![Event::Domain { at: Nanos::ZERO, domain, cpus: cpus.clone() }];
    let threads = pieces.iter().map(|p| p.thread + 1).max().unwrap_or(0);
    for t in 0..threads {
        let thread = ThreadMeta { id: id(t), pid: Pid(1), name: format!("thread {}", t + 1) };
        events.push(Event::Joined { at: Nanos::ZERO, domain, thread });
    }
    let begin = pieces.iter().map(|p| p.began_s).fold(f64::INFINITY, f64::min);
    let end = pieces.iter().map(|p| p.ended_s).fold(begin, f64::max);
    let slots = if pieces.is_empty() { 0 } else { ((end - begin) / SLOT_S).ceil() as u64 };
    for slot in 0..slots {
        let from = begin + slot as f64 * SLOT_S;
        let found = |t| {
            let on = ran(pieces, t, from, from + SLOT_S);
            let (cpu, _) = on.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
            Some(state(id(t), *cpu, Nanos::from_secs_f64(on.values().sum())))
        };
        let elapsed = Nanos::from_secs_f64(SLOT_S);
        events.push(Event::Point(PointRecord {
            domain,
            point: slot,
            at: Nanos(elapsed.0 * (slot + 1)),
            elapsed,
            paused: false,
            held: false,
            spins_progress: false,
            agents: false,
            others: Vec::new(),
            arm: None,
            cost: Nanos::ZERO,
            threads: (0..threads).filter_map(found).collect(),
            cpus: cpus.iter().map(|id| CpuRecord { id, threads: 0, speed: None }).collect(),
            moves: Vec::new(),
            weights: Vec::new(),
        }));
    }
    Recording::of(events)
}

fn state(id: ThreadId, cpu: u32, ran: Nanos) -> ThreadRecord {
    ThreadRecord {
        id,
        cpu: CpuId(cpu),
        progress: 0,
        ran,
        waited: Nanos::ZERO,
        blocked: Nanos::ZERO,
        spinning: None,
        turns: None,
        minor_faults: 0,
        major_faults: 0,
    }
}

/// The recordings below each other, each with its label.
pub(super) fn draw(title: &str, panels: &[(&str, Recording)]) -> String {
    let all: Vec<(&str, &Recording)> = panels.iter().map(|(l, r)| (*l, r)).collect();
    let options =
        svg::TimelineOptions { title: title.to_owned(), ..svg::TimelineOptions::default() };
    svg::timeline(&all, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Phases of so many ms in which `cpu(thread, half)` says where each of three threads computes in each half, in
    /// which it gets all of the time.
    fn run(lengths_ms: &[f64], cpu: impl Fn(usize, u64, usize) -> Option<u32>) -> Vec<Piece> {
        let mut all = Vec::new();
        let mut began = 5.0;
        for (phase, length) in lengths_ms.iter().enumerate() {
            for (thread, half) in (0..3).flat_map(|t| [(t, 0), (t, 1)]) {
                let Some(cpu) = cpu(thread, phase as u64, half) else { continue };
                let began_s = began + half as f64 * length / 2e3;
                let (ended_s, ran_s) = (began_s + length / 2e3, length / 2e3);
                all.push(Piece { thread, phase: phase as u64, cpu, began_s, ended_s, ran_s });
            }
            began += length / 1e3;
        }
        all
    }

    #[test]
    fn a_trace_is_read_and_what_is_none_is_named() {
        let line = r#"{"thread":2,"phase":7,"cpu":1,"began_s":1.5,"ended_s":1.75,"ran_s":0.25}"#;
        let read = pieces(&format!("{line}\n{line}\n")).unwrap();
        assert_eq!(read.len(), 2);
        let Piece { thread, phase, cpu, began_s, ended_s, ran_s } = read[0];
        assert_eq!((thread, phase, cpu), (2, 7, 1));
        assert_eq!((began_s, ended_s, ran_s), (1.5, 1.75, 0.25));
        assert!(pieces("{}\n").unwrap_err().to_string().contains("not a piece: {}"));
    }

    #[test]
    fn what_is_shown_is_the_usual_of_the_second_half() {
        // Half of the run is learning; then comes one stretch that is slow, and one that is fast.
        let mut lengths = vec![9.0; 20];
        lengths.extend([3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
        lengths.extend([9.0; 10].map(|_| 2.0));
        let all = run(&lengths, |t, _, _| Some(t as u32));
        let phases: BTreeSet<u64> = typical(&all, 2).iter().map(|p| p.phase).collect();
        assert_eq!(phases, BTreeSet::from([22, 23]));
        assert_eq!(typical(&all[..6], 2), all[..6]);
        assert_eq!(typical(&[], 2), []);
    }

    #[test]
    fn the_picture_has_who_ran_where_in_each_half_of_a_phase() {
        // Thread 2 goes from one CPU to the other in the middle; alone on each it would have waited.
        let turns = |t: usize, phase: u64, half: usize| match t {
            0 if phase == 0 => (half == 0).then_some(0),
            1 => (half == 1).then_some(1),
            _ => Some(if half == 0 { 1 } else { 0 }),
        };
        let panels = [
            ("Linux alone", recording(&run(&[2.0, 2.0], |t, _, _| Some(t as u32 / 2)), &two())),
            ("evenly", recording(&run(&[1.0], turns), &two())),
        ];
        let picture = draw("a title", &panels);
        assert!(picture.contains("a title") && picture.contains("Linux alone"), "{picture}");
        let panels: Vec<&str> = picture.split(r#"class="head">"#).skip(1).collect();
        assert_eq!(panels.len(), 2);
        assert_eq!(drawn(panels[0]), BTreeSet::from([(1, 0), (2, 0), (3, 1)]));
        assert_eq!(drawn(panels[1]), BTreeSet::from([(1, 0), (2, 1), (3, 1), (3, 0)]));
        // It is done after a quarter of the time.
        let end = |panel: &str| -> f64 {
            let line = panel.split(r#"class="mark" x1=""#).nth(1).unwrap();
            line.split('"').next().unwrap().parse::<f64>().unwrap() - 64.0
        };
        assert!((end(panels[1]) / end(panels[0]) - 0.25).abs() < 0.01, "{picture}");
        assert!(draw("", &[("", recording(&[], &two()))]).ends_with("</svg>\n"));
    }

    fn two() -> CpuSet {
        "0-1".parse().unwrap()
    }

    /// Which thread is drawn on which CPU.
    fn drawn(panel: &str) -> BTreeSet<(i32, u32)> {
        let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let spans = panel.split("title>").filter(|span| span.contains("% of CPU "));
        spans
            .map(|span| {
                let tid = number(span.split_once('(').unwrap().1).parse().unwrap();
                (tid, number(span.split_once("of CPU ").unwrap().1).parse().unwrap())
            })
            .collect()
    }
}

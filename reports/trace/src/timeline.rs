//! Who ran where: the recording as rows of spans, one for each CPU.
//!
//! A span says how much CPU time each thread got on the CPU in a stretch of time, so that areas are
//! CPU time. A thread counts for the CPU on which it was found at the end of the period: what it did
//! on another one within the same period is not known.
//!
//! Invariant: the spans of a row are in order and do not overlap.

use crate::reader::Recording;
use evenly_engine::{Event, PointRecord};
use evenly_model::{CpuId, DomainId, Nanos, Pid, ThreadId};
use std::collections::{BTreeMap, HashMap};

/// Least share of a span, in CPU time, with which a thread is shown.
const VISIBLE: f64 = 0.01;
/// How far shares may differ for neighbours to be drawn as one.
const ALIKE: f64 = 0.1;
/// Most threads that are shown in one span that stands for several periods.
const MAX_SHARERS: usize = 16;

/// A thread as exporters name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor {
    pub(crate) id: ThreadId,
    pub(crate) pid: Option<Pid>,
    pub(crate) name: String,
}

impl Actor {
    /// How the thread is called: `name (812)`.
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() {
            format!("thread {}", self.id)
        } else {
            format!("{} ({})", self.name, self.id)
        }
    }
}

/// All threads of a recording, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(crate) struct Cast {
    pub(crate) actors: Vec<Actor>,
    index: HashMap<ThreadId, usize>,
}

impl Cast {
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut cast = Self::default();
        for event in &recording.events {
            match event {
                Event::Joined { thread, .. } => {
                    let i = cast.enter(thread.id);
                    cast.actors[i].pid = Some(thread.pid);
                    cast.actors[i].name.clone_from(&thread.name);
                }
                Event::Point(p) => {
                    for t in &p.threads {
                        cast.enter(t.id);
                    }
                    for m in &p.moves {
                        cast.enter(m.id);
                    }
                }
                Event::Left { id, .. } => {
                    cast.enter(*id);
                }
                Event::Domain { .. } | Event::Note { .. } => {}
            }
        }
        cast
    }

    fn enter(&mut self, id: ThreadId) -> usize {
        *self.index.entry(id).or_insert_with(|| {
            self.actors.push(Actor { id, pid: None, name: String::new() });
            self.actors.len() - 1
        })
    }

    pub(crate) fn index_of(&self, id: ThreadId) -> Option<usize> {
        self.index.get(&id).copied()
    }
}

/// A stretch of time on one CPU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Threads, by index in the cast, and the CPU time in nanoseconds that each got.
    pub(crate) who: Vec<(usize, f64)>,
}

impl Span {
    pub(crate) fn length(&self) -> f64 {
        self.end.saturating_sub(self.start) as f64
    }

    /// Threads with their shares of the span; together at most 1.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let ran: f64 = self.who.iter().map(|(_, ran)| ran).sum();
        let whole = self.length().max(ran).max(1.0);
        self.who.iter().map(move |&(thread, ran)| (thread, ran / whole))
    }

    fn is_like(&self, other: &Self) -> bool {
        self.who.len() == other.who.len()
            && self
                .shares()
                .zip(other.shares())
                .all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() <= ALIKE)
    }
}

/// The rows of a recording.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Spans per CPU, in ascending order of CPUs.
    pub(crate) rows: BTreeMap<CpuId, Vec<Span>>,
    /// When balancing was paused.
    pub(crate) paused: Vec<(u64, u64)>,
    /// The last moment, in nanoseconds.
    pub(crate) end: u64,
}

/// Gives each full point the time for which it stands: its period, and where points before it were
/// thinned out also theirs.
pub(crate) struct Stretches<'a> {
    recording: &'a Recording,
    last: HashMap<DomainId, (u64, Nanos)>,
}

impl<'a> Stretches<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Self {
        Self { recording, last: HashMap::new() }
    }

    /// Start and end for a point; None for one of which only moves were kept. To be asked for the
    /// points in their order.
    pub(crate) fn of_point(&mut self, p: &PointRecord) -> Option<(u64, u64)> {
        if p.threads.is_empty() && p.cpus.is_empty() {
            return None;
        }
        let keep_every =
            self.recording.thinning.iter().rev().find(|t| t.at <= p.at).map_or(1, |t| t.keep_every);
        let own = (p.at - p.elapsed).0;
        let start = match self.last.insert(p.domain, (p.point, p.at)) {
            Some((number, at)) if p.point > number && p.point - number <= keep_every => {
                own.min(at.0)
            }
            _ => own,
        };
        Some((start, p.at.0))
    }
}

impl Timeline {
    pub(crate) fn of(recording: &Recording, cast: &Cast) -> Self {
        let mut timeline = Self { end: recording.duration().0, ..Self::default() };
        let mut stretches = Stretches::of(recording);
        for event in &recording.events {
            let p = match event {
                Event::Domain { cpus, .. } => {
                    for cpu in cpus.iter() {
                        timeline.rows.entry(cpu).or_default();
                    }
                    continue;
                }
                Event::Point(p) => p,
                _ => continue,
            };
            let Some((start, end)) = stretches.of_point(p) else { continue };
            if p.paused {
                match timeline.paused.last_mut() {
                    Some(last) if start <= last.1 => last.1 = last.1.max(end),
                    _ => timeline.paused.push((start, end)),
                }
            }
            for c in &p.cpus {
                timeline.rows.entry(c.id).or_default();
            }
            // A thinned recording knows the time of the last period only: it stands for the others.
            let stretched = (end - start) as f64 / (p.elapsed.0.max(1)) as f64;
            let mut who: BTreeMap<CpuId, Vec<(usize, f64)>> = BTreeMap::new();
            for t in &p.threads {
                let share = t.ran.0 as f64 / p.elapsed.0.max(1) as f64;
                if let Some(i) = cast.index_of(t.id).filter(|_| share >= VISIBLE) {
                    who.entry(t.cpu).or_default().push((i, t.ran.0 as f64 * stretched.max(1.0)));
                }
            }
            for (cpu, mut who) in who {
                who.sort_by_key(|(thread, _)| *thread);
                add(timeline.rows.entry(cpu).or_default(), Span { start, end, who });
            }
        }
        timeline
    }

    /// The rows with at most `most` spans each; whether anything was summed up for that.
    pub(crate) fn reduced(&self, most: usize) -> (BTreeMap<CpuId, Vec<Span>>, bool) {
        let mut summed = false;
        let rows = self
            .rows
            .iter()
            .map(|(cpu, row)| {
                if row.len() <= most.max(1) {
                    return (*cpu, row.clone());
                }
                summed = true;
                (*cpu, in_slots(row, self.end, most.max(1)))
            })
            .collect();
        (rows, summed)
    }
}

/// Adds a span behind the others, or lengthens the last one where it is like this.
fn add(row: &mut Vec<Span>, mut span: Span) {
    if let Some(last) = row.last_mut() {
        // Clocks are read at slightly different moments: such a gap, or overlap, means nothing.
        if span.start.saturating_sub(last.end) <= span.end.saturating_sub(span.start) / 50 {
            span.start = last.end;
        }
        if span.start >= span.end {
            return;
        }
        if last.end == span.start && last.is_like(&span) {
            last.end = span.end;
            for (a, b) in last.who.iter_mut().zip(&span.who) {
                a.1 += b.1;
            }
            return;
        }
    }
    if span.start < span.end {
        row.push(span);
    }
}

/// Sums a row up in `slots` slots of equal length.
fn in_slots(row: &[Span], end: u64, slots: usize) -> Vec<Span> {
    let edge = |slot: usize| (u128::from(end) * slot as u128 / slots as u128) as u64;
    let mut out = Vec::new();
    let mut next = 0;
    for slot in 0..slots {
        let (from, to) = (edge(slot), edge(slot + 1));
        let mut sum: BTreeMap<usize, f64> = BTreeMap::new();
        while next < row.len() && row[next].start < to {
            let s = &row[next];
            let overlap = s.end.min(to).saturating_sub(s.start.max(from)) as f64;
            for &(thread, ran) in &s.who {
                *sum.entry(thread).or_default() += ran * overlap / s.length().max(1.0);
            }
            if s.end > to {
                break;
            }
            next += 1;
        }
        let visible = VISIBLE * to.saturating_sub(from) as f64;
        let mut who: Vec<_> = sum.into_iter().filter(|&(_, ran)| ran >= visible).collect();
        who.sort_by(|a, b| b.1.total_cmp(&a.1));
        who.truncate(MAX_SHARERS);
        who.sort_by_key(|(thread, _)| *thread);
        if !who.is_empty() {
            add(&mut out, Span { start: from, end: to, who });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    fn of(points: u64, rotate: bool) -> (Cast, Timeline) {
        let bytes = testdata::bytes(
            &testdata::header(),
            &testdata::events(points, rotate),
            &serde_json::Value::Null,
        );
        let recording = Recording::parse(&bytes).unwrap();
        let cast = Cast::of(&recording);
        let timeline = Timeline::of(&recording, &cast);
        (cast, timeline)
    }

    fn total(rows: &BTreeMap<CpuId, Vec<Span>>) -> f64 {
        rows.values().flatten().flat_map(|s| &s.who).map(|(_, ran)| ran).sum()
    }

    #[test]
    fn equal_neighbours_are_one_span() {
        let (cast, t) = of(100, false);
        assert_eq!(cast.actors[2].label(), "worker<2> (814)");
        assert_eq!(t.rows.len(), 2);
        let alone = Span { start: 0, end: 1_000_000_000, who: vec![(0, 1e9)] };
        assert_eq!(t.rows[&CpuId(0)], [alone]);
        assert_eq!(t.rows[&CpuId(1)][0].who, [(1, 5e8), (2, 5e8)]);
        assert_eq!(t.paused, [(30_000_000, 40_000_000)]);
    }

    #[test]
    fn slots_keep_the_cpu_time() {
        let (_, t) = of(1000, true);
        assert_eq!(t.rows[&CpuId(0)].len(), 1000);
        for most in [1, 7, 64, 999] {
            let (rows, summed) = t.reduced(most);
            assert!(summed && rows.values().all(|r| r.len() <= most));
            assert!((total(&rows) / total(&t.rows) - 1.0).abs() < 0.01, "{most}");
        }
        let (rows, summed) = t.reduced(1000);
        assert!(!summed);
        assert_eq!(rows, t.rows);
    }

    #[test]
    fn a_kept_point_stands_for_those_thinned_out_before_it() {
        let mut bytes = testdata::bytes(
            &testdata::header(),
            &testdata::events(8, false),
            &serde_json::Value::Null,
        );
        let text = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
        let thinned: Vec<String> = text
            .lines()
            .filter(|l| !(l.contains("\"point\":5,") || l.contains("\"point\":7,")))
            .map(|l| {
                if l.contains("\"point\":4,") {
                    let note = r#"{"event":"note","at":50000000,"text":"2nd","keep_every":2}"#;
                    format!("{l}\n{note}")
                } else {
                    l.to_owned()
                }
            })
            .collect();
        let recording = Recording::parse((thinned.join("\n") + "\n").as_bytes()).unwrap();
        let t = Timeline::of(&recording, &Cast::of(&recording));
        let alone = Span { start: 0, end: 70_000_000, who: vec![(0, 7e7)] };
        assert_eq!(t.rows[&CpuId(0)], [alone]);
        // Without the note the lost point is a gap.
        let without: Vec<String> =
            text.lines().filter(|l| !l.contains("\"point\":5,")).map(str::to_owned).collect();
        let recording = Recording::parse((without.join("\n") + "\n").as_bytes()).unwrap();
        let t = Timeline::of(&recording, &Cast::of(&recording));
        assert_eq!(t.rows[&CpuId(0)].len(), 2);
    }
}

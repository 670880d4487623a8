//! A small recording for tests: three threads on two CPUs, swapped at each point, as Juggle does.

use crate::format::{self, Counts, Encoder, Header};
use crate::reader::Recording;
use evenly_engine::{CpuRecord, Event, MoveRecord, PointRecord, ThreadMeta, ThreadRecord};
use evenly_model::{CpuId, DomainId, Nanos, Pid, Reason, ThreadId, Tid};

pub(crate) fn id(i: usize) -> ThreadId {
    ThreadId { tid: Tid(812 + i as i32), start: 4_000 + i as u64 }
}

pub(crate) fn header() -> Header {
    Header {
        evenly: "0.1.0".to_owned(),
        command: vec!["./spmd".to_owned(), "--threads".to_owned(), "3".to_owned()],
        host: [("kernel", "6.1.0"), ("cpus", "2")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        settings: [("policy".to_owned(), "juggle".to_owned())].into(),
        started_unix_ms: 1_700_000_000_000,
    }
}

/// Where thread `i` of three sits in period `k`: CPU 0 alone in turns, else together on CPU 1.
fn cpu_of(i: usize, k: u64, rotate: bool) -> CpuId {
    CpuId(u32::from(i as u64 != if rotate { k % 3 } else { 0 }))
}

/// The events of `points` periods of 10 ms; with `rotate` the thread alone on its CPU changes.
pub(crate) fn events(points: u64, rotate: bool) -> Vec<Event> {
    let domain = DomainId(0);
    let mut all = vec![Event::Domain { at: Nanos::ZERO, domain, cpus: "0-1".parse().unwrap() }];
    for i in 0..3 {
        let thread = ThreadMeta { id: id(i), pid: Pid(811), name: format!("worker<{i}>") };
        all.push(Event::Joined { at: Nanos(i as u64 * 1_000), domain, thread });
    }
    let mut progress = [0i64; 3];
    for k in 0..points {
        let threads: Vec<ThreadRecord> = (0..3)
            .map(|i| {
                let cpu = cpu_of(i, k, rotate);
                let ran = if cpu.0 == 0 { 10_000_000 } else { 5_000_000 };
                progress[i] += ran;
                ThreadRecord {
                    id: id(i),
                    cpu,
                    progress: progress[i],
                    ran: Nanos(ran as u64),
                    waited: Nanos(10_000_000 - ran as u64),
                    blocked: Nanos::ZERO,
                    spinning: None,
                    turns: None,
                    minor_faults: 7 * (k + 1),
                    major_faults: 0,
                }
            })
            .collect();
        let moves = (0..3)
            .filter(|&i| cpu_of(i, k, rotate) != cpu_of(i, k + 1, rotate))
            .map(|i| MoveRecord {
                id: id(i),
                from: cpu_of(i, k, rotate),
                to: cpu_of(i, k + 1, rotate),
                reason: if cpu_of(i, k, rotate).0 == 0 { Reason::Ahead } else { Reason::Behind },
                error: (k == 1 && i == 1).then(|| "the thread has ended".to_owned()),
            })
            .collect();
        all.push(Event::Point(PointRecord {
            domain,
            point: k,
            at: Nanos::from_millis(10 * (k + 1)),
            elapsed: Nanos::from_millis(10),
            paused: k == 3,
            held: false,
            spins_progress: false,
            agents: false,
            others: if k == 2 { vec![0, 1] } else { Vec::new() },
            arm: None,
            cost: Nanos::from_micros(12),
            threads,
            cpus: vec![
                CpuRecord { id: CpuId(0), threads: 1, speed: Some(1.0) },
                CpuRecord { id: CpuId(1), threads: 2, speed: Some(0.5) },
            ],
            moves,
            weights: Vec::new(),
        }));
    }
    let end = Nanos::from_millis(10 * points);
    all.push(Event::Note { at: end, text: "stood down: balancing does not pay".to_owned() });
    all.extend((0..3).map(|i| Event::Left { at: end, id: id(i), ended: true, to: None }));
    all
}

pub(crate) fn bytes(header: &Header, events: &[Event], summary: &serde_json::Value) -> Vec<u8> {
    let mut out = Vec::new();
    format::header(header, &mut out).unwrap();
    let mut encoder = Encoder::default();
    for event in events {
        encoder.event(event, &mut out).unwrap();
    }
    let points = events.iter().filter(|e| matches!(e, Event::Point(_))).count() as u64;
    format::end(Counts { points, dropped: 0, thinned: 0 }, Some(summary), &mut out).unwrap();
    out
}

pub(crate) fn small_bytes() -> Vec<u8> {
    let summary = serde_json::json!({
        "verdict": "level to 1 % & <more>", "migrations": 8, "level": {"min": 1.0, "max": 1.5}
    });
    bytes(&header(), &events(5, true), &summary)
}

pub(crate) fn small() -> Recording {
    Recording::parse(&small_bytes()).unwrap()
}

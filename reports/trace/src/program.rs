//! What a recording says of the program itself: how many threads on how many CPUs, and how long its
//! computation phases are.
//!
//! Invariant: a phase length is given only where barriers can be seen. A thread that waits spinning
//! looks like one that computes, and no guess is made about it.

use crate::reader::Recording;
use evenly_engine::{Event, PointRecord};
use evenly_model::{DomainId, Nanos};
use std::collections::BTreeMap;

/// A program as one domain of a recording shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The domain with most threads per CPU: its threads end last.
    pub domain: DomainId,
    /// How many domains with threads there are.
    pub domains: usize,
    /// n: the most threads at one point.
    pub threads: u32,
    /// m: usable CPUs, as last seen.
    pub cpus: u32,
    /// The median of all periods.
    pub period: Nanos,
    /// CPU time of a thread, on average, while all were there.
    pub ran: Nanos,
    /// Its phases, or why they are unknown.
    pub phases: Result<Phases, NoPhases>,
}

/// Computation phases that end at barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// e: CPU time of a thread for one phase.
    pub length: Nanos,
    /// On how many phases this rests.
    pub seen: u32,
    /// How many there were, about, while all threads were there.
    pub total: u64,
}

/// Why the length of a phase is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPhases {
    /// No thread ever waited for some periods: one phase, barriers at which threads spin, or
    /// threads of progress so equal that all arrive at once.
    #[error("its threads never wait for long, so that barriers cannot be seen")]
    NeverBlocked,
    /// A thread waits in almost every period.
    #[error("a thread waits almost always, so phases cannot be distinguished")]
    TooShort,
    /// Not enough of them.
    #[error("there are {found} whole phases between barriers, and at least {LEAST} are needed")]
    TooFew {
        /// How many phases were found.
        found: u32,
    },
    /// They differ too much.
    #[error("what lies between two waits differs too much from one to the next")]
    Irregular,
}

/// A thread waits at a barrier if it was blocked for this part of so many periods in a row. Less
/// can be the error of a reading: the kernel books a running thread's time once a tick, later where
/// it shares its CPU, and makes up for it at the next.
const WAITS: f64 = 0.6;
const WINDOW: usize = 3;
/// Whole phases that are needed.
const LEAST: u32 = 3;
/// Phases have to be this near to the median...
const NEAR: f64 = 0.25;
/// ...and this part of them has to be so.
const MOST: f64 = 0.7;
/// Where a thread waits in this part of the points, it waits all the time.
const ALWAYS: f64 = 0.9;

impl Recording {
    /// What the recording says of its program; none where it has no point with threads and CPUs.
    /// Points from the first thinning on are left out: the time between them is not known.
    #[must_use]
    pub fn program(&self) -> Option<Program> {
        let whole = self.thinning.first().map_or(Nanos(u64::MAX), |t| t.at);
        let mut domains: BTreeMap<DomainId, (u32, Vec<&PointRecord>)> = BTreeMap::new();
        for event in &self.events {
            match event {
                Event::Domain { domain, cpus, .. } if !cpus.is_empty() => {
                    let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
                    domains.entry(*domain).or_default().0 = count;
                }
                Event::Point(p) if !p.threads.is_empty() && p.at <= whole => {
                    domains.entry(p.domain).or_default().1.push(p);
                }
                _ => {}
            }
        }
        domains.retain(|_, (cpus, points)| *cpus > 0 && !points.is_empty());
        let count = domains.len();
        domains
            .into_iter()
            .map(|(domain, (cpus, points))| of_domain(domain, count, cpus, &points))
            .max_by(|a, b| {
                let per_cpu = |p: &Program, q: &Program| u64::from(p.threads) * u64::from(q.cpus);
                // Of equals the first.
                per_cpu(a, b).cmp(&per_cpu(b, a)).then(b.domain.cmp(&a.domain))
            })
    }
}

fn of_domain(domain: DomainId, domains: usize, cpus: u32, points: &[&PointRecord]) -> Program {
    let threads = points.iter().map(|p| p.threads.len()).max().unwrap_or(0);
    let full: Vec<&PointRecord> =
        points.iter().copied().filter(|p| p.threads.len() == threads).collect();
    let ran = |p: &PointRecord| p.threads.iter().map(|t| t.ran.0 as f64).sum::<f64>();
    let each = |sum: f64| Nanos((sum / threads.max(1) as f64) as u64);
    Program {
        domain,
        domains,
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        cpus,
        period: median(points.iter().map(|p| p.elapsed).collect()),
        ran: each(full.iter().map(|p| ran(p)).sum()),
        phases: phases(&full, |part| each(part.iter().map(|p| ran(p)).sum())),
    }
}

fn median(mut all: Vec<Nanos>) -> Nanos {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(Nanos::ZERO)
}

/// A barrier is reached when a thread waits, and passed with the last window of that wait.
fn phases(
    points: &[&PointRecord],
    cpu_time: impl Fn(&[&PointRecord]) -> Nanos,
) -> Result<Phases, NoPhases> {
    let waits = |window: &[&PointRecord]| {
        let elapsed: f64 = window.iter().map(|p| p.elapsed.0 as f64).sum();
        let Some(first) = window.first() else { return false };
        first.threads.iter().any(|thread| {
            let busy: f64 = window
                .iter()
                .filter_map(|p| p.threads.iter().find(|t| t.id == thread.id))
                .map(|t| t.ran.0 as f64 + t.waited.0 as f64)
                .sum();
            busy < (1.0 - WAITS) * elapsed
        })
    };
    let waiting: Vec<bool> = points.windows(WINDOW).map(waits).collect();
    let count = waiting.iter().filter(|&&w| w).count();
    if count == 0 {
        return Err(NoPhases::NeverBlocked);
    }
    if count as f64 >= ALWAYS * waiting.len() as f64 {
        return Err(NoPhases::TooShort);
    }
    let passed: Vec<usize> =
        (0..waiting.len()).filter(|&i| waiting[i] && waiting.get(i + 1) == Some(&false)).collect();
    let lengths: Vec<Nanos> =
        passed.windows(2).map(|w| cpu_time(&points[w[0] + 1..=w[1]])).collect();
    let found = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
    if found < LEAST {
        return Err(NoPhases::TooFew { found });
    }
    let length = median(lengths.clone());
    let near = |l: &&Nanos| (l.0 as f64 / length.0.max(1) as f64 - 1.0).abs() <= NEAR;
    if (lengths.iter().filter(near).count() as f64) < MOST * lengths.len() as f64
        || length == Nanos::ZERO
    {
        return Err(NoPhases::Irregular);
    }
    let total = (cpu_time(points).0 as f64 / length.0 as f64).round().max(1.0) as u64;
    Ok(Phases { length, seen: found, total })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;
    use evenly_engine::{CpuRecord, ThreadRecord};
    use evenly_model::CpuId;

    const PERIOD: u64 = 10_000_000;

    /// Three threads, each of which is blocked for this part of a period, by point.
    fn recording(blocked: impl Fn(usize, u64) -> f64, points: u64) -> Recording {
        let mut events = testdata::events(0, true);
        events.retain(|e| !matches!(e, Event::Left { .. } | Event::Note { .. }));
        for k in 0..points {
            let threads = (0..3).map(|i| {
                let part = blocked(i, k);
                ThreadRecord {
                    id: testdata::id(i),
                    cpu: CpuId(0),
                    progress: 0,
                    ran: Nanos(PERIOD).scale((1.0 - part) * 2.0 / 3.0),
                    waited: Nanos(PERIOD).scale((1.0 - part) / 3.0),
                    blocked: Nanos(PERIOD).scale(part),
                    spinning: None,
                    turns: None,
                    minor_faults: 0,
                    major_faults: 0,
                }
            });
            events.push(Event::Point(PointRecord {
                domain: DomainId(0),
                point: k,
                at: Nanos(PERIOD * (k + 1)),
                elapsed: Nanos(PERIOD),
                paused: false,
                held: false,
                spins_progress: false,
                agents: false,
                others: Vec::new(),
                arm: None,
                cost: Nanos::ZERO,
                threads: threads.collect(),
                cpus: vec![CpuRecord { id: CpuId(0), threads: 3, speed: Some(1.0) }],
                moves: Vec::new(),
                weights: Vec::new(),
            }));
        }
        let bytes = testdata::bytes(&testdata::header(), &events, &serde_json::Value::Null);
        Recording::parse(&bytes).unwrap()
    }

    #[test]
    fn threads_cpus_and_period() {
        let p = testdata::small().program().unwrap();
        assert_eq!((p.threads, p.cpus, p.domains), (3, 2, 1));
        assert_eq!(p.period, Nanos(PERIOD));
        assert_eq!(p.phases, Err(NoPhases::NeverBlocked));
        // Five periods of 10 ms on two CPUs, for three threads.
        assert_eq!(p.ran, Nanos(33_333_333));
        assert_eq!(recording(|_, _| 0.0, 0).program(), None);
    }

    #[test]
    fn phases_between_barriers() {
        // A barrier every 20 periods, where one thread waits for 4; and readings err.
        let r = recording(
            |i, k| {
                let error = 0.5 * ((k + i as u64) % 2) as f64;
                if k % 20 >= 16 && i == 1 { 0.9 } else { error }
            },
            200,
        );
        let p = r.program().unwrap().phases.unwrap();
        assert_eq!((p.seen, p.total), (8, 10));
        // Two thirds of 20 periods, less by what the readings show as blocked.
        let ms = p.length.as_millis_f64();
        let blocked = (0.9 * 4.0 + 0.5 * 8.0 + 2.0 * 0.5 * 10.0) / 3.0;
        assert!((ms - (20.0 - blocked) * 20.0 / 3.0).abs() < 0.1, "{ms}");
    }

    #[test]
    fn a_barrier_that_was_not_seen_does_not_matter() {
        let seen = |k: u64| k % 20 >= 16 && k / 20 != 3;
        let r = recording(|i, k| if seen(k) && i == 1 { 1.0 } else { 0.0 }, 300);
        let p = r.program().unwrap().phases.unwrap();
        assert!((122.0..126.0).contains(&p.length.as_millis_f64()), "{p:?}");
        assert_eq!(p.total, 15);
    }

    #[test]
    fn phases_that_cannot_be_measured_are_not_reported() {
        let why = |blocked: &dyn Fn(usize, u64) -> f64, points| {
            recording(blocked, points).program().unwrap().phases.unwrap_err()
        };
        assert_eq!(why(&|_, _| 0.5, 50), NoPhases::NeverBlocked);
        let single = |i: usize, k: u64| if k % 20 == 19 && i == 1 { 1.0 } else { 0.0 };
        assert_eq!(why(&single, 100), NoPhases::NeverBlocked);
        assert_eq!(why(&|i, _| if i == 0 { 0.8 } else { 0.0 }, 50), NoPhases::TooShort);
        let waits = |k: u64, end: u64| end <= k && k < end + 4;
        let twice = |_: usize, k: u64| f64::from(u8::from(waits(k, 10) || waits(k, 30)));
        assert_eq!(why(&twice, 50), NoPhases::TooFew { found: 1 });
        // At squares: each stretch is longer than the one before.
        let squares = |_: usize, k: u64| f64::from(u8::from((4..20).any(|q| waits(k, q * q))));
        assert_eq!(why(&squares, 400), NoPhases::Irregular);
        assert_eq!(why(&|_, _| 1.0, 2), NoPhases::NeverBlocked);
    }
}

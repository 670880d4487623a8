//! Phases in virtual time: helpers that go by the timetable, on CPUs that share their time as Linux does,
//! against the shortest makespan that there can be.
#![allow(missing_docs)]

use evenly_model::{Nanos, shortest_makespan};
use evenly_phase::timetable::{Left, Step, Timetable};
use proptest::prelude::*;

/// What a move costs, for the timetable.
const COST: f64 = 20_000.0;

/// A machine whose CPUs run their threads in turns.
struct Turns {
    /// CPU time for which a thread runs at a stretch.
    slice: f64,
    /// By how much a helper is late.
    late: f64,
    /// CPU time that a move takes from the CPU that is left.
    toll: f64,
}

/// What a phase led to.
struct Outcome {
    makespan: f64,
    moves: usize,
    /// Where the threads are at its end.
    at: Vec<usize>,
}

struct Thread {
    expected: f64,
    left: f64,
    done: f64,
    cpu: usize,
}

struct Cpu {
    speed: f64,
    queue: Vec<usize>,
    /// What the first in the queue has left of its turn.
    turn: f64,
    /// When its helper looks next, how often it has looked, and until when it has the CPU.
    looks: Option<f64>,
    looked: usize,
    blocked: f64,
}

impl Turns {
    /// One phase of threads with so much work, where it is expected to be `expected`, and which are on these
    /// CPUs at first.
    fn run(&self, works: &[f64], expected: &[f64], at: &[usize], speeds: &[f64]) -> Outcome {
        let mut threads: Vec<Thread> = works
            .iter()
            .zip(expected)
            .zip(at)
            .map(|((&left, &expected), &cpu)| Thread { expected, left, done: 0.0, cpu })
            .collect();
        let mut cpus: Vec<Cpu> = speeds
            .iter()
            .enumerate()
            .map(|(c, &speed)| Cpu {
                speed,
                queue: (0..at.len()).filter(|&t| at[t] == c).collect(),
                turn: self.slice,
                looks: Some(0.0),
                looked: 0,
                blocked: 0.0,
            })
            .collect();
        let known: Vec<(usize, Nanos)> =
            at.iter().zip(expected).map(|(&cpu, &work)| (cpu, Nanos(work as u64))).collect();
        let mut timetable = Timetable::new(Nanos::ZERO, &known, speeds, Nanos(COST as u64));
        let (mut now, mut moves) = (0.0_f64, 0);
        while cpus.iter().any(|c| !c.queue.is_empty()) {
            // Until something happens.
            let mut step = f64::INFINITY;
            for c in &cpus {
                if let Some(looks) = c.looks {
                    step = step.min((looks - now).max(0.0));
                }
                if c.blocked > now {
                    step = step.min(c.blocked - now);
                } else if let Some(&first) = c.queue.first() {
                    step = step.min(threads[first].left.min(c.turn) / c.speed);
                }
            }
            for c in cpus.iter_mut().filter(|c| c.blocked <= now) {
                let Some(&first) = c.queue.first() else { continue };
                let ran = step * c.speed;
                threads[first].left -= ran;
                threads[first].done += ran;
                c.turn -= ran;
                if threads[first].left < 0.5 {
                    c.queue.remove(0);
                    c.turn = self.slice;
                } else if c.turn < 0.5 {
                    c.queue.rotate_left(1);
                    c.turn = self.slice;
                }
            }
            now += step;
            for c in 0..cpus.len() {
                if cpus[c].looks.is_none_or(|looks| looks > now + 0.5) {
                    continue;
                }
                let here: Vec<Left<usize>> = (0..threads.len())
                    .filter(|&t| threads[t].cpu == c)
                    .map(|t| {
                        let left = if threads[t].left < 0.5 {
                            0.0
                        } else {
                            threads[t].expected - threads[t].done
                        };
                        Left { thread: t, work: Nanos(left.max(0.0) as u64) }
                    })
                    .collect();
                let step = timetable.next(c, Nanos(now as u64), &here, cpus[c].looked, |_, _| true);
                cpus[c].looked += 1;
                cpus[c].looks = match step {
                    Step::Rest => None,
                    Step::Sleep(until) => Some((until.0 as f64).max(now + 1000.0) + self.late),
                    Step::Move(t, to) => {
                        let left =
                            here.iter().find(|l| l.thread == t).map_or(Nanos::ZERO, |l| l.work);
                        assert!(here.len() > 1, "a CPU is left without threads");
                        assert_ne!(to, c);
                        timetable.moved(c, to, left, Nanos(now as u64));
                        cpus[c].queue.retain(|&other| other != t);
                        cpus[c].turn = self.slice;
                        cpus[c].blocked = now + self.toll;
                        threads[t].cpu = to;
                        cpus[to].queue.push(t);
                        cpus[to].looks = Some(now);
                        moves += 1;
                        Some(now)
                    }
                };
            }
        }
        Outcome { makespan: now, moves, at: threads.iter().map(|t| t.cpu).collect() }
    }
}

/// Moves are free, and helpers in time.
const IDEAL: Turns = Turns { slice: 2.8e6, late: 0.0, toll: 0.0 };
/// As measured on a virtual machine: a helper wakes 5 us late, a move takes 10 us.
const REAL: Turns = Turns { slice: 2.8e6, late: 5_000.0, toll: 10_000.0 };

fn spread(n: usize, m: usize) -> Vec<usize> {
    (0..n).map(|t| t % m).collect()
}

/// The makespan without moves.
fn without(works: &[f64], at: &[usize], speeds: &[f64]) -> f64 {
    let load =
        |c: usize| at.iter().zip(works).filter(|(at, _)| **at == c).map(|(_, w)| w).sum::<f64>();
    (0..speeds.len()).map(|c| load(c) / speeds[c]).fold(0.0, f64::max)
}

/// Would catch: a phase of equal threads that does not end at e n / m, whatever n and m, from 0.2 ms to 100
/// ms, phase after phase from where the one before has left the threads.
#[test]
fn equal_threads_end_at_the_limit() {
    for (n, m) in [(3, 2), (5, 2), (8, 7), (9, 8), (16, 12), (65, 64), (600, 512)] {
        for e in [2e5, 1e6, 1e7, 1e8] {
            let (works, speeds) = (vec![e; n], vec![1.0; m]);
            let limit = shortest_makespan(&works, &speeds);
            assert!((limit - e * n as f64 / m as f64).abs() < 1.0);
            let mut at = spread(n, m);
            for phase in 0..3 {
                let found = IDEAL.run(&works, &works, &at, &speeds);
                let over = found.makespan / limit - 1.0;
                // In phases longer than a slice two threads share a CPU before one of them leaves it, and
                // neither can be kept from running while the next CPU waits for it.
                let shared = if e > IDEAL.slice && m > 2 { 0.08 } else { 0.01 };
                let allowed = shared + 2.0 * COST / limit;
                assert!(
                    over < allowed,
                    "{n} on {m}, e {e}, phase {phase}: {:.1} % over",
                    over * 100.0
                );
                // m - 1 cuts, some of them made in two.
                assert!(found.moves <= m + m / 4, "{n} on {m}: {} moves", found.moves);
                at = found.at;
            }
        }
    }
}

/// Would catch: moves that cost more than they gain where helpers are late and moves are not free.
#[test]
fn three_threads_on_two_cpus_gain_down_to_a_tenth_of_a_millisecond() {
    for (e, most) in [(1e5, 1.20), (2e5, 1.12), (1e6, 1.03), (1e7, 1.01)] {
        let works = [e; 3];
        let mut at = spread(3, 2);
        for _ in 0..4 {
            let found = REAL.run(&works, &works, &at, &[1.0; 2]);
            let ratio = found.makespan / (1.5 * e);
            assert!(ratio < most, "e {e}: {ratio:.3} of the limit");
            at = found.at;
        }
    }
}

#[test]
fn balanced_threads_are_not_moved() {
    for (n, m) in [(4, 2), (2, 2), (64, 64), (1, 2)] {
        let works = vec![1e6; n];
        assert_eq!(REAL.run(&works, &works, &spread(n, m), &vec![1.0; m]).moves, 0);
    }
}

fn work() -> impl Strategy<Value = f64> {
    (200_000.0..5_000_000.0_f64).prop_map(f64::round)
}

fn machine() -> impl Strategy<Value = (usize, Vec<f64>)> {
    (2..9_usize).prop_flat_map(|m| (Just(m), prop::collection::vec(work(), m + 1..4 * m)))
}

proptest! {
    /// Would catch: unequal work that ends later than it must, where it is known; too many moves; a phase
    /// that is slower for its moves.
    #[test]
    fn unequal_work_ends_near_the_limit((m, works) in machine()) {
        let (speeds, at) = (vec![1.0; m], spread(works.len(), m));
        let limit = shortest_makespan(&works, &speeds);
        let found = IDEAL.run(&works, &works, &at, &speeds);
        let never = without(&works, &at, &speeds);
        prop_assert!(found.makespan <= never + 1000.0, "{} without moves {never}", found.makespan);
        // At least three quarters of what can be gained are.
        let (gained, possible) = (never - found.makespan, never - limit);
        prop_assert!(gained >= 0.75 * possible - 10.0 * COST, "gained {gained} of {possible}");
    }

    /// Would catch: work that is not as expected, and phases that take longer for it than without moves, by
    /// more than what the moves themselves cost.
    #[test]
    fn mispredictions_cost_no_more_than_the_moves(
        (m, works) in machine(),
        noise in 0.0..1.0_f64,
        errors in prop::collection::vec(-1.0..1.0_f64, 32),
    ) {
        let (speeds, at) = (vec![1.0; m], spread(works.len(), m));
        let expected: Vec<f64> =
            works.iter().zip(errors.iter().cycle()).map(|(w, e)| w * (1.0 + noise * e)).collect();
        let found = REAL.run(&works, &expected, &at, &speeds);
        let longest = works.iter().copied().fold(0.0, f64::max);
        // What is on a CPU too much because of an error is at most the error of those that were moved there.
        let wrong: f64 = works.iter().zip(&expected).map(|(w, e)| (w - e).abs()).sum();
        let most = without(&works, &at, &speeds) + wrong + found.moves as f64 * (REAL.toll + REAL.late);
        prop_assert!(found.makespan <= most.max(longest), "{} at most {most}", found.makespan);
    }
}

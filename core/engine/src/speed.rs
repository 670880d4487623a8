//! The speed of a CPU: how fast it lets the threads of the program progress.
//!
//! The paper (Juggle, section 2.1) takes the mean progress of the CPU's threads over the period, and where
//! threads block, stretches it by t_real / (t_real - t_idle), so that a CPU whose threads are done early
//! does not look slow. It has to know for how long the CPU was idle, and time in which one thread was blocked
//! while another was not counts fully. Since each thread's waiting time is known, there is a better one:
//! of the time in which threads wanted the CPU (they ran on it or waited for it), the part in
//! which they ran. Blocked time drops out thread by thread, and a thread alone on an undisturbed
//! CPU has exactly 1, however coarse the readings are.
//!
//! A thread that spins wants its CPU only to wait. What it gets is no progress, and counts as little as
//! what it wants: a CPU whose threads all wait has no speed. The time of one that computes beside them
//! is what it gets, as little as that is.
//!
//! Invariant: nothing is estimated for a CPU that no thread wanted.

use evenly_model::{Nanos, ThreadView};

/// Threads that wanted less than this part of the period say nothing about a CPU.
pub const LEAST_WANTED: f64 = 0.05;

/// What the threads on one CPU did in one period.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OnCpu {
    threads: u32,
    ran: Nanos,
    wanted: Nanos,
}

impl OnCpu {
    /// Adds a thread to those that are on the CPU.
    pub(crate) fn add(&mut self, t: &ThreadView) {
        self.threads += 1;
        self.ran += t.computed();
        self.wanted += t.demand();
    }

    /// How many threads have been added.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// CPU time over CPU time and waiting.
    pub(crate) fn speed(&self, elapsed: Nanos) -> Option<f64> {
        let wanted =
            elapsed > Nanos::ZERO && self.wanted.0 as f64 > LEAST_WANTED * elapsed.0 as f64;
        wanted.then(|| self.ran.0 as f64 / self.wanted.0 as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::ThreadId;

    const PERIOD: Nanos = Nanos::from_millis(100);

    /// A thread that ran, waited and was blocked for so many milliseconds.
    fn view(ran: u64, waited: u64, blocked: u64) -> ThreadView {
        ThreadView {
            id: ThreadId::default(),
            cpu: 0,
            progress: 0,
            ran: Nanos::from_millis(ran),
            waited: Nanos::from_millis(waited),
            blocked: Nanos::from_millis(blocked),
            spinning: Nanos::ZERO,
            turns: None,
            movable: true,
            mask: 0,
        }
    }

    /// The paper's estimate. The CPU was idle at most while all threads were blocked, and at most for what
    /// they left of the period.
    fn paper_speed(threads: &[(u64, u64, u64)]) -> f64 {
        let elapsed = PERIOD.0 / 1_000_000;
        let ran: u64 = threads.iter().map(|t| t.0).sum();
        let least_blocked = threads.iter().map(|t| t.2).min().unwrap();
        let idle = least_blocked.min(elapsed - ran);
        ran as f64 / threads.len() as f64 / (elapsed - idle) as f64
    }

    /// Both estimates for such threads.
    fn both(threads: &[(u64, u64, u64)]) -> (f64, f64) {
        let mut cpu = OnCpu::default();
        for &(ran, waited, blocked) in threads {
            cpu.add(&view(ran, waited, blocked));
        }
        let round = |v: f64| (v * 1e3).round() / 1e3;
        (round(cpu.speed(PERIOD).unwrap()), round(paper_speed(threads)))
    }

    #[test]
    fn where_both_agree() {
        // Alone; two that share; the paper's example: alone, and done after a quarter.
        assert_eq!(both(&[(100, 0, 0)]), (1.0, 1.0));
        assert_eq!(both(&[(50, 50, 0), (50, 50, 0)]), (0.5, 0.5));
        assert_eq!(both(&[(25, 0, 75)]), (1.0, 1.0));
        // Two that share and are both done after half.
        assert_eq!(both(&[(25, 25, 50), (25, 25, 50)]), (0.5, 0.5));
        // A stranger takes half of the CPU.
        assert_eq!(both(&[(50, 50, 0)]), (0.5, 0.5));
    }

    #[test]
    fn where_waiting_times_tell_more() {
        // Two threads that take turns (one blocks while the other runs) never wait: each progresses
        // at full speed, but the CPU was never idle, so the paper's factor does not help.
        assert_eq!(both(&[(50, 0, 50), (50, 0, 50)]), (1.0, 0.5));
        // One computes alone, another was blocked nearly all the time.
        assert_eq!(both(&[(98, 0, 2), (2, 0, 98)]), (1.0, 0.5));
        // One is done after half, the other goes on alone: 25 and 75 of CPU time, 25 of waiting
        // each.
        assert_eq!(both(&[(25, 25, 50), (75, 25, 0)]), (0.667, 0.5));
    }

    #[test]
    fn who_spins_makes_no_cpu_fast() {
        let speed = |threads: &[(u64, u64, u64)]| {
            let mut cpu = OnCpu::default();
            for &(ran, waited, spinning) in threads {
                cpu.add(&ThreadView {
                    spinning: Nanos::from_millis(spinning),
                    ..view(ran, waited, 0)
                });
            }
            cpu.speed(PERIOD).map(|s| (s * 1e3).round() / 1e3)
        };
        // Alone, and all the time or half of it; beside one that computes.
        assert_eq!(speed(&[(100, 0, 100)]), None);
        assert_eq!(speed(&[(100, 0, 50)]), Some(1.0));
        assert_eq!(speed(&[(50, 50, 100), (50, 50, 0)]), Some(0.5));
        assert_eq!(speed(&[(50, 50, 100), (50, 50, 100)]), None);
        // It yields: the other has nearly all.
        assert_eq!(speed(&[(5, 95, 100), (95, 5, 0)]), Some(0.95));
    }

    #[test]
    fn a_cpu_that_no_thread_wanted_has_no_speed() {
        let none = OnCpu::default();
        assert_eq!((none.speed(PERIOD), none.speed(Nanos::ZERO)), (None, None));
    }
}

//! What others take of the CPUs: a CPU that a program of others uses is slower for the threads that are balanced.
//!
//! A CPU was idle for some of the time, and ran threads of the program for some; the rest others had. Only what they
//! take while the program's threads are moved is counted, since only then it is known on which CPU each of these ran.
//!
//! Known gap: others get more of a CPU that has fewer of the program's threads, so what is seen is true for as many as
//! there were.

use evenly_model::{CpuIndex, Nanos};

/// For how long it is counted: idle time is known in hundredths of a second.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Less is the balancer itself, the kernel, or a rounded figure.
const LEAST: f64 = 0.15;
/// What is seen counts for so much beside what was seen before.
const NEW: f64 = 0.5;
/// So much of what is left of such a CPU is counted on: a move that gains a little there by what is seen may lose.
const SURE: f64 = 0.9;

/// What was seen of the CPUs of a domain.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// When counting began, and for how long each CPU had been idle by then; None where nothing is counted.
    since: Option<(Nanos, Vec<Nanos>)>,
    /// CPU time of the program's threads on each since then.
    own: Vec<Nanos>,
    /// What others take of each, from 0 to 1; None where it is not known yet.
    parts: Vec<Option<f64>>,
}

impl Others {
    /// There are so many CPUs from now on, of which nothing is known.
    pub(crate) fn reset(&mut self, cpus: usize) {
        *self = Self { since: None, own: vec![Nanos::ZERO; cpus], parts: vec![None; cpus] };
    }

    /// Nothing is counted until the next look; what was seen is kept.
    pub(crate) fn pause(&mut self) {
        self.since = None;
    }

    /// A thread has run for so long on a CPU.
    pub(crate) fn ran(&mut self, cpu: CpuIndex, time: Nanos) {
        if let Some(own) = self.own.get_mut(cpu).filter(|_| self.since.is_some()) {
            *own += time;
        }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.since.as_ref().is_none_or(|(since, _)| now - *since >= WINDOW)
    }

    /// The CPUs have been idle for so long so far; nothing where that is not known.
    pub(crate) fn look(&mut self, now: Nanos, idle: Vec<Nanos>) {
        let known = |idle: &[Nanos]| idle.len() == self.own.len();
        let before = self.since.as_ref().filter(|(_, before)| known(before) && known(&idle));
        if let Some((since, before)) = before {
            let elapsed = (now - *since).0 as f64;
            for (cpu, part) in self.parts.iter_mut().enumerate() {
                let used = (idle[cpu] - before[cpu]).0 as f64 + self.own[cpu].0 as f64;
                let seen = (1.0 - used / elapsed).clamp(0.0, 1.0);
                *part = Some(part.map_or(seen, |before| NEW * seen + (1.0 - NEW) * before));
            }
        }
        self.own.fill(Nanos::ZERO);
        self.since = Some((now, idle));
    }

    /// What is left of a CPU, from 0 to 1.
    pub(crate) fn left(&self, cpu: CpuIndex) -> f64 {
        match self.parts.get(cpu).copied().flatten() {
            // No CPU is too slow to finish what is on it.
            Some(part) if part > LEAST => SURE * (1.0 - part).max(0.1),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// Two CPUs that have been idle, and have run the program, for so much of each of these windows, in percent.
    fn seen(windows: &[[(u64, u64); 2]]) -> [f64; 2] {
        let mut others = Others::default();
        others.reset(2);
        let mut idle = [ms(700), ms(30)];
        others.look(ms(5000), idle.to_vec());
        for (n, window) in windows.iter().enumerate() {
            for (cpu, (was_idle, ran)) in window.iter().enumerate() {
                idle[cpu] += ms(*was_idle);
                others.ran(cpu, ms(*ran));
            }
            let now = ms(5000 + 100 * (n as u64 + 1));
            assert!(others.is_due(now) && !others.is_due(now - ms(1)));
            others.look(now, idle.to_vec());
        }
        [0, 1].map(|cpu| others.left(cpu))
    }

    #[test]
    fn what_is_neither_idle_nor_the_programs_is_others() {
        assert_eq!(seen(&[]), [1.0, 1.0]);
        assert_eq!(seen(&[[(0, 100), (0, 50)]]), [1.0, SURE * 0.5]);
        assert_eq!(seen(&[[(30, 70), (50, 0)]]), [1.0, SURE * 0.5]);
        // Rounded figures, and readings that are late.
        assert_eq!(seen(&[[(0, 90), (20, 90)]]), [1.0, 1.0]);
        // Nothing is left: threads get something nevertheless.
        let [_, left] = seen(&[[(0, 100), (0, 0)]]);
        assert!((left - SURE * 0.1).abs() < 1e-9);
    }

    #[test]
    fn who_comes_and_goes_is_noticed_after_some_windows() {
        let (alone, beside) = ([(0, 100), (0, 100)], [(0, 100), (0, 50)]);
        assert_eq!(seen(&[alone, beside, beside]), [1.0, SURE * 0.625]);
        assert_eq!(seen(&[beside, alone]), [1.0, SURE * 0.75]);
        assert_eq!(seen(&[beside, alone, alone, alone]), [1.0, 1.0]);
    }

    /// Would catch: time in which nobody knew where threads ran.
    #[test]
    fn a_pause_is_not_counted() {
        let mut others = Others::default();
        others.reset(1);
        others.look(ms(1000), vec![ms(0)]);
        others.ran(0, ms(50));
        others.pause();
        others.ran(0, ms(50));
        assert!(others.is_due(ms(1001)));
        others.look(ms(2000), vec![ms(0)]);
        assert_eq!(others.left(0), 1.0);
        others.ran(0, ms(100));
        others.look(ms(2100), vec![ms(0)]);
        assert_eq!(others.left(0), 1.0);
        // Where it cannot be known.
        others.look(ms(2200), Vec::new());
        others.ran(0, ms(1));
        assert_eq!(others.left(0), 1.0);
        // It is not asked for at every point then.
        assert!(!others.is_due(ms(2201)));
        others.look(ms(2300), vec![ms(0)]);
        assert_eq!(others.left(0), 1.0);
    }
}

//! The phases of a program whose threads report when they wait: how far each thread is in the present one, and
//! how long one lasts.
//!
//! At a barrier threads are equal, whatever CPU time each has had: what one was ahead by it has waited for.
//! So leads are counted anew in each phase. That also keeps errors of single readings from adding up:
//! what a thread computed is known to a few milliseconds a period ([`crate::waiting`]), and the true leads
//! of threads that meet at barriers never become more than the work of a phase.
//!
//! Threads with unequal work are equal at the end of a phase if each has as much *left* as the others all
//! the time. So one that has clearly more to do than the mean, by what it computed in the phases before,
//! begins a phase that much behind.
//!
//! Where phases are shorter than two periods, and no thread has clearly more to do, nothing of this holds:
//! at no point more is known of a phase than that it will soon be over. Then leads in CPU time, spinning
//! included, make threads take turns in the slow places, which is worth more ([`Phases::are_short`];
//! docs/simulate.md has figures).
//!
//! Invariant: leads change here only when every thread has reached a barrier that not all had reached at
//! the last point, and only where threads count the same barriers. A thread of which that cannot be said
//! (ranks that each do something else, tasks, none with a probe) keeps the progress that it has.

use crate::Waiting;
use evenly_model::Nanos;

/// What a thread computed beyond the mean of a phase, as a part of that, from which on it has more to do.
const UNEVEN: f64 = 0.25;
/// Weight of the newest phases.
const NEWEST: f64 = 0.5;
/// Phases of fewer periods are short, and are so until they have as many as the second.
const SHORT: f64 = 2.0;
const STILL_SHORT: f64 = 2.5;

/// What one thread does in its phases.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InPhase {
    /// What it has computed since the last barrier.
    computed: Nanos,
    /// What it computes from barrier to barrier; None before it has done so once.
    work: Option<f64>,
}

impl InPhase {
    /// It has computed for so long.
    pub(crate) fn add(&mut self, computed: Nanos) {
        self.computed += computed;
    }
}

/// A thread at a balancing point.
#[derive(Debug)]
pub(crate) struct Participant<'a> {
    pub(crate) report: Waiting,
    /// What it computed in the period that ended.
    pub(crate) gained: Nanos,
    pub(crate) progress: &'a mut i64,
    pub(crate) phase: &'a mut InPhase,
}

/// The phases of the threads of a domain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Phases {
    /// The last barrier that all have reached; None while that is not known.
    reached: Option<u32>,
    /// When the first of them left it.
    left_at: Option<Nanos>,
    length_ns: Option<f64>,
    /// A thread has clearly more to do than others.
    uneven: bool,
    short: bool,
}

impl Phases {
    /// How long a phase lasts, on average over the last ones. None where it is not known.
    pub(crate) fn length(&self) -> Option<Nanos> {
        self.length_ns.map(|ns| Nanos(ns as u64))
    }

    /// Whether a thread has clearly more to do in a phase than others.
    pub(crate) fn are_uneven(&self) -> bool {
        self.uneven
    }

    /// Whether phases are too short for anything but turns.
    pub(crate) fn are_short(&mut self, period: Nanos) -> bool {
        let periods = if self.short { STILL_SHORT } else { SHORT };
        self.short = !self.uneven && self.length().is_some_and(|l| l < period.scale(periods));
        self.short
    }

    /// Threads that all report, at a point; the period that ended was so long.
    pub(crate) fn point(&mut self, now: Nanos, elapsed: Nanos, threads: &mut [Participant<'_>]) {
        let least = threads.iter().map(|t| t.report.phases).min().unwrap_or(0);
        let most = threads.iter().map(|t| t.report.phases).max().unwrap_or(0);
        // Those that are through with their phase have reached one barrier more.
        if threads.len() < 2 || least == 0 || most - least > 1 {
            *self = Self::default();
            return;
        }
        let before = self.reached.replace(least);
        let new = before.map_or(1, |b| least.saturating_sub(b));
        if new == 0 {
            return;
        }
        // A thread that waits has not left, or has come to the next one.
        let left_at = threads.iter().filter_map(|t| t.report.computes_since).min();
        if let (Some(from), Some(to), Some(_)) = (self.left_at, left_at, before)
            && to > from
        {
            let length = (to - from).0 as f64 / f64::from(new);
            let known = self.length_ns.unwrap_or(length);
            self.length_ns = Some(known + NEWEST * (length - known));
        }
        self.left_at = left_at.or(Some(now));
        let since = now - left_at.unwrap_or(now);
        let of_this = (since.0 as f64 / elapsed.0.max(1) as f64).min(1.0);
        let n = threads.len() as f64;
        let mean_progress = threads.iter().map(|t| *t.progress as f64).sum::<f64>() / n;
        for t in &mut *threads {
            let own = t.gained.scale(of_this);
            let work = (t.phase.computed - own).0 as f64 / f64::from(new);
            // The first phase was not seen from its beginning.
            if before.is_some() {
                let known = t.phase.work.unwrap_or(work);
                t.phase.work = Some(known + NEWEST * (work - known));
            }
            t.phase.computed = own;
        }
        let mean = threads.iter().map(|t| t.phase.work).sum::<Option<f64>>().map(|sum| sum / n);
        self.uneven = false;
        for t in threads {
            let more = t.phase.work.zip(mean).map_or(0.0, |(work, mean)| {
                if (work - mean).abs() > UNEVEN * mean { work - mean } else { 0.0 }
            });
            self.uneven |= more != 0.0;
            if !self.short {
                *t.progress = (mean_progress - more) as i64 + t.phase.computed.0 as i64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    /// One thread: barriers reached, since when it computes, what it computed in the period, progress.
    type Seen = (u32, Option<u64>, u64, i64);

    struct Threads(Phases, Vec<InPhase>);

    impl Threads {
        /// A point after 20 ms; the progress of each from then on, in milliseconds.
        fn point(&mut self, now: u64, seen: &[Seen]) -> Vec<i64> {
            self.1.resize(seen.len(), InPhase::default());
            let mut progress: Vec<i64> = seen.iter().map(|s| s.3 * 1_000_000).collect();
            let mut threads: Vec<Participant<'_>> = Vec::new();
            let each = seen.iter().zip(&mut progress).zip(&mut self.1);
            for ((&(phases, since, gained, _), progress), phase) in each {
                phase.add(ms(gained));
                let computes_since = since.map(ms);
                let report =
                    Waiting { phases, waits: phases, computes_since, ..Waiting::default() };
                threads.push(Participant { report, gained: ms(gained), progress, phase });
            }
            self.0.point(ms(now), ms(20), &mut threads);
            progress.iter().map(|p| p / 1_000_000).collect()
        }
    }

    #[test]
    fn leads_are_counted_from_the_last_barrier_that_all_have_reached() {
        let mut t = Threads(Phases::default(), Vec::new());
        // The first look.
        assert_eq!(t.point(100, &[(4, Some(40), 20, 70), (4, Some(40), 20, 60)]), [85, 85]);
        // One waits, the other is on its way: nothing is new.
        assert_eq!(t.point(120, &[(5, None, 20, 105), (4, Some(40), 15, 100)]), [105, 100]);
        // The barrier has opened 10 ms ago.
        assert_eq!(t.point(140, &[(5, Some(130), 10, 115), (5, Some(130), 20, 120)]), [122, 127]);
        assert_eq!(t.0.length(), Some(ms(90)));
        // From here on as they compute.
        assert_eq!(t.point(160, &[(5, Some(130), 20, 115), (5, Some(130), 10, 110)]), [115, 110]);
    }

    #[test]
    fn who_has_more_to_do_begins_behind() {
        let mut t = Threads(Phases::default(), Vec::new());
        let seen =
            |k, since, light, heavy| [(k, Some(since), light, 0), (k, Some(since), heavy, 0)];
        t.point(20, &seen(1, 20, 0, 0));
        // 30 ms and 10 ms, and 30 and 10 again, as well as can be seen.
        t.point(40, &seen(1, 20, 10, 20));
        let begins = t.point(60, &seen(2, 60, 0, 10));
        assert_eq!(begins, [10, -10]);
        // A little more is not clearly more.
        let mut t = Threads(Phases::default(), Vec::new());
        t.point(20, &seen(1, 20, 0, 0));
        assert_eq!(t.point(40, &seen(2, 40, 18, 20)), [0, 0]);
    }

    #[test]
    fn threads_that_do_not_meet_keep_their_leads() {
        let mut t = Threads(Phases::default(), Vec::new());
        for (a, b) in [(3, 9), (5, 9), (0, 0)] {
            assert_eq!(t.point(20, &[(a, Some(1), 20, 70), (b, Some(1), 20, 60)]), [70, 60]);
        }
        assert_eq!(t.point(40, &[(4, Some(1), 20, 70)]), [70]);
        assert_eq!(t.0.length(), None);
    }
}

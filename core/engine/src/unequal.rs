//! Whether the threads of a program have unequal work: by what each computed while all of them met some times.
//!
//! Of a single phase, or a single period, a reading may be wrong by a tick. So what is compared is of windows that are long
//! enough for some phases and for many ticks.

use crate::agents::Epochs;
use crate::managed::ManagedThread;
use crate::promise::{CLEARLY, EQUAL, UNEQUAL, most_beyond_mean};
use evenly_model::{Nanos, ThreadId};

/// How long a window is, and how often threads meet in it, at least.
const WINDOW: Nanos = Nanos::from_millis(200);
const EPOCHS: u32 = 4;

/// What the threads of a domain compute.
#[derive(Debug, Default)]
pub(crate) struct Unequal {
    /// When the window began, and how often threads had met.
    began: Option<(Nanos, Epochs)>,
    /// The first and the last opening of the last one that is over.
    window: Option<[Epochs; 2]>,
    computed: Vec<(ThreadId, Nanos)>,
    /// By how much the one with most work exceeded the mean in the last two windows.
    beyond: [f64; 2],
    is_so: bool,
}

impl Unequal {
    /// A balancing point, after a period in which threads did what their accounts say. Returns whether the threads are others
    /// than at the last one.
    pub(crate) fn point(
        &mut self,
        now: Nanos,
        epochs: Option<Epochs>,
        threads: &[ManagedThread],
    ) -> bool {
        let same = self.computed.len() == threads.len()
            && self.computed.iter().zip(threads).all(|((id, _), t)| *id == t.meta.id);
        if !same {
            // What was so of others holds until it is known of these.
            self.begin_window_anew();
            self.computed = threads.iter().map(|t| (t.meta.id, Nanos::ZERO)).collect();
        }
        let Some(epochs) = epochs else {
            self.begin_window_anew();
            return !same;
        };
        let Some((began, first)) = self.began.filter(|(_, first)| first.of == epochs.of) else {
            self.begin_window_anew();
            self.began = Some((now, epochs));
            return !same;
        };
        for ((_, computed), t) in self.computed.iter_mut().zip(threads) {
            *computed += t.account.gained;
        }
        if now - began >= WINDOW && epochs.count.wrapping_sub(first.count) >= EPOCHS {
            let computed = self.computed.iter().map(|(_, computed)| computed.0 as f64);
            self.beyond = [self.beyond[1], most_beyond_mean(computed)];
            self.judge();
            self.begin_window_anew();
            (self.began, self.window) = (Some((now, epochs)), Some([first, epochs]));
        }
        !same
    }

    /// What was seen so far belongs to no window.
    pub(crate) fn begin_window_anew(&mut self) {
        (self.began, self.window) = (None, None);
        self.computed.iter_mut().for_each(|(_, computed)| *computed = Nanos::ZERO);
    }

    /// The first and the last opening of the last window.
    pub(crate) fn window(&self) -> Option<[Epochs; 2]> {
        self.window
    }

    /// Whether they have unequal work.
    pub(crate) fn is_so(&self) -> bool {
        self.is_so
    }

    fn judge(&mut self) {
        let [before, last] = self.beyond;
        self.is_so = match self.is_so {
            true => last > EQUAL || before > EQUAL,
            false => last > CLEARLY || (last > UNEQUAL && before > UNEQUAL),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::threads;

    /// Seconds of points every 20 ms, while threads meet every 10 ms; whether work is unequal in the end. What each
    /// computes at a point in milliseconds.
    fn after(computes: impl Fn(usize, u64) -> u64) -> bool {
        let (mut members, _) = threads(&[0, 0, 1, 1], 2);
        let mut unequal = Unequal::default();
        for point in 0..50 {
            let now = Nanos::from_millis(20 * point);
            let epochs = Epochs { count: 2 * point as u32, at: now, of: 0, worth: 0 };
            for (i, t) in members.threads.iter_mut().enumerate() {
                t.account.gained = Nanos::from_millis(computes(i, point));
            }
            assert_eq!(unequal.point(now, Some(epochs), &members.threads), point == 0);
        }
        unequal.is_so()
    }

    /// Would catch: readings that are wrong by a tick taken for work; threads that take turns in having a CPU.
    #[test]
    fn what_is_unequal_only_for_a_moment_is_not() {
        assert!(after(|i, _| if i == 3 { 16 } else { 4 }));
        assert!(!after(|_, _| 10));
        assert!(!after(|i, point| if point % 4 == i as u64 { 20 } else { 6 }));
    }

    /// Would catch: a window of a program that begins; an arm that is left for a window.
    #[test]
    fn one_window_is_not_enough_to_begin_or_to_end() {
        let mut unequal = Unequal::default();
        let mut after = |last: f64| {
            unequal.beyond = [unequal.beyond[1], last];
            unequal.judge();
            unequal.is_so()
        };
        let wanted = [(0.3, false), (0.05, false), (0.3, false), (0.25, true), (0.05, true)];
        for (beyond, is_so) in
            wanted.into_iter().chain([(0.15, true), (0.05, true), (0.0, false), (0.5, true)])
        {
            assert_eq!(after(beyond), is_so, "{beyond}");
        }
    }

    /// Would catch: a window over a gap in which nothing was known, and another policy may have acted.
    #[test]
    fn no_window_has_a_gap() {
        let (members, _) = threads(&[0, 0, 1, 1], 2);
        let mut unequal = Unequal::default();
        let ms = Nanos::from_millis;
        let at = |point: u64| Epochs { count: point as u32, at: ms(10 * point), of: 0, worth: 0 };
        for point in 0..=21 {
            unequal.point(ms(10 * point), Some(at(point)), &members.threads);
        }
        assert_eq!(unequal.window().map(|w| w[1].count), Some(20));
        unequal.point(ms(220), None, &members.threads);
        assert_eq!(unequal.window(), None);
        for point in [500, 501, 510] {
            unequal.point(ms(10 * point), Some(at(point)), &members.threads);
        }
        assert_eq!(unequal.window(), None);
        unequal.point(ms(5_200), Some(at(520)), &members.threads);
        assert_eq!(unequal.window().map(|w| w[0].count), Some(500));
    }
}

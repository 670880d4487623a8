//! What short instances have shown, until the scheduler is told: to tell it of each one takes longer than they do, as what it knows
//! goes from CPU to CPU. So does what each thread has measured: it is read when the scheduler is told, and no earlier where it need
//! not be.
//!
//! Memory ordering: a thread marks what it did in an instance before it says that it has done it (`Board::complete`), and whoever
//! tells has ended a later instance or the same, or begins the next one. So all that counts of an instance is seen. A thread that is
//! late in one marks at most when it began, for which nothing else is taken: its number is seen with it or not at all.

use evenly_iterations::{Common, Measured, Outcome, Scheduler};
use evenly_model::Nanos;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// So many instances are told together at most.
pub(crate) const TOGETHER: u32 = 16;
/// Of longer ones each is told, and none is set up before it begins.
pub(crate) const SHORT: Nanos = Nanos::from_micros(20);

/// What a thread did in an instance. Written by itself.
#[derive(Debug, Default)]
struct Mark {
    instance: AtomicU32,
    iterations: AtomicU64,
    /// When it came, and when it found no more.
    begin_ns: AtomicU64,
    finish_ns: AtomicU64,
}

/// The same in the last instances.
#[derive(Debug)]
pub(crate) struct Marks([Mark; TOGETHER as usize]);

impl Default for Marks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mark::default()))
    }
}

/// What a thread did in an instance, and nothing where it had no part in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) iterations: u64,
    /// When it came, and finished.
    pub(crate) times: Option<(u64, u64)>,
}

impl Marks {
    fn of(&self, instance: u32) -> &Mark {
        &self.0[(instance % TOGETHER) as usize]
    }

    /// The thread begins an instance.
    pub(crate) fn begin(&self, instance: u32, now_ns: u64) {
        let mark = self.of(instance);
        mark.iterations.store(0, Relaxed);
        mark.begin_ns.store(now_ns, Relaxed);
        // Whoever reads it sees what is of this instance only.
        mark.instance.store(instance, Release);
    }

    /// It has carried out so many.
    pub(crate) fn add(&self, instance: u32, iterations: u64) {
        let all = &self.of(instance).iterations;
        all.store(all.load(Relaxed) + iterations, Relaxed);
    }

    /// It has done something, as far as is known for the last time.
    pub(crate) fn finish(&self, instance: u32, now_ns: u64) {
        self.of(instance).finish_ns.store(now_ns, Relaxed);
    }

    /// Whether it has found nothing more to do in an instance that it has begun.
    pub(crate) fn has_finished(&self, instance: u32) -> bool {
        let mark = self.of(instance);
        // What is there may be of an earlier instance.
        mark.instance.load(Acquire) == instance
            && mark.finish_ns.load(Relaxed) >= mark.begin_ns.load(Relaxed)
    }

    /// By the thread that ended the instance: it was no longer than this, as nobody began it before this thread had finished the one
    /// before. More where it did something else in between, or nothing in either.
    pub(crate) fn at_most(&self, instance: u32) -> Nanos {
        let [before, now] = [instance.wrapping_sub(1), instance]
            .map(|instance| self.of(instance).finish_ns.load(Relaxed));
        if before == 0 { Nanos(u64::MAX) } else { Nanos(now.saturating_sub(before)) }
    }

    pub(crate) fn seen(&self, instance: u32) -> Seen {
        let mark = self.of(instance);
        if mark.instance.load(Acquire) != instance {
            return Seen::default();
        }
        let [begin, finish] = [&mark.begin_ns, &mark.finish_ns].map(|word| word.load(Relaxed));
        Seen { iterations: mark.iterations.load(Relaxed), times: Some((begin, finish)) }
    }
}

/// The time from the first thread that came to the last that finished.
pub(crate) fn makespan(all: impl Iterator<Item = Seen>) -> (u64, Nanos) {
    let span = all.filter_map(|seen| seen.times);
    let span = span.reduce(|(begin, end), (came, done)| (begin.min(came), end.max(done)));
    let (release, end) = span.unwrap_or_default();
    (release, Nanos(end.saturating_sub(release)))
}

/// Instances that have ended.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Those that the scheduler was told of.
    pub(crate) told: u64,
    /// By thread, of the last of them.
    pub(crate) measured: Vec<Measured>,
}

impl Pending {
    /// Tells of one more; if some of its tasks were stolen, who carried them out. How long it took.
    pub(crate) fn tell(
        &mut self,
        scheduler: &mut Scheduler,
        common: &mut Common,
        (measured, makespan): (impl Iterator<Item = Measured>, Nanos),
        carried_out: Option<&[usize]>,
    ) {
        self.told += 1;
        self.measured.clear();
        self.measured.extend(measured);
        scheduler.end(common, Outcome { measured: &self.measured, makespan, carried_out });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: an instance in which another thread was late, of which the scheduler hears 15 instances later.
    #[test]
    fn an_instance_takes_no_longer_than_since_the_one_before() {
        let [own, other] = [Marks::default(), Marks::default()];
        own.begin(1, 1_000);
        own.finish(1, 2_000);
        // It may have taken any time.
        assert_eq!(own.at_most(1), Nanos(u64::MAX));
        // This one was without its CPU before it began the next.
        other.begin(2, 2_100);
        other.finish(2, 2_500);
        own.begin(2, 90_000);
        own.finish(2, 90_500);
        let (release, makespan) = makespan([&own, &other].map(|marks| marks.seen(2)).into_iter());
        assert_eq!((release, makespan), (2_100, Nanos(88_400)));
        assert!(own.at_most(2) >= makespan);
    }

    /// Would catch: what a thread did 16 instances before, taken for what it did in this one.
    #[test]
    fn whoever_had_no_part_in_an_instance_shows_nothing() {
        let marks = Marks::default();
        marks.begin(1, 1_000);
        marks.add(1, 5);
        marks.finish(1, 2_000);
        assert_eq!(marks.seen(1).times, Some((1_000, 2_000)));
        let seen = marks.seen(1 + TOGETHER);
        assert_eq!((seen.iterations, seen.times), (0, None));
    }
}

//! What balancers that decide each for itself share (OSLB, sections 3.1 and 3.2): speeds that were
//! published, how many threads move, and which thread may be moved by whom. Nothing here ever waits.
//!
//! The paper protects the global core speed with a lock. Here each quantity that has to be right in
//! itself is one word, and is changed by one atomic instruction.
//!
//! Invariants (`tests/loom.rs` tries all interleavings):
//! - The mean of a [`Mean`] is always that of values which were contributed; none is lost or counted
//!   twice.
//! - A thread is claimed by at most one balancer at a time, and by none before it has been where it
//!   is for as long as is asked for.
//! - A claim is taken at once or not at all, so balancers that claim several threads, in whatever
//!   order, cannot block each other.
//!
//! Memory ordering: sums and rates are hints for decisions, each in one word, and nothing else is
//! published by them: `Relaxed`. What a claim protects (where the thread is) is written before the
//! claim is given up (`Release`), and read after it was taken (`Acquire`).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64};

use evenly_model::Nanos;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Values are counted in parts of this many; they are less than 2.
const UNIT: f64 = (1u64 << 29) as f64;
const SUM_BITS: u32 = 47;
const MOST: u64 = (1 << 30) - 1;

fn units(value: f64) -> u64 {
    // A float that is too large, or none, becomes the greatest or 0.
    ((value * UNIT).round() as u64).min(MOST)
}

/// The mean of values that many contribute and change: the global core speed.
///
/// The number of values and their sum are one word, so that no reader sees one without the other.
/// Up to 131,071 values, each at least 0 and less than 2, to within 2^-30.
#[derive(Debug)]
pub struct Mean(AtomicU64);

/// What one has contributed to a [`Mean`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share(u64);

impl Share {
    /// A share of one value.
    #[must_use]
    pub fn one(value: f64) -> Self {
        Self::many(std::iter::once(value))
    }

    /// A share of several values.
    #[must_use]
    pub fn many(values: impl Iterator<Item = f64>) -> Self {
        Self(values.fold(0, |word, v| word + (1 << SUM_BITS) + units(v)))
    }
}

impl Default for Mean {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Mean {
    /// Puts `new` in the place of what was contributed before.
    pub fn replace(&self, old: &mut Share, new: Share) {
        // Adding the difference is right whatever others add: sum and count stay within their bits,
        // because every share is within them.
        self.0.fetch_add(new.0.wrapping_sub(old.0), Relaxed);
        *old = new;
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed) >> SUM_BITS
    }

    /// The mean and the number of values; None where there is none.
    #[must_use]
    pub fn get(&self) -> Option<(f64, u64)> {
        let word = self.0.load(Relaxed);
        let (count, sum) = (word >> SUM_BITS, word & ((1 << SUM_BITS) - 1));
        (count > 0).then(|| (sum as f64 / UNIT / count as f64, count))
    }
}

/// What the balancer of a CPU has published of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Published {
    /// Mean speed of its threads over the last interval, times its capacity; over several intervals
    /// where readings are coarse.
    pub speed: f64,
    /// Its threads; 0 where nothing has been published, or is no longer true.
    pub threads: u32,
    /// Over how many intervals the speed is averaged, up to 127.
    pub samples: u32,
    /// Whether it was slower than the mean of all CPUs.
    pub slow: bool,
}

/// Where a balancer publishes; others read it without asking.
#[derive(Debug)]
pub struct PublishedCell(AtomicU64);

impl Default for PublishedCell {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl PublishedCell {
    /// Publishes. Only the CPU's own balancer does.
    pub fn set(&self, p: Published) {
        let (threads, samples) = (p.threads.min((1 << 17) - 1), p.samples.min(127));
        let small = u64::from(threads) | u64::from(samples) << 17 | u64::from(p.slow) << 24;
        self.0.store(small | units(p.speed) << 25, Relaxed);
    }

    /// What was published last.
    #[must_use]
    pub fn get(&self) -> Published {
        let word = self.0.load(Relaxed);
        Published {
            speed: (word >> 25) as f64 / UNIT,
            threads: (word & ((1 << 17) - 1)) as u32,
            samples: (word >> 17 & 127) as u32,
            slow: word >> 24 & 1 == 1,
        }
    }
}

/// How many threads were moved of late: in this stretch of time, and in the one before.
#[derive(Debug)]
pub struct MoveRate(AtomicU64);

const COUNT_BITS: u32 = 20;
const MOST_COUNTED: u64 = (1 << COUNT_BITS) - 1;
const STRETCHES: u64 = 1 << (64 - 2 * COUNT_BITS);

impl Default for MoveRate {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl MoveRate {
    /// The counts as of now: of the stretch before, and of this one.
    fn at(word: u64, stretch: u64) -> (u64, u64) {
        let (of, before) = (word >> (2 * COUNT_BITS), word >> COUNT_BITS & MOST_COUNTED);
        let this = word & MOST_COUNTED;
        match stretch.wrapping_sub(of) % STRETCHES {
            0 => (before, this),
            1 => (this, 0),
            _ => (0, 0),
        }
    }

    fn stretch(now: Nanos, length: Nanos) -> u64 {
        now.0 / length.0.max(1) % STRETCHES
    }

    /// Counts moves that were made now.
    pub fn note(&self, now: Nanos, length: Nanos, moves: u64) {
        let stretch = Self::stretch(now, length);
        let mut word = self.0.load(Relaxed);
        loop {
            let (before, this) = Self::at(word, stretch);
            let this = (this + moves).min(MOST_COUNTED);
            let new = stretch << (2 * COUNT_BITS) | before << COUNT_BITS | this;
            match self.0.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Threads moved within a stretch of this length: in the present one or the one before,
    /// whichever had more.
    #[must_use]
    pub fn recent(&self, now: Nanos, length: Nanos) -> u64 {
        let (before, this) = Self::at(self.0.load(Relaxed), Self::stretch(now, length));
        before.max(this)
    }
}

/// Where a thread is, when it was moved last, and whether a balancer is about to move it.
#[derive(Debug)]
pub struct ThreadCell {
    /// When it was moved last, in nanoseconds, shifted by one; the lowest bit is set while it is
    /// claimed. 0 where it never was.
    state: AtomicU64,
    place: AtomicU32,
}

/// A thread that no other balancer can claim until this is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    cell: &'a ThreadCell,
    /// What its state will be.
    then: u64,
}

const CLAIMED: u64 = 1;

impl ThreadCell {
    /// Of a thread that is in this place and has not been moved yet.
    #[must_use]
    pub fn new(place: u32) -> Self {
        Self { state: AtomicU64::new(0), place: AtomicU32::new(place) }
    }

    /// The CPU that the thread is on, by its seat.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place.load(Acquire)
    }

    /// Sets where it is. For the balancer that has claimed it, and for the caretaker of all threads while
    /// none may be claimed.
    pub fn set_place(&self, place: u32) {
        self.place.store(place, Release);
    }

    fn is_free(state: u64, now: Nanos, stay: Nanos) -> bool {
        state & CLAIMED == 0 && (state == 0 || now - Nanos(state >> 1) >= stay)
    }

    /// Whether it could be claimed at this moment: it is not claimed, and it was moved no later than `stay`
    /// ago.
    #[must_use]
    pub fn may_be_claimed(&self, now: Nanos, stay: Nanos) -> bool {
        Self::is_free(self.state.load(Relaxed), now, stay)
    }

    /// Claims it, if that may be; see [`ThreadCell::may_be_claimed`].
    #[must_use]
    pub fn claim(&self, now: Nanos, stay: Nanos) -> Option<Claim<'_>> {
        let state = self.state.load(Relaxed);
        if !Self::is_free(state, now, stay) {
            return None;
        }
        // Acquire: what the last one to claim it wrote is seen. One that has moved it since
        // the load has changed the state, and this fails.
        self.state.compare_exchange(state, state | CLAIMED, AcqRel, Relaxed).ok()?;
        Some(Claim { cell: self, then: state })
    }
}

impl Claim<'_> {
    /// The thread has been moved there.
    pub fn moved(mut self, now: Nanos, place: u32) {
        self.cell.set_place(place);
        self.then = now.0.max(1) << 1;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: the next one to claim it sees where it is.
        self.cell.state.store(self.then, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_moved_lately_is_not_claimed() {
        let cell = ThreadCell::new(3);
        let (now, stay) = (Nanos(1_000), Nanos(100));
        let claim = cell.claim(now, stay).unwrap();
        assert!(cell.claim(now, stay).is_none() && !cell.may_be_claimed(now, stay));
        drop(claim);
        cell.claim(now, stay).unwrap().moved(now, 7);
        assert_eq!(cell.place(), 7);
        assert!(cell.claim(Nanos(1_099), stay).is_none());
        assert!(cell.claim(Nanos(1_100), stay).is_some());
    }

    #[test]
    fn moves_are_counted_by_stretches() {
        let (rate, length) = (MoveRate::default(), Nanos(100));
        assert_eq!(rate.recent(Nanos(50), length), 0);
        rate.note(Nanos(110), length, 3);
        rate.note(Nanos(190), length, 2);
        assert_eq!(rate.recent(Nanos(199), length), 5);
        rate.note(Nanos(210), length, 1);
        assert_eq!(rate.recent(Nanos(299), length), 5);
        assert_eq!(rate.recent(Nanos(300), length), 1);
        assert_eq!(rate.recent(Nanos(400), length), 0);
        rate.note(Nanos(400), length, u64::MAX >> 1);
        assert_eq!(rate.recent(Nanos(400), length), MOST_COUNTED);
    }

    proptest! {
        #[test]
        fn what_is_published_is_read(
            speed in 0.0f64..1.99, threads in 0u32..100_000, samples in 0u32..128, slow: bool,
        ) {
            let cell = PublishedCell::default();
            cell.set(Published { speed, threads, samples, slow });
            let p = cell.get();
            prop_assert!((p.speed - speed).abs() <= 1.0 / UNIT);
            prop_assert_eq!((p.threads, p.samples, p.slow), (threads, samples, slow));
        }

        /// In whatever order values change, the mean is that of what stands at the end.
        #[test]
        fn the_mean_is_that_of_the_last_values(
            changes in prop::collection::vec(
                (0usize..8, prop::collection::vec(0.0f64..2.0, 0..40)), 1..60),
        ) {
            let mean = Mean::default();
            let mut shares = [Share::default(); 8];
            let mut last: [Vec<f64>; 8] = Default::default();
            for (thread, values) in changes {
                mean.replace(&mut shares[thread], Share::many(values.iter().copied()));
                last[thread] = values;
                let all: Vec<f64> = last.iter().flatten().copied().collect();
                match mean.get() {
                    None => prop_assert!(all.is_empty()),
                    Some((m, n)) => {
                        prop_assert_eq!(n as usize, all.len());
                        let right = all.iter().sum::<f64>() / all.len() as f64;
                        prop_assert!((m - right).abs() < 2.0 / UNIT, "{} {}", m, right);
                    }
                }
            }
        }
    }

    #[test]
    fn the_most_values_of_the_greatest_size_fit() {
        let mean = Mean::default();
        let mut share = Share::default();
        mean.replace(&mut share, Share::many(std::iter::repeat_n(9.0, (1 << 17) - 1)));
        let (m, n) = mean.get().unwrap();
        assert!(n == (1 << 17) - 1 && m > 1.999 && m < 2.0, "{m} {n}");
        mean.replace(&mut share, Share::default());
        assert_eq!(mean.get(), None);
        mean.replace(&mut share, Share::one(f64::NAN));
        assert_eq!(mean.get(), Some((0.0, 1)));
    }
}

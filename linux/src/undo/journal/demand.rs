//! What a program's evenly tells others of its need of CPUs.
//!
//! Invariant: what stands in a journal is clamped to what can be, and holds until the moment that it says.

use super::Journal;
use super::layout::at;
use evenly_model::Nanos;
use std::sync::atomic::Ordering;

/// More threads than a program can have, in thousandths.
const MOST: u64 = 1_000 * 65_536;

/// How many CPUs a program has a use for, whatever it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Threads that ran, waited for a CPU, or had handed theirs over, in the mean: in thousandths.
    pub wanted_milli: u64,
    /// CPU time that its threads have given away instead of spinning, since it was started.
    pub given: Nanos,
    /// Until when this holds: CLOCK_MONOTONIC. Zero where nothing was said, as by an evenly whose program does not cooperate.
    pub until: Nanos,
}

impl Demand {
    /// From the words of a header.
    pub(super) fn from_words(wanted_milli: u64, given: u64, until: u64) -> Self {
        let wanted_milli = wanted_milli.min(MOST);
        Self { wanted_milli, given: Nanos(given), until: Nanos(until) }
    }
}

impl Journal {
    /// Tells others what the program has a use for, and what it has given.
    pub(crate) fn say(&self, wanted_milli: u64, given: Nanos) {
        let file = self.file();
        // Relaxed, here and below: who reads one word before and another after believes what was right a moment ago.
        file.map.word(at::WANTED).store(wanted_milli, Ordering::Relaxed);
        file.map.word(at::GIVEN).store(given.0, Ordering::Relaxed);
    }

    /// Tells them until when they may believe that.
    pub(crate) fn holds_until(&self, until: Nanos) {
        self.file().map.word(at::SAID_UNTIL).store(until.0, Ordering::Relaxed);
    }
}

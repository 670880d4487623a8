//! Sums over the last two seconds, by which rates, shares and speeds are averaged.
//!
//! Invariant: the size of a window is bounded, however short a period is.

use evenly_model::Nanos;
use std::collections::VecDeque;
use std::ops::AddAssign;

/// Over how much time rates, shares and speeds are averaged.
pub const WINDOW: Nanos = Nanos::from_millis(2_000);
/// The window moves in steps of this length.
const STEP: Nanos = Nanos::from_millis(250);

/// Sums over the last [`WINDOW`], in steps, so that its size does not depend on the period.
#[derive(Debug, Clone)]
pub(super) struct Window<T> {
    pub(super) steps: VecDeque<(u64, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self { steps: VecDeque::new() }
    }
}

impl<T: Copy + Default + AddAssign> Window<T> {
    pub(super) fn add(&mut self, at: Nanos, value: T) {
        let step = at.0 / STEP.0;
        match self.steps.back_mut() {
            Some((last, sum)) if *last >= step => *sum += value,
            _ => self.steps.push_back((step, value)),
        }
        // The newest step stays, however long ago the one before it was.
        while self.steps.front().is_some_and(|(s, _)| s + WINDOW.0 / STEP.0 <= step) {
            self.steps.pop_front();
        }
    }

    pub(super) fn sum(&self) -> T {
        self.steps.iter().fold(T::default(), |mut sum, (_, v)| {
            sum += *v;
            sum
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    pub(super) ran: Nanos,
    pub(super) waited: Nanos,
    pub(super) blocked: Nanos,
    /// CPU time that it spun.
    pub(super) spun: Nanos,
    /// Periods in which no probe reported spinning.
    pub(super) unreported: u32,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, o: Self) {
        self.ran += o.ran;
        self.waited += o.waited;
        self.blocked += o.blocked;
        self.spun += o.spun;
        self.unreported += o.unreported;
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weighted {
    pub(super) sum: f64,
    pub(super) weight: f64,
}

impl AddAssign for Weighted {
    fn add_assign(&mut self, o: Self) {
        self.sum += o.sum;
        self.weight += o.weight;
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) elapsed: Nanos,
    pub(super) cost: Nanos,
    pub(super) points: u64,
    pub(super) own: u64,
    pub(super) other: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, o: Self) {
        self.elapsed += o.elapsed;
        self.cost += o.cost;
        self.points += o.points;
        self.own += o.own;
        self.other += o.other;
    }
}

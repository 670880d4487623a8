//! A figure with its interval.

use evenly_model::stats::{median, median_interval, ratio_of_medians};
use serde::Serialize;

/// With fewer runs no interval is given.
const MIN_RUNS: usize = 3;

/// A median or a ratio of medians, with its 95 % bootstrap interval where there are runs enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// The median, or the ratio of medians.
    pub(crate) value: f64,
    /// Its 95 % bootstrap interval.
    pub(crate) ci95: Option<[f64; 2]>,
}

impl Measured {
    /// The median of a sample.
    pub(crate) fn median(sample: &[f64], seed: u64) -> Option<Self> {
        let ci95 = median_interval(sample, seed).filter(|_| sample.len() >= MIN_RUNS);
        Some(Self { value: median(sample)?, ci95: ci95.map(|(low, high)| [low, high]) })
    }

    /// The ratio of the medians of two samples.
    pub(crate) fn ratio(over: &[f64], under: &[f64], seed: u64) -> Option<Self> {
        let r = ratio_of_medians(over, under, seed)?;
        let enough = over.len().min(under.len()) >= MIN_RUNS;
        Some(Self { value: r.value, ci95: enough.then_some([r.low, r.high]) })
    }

    /// The same in another unit.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            ci95: self.ci95.map(|[low, high]| [low * factor, high * factor]),
        }
    }

    /// As text with so many decimals.
    pub(crate) fn text(&self, decimals: usize) -> String {
        match self.ci95 {
            Some([low, high]) => {
                format!("{:.decimals$} [{low:.decimals$}, {high:.decimals$}]", self.value)
            }
            None => format!("{:.decimals$}", self.value),
        }
    }
}

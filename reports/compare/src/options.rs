//! What is compared, and how.

use crate::metric::Metric;

/// What to compare, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The command as the user gave it, for the record.
    pub command: Vec<String>,
    /// Measured runs per arm.
    pub runs: usize,
    /// Rounds before them that are discarded.
    pub warmup: usize,
    /// Seed of the orders and of the bootstrap.
    pub seed: u64,
    /// The quantity that is compared.
    pub metric: Metric,
    /// Fail unless all runs, warm-up included, write the same bytes to standard output.
    pub same_output: bool,
    /// The least time that theory allows (e*n/m), in seconds, where the caller knows it.
    pub bound_s: Option<f64>,
    /// Keep every run's report in the result.
    pub keep_reports: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            runs: 10,
            warmup: 0,
            seed: 1,
            metric: Metric::WallTime,
            same_output: false,
            bound_s: None,
            keep_reports: false,
        }
    }
}

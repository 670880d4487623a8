//! The logic of `evenly compare`: runs a command under several policies, interleaved and in random
//! order, and says in numbers and in words which differences these runs show.
//!
//! ```text
//! arms x rounds -> Executor -> seconds per arm -> medians, bootstrap intervals, ratios
//!                                              -> verdicts, warnings -> JSON, table
//! ```
//!
//! Why interleaved: a machine drifts (frequency, temperature, neighbours). Runs of one policy in a
//! block would book the drift to the policy; one run of each policy per round, in an order drawn
//! anew for every round, spreads it over all of them.
//!
//! Invariants: every number in a [`Comparison`] comes from a run that succeeded and, where
//! [`Options::same_output`] is set, printed the same bytes as all the others; a difference is
//! claimed only by the rule in [`Verdict`]; with equal seeds and equal run times the result is
//! equal to the last bit.
//!
//! How runs come about is behind the trait [`Executor`]: [`ProcessExecutor`] starts real
//! processes, tests give a scripted one. The crate prints nothing by itself; [`Progress`] informs the
//! caller what happens, [`Bar`] shows it on a terminal, and [`table()`] makes the text.

#![forbid(unsafe_code)]

mod bar;
mod comparison;
mod executor;
mod metric;
mod options;
mod output;
mod process;
mod recommend;
mod run;
mod spec;
mod statistics;
mod table;
mod verdict;
mod warning;

pub use bar::Bar;
pub use comparison::{ArmResult, Comparison, Recommended, SCHEMA, Speedup};
pub use executor::{Arm, Executor, RunError, RunOutcome, Status};
pub use metric::{Metric, MetricError};
pub use options::Options;
pub use output::{Difference, Output};
pub use process::{Input, ProcessExecutor};
pub use recommend::promise_of;
pub use run::{CompareError, Progress, Round, Silent, compare};
pub use spec::{Spec, specs, variable};
pub use table::{STYLES, table};
pub use verdict::{Finding, Verdict};
pub use warning::{Warning, WarningKind, on_others};

#[cfg(test)]
mod tests;

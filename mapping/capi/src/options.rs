//! How a problem is mapped, as C has it.

use evenly_nuco::map::{Alpha, Options};
use std::ffi::c_char;

/// `struct evenly_map_options`: see the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the header has them")]
pub struct EvenlyMapOptions {
    pub struct_size: usize,
    pub algorithm: *const c_char,
    pub alpha: f64,
    pub seed: u64,
    pub time_limit_s: f64,
    pub migration_worth_s: f64,
    pub max_migrations: i64,
    pub max_imbalance: f64,
    pub tolerance: f64,
    pub beta: f64,
    pub windows: f64,
}

impl EvenlyMapOptions {
    /// The options that are usual.
    #[must_use]
    pub fn usual() -> Self {
        let usual = Options::default();
        Self {
            struct_size: size_of::<Self>(),
            algorithm: std::ptr::null(),
            alpha: match usual.alpha {
                Alpha::Fixed(alpha) => alpha,
                Alpha::Auto => -1.0,
            },
            seed: usual.seed,
            time_limit_s: usual.time_limit.as_secs_f64(),
            migration_worth_s: usual.migration_worth_s.unwrap_or(-1.0),
            max_migrations: -1,
            max_imbalance: -1.0,
            tolerance: usual.tolerance,
            beta: usual.beta.unwrap_or(-1.0),
            windows: usual.windows,
        }
    }
}

//! How much of the CPUs others took meanwhile.
//!
//! `/proc/stat` counts all that ran on our CPUs; `/proc/self/stat` counts what we and the programs
//! that we waited for used. The difference is what others took. Both count in hundredths of a
//! second, so short times give a rough figure.

use crate::proc::{CpuTicks, parse_cpu_ticks, parse_used_ticks};
use evenly_model::CpuSet;
use serde::Serialize;
use std::fs;
use std::io;
use std::time::Instant;

/// CPU time counted up to a moment, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    at: Instant,
    busy_s: f64,
    steal_s: f64,
    own_s: f64,
}

/// What happened between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Wall time, in seconds.
    pub elapsed_s: f64,
    /// CPU time that we and our programs used, in seconds.
    pub own_s: f64,
    /// Part of the CPUs' time that other programs of this machine took.
    pub others: f64,
    /// Part of the CPUs' time that the host of a virtual machine took.
    pub stolen: f64,
}

impl Usage {
    /// What has been counted up to now on these CPUs.
    ///
    /// # Errors
    /// Where `/proc` cannot be read.
    pub fn now(cpus: &CpuSet) -> io::Result<Self> {
        let unreadable = |file: &str| io::Error::other(format!("{file} is not as expected"));
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let own = parse_used_ticks(&fs::read("/proc/self/stat")?)
            .ok_or_else(|| unreadable("/proc/self/stat"))?;
        let CpuTicks { busy, stolen: steal, .. } = parse_cpu_ticks(&fs::read("/proc/stat")?, cpus)
            .ok_or_else(|| unreadable("/proc/stat"))?;
        Ok(Self {
            at: Instant::now(),
            busy_s: busy as f64 * tick,
            steal_s: steal as f64 * tick,
            own_s: own as f64 * tick,
        })
    }

    /// What happened from `earlier` to this moment on `cpus` CPUs.
    pub fn since(&self, earlier: &Self, cpus: usize) -> Load {
        let elapsed_s = (self.at - earlier.at).as_secs_f64();
        let (busy, own) = (self.busy_s - earlier.busy_s, self.own_s - earlier.own_s);
        let capacity = elapsed_s * cpus as f64;
        let part = |s: f64| if capacity > 0.0 { (s / capacity).clamp(0.0, 1.0) } else { 0.0 };
        Load {
            elapsed_s,
            own_s: own,
            others: part(busy - own),
            stolen: part(self.steal_s - earlier.steal_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_what_is_left() {
        let at = Instant::now();
        let a = Usage { at, busy_s: 10.0, steal_s: 0.0, own_s: 4.0 };
        let b = Usage {
            at: at + std::time::Duration::from_secs(2),
            busy_s: 14.0,
            steal_s: 0.2,
            own_s: 7.0,
        };
        let load = b.since(&a, 2);
        assert!((load.others - 0.25).abs() < 1e-9 && (load.stolen - 0.05).abs() < 1e-9, "{load:?}");
    }
}

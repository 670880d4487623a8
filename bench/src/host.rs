//! What this machine is, and how much of its CPUs others took while we measured.
//!
//! `/proc/stat` counts all that ran on our CPUs; `/proc/self/stat` counts what we and the programs
//! that we waited for used. The difference is what others took. Both count in hundredths of a
//! second, so short runs give a rough figure.

use evenly_linux::proc::{CpuTicks, parse_cpu_ticks, parse_used_ticks};
use evenly_model::CpuSet;
use serde::Serialize;
use std::fs;
use std::io;
use std::time::Instant;

/// The machine, for the record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Machine {
    /// Kernel release.
    pub(crate) kernel: String,
    /// CPU model.
    pub(crate) cpu_model: String,
    /// CPUs that are online.
    pub(crate) online: String,
    /// CPUs that the benchmarks use.
    pub(crate) used: String,
}

impl Machine {
    /// This machine.
    pub(crate) fn this(used: &CpuSet) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            online: read("/sys/devices/system/cpu/online"),
            used: used.to_string(),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .find_map(|l| l.split_once(':').filter(|(key, _)| key.trim() == "model name"))
        .map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned())
}

/// CPU time counted up to a moment, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    at: Instant,
    busy_s: f64,
    steal_s: f64,
    own_s: f64,
}

/// What happened between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Load {
    /// Wall time, in seconds.
    pub(crate) elapsed_s: f64,
    /// CPU time that we and our programs used, in seconds.
    pub(crate) own_s: f64,
    /// Part of the CPUs' time that other programs of this machine took.
    pub(crate) others: f64,
    /// Part of the CPUs' time that the host of a virtual machine took.
    pub(crate) stolen: f64,
}

impl Usage {
    /// What has been counted up to now on these CPUs.
    ///
    /// # Errors
    /// Where `/proc` cannot be read.
    pub(crate) fn now(cpus: &CpuSet) -> io::Result<Self> {
        let unreadable = |file: &str| io::Error::other(format!("{file} is not as expected"));
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let own = parse_used_ticks(&fs::read("/proc/self/stat")?)
            .ok_or_else(|| unreadable("/proc/self/stat"))?;
        let CpuTicks { busy, stolen: steal } = parse_cpu_ticks(&fs::read("/proc/stat")?, cpus)
            .ok_or_else(|| unreadable("/proc/stat"))?;
        Ok(Self {
            at: Instant::now(),
            busy_s: busy as f64 * tick,
            steal_s: steal as f64 * tick,
            own_s: own as f64 * tick,
        })
    }

    /// What happened from `earlier` to this moment on `cpus` CPUs.
    pub(crate) fn since(&self, earlier: &Self, cpus: usize) -> Load {
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

    #[test]
    fn the_model_of_a_cpu() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_model(text), "AMD EPYC");
        assert_eq!(cpu_model("processor : 0"), "unknown");
    }
}

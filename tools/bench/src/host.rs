//! What this machine is.

use evenly_model::CpuSet;
use serde::Serialize;
use std::fs;

/// The machine, for the record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HostRecord {
    /// The release of the kernel.
    pub(crate) kernel: String,
    /// The model of the CPU, as the system names it.
    pub(crate) cpu_model: String,
    /// CPUs that are online.
    pub(crate) online: String,
    /// CPUs that the benchmarks use.
    pub(crate) used: String,
}

impl HostRecord {
    /// Describes the machine that this runs on.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_a_cpu() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_model(text), "AMD EPYC");
        assert_eq!(cpu_model("processor : 0"), "unknown");
    }
}

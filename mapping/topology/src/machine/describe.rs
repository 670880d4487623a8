//! A machine in words.

use super::MachineTopology;
use crate::text::{alone, bytes, children, count};
use crate::tree::Kind;
use evenly_model::CpuSet;
use std::fmt::Write;

impl MachineTopology {
    /// A short text for people: what it consists of, and what of it may not be used.
    #[must_use]
    pub fn describe(&self) -> String {
        let root = self.root();
        let mut parts = Vec::new();
        for (kind, name) in [
            (Kind::Host, "host"),
            (Kind::Package, "package"),
            (Kind::Node, "NUMA node"),
            (Kind::Core, "core"),
            (Kind::Cpu, "CPU"),
        ] {
            let n = root.of(kind).len();
            if n > 0 {
                parts.push(count(n, name));
            }
        }
        let memory: u64 = root.of(Kind::Node).iter().filter_map(|n| n.bytes).sum();
        if memory > 0 {
            parts.push(bytes(memory));
        }
        let mut out = format!("{}: {}\n", self.title(), parts.join(", "));
        for node in &root.memory {
            let _ = writeln!(out, "  {}", alone(node));
        }
        children(root, 1, &mut out);
        let mut mark = |what: &str, cpus: &CpuSet| {
            if !cpus.is_empty() {
                let _ = writeln!(out, "  {what}: {}", cpus.in_words());
            }
        };
        mark("there and switched off", self.offline());
        mark("outside of the cpuset, not used", &self.disallowed());
        if self.kinds().len() > 1 {
            for (i, kind) in self.kinds().iter().enumerate() {
                let rank = kind.efficiency.map_or_else(String::new, |e| format!(", rank {e}"));
                let infos: Vec<String> =
                    kind.infos.iter().map(|(k, v)| format!("{k} {v}")).collect();
                let infos = if infos.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", infos.join(", "))
                };
                let _ = writeln!(out, "  CPU kind {i}{rank}{infos}: {}", kind.cpus.in_words());
            }
        }
        out
    }
}

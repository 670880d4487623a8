//! Lines to paste into a shell: the program's command after what helps it, and commands for running processes.
//!
//! Invariant: words from outside are quoted, so that a shell takes them as they are.

use crate::case::Case;
use crate::settings::{OPEN_MPI_YIELDS, Spinning, binding, endless_spinning};
use crate::{Finding, Kind};
use evenly_engine::Promise;
use evenly_evidence::{Other, Runtime, ThreadUse};
use evenly_model::{is_printable, shell_quoted};

/// Before a command: balances threads of equal work.
const RUN: &str = "evenly run -- ";
/// The same for threads of unequal work, where `auto` would not try that policy.
const RUN_UNEVEN: &str = "evenly run --policy hpc-auto -- ";

/// What a line that balances has before the program's command.
pub(crate) fn balances(line: &str) -> Option<&'static str> {
    [RUN, RUN_UNEVEN].into_iter().find(|before| line.starts_with(before))
}

/// An extended regular expression that matches this process name, quoted for a shell: the form in
/// which `pgrep -x` takes names. An unprintable character becomes `.`, which matches any character.
pub(crate) fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for (i, c) in name.chars().enumerate() {
        match c {
            // A pattern that starts with a dash would be taken for an option.
            '-' if i == 0 => pattern.push_str("[-]"),
            c if r"\.[]{}()*+?^$|".contains(c) => pattern.extend(['\\', c]),
            c if is_printable(c) && c != char::REPLACEMENT_CHARACTER => pattern.push(c),
            _ => pattern.push('.'),
        }
    }
    shell_quoted(&pattern)
}

impl Case<'_> {
    /// The program's command after these words. None where it is unknown.
    pub(crate) fn line(&self, before: &str) -> Option<String> {
        let words: Vec<String> = self.e.command.iter().map(|w| shell_quoted(w)).collect();
        (!words.is_empty()).then(|| format!("{} {}", before.trim_end(), words.join(" ")))
    }

    /// The same without what binds the program's threads. None where that is unknown.
    pub(crate) fn unbound(&self, before: &str) -> Option<String> {
        let what = match binding(&self.e.environment).filter(|_| self.open_mp()) {
            Some(setting) => {
                let name = setting.split('=').next().unwrap_or_default();
                match name {
                    "OMP_PROC_BIND" => String::from("OMP_PROC_BIND=false"),
                    name => format!("env -u {name} OMP_PROC_BIND=false"),
                }
            }
            // The launcher binds ranks by default.
            None if self.mpi() == Some(Runtime::OpenMpi) => {
                String::from("OMPI_MCA_hwloc_base_binding_policy=none")
            }
            None => return None,
        };
        self.line(&format!("{what} {before}"))
    }

    /// The line that shows when each thread computes and waits.
    pub(crate) fn show(&self) -> Option<String> {
        if let Some(pid) = self.e.pid {
            return Some(format!("evenly top {pid}"));
        }
        // Without the probe, threads that spin would seem to compute.
        let probe = if self.spin_is_known() { " --probe on" } else { "" };
        let run = format!("evenly run --policy observe{probe} --record run.evenly --");
        self.line(&run).map(|line| format!("{line}; evenly report run.evenly"))
    }

    /// The line that balances the program, whose threads have equal work.
    pub(crate) fn balance(&self) -> Option<String> {
        self.line(RUN)
    }

    /// The same where their work may be `uneven`.
    pub(crate) fn balance_work(&self, uneven: bool) -> Option<String> {
        if self.wants_parts(uneven) { self.line(RUN_UNEVEN) } else { self.balance() }
    }

    /// The line that replaces one that balances, where balancing promises no gain as things are.
    pub(crate) fn instead(
        &self,
        f: &Finding,
        before: &str,
        measure: Option<&str>,
    ) -> Option<String> {
        match f.kind {
            Kind::Spinning | Kind::MpiOversubscribed => measure.map(str::to_owned),
            _ if self.is_bound() && self.unbound(before).is_some() => self.unbound(before),
            Kind::Neighbour => self.named().first().map(|o| renice(o)).or_else(|| self.show()),
            Kind::UnevenWork => self.show(),
            _ => None,
        }
    }

    /// The line that measures what no rule decides: the best way to wait, and what evenly gains.
    pub(crate) fn measure(&self, findings: &[Finding]) -> Option<String> {
        let has = |kind: Kind| findings.iter().any(|f| f.kind == kind);
        let mut arms = Vec::from([String::from("kernel")]);
        arms.extend(self.other_waiting(findings).map(|variables| format!("kernel:{variables}")));
        // Where they do not spin it takes as long.
        let fewer = findings.is_empty() && self.may_spin() || has(Kind::TooManyThreads);
        if fewer && self.open_mp() {
            arms.push(format!("kernel:OMP_NUM_THREADS={}", self.m()));
        }
        let promise = self.promise(has(Kind::UnevenWork));
        let uneven = !matches!(promise, Promise::Apart | Promise::Equal);
        if arms.len() == 1 && !uneven {
            return self.line("evenly compare --");
        }
        // The threads of a program that binds them are not moved.
        arms.extend((!self.is_bound()).then(|| String::from("auto")));
        arms.extend(uneven.then(|| String::from("hpc-auto")));
        self.line(&format!("evenly compare --policies {} --", shell_quoted(&arms.join(","))))
    }

    /// Variables that make threads wait in another way, if there are any and waiting is the cause.
    pub(crate) fn other_waiting(&self, findings: &[Finding]) -> Option<String> {
        let has = |kind: Kind| findings.iter().any(|f| f.kind == kind);
        if has(Kind::MpiOversubscribed) && self.mpi() == Some(Runtime::OpenMpi) {
            let other = if self.yields() { "0" } else { "1" };
            return Some(format!("{}={other}", OPEN_MPI_YIELDS[0]));
        }
        if !has(Kind::Spinning) || !self.open_mp() {
            return None;
        }
        let set: Vec<String> =
            endless_spinning(&self.e.environment).iter().map(Spinning::sleeping).collect();
        Some(if set.is_empty() { self.sleeping().to_owned() } else { set.join(" ") })
    }

    /// The variable that makes threads of OpenMP sleep while they wait.
    pub(crate) fn sleeping(&self) -> &'static str {
        if self.e.runtimes.contains(&Runtime::Omp) {
            "KMP_BLOCKTIME=0"
        } else {
            "OMP_WAIT_POLICY=passive"
        }
    }

    /// The line that unpins these threads while they run. They may belong to several processes, and to none
    /// that the user named.
    pub(crate) fn unpin(&self, threads: &[&ThreadUse]) -> Option<String> {
        self.e.pid?;
        let mut pids: Vec<i32> = threads.iter().map(|t| t.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let cpus = &self.e.cpuset;
        match pids.as_slice() {
            [] => None,
            [pid] => Some(format!("taskset -apc {cpus} {pid}")),
            several => {
                let list: Vec<String> = several.iter().map(ToString::to_string).collect();
                let list = list.join(" ");
                Some(format!("for p in {list}; do taskset -apc {cpus} $p; done"))
            }
        }
    }
}

/// Lowers another process, which only root may do to one of another user.
pub(crate) fn renice(other: &Other) -> String {
    let sudo = if other.user.is_some() { "sudo " } else { "" };
    format!("{sudo}renice -n 19 -p {}", other.pid)
}

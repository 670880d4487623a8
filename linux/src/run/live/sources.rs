//! Where thread times can come from on this machine, each source tried.
//!
//! Invariant: a source that is returned has worked once; one that does not work is returned with the reason.

use super::{LiveError, SourceKind};
use crate::bpf::Switches;
use crate::journal::Process;
use crate::machine::Source;
use crate::proc::{Proc, parse_schedstat, read_all};
use crate::taskstats::TaskStats;

/// Opens one source per domain; the caller opens the shared one.
pub(super) fn source(wanted: SourceKind, has_schedstat: bool) -> Result<Source, LiveError> {
    let taskstats = || TaskStats::open().map(|t| Source::Taskstats(Box::new(t)));
    match wanted {
        SourceKind::Schedstat | SourceKind::Bpf => Ok(Source::Schedstat),
        SourceKind::Auto if has_schedstat => Ok(Source::Schedstat),
        SourceKind::Auto => taskstats().map_err(|e| LiveError::NoSource(e.to_string())),
        SourceKind::Taskstats => {
            taskstats().map_err(|e| LiveError::Source("taskstats", e.to_string()))
        }
    }
}

/// A source of thread times, and whether this machine and this user have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceOffer {
    /// As `--source` has it.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// Why it is not to be had, where that is so.
    pub missing: Option<String>,
}

/// The sources of thread times that there are, each tried.
#[must_use]
pub fn sources() -> Vec<SourceOffer> {
    let own = read_all(&Proc::default().process_file(Process::own().pid, "schedstat"));
    let schedstat = own.is_ok_and(|t| parse_schedstat(&t).is_some());
    let lacks =
        || String::from("this kernel has no /proc/PID/schedstat (needed: CONFIG_SCHED_INFO)");
    vec![
        SourceOffer {
            name: "schedstat",
            what: "/proc/PID/task/TID/schedstat, one system call for a thread",
            missing: (!schedstat).then(lacks),
        },
        SourceOffer {
            name: "taskstats",
            what: "the taskstats netlink interface, two system calls for 32 threads",
            missing: TaskStats::open().err().map(|e| e.to_string()),
        },
        SourceOffer {
            name: "bpf",
            what: "accounts that BPF programs keep at each switch, read without a system call",
            missing: Switches::with_slots(1).err().map(|e| e.to_string()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_schedstat_taskstats_is_taken_or_the_reason_is_reported() {
        assert!(matches!(source(SourceKind::Auto, true), Ok(Source::Schedstat)));
        match source(SourceKind::Auto, false) {
            Ok(Source::Taskstats(_)) => assert!(TaskStats::open().is_ok()),
            Err(LiveError::NoSource(why)) => assert!(!why.is_empty() && TaskStats::open().is_err()),
            _ => panic!("schedstat, which is not there"),
        }
    }
}

//! Where thread times can come from on this machine, each source tried.
//!
//! Invariant: a source that is returned has worked once; one that does not work is returned with the reason.

use super::{LiveError, SourceKind};
use crate::journal::Process;
use crate::proc::{Proc, parse_schedstat, read_all};
use crate::taskstats::TaskStats;
use crate::threads::Source;

/// Whether the kernel has schedstat, by which threads that compute are found whatever source is wanted.
pub(super) fn has_schedstat(proc: &Proc) -> bool {
    let own = read_all(&proc.process_file(Process::own().pid, "schedstat"));
    own.is_ok_and(|t| parse_schedstat(&t).is_some())
}

/// The source of the times of threads that are balanced, one for each reader.
pub(super) fn open_source(wanted: SourceKind) -> Result<Source, LiveError> {
    match wanted {
        SourceKind::Schedstat => Ok(Source::Schedstat),
        SourceKind::Taskstats => TaskStats::open()
            .map(|t| Source::Taskstats(Box::new(t)))
            .map_err(|e| LiveError::Source("taskstats", e.to_string())),
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
    offers(&Proc::default())
}

fn offers(proc: &Proc) -> Vec<SourceOffer> {
    let schedstat = (!has_schedstat(proc)).then(|| LiveError::NoSchedstat.to_string());
    let taskstats = schedstat.clone().or_else(|| TaskStats::open().err().map(|e| e.to_string()));
    vec![
        SourceOffer {
            name: "schedstat",
            what: "/proc/PID/task/TID/schedstat, one system call for a thread",
            missing: schedstat,
        },
        SourceOffer {
            name: "taskstats",
            what: "the taskstats netlink interface, two system calls for 32 threads",
            missing: taskstats,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: a source that is offered although no thread can be found, and a kernel that is taken for one
    /// without schedstat.
    #[test]
    fn without_schedstat_there_is_no_source_and_the_remedy_is_named() {
        let without = tempfile::tempdir().unwrap();
        for offer in offers(&Proc::at(without.path())) {
            let why = offer.missing.unwrap();
            assert!(
                why.contains("no /proc/PID/schedstat; boot") && why.contains("SCHED_INFO"),
                "{why}"
            );
        }
        assert_eq!(sources()[0].missing, None);
    }
}

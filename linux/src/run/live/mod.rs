//! The cycle at work on a running program: finds its threads, gives them to the balancers of the
//! domains, keeps the periods, and ends with every mask given back.
//!
//! The coordinator runs in the calling thread. It scans for threads, recognises those that compute
//! (`Tracker`), gives each to a domain, and balances the first domain itself; every further domain
//! has a thread of its own. Domains share nothing but the journal and what is known of masks; the
//! coordinator hands threads over through a mailbox per domain.
//!
//! Where each CPU has a balancer of its own (`evenly_secretary`), all CPUs are one domain, whose
//! balancer is the caretaker of the others; those are served by worker threads (`crate::agents`).
//!
//! Invariant: whichever way [`Live::run`] is left, every balancer has finished, so every mask that
//! is still ours has been given back.

mod coordinator;
mod cycle;
mod decision_log;
mod domain;
mod mailbox;
mod options;
mod report;
mod schedule;
mod set_up;
mod sources;
mod target;
#[cfg(test)]
mod tests;

pub use self::decision_log::describe;
pub use self::options::{LiveOptions, ProgressKind, SourceKind};
pub use self::report::LiveReport;
pub use self::sources::{SourceOffer, sources};
pub use self::target::{TargetError, balanced_above, check_target, check_target_is_free};
pub use crate::control::Control;

use self::cycle::run_domains;
use self::set_up::SetUp;
use crate::clock::now;
use crate::counters::CountersError;
use crate::guardian::{Guardian, GuardianError};
use crate::journal::{Journal, JournalError, Process};
use crate::limits::Limits;
use crate::machine::Masks;
use crate::proc::Proc;
use evenly_engine::Observer;
use evenly_model::{CpuId, CpuSet, DomainId, Pid};
use std::sync::Arc;

/// Why a program cannot be balanced. It runs on (promise P8).
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Something about the machine cannot be read.
    #[error(transparent)]
    Limits(#[from] crate::limits::LimitsError),
    /// The source of thread times that was asked for does not work here.
    #[error("--source {0}: {1}")]
    Source(&'static str, String),
    /// This kernel has no schedstat, by which threads that compute are found.
    #[error(
        "this kernel does not report how long threads waited for a CPU: there is no /proc/PID/schedstat; boot a \
         kernel that is built with CONFIG_SCHED_INFO"
    )]
    NoSchedstat,
    /// Progress that was asked for cannot be counted here.
    #[error("--progress instructions: {0}; without it progress is CPU time")]
    Progress(#[from] CountersError),
    /// None of the CPUs asked for can be used.
    #[error("--cpus {asked}: none of them can be used by the program; it may use {usable}")]
    NoCpus {
        /// What was asked for.
        asked: CpuSet,
        /// The CPUs that the program may use.
        usable: CpuSet,
    },
    /// `/proc` hides the program.
    #[error(
        "/proc shows nothing of process {0} (hidepid, or it belongs to another pid namespace); run \
         evenly as root, or: mount -o remount,hidepid=0 /proc"
    )]
    Invisible(Pid),
    /// The guardian was killed.
    #[error(
        "the guardian that restores masks when evenly dies was killed, and no other can be started, \
         so all masks are restored and balancing ends: {0}"
    )]
    Unguarded(#[from] GuardianError),
    /// The journal was removed.
    #[error(
        "the journal that says what to undo was removed with its directory, and cannot be made anew, \
         so all masks are restored and balancing ends: {0}"
    )]
    NoJournal(#[from] JournalError),
    /// A helper neither sleeps nor ends.
    #[error(
        "the helper of CPU {0} does not sleep any more, which is an error in evenly, so all masks are restored and \
         balancing ends; without helpers: --policy hybrid"
    )]
    Stuck(CpuId),
    /// A thread for a domain's balancer cannot be started.
    #[error("cannot start a balancer thread: {0}")]
    Thread(std::io::Error),
}

/// A program that is being balanced.
pub struct Live {
    options: LiveOptions,
    root: Pid,
    journal: Arc<Journal>,
    guardian: Option<Arc<Guardian>>,
    masks: Arc<Masks>,
    limits: Limits,
    most_files: usize,
}

impl Live {
    /// For the program whose first process is `root`. Where the policy changes anything the journal
    /// must be guarded by now, and the guardian given to [`Live::guarded_by`].
    #[must_use]
    pub fn new(options: LiveOptions, root: Pid, journal: Arc<Journal>) -> Self {
        if let Some(program) = Process::find(&Proc::default(), root) {
            journal.set_program(program);
        }
        Self {
            options,
            root,
            masks: Arc::new(Masks::new(journal.clone())),
            journal,
            guardian: None,
            limits: Limits::default(),
            most_files: most_files(),
        }
    }

    /// Looks after this guardian: one that is killed is replaced, and where that cannot be,
    /// balancing ends.
    #[must_use]
    pub fn guarded_by(mut self, guardian: Arc<Guardian>) -> Self {
        self.guardian = Some(guardian);
        self
    }

    /// Whether the program exists, but not in `/proc` as we see it.
    fn is_hidden(&self) -> bool {
        Proc::default().process_stat(self.root).is_none()
            && rustix::process::Pid::from_raw(self.root.0).is_some_and(|pid| {
                !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
            })
    }

    /// Balances until `control` ends it or until the program has ended. `observers` makes the observers
    /// of one domain.
    ///
    /// # Errors
    /// [`LiveError`]; nothing has been changed then, or everything is as it was.
    pub fn run(
        mut self,
        control: &Control,
        mut observers: impl FnMut(DomainId) -> Vec<Box<dyn Observer>>,
    ) -> Result<LiveReport, LiveError> {
        if self.is_hidden() {
            return Err(LiveError::Invisible(self.root));
        }
        let SetUp { domains, runners, mut coordinator, facts } = self.set_up(&mut observers)?;
        let domains = run_domains(domains, runners, &mut coordinator, control)?;
        match coordinator.unguarded.take() {
            Some(why) => Err(why),
            None => Ok(self.report(&domains, coordinator, facts, now())),
        }
    }
}

/// How many descriptors may be kept open for threads: what the limit allows, after raising it as
/// far as that goes, less what else may be open.
fn most_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let current = current.and_then(|c| usize::try_from(c).ok()).unwrap_or(65_536);
    current.saturating_sub(128).min(65_536)
}

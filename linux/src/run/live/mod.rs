//! The cycle at work on a running program: finds its threads, gives them to the balancers of the
//! domains, keeps the periods, and ends with every mask given back.
//!
//! The coordinator runs in the calling thread. It scans for threads, recognises those that compute
//! (`Tracker`), gives each to a domain, and balances the first domain itself; every further domain
//! has a thread of its own. Domains share nothing but the journal and what is known of masks; the
//! coordinator hands threads over through a mailbox per domain.
//!
//! Where each CPU has a balancer of its own (`evenly_engine::decentral`), all CPUs are one domain, whose
//! balancer is the caretaker of the others; those are served by worker threads (`crate::workers`).
//!
//! Invariant: whichever way [`Live::run`] is left, every balancer has finished, so every mask that
//! is still ours has been given back.

mod coordinator;
mod decision_log;
mod domain;
mod mailbox;
mod options;
mod report;
mod schedule;
mod sources;
mod target;

pub use self::decision_log::describe;
pub use self::options::{LiveOptions, ProgressKind, SourceKind};
pub use self::report::LiveReport;
pub use self::sources::{SourceOffer, sources};
pub use self::target::{TargetError, balanced_above, check_target, check_target_is_free};
pub use crate::control::Control;

use self::coordinator::{Coordinator, GUARDIAN_LOOKS, Home, QUOTA_LOOKS, numbering};
use self::domain::{Domain, UNBOUND_LOOKS};
use self::mailbox::Together;
use self::schedule::{Allowance, JOBS, Job};
use self::sources::source;
use crate::bpf::{SLOTS, Switches};
use crate::clock::{now, process_cpu_time, thread_cpu_time};
use crate::counters::{Counted, Counters, CountersError, several_kinds_of_cpus};
use crate::guardian::{Guardian, GuardianError};
use crate::journal::{Journal, JournalError, Process};
use crate::limits::{DomainKind, Limits, slice};
use crate::machine::{LinuxMachine, Masks, Source};
use crate::proc::{Proc, parse_schedstat, read_all};
use crate::scan::Scanner;
use crate::share::Shares;
use crate::tuning::Tuning;
use crate::workers::{Workers, lock};
use evenly_engine::{
    Balancer, BalancerOptions, DomainSpread, Observer, Period, PeriodControl, PeriodOptions,
    Summary, Tracker, TrackerOptions,
};
use evenly_model::{CpuSet, DomainId, Environment, Nanos, Pid, ThreadId};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

/// Why a program cannot be balanced. It runs on (promise P8).
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Something about the machine cannot be read.
    #[error(transparent)]
    Limits(#[from] crate::limits::LimitsError),
    /// The source of thread times that was asked for does not work here.
    #[error("--source {0}: {1}")]
    Source(&'static str, String),
    /// This kernel has no schedstat, and what would do instead does not work either.
    #[error(
        "this kernel does not tell how long threads waited for a CPU (/proc/self/schedstat; needed: \
         CONFIG_SCHED_INFO), and taskstats cannot be used instead: {0}"
    )]
    NoSource(String),
    /// Progress that was asked for cannot be counted here.
    #[error("--progress instructions: {0}; without it progress is CPU time")]
    Progress(#[from] CountersError),
    /// None of the CPUs asked for can be used.
    #[error("--cpus {asked}: none of them can be used by the program; it may use {usable}")]
    NoCpus {
        /// What was asked for.
        asked: CpuSet,
        /// What there is.
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
         so all masks are given back and balancing ends: {0}"
    )]
    Unguarded(#[from] GuardianError),
    /// The journal was removed.
    #[error(
        "the journal that says what to undo was removed with its directory, and cannot be made anew, \
         so all masks are given back and balancing ends: {0}"
    )]
    NoJournal(#[from] JournalError),
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
    /// What counts in the kernel, where that is asked for.
    switches: Option<Arc<Switches>>,
}

/// The part of the overhead budget that scanning may use.
const SCAN_SHARE: f64 = 0.4;
/// How long the threads must stand still before balancing begins.
const SETTLE: Nanos = Nanos::from_millis(60);

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
            switches: None,
        }
    }

    /// Looks after this guardian: one that is killed is replaced, and where that cannot be,
    /// balancing ends.
    #[must_use]
    pub fn guarded_by(mut self, guardian: Arc<Guardian>) -> Self {
        self.guardian = Some(guardian);
        self
    }

    /// The domains, as sets of CPUs, what the program may use now, and CPUs of no domain: those that
    /// may come online, but are not there yet, so that nobody knows where they will be.
    fn domains(&self) -> Result<(Vec<CpuSet>, CpuSet, CpuSet), LiveError> {
        let online = self.limits.online()?;
        let allowed = self.limits.cpuset(self.root).unwrap_or_else(|_| online.clone());
        let cpus = match &self.options.cpus {
            Some(asked) => asked.clone(),
            None => online,
        };
        let usable = cpus.and(&allowed);
        if usable.is_empty() {
            return Err(LiveError::NoCpus { asked: cpus, usable: allowed });
        }
        // Domains are made of all CPUs that may ever be used, so that a CPU or cpuset that comes
        // back finds its domain.
        let possible = match &self.options.cpus {
            Some(asked) => asked.clone(),
            None => self.limits.possible()?,
        };
        let kind = self.domain_kind();
        let mut domains = self.limits.domains(kind, &possible)?;
        domains.retain(|d| !d.is_empty());
        if domains.len() <= 1 {
            domains = vec![possible.clone()];
        }
        let homeless = domains.iter().fold(possible, |left, d| left.minus(d));
        Ok((domains, usable, homeless))
    }

    fn domain_kind(&self) -> DomainKind {
        self.options.domain.unwrap_or(DomainKind::Numa)
    }

    /// Whether the program exists, but not in `/proc` as we see it.
    fn is_hidden(&self) -> bool {
        Proc::default().process_stat(self.root).is_none()
            && rustix::process::Pid::from_raw(self.root.0).is_some_and(|pid| {
                !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
            })
    }

    fn source(&self) -> Result<Source, LiveError> {
        // One for all domains: each switch of a thread is counted once.
        if let Some(switches) = &self.switches {
            return Ok(Source::Bpf(switches.clone()));
        }
        let own = || read_all(&Proc::default().process_file(Process::own().pid, "schedstat"));
        source(self.options.source, own().is_ok_and(|t| parse_schedstat(&t).is_some()))
    }

    /// Whether the CPUs are of unequal speed, as far as the system shows it.
    fn cpus_differ(&self, cpus: &CpuSet) -> bool {
        let mut capacities = cpus.iter().map(|c| self.limits.capacity(c));
        let first = capacities.next();
        capacities.any(|c| Some(c) != first) || several_kinds_of_cpus()
    }

    /// Counters for one domain, if progress is counted, with at most so many descriptors; and what
    /// is to be said about it. Which it is may depend on whether CPUs differ in speed.
    fn counters(
        &self,
        cpus_differ: bool,
        most: usize,
    ) -> Result<(Option<Counters>, Option<String>), LiveError> {
        const COUNTS: &str = "progress is counted in retired instructions";
        let counters = || Counters::new(Counted::Instructions, most);
        match self.options.progress {
            ProgressKind::CpuTime => Ok((None, None)),
            // Balancers of CPUs read threads one at a time, where they search.
            _ if self.options.policy.decentral.is_some() => {
                let name = self.options.policy.name;
                let note = (self.options.progress == ProgressKind::Instructions)
                    .then(|| format!("{name} takes CPU time for progress, not instructions"));
                Ok((None, note))
            }
            ProgressKind::Instructions => Ok((Some(counters()?), Some(COUNTS.to_owned()))),
            ProgressKind::Auto if !cpus_differ => Ok((None, None)),
            ProgressKind::Auto => Ok(match counters() {
                Ok(counters) => (Some(counters), Some(COUNTS.to_owned())),
                Err(why) => {
                    let note = format!(
                        "the CPUs differ in speed, and progress is CPU time by the capacity that the \
                         kernel tells, because instructions are not counted: {why}"
                    );
                    (None, Some(note))
                }
            }),
        }
    }

    /// Balances until told to end or until the program has ended. `observers` makes the observers
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
        if self.options.source == SourceKind::Bpf {
            let switches = Switches::open().map_err(|e| LiveError::Source("bpf", e.to_string()))?;
            self.switches = Some(Arc::new(switches));
        }
        let (mut sets, usable, mut homeless) = self.domains()?;
        let kind = self.domain_kind();
        let decentral = self.options.policy.decentral;
        // What are domains elsewhere are the nodes of one.
        let nodes = if decentral.is_some() { sets.clone() } else { Vec::new() };
        if decentral.is_some() || self.options.policy.places_load {
            // Those that are not there yet are in it, of no node.
            sets = vec![sets.iter().fold(std::mem::take(&mut homeless), |all, d| all.or(d))];
        }
        let threads =
            if decentral.is_some() { 1 + Workers::number(usable.len()) } else { sets.len() };
        let began = now();
        // Half of the descriptors for the coordinator, half for the balancers.
        let files_each = self.most_files / 2 / threads.max(1);
        let cpus_differ = self.options.progress == ProgressKind::Auto && self.cpus_differ(&usable);
        let mut workers = None;
        let mut notes = Vec::new();
        let mut source_name = None;
        let together = Arc::new(Together::default());
        let mut domains = Vec::new();
        for (i, cpus) in sets.into_iter().enumerate() {
            let id = DomainId(i as u32);
            // Of these a third is for counters: a thread has two files and one or two counters.
            let (counters, note) = self.counters(cpus_differ, files_each / 3)?;
            let files = files_each - if counters.is_some() { files_each / 3 } else { 0 };
            let source = self.source()?;
            source_name = Some(source.name());
            let machine =
                LinuxMachine::new(self.root, self.masks.clone(), source, files)
                    .counting(counters)
                    .told_by(self.options.told_by.as_ref().and_then(|make| make()))
                    .counted_by(self.options.counted_by.take())
                    .sharing(self.options.policy.gives_weights.then(|| {
                        Shares::new(self.options.shares, self.journal.clone(), self.root)
                    }));
            if i == 0 {
                notes.extend(note);
            }
            let machine = Arc::new(Mutex::new(machine));
            let s = slice();
            let seed = self.options.seed.wrapping_add(i as u64);
            let period = PeriodControl::new(PeriodOptions {
                period: self.options.period,
                budget: self.options.budget * (1.0 - SCAN_SHARE),
                slice: s.tick.max(s.slice),
                seed,
            });
            let options = BalancerOptions {
                domain: id,
                cpus,
                wanted: self.options.cpus.clone(),
                policy: self.options.policy,
                environment: Environment {
                    knowledge: self.options.knowledge.clone().filter(|_| decentral.is_none()),
                    levels: self.options.levels.clone(),
                    parts: self.options.shares.parts(),
                    tuning: self.options.parameters.clone(),
                },
                guard: self.options.guard,
            };
            let (balancer, board) = if let Some(cut_off) = decentral {
                let (caretaker, all) =
                    Balancer::decentral(options, cut_off, &nodes, period.current(), seed, began);
                let eyes = || {
                    let source = self.source()?;
                    let machine =
                        LinuxMachine::new(self.root, self.masks.clone(), source, files_each);
                    Ok::<_, LiveError>(machine)
                };
                let board = all.board.clone();
                workers = Some(Workers::new(all, usable.len(), machine.clone(), eyes)?);
                (caretaker, Some(board))
            } else {
                (Balancer::new(options, began), None)
            };
            domains.push(Domain {
                together: together.clone(),
                balancer,
                machine,
                board,
                called_at: began,
                measured: None,
                paid: Nanos::ZERO,
                period,
                observers: observers(id),
                mailbox: Arc::default(),
                journal: self.journal.clone(),
                due: began,
                generation: 0,
                may_rest: self.options.period == Period::Auto
                    && !self.options.policy.only_watches(),
                mapped: self.options.mapping.is_some().then(Vec::new),
                whole: self.options.whole.clone(),
                next_unbound: began + UNBOUND_LOOKS,
                told_of_unbound: false,
                tuning: self.options.tuning.as_ref().map(Tuning::reader),
                tells_of_tuning: i == 0,
            });
        }
        let mut coordinator = Coordinator {
            together,
            tracker: Tracker::new(TrackerOptions {
                expected: self.options.expected,
                settle: SETTLE,
                eligible: self.options.eligible,
            }),
            scanner: Scanner::new(Proc::default(), self.root, self.most_files / 2),
            homes: domains
                .iter()
                .map(|d| Home { cpus: d.balancer.cpus().clone(), mailbox: d.mailbox.clone() })
                .collect(),
            // All of it until there is something to balance.
            allowance: Allowance::new(self.options.budget, began),
            scan_share: self.options.budget * SCAN_SHARE,
            jobs: JOBS.map(|kind| Job::new(kind, began)),
            found_processes: false,
            started_at: None,
            members: Vec::new(),
            replaced: Vec::new(),
            masks: Vec::new(),
            // What is only watched is not moved.
            spread: (!self.options.policy.only_watches())
                .then(|| DomainSpread::new(self.options.policy.is_reference)),
            vanished: false,
            homeless,
            kind,
            most_threads: 0,
            most_processes: 0,
            realtime_threads: 0,
            numbering: numbering(
                self.options.numbered_by,
                self.options.mapping.as_ref(),
                self.options.knowledge.as_deref(),
            ),
            mapping: self.options.mapping,
            limits: self.limits.clone(),
            root: self.root,
            quota: self.limits.quota(self.root).unwrap_or_default(),
            next_quota: began + QUOTA_LOOKS,
            guardian: self.guardian.clone(),
            next_guardian: began + GUARDIAN_LOOKS,
            unguarded: None,
            told_of_journal: false,
            notes,
        };
        let period = domains.first().map(|d| d.period.wanted()).unwrap_or_default();
        let domains = run_domains(domains, workers, &mut coordinator, control)?;
        if let Some(why) = coordinator.unguarded {
            return Err(why);
        }

        let end = now();
        let mut report = LiveReport {
            balanced_s: coordinator.started_at.map_or(0.0, |t| (end - t).as_secs_f64()),
            overhead_s: process_cpu_time().as_secs_f64(),
            threads: coordinator.most_threads,
            processes: coordinator.most_processes,
            realtime_threads: coordinator.realtime_threads,
            started: coordinator.started_at.is_some(),
            quota: coordinator.quota,
            period,
            source: source_name,
            mapping: None,
            cpus: usable,
            summary: Summary::default(),
        };
        let online = self.limits.online().unwrap_or_default();
        for d in &domains {
            let account = d.balancer.summary(end);
            // A node that has been offline throughout is none to speak of.
            if account.0.threads > 0 || !d.balancer.cpus().and(&online).is_empty() {
                report.summary.add(account);
            }
        }
        // What the threads may use where that is less: a wrapper such as taskset limits them.
        let allowed = report
            .summary
            .domains
            .iter()
            .fold(CpuSet::new(), |all, d| all.or(&d.allowed))
            .and(&report.cpus);
        if !allowed.is_empty() {
            report.cpus = allowed;
        }
        if let Some(left_out) = self.switches.map(|s| s.left_out()).filter(|n| *n > 0) {
            report.summary.notes.push(format!(
                "--source bpf: {left_out} times a thread was read from /proc, because accounts are kept \
                 of {SLOTS} threads at once"
            ));
        }
        let told = coordinator.numbering.filter(|_| report.started);
        let profile = self.options.knowledge.as_ref().and_then(|k| k.profile.as_ref());
        if let (Some(numbering), Some(profile)) = (&told, profile) {
            report.summary.notes.push(numbering.note(profile.tasks().iter().map(|t| t.id)));
        }
        if let (Some(mapping), Some(numbering)) = (coordinator.mapping, told) {
            report.summary.notes.extend(mapping.notes(&numbering));
            report.mapping = Some(mapping.placed(&numbering));
            // What a mapping narrows is no mask of the thread's own.
            let mapped = domains.iter().flat_map(|d| d.mapped.iter().flatten());
            let mapped: HashSet<ThreadId> = mapped.map(|m| m.id).collect();
            for t in report.summary.threads.iter_mut().filter(|t| mapped.contains(&t.id)) {
                t.own_mask = false;
            }
        }
        Ok(report)
    }
}

/// Runs all domains until the end; the first one in this thread, together with the coordinator.
fn run_domains(
    domains: Vec<Domain>,
    workers: Option<Workers>,
    coordinator: &mut Coordinator,
    control: &Control,
) -> Result<Vec<Domain>, LiveError> {
    std::thread::scope(|scope| {
        let mut domains = domains.into_iter();
        let first = domains.next();
        let mut handles = Vec::new();
        for (i, domain) in domains.enumerate() {
            let name = format!("balancer-{}", i + 1);
            handles.push(spawn(scope, name, control, move || domain.run(control))?);
        }
        let mut at_work = Vec::new();
        for (i, worker) in workers.into_iter().flat_map(Workers::each).enumerate() {
            let name = format!("worker-{i}");
            at_work.push(spawn(scope, name, control, move || worker.run(control))?);
        }
        let mut done = Vec::new();
        if let Some(mut domain) = first {
            loop {
                let due = if domain.balancer.is_empty() {
                    coordinator.due()
                } else {
                    domain.due.min(coordinator.due())
                };
                let due = due.min(coordinator.guarding_due());
                if control.sleep_until(due, || domain.is_called())
                    || coordinator.vanished
                    || !coordinator.is_guarded()
                {
                    control.end();
                    break;
                }
                if domain.is_called() {
                    domain.due = domain.called_at;
                }
                if now() >= coordinator.due() {
                    let before = thread_cpu_time();
                    if coordinator.work(&mut lock(&domain.machine)) {
                        domain.due = now();
                        control.wake();
                    }
                    for text in std::mem::take(&mut coordinator.notes) {
                        domain.balancer.note(now(), text, &mut domain.observers);
                    }
                    domain.paid += thread_cpu_time() - before;
                }
                if now() >= domain.due {
                    let before = domain.activations();
                    domain.point();
                    if domain.activations() != before {
                        control.wake();
                    }
                }
            }
            // Nobody must narrow a mask any more when masks are given back.
            for worker in at_work {
                // One that panicked has a bug; it does nothing any more.
                let _ = worker.join();
            }
            domain.balancer.finish(&mut *lock(&domain.machine));
            done.push(domain);
        }
        for handle in handles {
            // A balancer that panicked has a bug; its journal stays, and the guardian restores.
            done.extend(handle.join().ok());
        }
        Ok(done)
    })
}

/// Starts a thread. Where that cannot be, those that have been started are told to end.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    control: &Control,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, LiveError> {
    std::thread::Builder::new().name(name).spawn_scoped(scope, work).map_err(|e| {
        control.end();
        LiveError::Thread(e)
    })
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

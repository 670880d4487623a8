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

use crate::bpf::{SLOTS, Switches};
use crate::clock::{now, process_cpu_time, thread_cpu_time};
use crate::counters::{Counted, Counters, CountersError, several_kinds_of_cpus};
use crate::guardian::{Guardian, GuardianError};
use crate::journal::{Journal, JournalError, Other, Process};
use crate::limits::{DomainKind, Limits, Quota, slice};
use crate::machine::{LinuxMachine, Masks, RankCounts, Source, Testimonies};
use crate::proc::{Proc, Stat, parse_schedstat, read_all};
use crate::scan::Scanner;
use crate::share::{Choice, Shares};
use crate::taskstats::TaskStats;
use crate::tuning::{Tuning, TuningReader};
use crate::workers::{Workers, lock};
use evenly_engine::{
    ApplyError, Balancer, BalancerOptions, Board, CARE, DomainSpread, DomainThread, Eligible,
    Event, GuardOptions, MapBy, Mapping, Newcomer, Numbering, Observer, Period, PeriodControl,
    PeriodOptions, Placed, Selection, Sensors, Summary, Times, Tracker, TrackerOptions,
    home_of_newcomer, left_unused, roomiest,
};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Knowledge, Nanos, Pid, ThreadId, Tid};
use evenly_policy::PolicyInfo;
use evenly_policy::hpc::{Levels, Parameters};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

pub use crate::control::Control;

/// Which source of thread times is wanted, for threads that are balanced. Those that compute are found
/// by schedstat in any case ([`crate::scan`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceKind {
    /// The best that works here: schedstat.
    #[default]
    Auto,
    /// `/proc/<pid>/task/<tid>/schedstat`.
    Schedstat,
    /// The taskstats netlink interface.
    Taskstats,
    /// Accounts that BPF programs keep in the kernel.
    Bpf,
}

/// What is taken for the progress of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressKind {
    /// Retired instructions where CPUs differ in speed and instructions can be counted; else CPU
    /// time.
    #[default]
    Auto,
    /// CPU time, weighted by the capacity of CPUs as far as the kernel tells it.
    CpuTime,
    /// Retired instructions.
    Instructions,
}

/// How a program is to be balanced.
pub struct LiveOptions {
    /// The policy.
    pub policy: &'static PolicyInfo,
    /// The balancing period.
    pub period: Period,
    /// The part of one CPU that balancing may use.
    pub budget: f64,
    /// Only these CPUs.
    pub cpus: Option<CpuSet>,
    /// What is balanced on its own; None: by NUMA node where there is more than one.
    pub domain: Option<DomainKind>,
    /// Begin when this many threads compute.
    pub expected: Option<u32>,
    /// Which threads may be balanced.
    pub eligible: Option<Eligible>,
    /// The regression guard.
    pub guard: GuardOptions,
    /// Where thread times come from.
    pub source: SourceKind,
    /// What progress is.
    pub progress: ProgressKind,
    /// Seed of all that is random.
    pub seed: u64,
    /// What any thread of the program may use when balancing begins; nothing where that is not known.
    pub whole: CpuSet,
    /// Where the threads or ranks are to run; the policy balances within it.
    pub mapping: Option<Mapping>,
    /// What is known of the machine and the program, for a policy that places threads by load.
    pub knowledge: Option<Arc<Knowledge>>,
    /// Makes what reads how threads say that they have waited, once for each domain; None where they say
    /// nothing.
    pub told_by: Option<Box<dyn Fn() -> Option<Testimonies> + Send>>,
    /// Reads what the ranks of the program count of their computing and their messages; None where they do
    /// not. For the first domain, which for a policy that places threads by load is the only one.
    pub counted_by: Option<RankCounts>,
    /// How threads are given parts of CPUs, by a policy that does that.
    pub shares: Choice,
    /// Parts of the machine, from the outermost on, for policies that give weights.
    pub levels: Levels,
    /// What such a policy goes by at first.
    pub parameters: Parameters,
    /// Where it is said what it goes by later.
    pub tuning: Option<Tuning>,
    /// What the tasks of the mapping, and those of the profile, are in the program.
    pub numbered_by: MapBy,
}

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

/// What a live run amounted to.
#[derive(Debug, Clone, Default)]
pub struct LiveReport {
    /// What the cycle did.
    pub summary: Summary,
    /// How long there was something to balance.
    pub balanced_s: f64,
    /// CPU time of evenly as a whole, in seconds.
    pub overhead_s: f64,
    /// Greatest number of threads that the program was seen with.
    pub threads: usize,
    /// Greatest number of processes that it was seen with.
    pub processes: usize,
    /// Threads of a real-time or deadline class, which are left alone.
    pub realtime_threads: usize,
    /// Whether balancing ever began.
    pub started: bool,
    /// The CPU quota of the program, if it has one.
    pub quota: Quota,
    /// The period that was aimed at.
    pub period: Nanos,
    /// Where thread times came from, as `--source` has it; None where balancing never began.
    pub source: Option<&'static str>,
    /// What became of the mapping, where there was one and balancing began.
    pub mapping: Option<Placed>,
    /// The CPUs that the program could use when balancing began: no more than what the masks of the
    /// threads that were balanced allowed to any of them.
    pub cpus: CpuSet,
}

/// Threads on their way to a domain or from it. Each list is emptied by the one that it is for:
/// the domain's balancer, or the coordinator.
#[derive(Default)]
struct Mailbox {
    /// For the balancer.
    joining: Mutex<Vec<Joining>>,
    /// For the balancer: CPUs that were not there when its domain was made.
    adopted: Mutex<Vec<CpuId>>,
    /// For the balancer, which hands them on.
    departing: Mutex<Vec<Departing>>,
    /// For the balancer, which lets them go: they have become another program.
    replaced: Mutex<Vec<ThreadId>>,
    /// For the coordinator: threads that no longer compute.
    leaving: Mutex<Vec<(ThreadId, Times)>>,
    /// For the coordinator: what became of threads that were to come from or go to another domain,
    /// and whether they changed.
    changed: Mutex<Vec<(ThreadId, bool)>>,
}

impl Mailbox {
    /// Whether there is something that cannot wait.
    fn is_urgent(&self) -> bool {
        fn any<T>(list: &Mutex<Vec<T>>) -> bool {
            !list.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        }
        any(&self.joining) || any(&self.replaced)
    }
}

/// A thread that is to join a domain.
struct Joining {
    selection: Selection,
    original: CpuSet,
    from_another: bool,
    /// Which task it is, where that matters.
    number: Option<u64>,
}

/// A thread that is to leave for another domain.
struct Departing {
    id: ThreadId,
    original: CpuSet,
    to: DomainId,
    mailbox: Arc<Mailbox>,
}

fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put<T>(list: &Mutex<Vec<T>>, items: impl IntoIterator<Item = T>) {
    list.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
}

/// What the coordinator knows of all domains together.
#[derive(Default)]
struct Together {
    /// Domains that have threads.
    at_work: AtomicUsize,
    /// Whether threads that are confined to their domains leave CPUs to nobody that they could use:
    /// those of a domain without threads, or with such only that may not use them.
    vacant: AtomicBool,
}

/// One domain with all that it needs.
struct Domain {
    together: Arc<Together>,
    balancer: Balancer,
    /// The balancers of CPUs change masks through it as well, where there are such.
    machine: Arc<Mutex<LinuxMachine>>,
    /// What the balancers of CPUs share.
    board: Option<Arc<Board>>,
    /// The next point may be as early as this, where one of them calls.
    called_at: Nanos,
    period: PeriodControl,
    /// CPU time of this thread when the last point was measured, and what of it since then somebody else
    /// answers for.
    measured: Option<Nanos>,
    paid: Nanos,
    observers: Vec<Box<dyn Observer>>,
    mailbox: Arc<Mailbox>,
    journal: Arc<Journal>,
    due: Nanos,
    generation: u64,
    /// Whether the period is ours to choose, and threads are moved at all.
    may_rest: bool,
    /// Threads that join with less than they might use, because a mapping says so.
    mapped: Option<Vec<Mapped>>,
    /// The CPUs that the program could use when balancing began.
    whole: CpuSet,
    /// When it is looked next whether threads are bound no longer.
    next_unbound: Nanos,
    told_of_unbound: bool,
    /// What the policy goes by, where that may change; one of the domains tells of it.
    tuning: Option<TuningReader>,
    tells_of_tuning: bool,
}

/// A thread that has a place in a mapping.
struct Mapped {
    id: ThreadId,
    /// Its place.
    cpus: CpuSet,
    /// It has been put there.
    done: bool,
}

impl Domain {
    /// One balancing point, and the time of the next.
    fn point(&mut self) {
        let machine = self.machine.clone();
        let machine = &mut *lock(&machine);
        let generation = self.journal.released_generation();
        if generation != self.generation {
            self.generation = generation;
            self.balancer.masks_were_restored();
            self.mapped.iter_mut().flatten().for_each(|m| m.done = false);
        }
        self.take_in_and_hand_on(machine);
        self.look_for_unbound(machine);
        self.look_at_tuning();
        self.put_in_place(machine);
        // Relaxed: whoever reads an old value reads the new one at its next point.
        self.balancer.open(machine, self.together.vacant.load(Ordering::Relaxed));
        self.period.share_budget(self.together.at_work.load(Ordering::Relaxed));
        let around = self.around();
        if !self.balancer.is_empty() {
            let left = self.balancer.point(machine, self.period.current(), &mut self.observers);
            self.measured = Some(thread_cpu_time());
            if !left.is_empty() {
                for (id, _) in &left {
                    self.forget_place(*id);
                }
                put(&self.mailbox.leaving, left);
            }
            self.period.shared_by(self.balancer.taking_turns());
            self.period.calm(self.balancer.is_calm());
            self.period.cost(self.balancer.period_cost() + around.scale(1.0 / self.care()));
            if self.period.newly_stretched() {
                let text = self.period.told();
                self.balancer.note(now(), text, &mut self.observers);
            }
            self.journal.set_period(self.period.current().scale(self.care()));
            let mut counts = [(CpuId(0), 0u16); 64];
            let mut n = 0;
            for (cpu, threads) in self.balancer.counts() {
                counts[n] = (cpu, u16::try_from(threads).unwrap_or(u16::MAX));
                n += 1;
                if n == counts.len() {
                    self.journal.publish_counts(&counts);
                    n = 0;
                }
            }
            self.journal.publish_counts(&counts[..n]);
        }
        let time = now();
        self.journal.heartbeat(time);
        let period = self.period.next_period();
        let busy = !self.may_rest || self.balancer.usable_cpus() > 1;
        self.called_at = time + period;
        let period = period.scale(self.care());
        self.due = time + if busy && !self.balancer.is_empty() { period } else { period.max(REST) };
    }

    /// What has been spent since the last point was measured: waking up and going to sleep, and all that is done
    /// beside it.
    fn around(&mut self) -> Nanos {
        let cpu = thread_cpu_time();
        let spent = self.measured.replace(cpu).map_or(Nanos::ZERO, |before| cpu - before);
        spent - std::mem::take(&mut self.paid)
    }

    /// How many periods its points are apart.
    fn care(&self) -> f64 {
        if self.board.is_some() { CARE } else { 1.0 }
    }

    /// How often the balancers of CPUs have been put to work.
    fn activations(&self) -> u64 {
        self.board.as_ref().map_or(0, |b| b.activations())
    }

    /// Whether a balancer of a CPU asks for a point before the next one is due.
    fn is_called(&self) -> bool {
        self.due > self.called_at && self.board.as_ref().is_some_and(|b| b.called())
    }

    fn take_in_and_hand_on(&mut self, machine: &mut LinuxMachine) {
        for id in take(&self.mailbox.replaced) {
            // First of all: the program may be about to size its pool of threads.
            machine.reclaim(id);
            self.let_go(machine, id);
        }
        let adopted: CpuSet = take(&self.mailbox.adopted).into_iter().collect();
        if !adopted.is_empty() {
            machine.look_at_cpuset();
            self.balancer.adopt(machine, &adopted, &mut self.observers);
        }
        let joining = take(&self.mailbox.joining);
        if !joining.is_empty() {
            machine.look_at_cpuset();
        }
        for j in joining {
            let id = j.selection.thread.id;
            if let Some(mapped) = &mut self.mapped {
                mapped.push(Mapped { id, cpus: j.original.clone(), done: false });
            }
            self.balancer.join(machine, j.selection, &j.original, &mut self.observers);
            if let Some(number) = j.number {
                self.balancer.number(id, number);
            }
            if j.from_another {
                put(&self.mailbox.changed, [(id, true)]);
            }
        }
        for d in take(&self.mailbox.departing) {
            let released = self.balancer.release(machine, d.id, d.to, &mut self.observers);
            match released {
                Some(selection) => {
                    self.forget_place(d.id);
                    put(
                        &d.mailbox.joining,
                        [Joining {
                            selection,
                            original: d.original,
                            from_another: true,
                            number: None,
                        }],
                    );
                }
                None => put(&self.mailbox.changed, [(d.id, false)]),
            }
        }
    }

    /// A thread that bound itself, and may use all that the program could by now, has no wish any more:
    /// it is let go, and met anew with the mask that it has as soon as it is seen to compute. Libraries
    /// do so when they look around a machine: Open MPI binds each rank to one CPU after the other while
    /// it starts.
    fn look_for_unbound(&mut self, machine: &mut LinuxMachine) {
        let time = now();
        // What a mapping leaves to a thread is less than what it may use.
        if time < self.next_unbound || self.mapped.is_some() {
            return;
        }
        self.next_unbound = time + UNBOUND_LOOKS;
        let whole = self.whole.and(self.balancer.cpus());
        if whole.is_empty() {
            return;
        }
        let unbound: Vec<ThreadId> = self
            .balancer
            .threads()
            .filter(|(id, within)| machine.is_unbound(*id, within, &whole))
            .map(|(id, _)| id)
            .collect();
        for id in unbound {
            if !std::mem::replace(&mut self.told_of_unbound, true) {
                let text =
                    format!("thread {id} may use all CPUs again, and is balanced like others");
                self.balancer.note(time, text, &mut self.observers);
            }
            machine.part(id);
            self.let_go(machine, id);
        }
    }

    fn look_at_tuning(&mut self) {
        let time = now();
        let Some(found) = self.tuning.as_mut().and_then(|t| t.look(time)) else { return };
        let text = match found {
            Ok((parameters, changes)) => {
                self.balancer.tune(&parameters);
                format!("tuned: {changes}")
            }
            Err(why) => why,
        };
        if self.tells_of_tuning {
            self.balancer.note(time, text, &mut self.observers);
        }
    }

    /// Hands a thread back to be watched until it computes (again).
    fn let_go(&mut self, machine: &mut LinuxMachine, id: ThreadId) {
        let times = self.balancer.let_go(machine, id, now(), &mut self.observers);
        self.forget_place(id);
        put(&self.mailbox.leaving, times.map(|t| (id, t)));
    }

    /// Puts threads where the mapping says that have not been put there yet. The balancer confines
    /// threads only where their domain is less than what they may use, and knows no more than that.
    fn put_in_place(&mut self, machine: &mut LinuxMachine) {
        let Some(mapped) = &mut self.mapped else { return };
        let mut refused = Vec::new();
        mapped.retain_mut(|m| {
            if m.done {
                return true;
            }
            match self.balancer.confine(machine, m.id, &m.cpus) {
                Ok(()) => m.done = true,
                // Asked for again at the next point.
                Err(ApplyError::Unusable { .. }) => {}
                Err(ApplyError::Gone) => return false,
                Err(e) => {
                    refused.push((m.id, e));
                    return false;
                }
            }
            true
        });
        for (id, e) in refused {
            let text = format!("thread {id} is not where the mapping has it: {e}");
            self.balancer.note(now(), text, &mut self.observers);
        }
    }

    fn forget_place(&mut self, id: ThreadId) {
        if let Some(mapped) = &mut self.mapped {
            mapped.retain(|m| m.id != id);
        }
    }

    fn run(mut self, control: &Control) -> Self {
        while !control.sleep_until(self.due, || self.mailbox.is_urgent()) {
            self.point();
        }
        self.balancer.finish(&mut *lock(&self.machine));
        self
    }
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

/// How often threads are looked for before balancing begins, and after.
const FIRST_SCANS: Nanos = Nanos::from_millis(20);
const LATER_SCANS: Nanos = Nanos::from_millis(200);
/// While a program starts more threads than this, it is not scanned from end to end all the time.
const MANY: usize = 256;
const MANY_SCANS: Nanos = Nanos::from_millis(500);
/// How often processes are looked for at the least interval.
const PROCESS_SCANS: Nanos = Nanos::from_millis(100);
const LATER_PROCESS_SCANS: Nanos = Nanos::from_millis(500);
/// How often the CPU quota is looked at.
const QUOTA_LOOKS: Nanos = Nanos::from_millis(1_000);
/// How often it is looked whether threads that are bound still are.
const UNBOUND_LOOKS: Nanos = Nanos::from_millis(1_000);
/// The least period of a domain that has one CPU or no thread: it only waits for that to change.
const REST: Nanos = Nanos::from_millis(250);
/// How often it is looked whether the guardian lives, and whether the journal's name leads to it.
const GUARDIAN_LOOKS: Nanos = Nanos::from_millis(500);
/// The part of the overhead budget that scanning may use.
const SCAN_SHARE: f64 = 0.4;
/// How long the threads must stand still before balancing begins.
const SETTLE: Nanos = Nanos::from_millis(60);
/// Weight of the newest piece's cost.
const NEWEST: f64 = 0.3;

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

/// A domain as the coordinator sees it.
struct Home {
    cpus: CpuSet,
    mailbox: Arc<Mailbox>,
}

/// A thread of a domain, as the coordinator sees it.
struct Member {
    id: ThreadId,
    home: usize,
    /// The domain that it has been sent to, and has not joined yet.
    sent_to: Option<usize>,
    /// Its domain could not give it up.
    stays: bool,
    /// The mask that it had when it was met, as an index.
    mask: usize,
}

/// The CPU time that scanning may use: a part of the budget, with some in advance, because the
/// first scans decide how soon a program is balanced. Each piece of work is charged, and none is
/// begun that cannot be paid: so over any time, short or long, scanning uses no more than its share
/// of that time, what was in advance, and one piece.
struct Allowance {
    share: f64,
    credit: f64,
    at: Nanos,
}

/// CPU time in advance, and the most that is saved up, in nanoseconds.
const ADVANCE: f64 = evenly_engine::ADVANCE.0 as f64 / 2.0;

/// What other work leaves over for looks at the threads that compute.
const FOR_LOOKS: f64 = 20e6;
/// Where there is not much more than that, neither looks nor going over processes may take more
/// than one part in so many of what comes in: the rest is for the search.
const PARTS: f64 = 3.0;
/// What waking up for a piece of work costs beside what is measured.
const WAKING: Nanos = Nanos::from_micros(10);

impl Allowance {
    fn new(share: f64, now: Nanos) -> Self {
        Self { share, credit: ADVANCE, at: now }
    }

    fn refill(&mut self, now: Nanos) {
        self.credit = (self.credit + (now - self.at).0 as f64 * self.share).min(ADVANCE);
        self.at = now;
    }

    fn spend(&mut self, cost: Nanos) {
        self.credit -= cost.0 as f64;
    }

    /// How long it takes until something of this cost can be afforded. What costs more than can be
    /// saved up has to be begun without.
    fn wait_for(&self, cost: f64) -> Nanos {
        Nanos(((cost.min(ADVANCE) - self.credit).max(0.0) / self.share).ceil() as u64)
    }

    fn is_low(&self) -> bool {
        self.credit < 1.25 * FOR_LOOKS
    }
}

/// What the coordinator does again and again, each in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// [`Scanner::find_processes`].
    Processes,
    /// [`Scanner::search`].
    Search,
    /// [`Scanner::look`], and what follows from it.
    Look,
}

/// What is to be done first of what is due at the same time.
const JOBS: [Kind; 3] = [Kind::Processes, Kind::Search, Kind::Look];

/// The job that is most overdue. None where none is due, or that one cannot be afforded yet: then it
/// is put off.
fn due_job(jobs: &mut [Job; 3], allowance: &Allowance, now: Nanos) -> Option<usize> {
    let (i, job) =
        (jobs.iter_mut().enumerate()).filter(|(_, j)| j.next <= now).min_by_key(|(_, j)| j.next)?;
    let wait = allowance.wait_for(job.needs());
    if wait > Nanos::ZERO {
        job.next = now + wait;
        return None;
    }
    Some(i)
}

/// How far one kind of work has come.
#[derive(Debug, Clone, Copy)]
struct Job {
    kind: Kind,
    /// When its next piece is due.
    next: Nanos,
    /// When the pass that is going on was begun. None: the next piece begins one.
    began: Option<Nanos>,
    /// What a piece costs on average, and what this pass has cost by now, in nanoseconds.
    piece: f64,
    pass: f64,
}

impl Job {
    fn new(kind: Kind, now: Nanos) -> Self {
        Self { kind, next: now, began: None, piece: 0.0, pass: 0.0 }
    }

    /// What must be there for a piece to be begun.
    fn needs(&self) -> f64 {
        self.piece + if self.kind == Kind::Look { 0.0 } else { FOR_LOOKS }
    }

    /// Charges a piece that was begun at `began`, and says when the next is due: at once within a
    /// pass, and after `interval` from the beginning of one to that of the next.
    fn did(
        &mut self,
        began: Nanos,
        cost: Nanos,
        done: bool,
        interval: Nanos,
        allowance: &mut Allowance,
    ) {
        allowance.spend(cost);
        let cost = cost.0 as f64;
        self.piece += NEWEST * (cost - self.piece);
        self.pass += cost;
        let first = *self.began.get_or_insert(began);
        self.next = began;
        if done {
            let fair = Nanos((PARTS * self.pass / allowance.share) as u64);
            let limited = self.kind != Kind::Search && allowance.is_low();
            self.next = first + if limited { interval.max(fair) } else { interval };
            (self.began, self.pass) = (None, 0.0);
        }
    }
}

/// Finds threads and gives them to domains.
struct Coordinator {
    together: Arc<Together>,
    tracker: Tracker,
    scanner: Scanner,
    homes: Vec<Home>,
    allowance: Allowance,
    /// What scanning may use once there are balancers at work.
    scan_share: f64,
    jobs: [Job; 3],
    /// All processes of the machine have been gone over once.
    found_processes: bool,
    started_at: Option<Nanos>,
    /// Which thread is in which domain.
    members: Vec<Member>,
    /// Threads that have become another program and are to get their masks back.
    replaced: Vec<ThreadId>,
    /// The masks that members had when they were met, each once.
    masks: Vec<CpuSet>,
    /// Keeps the numbers of threads per domain level.
    spread: Option<DomainSpread>,
    /// CPUs that belong to no domain, because they are not there yet.
    homeless: CpuSet,
    /// What the domains are.
    kind: DomainKind,
    /// The program has no process any more.
    vanished: bool,
    most_threads: usize,
    most_processes: usize,
    realtime_threads: usize,
    limits: Limits,
    root: Pid,
    /// The CPU quota as last seen.
    quota: Quota,
    next_quota: Nanos,
    guardian: Option<Arc<Guardian>>,
    next_guardian: Nanos,
    /// Why nobody would restore masks any more.
    unguarded: Option<LiveError>,
    /// It is said once that the journal was made anew.
    told_of_journal: bool,
    /// Where threads are to run.
    mapping: Option<Mapping>,
    /// Which task a thread is, for the mapping and for a policy that asks.
    numbering: Option<Numbering>,
    /// What is to be said in the report and the decision log.
    notes: Vec<String>,
}

impl Coordinator {
    /// When there is something to do.
    fn due(&self) -> Nanos {
        self.jobs.iter().map(|j| j.next).min().unwrap_or_default()
    }

    /// When it is to be looked again after what undoes everything.
    fn guarding_due(&self) -> Nanos {
        if self.guardian.is_some() { self.next_guardian } else { Nanos(u64::MAX) }
    }

    /// Does one piece of the work that is most overdue, if it can be afforded. Returns whether there
    /// is mail for a domain that cannot wait.
    fn work(&mut self, machine: &mut LinuxMachine) -> bool {
        let (cpu, begin) = (thread_cpu_time(), now());
        self.allowance.refill(begin);
        let Some(i) = due_job(&mut self.jobs, &self.allowance, begin) else { return false };
        let kind = self.jobs[i].kind;
        let (done, mail) = match kind {
            Kind::Processes => (self.find_processes(begin), false),
            Kind::Search => {
                let done = self.scanner.search(begin);
                machine.welcome_all(&self.scanner.take_newcomers());
                (done, false)
            }
            Kind::Look => {
                let done = self.scanner.look(begin);
                (done, done && self.look(machine, begin))
            }
        };
        let started = self.tracker.started();
        let interval = match kind {
            Kind::Processes if started => LATER_PROCESS_SCANS,
            Kind::Processes => PROCESS_SCANS,
            Kind::Search if self.scanner.threads() > MANY => MANY_SCANS,
            Kind::Search | Kind::Look if started => LATER_SCANS,
            Kind::Search | Kind::Look => FIRST_SCANS,
        };
        let cost = thread_cpu_time() - cpu + WAKING;
        self.jobs[i].did(begin, cost, done, interval, &mut self.allowance);
        mail
    }

    fn find_processes(&mut self, now: Nanos) -> bool {
        let done = self.scanner.find_processes();
        self.found_processes |= done;
        if done && self.scanner.has_new_processes() {
            // Whoever has been started by a pinned thread waits for its mask.
            for job in self.jobs.iter_mut().filter(|j| j.kind == Kind::Search) {
                job.next = job.next.min(now);
            }
        }
        done
    }

    /// What follows when all threads that have wanted a CPU have been read. Returns whether there is
    /// mail for a domain that cannot wait.
    fn look(&mut self, machine: &mut LinuxMachine, begin: Nanos) -> bool {
        for home in 0..self.homes.len() {
            for (id, times) in take(&self.homes[home].mailbox.leaving) {
                self.tracker.idle(id, times, begin);
                self.members.retain(|m| m.id != id);
            }
            for (id, changed) in take(&self.homes[home].mailbox.changed) {
                if let Some(m) = self.members.iter_mut().find(|m| m.id == id) {
                    m.home = if changed { m.sent_to.unwrap_or(m.home) } else { m.home };
                    m.stays |= !changed;
                    m.sent_to = None;
                }
            }
        }
        self.scanner.look_at_root();
        self.vanished = self.found_processes && self.scanner.processes() == 0;
        let replaced = self.look_for_exec(machine);
        self.most_threads = self.most_threads.max(self.scanner.threads());
        self.most_processes = self.most_processes.max(self.scanner.processes());
        let realtime = self.scanner.candidates().iter().filter(|c| !c.fair).count();
        self.realtime_threads = self.realtime_threads.max(realtime);
        if begin >= self.next_quota && !self.vanished {
            self.next_quota = begin + QUOTA_LOOKS;
            self.look_at_quota();
            self.adopt();
        }
        self.tracker.listen(machine);
        let (threads, found) = (self.scanner.threads(), self.scanner.candidates());
        let chosen = self.tracker.look_among(threads, begin, found);
        let joined = !chosen.is_empty();
        if !self.members.is_empty() {
            self.members.retain(|m| self.tracker.knows(m.id));
        }
        self.give(machine, chosen);
        self.spread(machine, begin);
        if joined && self.started_at.is_none() {
            self.started_at = Some(begin);
            self.allowance.share = self.scan_share;
        }
        joined || replaced
    }

    /// Gives threads that have become another program their masks back, or has the domains do it.
    /// Returns whether there is such mail for a domain.
    fn look_for_exec(&mut self, machine: &mut LinuxMachine) -> bool {
        self.replaced.extend(machine.look_for_exec());
        let mut mail = false;
        let (members, homes) = (&self.members, &self.homes);
        self.replaced.retain(|&id| match members.iter().find(|m| m.id == id) {
            // Between two domains: when it has arrived.
            Some(m) if m.sent_to.is_some() => true,
            Some(m) => {
                put(&homes[m.home].mailbox.replaced, [id]);
                mail = true;
                false
            }
            None => {
                machine.reclaim(id);
                false
            }
        });
        mail
    }

    /// Looks after the guardian and the journal now and then: a guardian that was killed is replaced, and a
    /// journal that was removed is made anew. False where that cannot be.
    fn is_guarded(&mut self) -> bool {
        let time = now();
        if time >= self.next_guardian
            && let Some(guardian) = self.guardian.clone()
        {
            self.next_guardian = time + GUARDIAN_LOOKS;
            self.unguarded = self.look_after(&guardian).err();
        }
        self.unguarded.is_none()
    }

    fn look_after(&mut self, guardian: &Guardian) -> Result<(), LiveError> {
        if let Some(path) = guardian.keep_journal()?
            && !std::mem::replace(&mut self.told_of_journal, true)
        {
            self.notes.push(format!(
                "the journal was removed, and has been made anew: {}",
                path.display()
            ));
        }
        if guardian.renew()? {
            self.notes.push(String::from("the guardian was killed, and has been started again"));
        }
        Ok(())
    }

    /// Gives CPUs that have come to the domains that they belong to.
    fn adopt(&mut self) {
        if self.homeless.is_empty() {
            return;
        }
        // What cannot be read now is looked at again.
        let Ok(online) = self.limits.online() else { return };
        let newcomers = self.homeless.and(&online);
        if newcomers.is_empty() {
            return;
        }
        let Ok(groups) = self.limits.domains(self.kind, &online) else { return };
        for cpu in newcomers.iter() {
            let domains: Vec<CpuSet> = self.homes.iter().map(|h| h.cpus.clone()).collect();
            let Some(home) = home_of_newcomer(&domains, &groups, cpu) else { return };
            self.homes[home].cpus.insert(cpu);
            put(&self.homes[home].mailbox.adopted, [cpu]);
        }
        self.homeless = self.homeless.minus(&newcomers);
    }

    /// The CPU quota may change while the program runs.
    fn look_at_quota(&mut self) {
        // The first process may have ended, or wait to be reaped, which puts it into the topmost
        // group: what was seen last holds.
        if Proc::default().process_stat(self.root).is_none_or(|s| matches!(s.state, b'Z' | b'X')) {
            return;
        }
        let Ok(quota) = self.limits.quota(self.root) else { return };
        if quota.cpus != self.quota.cpus {
            let text = |cpus: Option<f64>| {
                cpus.map_or_else(|| String::from("none"), |c| format!("{c:.2} CPUs"))
            };
            self.notes.push(format!(
                "the CPU quota is now {} (it was {})",
                text(quota.cpus),
                text(self.quota.cpus)
            ));
        }
        self.quota = quota;
    }

    /// Gives each new thread to the domain where it finds most room, and where rooms are equal, to
    /// the one where it runs now: so threads are spread to within one of each other (paper,
    /// section 2.4).
    fn give(&mut self, machine: &mut LinuxMachine, chosen: Vec<Selection>) {
        if chosen.is_empty() {
            return;
        }
        machine.look_at_cpuset();
        let mut met: Vec<(Selection, CpuSet)> = chosen
            .into_iter()
            .filter_map(|s| machine.mask_when_met(s.thread.id).map(|original| (s, original)))
            .collect();
        let tasks = self.map(&mut met);
        let masks: Vec<usize> = met.iter().map(|(_, original)| self.mask(original)).collect();
        let (rooms, allowed) = self.rooms(&self.usable(machine), &masks);
        let mut counts = vec![0; self.homes.len()];
        for m in &self.members {
            counts[m.sent_to.unwrap_or(m.home)] += 1;
        }
        for (((selection, original), mask), number) in met.into_iter().zip(masks).zip(tasks) {
            let id = selection.thread.id;
            let here = machine
                .locate(id)
                .and_then(|l| self.homes.iter().position(|h| h.cpus.contains(l.cpu)));
            let Some(home) = roomiest(&rooms, &counts, &allowed[mask], here) else { continue };
            counts[home] += 1;
            self.members.push(Member { id, home, sent_to: None, stays: false, mask });
            put(
                &self.homes[home].mailbox.joining,
                [Joining { selection, original, from_another: false, number }],
            );
        }
    }

    /// Narrows what threads may use to what the mapping says, if there is one. Which tasks they are.
    fn map(&mut self, met: &mut [(Selection, CpuSet)]) -> Vec<Option<u64>> {
        let Some(numbering) = &mut self.numbering else { return vec![None; met.len()] };
        let proc = Proc::default();
        // What evenly has as well tells nothing apart: it was set for whatever started it.
        let own = proc.rank(Process::own().pid);
        let mut ranks: HashMap<Pid, Option<u64>> = HashMap::new();
        for (s, _) in met.iter() {
            ranks.entry(s.thread.pid).or_insert_with(|| {
                proc.rank(s.thread.pid).filter(|found| own != Some(*found)).map(|(_, rank)| rank)
            });
        }
        let balanced = self.homes.iter().fold(CpuSet::new(), |all, h| all.or(&h.cpus));
        let may_use: Vec<CpuSet> =
            met.iter().map(|(_, original)| original.and(&balanced)).collect();
        let found: Vec<Newcomer<'_>> = (met.iter().zip(&may_use))
            .map(|((s, _), may_use)| Newcomer {
                id: s.thread.id,
                pid: s.thread.pid,
                rank: ranks.get(&s.thread.pid).copied().flatten(),
                may_use,
            })
            .collect();
        let tasks = numbering.numbers(&found);
        let narrowed = self.mapping.as_mut().map(|m| m.narrow(&found, &tasks)).unwrap_or_default();
        for ((_, original), cpus) in met.iter_mut().zip(narrowed) {
            if let Some(cpus) = cpus {
                *original = cpus;
            }
        }
        tasks
    }

    /// Sends threads to other domains where CPUs or threads have come or gone, so that the domains
    /// stay level.
    fn spread(&mut self, machine: &mut LinuxMachine, now: Nanos) {
        let mut threads = vec![0; self.homes.len()];
        for m in &self.members {
            threads[m.sent_to.unwrap_or(m.home)] += 1;
        }
        let at_work = threads.iter().filter(|n| **n > 0).count();
        self.together.at_work.store(at_work, Ordering::Relaxed);
        // What is on its way would be counted wrongly, or sent twice.
        if self.homes.len() < 2 || self.members.iter().any(|m| m.sent_to.is_some()) {
            return;
        }
        let usable = self.usable(machine);
        let (rooms, allowed) = self.rooms(&usable, &[]);
        let more_room = self.spread.as_ref().is_some_and(|s| s.rooms() != rooms);
        if more_room {
            for m in &mut self.members {
                m.stays = false;
            }
        }
        let threads: Vec<DomainThread> = self
            .members
            .iter()
            .map(|m| DomainThread { domain: m.home, class: m.mask, movable: !m.stays })
            .collect();
        let domains: Vec<CpuSet> = self.homes.iter().map(|h| h.cpus.clone()).collect();
        let left = left_unused(&domains, &usable, &self.masks, &threads);
        self.together.vacant.store(!left.is_empty(), Ordering::Relaxed);
        let Some(spread) = &mut self.spread else { return };
        for t in spread.look(now, &rooms, &allowed, &threads) {
            let member = &mut self.members[t.thread];
            member.sent_to = Some(t.to);
            let departing = Departing {
                id: member.id,
                original: self.masks[member.mask].clone(),
                to: DomainId(t.to as u32),
                mailbox: self.homes[t.to].mailbox.clone(),
            };
            put(&self.homes[member.home].mailbox.departing, [departing]);
        }
    }

    fn mask(&mut self, original: &CpuSet) -> usize {
        self.masks.iter().position(|m| m == original).unwrap_or_else(|| {
            self.masks.push(original.clone());
            self.masks.len() - 1
        })
    }

    /// The CPUs of all domains that can be used now.
    fn usable(&self, machine: &mut LinuxMachine) -> CpuSet {
        machine.usable(&self.homes.iter().fold(CpuSet::new(), |all, h| all.or(&h.cpus)))
    }

    /// How many of these CPUs of each domain the members, and threads with these masks, may use; and
    /// for each mask in which domains it holds such CPUs.
    fn rooms(&self, usable: &CpuSet, more_masks: &[usize]) -> (Vec<usize>, Vec<Vec<bool>>) {
        let mut used = vec![false; self.masks.len()];
        for mask in self.members.iter().map(|m| m.mask).chain(more_masks.iter().copied()) {
            used[mask] = true;
        }
        let wanted = (self.masks.iter().zip(&used).filter(|(_, used)| **used))
            .fold(CpuSet::new(), |all, (mask, _)| all.or(mask));
        let rooms = self.homes.iter().map(|h| h.cpus.and(usable).and(&wanted).len()).collect();
        let allowed = self.masks.iter().map(|mask| {
            let can_use = mask.and(usable);
            self.homes.iter().map(|h| !h.cpus.and(&can_use).is_empty()).collect()
        });
        (rooms, allowed.collect())
    }
}

/// Numbers threads where a mapping or what is known of communication names them by numbers.
fn numbering(
    by: MapBy,
    mapping: Option<&Mapping>,
    knowledge: Option<&Knowledge>,
) -> Option<Numbering> {
    if mapping.is_none() && knowledge.is_none() {
        return None;
    }
    let recorded = knowledge.iter().flat_map(|k| &k.profile).flat_map(|p| p.tasks());
    let recorded = recorded.map(|t| t.id.saturating_add(1)).max().unwrap_or(0);
    Some(Numbering::new(by, recorded.max(mapping.map_or(0, Mapping::numbers))))
}

/// The source of thread times, where schedstat is there or not: one that is there for each domain anew; the one that is there once is not asked for here.
fn source(wanted: SourceKind, has_schedstat: bool) -> Result<Source, LiveError> {
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

/// Why a process cannot be attached to, found before anything is begun.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    /// Nothing has this id.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// It has ended, and its parent has not asked for its status yet.
    #[error("process {0} has ended already")]
    Ended(Pid),
    /// It is the id of a thread.
    #[error("{tid} is a thread of process {pid}; give the process id: {pid}")]
    Thread {
        /// What was given.
        tid: Pid,
        /// The process that it belongs to.
        pid: Pid,
    },
    /// The kernel's own.
    #[error("process {0} is a thread of the kernel; evenly balances programs")]
    Kernel(Pid),
    /// This process.
    #[error("process {0} is this evenly itself; give the process id of the program")]
    Own(Pid),
    /// The first process, that everything is started from.
    #[error(
        "process {0} is the first one, and everything on this machine descends from it, this evenly \
         too; give the process id of the program"
    )]
    First(Pid),
    /// Another evenly.
    #[error("process {evenly} is an evenly; give the process id of a program")]
    Evenly {
        /// What was given.
        evenly: Pid,
    },
    /// Another evenly balances it.
    #[error(
        "process {pid} is balanced by another evenly (process {by}) already; end that one first: \
         kill {by}"
    )]
    Balanced {
        /// What was given.
        pid: Pid,
        /// Who balances it.
        by: Pid,
    },
}

/// The flag of the kernel's own threads in `/proc/<pid>/stat` (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether a process is a program that can be watched or balanced.
///
/// # Errors
/// [`TargetError`] where it is not.
pub fn check_target(proc: &Proc, pid: Pid, others: &[Other]) -> Result<(), TargetError> {
    if pid.0.cast_unsigned() == std::process::id() {
        return Err(TargetError::Own(pid));
    }
    if others.iter().any(|o| o.evenly.pid == pid) {
        return Err(TargetError::Evenly { evenly: pid });
    }
    // What cannot be seen may still be there: for the system to say when it is asked for.
    let Ok(stat) = read_all(&proc.process_file(pid, "stat")) else { return Ok(()) };
    match Stat::parse(&stat) {
        // A leader that called pthread_exit looks the same, but has threads that live.
        Some(s) if matches!(s.state, b'Z' | b'X') && s.threads <= 1 => {
            return Err(TargetError::Ended(pid));
        }
        _ => {}
    }
    if flags(&stat).is_some_and(|f| f & KERNEL_THREAD != 0) {
        return Err(TargetError::Kernel(pid));
    }
    match proc.process_of(Tid(pid.0)) {
        Some(process) if process != pid => Err(TargetError::Thread { tid: pid, pid: process }),
        _ => Ok(()),
    }
}

/// As [`check_target`]; moreover nobody else may balance it.
///
/// # Errors
/// [`TargetError`].
pub fn check_target_is_free(proc: &Proc, pid: Pid, others: &[Other]) -> Result<(), TargetError> {
    check_target(proc, pid, others)?;
    // In a container the first process may be the program; who comes in from outside does not descend
    // from it.
    if pid == Pid(1) && proc.descends(Pid(std::process::id().cast_signed()), pid) {
        return Err(TargetError::First(pid));
    }
    let related = |p: Pid| proc.descends(pid, p) || proc.descends(p, pid);
    match others.iter().find(|o| o.program.is_some_and(|p| related(p.pid))) {
        Some(other) => Err(TargetError::Balanced { pid, by: other.evenly.pid }),
        None => Ok(()),
    }
}

/// The evenly that balances a program which this process is a part of, if there is one.
#[must_use]
pub fn balanced_above(proc: &Proc, pid: Pid, others: &[Other]) -> Option<Pid> {
    others
        .iter()
        .find(|o| o.program.is_some_and(|p| p.pid != pid && proc.descends(pid, p.pid)))
        .map(|o| o.evenly.pid)
}

/// The flags of a process: field 9 of its `stat`, the seventh behind its name.
fn flags(stat: &[u8]) -> Option<u64> {
    let close = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(6)?.parse().ok()
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

/// Makes events as text for the decision log.
#[must_use]
pub fn describe(event: &Event) -> Vec<String> {
    let t = |at: &Nanos| format!("{:9.3} s", at.as_secs_f64());
    match event {
        Event::Domain { at, domain, cpus } => {
            vec![format!("{} domain {domain}: CPUs {cpus}", t(at))]
        }
        Event::Joined { at, domain, thread } => vec![format!(
            "{} thread {} ({}) of process {} joins domain {domain}",
            t(at),
            thread.id,
            thread.name,
            thread.pid
        )],
        Event::Left { at, id, to: Some(to), .. } => {
            vec![format!("{} thread {id} goes to domain {to}", t(at))]
        }
        Event::Left { at, id, ended, to: None } => vec![format!(
            "{} thread {id} {}",
            t(at),
            if *ended { "has ended" } else { "no longer computes" }
        )],
        Event::Note { at, text } => vec![format!("{} {text}", t(at))],
        Event::Point(p) => p
            .moves
            .iter()
            .map(|m| {
                let error = m.error.as_deref().map(|e| format!(": failed, {e}"));
                format!(
                    "{} thread {} from CPU {} to CPU {} ({}){}",
                    t(&p.at),
                    m.id,
                    m.from,
                    m.to,
                    m.reason.text(),
                    error.unwrap_or_default()
                )
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn check(pid: i32, others: &[Other]) -> Result<(), TargetError> {
        check_target_is_free(&Proc::default(), Pid(pid), others)
    }

    fn other(evenly: i32, program: i32) -> Other {
        Other {
            evenly: Process { pid: Pid(evenly), start: 1 },
            program: Some(Process { pid: Pid(program), start: 1 }),
            counts: Vec::new(),
            stands_still: false,
        }
    }

    #[test]
    fn the_first_process_is_not_a_program() {
        if !Proc::default().descends(Pid(std::process::id().cast_signed()), Pid(1)) {
            // In a container, and come in from outside.
            return;
        }
        let e = check(1, &[]).unwrap_err();
        assert_eq!(e, TargetError::First(Pid(1)));
        assert!(e.to_string().contains("everything"), "{e}");
    }

    #[test]
    fn without_schedstat_the_other_source_is_taken_or_that_is_said() {
        assert!(matches!(source(SourceKind::Auto, true), Ok(Source::Schedstat)));
        match source(SourceKind::Auto, false) {
            Ok(Source::Taskstats(_)) => assert!(TaskStats::open().is_ok()),
            Err(LiveError::NoSource(why)) => assert!(!why.is_empty() && TaskStats::open().is_err()),
            _ => panic!("schedstat, which is not there"),
        }
    }

    /// A program with very many threads, on a machine where work costs now little, now much: over
    /// any time the scan keeps to its share, and each kind of work gets on.
    #[test]
    fn work_in_pieces_keeps_to_its_share_over_any_time() {
        let share = 0.004;
        for (pieces_of, dear) in [([3, 60, 1], 1_200), ([40, 1, 20], 300), ([1, 1, 1], 40)] {
            let mut t = Nanos::from_millis(1_000);
            let mut allowance = Allowance::new(share, t);
            let mut jobs = JOBS.map(|kind| Job::new(kind, t));
            let mut random = evenly_model::stats::Random::new(7);
            let (mut left, mut passes) = (pieces_of, [0; 3]);
            let mut spent: Vec<(Nanos, f64)> = Vec::new();
            let end = t + Nanos::from_millis(120_000);
            while t < end {
                allowance.refill(t);
                let Some(i) = due_job(&mut jobs, &allowance, t) else {
                    t = t.max(jobs.iter().map(|j| j.next).min().unwrap());
                    continue;
                };
                let cost = Nanos::from_micros(dear / 4).scale(1.0 + 3.0 * random.unit());
                left[i] -= 1;
                let done = left[i] == 0;
                if done {
                    (left[i], passes[i]) = (pieces_of[i], passes[i] + 1);
                }
                jobs[i].did(t, cost, done, LATER_SCANS, &mut allowance);
                spent.push((t, cost.0 as f64));
                t += cost;
            }
            for window in [100, 1_000, 10_000, 100_000].map(Nanos::from_millis) {
                let (mut sum, mut first, mut most) = (0.0, 0, 0.0f64);
                for &(at, cost) in &spent {
                    sum += cost;
                    while at - spent[first].0 > window {
                        sum -= spent[first].1;
                        first += 1;
                    }
                    most = most.max(sum);
                }
                let limit = ADVANCE + share * window.0 as f64 + dear as f64 * 1e3;
                assert!(most <= limit, "{pieces_of:?}, {window}: {most} of {limit}");
            }
            assert!(passes.iter().all(|&n| n >= 5), "{pieces_of:?}: {passes:?}");
        }
    }

    #[test]
    fn what_cannot_be_attached_to_is_told_apart() {
        let me = std::process::id() as i32;
        assert_eq!(check(me, &[]), Err(TargetError::Own(Pid(me))));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(check(pid, &[]), Ok(()));
        assert_eq!(check(pid, &[other(1, 3)]), Ok(()));
        assert_eq!(check(pid, &[other(pid, 3)]), Err(TargetError::Evenly { evenly: Pid(pid) }));
        let balanced = Err(TargetError::Balanced { pid: Pid(pid), by: Pid(1) });
        assert_eq!(check(pid, &[other(1, pid)]), balanced);
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while check(pid, &[]) != Err(TargetError::Ended(Pid(pid))) {
            assert!(std::time::Instant::now() < deadline);
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_is_no_process() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let me = std::process::id() as i32;
        let tids = Proc::default().threads(Pid(me));
        let tid = tids.iter().find(|t| t.0 != me).unwrap().0;
        let expected = Err(TargetError::Thread { tid: Pid(tid), pid: Pid(me) });
        // Another test's thread may end in between.
        assert!(
            check(tid, &[]) == expected || !Proc::default().threads(Pid(me)).contains(&Tid(tid))
        );
        drop(stop);
        let _ = thread.join();
    }

    #[test]
    fn flags_of_a_kernel_thread() {
        let stat = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 43 0 0 20 0 1 0 0 0";
        assert_eq!(flags(stat).map(|f| f & KERNEL_THREAD != 0), Some(true));
        let stat = b"77 (a) b(\nx) S 1 77 77 0 -1 1077936128 12 34 5";
        assert_eq!(flags(stat).map(|f| f & KERNEL_THREAD != 0), Some(false));
        assert_eq!(flags(b"no stat"), None);
    }
}

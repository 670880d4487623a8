//! Which mechanism gives threads their parts of CPUs, or CPUs of another speed.
//!
//! Invariant: one is chosen when the first part is to be given, and stays; nothing is changed by a
//! mechanism that this user could not undo, as each refuses that itself.
//!
//! Frequencies and energy preferences belong to CPUs. A CPU gets the greatest weight of the threads on it,
//! as those wait for the one that has most to do; one that none of them is on any more is as it was found.
//!
//! Round robin raises threads above all normal ones: those with a weight above 1, for [`RR_LEASE`] at a time.
//! No thread may be kept from a CPU by one that only waits, so it is refused, and taken back, where threads
//! spin.

use super::weights::{ShareError, ShareMechanism, Target};
use super::{
    CpuSettings, GroupShares, Missing, Offer, RR_LEASE, Real, Resctrl, Resource, Setting,
    ThreadShares, Way, autogroups, realtime_share,
};
use crate::affinity;
use crate::journal::Journal;
use crate::proc::Proc;
use evenly_engine::Wanted;
use evenly_model::hpc::Parts;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The mechanism that the user asks for with `--shares`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Nice values where they can be given back and count between these threads, else control groups.
    #[default]
    Auto,
    /// Nice values of single threads.
    Nice,
    /// Control groups, one for each thread, with a weight each.
    Group,
    /// For how long they run at a stretch.
    Slice,
    /// Above all normal threads, or not.
    RoundRobin,
    /// Limits of the frequencies of CPUs.
    Frequency,
    /// What CPUs prefer: performance or energy.
    EnergyPreference,
    /// Ways of the last cache.
    Cache,
    /// Memory bandwidth, as resctrl divides it.
    MemoryBandwidth,
    /// Priorities of the threads of a core, of which no machine lets one process set another's.
    SmtPriority,
}

impl Choice {
    /// Whether it gives parts of a CPU that several have.
    #[must_use]
    pub fn gives_parts(self) -> bool {
        matches!(self, Self::Auto | Self::Nice | Self::Group)
    }

    /// Whether it says when and for how long threads run.
    #[must_use]
    pub fn gives_turns(self) -> bool {
        matches!(self, Self::Slice | Self::RoundRobin)
    }

    /// What a policy must know of it: what the parts that it gives are made of.
    #[must_use]
    pub fn parts(self) -> Parts {
        if self == Self::SmtPriority { Parts::POWER } else { Parts::Time }
    }

    /// What it is called as a mechanism ([`super::offers`]); none for [`Choice::Auto`] and [`Choice::Group`],
    /// which may be several.
    fn mechanism(self) -> Option<&'static str> {
        Some(match self {
            Self::Auto | Self::Group => return None,
            Self::Nice => "nice",
            Self::Slice => "slice",
            Self::RoundRobin => "round-robin",
            Self::Frequency => "frequency",
            Self::EnergyPreference => "energy-preference",
            Self::Cache => "cache",
            Self::MemoryBandwidth => "memory-bandwidth",
            Self::SmtPriority => "smt-priority",
        })
    }

    /// Why this one, which gives speed or turns, is not to be had here.
    #[must_use]
    pub fn missing(self, real: &Real) -> Option<Missing> {
        let name = self.mechanism()?;
        match self {
            Self::Slice => super::slice().missing,
            Self::RoundRobin => super::round_robin(real).missing,
            _ if self.gives_parts() => None,
            _ => super::speeds(real).into_iter().find(|o: &Offer| o.name == name)?.missing,
        }
    }
}

/// Where a thread may run.
type WhereIs = Box<dyn Fn(Tid) -> io::Result<CpuSet> + Send>;

/// Parts of CPUs for the threads of a program.
pub struct Shares {
    choice: Choice,
    journal: Arc<Journal>,
    program: Pid,
    real: Real,
    where_is: WhereIs,
    chosen: Option<Chosen>,
}

enum Chosen {
    OfThreads(Box<dyn ShareMechanism + Send>),
    OfCpus(OfCpus),
    Raised(Raised),
}

/// Threads that are raised above all normal ones.
struct Raised {
    shares: ThreadShares,
    /// What such a thread gets at most, to one of others.
    most: f64,
    up: BTreeSet<ThreadId>,
    /// CPU time in which threads spun, and all of it, when that was looked at last; and whether they spun
    /// too much of it.
    seen: (Nanos, Nanos),
    spins: Option<f64>,
}

/// This part of their CPU time may threads spin that are raised. What is reported of spinning is an estimate, in
/// which waiting in a run queue counts: of threads that sleep up to 0.06 was seen. Four that spin, with loads of
/// 3:2 on two CPUs, do so for 0.17.
const MOST_SPINNING: f64 = 0.15;
/// It is looked at after so much CPU time.
const SPINNING_AFTER: Nanos = Nanos::from_millis(20);

impl Raised {
    fn new(shares: ThreadShares, most: f64) -> Self {
        let (up, seen) = (BTreeSet::new(), (Nanos::ZERO, Nanos::ZERO));
        Self { shares, most, up, seen, spins: None }
    }

    /// The part of their CPU time in which these threads spun, where that is too much.
    fn read_spinning(&mut self, wanted: &[Wanted]) -> Option<f64> {
        let (mut spun, mut all) = (Nanos::ZERO, Nanos::ZERO);
        for t in wanted.iter().filter_map(|w| w.turns) {
            spun += t.spun;
            all += t.spun + t.computed;
        }
        let (newly, of) = (spun - self.seen.0, all - self.seen.1);
        if of >= SPINNING_AFTER {
            self.seen = (spun, all);
            self.spins = Some(newly.0 as f64 / of.0 as f64).filter(|part| *part > MOST_SPINNING);
        } else if of == Nanos::ZERO {
            // Of fewer threads than before.
            self.seen = (spun, all);
        }
        self.spins
    }

    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ShareError>> {
        // One that reports nothing may spin.
        let refused = match self.read_spinning(wanted) {
            _ if wanted.iter().any(|w| w.turns.is_none()) => Some(String::from(
                "it is not known whether threads spin while they wait (--probe on)",
            )),
            Some(part) => Some(format!(
                "threads spin while they wait ({:.0} % of their CPU time), and would do so above all \
                 others; let them sleep (OMP_WAIT_POLICY=passive), or leave --shares out",
                100.0 * part
            )),
            None => None,
        };
        if let Some(why) = refused {
            wanted.iter().for_each(|w| self.restore(target(w)));
            let error = ShareError::Refused(format!("round-robin: {why}"));
            return vec![Err(error); wanted.len()];
        }
        let give = |w: &Wanted| {
            let units = if w.weight > 1.0 { self.most } else { 1.0 };
            let given = self.shares.give(target(w), units)?;
            if given > 1.0 {
                self.up.insert(w.thread)
            } else {
                self.up.remove(&w.thread)
            };
            Ok(given)
        };
        wanted.iter().map(give).collect()
    }

    fn restore(&mut self, target: Target) {
        // What cannot be undone now stays in the journal, for the guardian.
        let _ = self.shares.restore(target);
        if let Target::Thread { id, .. } = target {
            self.up.remove(&id);
        }
    }
}

/// Settings of CPUs, by the threads that are on them.
struct OfCpus {
    settings: CpuSettings,
    on: BTreeMap<ThreadId, CpuId>,
}

impl OfCpus {
    /// The CPU of a thread, or the first of those that have one setting.
    fn cpu(&self, thread: ThreadId, where_is: &WhereIs) -> Result<CpuId, ShareError> {
        let mask = where_is(thread.tid).map_err(|e| match e.raw_os_error() {
            Some(libc::ESRCH) => ShareError::Gone,
            _ => ShareError::Refused(format!("where it may run cannot be read: {e}")),
        })?;
        let mut cpus = mask.iter();
        match (cpus.next(), cpus.next()) {
            (Some(cpu), None) => Ok(self.settings.first_of(cpu)),
            _ => Err(ShareError::Refused(format!(
                "it may run on CPUs {mask}: a setting of one is none of its own; needed is a thread that is \
                 kept on one CPU"
            ))),
        }
    }

    fn weigh(&mut self, wanted: &[Wanted], where_is: &WhereIs) -> Vec<Result<f64, ShareError>> {
        let cpus: Vec<_> = wanted.iter().map(|w| self.cpu(w.thread, where_is)).collect();
        let mut weights = BTreeMap::<CpuId, f64>::new();
        for (w, cpu) in wanted.iter().zip(&cpus) {
            if let Ok(cpu) = cpu {
                let weight = weights.entry(*cpu).or_insert(w.weight);
                *weight = weight.max(w.weight);
            }
        }
        let before: BTreeSet<CpuId> = std::mem::take(&mut self.on).into_values().collect();
        for cpu in before.into_iter().filter(|cpu| !weights.contains_key(cpu)) {
            // Where it fails the record stays, for the guardian.
            let _ = self.settings.restore(Target::Cpu(cpu));
        }
        let all: Vec<(Target, f64)> =
            weights.iter().map(|(cpu, weight)| (Target::Cpu(*cpu), *weight)).collect();
        let given: BTreeMap<CpuId, Result<f64, ShareError>> =
            weights.keys().copied().zip(self.settings.set_all(&all)).collect();
        let of = |(w, cpu): (&Wanted, Result<CpuId, ShareError>)| {
            let cpu = cpu?;
            self.on.insert(w.thread, cpu);
            match given.get(&cpu) {
                // A CPU that is gone has no setting; the thread is still there.
                Some(Err(ShareError::Gone)) | None => Err(ShareError::Refused(format!(
                    "CPU {cpu} has no such setting; evenly doctor --mechanisms"
                ))),
                Some(given) => given.clone(),
            }
        };
        wanted.iter().zip(cpus).map(of).collect()
    }

    fn restore(&mut self, thread: ThreadId) {
        let Some(cpu) = self.on.remove(&thread) else { return };
        if self.on.values().all(|other| *other != cpu) {
            let _ = self.settings.restore(Target::Cpu(cpu));
        }
    }
}

impl Chosen {
    fn name(&self) -> &'static str {
        match self {
            Self::OfThreads(mechanism) => mechanism.name(),
            Self::OfCpus(cpus) => cpus.settings.name(),
            Self::Raised(raised) => raised.shares.name(),
        }
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares")
            .field("choice", &self.choice)
            .field("chosen", &self.chosen.as_ref().map(Chosen::name))
            .finish_non_exhaustive()
    }
}

impl Shares {
    /// For the threads of a program, of which this is the first process.
    #[must_use]
    pub fn new(choice: Choice, journal: Arc<Journal>, program: Pid) -> Self {
        Self::at(choice, journal, program, Real::default(), Box::new(affinity::get))
    }

    fn at(
        choice: Choice,
        journal: Arc<Journal>,
        program: Pid,
        real: Real,
        where_is: WhereIs,
    ) -> Self {
        Self { choice, journal, program, real, where_is, chosen: None }
    }

    /// Whether weights are those of the CPUs that threads are on, so that they are to be given again when
    /// threads are moved.
    #[must_use]
    pub fn of_cpus(&self) -> bool {
        matches!(self.choice, Choice::Frequency | Choice::EnergyPreference)
    }

    /// What was chosen, in words, once something was.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.chosen.as_ref()?.name() {
            "nice" => "by nice values",
            "frequency" => "by limits of their frequencies",
            "energy-preference" => "by their preferences of performance or energy",
            "cache" => "by ways of the last cache",
            "memory-bandwidth" => "by memory bandwidth",
            "slice" => "by time slices, which change the order and not the shares",
            "round-robin" => "by raising them above all normal threads, or not",
            _ => "by control groups",
        })
    }

    /// Gives all of these their weights; what each has then.
    ///
    /// # Errors
    /// [`ShareError`], for each.
    pub fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ShareError>> {
        if self.chosen.is_none() {
            match self.choose(wanted) {
                Ok(mechanism) => self.chosen = Some(mechanism),
                Err(e) => return wanted.iter().map(|_| Err(e.clone())).collect(),
            }
        }
        match &mut self.chosen {
            None => Vec::new(),
            Some(Chosen::OfCpus(cpus)) => cpus.weigh(wanted, &self.where_is),
            Some(Chosen::Raised(raised)) => raised.weigh(wanted),
            Some(Chosen::OfThreads(mechanism)) => {
                let wanted: Vec<(Target, f64)> =
                    wanted.iter().map(|w| (target(w), w.weight)).collect();
                mechanism.set_all(&wanted)
            }
        }
    }

    /// Undoes what was given to one.
    pub fn restore(&mut self, process: Pid, id: ThreadId) {
        match &mut self.chosen {
            None => {}
            Some(Chosen::OfCpus(cpus)) => cpus.restore(id),
            Some(Chosen::Raised(raised)) => raised.restore(Target::Thread { process, id }),
            Some(Chosen::OfThreads(mechanism)) => {
                // What cannot be undone now stays in the journal, for the guardian.
                let _ = mechanism.restore(Target::Thread { process, id });
            }
        }
    }

    /// For how long what is given lasts, where that is for a time only.
    #[must_use]
    pub fn lasts(&self) -> Option<Nanos> {
        matches!(self.chosen, Some(Chosen::Raised(_))).then_some(RR_LEASE)
    }

    /// Whether a thread is a real-time thread by what was given to it.
    #[must_use]
    pub fn raises(&self, thread: ThreadId) -> bool {
        matches!(&self.chosen, Some(Chosen::Raised(raised)) if raised.up.contains(&thread))
    }

    /// To be called about once a period: takes back what was given for a time that is over.
    pub fn tick(&mut self, now: Nanos) {
        if let Some(Chosen::Raised(raised)) = &mut self.chosen {
            raised.shares.tick(now);
        }
    }

    /// One that gives speed or turns, where this machine has it.
    fn speed_or_turns(&self) -> Result<Chosen, ShareError> {
        let name = self.choice.mechanism().unwrap_or_default();
        let refused = |m: Missing| {
            let remedy = m.remedy.map(|r| format!("; {r}")).unwrap_or_default();
            ShareError::Refused(format!("{name}: {}{remedy}", m.why))
        };
        if let Some(missing) = self.choice.missing(&self.real) {
            return Err(refused(missing));
        }
        let (journal, real) = (self.journal.clone(), self.real.clone());
        let of_cpus = |setting| {
            let settings = CpuSettings::new(setting, journal.clone(), real.clone());
            Chosen::OfCpus(OfCpus { settings, on: BTreeMap::new() })
        };
        Ok(match self.choice {
            Choice::Slice => {
                Chosen::OfThreads(Box::new(ThreadShares::new(Way::Slice, self.journal.clone())))
            }
            Choice::RoundRobin => {
                let most = realtime_share(&self.real).map_err(ShareError::Refused)?;
                let way = Way::RoundRobin(most);
                Chosen::Raised(Raised::new(ThreadShares::new(way, self.journal.clone()), most))
            }
            Choice::Frequency => of_cpus(Setting::HighestFrequency),
            Choice::EnergyPreference => of_cpus(Setting::EnergyPreference),
            Choice::Cache | Choice::MemoryBandwidth => {
                let resource = match self.choice {
                    Choice::Cache => Resource::Cache,
                    _ => Resource::Bandwidth,
                };
                let divided = Resctrl::new(resource, journal, real).map_err(refused)?;
                Chosen::OfThreads(Box::new(divided))
            }
            _ => return Err(ShareError::Refused(format!("{name}: no machine has it"))),
        })
    }

    fn choose(&self, wanted: &[Wanted]) -> Result<Chosen, ShareError> {
        if self.choice.gives_parts() {
            return self.part(wanted).map(Chosen::OfThreads);
        }
        self.speed_or_turns()
    }

    fn part(&self, wanted: &[Wanted]) -> Result<Box<dyn ShareMechanism + Send>, ShareError> {
        let nice = || -> Result<Box<dyn ShareMechanism + Send>, ShareError> {
            let mut processes: Vec<Pid> = wanted.iter().map(|w| w.process).collect();
            processes.sort_unstable();
            processes.dedup();
            let proc = Proc::at(&self.real.root().join("proc"));
            let groups = autogroups(&proc, &processes);
            if !groups.is_empty() {
                return Err(ShareError::Refused(format!(
                    "nice values do not count between sessions while autogroup is on ({}); sysctl \
                     kernel.sched_autogroup_enabled=0",
                    groups.join(", ")
                )));
            }
            let mut nice = ThreadShares::new(Way::Nice, self.journal.clone());
            for w in wanted {
                match nice.bounds(target(w)) {
                    Ok(_) | Err(ShareError::Gone | ShareError::Foreign { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(Box::new(nice))
        };
        let group = || -> Result<Box<dyn ShareMechanism + Send>, ShareError> {
            let missing = |m: super::Missing| {
                let remedy = m.remedy.map(|r| format!("; {r}")).unwrap_or_default();
                ShareError::Refused(format!("control groups: {}{remedy}", m.why))
            };
            let groups = GroupShares::at(self.journal.clone(), self.program, &self.real);
            let groups = groups.map_err(missing)?;
            Ok(Box::new(groups))
        };
        match self.choice {
            Choice::Nice => nice(),
            Choice::Group => group(),
            _ => nice().or_else(|first| {
                group().map_err(|second| ShareError::Refused(format!("{first}; {second}")))
            }),
        }
    }
}

fn target(w: &Wanted) -> Target {
    Target::Thread { process: w.process, id: w.thread }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalView, StateDir};
    use crate::share::sched;
    use crate::share::tests::{captured, sessions};
    use crate::share_undo;
    use evenly_model::Turns;
    use std::fs;
    use std::path::Path;
    use std::sync::Mutex;

    /// Threads 1, 2 and 3 of a program on the CPUs of a captured machine.
    struct Scene {
        tree: tempfile::TempDir,
        _state: tempfile::TempDir,
        journal: Arc<Journal>,
        at: Arc<Mutex<BTreeMap<i32, &'static str>>>,
    }

    impl Scene {
        fn new(tree: &str) -> Self {
            let state = tempfile::tempdir().unwrap();
            let journal =
                Journal::create(&StateDir::at(state.path()).unwrap(), None).map(Arc::new).unwrap();
            let at = BTreeMap::from([(1, "0"), (2, "0"), (3, "1")]);
            let at = Arc::new(Mutex::new(at));
            Self { tree: captured(tree), _state: state, journal, at }
        }

        fn shares(&self, choice: Choice) -> Shares {
            let at = self.at.clone();
            let where_is = move |tid: Tid| match at.lock().unwrap().get(&tid.0) {
                Some(list) => Ok(list.parse().unwrap()),
                None => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            };
            let real = Real::at(self.tree.path());
            Shares::at(choice, self.journal.clone(), Pid(1), real, Box::new(where_is))
        }

        fn has(&self, file: &str) -> [String; 2] {
            [0, 1].map(|cpu| {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}");
                fs::read_to_string(self.tree.path().join(path)).unwrap().trim().to_owned()
            })
        }
    }

    fn wanted(weights: &[f64]) -> Vec<Wanted> {
        let one = |(i, &weight): (usize, &f64)| {
            let thread = ThreadId { tid: Tid(i as i32 + 1), start: 7 };
            Wanted { process: Pid(1), thread, weight, turns: None }
        };
        weights.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_cpu_is_as_fast_as_the_thread_on_it_that_computes_longest_needs() {
        let scene = Scene::new("cpufreq-pstate.txt");
        let mut shares = scene.shares(Choice::Frequency);
        assert!(shares.of_cpus() && shares.name().is_none());
        let given = shares.weigh(&wanted(&[1.0, 2.0, 1.0]));
        assert!(given[..2] == [Ok(1.0), Ok(1.0)], "{given:?}");
        assert!((given[2].clone().unwrap() - 0.5).abs() < 0.01, "{given:?}");
        let [fast, slow] = scene.has("scaling_max_freq").map(|f| f.parse::<u64>().unwrap());
        assert!(fast == 4_700_000 && slow.abs_diff(2_350_000) < 50_000, "{fast} {slow}");
        assert_eq!(shares.name(), Some("by limits of their frequencies"));
        // The heavy one goes to the other CPU: that is the fast one then.
        scene.at.lock().unwrap().extend([(2, "1"), (3, "0")]);
        shares.weigh(&wanted(&[1.0, 2.0, 1.0]));
        let [slow, fast] = scene.has("scaling_max_freq").map(|f| f.parse::<u64>().unwrap());
        assert!(fast == 4_700_000 && slow.abs_diff(2_350_000) < 50_000, "{fast} {slow}");
        // One of two that are there leaves, then the other one.
        let all = wanted(&[1.0, 2.0, 1.0]);
        shares.restore(all[0].process, all[0].thread);
        assert_ne!(scene.has("scaling_max_freq")[0], "4700000");
        shares.restore(all[2].process, all[2].thread);
        assert_eq!(scene.has("scaling_max_freq"), ["4700000", "4700000"]);
    }

    #[test]
    fn a_cpu_that_is_left_and_a_death_in_between_leave_nothing() {
        let scene = Scene::new("cpufreq-pstate.txt");
        let file = "energy_performance_preference";
        let mut shares = scene.shares(Choice::EnergyPreference);
        let given = shares.weigh(&wanted(&[2.0, 1.0, 1.0]));
        assert!(given.iter().all(Result::is_ok), "{given:?}");
        assert_eq!(scene.has(file), ["performance", "balance_power"]);
        scene.at.lock().unwrap().extend([(1, "1"), (2, "1")]);
        shares.weigh(&wanted(&[2.0, 1.0, 1.0]));
        assert_eq!(scene.has(file), ["balance_power", "performance"]);
        let view = JournalView::open(&scene.journal.path()).unwrap();
        let undone = share_undo::undo(&view, &Proc::default(), &Real::at(scene.tree.path()));
        assert_eq!((undone.settings, undone.failed.len()), (1, 0));
        assert_eq!(scene.has(file), ["balance_power", "balance_power"]);
    }

    #[test]
    fn who_is_not_on_one_cpu_is_refused_and_who_has_ended_is_gone() {
        let scene = Scene::new("cpufreq-epyc.txt");
        let mut shares = scene.shares(Choice::Frequency);
        scene.at.lock().unwrap().insert(2, "0-1");
        let given = shares.weigh(&wanted(&[1.0, 2.0, 1.5, 1.0]));
        assert!(given[0].is_ok() && given[2] == Ok(1.0), "{given:?}");
        assert!(given[1].clone().unwrap_err().to_string().contains("may run on CPUs 0-1"));
        assert_eq!(given[3], Err(ShareError::Gone));
    }

    /// Threads that have ended, of processes that the tree has.
    fn of_processes(processes: &[Pid]) -> Vec<Wanted> {
        let one = |&process: &Pid| {
            let thread = ThreadId { tid: Tid(i32::MAX - process.0), start: 7 };
            Wanted { process, thread, weight: 2.0, turns: None }
        };
        processes.iter().map(one).collect()
    }

    #[test]
    fn nice_values_are_taken_unless_sessions_stand_between() {
        let scene = Scene::new("v1-hybrid.txt");
        let (root, [a, b]) = (scene.tree.path(), [Pid(1), Pid(2)]);
        let chosen = |choice: Choice, processes: &[Pid]| {
            let mut shares = scene.shares(choice);
            let said = shares.weigh(&of_processes(processes)).pop().unwrap();
            // All have ended: what could be refused is the mechanism.
            match said {
                Err(ShareError::Gone) => Ok(shares.name().unwrap()),
                other => Err(other.unwrap_err().to_string()),
            }
        };
        let (nice, group) = (Ok("by nice values"), Ok("by control groups"));
        assert_eq!(chosen(Choice::Auto, &[a, b]), nice, "autogroup is not there");
        sessions(root, &[(a, "7", "/"), (b, "9", "/")]);
        assert_eq!(chosen(Choice::Auto, &[a, a]), nice, "one session");
        // Groups cannot be made either: the tree has no file for it.
        let both = chosen(Choice::Auto, &[a, b]).unwrap_err();
        for words in ["autogroup is on (/autogroup-7, /autogroup-9)", "; control groups: ", "tasks"]
        {
            assert!(both.contains(words), "{both}");
        }
        fs::write(root.join("sys/fs/cgroup/cpu/tasks"), "").unwrap();
        assert_eq!(chosen(Choice::Auto, &[a, b]), group);
        assert_eq!(chosen(Choice::Group, &[a, a]), group);
        let refused = chosen(Choice::Nice, &[a, b]).unwrap_err();
        assert!(refused.contains("sysctl kernel.sched_autogroup_enabled=0"), "{refused}");
        sessions(root, &[(a, "7", "/batch/job"), (b, "9", "/batch/job")]);
        assert_eq!(chosen(Choice::Auto, &[a, b]), nice, "in a group sessions do not count");
    }

    #[test]
    fn who_spins_is_not_raised_and_falls_back() {
        if let Some(missing) = Choice::RoundRobin.missing(&Real::default()) {
            return evenly_testing::skip("realtime", missing.why);
        }
        let scene = Scene::new("v1-hybrid.txt");
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Pid(sleeper.id().cast_signed());
        let start = Proc::default().process_stat(process).unwrap().start;
        let thread = ThreadId { tid: Tid(process.0), start };
        let mut shares = Shares::new(Choice::RoundRobin, scene.journal.clone(), process);
        let class = || sched::get(thread.tid).unwrap().policy;
        let mut weigh = |weight: f64, turns: Option<[u64; 2]>| {
            let turns = turns.map(|[computed, spun]| Turns {
                computed: Nanos::from_millis(computed),
                spun: Nanos::from_millis(spun),
                ..Turns::default()
            });
            let given = shares.weigh(&[Wanted { process, thread, weight, turns }]).pop().unwrap();
            (given, shares.raises(thread), class(), shares.lasts())
        };
        let (up, down) = ((true, sched::ROUND_ROBIN), (false, sched::OTHER));
        let is = |found: &(_, bool, u8, Option<Nanos>)| (found.1, found.2);
        // It is unknown whether it spins.
        let unknown = weigh(2.0, None);
        assert!(is(&unknown) == down && unknown.0.is_err(), "{unknown:?}");
        let raised = weigh(2.0, Some([1_000, 10]));
        assert!(is(&raised) == up && raised.0.unwrap() > 1.0 && raised.3 == Some(RR_LEASE));
        assert_eq!(is(&weigh(1.0, Some([1_100, 10]))), down);
        assert_eq!(is(&weigh(1.4, Some([1_200, 10]))), up);
        // It begins to spin, and ends.
        let spins = weigh(2.0, Some([1_250, 60]));
        let why = spins.0.clone().unwrap_err().to_string();
        assert!(is(&spins) == down && why.contains("(50 % of their CPU time)"), "{why}");
        assert!(weigh(2.0, Some([1_255, 60])).0.is_err(), "too little to judge");
        assert_eq!(is(&weigh(2.0, Some([1_400, 60]))), up);
        // A time that is over.
        shares.tick(crate::clock::now() + RR_LEASE + RR_LEASE);
        assert_eq!(class(), sched::OTHER);
        shares.restore(process, thread);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn what_a_machine_lacks_is_refused_with_the_reason() {
        let scene = Scene::new("resctrl-cdp.txt");
        for (choice, why) in [
            (Choice::Frequency, "frequency: no CPU has cpufreq/scaling_max_freq"),
            (Choice::EnergyPreference, "no CPU has cpufreq/energy_performance_preference"),
            (Choice::Cache, "cache: "),
            (Choice::MemoryBandwidth, "no MB that can be divided"),
            (Choice::SmtPriority, "smt-priority: "),
        ] {
            // Where steps are all that there is, the policy is notified.
            let steps = choice == Choice::SmtPriority;
            assert_eq!(choice.parts(), if steps { Parts::POWER } else { Parts::Time });
            assert!(!choice.gives_parts() && !choice.gives_turns());
            assert!(choice.missing(&Real::at(scene.tree.path())).is_some());
            for refused in scene.shares(choice).weigh(&wanted(&[1.0, 2.0])) {
                let said = refused.unwrap_err().to_string();
                assert!(said.contains(why), "{said}");
            }
        }
        // Parts of CPUs are looked for when they are to be given.
        assert!(Choice::Auto.gives_parts() && Choice::Nice.missing(&Real::default()).is_none());
        let nothing = Real::at(Path::new("/nowhere"));
        assert!(Choice::Cache.missing(&nothing).unwrap().why.contains("no resctrl"));
    }
}

//! Which mechanism gives threads their parts of CPUs.
//!
//! Invariant: one is chosen when the first part is to be given, and stays; nothing is changed by a
//! mechanism that this user could not undo, as each refuses that itself.
//!
//! Round robin raises threads above all normal ones: those with a weight above 1, for [`RR_LEASE`] at a time.
//! No thread may be kept from a CPU by one that only waits, so it is refused, and taken back, where threads
//! spin.

use super::weights::{ShareError, ShareMechanism, Target};
use super::{GroupShares, Missing, RR_LEASE, Real, ThreadShares, Way, autogroups, realtime_share};
use crate::journal::Journal;
use crate::proc::Proc;
use evenly_engine::Wanted;
use evenly_model::{Nanos, Pid, ThreadId};
use std::collections::BTreeSet;
use std::fmt;
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
}

impl Choice {
    /// Whether it gives parts of a CPU that several have.
    #[must_use]
    pub fn gives_parts(self) -> bool {
        matches!(self, Self::Auto | Self::Nice | Self::Group)
    }

    /// Why it is not to be had here. None for parts of CPUs, which are looked for when they are to be given.
    #[must_use]
    pub fn missing(self, real: &Real) -> Option<Missing> {
        match self {
            Self::Slice => super::slice().missing,
            Self::RoundRobin => super::round_robin(real).missing,
            Self::Auto | Self::Nice | Self::Group => None,
        }
    }
}

/// Parts of CPUs for the threads of a program.
pub struct Shares {
    choice: Choice,
    journal: Arc<Journal>,
    program: Pid,
    real: Real,
    chosen: Option<Chosen>,
}

enum Chosen {
    OfThreads(Box<dyn ShareMechanism + Send>),
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

impl Chosen {
    fn name(&self) -> &'static str {
        match self {
            Self::OfThreads(mechanism) => mechanism.name(),
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
        Self::at(choice, journal, program, Real::default())
    }

    fn at(choice: Choice, journal: Arc<Journal>, program: Pid, real: Real) -> Self {
        Self { choice, journal, program, real, chosen: None }
    }

    /// What was chosen, in words, once something was.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.chosen.as_ref()?.name() {
            "nice" => "by nice values",
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

    fn choose(&self, wanted: &[Wanted]) -> Result<Chosen, ShareError> {
        let refused = |name, m: Missing| ShareError::Refused(format!("{name}: {m}"));
        let of_threads = |way| ThreadShares::new(way, self.journal.clone());
        match (self.choice, self.choice.missing(&self.real)) {
            (Choice::Auto | Choice::Nice | Choice::Group, _) => {
                self.part(wanted).map(Chosen::OfThreads)
            }
            (Choice::Slice, None) => Ok(Chosen::OfThreads(Box::new(of_threads(Way::Slice)))),
            (Choice::Slice, Some(missing)) => Err(refused("slice", missing)),
            (Choice::RoundRobin, None) => {
                let most = realtime_share(&self.real).map_err(ShareError::Refused)?;
                Ok(Chosen::Raised(Raised::new(of_threads(Way::RoundRobin(most)), most)))
            }
            (Choice::RoundRobin, Some(missing)) => Err(refused("round-robin", missing)),
        }
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
            let missing = |m| ShareError::Refused(format!("control groups: {m}"));
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
    use crate::journal::StateDir;
    use crate::share::fake_trees::captured;
    use crate::share::sched;
    use crate::share::tests::sessions;
    use evenly_model::{Tid, Turns};
    use std::fs;
    use std::path::Path;

    /// A captured machine, and a journal.
    struct Scene {
        tree: tempfile::TempDir,
        _state: tempfile::TempDir,
        journal: Arc<Journal>,
    }

    impl Scene {
        fn new(tree: &str) -> Self {
            let state = tempfile::tempdir().unwrap();
            let dir = StateDir::at(state.path()).unwrap();
            let journal = Journal::create(&dir, None).map(Arc::new).unwrap();
            Self { tree: captured(tree), _state: state, journal }
        }

        fn shares(&self, choice: Choice) -> Shares {
            Shares::at(choice, self.journal.clone(), Pid(1), Real::at(self.tree.path()))
        }
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
        let scene = Scene::new("v1-hybrid.txt");
        // The tree has no file that says what real-time threads leave to others.
        let why = "round-robin: the kernel does not report how much time";
        for refused in scene.shares(Choice::RoundRobin).weigh(&of_processes(&[Pid(1), Pid(2)])) {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        // Parts of CPUs are looked for when they are to be given.
        assert!(Choice::Auto.gives_parts() && !Choice::RoundRobin.gives_parts());
        assert_eq!(Choice::Nice.missing(&Real::at(Path::new("/nowhere"))), None);
    }
}

//! Promises P4 and P5 for every mechanism that discovery knows, a test for each promise and mechanism: what is
//! changed is in the journal before, and is undone by the balancer itself, by its guardian where the balancer is
//! killed, and by `evenly restore` where both were.
//!
//! Threads, control groups and masks are real. The test program starts itself again as a balancer, as its guardian,
//! and as a program with threads ([`helpers`]).

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod helpers;

use evenly_engine::Actuator;
use evenly_linux::affinity;
use evenly_linux::clock::now;
use evenly_linux::guardian::{self, Guardian};
use evenly_linux::journal::{Journal, JournalView, Process, StateDir};
use evenly_linux::limits::Limits;
use evenly_linux::machine::{LinuxMachine, Masks};
use evenly_linux::proc::Proc;
use evenly_linux::restore::{self, Fate};
use evenly_linux::share::groups::{Kind, Parent};
use evenly_linux::share::sched::{self, Scheduling};
use evenly_linux::share::{
    GroupShares, Offer, Real, ShareMechanism, Target, ThreadShares, Way, offers,
};
use evenly_linux::threads::{Source, ThreadReader};
use evenly_model::{CpuId, CpuSet, Pid, ThreadId, Tid};
use evenly_testing::wait_until;
use helpers::{Helper, ROLE, has_ended, kill_at_a_change, program, role_command, send};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const STATE: &str = "EVENLY_TEST_STATE";
const TARGET: &str = "EVENLY_TEST_TARGET";
const MECHANISM: &str = "EVENLY_TEST_MECHANISM";
/// A balancer that has no guardian, and dies at its first change.
const DIES: &str = "EVENLY_TEST_DIES";

/// No test: the other roles of this program. Without a role it does nothing.
#[test]
fn role() {
    match env::var(ROLE).as_deref() {
        Ok("balancer") => balancer(),
        Ok("guardian") => {
            guardian::main(0).unwrap();
        }
        Ok("program") => program(),
        _ => {}
    }
}

/// Takes something away by one mechanism, and then only works on.
fn balancer() {
    let dir = StateDir::at(Path::new(&env::var_os(STATE).unwrap())).unwrap();
    let program = Pid(env::var(TARGET).unwrap().parse().unwrap());
    let program = Process::find(&Proc::default(), program).unwrap();
    let journal = Arc::new(Journal::create(&dir, Some(program)).unwrap());
    let name = env::var(MECHANISM).unwrap();
    let mut means = Means::of(&name, &journal, program);
    if env::var_os(DIES).is_some() {
        match kill_at_a_change() {
            Ok(()) => println!("reply: ready"),
            Err(e) => {
                println!("reply: {e}");
                return;
            }
        }
        println!("reply: alive after {:?}", means.change());
        return;
    }
    let mut command = role_command("guardian");
    command.stderr(Stdio::null());
    let guardian = Guardian::spawn(command, &journal).unwrap();
    means.change().unwrap();
    println!("reply: {}", guardian.id().unwrap());
    loop {
        journal.heartbeat(now());
        thread::sleep(Duration::from_millis(10));
    }
}

/// A mechanism, and what it is to do.
enum Means {
    /// Another share for a target.
    Share(Box<dyn ShareMechanism>, Target, f64),
    /// All threads of a program on one CPU.
    Place(Box<LinuxMachine>, Vec<ThreadId>, CpuId),
}

impl Means {
    fn of(name: &str, journal: &Arc<Journal>, program: Process) -> Self {
        let Process { pid, start } = program;
        let target = Target::Process { process: pid, start };
        let of_threads = |way, weight| {
            Self::Share(Box::new(ThreadShares::new(way, journal.clone())), target, weight)
        };
        match name {
            "nice" => of_threads(Way::Nice, 0.01),
            "slice" => of_threads(Way::Slice, 0.01),
            "round-robin" => of_threads(Way::RoundRobin(19.0), 19.0),
            "cpu.shares" | "cpu.weight" => {
                Self::Share(Box::new(GroupShares::new(journal.clone(), pid).unwrap()), target, 0.01)
            }
            "placement" => {
                let masks = Arc::new(Masks::new(journal.clone()));
                let machine =
                    LinuxMachine::new(pid, masks, ThreadReader::new(Source::Schedstat, 64));
                let proc = Proc::default();
                let id = |tid| ThreadId { tid, start: proc.thread_stat(tid).unwrap().start };
                let threads = proc.threads(pid).into_iter().map(id).collect();
                let cpu = affinity::get(Tid(pid.0)).unwrap().first().unwrap();
                Self::Place(Box::new(machine), threads, cpu)
            }
            other => panic!("{other}: no test knows this mechanism"),
        }
    }

    fn change(&mut self) -> Result<(), String> {
        match self {
            Self::Share(mechanism, target, weight) => {
                mechanism.set(*target, *weight).map(drop).map_err(|e| e.to_string())
            }
            Self::Place(machine, threads, cpu) => threads
                .iter()
                .try_for_each(|id| machine.place(*id, *cpu, None))
                .map_err(|e| format!("{e:?}")),
        }
    }

    fn undo(&mut self) {
        match self {
            Self::Share(mechanism, target, _) => mechanism.restore(*target).unwrap(),
            Self::Place(machine, threads, _) => {
                threads.iter().for_each(|id| machine.restore(*id));
            }
        }
    }
}

/// Groups have the name of the process that made them: tests that are balancers themselves take turns.
static BALANCER: Mutex<()> = Mutex::new(());

/// The two that give weights to control groups, of which a machine has the one or the other.
const GROUPS: [&str; 2] = ["cpu.shares", "cpu.weight"];

/// The name of the mechanism on this machine. None, a skip, where it cannot be had here.
fn here(name: &str) -> Option<&'static str> {
    let is_it = |o: &Offer| o.name == name || (name == "control group" && GROUPS.contains(&o.name));
    let offer = offers(&Real::default()).into_iter().find(is_it).unwrap();
    is_there(&offer).then_some(offer.name)
}

/// Whether a mechanism works on this machine; if not, a skip.
fn is_there(offer: &Offer) -> bool {
    let own = affinity::get(Tid(0)).unwrap();
    let (key, why) = match (offer.name, &offer.missing) {
        ("placement", _) if own.len() < 2 => {
            ("two-cpus", format!("only the CPUs {own} can be used"))
        }
        (_, None) => return true,
        (name, Some(missing)) => {
            let key = match name {
                "slice" => "sched-slice",
                "nice" => "privileged-nice",
                "round-robin" => "realtime",
                "cpu.shares" | "cpu.weight" => "own-cgroup",
                other => other,
            };
            (key, missing.why.clone())
        }
    };
    evenly_testing::skip(key, why);
    false
}

/// The tests of each mechanism.
macro_rules! mechanisms {
    ($($module:ident: $name:literal),* $(,)?) => {
        $(mod $module {
            fn with(promise: fn(&'static str)) {
                if let Some(name) = super::here($name) {
                    promise(name);
                }
            }

            #[test]
            fn a_change_is_in_the_journal_before_it_is_made() {
                with(super::a_change_is_in_the_journal_before_it_is_made);
            }

            #[test]
            fn what_cannot_be_journalled_is_not_done() {
                with(super::what_cannot_be_journalled_is_not_done);
            }

            #[test]
            fn a_balancer_undoes_what_it_did_and_so_does_its_end() {
                with(super::a_balancer_undoes_what_it_did_and_so_does_its_end);
            }

            #[test]
            fn a_killed_balancer_is_undone_by_its_guardian() {
                with(super::a_killed_balancer_is_undone_by_its_guardian);
            }

            #[test]
            fn when_both_are_killed_restore_undoes_it() {
                with(super::when_both_are_killed_restore_undoes_it);
            }
        })*

        const MECHANISMS: &[&str] = &[$($name),*];
    };
}

mechanisms! {
    nice: "nice",
    slice: "slice",
    round_robin: "round-robin",
    control_group: "control group",
    placement: "placement",
}

#[test]
fn every_mechanism_that_discovery_knows_has_its_tests() {
    let mut known: Vec<&str> = offers(&Real::default()).iter().map(|o| o.name).collect();
    known.retain(|name| !GROUPS.contains(name));
    known.push("control group");
    known.sort_unstable();
    let mut tested = MECHANISMS.to_vec();
    tested.sort_unstable();
    assert_eq!(known, tested);
}

/// How a thread is scheduled, where it may run, and in which control group it is.
type Held = (Scheduling, CpuSet, Option<PathBuf>);

/// All that a mechanism may change.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    threads: BTreeMap<i32, Held>,
    /// Groups that the balancer may have made where the program is.
    groups: usize,
}

impl Seen {
    fn of(program: Pid, balancer: Pid) -> Self {
        let threads: BTreeMap<i32, Held> =
            Proc::default().threads(program).into_iter().filter_map(held).collect();
        let groups = threads.values().filter_map(|(.., group)| group.as_ref());
        // Where threads are in a group of evenly's, it is seen from the group above.
        let made = |name: &std::ffi::OsStr| {
            name.to_str().is_some_and(|n| n.starts_with(&format!("evenly-{balancer}-")))
        };
        let above = groups.map(|group| match group.file_name() {
            Some(name) if made(name) => group.parent().unwrap(),
            _ => group.as_path(),
        });
        let in_it = |dir: &Path| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter(|e| made(&e.file_name())).count()
        };
        let groups = above.max().map_or(0, in_it);
        Self { threads, groups }
    }

    /// Whether nothing is as before of what a mechanism acts upon.
    fn differs_from(&self, before: &Self) -> bool {
        self.threads.iter().all(|(tid, held)| before.threads.get(tid) != Some(held))
    }
}

fn held(tid: Tid) -> Option<(i32, Held)> {
    let group = Limits::default().own_group(Pid(tid.0), "cpu").map(|(dir, _)| dir);
    Some((tid.0, (sched::get(tid).ok()?, affinity::get(tid).ok()?, group)))
}

/// A program, and a balancer that has changed something of it.
struct Scene {
    mechanism: &'static str,
    program: Helper,
    balancer: Helper,
    before: Seen,
    dir: StateDir,
    _tmp: tempfile::TempDir,
}

impl Scene {
    fn new(mechanism: &'static str, dies: bool) -> Self {
        Self::of(Helper::program(), mechanism, dies)
    }

    fn of(program: Helper, mechanism: &'static str, dies: bool) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let mut command = role_command("balancer");
        command.env(STATE, dir.path()).env(TARGET, program.pid().to_string());
        command.env(MECHANISM, mechanism);
        if dies {
            command.env(DIES, "1");
        }
        let before = Seen::of(program.pid(), Pid(0));
        let balancer = Helper::start(command);
        Self { mechanism, program, balancer, before, dir, _tmp: tmp }
    }

    /// With a guardian, which is notified, once everything is changed.
    fn changed(mechanism: &'static str) -> (Self, Pid) {
        Self::changed_of(Helper::program(), mechanism)
    }

    fn changed_of(program: Helper, mechanism: &'static str) -> (Self, Pid) {
        let mut scene = Self::of(program, mechanism, false);
        let guardian = Pid(scene.balancer.reply().parse().unwrap());
        let seen = scene.seen();
        assert!(seen.differs_from(&scene.before), "{}: {seen:?}", mechanism);
        (scene, guardian)
    }

    fn seen(&self) -> Seen {
        Seen::of(self.program.pid(), self.balancer.pid())
    }

    fn check(&self) {
        assert_eq!(self.seen(), self.before, "{}", self.mechanism);
        assert!(self.dir.journals().unwrap().is_empty(), "{}", self.mechanism);
    }
}

/// Whether a journal holds what is needed to undo the change that a mechanism was about to make first.
fn holds_the_undo(view: &JournalView, mechanism: &str, before: &Seen, first: Pid) -> bool {
    let (scheduling, mask, group) = &before.threads[&first.0];
    match mechanism {
        "placement" => view.records.iter().any(|r| r.original == *mask && !r.set.is_empty()),
        "cpu.shares" | "cpu.weight" => {
            view.header.parents.first().map(|p| &p.path) == group.as_ref()
        }
        _ => view.scheduling.iter().any(|r| {
            r.original == *scheduling && r.set.first().is_some_and(|set| set != scheduling)
        }),
    }
}

/// P4: what is found after an end at the very moment of the first change, whatever that is.
fn a_change_is_in_the_journal_before_it_is_made(mechanism: &'static str) {
    let mut scene = Scene::new(mechanism, true);
    let said = scene.balancer.reply();
    if said != "ready" {
        return evenly_testing::skip("seccomp", format!("no filter of system calls: {said}"));
    }
    let status = scene.balancer.child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{}: it changed nothing: {status}", mechanism);
    let journals = scene.dir.journals().unwrap();
    let view = JournalView::open(&journals[0]).unwrap();
    let (before, first) = (&scene.before, scene.program.pid());
    assert!(holds_the_undo(&view, mechanism, before, first), "{}: {view:?}", mechanism);
    assert_eq!(scene.seen(), scene.before, "{}", mechanism);
    // Nothing was done, so nothing is undone.
    assert!(restore::left(&scene.dir).is_empty(), "{}", mechanism);
    restore::restore_all(&scene.dir, None, false).unwrap();
    scene.check();
}

/// P4: where there is no room in the journal nothing may be changed.
fn what_cannot_be_journalled_is_not_done(mechanism: &'static str) {
    let _turn = BALANCER.lock().unwrap_or_else(PoisonError::into_inner);
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let journal = Arc::new(Journal::create(&dir, None).unwrap());
    let unknown = |tid| ThreadId { tid: Tid(tid), start: 1 };
    let mask = affinity::get(Tid(0)).unwrap();
    assert!((1..).any(|tid| journal.register(unknown(tid), Pid(i32::MAX), &mask).is_err()));
    let path = PathBuf::from("/nowhere");
    let parent = Parent { kind: Kind::Shares, path, switched_on: false };
    assert!((1..).any(|_: u8| journal.about_to_make_groups(&parent).is_err()));
    let program = Helper::program();
    let process = Process::find(&Proc::default(), program.pid()).unwrap();
    let before = Seen::of(process.pid, Process::own().pid);
    let mut means = Means::of(mechanism, &journal, process);
    assert!(means.change().is_err(), "{}", mechanism);
    assert_eq!(Seen::of(process.pid, Process::own().pid), before, "{}", mechanism);
}

fn a_balancer_undoes_what_it_did_and_so_does_its_end(mechanism: &'static str) {
    let _turn = BALANCER.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Helper::program();
    let process = Process::find(&Proc::default(), program.pid()).unwrap();
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let journal = Arc::new(Journal::create(&dir, Some(process)).unwrap());
    let seen = || Seen::of(process.pid, Process::own().pid);
    let before = seen();
    let mut means = Means::of(mechanism, &journal, process);
    means.change().unwrap();
    assert!(seen().differs_from(&before), "{}: {:?}", mechanism, seen());
    means.undo();
    assert_eq!(seen(), before, "{}", mechanism);
    // At the end of a run whatever is left is undone by the journal, and that is finished.
    means.change().unwrap();
    assert!(seen().differs_from(&before), "{}: {:?}", mechanism, seen());
    let report = restore::end(&journal).unwrap();
    assert!(report.is_complete(), "{}: {report:?}", mechanism);
    assert_eq!(seen(), before, "{}", mechanism);
    assert!(dir.journals().unwrap().is_empty(), "{}", mechanism);
}

/// A process that the program has started, which would outlive it.
struct Child(Pid);

impl Drop for Child {
    fn drop(&mut self) {
        send(self.0, Signal::KILL);
    }
}

/// P5; threads and processes that the program creates have inherited what their creator was given.
fn a_killed_balancer_is_undone_by_its_guardian(mechanism: &'static str) {
    its_guardian_undoes_it(Scene::changed(mechanism));
}

fn its_guardian_undoes_it((mut scene, guardian): (Scene, Pid)) {
    let created: Tid = Tid(scene.program.ask("thread").parse().unwrap());
    let child = Child(Pid(scene.program.ask("process").parse().unwrap()));
    scene.balancer.kill();
    wait_until("the journal is removed", || scene.dir.journals().unwrap().is_empty());
    let own = scene.before.threads[&scene.program.pid().0].clone();
    for tid in [created, Tid(child.0.0)] {
        assert_eq!(held(tid), Some((tid.0, own.clone())), "{}", scene.mechanism);
    }
    scene.before.threads.insert(created.0, own);
    scene.check();
    wait_until("the guardian ends", || has_ended(guardian));
}

/// P5, and what is reported before anything is undone.
fn when_both_are_killed_restore_undoes_it(mechanism: &'static str) {
    let (mut scene, guardian) = Scene::changed(mechanism);
    assert!(restore::left(&scene.dir).is_empty(), "{}: it lives", mechanism);
    send(guardian, Signal::KILL);
    wait_until("the guardian ends", || has_ended(guardian));
    scene.balancer.kill();
    assert!(scene.seen().differs_from(&scene.before), "{}", mechanism);
    let left = restore::left(&scene.dir);
    assert!(scene.seen().differs_from(&scene.before), "{}: it was only looked at", mechanism);
    let fates = restore::restore_all(&scene.dir, None, false).unwrap();
    let [(_, Fate::Restored(report))] = &fates[..] else { panic!("{}: {fates:?}", mechanism) };
    assert!(report.is_complete(), "{}: {report:?}", mechanism);
    assert_eq!((report.foreign, report.shares.foreign), (0, 0), "{}: {report:?}", mechanism);
    let done = |r: &restore::RestoreReport| [r.restored, r.shares.restored, r.shares.groups];
    let [left] = &left[..] else { panic!("{}: {left:?}", mechanism) };
    assert_eq!(left.evenly.pid, scene.balancer.pid(), "{}", mechanism);
    assert_eq!(done(&left.report), done(report), "{}", mechanism);
    let threads = scene.before.threads.len();
    assert_eq!(done(report).iter().sum::<usize>(), threads, "{}: {report:?}", mechanism);
    scene.check();
}

/// To what a raised thread creates the kernel gives the nice value 0.
#[test]
fn what_a_raised_thread_of_a_nice_program_creates_gets_its_nice_value_back() {
    let Some(mechanism) = here("round-robin") else { return };
    let program = Helper::program();
    for tid in Proc::default().threads(program.pid()) {
        sched::set_nice(tid, 13).unwrap();
    }
    its_guardian_undoes_it(Scene::changed_of(program, mechanism));
}

#[test]
fn what_the_program_set_itself_is_left_by_the_guardian() {
    let Some(mechanism) = here("nice") else { return };
    let (mut scene, _) = Scene::changed(mechanism);
    let leader = scene.program.pid().0;
    sched::set_nice(Tid(leader), 7).unwrap();
    scene.balancer.kill();
    wait_until("the journal is removed", || scene.dir.journals().unwrap().is_empty());
    for (tid, held) in scene.seen().threads {
        let expected = if tid == leader { 7 } else { scene.before.threads[&tid].0.nice };
        assert_eq!(held.0.nice, expected, "{tid}");
    }
}

//! What a killed or stopped balancer leaves is undone (promises P4 and P5): on real processes.
//!
//! The test program starts itself again in three roles: a balancer that pins a program through a
//! journal, its guardian, and a program with threads that follows commands. No test depends on
//! speed: each waits for a condition, for much longer than it can take. This is about masks; `shares.rs`
//! has the promises for every mechanism.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod helpers;

use evenly_engine::Actuator;
use evenly_linux::affinity;
use evenly_linux::clock::now;
use evenly_linux::guardian::{self, Guardian};
use evenly_linux::journal::{self, Journal, JournalView, Process, StateDir};
use evenly_linux::machine::{LinuxMachine, Masks};
use evenly_linux::proc::Proc;
use evenly_linux::restore::{self, Fate};
use evenly_linux::threads::{Source, ThreadReader};
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use evenly_testing::wait_until;
use helpers::{Helper, ROLE, has_ended, kill_at_a_change, program, role_command, send};
use rustix::process::{Signal, kill_process_group};
use std::env;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const STATE: &str = "EVENLY_TEST_STATE";
const TARGET: &str = "EVENLY_TEST_TARGET";
const HEARTBEATS: &str = "EVENLY_TEST_HEARTBEATS";
const KEEPS_JOURNAL: &str = "EVENLY_TEST_KEEPS_JOURNAL";

/// No test: the other roles of this program. Without a role it does nothing.
#[test]
fn role() {
    match env::var(ROLE).as_deref() {
        Ok("balancer") => balancer(),
        Ok("killed") => killed_at_the_first_mask(),
        Ok("guardian") => {
            guardian::main(0).unwrap();
        }
        Ok("program") => program(),
        Ok("costs") => costs(),
        _ => {}
    }
}

fn guard(journal: &Arc<Journal>) -> Guardian {
    let mut command = role_command("guardian");
    command.stderr(Stdio::null());
    Guardian::spawn(command, journal).unwrap()
}

/// Pins all threads of a process to their first CPU, and again whenever they were released.
fn balancer() {
    let dir = StateDir::at(Path::new(&env::var_os(STATE).unwrap())).unwrap();
    let target = Pid(env::var(TARGET).unwrap().parse().unwrap());
    let proc = Proc::default();
    let journal = Arc::new(Journal::create(&dir, Process::find(&proc, target)).unwrap());
    let guardian = guard(&journal);
    let mut managed = Vec::new();
    for tid in proc.threads(target) {
        let id = ThreadId { tid, start: proc.thread_stat(tid).unwrap().start };
        let original = affinity::get(tid).unwrap();
        let slot = journal.register(id, target, &original).unwrap();
        managed.push((tid, CpuSet::single(original.first().unwrap()), slot));
    }
    let mut pin = || {
        for (tid, mask, slot) in &mut managed {
            journal.about_to_set(slot, mask);
            affinity::set(*tid, mask).unwrap();
        }
        journal.publish_counts(&[(CpuId(0), managed.len() as u16)]);
    };
    let mut generation = journal.released_generation();
    pin();
    println!("reply: {}", guardian.id().unwrap());
    loop {
        if env::var_os(HEARTBEATS).is_some() {
            journal.heartbeat(now());
        }
        if env::var_os(KEEPS_JOURNAL).is_some() {
            guardian.keep_journal().unwrap();
        }
        if journal.released_generation() != generation {
            generation = journal.released_generation();
            pin();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Places the first thread of a process on its first CPU; but the kernel kills a process that sets a mask.
fn killed_at_the_first_mask() {
    let dir = StateDir::at(Path::new(&env::var_os(STATE).unwrap())).unwrap();
    let target = Pid(env::var(TARGET).unwrap().parse().unwrap());
    let proc = Proc::default();
    let journal = Arc::new(Journal::create(&dir, Process::find(&proc, target)).unwrap());
    let masks = Arc::new(Masks::new(journal));
    let mut machine = LinuxMachine::new(target, masks, ThreadReader::new(Source::Schedstat, 64));
    let id = ThreadId { tid: Tid(target.0), start: proc.process_stat(target).unwrap().start };
    let cpu = affinity::get(id.tid).unwrap().first().unwrap();
    if let Err(e) = kill_at_a_change() {
        println!("reply: {e}");
        return;
    }
    println!("reply: ready");
    let placed = machine.place(id, cpu, None);
    println!("reply: alive after {placed:?}");
}

/// A program, a balancer that has pinned it, and the state directory that they use.
struct Scene {
    program: Helper,
    balancer: Helper,
    guardian: Pid,
    original: CpuSet,
    pinned: CpuSet,
    dir: StateDir,
    _tmp: tempfile::TempDir,
}

impl Scene {
    /// None, a skip, where this machine has one CPU only: nothing can be pinned.
    fn new(heartbeats: bool) -> Option<Self> {
        Self::with(if heartbeats { &[HEARTBEATS] } else { &[] })
    }

    /// With a balancer that has these variables.
    fn with(variables: &[&str]) -> Option<Self> {
        let original = affinity::get(Tid(0)).unwrap();
        if original.len() < 2 {
            evenly_testing::skip("two-cpus", format!("only the CPUs {original} can be used"));
            return None;
        }
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let program = Helper::program();
        let mut command = role_command("balancer");
        command.env(STATE, dir.path()).env(TARGET, program.pid().to_string()).process_group(0);
        command.envs(variables.iter().map(|name| (name, "1")));
        let mut balancer = Helper::start(command);
        let guardian = Pid(balancer.reply().parse().unwrap());
        let pinned = CpuSet::single(original.first().unwrap());
        let scene = Self { program, balancer, guardian, original, pinned, dir, _tmp: tmp };
        assert!(scene.all_threads_have(&scene.pinned));
        Some(scene)
    }

    fn journal(&self) -> PathBuf {
        self.dir.journals().unwrap().remove(0)
    }

    /// How many threads the program has, with those of the test harness.
    fn threads(&self) -> usize {
        Proc::default().threads(self.program.pid()).len()
    }

    fn all_threads_have(&self, mask: &CpuSet) -> bool {
        let threads = Proc::default().threads(self.program.pid());
        !threads.is_empty()
            && threads.iter().all(|&t| affinity::get(t).is_ok_and(|found| found == *mask))
    }

    /// Waits until the guardian has done its duty: it removes the journal as its last act.
    fn wait_for_guardian(&self) {
        wait_until("the journal is removed", || self.dir.journals().unwrap().is_empty());
    }
}

/// Promise P4: what is found after an end at the very moment of the first change.
#[test]
fn a_mask_is_in_the_journal_before_it_is_set() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let program = Helper::program();
    let target = Tid(program.pid().0);
    let original = affinity::get(target).unwrap();
    if original.len() < 2 {
        let why = format!("only the CPUs {original} can be used");
        return evenly_testing::skip("two-cpus", why);
    }
    let mut command = role_command("killed");
    command.env(STATE, dir.path()).env(TARGET, target.to_string());
    let mut balancer = Helper::start(command);
    let said = balancer.reply();
    if said != "ready" {
        return evenly_testing::skip("seccomp", format!("no filter of system calls: {said}"));
    }
    let status = balancer.child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSYS), "it set no mask: {status}");
    let journals = dir.journals().unwrap();
    let view = JournalView::open(&journals[0]).unwrap();
    let start = Proc::default().process_stat(program.pid()).unwrap().start;
    let record = view.records.iter().find(|r| r.id == ThreadId { tid: target, start }).unwrap();
    assert_eq!(record.set[0], CpuSet::single(original.first().unwrap()));
    assert_eq!(record.original, original);
    assert_eq!(affinity::get(target).unwrap(), original);
}

#[test]
fn a_killed_balancer_is_undone_by_its_guardian() {
    let Some(mut scene) = Scene::new(true) else { return };
    scene.balancer.kill();
    scene.wait_for_guardian();
    assert!(scene.all_threads_have(&scene.original));
    wait_until("the guardian ends", || has_ended(scene.guardian));
}

/// A state directory that is lost.
fn the_guardian_needs_no_name_of_the_journal(lose: fn(&Path)) {
    let Some(mut scene) = Scene::new(true) else { return };
    lose(scene.dir.path());
    scene.balancer.kill();
    wait_until("the masks are back", || scene.all_threads_have(&scene.original));
    wait_until("the guardian ends", || has_ended(scene.guardian));
}

/// With a balancer that has made its journal anew, because the state directory was lost.
fn with_a_new_journal(lose: fn(&Path)) -> Option<Scene> {
    let scene = Scene::with(&[HEARTBEATS, KEEPS_JOURNAL])?;
    lose(scene.dir.path());
    wait_until("the journal is made anew", || {
        scene.dir.path().exists() && !scene.dir.journals().unwrap().is_empty()
    });
    Some(scene)
}

fn a_journal_that_was_made_anew_is_that_of_the_guardian(lose: fn(&Path)) {
    let Some(mut scene) = with_a_new_journal(lose) else { return };
    scene.balancer.kill();
    scene.wait_for_guardian();
    assert!(scene.all_threads_have(&scene.original));
}

fn a_journal_that_was_made_anew_is_that_of_restore(lose: fn(&Path)) {
    let Some(mut scene) = with_a_new_journal(lose) else { return };
    send(scene.guardian, Signal::KILL);
    wait_until("the guardian ends", || has_ended(scene.guardian));
    scene.balancer.kill();
    assert!(scene.all_threads_have(&scene.pinned));
    let fates = restore::restore_all(&scene.dir, None, false).unwrap();
    let [(_, Fate::Restored(report))] = &fates[..] else { panic!("{fates:?}") };
    assert_eq!(report.restored, scene.threads());
    assert!(scene.all_threads_have(&scene.original));
    assert!(scene.dir.journals().unwrap().is_empty());
}

/// The tests of each way in which a state directory is lost.
macro_rules! losses {
    ($($module:ident: $lose:expr),* $(,)?) => {
        $(mod $module {
            use super::*;

            const LOSE: fn(&Path) = $lose;

            #[test]
            fn the_guardian_needs_no_name_of_the_journal() {
                super::the_guardian_needs_no_name_of_the_journal(LOSE);
            }

            #[test]
            fn a_journal_that_was_made_anew_is_that_of_the_guardian() {
                super::a_journal_that_was_made_anew_is_that_of_the_guardian(LOSE);
            }

            #[test]
            fn a_journal_that_was_made_anew_is_that_of_restore() {
                super::a_journal_that_was_made_anew_is_that_of_restore(LOSE);
            }
        })*
    };
}

losses! {
    removed: |dir| fs::remove_dir_all(dir).unwrap(),
    removed_and_made: |dir| {
        fs::remove_dir_all(dir).unwrap();
        fs::create_dir(dir).unwrap();
    },
    moved: |dir| fs::rename(dir, dir.with_file_name("moved")).unwrap(),
}

/// A guardian that takes nothing any more must not undo later what an old journal says.
#[test]
fn a_guardian_that_cannot_be_given_a_new_journal_is_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let journal = Arc::new(Journal::create(&dir, None).unwrap());
    let guardian = guard(&journal);
    let first = Pid(guardian.id().unwrap() as i32);
    assert_eq!(guardian.keep_journal().unwrap(), None);
    send(first, Signal::STOP);
    wait_until("it has stopped", || {
        Proc::default().process_stat(first).is_some_and(|s| s.state == b'T')
    });
    // The kernel keeps only so many messages for one that does not receive.
    for _ in 0..10_000 {
        fs::remove_dir_all(dir.path()).unwrap();
        assert_eq!(guardian.keep_journal().unwrap(), Some(journal.path()));
        if guardian.id().is_none() {
            break;
        }
    }
    assert!(guardian.id().is_none() && has_ended(first));
    assert!(guardian.renew().unwrap() && guardian.is_alive());
    journal.finish().unwrap();
    guardian.finish().unwrap();
}

#[test]
fn when_both_are_killed_restore_undoes_it() {
    let Some(mut scene) = Scene::new(true) else { return };
    send(scene.guardian, Signal::KILL);
    wait_until("the guardian ends", || has_ended(scene.guardian));
    scene.balancer.kill();
    assert!(scene.all_threads_have(&scene.pinned));
    // Of another evenly.
    assert!(restore::restore_all(&scene.dir, Some(Pid(i32::MAX)), false).unwrap().is_empty());
    let fates = restore::restore_all(&scene.dir, Some(scene.program.pid()), false).unwrap();
    match &fates[..] {
        [(_, Fate::Restored(report))] => {
            assert_eq!((report.restored, report.foreign, report.gone), (scene.threads(), 0, 0));
        }
        other => panic!("{other:?}"),
    }
    assert!(scene.all_threads_have(&scene.original));
    assert!(scene.dir.journals().unwrap().is_empty());
}

#[test]
fn masks_that_the_program_chose_are_left() {
    let Some(mut scene) = Scene::new(true) else { return };
    let own_wish = scene.original.minus(&scene.pinned);
    let leader = Tid(scene.program.pid().0);
    affinity::set(leader, &own_wish).unwrap();
    scene.balancer.kill();
    scene.wait_for_guardian();
    for tid in Proc::default().threads(scene.program.pid()) {
        let expected = if tid == leader { &own_wish } else { &scene.original };
        assert_eq!(&affinity::get(tid).unwrap(), expected, "{tid}");
    }
}

#[test]
fn inherited_masks_are_given_back() {
    let Some(mut scene) = Scene::new(true) else { return };
    let thread = Tid(scene.program.ask("thread").parse().unwrap());
    let process = Tid(scene.program.ask("process").parse().unwrap());
    assert_eq!(affinity::get(thread).unwrap(), scene.pinned);
    assert_eq!(affinity::get(process).unwrap(), scene.pinned);
    scene.balancer.kill();
    scene.wait_for_guardian();
    assert!(scene.all_threads_have(&scene.original));
    assert_eq!(affinity::get(process).unwrap(), scene.original);
    send(Pid(process.0), Signal::KILL);
}

#[test]
fn exec_by_a_thread_that_is_not_the_leader() {
    let Some(mut scene) = Scene::new(true) else { return };
    // The leader's own mask differs, so what it has after exec can only be the other thread's.
    affinity::set(Tid(scene.program.pid().0), &scene.original).unwrap();
    scene.program.ask("exec");
    let proc = Proc::default();
    wait_until("the program is sleep", || {
        proc.process_stat(scene.program.pid()).is_some_and(|s| s.comm.as_slice() == b"sleep")
    });
    assert!(scene.all_threads_have(&scene.pinned));
    scene.balancer.kill();
    scene.wait_for_guardian();
    assert!(scene.all_threads_have(&scene.original));
}

#[test]
fn a_stopped_balancer_is_released_and_places_again_when_continued() {
    let Some(mut scene) = Scene::new(true) else { return };
    scene.balancer.signal(Signal::STOP);
    wait_until("the threads are released", || scene.all_threads_have(&scene.original));
    let path = scene.journal();
    // Raised before the first mask and after the last.
    wait_until("the release is over", || JournalView::open(&path).unwrap().header.released == 2);
    scene.balancer.signal(Signal::CONT);
    wait_until("the threads are placed again", || scene.all_threads_have(&scene.pinned));
    scene.balancer.kill();
    scene.wait_for_guardian();
    assert!(scene.all_threads_have(&scene.original));
}

#[test]
fn what_a_balancer_without_heartbeats_places_again_is_released_again() {
    let Some(scene) = Scene::new(false) else { return };
    let path = scene.journal();
    // It lives, and places again what was released.
    let released = || JournalView::open(&path).unwrap().header.released;
    wait_until("the release is over", || released() >= 2);
    wait_until("the threads are placed again", || scene.all_threads_have(&scene.pinned));
    wait_until("they are released again", || released() >= 4);
}

#[test]
fn the_guardian_outlives_signals_to_the_group_and_to_itself() {
    let Some(mut scene) = Scene::new(true) else { return };
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::TSTP]
    {
        send(scene.guardian, signal);
    }
    let group = rustix::process::Pid::from_raw(scene.balancer.pid().0).unwrap();
    // Not HUP, which may be ignored where the tests run.
    kill_process_group(group, Signal::TERM).unwrap();
    scene.balancer.child.wait().unwrap();
    scene.wait_for_guardian();
    assert!(scene.all_threads_have(&scene.original));
}

#[test]
fn the_guardian_keeps_nothing_of_its_parent() {
    let Some(scene) = Scene::new(true) else { return };
    let of = |file: &str| Proc::default().process_file(scene.guardian, file);
    let stat = fs::read_to_string(of("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let id = scene.guardian.to_string();
    // Process group, session, terminal.
    assert_eq!((fields[2], fields[3], fields[4]), (&*id, &*id, "0"));
    assert_eq!(fs::read_link(of("cwd")).unwrap(), Path::new("/"));
    let mut open: Vec<String> = fs::read_dir(of("fd"))
        .unwrap()
        .map(|e| fs::read_link(e.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .collect();
    open.sort();
    let journal = scene.journal().display().to_string();
    let kept = open.iter().position(|o| *o == journal).map(|at| open.remove(at));
    assert!(kept.is_some() && open.len() == 4, "{open:?}");
    assert!(open[..3].iter().all(|o| o == "/dev/null"), "{open:?}");
    assert!(open[3].starts_with("socket:"), "{open:?}");
}

#[test]
fn tids_that_are_used_again_are_left() {
    let original = affinity::get(Tid(0)).unwrap();
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(tmp.path()).unwrap();
    let journal = Journal::create(&dir, None).unwrap();
    let program = Helper::program();
    let (proc, pid) = (Proc::default(), program.pid());
    let first = CpuSet::single(original.first().unwrap());
    let start = proc.process_stat(pid).unwrap().start;
    // The thread that was recorded is gone; another one has its id, and the same mask by chance.
    let id = ThreadId { tid: Tid(pid.0), start: start - 1 };
    let mut slot = journal.register(id, pid, &original).unwrap();
    journal.about_to_set(&mut slot, &first);
    affinity::set(Tid(pid.0), &first).unwrap();
    let view = JournalView::open(&journal.path()).unwrap();
    let report = restore::restore(&view, &proc, &mut restore::System::default());
    assert_eq!((report.restored, report.gone), (0, 1));
    assert_eq!(affinity::get(Tid(pid.0)).unwrap(), first);
}

#[test]
fn a_clean_end_leaves_nothing_to_do() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(tmp.path()).unwrap();
    let journal = Arc::new(Journal::create(&dir, None).unwrap());
    let guardian = guard(&journal);
    assert!(guardian.is_alive());
    let program = Helper::program();
    let (proc, pid) = (Proc::default(), program.pid());
    let original = affinity::get(Tid(pid.0)).unwrap();
    let id = ThreadId { tid: Tid(pid.0), start: proc.process_stat(pid).unwrap().start };
    let mut slot = journal.register(id, pid, &original).unwrap();
    // What the guardian would take for ours, if it looked.
    let first = CpuSet::single(original.first().unwrap());
    journal.about_to_set(&mut slot, &first);
    affinity::set(Tid(pid.0), &first).unwrap();
    journal.finish().unwrap();
    let guardian_pid = Pid(guardian.id().unwrap() as i32);
    guardian.finish().unwrap();
    assert!(has_ended(guardian_pid));
    assert_eq!(affinity::get(Tid(pid.0)).unwrap(), first);
    assert!(dir.journals().unwrap().is_empty());
}

#[test]
fn the_end_of_a_balancer_finds_what_its_scans_missed() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(tmp.path()).unwrap();
    let journal = Arc::new(Journal::create(&dir, None).unwrap());
    let guardian = guard(&journal);
    let mut program = Helper::program();
    let (proc, pid) = (Proc::default(), program.pid());
    let original = affinity::get(Tid(0)).unwrap();
    let first = CpuSet::single(original.first().unwrap());
    let mut slots = Vec::new();
    for tid in proc.threads(pid) {
        let id = ThreadId { tid, start: proc.thread_stat(tid).unwrap().start };
        let mut slot = journal.register(id, pid, &original).unwrap();
        journal.about_to_set(&mut slot, &first);
        affinity::set(tid, &first).unwrap();
        slots.push((tid, slot));
    }
    program.ask("thread");
    for (tid, slot) in &mut slots {
        journal.about_to_set(slot, &original);
        affinity::set(*tid, &original).unwrap();
    }
    let report = restore::end(&journal).unwrap();
    let missed = usize::from(original.len() > 1);
    assert_eq!((report.restored, report.unchanged), (missed, slots.len()));
    assert!(proc.threads(pid).iter().all(|&t| affinity::get(t).unwrap() == original));
    assert!(dir.journals().unwrap().is_empty());
    guardian.finish().unwrap();
}

#[test]
fn a_killed_guardian_is_noticed_and_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(&StateDir::at(tmp.path()).unwrap(), None).unwrap());
    let guardian = guard(&journal);
    send(Pid(guardian.id().unwrap() as i32), Signal::KILL);
    wait_until("evenly notices", || !guardian.is_alive());
    let first = Pid(guardian.id().unwrap() as i32);
    assert!(guardian.renew().unwrap());
    let second = Pid(guardian.id().unwrap() as i32);
    // No zombie is left of the first.
    assert!(first != second && Proc::default().process_stat(first).is_none());
    assert!(guardian.is_alive() && !guardian.renew().unwrap());
    journal.finish().unwrap();
    guardian.finish().unwrap();
    assert!(has_ended(second) && !guardian.is_alive());
}

#[test]
fn a_guardian_that_cannot_watch_is_an_error() {
    let tmp = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(&StateDir::at(tmp.path()).unwrap(), None).unwrap());
    let missing = Guardian::start(Path::new("/nonexistent/evenly"), &journal, false).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/evenly"), "{missing}");
    let silent = Guardian::start(Path::new("/bin/true"), &journal, false).unwrap_err();
    assert!(silent.to_string().contains("before it watched"), "{silent}");
    // A journal that is no journal: the guardian ends, and balancing must not start.
    fs::write(journal.path(), "no journal").unwrap();
    assert!(Guardian::spawn(role_command("guardian"), &journal).is_err());
}

#[test]
fn a_living_evenly_is_seen_by_others_and_released_only_by_force() {
    let Some(mut scene) = Scene::new(true) else { return };
    let proc = Proc::default();
    let found = journal::others(&scene.dir, &proc).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].evenly.pid, scene.balancer.pid());
    assert_eq!(found[0].program.unwrap().pid, scene.program.pid());
    assert_eq!(found[0].counts, [(CpuId(0), scene.threads() as u16)]);
    assert_eq!(found[0].cpus(), CpuSet::single(CpuId(0)));
    assert!(!found[0].stands_still);
    // A journal of our own is no other.
    let own = Journal::create(&scene.dir, None).unwrap();
    assert_eq!(journal::others(&scene.dir, &proc).unwrap().len(), 1);
    own.finish().unwrap();

    let fates = restore::restore_all(&scene.dir, None, false).unwrap();
    let [(_, Fate::Alive(living))] = fates[..] else { panic!("{fates:?}") };
    assert_eq!(living.evenly.pid, scene.balancer.pid());
    assert_eq!(living.program.unwrap().pid, scene.program.pid());
    assert_eq!((living.stands_still, living.held), (false, scene.threads()));
    assert!(scene.all_threads_have(&scene.pinned));
    scene.balancer.signal(Signal::STOP);
    // It may be about to place a thread until it has really stopped.
    let balancer = scene.balancer.pid();
    wait_until("it has stopped", || proc.process_stat(balancer).is_some_and(|s| s.state == b'T'));
    let stands_still = || journal::others(&scene.dir, &proc).unwrap()[0].stands_still;
    assert!(stands_still());
    let path = scene.journal();
    let fates = restore::restore_all(&scene.dir, Some(scene.balancer.pid()), true).unwrap();
    assert!(matches!(fates[..], [(_, Fate::Restored(_))]), "{fates:?}");
    assert!(scene.all_threads_have(&scene.original));
    assert!(JournalView::open(&path).unwrap().header.released >= 2);
    scene.balancer.signal(Signal::CONT);
    wait_until("the threads are placed again", || scene.all_threads_have(&scene.pinned));
    wait_until("it is seen at work again", || {
        !journal::others(&scene.dir, &proc).unwrap()[0].stands_still
    });
    scene.balancer.kill();
    scene.wait_for_guardian();
    assert!(journal::others(&scene.dir, &proc).unwrap().is_empty());
}

#[test]
fn an_evenly_whose_heart_stands_still_is_told_from_one_at_work() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(tmp.path()).unwrap();
    // Of another process that lives: the child's.
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let proc = Proc::default();
    let writer = Process::find(&proc, Pid(child.id() as i32)).unwrap();
    let journal = Journal::create(&dir, None).unwrap();
    let bytes = fs::read(journal.path()).unwrap();
    journal.finish().unwrap();
    let seen = |beat: Nanos, period: Nanos| {
        let mut bytes = bytes.clone();
        let words = [(9, writer.pid.0 as u64), (10, writer.start), (14, beat.0), (15, period.0)];
        for (n, word) in words {
            bytes[n * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        fs::write(tmp.path().join("x.journal"), bytes).unwrap();
        journal::others(&dir, &proc).unwrap()[0].stands_still
    };
    // An hour from now: however long this test is held up, the beat is not late.
    let late = now() + Nanos::from_millis(3_600_000);
    assert!(!seen(late, Nanos::from_millis(20)));
    assert!(seen(Nanos(1), Nanos::from_millis(20)));
    // Twenty of its periods are not over yet.
    assert!(!seen(Nanos(1), late));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn journals_of_another_boot_are_removed_and_damaged_ones_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(tmp.path()).unwrap();
    let journal = Journal::create(&dir, None).unwrap();
    let bytes = fs::read(journal.path()).unwrap();
    journal.finish().unwrap();
    let (old, damaged) = (tmp.path().join("1-1.journal"), tmp.path().join("2-2.journal"));
    let mut other_boot = bytes.clone();
    other_boot[6 * 8] ^= 1; // words 6 and 7 are the boot id
    fs::write(&old, other_boot).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    let fates = restore::restore_all(&dir, None, false).unwrap();
    assert!(
        matches!(&fates[..], [(_, Fate::Stale), (p, Fate::Failed(_))] if *p == damaged),
        "{fates:?}"
    );
    assert!(!old.exists() && damaged.exists());
}

/// No test either: what recording a change and watching cost. Run with
/// `EVENLY_TEST_ROLE=costs cargo test --release -p evenly-linux --test journal -- --nocapture role`.
fn costs() {
    let tmp = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(&StateDir::at(tmp.path()).unwrap(), None).unwrap());
    let guardian = guard(&journal);
    let whole = affinity::get(Tid(0)).unwrap();
    let id = ThreadId { tid: Tid(1), start: 0 };
    let mut slot = journal.register(id, Pid(1), &whole).unwrap();
    let masks: Vec<CpuSet> = whole.iter().map(CpuSet::single).collect();
    let per = |what: &str, n: u32, f: &mut dyn FnMut(usize)| {
        let start = Instant::now();
        for i in 0..n as usize {
            f(i);
        }
        println!("{what}: {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(n));
    };
    per("record a mask", 1_000_000, &mut |i| {
        journal.about_to_set(&mut slot, &masks[i % masks.len()]);
    });
    per("heartbeat", 1_000_000, &mut |_| journal.heartbeat(now()));
    per("is the guardian alive", 100_000, &mut |_| assert!(guardian.is_alive()));
    per("register and forget", 200_000, &mut |_| {
        journal.forget(journal.register(id, Pid(1), &whole).unwrap());
    });
    let (proc, pid) = (Proc::default(), Pid(guardian.id().unwrap() as i32));
    // Here it is one of two threads, because the test harness started it.
    let ran = || {
        let times = proc.threads(pid).into_iter().map(|tid| {
            let text = fs::read(proc.thread_file(tid, "schedstat")).unwrap();
            evenly_linux::proc::parse_schedstat(&text).unwrap().ran
        });
        times.fold(Nanos::ZERO, |sum, ran| sum + ran)
    };
    let (start, before) = (Instant::now(), ran());
    while start.elapsed() < Duration::from_secs(20) {
        journal.heartbeat(now());
        thread::sleep(Duration::from_millis(20));
    }
    let used: Nanos = ran() - before;
    println!("guardian: {used} of CPU time in {:.1} s", start.elapsed().as_secs_f64());
    let status = fs::read(proc.process_file(pid, "status")).unwrap();
    let kib = evenly_linux::proc::status_number(&status, "RssAnon").unwrap();
    println!("guardian: {kib} KiB of memory of its own");
    journal.finish().unwrap();
    guardian.finish().unwrap();
}

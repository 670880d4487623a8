//! What is done to evenly, to its program and to the program's threads while they are moved within phases (`phase`), or have
//! parts of CPUs (`auto`, where their work is unequal): the program runs on, computes the same, and has what it had.
//!
//! Every wait is for a condition. What is only likely is in virtual time: `sim/tests/faults.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::affinity;
use evenly_linux::proc::Proc;
use evenly_linux::share::sched;
use evenly_model::{CpuSet, Pid, Tid};
use evenly_testing::groups::{Group, KEY};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What makes it end, of all programs of these tests.
const END: &str = "end";

/// `armed.c`, built once.
fn built() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/armed.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("armed");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-fopenmp", "-o"]).arg(&program).arg(source);
        assert!(gcc.status().unwrap().success());
        program
    })
}

/// What is balanced, and how.
struct Armed {
    state: State,
    evenly: Evenly,
    pid: Pid,
    whole: CpuSet,
    /// The nice value that all have without evenly.
    nice: i8,
}

impl Drop for Armed {
    fn drop(&mut self) {
        signal(self.pid, Signal::KILL);
    }
}

impl Armed {
    /// None is a skip.
    fn start(
        options: &[&str],
        threads: &str,
        steps: &str,
        factor: &str,
        dies: &str,
    ) -> Option<Self> {
        let whole = whole()?;
        let nice = sched::get(Tid(0)).unwrap().nice;
        let state = State::new();
        let end = state.sign(END);
        let program = [built().to_str().unwrap(), threads, steps, factor, dies, &end];
        let evenly = state.start(&[&["run"], options, &["--"], &program].concat());
        let pid = evenly.program();
        Some(Self { state, evenly, pid, whole, nice })
    }

    /// Three threads with phases of about a millisecond, which turn on two CPUs.
    fn within_phases() -> Option<Self> {
        let restless = ["--policy", "phase", "--period", "10ms", "--budget", "50", "--no-guard"];
        let armed = Self::start(&restless, "3", "400000", "1", "0")?;
        armed.wait_until_they_turn(3);
        Some(armed)
    }

    /// Four threads of unequal work, which have parts of their CPUs by `auto`. None is a skip, also where nobody may give them.
    fn with_parts() -> Option<Self> {
        let armed =
            Self::start(&["--policy", "auto", "--period", "10ms"], "4", "3000000", "4", "0")?;
        let refused = || armed.evenly.decisions("keeps its share of a CPU") > 0;
        wait_until("parts of CPUs", || armed.has_parts() || refused());
        if refused() {
            evenly_testing::skip("privileged-nice", armed.evenly.stderr());
            return None;
        }
        Some(armed)
    }

    fn threads(&self) -> Vec<Tid> {
        Proc::default().threads(self.pid)
    }

    fn has_parts(&self) -> bool {
        self.threads().into_iter().any(|t| sched::get(t).is_ok_and(|s| s.nice != self.nice))
    }

    /// Waits until so many threads were seen alone on each of the CPUs, from now on, and none outside them.
    fn wait_until_they_turn(&self, threads: usize) {
        let mut seen: BTreeMap<i32, BTreeSet<String>> = BTreeMap::new();
        wait_until("threads to be put on both CPUs", || {
            for (tid, mask) in masks(self.pid) {
                assert!(mask.is_subset(&self.whole), "{tid} may use {mask} of {}", self.whole);
                if mask.len() == 1 {
                    seen.entry(tid).or_default().insert(mask.to_string());
                }
            }
            seen.values().filter(|cpus| cpus.len() == 2).count() >= threads
        });
    }

    fn wait_until_it_has_parts(&self) {
        wait_until("parts of CPUs", || self.has_parts());
    }

    /// Waits until all threads have what they had without evenly.
    fn wait_until_as_met(&self) {
        wait_until_restored(self.pid, &self.whole);
        wait_until("even parts of CPUs", || !self.has_parts());
    }

    /// The program is told to end: it has computed what it should.
    fn computes_the_same(&self) {
        self.state.give(END);
        wait_until("the program to end", || self.evenly.stdout().ends_with('\n'));
        assert_eq!(self.evenly.stdout(), "0 wrong\n");
    }

    /// Ends all, and gives the report.
    fn end(mut self) -> Value {
        self.computes_the_same();
        assert_eq!(self.evenly.wait().code(), Some(0), "{}", self.evenly.stderr());
        assert!(self.state.journals().is_empty());
        let report = self.evenly.report();
        schema::valid(&report);
        report
    }
}

/// Would catch: a thread that keeps the mask, or the part of a CPU, that a dead evenly gave it; a barrier that waits for evenly.
fn is_harmless_when_killed(armed: Option<Armed>) {
    let Some(mut armed) = armed else { return };
    armed.evenly.kill(Signal::KILL);
    armed.evenly.wait();
    armed.wait_until_as_met();
    armed.computes_the_same();
    wait_until("the journal to be removed", || armed.state.journals().is_empty());
}

#[test]
fn a_program_computes_on_when_evenly_is_killed_in_mid_phase() {
    is_harmless_when_killed(Armed::within_phases());
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn a_program_computes_on_when_evenly_is_killed_while_an_arm_acts() {
    is_harmless_when_killed(Armed::with_parts());
}

/// Would catch: a program that waits for an evenly that stands still; one that is left alone from then on.
fn goes_on_while_evenly_stands_still(armed: Option<Armed>, again: impl Fn(&Armed)) {
    let Some(armed) = armed else { return };
    for _ in 0..2 {
        armed.evenly.kill(Signal::STOP);
        armed.wait_until_as_met();
        armed.evenly.kill(Signal::CONT);
        again(&armed);
    }
    let report = armed.end();
    assert!(!report["notes"].to_string().contains("left alone"), "{report:#}");
}

#[test]
fn threads_turn_again_after_evenly_stood_still() {
    goes_on_while_evenly_stands_still(Armed::within_phases(), |a| a.wait_until_they_turn(3));
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn threads_have_parts_again_after_evenly_stood_still() {
    goes_on_while_evenly_stands_still(Armed::with_parts(), Armed::wait_until_it_has_parts);
}

#[test]
fn a_program_computes_to_its_end_while_evenly_stands_still() {
    let Some(armed) = Armed::within_phases() else { return };
    armed.evenly.kill(Signal::STOP);
    armed.computes_the_same();
    armed.evenly.kill(Signal::CONT);
    armed.end();
}

/// Would catch: helpers that wait for a phase which is over, or reckon with one that took as long as its program stood still.
fn goes_on_after_the_program_stood_still(armed: Option<Armed>, again: impl Fn(&Armed)) {
    let Some(armed) = armed else { return };
    for _ in 0..3 {
        signal(armed.pid, Signal::STOP);
        (0..40).for_each(|_| armed.evenly.wait_until_point());
        signal(armed.pid, Signal::CONT);
        again(&armed);
    }
    armed.end();
}

#[test]
fn threads_turn_again_after_their_program_stood_still() {
    goes_on_after_the_program_stood_still(Armed::within_phases(), |a| a.wait_until_they_turn(3));
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn threads_with_parts_go_on_after_their_program_stood_still() {
    goes_on_after_the_program_stood_still(Armed::with_parts(), Armed::wait_until_it_has_parts);
}

/// A runtime ends a thread between two parts of its program, and makes another one. Would catch: a helper that waits for one
/// that is gone, a phase planned with it, a mask that its successor keeps.
#[test]
fn threads_that_end_and_others_that_begin_turn_in_their_place() {
    let options = ["--policy", "phase", "--period", "10ms", "--budget", "50", "--no-guard"];
    let Some(armed) = Armed::start(&options, "3", "400000", "1", "1") else { return };
    // More than there are at any time.
    armed.wait_until_they_turn(5);
    armed.end();
}

/// Would catch: a mask that is set from outside and taken back; a helper that goes on with threads that it may not move.
fn stays_where_it_is_put_from_outside(armed: Option<Armed>) {
    let Some(armed) = armed else { return };
    let one = CpuSet::single(armed.whole.first().unwrap());
    // A thread that was on that CPU anyway keeps no trace of it, and may be moved once more.
    wait_until("all threads to stay there", || {
        for tid in armed.threads() {
            let _ = affinity::set(tid, &one);
        }
        // That is seen within some points, after the others are known to stay.
        (0..40).all(|_| {
            armed.evenly.wait_until_point();
            masks(armed.pid).values().all(|mask| *mask == one)
        })
    });
    for _ in 0..20 {
        armed.evenly.wait_until_point();
        assert!(masks(armed.pid).values().all(|mask| *mask == one), "{:?}", masks(armed.pid));
    }
    armed.end();
}

#[test]
fn threads_that_are_bound_from_outside_in_mid_phase_stay_there() {
    stays_where_it_is_put_from_outside(Armed::within_phases());
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn threads_with_parts_that_are_bound_from_outside_stay_there() {
    stays_where_it_is_put_from_outside(Armed::with_parts());
}

/// Would catch: helpers that go on with a CPU that is gone; threads that are not spread again when it is back.
fn follows_its_cpuset(name: &str, armed: Option<Armed>, again: impl Fn(&Armed)) {
    let Some(armed) = armed else { return };
    let cpuset = match Group::new("cpuset", name) {
        Ok(cpuset) => cpuset,
        Err(e) => return evenly_testing::skip(KEY, format!("cannot make a cpuset: {e}")),
    };
    cpuset.set_cpus(&armed.whole).unwrap();
    cpuset.take(armed.pid).unwrap();
    let one = CpuSet::single(armed.whole.first().unwrap());
    for _ in 0..2 {
        cpuset.set_cpus(&one).unwrap();
        wait_until_restored(armed.pid, &one);
        cpuset.set_cpus(&armed.whole).unwrap();
        again(&armed);
    }
    armed.end();
}

#[test]
fn threads_turn_again_in_a_cpuset_that_shrank_and_grew() {
    follows_its_cpuset("armed", Armed::within_phases(), |a| a.wait_until_they_turn(3));
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn threads_with_parts_go_on_in_a_cpuset_that_shrank_and_grew() {
    follows_its_cpuset("armed-parts", Armed::with_parts(), Armed::wait_until_it_has_parts);
}

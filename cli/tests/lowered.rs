//! `evenly run --policy hpc-auto` as a user without privileges: where nice values may be taken back (RLIMIT_NICE)
//! others are lowered instead of anybody being raised, and get back what they had; where they may not, nobody is
//! lowered, and it is told what would mend that.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::proc::Proc;
use evenly_linux::share::sched;
use evenly_model::{CpuSet, Pid, Tid};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;
const PROGRAM: &str = "triangle-omp";

/// A directory that other users can read, with the tool, a workload, and a place that belongs to nobody.
struct Room {
    dir: tempfile::TempDir,
    program: String,
}

impl Room {
    /// None, a skip, where nobody cannot be had, or not with this limit.
    fn new(nice_limit: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            evenly_testing::skip("other-user", "no program can be started as another user's");
            return None;
        }
        let mut limited = Command::new("prlimit");
        let tried = limited.arg(format!("--nice={nice_limit}")).arg("true").output().unwrap();
        if !tried.status.success() {
            evenly_testing::skip("nice-limit", String::from_utf8_lossy(&tried.stderr).trim());
            return None;
        }
        let workload = workload(PROGRAM);
        if !evenly_testing::is_built(&workload) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let program = dir.path().join(PROGRAM);
        for (from, to) in
            [(evenly(), dir.path().join("evenly")), (workload.into(), program.clone())]
        {
            // By another process: what is open for writing here when a test beside this one starts a program
            // could not be executed until that one has begun.
            assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
        }
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self { dir, program: program.to_str().unwrap().to_owned() })
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The lines that evenly has said; not one that it is just saying.
    fn said(&self) -> String {
        let mut said = fs::read_to_string(self.dir.path().join("said")).unwrap();
        said.truncate(said.rfind('\n').map_or(0, |end| end + 1));
        said
    }

    /// evenly as nobody, with this limit.
    fn command(&self, nice_limit: u32) -> Command {
        let mut c = Command::new("prlimit");
        c.arg(format!("--nice={nice_limit}")).arg("--rtprio=0");
        c.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        c.arg(self.dir.path().join("evenly"));
        c.env("XDG_CACHE_HOME", self.home());
        c.env("EVENLY_STATE_DIR", self.home().join("state")).current_dir("/");
        c
    }

    /// Four threads of a loop over a triangle, of which the first has least to compute, on two CPUs; they spin
    /// while they wait.
    fn run(&self, options: &[&str], nice_limit: u32, cpus: &str) -> Running {
        let said = File::create(self.dir.path().join("said")).unwrap();
        let mut c = self.command(nice_limit);
        c.args(["run", "-v", "--period", "10ms", "--budget", "50", "--threads", "4"]).args(options);
        c.args(["--cpus", cpus, "--", self.program.as_str(), "--threads", "4", "--rows", "240"]);
        c.args(["--sweeps", "1000000", "--iters", &steps()]);
        c.env("KMP_LIBRARY", "turnaround").env("KMP_USE_YIELD", "0");
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Running(c.spawn().unwrap())
    }
}

/// The program that an evenly has started, which outlives it, but not the test.
struct Program(Pid);

impl Drop for Program {
    fn drop(&mut self) {
        signal(self.0, Signal::KILL);
    }
}

fn program_of(evenly: &Running) -> Program {
    let proc = Proc::default();
    let is_it = |pid: &Pid| proc.process_stat(*pid).is_some_and(|s| s.name() == PROGRAM);
    wait_for("the program", || descendants(evenly.pid()).into_iter().find(is_it).map(Program))
}

/// The nice values of its threads.
fn nice(program: Pid) -> Vec<i8> {
    let threads = Proc::default().threads(program);
    threads.into_iter().filter_map(|tid| Some(sched::get(tid).ok()?.nice)).collect()
}

/// What a row of the loop costs, in steps of computing. A sweep over 240 rows is to take 80 ms of a CPU, as fast
/// as they are here: beside the times in which a balancer decides too little and too much are both nothing to
/// decide by.
fn steps() -> String {
    let output = Command::new(workload("spmd")).arg("--calibrate").output().unwrap();
    let per_ms: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    (80 * per_ms / (240 * 241 / 2)).max(1).to_string()
}

/// With parts of CPUs from the start, whatever comes of it.
const OF_PARTS: [&str; 3] = ["--policy", "hpc-auto", "--no-guard"];

/// Starts the program under evenly and waits until this is so. None is a skip.
fn until(
    options: &[&str],
    nice_limit: u32,
    so: impl Fn(&Room, Pid) -> bool,
) -> Option<(Room, Running, Program)> {
    let cpus = whole()?.iter().take(2).collect::<CpuSet>().to_string();
    let room = Room::new(nice_limit)?;
    let evenly = room.run(options, nice_limit, &cpus);
    let program = program_of(&evenly);
    evenly_testing::wait_for_ok("the shares to be decided on", || {
        so(&room, program.0)
            .then_some(())
            .ok_or_else(|| format!("{:?}\n{}", nice(program.0), room.said()))
    });
    Some((room, evenly, program))
}

const KEEPS: &str = "keeps its share of a CPU";

#[test]
#[ignore = "needs root and clang: ./dev test --all"]
fn who_may_take_nice_values_back_has_the_others_lowered_and_given_back() {
    if sched::get(Tid(0)).unwrap().nice != 0 {
        return evenly_testing::skip("privileged-nice", "the tests themselves are lowered");
    }
    let lowered = |room: &Room, program: Pid| {
        assert!(!room.said().contains(KEEPS), "{}", room.said());
        let nice = nice(program);
        assert!(nice.iter().all(|n| *n >= 0), "nobody may be raised: {nice:?}");
        nice.len() >= 4 && nice.contains(&0) && nice.iter().any(|n| *n >= 3)
    };
    let Some((room, evenly, program)) = until(&OF_PARTS, 20, lowered) else { return };
    signal(evenly.pid(), Signal::KILL);
    wait_until("all to have what they had", || nice(program.0).iter().all(|n| *n == 0));
    assert!(nice(program.0).len() >= 4, "the program runs on");
    wait_until("the journal to be removed", || no_journal(&room.home().join("state")));
}

#[test]
#[ignore = "needs root and clang: ./dev test --all"]
fn who_may_not_has_nobody_lowered_and_is_told_what_would_mend_that() {
    let met = sched::get(Tid(0)).unwrap().nice;
    let as_met = |program: Pid| {
        let nice = nice(program);
        assert!(nice.iter().all(|n| *n == met), "{nice:?}");
    };
    let told = |room: &Room, program: Pid| {
        as_met(program);
        room.said().contains(KEEPS)
    };
    let Some((room, evenly, program)) = until(&OF_PARTS, 0, told) else { return };
    let said = room.said();
    let line = said.lines().find(|l| l.contains(KEEPS)).unwrap();
    let why = format!("RLIMIT_NICE (ulimit -e) is 0, needed is {}", 20 - met);
    for words in [why.as_str(), "prlimit --pid"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    signal(evenly.pid(), Signal::KILL);
    wait_until("the journal to be removed", || no_journal(&room.home().join("state")));
    as_met(program.0);
}

/// Would catch: an arm that is not tried in silence, so that nobody knows what would make the program faster.
#[test]
#[ignore = "needs root and clang: ./dev test --all"]
fn who_may_not_is_told_that_an_arm_could_not_be_tried() {
    let told = |room: &Room, _: Pid| room.said().contains(KEEPS);
    let Some((room, mut evenly, program)) = until(&["--policy", "auto"], 0, told) else { return };
    let met = sched::get(Tid(0)).unwrap().nice;
    signal(program.0, Signal::TERM);
    wait_until("evenly to end", || !evenly.is_alive());
    let said = room.said();
    let untried = "The threads have unequal work, but hpc-auto could not be tried: ";
    let line = said.lines().find(|l| l.contains(untried)).unwrap_or_else(|| panic!("{said}"));
    let why = format!("RLIMIT_NICE (ulimit -e) is 0, needed is {}", 20 - met);
    for words in [why.as_str(), "prlimit --pid"] {
        assert!(line.contains(words), "{words}: {line}");
    }
}

fn no_journal(state: &Path) -> bool {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    !entries.map(|e| e.path()).any(|p| p.extension().is_some_and(|x| x == "journal"))
}

/// A mechanism that this user lacks: one line says so, the report repeats it, and the program runs.
#[test]
#[ignore = "needs root: ./dev test --all"]
fn a_mechanism_that_the_user_lacks_is_reported_and_the_program_runs() {
    let Some(room) = Room::new(0) else { return };
    let json = room.home().join("report.json");
    let mut c = room.command(0);
    c.args(["run", "--policy", "hpc-adaptive", "--shares", "round-robin", "--json"]).arg(&json);
    let output = c.args(["--", "sh", "-c", "exit 7"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    let why = "hpc-adaptive: threads are placed without shares, --shares round-robin: ";
    let told = format!("evenly: {why}");
    assert_eq!(said.lines().filter(|l| l.starts_with(&told)).count(), 1, "{said}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(report["notes"].to_string().contains(why), "{report:#}");
}

//! What the tests of the real program on real processes share: the workloads, a running evenly,
//! and the affinity masks of threads as the kernel tells them.
//!
//! Every wait is for a condition, with a deadline that only a broken program misses: the tests run
//! beside each other on few and busy CPUs.

#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

pub mod diagnosis;
pub mod mpi;
pub mod processes;
pub mod schema;

use evenly_linux::affinity;
use evenly_linux::journal::{JournalView, StateDir, others};
use evenly_linux::proc::{Proc, status_field};
use evenly_model::{CpuSet, Pid, Tid};
pub use evenly_testing::{wait_for, wait_until};
pub use processes::descendants;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where `evenly` and the workload programs are, on a machine where they cannot be built: the lab
/// runs these tests in its guests.
fn programs() -> Option<PathBuf> {
    std::env::var_os("EVENLY_PROGRAMS").map(PathBuf::from)
}

/// The program that is tested.
pub fn evenly() -> PathBuf {
    programs().map_or_else(|| env!("CARGO_BIN_EXE_evenly").into(), |dir| dir.join("evenly"))
}

/// The workload programs, built once for all tests.
pub fn workload(name: &str) -> String {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        if let Some(dir) = programs() {
            return dir;
        }
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("workloads");
        fs::create_dir_all(&dir).unwrap();
        // Other test programs build them too.
        let lock = File::create(dir.join(".lock")).unwrap();
        lock.lock().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads");
        let made = Command::new("make")
            .arg("-s")
            .arg("-C")
            .arg(source)
            .arg(format!("OUT={}", dir.display()))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        dir
    });
    dir.join(name).display().to_string()
}

pub fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Two CPUs, to which this thread confines itself, and so the programs that it starts: on a larger machine three
/// threads that compute have a CPU each, and nothing is moved. None, a skip, where it may use only one.
pub fn whole() -> Option<CpuSet> {
    let usable = affinity::get(Tid(0)).unwrap();
    if usable.len() < 2 {
        evenly_testing::skip("two-cpus", "fewer than two CPUs");
        return None;
    }
    let two: CpuSet = usable.iter().take(2).collect();
    affinity::set(Tid(0), &two).unwrap();
    Some(two)
}

/// The mask of a thread. None where it has ended.
pub fn mask(tid: i32) -> Option<CpuSet> {
    let status = Proc::default().thread_status(Tid(tid)).ok()?;
    let list = status_field(&status, "Cpus_allowed_list")?;
    std::str::from_utf8(list).ok()?.parse().ok()
}

/// The masks of all threads of a process, by thread id.
pub fn masks(pid: Pid) -> BTreeMap<i32, CpuSet> {
    let threads = Proc::default().threads(pid);
    threads.into_iter().filter_map(|t| Some((t.0, mask(t.0)?))).collect()
}

/// Masks at one moment: read twice with the same outcome. None where they are changing too often.
pub fn steady_masks(pid: Pid) -> Option<BTreeMap<i32, CpuSet>> {
    (0..20).find_map(|_| {
        let first = masks(pid);
        (!first.is_empty() && first == masks(pid)).then_some(first)
    })
}

/// How many threads of a process have less than this mask.
pub fn narrowed(pid: Pid, whole: &CpuSet) -> usize {
    masks(pid).values().filter(|m| *m != whole).count()
}

pub fn name(tid: i32) -> String {
    Proc::default().thread_stat(Tid(tid)).map(|s| s.name()).unwrap_or_default()
}

pub fn signal(pid: Pid, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.0).unwrap();
    // One that has ended needs none.
    let _ = rustix::process::kill_process(pid, signal);
}

pub use rustix::process::Signal;

/// A process that is killed, with all that descends from it, when the test is left.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &[&str]) -> Self {
        let (program, args) = command.split_first().unwrap();
        let mut c = Command::new(program);
        Self(c.args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// A program in which so many threads compute for as long as any test takes.
    pub fn computing(threads: u32) -> Self {
        let threads = threads.to_string();
        Self::start(&[&workload("churn"), "--workers", &threads, "--duration-s", "300"])
    }

    pub fn pid(&self) -> Pid {
        Pid(self.0.id().cast_signed())
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        processes::end(&mut self.0);
    }
}

/// Where journals are, for one test alone.
pub struct State(tempfile::TempDir);

impl State {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn dir(&self) -> StateDir {
        StateDir::at(&self.path()).unwrap()
    }

    /// A file that is not there until it is given: a program waits for it.
    pub fn sign(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub fn give(&self, name: &str) {
        fs::write(self.sign(name), "").unwrap();
    }

    /// The journals that are there.
    pub fn journals(&self) -> Vec<PathBuf> {
        self.dir().journals().unwrap()
    }

    /// `evenly` with these arguments.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_as(&evenly(), args)
    }

    fn command_as(&self, evenly: &Path, args: &[&str]) -> Command {
        let mut c = Command::new(evenly);
        c.args(args).env("EVENLY_STATE_DIR", self.path()).stdin(Stdio::null());
        c
    }

    /// Starts `evenly run` or `evenly attach` with these arguments.
    pub fn start(&self, args: &[&str]) -> Evenly {
        self.start_as(&evenly(), args)
    }

    /// The same with this copy of `evenly`.
    pub fn start_as(&self, evenly: &Path, args: &[&str]) -> Evenly {
        self.start_in(evenly, args, &[])
    }

    /// The same with these variables.
    pub fn start_in(&self, evenly: &Path, args: &[&str], variables: &[(&str, &str)]) -> Evenly {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let file = || tempfile::NamedTempFile::new().unwrap();
        let (stdout, stderr) = (file(), file());
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let json = self.0.path().join(format!("report-{number}.json"));
        let (verb, rest) = args.split_first().unwrap();
        let mut c = self.command_as(evenly, &[verb, "-v", "--json", json.to_str().unwrap()]);
        c.args(rest).envs(variables.iter().copied());
        c.stdout(stdout.reopen().unwrap()).stderr(stderr.reopen().unwrap());
        Evenly { running: Running(c.spawn().unwrap()), stdout, stderr, json, state: self.path() }
    }

    /// Starts `evenly run`, restless: it moves threads as often as it can.
    pub fn run(&self, policy: &str, threads: u32, command: &[&str]) -> Evenly {
        self.run_with(policy, threads, &[], command)
    }

    /// The same with further options.
    pub fn run_with(&self, policy: &str, n: u32, options: &[&str], command: &[&str]) -> Evenly {
        let n = n.to_string();
        let restless = restless(policy, &n);
        self.start(&[&["run"], &restless[..], options, &["--"], command].concat())
    }

    /// The same in an environment with these variables.
    pub fn run_in(
        &self,
        variables: &[(&str, &str)],
        policy: &str,
        n: u32,
        options: &[&str],
        command: &[&str],
    ) -> Evenly {
        let n = n.to_string();
        let restless = restless(policy, &n);
        let args = [&["run"], &restless[..], options, &["--"], command].concat();
        self.start_in(&evenly(), &args, variables)
    }

    /// The same with `evenly attach`.
    pub fn attach(&self, policy: &str, threads: u32, pid: Pid) -> Evenly {
        let (n, pid) = (threads.to_string(), pid.to_string());
        self.start(&[&["attach"], &restless(policy, &n)[..], &[&pid]].concat())
    }

    /// `evenly` with these arguments, to its end: status and standard error.
    pub fn output(&self, args: &[&str]) -> (Option<i32>, String) {
        let o = self.command(args).output().unwrap();
        (o.status.code(), String::from_utf8_lossy(&o.stderr).into_owned())
    }
}

fn restless<'a>(policy: &'a str, threads: &'a str) -> [&'a str; 9] {
    let n = threads;
    ["--policy", policy, "--period", "10ms", "--budget", "50", "--no-guard", "--threads", n]
}

/// An evenly process that a test has started, with what it writes.
pub struct Evenly {
    running: Running,
    json: PathBuf,
    stdout: tempfile::NamedTempFile,
    stderr: tempfile::NamedTempFile,
    state: PathBuf,
}

impl Evenly {
    pub fn pid(&self) -> Pid {
        self.running.pid()
    }

    /// The program that it balances, once it does.
    pub fn program(&self) -> Pid {
        wait_for("evenly to name its program", || {
            let all = others(&StateDir::at(&self.state).ok()?, &Proc::default()).ok()?;
            Some(all.iter().find(|o| o.evenly.pid == self.pid())?.program?.pid)
        })
    }

    pub fn guardian(&self) -> Pid {
        wait_for("the guardian", || {
            let proc = Proc::default();
            descendants(self.pid())
                .into_iter()
                .find(|p| proc.process_stat(*p).is_some_and(|s| s.name() == "evenly-guardian"))
        })
    }

    pub fn journal(&self) -> Option<JournalView> {
        let path = StateDir::at(&self.state).ok()?.journals().ok()?;
        let own = format!("{}-", self.pid());
        let path = path
            .iter()
            .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&own)))?;
        JournalView::open(path).ok()
    }

    pub fn kill(&self, s: Signal) {
        signal(self.pid(), s);
    }

    pub fn is_alive(&mut self) -> bool {
        self.running.is_alive()
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the end of evenly", || self.running.0.try_wait().unwrap())
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.stderr.path()).unwrap()
    }

    /// What the program has printed.
    pub fn stdout(&self) -> String {
        fs::read_to_string(self.stdout.path()).unwrap()
    }

    /// How many lines of the decision log have these words.
    pub fn decisions(&self, words: &str) -> usize {
        self.stderr().lines().filter(|l| l.contains(words)).count()
    }

    /// Waits for another balancing point: the journal is given the time at each.
    pub fn wait_until_point(&self) {
        let heartbeat = || wait_for("a journal", || self.journal()).header.heartbeat;
        let before = heartbeat();
        wait_until("a balancing point", || heartbeat() != before);
    }

    /// Waits until a thread is moved, from now on.
    pub fn wait_until_moving(&self) {
        let moves = || {
            let said = self.stderr();
            said.lines().filter(|l| l.contains(" from CPU ") && !l.contains(": failed")).count()
        };
        let before = moves();
        wait_until("a thread to be moved", || moves() > before);
    }

    /// What it left with `--json`.
    pub fn report(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(&self.json).unwrap()).unwrap()
    }

    /// The report, when it has ended: of a run in which threads were moved.
    pub fn report_of_moves(&self) -> Value {
        let report = self.report();
        schema::valid(&report);
        let domains = report["domains"].as_array().unwrap();
        let moves: u64 = domains.iter().map(|d| d["migrations"].as_u64().unwrap()).sum();
        assert!(report["started"] == true && moves > 0, "{report:#}");
        report
    }
}

/// Waits until all threads of the process have this mask again.
pub fn wait_until_restored(pid: Pid, whole: &CpuSet) {
    wait_until("masks to be given back", || {
        let masks = masks(pid);
        !masks.is_empty() && masks.values().all(|m| m == whole)
    });
}

/// Waits until so many threads of the process are narrowed.
pub fn wait_until_narrowed(pid: Pid, whole: &CpuSet, threads: usize) {
    wait_until("threads to be pinned", || narrowed(pid, whole) >= threads);
}

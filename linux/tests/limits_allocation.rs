//! What is called in every period allocates nothing in the steady state: checking the limits for
//! changes, reading the times of threads, and a balancing point that moves no thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod counting;

use counting::allocations;
use evenly_engine::{
    Balancer, BalancerOptions, Candidate, GuardOptions, Reading, RunState, Selection, Sensors,
    Times,
};
use evenly_linux::bpf::Switches;
use evenly_linux::clock::now;
use evenly_linux::journal::{Journal, StateDir};
use evenly_linux::limits::Limits;
use evenly_linux::machine::{LinuxMachine, Masks, Source};
use evenly_linux::proc::Proc;
use evenly_linux::scan::Scanner;
use evenly_linux::taskstats::TaskStats;
use evenly_model::{DomainId, Environment, Nanos, Pid, ThreadId, Tid};
use rustix::process::{Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

fn own() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

#[test]
fn the_count_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

#[test]
fn checking_limits_that_do_not_change_allocates_nothing() {
    // A captured tree would be as good, but this also opens the real files of the kernel.
    let mut watch = Limits::default().watch(Pid(std::process::id().cast_signed()));
    // CPUs of the machine may go on- or offline just now: then the next check finds no change.
    let found = (0..10).any(|_| {
        let mut changed = true;
        allocations(|| changed = watch.changed()) == 0 && !changed
    });
    assert!(found, "{watch:?}");
}

#[test]
fn reading_times_allocates_nothing() {
    let mut stats = match TaskStats::open() {
        Ok(stats) => stats,
        Err(e) => return evenly_testing::skip("taskstats", e),
    };
    let tids = vec![Tid(own()); 100];
    let mut seen = 0;
    let count = allocations(|| {
        stats.read_many(&tids, |_, times| seen += usize::from(times.is_some())).unwrap();
        stats.read(Tid(i32::MAX)).unwrap();
    });
    assert_eq!((count, seen), (0, 100));
}

/// Threads of this process that compute, until they are dropped.
struct Threads {
    end: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
    ids: Vec<ThreadId>,
}

impl Threads {
    fn new(count: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (say, said) = std::sync::mpsc::channel();
        let handles = (0..count).map(|_| {
            let (end, say) = (end.clone(), say.clone());
            std::thread::spawn(move || {
                say.send(Tid(own())).unwrap();
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        let handles = handles.collect();
        let id = |tid| ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start };
        let ids = said.iter().take(count).map(id).collect();
        Self { end, handles, ids }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.handles.drain(..).for_each(|h| h.join().unwrap());
    }
}

fn machine(dir: &std::path::Path) -> LinuxMachine {
    machine_by(Source::Schedstat, dir)
}

fn machine_by(source: Source, dir: &std::path::Path) -> LinuxMachine {
    let dir = StateDir::at(&dir.join("state")).unwrap();
    let masks = Arc::new(Masks::new(Arc::new(Journal::create(&dir, None).unwrap())));
    LinuxMachine::new(Pid(std::process::id().cast_signed()), masks, source, 64)
}

#[test]
fn a_reading_allocates_nothing_once_the_threads_are_known() {
    let (tmp, threads) = (tempfile::tempdir().unwrap(), Threads::new(3));
    let mut machine = machine(tmp.path());
    let mut out = Vec::new();
    let mut reading = || {
        machine.read(&threads.ids, &mut out);
        let found = threads.ids.iter().filter(|id| machine.locate(**id).is_some()).count();
        assert_eq!((out.len(), found), (3, 3));
    };
    reading();
    reading();
    assert_eq!(allocations(|| (0..10).for_each(|_| reading())), 0);
}

/// By what BPF programs count, and what is read of it: of threads that come and go in between, too.
#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn a_reading_by_bpf_allocates_nothing_and_tells_what_schedstat_does() {
    let switches = match Switches::open() {
        Ok(switches) => Arc::new(switches),
        Err(e) => return evenly_testing::skip("bpf", e),
    };
    let tmp = tempfile::tempdir().unwrap();
    let by = |source, name| machine_by(source, &tmp.path().join(name));
    let mut bpf = by(Source::Bpf(switches.clone()), "bpf");
    let mut schedstat = by(Source::Schedstat, "schedstat");
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    let ran = |r: &Reading| if let Reading::Times(t) = r { t.ran } else { panic!("{r:?}") };
    // Where a hypervisor takes a CPU away, that is known at the next tick only.
    let mut right = 0;
    for _ in 0..3 {
        let threads = Threads::new(3);
        for _ in 0..10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            schedstat.read(&threads.ids, &mut out[0]);
            bpf.read(&threads.ids, &mut out[1]);
            schedstat.read(&threads.ids, &mut out[2]);
            let [before, between, after] = &out;
            for ((before, between), after) in before.iter().zip(between).zip(after) {
                let [before, between, after] = [before, between, after].map(ran);
                right += usize::from(
                    before <= between + Nanos::from_micros(1)
                        && between <= after + Nanos::from_millis(10),
                );
            }
        }
        assert_eq!(allocations(|| (0..10).for_each(|_| bpf.read(&threads.ids, &mut out[1]))), 0);
        let one = bpf.read_one(threads.ids[0]);
        assert!(ran(&one) >= ran(&out[1][0]), "{one:?} {out:?}");
        let ids = threads.ids.clone();
        drop(threads);
        bpf.read(&ids, &mut out[1]);
        assert_eq!(out[1], [Reading::Gone; 3]);
        assert_eq!(bpf.read_one(ids[0]), Reading::Gone);
    }
    assert!(right >= 80, "{right} of 90");
    assert_eq!(switches.left_out(), 0);
}

#[test]
fn scanning_allocates_nothing_once_the_threads_are_known() {
    // One that sleeps and one that computes.
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", "sleep 600 & while :; do :; done"]);
    let mut shell = shell.process_group(0).spawn().unwrap();
    let pid = Pid(shell.id().cast_signed());
    let mut scanner = Scanner::new(Proc::default(), pid, 100);
    while scanner.processes() < 2 {
        while !scanner.find_processes() {}
    }
    // The time stands still: what is listed is not listed again.
    let at = now();
    let mut scan = || {
        while !scanner.search(at) {}
        while !scanner.look(at) {}
        (scanner.threads(), scanner.candidates().iter().any(|c| c.pid == pid))
    };
    while scan() != (2, true) {}
    // At first one may still become `sleep`, and change its name, and the lists need room.
    let steady = (0..20).any(|_| {
        let rounds = || {
            for _ in 0..20 {
                assert_eq!(scan(), (2, true));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        allocations(rounds) == 0
    });
    kill_process_group(rustix::process::Pid::from_child(&shell), Signal::KILL).unwrap();
    shell.wait().unwrap();
    assert!(steady);
}

/// A balancing point.
#[derive(Debug, Clone, Copy)]
struct Point {
    allocations: usize,
    /// Threads that were moved.
    moved: u64,
}

/// Points of a balancer with three threads on two CPUs, after the first ones, which make room for what they
/// measure; and how long these took.
fn points(policy: &str) -> (Vec<Point>, Nanos) {
    let (tmp, threads) = (tempfile::tempdir().unwrap(), Threads::new(3));
    let mut machine = machine(tmp.path());
    let cpus = evenly_linux::affinity::get(Tid(0)).unwrap();
    let policy = evenly_policy::by_name(policy).unwrap();
    let options = BalancerOptions {
        domain: DomainId(0),
        cpus: cpus.iter().take(2).collect(),
        wanted: None,
        policy,
        environment: Environment::default(),
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    };
    let mut balancer = Balancer::new(options, now());
    for &id in &threads.ids {
        let thread = Candidate {
            id,
            pid: Pid(std::process::id().cast_signed()),
            name: String::from("computes"),
            first: false,
            fair: true,
            times: Times::default(),
            state: RunState::Runnable,
            read_at: now(),
        };
        let selection = Selection { thread, baseline: Times::default() };
        balancer.join(&mut machine, selection, &cpus, &mut []);
    }
    let mut point = || {
        let before = balancer.summary(now()).0.migrations;
        let allocations = allocations(|| {
            assert!(balancer.point(&mut machine, Nanos::from_millis(10), &mut []).is_empty());
        });
        std::thread::sleep(std::time::Duration::from_millis(10));
        Point { allocations, moved: balancer.summary(now()).0.migrations - before }
    };
    (0..20).for_each(|_| _ = point());
    let began = now();
    let points = (0..80).map(|_| point()).collect();
    let took = now() - began;
    assert_eq!(balancer.len(), 3);
    balancer.finish(&mut machine);
    (points, took)
}

/// Where no thread is moved a point allocates nothing, but when it looks at CPUs, neighbours or the places
/// of all threads anew. It does so by the clock: five times a second, and once a second each.
#[test]
fn a_balancing_point_that_moves_no_thread_allocates_nothing() {
    let cpus = evenly_linux::affinity::get(Tid(0)).unwrap().len();
    for policy in ["observe", "juggle"] {
        let (points, took) = points(policy);
        let moves = points.iter().filter(|p| p.moved > 0).count();
        let taking_turns = policy == "juggle" && cpus > 1;
        assert_eq!(moves > 0, taking_turns, "{policy}: {points:?}");
        let other = points.iter().filter(|p| p.moved == 0 && p.allocations > 0).count();
        let looks = 7.0 * took.as_secs_f64() + 3.0;
        assert!(other as f64 <= looks, "{policy}: {other} in {took}: {points:?}");
    }
}

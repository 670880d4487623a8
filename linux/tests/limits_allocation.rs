//! What is called in every period allocates nothing in the steady state: checking the limits for
//! changes, reading the times of threads, and a balancing point that moves no thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod counting;

use counting::allocations;
use evenly_engine::{
    Actuator, ApplyError, Balancer, BalancerOptions, Candidate, GuardOptions, Located, Neighbour,
    Reader, Reading, RunState, Selection, Sensors, Times,
};
use evenly_linux::clock::now;
use evenly_linux::journal::{Journal, StateDir};
use evenly_linux::limits::Limits;
use evenly_linux::machine::{LinuxMachine, Masks};
use evenly_linux::proc::Proc;
use evenly_linux::scan::Scanner;
use evenly_linux::taskstats::TaskStats;
use evenly_linux::threads::{Source, ThreadReader};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Nanos, Pid, ThreadId, Tid};
use evenly_testing::wait_until;
use rustix::process::{Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
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
    // CPUs of the machine may go on- or offline just now: a check that finds this makes room for what is new.
    let unchanged = (0..100).filter(|_| {
        let mut changed = true;
        let count = allocations(|| changed = watch.changed());
        assert!(changed || count == 0, "{count} allocations: {watch:?}");
        !changed
    });
    assert!(unchanged.count() > 0, "{watch:?}");
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
    let dir = StateDir::at(&dir.join("state")).unwrap();
    let masks = Arc::new(Masks::new(Arc::new(Journal::create(&dir, None).unwrap())));
    LinuxMachine::new(
        Pid(std::process::id().cast_signed()),
        masks,
        ThreadReader::new(Source::Schedstat, 64),
    )
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

/// A shell that computes, and a process of it that sleeps.
struct Shell(Child);

impl Shell {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & while :; do :; done"]);
        Self(shell.process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id().cast_signed())
    }

    /// Whether its child has become what it stays, and sleeps.
    fn is_ready(&self) -> bool {
        let proc = Proc::default();
        let stats = proc.processes().into_iter().filter_map(|pid| proc.process_stat(pid));
        let mut of_it = stats.filter(|s| s.ppid == self.pid());
        of_it.any(|s| s.comm.as_slice() == b"sleep" && s.state == b'S')
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = kill_process_group(rustix::process::Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn scanning_allocates_nothing_once_the_threads_are_known() {
    let shell = Shell::start();
    wait_until("one sleeps", || shell.is_ready());
    let mut scanner = Scanner::new(Proc::default(), shell.pid(), 100);
    while !scanner.find_processes(now()) {}
    // The time stands still: what is listed is not listed again.
    let at = now();
    let mut scan = || {
        while !scanner.search(at) {}
        while !scanner.look(at) {}
        let computing = scanner.candidates().iter().find(|c| c.pid == shell.pid());
        (scanner.threads(), computing.map(|c| c.times.ran))
    };
    wait_until("both are known", || matches!(scan(), (2, Some(_))));
    // Twice: the lists have found room then for what a whole scan puts there.
    scan();
    let (_, first) = scan();
    wait_until("it computes for a while", || {
        let mut seen = (0, None);
        assert_eq!((allocations(|| seen = scan()), seen.0), (0, 2));
        seen.1 > first.map(|ran| ran + Nanos::from_millis(50))
    });
}

/// The machine, which counts how often a balancer has looked around.
struct Watched {
    machine: LinuxMachine,
    /// For CPUs that can be used, and for other balancers.
    looks: usize,
}

impl Reader for Watched {
    fn now(&self) -> Nanos {
        self.machine.now()
    }

    fn own_cpu_time(&self) -> Nanos {
        self.machine.own_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        self.machine.read(ids, out);
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        self.machine.locate(id)
    }

    fn resolution(&self) -> Nanos {
        self.machine.resolution()
    }
}

impl Sensors for Watched {
    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.looks += 1;
        self.machine.usable(within)
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.machine.original_mask(id)
    }

    fn neighbours(&mut self) -> Vec<Neighbour> {
        self.looks += 1;
        self.machine.neighbours()
    }
}

impl Actuator for Watched {
    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        release: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        self.machine.place(id, cpu, release)
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.machine.confine(id, mask)
    }

    fn restore(&mut self, id: ThreadId) {
        self.machine.restore(id);
    }
}

/// What was counted at one balancing point.
#[derive(Debug, Clone, Copy)]
struct Point {
    allocations: usize,
    /// Threads that were moved.
    moved: u64,
    looks: usize,
}

impl Point {
    /// Whether nothing was moved, and nothing looked for that the clock makes it look for now and then.
    fn is_quiet(&self) -> bool {
        (self.moved, self.looks) == (0, 0)
    }
}

/// Points of a balancer with three threads on two CPUs, after the first ones, which make room for what they
/// measure: until 50 were quiet, and with threads that were moved if there are to be such.
fn points(policy: &str, moves: bool) -> Vec<Point> {
    let (tmp, threads) = (tempfile::tempdir().unwrap(), Threads::new(3));
    let mut machine = Watched { machine: machine(tmp.path()), looks: 0 };
    let cpus = evenly_linux::affinity::get(Tid(0)).unwrap();
    let policy = evenly_policies::by_name(policy).unwrap();
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
        let (before, looks) = (balancer.summary(now()).0.migrations, machine.looks);
        let allocations = allocations(|| {
            assert!(balancer.point(&mut machine, Nanos::from_millis(10), &mut []).is_empty());
        });
        let moved = balancer.summary(now()).0.migrations - before;
        Point { allocations, moved, looks: machine.looks - looks }
    };
    let (mut first, mut points) = (0, Vec::new());
    wait_until("there are enough points", || {
        let point = point();
        if first < 20 {
            first += 1;
        } else {
            points.push(point);
        }
        let quiet = points.iter().filter(|p| p.is_quiet()).count();
        quiet >= 50 && (!moves || points.iter().any(|p| p.moved > 0))
    });
    assert_eq!(balancer.len(), 3);
    balancer.finish(&mut machine);
    points
}

/// Where no thread is moved a point allocates nothing, but when it looks at CPUs or neighbours anew.
fn a_quiet_point_allocates_nothing(policy: &str, moves: bool) {
    let points = points(policy, moves);
    assert_eq!(points.iter().any(|p| p.moved > 0), moves);
    let allocates = points.iter().enumerate().find(|(_, p)| p.is_quiet() && p.allocations > 0);
    assert!(allocates.is_none(), "{allocates:?} of {} points", points.len());
}

#[test]
fn a_balancing_point_that_only_observes_allocates_nothing() {
    a_quiet_point_allocates_nothing("observe", false);
}

#[test]
fn a_balancing_point_between_two_moves_allocates_nothing() {
    if evenly_linux::affinity::get(Tid(0)).unwrap().len() < 2 {
        return evenly_testing::skip("two-cpus", "fewer than two CPUs");
    }
    a_quiet_point_allocates_nothing("juggle", true);
}

//! Helpers of `--policy phase` that do not sleep any more, as if by an error in them: they hold no CPU, and evenly goes
//! on or lets go of everything.
//!
//! Helpers call the barriers of the program, which are the test's: that is where they spin.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use evenly_engine::{Event, Observer};
use evenly_linux::affinity;
use evenly_linux::clock::thread_cpu_time;
use evenly_linux::journal::{Journal, StateDir};
use evenly_linux::live::{Control, Live, LiveError, LiveOptions, LiveReport};

use evenly_linux::mapping::MapBy;
use evenly_linux::sched;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use evenly_phase::{Measured, Opening, Openings, Reported};
use evenly_testing::wait_until;
use std::process::{Child, Command};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No test lets a thread spin for longer.
const LONGEST: Nanos = Nanos::from_millis(5_000);

/// For how long a helper goes on to spin that is not to do so for ever: for several looks of the watcher, also where it
/// has a part of a CPU only.
const BESIDE: Nanos = Nanos::from_millis(200);

/// What a thread that spins has run for between two looks at its CPU time, at most: where it is more, the machine stood
/// still meanwhile.
const LOOK: Nanos = Nanos::from_millis(1);

/// Barriers that never open, where the next helper that waits for one spins.
#[derive(Default)]
struct Trap {
    /// The next helper that comes is to spin, whoever it is.
    set: AtomicBool,
    /// Also when it has become a normal thread.
    for_ever: bool,
    tid: AtomicI32,
    cpu: AtomicU64,
    /// CPU time that it had as a real-time thread, in ns.
    held: AtomicU64,
    /// CPU time that a normal thread on the same CPU has had, in ns: in all, and when the helper had been a normal thread
    /// for [`BESIDE`] of its own.
    witness: AtomicU64,
    got: AtomicU64,
    /// A helper has come, and whether it was a real-time thread.
    came: AtomicBool,
    real_time: AtomicBool,
    /// The end of the test.
    end: AtomicBool,
}

/// The class of a thread.
fn class(tid: i32) -> u8 {
    sched::get(Tid(tid)).unwrap().policy
}

impl Trap {
    fn spin(&self, cpu: CpuId) {
        let (mut last, mut sum) = (thread_cpu_time(), Nanos::ZERO);
        let mut ran = || {
            let before = std::mem::replace(&mut last, thread_cpu_time());
            sum += (last - before).min(LOOK);
            sum
        };
        self.cpu.store(cpu.0.into(), SeqCst);
        self.tid.store(rustix::thread::gettid().as_raw_nonzero().get(), SeqCst);
        // It is no real-time thread, and may run on this CPU only.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !self.end.load(SeqCst) {
                    self.witness.store(thread_cpu_time().0, SeqCst);
                }
            });
            while class(0) == sched::FIFO && ran() < LONGEST {
                std::hint::spin_loop();
            }
            let held = ran();
            self.held.store(held.0.max(1), SeqCst);
            let most = if self.for_ever { LONGEST } else { held + BESIDE };
            while !self.end.load(SeqCst) {
                let spun = ran();
                if spun < most {
                    std::hint::spin_loop();
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if spun >= held + BESIDE && self.got.load(SeqCst) == 0 {
                    self.got.store(self.witness.load(SeqCst).max(1), SeqCst);
                }
            }
        });
    }
}

impl Openings for Trap {
    fn follow(&self, _: &[ThreadId]) -> Option<u32> {
        None
    }

    fn measure(&self, _: Measured) {}

    fn hold(&self, _: bool) {}

    fn show_masks(&self, _: Pid) {}

    fn arm(&self, _: &[CpuId], _: Nanos) {}

    fn wait(&self, cpu: CpuId, _: Opening) -> Option<Opening> {
        if class(0) == sched::FIFO {
            self.real_time.store(true, SeqCst);
            if self.set.swap(false, SeqCst) {
                self.spin(cpu);
            }
        }
        self.came.store(true, SeqCst);
        std::thread::sleep(Duration::from_millis(10));
        None
    }

    fn call(&self, _: CpuId) {}

    fn last(&self) -> Opening {
        Opening::default()
    }

    fn worth(&self) -> u32 {
        0
    }

    fn reported(&self, _: ThreadId) -> Option<Reported> {
        None
    }

    fn put(&self, _: ThreadId, _: Option<CpuId>) {}
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Notes {
    fn event(&mut self, event: &Event) {
        if let Event::Note { text, .. } = event {
            self.lock().push(text.clone());
        }
    }
}

/// Three processes that compute.
struct Program(Child);

impl Program {
    fn start() -> Self {
        let script = "for i in 1 2 3; do while :; do :; done & done; wait";
        Self(Command::new("setsid").args(["sh", "-c", script]).spawn().unwrap())
    }

    /// The masks of those that compute.
    fn masks(&self) -> Vec<CpuSet> {
        let pid = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
        ids.filter_map(|id| affinity::get(Tid(id)).ok()).collect()
    }
}

/// Ends a run whose test fails: without it, the helper that spins keeps the test from ending, and nobody learns why.
struct Failing<'a>(&'a Trap, &'a Control);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end.store(true, SeqCst);
            self.1.end();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn options(whole: &CpuSet, trap: &Arc<Trap>) -> LiveOptions {
    let phase = evenly_policies::by_name("phase").unwrap();
    LiveOptions {
        expected: Some(3),
        openings: Some(trap.clone()),
        numbered_by: MapBy::Threads,
        ..LiveOptions::plain(phase, Nanos::from_millis(20), 1.0, whole.clone())
    }
}

/// A run in which a helper comes to spin, once threads are pinned; and what `meanwhile` does then with the notes so far.
/// None where that cannot be tried here.
fn run(
    trap: Trap,
    meanwhile: impl FnOnce(&Trap, &Notes, &Control),
) -> Option<(Result<LiveReport, LiveError>, Arc<Trap>)> {
    // Two of them would be in each other's way.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = affinity::get(Tid(0)).unwrap();
    if whole.len() < 2 {
        evenly_testing::skip("two-cpus", "one CPU");
        return None;
    }
    let tmp = tempfile::tempdir().unwrap();
    let journal = Journal::create(&StateDir::at(tmp.path()).unwrap(), None).unwrap();
    let program = Program::start();
    let pid = Pid(program.0.id().cast_signed());
    let (trap, notes, control) = (Arc::new(trap), Notes::default(), Control::default());
    let live = Live::new(options(&whole, &trap), pid, Arc::new(journal));
    let result = std::thread::scope(|scope| {
        let _failing = Failing(&trap, &control);
        let (seen, ctl) = (notes.clone(), control.clone());
        let running = scope.spawn(move || live.run(&ctl, |_| vec![Box::new(seen.clone()) as _]));
        let is_pinned = || program.masks().iter().filter(|m| m.len() == 1).count() == 3;
        wait_until("threads to be pinned", is_pinned);
        wait_until("a helper", || trap.came.load(SeqCst));
        if trap.real_time.load(SeqCst) {
            trap.set.store(true, SeqCst);
            wait_until("a helper that spins", || trap.held.load(SeqCst) > 0);
            meanwhile(&trap, &notes, &control);
        } else {
            control.end();
        }
        running.join().unwrap()
    });
    assert!(program.masks().len() == 3 && program.masks().iter().all(|m| *m == whole));
    if trap.tid.load(SeqCst) == 0 {
        evenly_testing::skip("realtime", "real-time threads are not permitted");
        return None;
    }
    Some((result, trap))
}

/// Would catch: a real-time thread of ours that keeps all others from its CPU for more than a moment, SIGXCPU that ends
/// evenly, helpers that are used again, and a run that says nothing about it.
#[test]
fn a_helper_that_spins_becomes_a_normal_thread_and_the_run_goes_on() {
    let found = run(Trap::default(), |trap, notes, control| {
        // CPU time, which a hypervisor cannot stretch. As it has the CPU for itself until then, others wait for that long.
        let held = Nanos(trap.held.load(SeqCst));
        assert!(held < Nanos::from_millis(100), "{held}");
        assert_eq!(class(trap.tid.load(SeqCst)), sched::OTHER);
        wait_until("a normal thread beside it", || trap.got.load(SeqCst) > 0);
        let got = Nanos(trap.got.load(SeqCst));
        assert!(got > BESIDE.scale(0.25), "it got {got} while the helper had {BESIDE}");
        wait_until("a note", || notes.lock().iter().any(|n| n.contains("did not sleep")));
        trap.end.store(true, SeqCst);
        control.end();
    });
    let Some((result, trap)) = found else { return };
    let notes = result.unwrap().summary.notes;
    let cpu = format!("the helper of CPU {} did not sleep", trap.cpu.load(SeqCst));
    assert_eq!(notes.iter().filter(|n| n.contains(&cpu)).count(), 1, "{notes:?}");
}

/// Would catch: a run that waits for ever for a helper that does not end, with masks that are not given back.
#[test]
fn a_helper_that_never_sleeps_again_ends_balancing() {
    let found = run(Trap { for_ever: true, ..Trap::default() }, |_, _, _| {});
    let Some((result, trap)) = found else { return };
    let Err(LiveError::Stuck(cpu)) = result else { panic!("it was not noticed") };
    assert_eq!(u64::from(cpu.0), trap.cpu.load(SeqCst));
    assert_eq!(class(trap.tid.load(SeqCst)), sched::IDLE);
    trap.end.store(true, SeqCst);
}

//! `--source bpf` on the running kernel: what it counts beside what the kernel shows elsewhere. Where BPF
//! cannot be used the tests are skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_engine::RunState;
use evenly_linux::bpf::{Account, BpfError, Seen, Switches, Watched};
use evenly_linux::clock::now;
use evenly_linux::proc::{Proc, parse_schedstat};
use evenly_model::{CpuId, CpuSet, Nanos, ThreadId, Tid};
use evenly_testing::wait_until;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// The same programs for all tests of this process: what the others do is a load to each.
fn switches() -> Option<Arc<Switches>> {
    static ALL: OnceLock<Result<Arc<Switches>, BpfError>> = OnceLock::new();
    match ALL.get_or_init(|| Switches::open().map(Arc::new)) {
        Ok(switches) => Some(switches.clone()),
        Err(e) => {
            evenly_testing::skip("bpf", e);
            None
        }
    }
}

fn own_id() -> ThreadId {
    let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
    ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start }
}

/// A thread that computes, sleeps or ends on command.
struct Worker {
    id: ThreadId,
    computes: Arc<AtomicBool>,
    go: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// It sleeps until it is started.
    fn new(cpu: Option<CpuId>) -> Self {
        let (go, wait) = channel::<()>();
        let (send_id, ids) = channel();
        let computes = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let computes = computes.clone();
            move || {
                if let Some(cpu) = cpu {
                    evenly_linux::affinity::set(Tid(0), &CpuSet::single(cpu)).unwrap();
                }
                send_id.send(own_id()).unwrap();
                Self::live(&wait, &computes);
            }
        });
        Self { id: ids.recv().unwrap(), computes, go: Some(go), thread: Some(thread) }
    }

    fn live(wait: &Receiver<()>, computes: &AtomicBool) {
        while wait.recv().is_ok() {
            while computes.load(Relaxed) {
                std::hint::spin_loop();
            }
        }
    }

    fn compute(&self) {
        self.computes.store(true, Relaxed);
        self.go.as_ref().unwrap().send(()).unwrap();
    }

    fn sleep(&self) {
        self.computes.store(false, Relaxed);
        let asleep = || Proc::default().thread_stat(self.id.tid).unwrap().state == b'S';
        wait_until("it sleeps", asleep);
    }

    fn end(&mut self) {
        self.computes.store(false, Relaxed);
        self.go = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    fn schedstat(&self) -> (Nanos, Nanos, u64) {
        let text = std::fs::read(format!("/proc/self/task/{}/schedstat", self.id.tid)).unwrap();
        let t = parse_schedstat(&text).unwrap();
        (t.ran, t.waited, t.slices)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

fn account(w: &Watched) -> Option<Account> {
    match w.look(now()) {
        Seen::Account(a) => Some(a),
        _ => None,
    }
}

/// The account, as soon as there is one.
fn seen(w: &Watched) -> Account {
    wait_until("it is seen", || account(w).is_some());
    account(w).unwrap()
}

const TICK: Nanos = Nanos::from_millis(10);

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn cpu_time_is_that_of_the_kernel_to_a_tick() {
    let Some(switches) = switches() else { return };
    let w = Worker::new(None);
    let watched = switches.watch(w.id).unwrap();
    assert_eq!(watched.look(now()), Seen::Nothing, "it sleeps, and has not been seen");
    w.compute();
    let (began, first) = (now(), seen(&watched));
    assert_eq!(first.state, RunState::Runnable);
    let wanted = |a: &Account| a.times.ran + a.times.waited;
    wait_until("it computes for a while", || {
        let (before, between) = (w.schedstat(), seen(&watched));
        let elapsed = now() - began;
        // What schedstat has is of the last tick, or of the last switch.
        assert!(before.0 <= between.times.ran + Nanos::from_micros(10), "{before:?} {between:?}");
        // That it is no more than schedstat has a tick later is not certain: a hypervisor may take the CPU away,
        // which is known at the next tick only. But it is no more than time has passed.
        assert!(wanted(&between) <= wanted(&first) + elapsed + TICK, "{elapsed} {between:?}");
        between.times.ran > first.times.ran + Nanos::from_millis(100)
    });
    // Between two ticks, too, when schedstat shows nothing of it.
    wait_until("it is ahead of the kernel's count", || {
        let between = seen(&watched).times.ran;
        w.schedstat().0 < between
    });
    w.sleep();
    // Nothing moves now, so both are the same to the nanosecond.
    wait_until("it is switched out", || account(&watched).unwrap().state == RunState::Blocked);
    let last = account(&watched).unwrap();
    let (ran, waited, slices) = w.schedstat();
    assert_eq!((last.times.ran, last.times.waited, last.times.slices), (ran, waited, slices));
    assert!(last.times.ran > first.times.ran + Nanos::from_millis(20), "{last:?}");
    assert!(last.cpu.is_some());
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn a_sleeping_thread_is_blocked_for_as_long_as_it_sleeps() {
    let Some(switches) = switches() else { return };
    let w = Worker::new(None);
    let watched = switches.watch(w.id).unwrap();
    w.compute();
    let _ = seen(&watched);
    w.sleep();
    wait_until("it is switched out", || account(&watched).unwrap().state == RunState::Blocked);
    let (from, first, after_first) = (now(), seen(&watched), now());
    wait_until("it is seen to sleep on", || {
        seen(&watched).blocked >= first.blocked + Nanos::from_millis(50)
    });
    let (before_last, last, to) = (now(), seen(&watched), now());
    assert_eq!((first.times, first.state), (last.times, last.state));
    let blocked = last.blocked - first.blocked;
    assert!(blocked >= before_last - after_first && blocked <= to - from, "{blocked:?}");
    // It does not grow while it computes.
    w.compute();
    let ran_on = |ran: Nanos| wait_until("it computes", || seen(&watched).times.ran > ran + TICK);
    ran_on(last.times.ran);
    let awake = seen(&watched);
    ran_on(awake.times.ran);
    assert_eq!(seen(&watched).blocked, awake.blocked);
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn two_threads_on_one_cpu_wait_for_each_other() {
    let Some(switches) = switches() else { return };
    let cpu = evenly_linux::affinity::get(Tid(0)).unwrap().iter().next().unwrap();
    let both = [Worker::new(Some(cpu)), Worker::new(Some(cpu))];
    let watched = both.each_ref().map(|w| switches.watch(w.id).unwrap());
    both.iter().for_each(Worker::compute);
    let began = now();
    let (first, all_seen) = (watched.each_ref().map(seen), now());
    let ran_since = |at: usize| seen(&watched[at]).times.ran - first[at].times.ran;
    wait_until("both have had the CPU for a while", || {
        (0..2).all(|at| ran_since(at) >= Nanos::from_millis(50))
    });
    let (from, last) = (now(), watched.each_ref().map(seen));
    let ended = now();
    let since = |at: usize| -> (Nanos, Nanos) {
        let (first, last): (&Account, &Account) = (&first[at], &last[at]);
        (last.times.ran - first.times.ran, last.times.waited - first.times.waited)
    };
    // The two were not read at the same moment, neither at first nor at last.
    let apart = (all_seen - began) + (ended - from) + TICK;
    for (at, other) in [(0, 1), (1, 0)] {
        let ((ran, waited), (others, _)) = (since(at), since(other));
        assert!(waited + apart >= others, "{waited:?} {apart:?} {others:?}");
        assert!(
            ran + waited <= ended - began + TICK,
            "{ran:?} {waited:?} of {began:?} to {ended:?}"
        );
        assert_eq!((last[at].cpu, last[at].state), (Some(cpu), RunState::Runnable));
    }
    let ran = since(0).0 + since(1).0;
    assert!(ran <= ended - began + TICK, "one CPU: {ran:?}");
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn threads_that_come_and_go() {
    let Some(switches) = switches() else { return };
    for round in 0..200 {
        let mut w = Worker::new(None);
        let watched = switches.watch(w.id).unwrap();
        if round % 2 == 0 {
            w.compute();
            let _ = seen(&watched);
        }
        w.end();
        // It ends, and is not taken for blocked.
        wait_until("its end is seen", || watched.look(now()) == Seen::Ended);
        // Its slot is another's once it is no longer read.
        drop(watched);
    }
    // Of a thread that has ended before it is watched nothing is ever seen, for /proc to say that.
    let mut w = Worker::new(None);
    w.end();
    let watched = switches.watch(w.id).unwrap();
    assert_eq!(watched.look(now()), Seen::Nothing);
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn one_account_however_many_look_at_it() {
    let Some(switches) = switches() else { return };
    let w = Worker::new(None);
    let (first, second) = (switches.watch(w.id).unwrap(), switches.watch(w.id).unwrap());
    drop(first);
    w.compute();
    let _ = seen(&second);
    // A thread of long ago had the same number: who looks at that one sees nothing of this.
    let earlier = ThreadId { start: w.id.start - 1, ..w.id };
    let old = switches.watch(earlier).unwrap();
    let new = switches.watch(w.id).unwrap();
    let _ = seen(&new);
    drop((second, old));
    let before = seen(&new).times.ran;
    wait_until("it is still counted", || account(&new).unwrap().times.ran > before + TICK);
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn more_threads_than_slots() {
    if switches().is_none() {
        return;
    }
    let few = Arc::new(Switches::with_slots(3).unwrap());
    let workers: Vec<Worker> = (0..5).map(|_| Worker::new(None)).collect();
    let mut watched: Vec<_> = workers.iter().map(|w| few.watch(w.id)).collect();
    assert!(watched[..3].iter().all(Option::is_some) && watched[3..].iter().all(Option::is_none));
    assert_eq!(few.left_out(), 2);
    workers.iter().for_each(Worker::compute);
    for w in watched.iter().flatten() {
        let _ = seen(w);
    }
    // A slot that is given back is another's, after a while.
    watched[1] = None;
    wait_until("it is given away", || {
        watched[3] = few.watch(workers[3].id);
        watched[3].is_some()
    });
    let _ = seen(watched[3].as_ref().unwrap());
}

/// What a thread can do with these capabilities only.
fn with(kept: CapabilitySet) -> Result<(), BpfError> {
    // On a thread of its own, because capabilities do not come back.
    let limited = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        (sets.effective, sets.permitted) = (sets.effective & kept, sets.permitted & kept);
        sets.inheritable = CapabilitySet::empty();
        set_capabilities(None, sets).unwrap();
        Switches::with_slots(1).map(drop)
    });
    limited.join().unwrap()
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn two_capabilities_are_enough_and_which_is_missing_is_told() {
    if switches().is_none() {
        return;
    }
    let (bpf, perfmon) = (CapabilitySet::BPF, CapabilitySet::PERFMON);
    assert_eq!(with(bpf | perfmon), Ok(()));
    for (kept, missing) in [
        (CapabilitySet::empty(), "CAP_BPF and CAP_PERFMON"),
        (bpf, "CAP_PERFMON"),
        (perfmon, "CAP_BPF"),
    ] {
        let e = with(kept).unwrap_err();
        assert_eq!(e, BpfError::Capability(missing.to_owned()));
        assert!(e.to_string().contains("AmbientCapabilities=CAP_BPF CAP_PERFMON"), "{e}");
    }
}

const CHILD: &str = "EVENLY_TEST_BPF_CHILD";

/// What [`nothing_is_left_when_it_is_killed`] kills.
#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn child_that_is_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let switches = Arc::new(Switches::open().unwrap());
    let _watched = switches.watch(own_id()).unwrap();
    let ids: Vec<String> = switches.program_ids().iter().map(u32::to_string).collect();
    println!("\nprograms {}", ids.join(" "));
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "needs BPF: ./dev test --all"]
fn nothing_is_left_when_it_is_killed() {
    if switches().is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--nocapture", "--include-ignored"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let programs =
        lines.filter_map(|l| l.strip_prefix("programs ").map(str::to_owned)).next().unwrap();
    let ids: Vec<u32> = programs.split(' ').map(|n| n.parse().unwrap()).collect();
    let loaded = || {
        let all = aya::programs::loaded_programs().flatten().map(|p| p.id());
        all.filter(|id| ids.contains(id)).count()
    };
    assert_eq!((ids.len(), loaded()), (6, 6));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the kernel has let them go", || loaded() == 0);
}

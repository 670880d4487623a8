//! A live run on threads of this process, which are handed over one by one and never looked for: so each part
//! is tested without a program, and without waiting.

use super::domain::Domain;
use super::mailbox::{Joining, put};
use super::*;
use crate::clock::{now, thread_cpu_time};
use crate::journal::StateDir;
use crate::machine::tests::{Worker, two_cpus};
use crate::mapping::MapBy;
use evenly_engine::{Candidate, Event, RunState, Selection, Times};
use evenly_model::{CpuId, Nanos};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;

pub(super) fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// As if the thread had been seen to compute.
pub(super) fn selection(worker: &Worker) -> Selection {
    let thread = Candidate {
        id: worker.id,
        pid: Pid(std::process::id().cast_signed()),
        name: String::from("worker"),
        first: false,
        fair: true,
        times: Times::default(),
        state: RunState::Runnable,
        read_at: now(),
    };
    Selection { thread, baseline: Times::default() }
}

/// The thread is handed to the domain, which admits it at its next point.
pub(super) fn join(domain: &Domain, worker: &Worker, original: &CpuSet) {
    let (selection, original) = (selection(worker), original.clone());
    put(
        &domain.mailbox.joining,
        [Joining { selection, original, from_another: false, number: None }],
    );
}

/// What observers are given.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    pub(super) fn notes(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let notes = all.iter().filter_map(|e| match e {
            Event::Note { text, .. } => Some(text.clone()),
            _ => None,
        });
        notes.collect()
    }
}

impl Observer for Log {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// A run of this process, on a machine with two nodes, each with one CPU.
pub(super) struct Scene {
    pub(super) live: Live,
    pub(super) whole: CpuSet,
    pub(super) a: CpuId,
    pub(super) b: CpuId,
    pub(super) log: Log,
    tmp: tempfile::TempDir,
}

/// None where there are not two CPUs.
pub(super) fn scene() -> Option<Scene> {
    let (whole, a, b) = two_cpus()?;
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let journal = Arc::new(Journal::create(&dir, None).unwrap());
    let juggle = evenly_policies::by_name("juggle").unwrap();
    let options = LiveOptions {
        domain: Some(crate::limits::DomainKind::Numa),
        numbered_by: MapBy::Threads,
        ..LiveOptions::plain(juggle, Nanos::from_millis(50), 1.0, whole.clone())
    };
    let mut live = Live::new(options, Pid(std::process::id().cast_signed()), journal);
    live.limits = Limits::new(tmp.path());
    let s = Scene { live, whole, a, b, log: Log::default(), tmp };
    for file in ["online", "possible"] {
        s.write(&format!("sys/devices/system/cpu/{file}"), &s.both().to_string());
    }
    for (node, cpu) in [a, b].into_iter().enumerate() {
        s.write(&format!("sys/devices/system/node/node{node}/cpulist"), &cpu.0.to_string());
    }
    Some(s)
}

impl Scene {
    pub(super) fn both(&self) -> CpuSet {
        [self.a, self.b].into_iter().collect()
    }

    /// A file of the machine.
    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.tmp.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// All CPUs are of one domain.
    pub(super) fn one_domain(mut self) -> Self {
        self.live.options.domain = Some(crate::limits::DomainKind::Machine);
        self
    }

    /// No thread is moved by the policy.
    pub(super) fn watched(mut self) -> Self {
        self.live.options.policy = evenly_policies::by_name("observe").unwrap();
        self
    }

    pub(super) fn set_up(&mut self) -> SetUp {
        let log = self.log.clone();
        self.live.set_up(&mut |_| vec![Box::new(log.clone())]).unwrap()
    }
}

/// Ends what goes on for too long, and fails then.
pub(super) fn within_a_minute<T>(control: &Control, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, waits) = channel::<()>();
        let watch = scope.spawn(move || {
            let late = waits.recv_timeout(std::time::Duration::from_secs(60))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            control.end();
            late
        });
        let result = work();
        drop(done);
        assert!(!watch.join().unwrap(), "it did not end");
        result
    })
}

/// Would catch: a run that goes on when its program has ended, or that calls this a start.
#[test]
fn a_run_ends_when_its_program_has_no_process_any_more() {
    let Some(s) = scene() else { return };
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let root = Pid(child.id().cast_signed());
    let live = Live { root, ..s.live };
    child.kill().unwrap();
    child.wait().unwrap();
    let control = Control::default();
    let report = within_a_minute(&control, || live.run(&control, |_| Vec::new()).unwrap());
    assert!(!report.started);
    assert_eq!((report.threads, report.balanced_s), (0, 0.0));
    assert_eq!(report.summary.domains.len(), 2);
}

/// Would catch: threads that are found late where it was dear to start evenly.
#[test]
fn what_it_took_to_begin_is_not_paid_by_the_search() {
    let Some(mut s) = scene() else { return };
    let (before, much) = (thread_cpu_time(), Nanos::from_millis(10));
    while thread_cpu_time() - before < much {}
    let paid =
        std::thread::scope(|scope| scope.spawn(|| s.set_up().coordinator.others).join().unwrap());
    assert!(paid >= much, "{paid}");
}

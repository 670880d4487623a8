//! The machine on real threads.

mod exec;
mod masks;
mod reading;

use super::masks::{PROCESSES_PER_LOOK, ticks_since_boot};
use super::*;
use crate::affinity;
use crate::journal::{Journal, JournalView, RecordState, StateDir};
use crate::taskstats::TaskStats;
use crate::threads::Source;
use evenly_engine::{Actuator, ApplyError};
use evenly_model::Tid;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

pub(super) fn own_id() -> ThreadId {
    let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
    ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start }
}

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs the jobs that it is sent.
pub(crate) struct Worker {
    pub(crate) id: ThreadId,
    jobs: Option<Sender<Job>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn new() -> Self {
        let (jobs, todo) = channel::<Job>();
        let (report, done) = channel();
        let (say_id, id) = channel();
        let thread = std::thread::spawn(move || {
            say_id.send(own_id()).unwrap();
            for job in todo {
                job();
                report.send(()).unwrap();
            }
        });
        Self { id: id.recv().unwrap(), jobs: Some(jobs), done, thread: Some(thread) }
    }

    fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
        self.done.recv().unwrap();
    }

    /// The program sets the mask of its thread.
    pub(crate) fn pin_itself(&self, mask: &CpuSet) {
        let mask = mask.clone();
        self.run(move || affinity::set(Tid(0), &mask).unwrap());
    }

    fn starts_another(&self) -> Self {
        let (give, take) = channel();
        self.run(move || give.send(Self::new()).unwrap());
        take.recv().unwrap()
    }

    pub(crate) fn mask(&self) -> CpuSet {
        affinity::get(self.id.tid).unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(super) struct Bench {
    machine: LinuxMachine,
    whole: CpuSet,
    a: CpuId,
    b: CpuId,
    _tmp: tempfile::TempDir,
}

/// What this thread may use, and the first two of it. None, a skip, where it may use only one.
pub(crate) fn two_cpus() -> Option<(CpuSet, CpuId, CpuId)> {
    let whole = affinity::get(Tid(0)).unwrap();
    let mut cpus = whole.iter();
    let (Some(a), Some(b)) = (cpus.next(), cpus.next()) else {
        evenly_testing::skip("two-cpus", "fewer than two CPUs");
        return None;
    };
    drop(cpus);
    Some((whole, a, b))
}

/// None where there are not two CPUs.
pub(super) fn bench() -> Option<Bench> {
    let (whole, a, b) = two_cpus()?;
    let tmp = tempfile::tempdir().unwrap();
    let dir = StateDir::at(&tmp.path().join("state")).unwrap();
    let masks = Arc::new(Masks::new(Arc::new(Journal::create(&dir, None).unwrap())));
    let root = Pid(std::process::id().cast_signed());
    let machine = LinuxMachine::new(root, masks, ThreadReader::new(Source::Schedstat, 64));
    Some(Bench { machine, whole, a, b, _tmp: tmp })
}

impl Bench {
    fn record(&self, id: ThreadId) -> (RecordState, Vec<CpuSet>) {
        let view = JournalView::open(&self.machine.masks.journal.path()).unwrap();
        let r = view.records.into_iter().rfind(|r| r.id == id).unwrap();
        (r.state, r.set)
    }
}

/// As [`bench`], with taskstats.
pub(super) fn bench_by_taskstats() -> Option<Bench> {
    let t = bench()?;
    let stats = match TaskStats::open() {
        Ok(stats) => stats,
        Err(e) => {
            evenly_testing::skip("taskstats", e);
            return None;
        }
    };
    let root = Pid(std::process::id().cast_signed());
    let threads = ThreadReader::new(Source::Taskstats(Box::new(stats)), 64);
    let machine = LinuxMachine::new(root, t.machine.masks.clone(), threads);
    Some(Bench { machine, ..t })
}

//! A thread that watches a program beside whatever else is done.

use anyhow::Context;
use evenly_evidence::Evidence;
use evenly_linux::clock::now;
use evenly_linux::supervise::{Threads, Waker};
use evenly_linux::wait_reports::ReadWaitReports;
use evenly_linux::witness::Witness;
use evenly_model::{Nanos, Pid};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that watches a program.
pub(crate) struct Watching {
    end: Sender<()>,
    thread: JoinHandle<Witness>,
}

impl Watching {
    /// Watches until it is asked to end; with a time, until that is over, and then notifies the
    /// supervisor.
    pub(crate) fn start(
        threads: Threads,
        witness: impl FnOnce() -> Witness + Send + 'static,
        until: Option<(Nanos, Waker)>,
    ) -> anyhow::Result<Self> {
        let (end, ends) = channel();
        let work = move || {
            let mut witness = witness();
            // From when it can see: on a busy machine this thread may have to wait before it begins.
            let mut deadline = None;
            while let Some(pause) = witness.look() {
                let time = until.as_ref().map(|u| u.0);
                let deadline = *deadline.get_or_insert_with(|| time.map(|time| now() + time));
                let left = deadline
                    .map_or(Duration::MAX, |d| Duration::from_nanos(d.0.saturating_sub(now().0)));
                if left.is_zero() {
                    break;
                }
                // Anything but the time being over means that the end has come.
                if ends.recv_timeout(pause.min(left)) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            if let Some((_, waker)) = until {
                waker.wake();
            }
            witness
        };
        let thread =
            threads.start("witness", work).context("cannot start the thread that watches")?;
        Ok(Self { end, thread })
    }

    /// One that takes little, beside a balancer.
    pub(crate) fn sparing(
        threads: Threads,
        pid: Pid,
        wait_reports: Option<ReadWaitReports>,
    ) -> anyhow::Result<Self> {
        Self::start(threads, move || Witness::sparing(pid).with_wait_reports(wait_reports), None)
    }

    /// What it has seen. None where that was too much for one that takes little.
    pub(crate) fn seen(self, command: Vec<String>) -> Option<Evidence> {
        let witness = self.witness().ok().filter(|w| !w.gave_up())?;
        Some(witness.evidence(command, false))
    }

    pub(crate) fn end(self, command: Vec<String>, runs_on: bool) -> anyhow::Result<Evidence> {
        Ok(self.witness()?.evidence(command, runs_on))
    }

    fn witness(self) -> anyhow::Result<Witness> {
        // It may have ended by itself, with the program.
        let _ = self.end.send(());
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread that watches has failed"))
    }
}

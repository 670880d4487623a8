//! `--verbose`: the decision log.

use crate::tell;
use anyhow::Context;
use evenly_engine::{Event, Observer};
use evenly_linux::live::describe;
use evenly_linux::supervise::Threads;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The decision log on standard error. Written by a thread of its own, so that a reader that is
/// slow never holds up the balancer; what it cannot take is counted.
pub(super) struct Log {
    sender: SyncSender<String>,
    thread: JoinHandle<()>,
}

const LOG_LINES: usize = 4096;

impl Log {
    pub(super) fn start(threads: Threads) -> anyhow::Result<Self> {
        let (sender, lines): (_, Receiver<String>) = sync_channel(LOG_LINES);
        let write = move || lines.iter().for_each(|l| tell(&l));
        let thread = threads.start("log", write).context("cannot start the log's thread")?;
        Ok(Self { sender, thread })
    }

    pub(super) fn handle(&self) -> LogHandle {
        LogHandle { sender: self.sender.clone(), lost: 0 }
    }

    pub(super) fn finish(self) {
        drop(self.sender);
        // It ends when the last handle is gone; a panic there has nothing left to say.
        let _ = self.thread.join();
    }
}

#[derive(Clone)]
pub(super) struct LogHandle {
    sender: SyncSender<String>,
    lost: u64,
}

impl Observer for LogHandle {
    fn event(&mut self, event: &Event) {
        for line in describe(event) {
            if self.sender.try_send(format!("evenly: {line}")).is_err() {
                self.lost += 1;
            } else if self.lost > 0 {
                let text = format!("evenly: ({} lines were lost)", self.lost);
                if self.sender.try_send(text).is_ok() {
                    self.lost = 0;
                }
            }
        }
    }
}

//! `attach --cooperate`: CPUs change hands often where threads that spin crowd them. The thread that sees whether they do.

use crate::looking::{INTERVAL, pause_after};
use evenly_linux::clock::{now, thread_cpu_time};
use evenly_linux::limits::Limits;
use evenly_linux::metronome::{Beaten, Metronome};
use evenly_linux::proc::Proc;
use evenly_linux::supervise::Threads;
use evenly_model::{CpuSet, Pid};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

/// A thread that looks at a program.
pub(crate) struct Beating {
    ends: Sender<()>,
    thread: JoinHandle<Metronome>,
}

impl Beating {
    /// Looks at a program that may use these CPUs, again and again. None under a quota, which would
    /// count the beats, and where that cannot be, which is noted.
    pub(crate) fn start(
        threads: Threads,
        pid: Pid,
        cpus: CpuSet,
        notes: &mut Vec<String>,
    ) -> Option<Self> {
        let limits = Limits::new(Path::new("/"));
        if limits.whole_cpus(pid, &cpus) < cpus.len() as f64 || cpus.is_empty() {
            return None;
        }
        let mut metronome = Metronome::new(Proc::default(), pid, cpus, now());
        let (ends, ended) = channel();
        let work = move || {
            let mut pause = INTERVAL;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let before = thread_cpu_time();
                let was_more = metronome.look();
                let cost = thread_cpu_time() - before;
                pause = if was_more { INTERVAL } else { pause_after(cost) };
            }
            metronome
        };
        match threads.start("spinning", work) {
            Ok(thread) => Some(Self { ends, thread }),
            Err(e) => {
                notes.push(format!(
                    "--cooperate: threads that spin keep their CPU: no thread to look at them: {e}"
                ));
                None
            }
        }
    }

    /// Ends it. What has come of it; None where there was no need, or none could be seen, which is noted.
    pub(crate) fn end(self, notes: &mut Vec<String>) -> Option<evenly_report::Metronome> {
        let _ = self.ends.send(());
        let metronome = self.thread.join().ok()?;
        if let Some(why) = metronome.refused() {
            notes.push(format!(
                "--cooperate: threads keep their CPU if they spin, because it cannot be seen where they are: {why}"
            ));
        }
        let Beaten { time, beat, cpu, place, cpus: [cpus_without, cpus_with] } = metronome.end()?;
        Some(evenly_report::Metronome {
            seconds: time.as_secs_f64(),
            interval_us: beat.0 / 1_000,
            cpu_s: cpu.as_secs_f64(),
            place,
            cpus_without,
            cpus_with,
        })
    }
}

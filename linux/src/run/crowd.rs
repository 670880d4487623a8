//! Whether the threads of programs crowd their CPUs.

use crate::proc::{Proc, read_schedstat};
use evenly_engine::Times;
use evenly_model::{Nanos, Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::fs::File;

/// A thread wants to run if it ran or waited for a CPU for this part of the time.
const WANTS: f64 = 0.5;
/// One that takes part ran for this part of the time: also where it sleeps so that others can run, as it looks once a
/// millisecond. Those that libraries have for themselves run for less.
const TAKES_PART: f64 = 0.002;
/// The part of the time for which threads that want to run wait for a CPU, in all, where they crowd it.
const CROWDED: f64 = 0.1;
/// Of so many threads times are read.
const MOST_THREADS: usize = 1_024;
/// And of so many the file is kept open: to open it takes ten times as long as to read it.
const MOST_FILES: usize = 64;

/// A thread, as it was read last.
#[derive(Debug)]
struct Known {
    times: Times,
    /// It leads to no other thread, whatever becomes of its number, unless one executes a program; None where it is opened each time.
    file: Option<File>,
}

/// The times of threads when they were read last.
#[derive(Debug)]
pub(crate) struct Crowd {
    threads: HashMap<Tid, Known>,
    /// Those that wanted to run when they were looked at last.
    wants: HashSet<Tid>,
    taking_part: usize,
    /// For how long threads ran, or waited for a CPU, between the last two looks, all together.
    wanted: Nanos,
    /// For how long they ran, and waited.
    ran: Nanos,
    waited: Nanos,
    seen_at: Nanos,
}

impl Crowd {
    /// Nothing is known yet.
    pub(crate) fn new(now: Nanos) -> Self {
        Self {
            threads: HashMap::new(),
            wants: HashSet::new(),
            taking_part: 0,
            wanted: Nanos::ZERO,
            ran: Nanos::ZERO,
            waited: Nanos::ZERO,
            seen_at: now,
        }
    }

    /// Whether more threads of these processes, and so many of other programs, wanted to run since this was asked last than there
    /// are CPUs, and those of these waited.
    pub(crate) fn outnumber(
        &mut self,
        cpus: f64,
        others: f64,
        proc: &Proc,
        pids: &[Pid],
        now: Nanos,
    ) -> bool {
        let elapsed = now - std::mem::replace(&mut self.seen_at, now);
        let mut waited = Nanos::ZERO;
        self.wants.clear();
        (self.wanted, self.ran) = (Nanos::ZERO, Nanos::ZERO);
        self.taking_part = 0;
        let (mut before, mut files) = (std::mem::take(&mut self.threads), 0);
        for tid in pids.iter().flat_map(|&pid| proc.threads(pid)).take(MOST_THREADS) {
            let known = before.remove(&tid);
            let was = known.as_ref().map(|known| known.times);
            let Some(known) = read(known, proc, tid, files < MOST_FILES) else { continue };
            if let Some(was) = was {
                let t = known.times;
                let (ran, waits) =
                    (t.ran - was.ran.min(t.ran), t.waited - was.waited.min(t.waited));
                waited += waits;
                self.ran += ran;
                self.wanted += ran + waits;
                self.taking_part += usize::from(ran.0 as f64 >= TAKES_PART * elapsed.0 as f64);
                if (ran + waits).0 as f64 >= WANTS * elapsed.0 as f64 {
                    self.wants.insert(tid);
                }
            }
            files += usize::from(known.file.is_some());
            self.threads.insert(tid, known);
        }
        self.waited = waited;
        // One that has nobody to wait for does not spin.
        let others = if self.wants.len() > 1 { others } else { 0.0 };
        self.wants.len() as f64 + others > cpus && waited > elapsed.scale(CROWDED)
    }

    /// For how long they ran, or waited for a CPU, between the last two times that this was asked, all together.
    pub(crate) fn wanted_time(&self) -> Nanos {
        self.wanted
    }

    /// For how long they waited for a CPU, all together.
    pub(crate) fn waited(&self) -> Nanos {
        self.waited
    }

    /// For how long they ran, all together.
    pub(crate) fn ran(&self) -> Nanos {
        self.ran
    }

    /// How many threads there were.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How many of them took part: they did not just wait for something else.
    pub(crate) fn taking_part(&self) -> usize {
        self.taking_part
    }

    /// How many of them wanted to run.
    pub(crate) fn wanted(&self) -> usize {
        self.wants.len()
    }

    /// Whether this thread wanted to run.
    pub(crate) fn wants(&self, tid: Tid) -> bool {
        self.wants.contains(&tid)
    }
}

/// Reads a thread; by its file where that is open, which it stays, or is from now on, where that may be. None where it has ended.
fn read(known: Option<Known>, proc: &Proc, tid: Tid, may_keep: bool) -> Option<Known> {
    if let Some(file) = known.and_then(|known| known.file).filter(|_| may_keep)
        && let Some(times) = read_schedstat(&file)
    {
        return Some(Known { times, file: Some(file) });
    }
    let file = File::open(proc.thread_file(tid, "schedstat")).ok()?;
    Some(Known { times: read_schedstat(&file)?, file: Some(file).filter(|_| may_keep) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};
    use std::thread::spawn;

    /// Would catch: descriptors that are used up by programs of many threads, or kept of threads that have ended.
    #[test]
    fn no_more_files_are_kept_open_than_may_be() {
        let me = Pid(std::process::id().cast_signed());
        let mut crowd = Crowd::new(Nanos::ZERO);
        for round in 1..=3 {
            let ends = Arc::new(Barrier::new(MOST_FILES + 17));
            let waits = |_| {
                let ends = ends.clone();
                spawn(move || ends.wait())
            };
            let threads: Vec<_> = (0..MOST_FILES + 16).map(waits).collect();
            crowd.outnumber(2.0, 0.0, &Proc::default(), &[me], Nanos(round * 1_000_000_000));
            assert!(crowd.threads() > MOST_FILES);
            let open = crowd.threads.values().filter(|known| known.file.is_some()).count();
            assert_eq!(open, MOST_FILES, "{round}");
            ends.wait();
            for thread in threads {
                assert!(thread.join().is_ok());
            }
        }
    }
}

//! Reads what threads have run and waited, and where they are, through files that stay open. That is all that a helper
//! needs: it changes masks through the machine of its domain ([`crate::machine`]).
//!
//! Invariants: what is read is of the thread that was asked for, and not of one that has its id now; in the steady
//! state a reading is one `pread`, and allocates nothing.

use crate::clock::{now, thread_cpu_time};
use crate::limits::slice;
use crate::proc::{Proc, Stat, parse_schedstat, read_schedstat};
use crate::taskstats::{TaskStats, TaskTimes};
use evenly_engine::{Located, Reader, Reading};
use evenly_model::{CpuId, Nanos, ThreadId, Tid};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where thread times come from.
pub enum Source {
    /// `/proc/<pid>/task/<tid>/schedstat`, which needs no privileges.
    Schedstat,
    /// The taskstats netlink interface, as in the papers: needs CAP_NET_ADMIN.
    Taskstats(Box<TaskStats>),
}

impl Source {
    /// As `--source` has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Schedstat => "schedstat",
            Self::Taskstats(_) => "taskstats",
        }
    }
}

struct Files {
    id: ThreadId,
    /// A time at which the thread of this id was seen to be this one. None where it was not.
    seen: Option<Nanos>,
    schedstat: Option<File>,
    stat: Option<File>,
}

impl Files {
    /// The times of the thread, from its `schedstat`. None where that is not kept open.
    fn times(&self) -> Option<Reading> {
        let file = self.schedstat.as_ref()?;
        Some(read_schedstat(file).map_or(Reading::Gone, Reading::Times))
    }
}

/// What reads threads.
pub struct ThreadReader {
    proc: Proc,
    source: Source,
    /// Of the threads that are read together, in their order.
    files: Vec<Files>,
    tids: Vec<Tid>,
    /// The files of threads that are read one at a time, in no order.
    single: HashMap<ThreadId, Files>,
    next_stat: usize,
    most_files: usize,
    resolution: Nanos,
}

impl ThreadReader {
    /// Where times are read from.
    #[cfg(test)]
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// At most `most_files` descriptors are kept open.
    #[must_use]
    pub fn new(source: Source, most_files: usize) -> Self {
        Self {
            proc: Proc::default(),
            source,
            files: Vec::new(),
            tids: Vec::new(),
            single: HashMap::new(),
            next_stat: 0,
            most_files,
            resolution: slice().tick,
        }
    }

    /// The descriptors of a thread. Threads are read in the same order point after point, so the
    /// hint is nearly always right.
    fn files(&mut self, id: ThreadId, hint: usize) -> &mut Files {
        let at = if self.files.get(hint).is_some_and(|f| f.id == id) {
            hint
        } else if let Some(found) = self.files.iter().position(|f| f.id == id) {
            let to = hint.min(self.files.len() - 1);
            self.files.swap(found, to);
            to
        } else {
            self.files.push(self.open(id));
            let (to, last) = (hint.min(self.files.len() - 1), self.files.len() - 1);
            self.files.swap(to, last);
            to
        };
        &mut self.files[at]
    }

    /// All of them by taskstats. What is not answered, because the reply was lost or the kernel had
    /// no memory for it, is unknown; only an answer can say that a thread has ended.
    fn read_by_taskstats(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.resize(ids.len(), Reading::Unknown);
        self.tids.clear();
        for (i, id) in ids.iter().enumerate() {
            self.tids.push(id.tid);
            let _ = self.files(*id, i);
        }
        let Source::Taskstats(stats) = &mut self.source else { return };
        let (files, asked) = (&self.files, now());
        let result = stats.read_many(&self.tids, |i, times| {
            let seen = files.get(i).filter(|f| f.id == ids[i]).and_then(|f| f.seen);
            let same = |t: &TaskTimes| {
                // Where the kernel does not say when the thread started, /proc does.
                t.is_of_thread_seen(seen?, asked).or_else(|| {
                    Some(self.proc.thread_stat(ids[i].tid).is_some_and(|s| s.start == ids[i].start))
                })
            };
            out[i] = match times.filter(|t| same(t) == Some(true)) {
                Some(t) => Reading::Times(t.times()),
                None => Reading::Gone,
            };
        });
        // An error leaves readings unknown, which is all that there is to be done about it.
        let _ = result;
    }

    /// Whether the files of one more thread may be kept open.
    fn has_room(&self) -> bool {
        2 * (self.files.len() + self.single.len()) < self.most_files
    }

    /// Opens the files of a thread, as long as there are not too many.
    fn open(&self, id: ThreadId) -> Files {
        let keep = self.has_room();
        let open =
            |file| keep.then(|| File::open(self.proc.thread_file(id.tid, file)).ok()).flatten();
        let schedstat = !matches!(self.source, Source::Taskstats(_));
        let schedstat = schedstat.then(|| open("schedstat")).flatten();
        let mut files = Files { id, seen: Some(now()), schedstat, stat: open("stat") };
        // They must be of this thread, not of one that has its id now.
        match self.proc.thread_stat(id.tid) {
            Some(s) if s.start == id.start => {}
            Some(_) => files = Files { id, seen: None, schedstat: None, stat: None },
            None => files.seen = None,
        }
        files
    }

    fn read_one_by_taskstats(&mut self, id: ThreadId) -> Reading {
        // Here are only threads that are read one at a time: those of long ago are let go.
        if 2 * self.files.len() >= self.most_files {
            self.files.clear();
        }
        let mut out = Vec::with_capacity(1);
        self.read_by_taskstats(&[id], &mut out);
        let reading = out.first().copied().unwrap_or(Reading::Unknown);
        if reading == Reading::Gone {
            self.files.retain(|f| f.id != id);
        }
        reading
    }

    fn read_in_order(&mut self, id: ThreadId, hint: usize) -> Reading {
        let kept = self.files(id, hint).times();
        kept.unwrap_or_else(|| self.read_by_name(id))
    }

    /// Reads the times of a thread of which no file is kept open.
    fn read_by_name(&self, id: ThreadId) -> Reading {
        let read = || {
            self.proc.thread_stat(id.tid).filter(|s| s.start == id.start)?;
            let text = crate::proc::read_all(&self.proc.thread_file(id.tid, "schedstat")).ok()?;
            parse_schedstat(&text)
        };
        read().map_or(Reading::Gone, Reading::Times)
    }

    /// The `stat` of a thread, by a descriptor that was opened on it where one is kept. None where it has ended.
    pub(crate) fn stat(&mut self, id: ThreadId) -> Option<Stat> {
        let mut buffer = [0u8; 1024];
        if let Some(Files { stat: Some(file), .. }) = self.single.get(&id) {
            let n = file.read_at(&mut buffer, 0).ok()?;
            return Stat::parse(buffer.get(..n)?).filter(|s| s.start == id.start);
        }
        // Threads are looked for in the order in which they are read, so the next one is usually
        // right behind the last.
        let at = if self.files.get(self.next_stat).is_some_and(|f| f.id == id) {
            self.next_stat
        } else {
            self.files.iter().position(|f| f.id == id).unwrap_or(self.files.len())
        };
        self.next_stat = at + 1;
        let stat = match &self.files(id, at).stat {
            Some(file) => {
                let n = file.read_at(&mut buffer, 0).ok()?;
                Stat::parse(buffer.get(..n)?)?
            }
            None => self.proc.thread_stat(id.tid)?,
        };
        (stat.start == id.start).then_some(stat)
    }
}

impl Reader for ThreadReader {
    fn now(&self) -> Nanos {
        now()
    }

    fn own_cpu_time(&self) -> Nanos {
        thread_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        self.next_stat = 0;
        if matches!(self.source, Source::Taskstats(_)) {
            self.read_by_taskstats(ids, out);
        } else {
            for (i, &id) in ids.iter().enumerate() {
                let reading = self.read_in_order(id, i);
                out.push(reading);
            }
        }
        // Threads that are no longer asked for have been swapped to the end.
        self.files.truncate(ids.len());
    }

    fn read_one(&mut self, id: ThreadId) -> Reading {
        if matches!(self.source, Source::Taskstats(_)) {
            return self.read_one_by_taskstats(id);
        }
        let mut kept = self.single.get(&id).and_then(Files::times);
        if kept.is_none() && self.has_room() {
            let files = self.open(id);
            kept = files.times();
            if let Some(Reading::Times(_)) = kept {
                self.single.insert(id, files);
            }
        }
        let reading = kept.unwrap_or_else(|| self.read_by_name(id));
        if reading == Reading::Gone {
            self.single.remove(&id);
        }
        reading
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        let stat = self.stat(id)?;
        Some(Located {
            cpu: stat.cpu,
            state: stat.run_state(),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        })
    }

    fn idle(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        self.proc.idle(cpus).unwrap_or_default()
    }

    fn busy(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        self.proc.busy_each(cpus).unwrap_or_default()
    }

    fn resolution(&self) -> Nanos {
        self.resolution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This thread, and what reads it by taskstats. None, a skip, where that cannot be.
    fn by_taskstats() -> Option<(ThreadId, ThreadReader)> {
        let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        let id = ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start };
        match TaskStats::open() {
            Ok(stats) => Some((id, ThreadReader::new(Source::Taskstats(Box::new(stats)), 64))),
            Err(e) => {
                evenly_testing::skip("taskstats", e);
                None
            }
        }
    }

    #[test]
    fn taskstats_does_not_take_a_thread_for_one_that_had_its_id() {
        let Some((id, mut reader)) = by_taskstats() else { return };
        let (earlier, mut out) = (ThreadId { start: id.start - 1, ..id }, Vec::new());
        for _ in 0..3 {
            reader.read(&[id, earlier], &mut out);
            assert!(matches!(out[..], [Reading::Times(_), Reading::Gone]), "{out:?}");
        }
    }

    /// As if the thread had been read before it started, so that it is another of the same id. By much more than the
    /// reading can be held up: the later the kernel answers, the older a thread seems (`is_of_thread_seen` has a test
    /// to the microsecond).
    #[test]
    fn taskstats_does_not_take_a_thread_for_one_that_was_read_before_it_started() {
        let Some((id, mut reader)) = by_taskstats() else { return };
        let before = now() - Nanos::from_millis(3_600_000);
        let mut read = |seen: Option<Nanos>| {
            let mut out = Vec::new();
            if seen.is_some() {
                reader.files[0].seen = seen;
            }
            reader.read(&[id], &mut out);
            out
        };
        for _ in 0..20 {
            assert!(matches!(read(None)[..], [Reading::Times(_)]));
            assert_eq!(read(Some(before)), [Reading::Gone]);
            assert!(matches!(read(Some(now()))[..], [Reading::Times(_)]));
        }
    }
}

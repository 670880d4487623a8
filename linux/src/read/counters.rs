//! Instructions that threads retire, counted by the CPUs themselves (perf_event_open).
//!
//! CPU time says how far a thread is only where all CPUs are equally fast; instructions say it
//! everywhere (Juggle, section 6). Each thread has a counter that is opened once and kept: reading it
//! is one system call, as reading its times is.
//!
//! A machine with CPUs of several kinds has a counting unit for each kind, which counts only while
//! the thread runs there: then a thread has one counter for each, and its instructions are their
//! sum.
//!
//! Invariant: nothing is counted but what the thread itself does in the program, not in the kernel:
//! that much is permitted to every user for the user's own threads, unless the machine forbids it.

use evenly_model::{ThreadId, Tid};
use perf_event::{Builder, Counter};
use smallvec::SmallVec;
use std::fs;
use std::io;
use std::path::Path;

/// The event that a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Instructions that the thread retires in its program, not in the kernel.
    Instructions,
    /// Nanoseconds of CPU time, by the kernel. No policy needs it, because the scheduler gives it
    /// for less; it is there because it can be counted on every machine, a virtual one too.
    CpuTime,
}

/// Why nothing can be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountersError {
    /// There is nothing that counts.
    #[error(
        "this machine has no counters of retired instructions (a virtual machine often has none)"
    )]
    NoUnit,
    /// The machine's setting forbids it.
    #[error(
        "perf events are not permitted: kernel.perf_event_paranoid is {found}, needed is 2 \
         or less (sudo sysctl kernel.perf_event_paranoid=2), or CAP_PERFMON (sudo evenly)"
    )]
    Paranoid {
        /// The value of kernel.perf_event_paranoid, which is above 2.
        found: i32,
    },
    /// Something else forbids it.
    #[error(
        "perf_event_open is forbidden to this process although kernel.perf_event_paranoid is {0}: \
         the seccomp filter of a container usually forbids it (docker run --security-opt \
         seccomp=unconfined, or a profile that allows perf_event_open)"
    )]
    Forbidden(i32),
    /// Too few samples are permitted.
    #[error(
        "kernel.perf_event_max_sample_rate is {rate}, needed is {least} or more (the kernel lowers it \
         where samples take it too long)"
    )]
    Rate {
        /// Samples a second.
        rate: u32,
        /// How many are needed.
        least: u32,
    },
    /// Another error of the system.
    #[error("perf_event_open fails: {0}")]
    System(String),
}

impl CountersError {
    pub(crate) fn new(e: &io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                Self::NoUnit
            }
            Some(libc::EACCES | libc::EPERM) => {
                let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
                match text.ok().and_then(|t| t.trim().parse().ok()) {
                    Some(found) if found > 2 => Self::Paranoid { found },
                    found => Self::Forbidden(found.unwrap_or_default()),
                }
            }
            _ => Self::System(e.to_string()),
        }
    }
}

/// An event as the kernel wants it: `type` and `config` of `perf_event_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    unit: u32,
    config: u64,
}

/// The kernel's numbers (perf_event.h).
const HARDWARE: Kind = Kind { unit: 0, config: 1 };
const TASK_CLOCK: Kind = Kind { unit: 1, config: 1 };
/// INST_RETIRED of the ARM architecture.
const ARM_RETIRED: u64 = 0x08;

/// The counting units of CPUs, where there are several kinds: their numbers. A unit of CPUs that
/// all are alike is not among them, nor one of anything else.
fn units(devices: &Path) -> Vec<u32> {
    let number = |device: fs::DirEntry| {
        // Only units of CPUs of one kind among several list the CPUs that they are for.
        device.path().join("cpus").exists().then_some(())?;
        fs::read_to_string(device.path().join("type")).ok()?.trim().parse().ok()
    };
    let mut all: Vec<u32> =
        fs::read_dir(devices).into_iter().flatten().flatten().filter_map(number).collect();
    all.sort_unstable();
    all
}

/// Whether the CPUs of this machine are of several kinds, as far as their counting units say it.
#[must_use]
pub fn several_kinds_of_cpus() -> bool {
    units(Path::new(DEVICES)).len() > 1
}

const DEVICES: &str = "/sys/bus/event_source/devices";

fn kinds(counted: Counted, devices: &Path) -> SmallVec<[Kind; 2]> {
    match counted {
        Counted::CpuTime => [TASK_CLOCK].into_iter().collect(),
        Counted::Instructions => match units(devices).as_slice() {
            several @ [_, _, ..] => several
                .iter()
                .map(|&unit| {
                    if cfg!(target_arch = "aarch64") {
                        Kind { unit, config: ARM_RETIRED }
                    } else {
                        // The general event, of this unit.
                        Kind { config: u64::from(unit) << 32 | HARDWARE.config, ..HARDWARE }
                    }
                })
                .collect(),
            _ => [HARDWARE].into_iter().collect(),
        },
    }
}

struct Open {
    id: ThreadId,
    /// Empty where the thread cannot be counted.
    counters: SmallVec<[Counter; 2]>,
}

/// The counters of threads.
pub struct Counters {
    kinds: SmallVec<[Kind; 2]>,
    open: Vec<Open>,
    most: usize,
}

impl Counters {
    /// Sees whether `counted` can be counted here. At most `most` descriptors are kept open; threads
    /// for which there is none are not counted.
    ///
    /// # Errors
    /// [`CountersError`] where it cannot.
    pub fn new(counted: Counted, most: usize) -> Result<Self, CountersError> {
        let kinds = kinds(counted, Path::new(DEVICES));
        for &kind in &kinds {
            // Of this thread itself.
            count(kind, Tid(0)).map_err(|e| CountersError::new(&e))?;
        }
        Ok(Self { kinds, open: Vec::new(), most })
    }

    /// What a thread has done since it was read first. None where it cannot be counted. `hint` is
    /// where it stands among those that are read, and `is_it` whether the thread with that number is
    /// still this one.
    pub fn read(&mut self, id: ThreadId, hint: usize, is_it: impl FnOnce() -> bool) -> Option<u64> {
        let at = self.find(id, hint, is_it);
        let alone = self.kinds.len() == 1;
        let open = self.open.get_mut(at)?;
        let mut sum = None;
        for counter in &mut open.counters {
            let data = counter.read_full().ok()?;
            let (enabled, running) = (data.time_enabled()?, data.time_running()?);
            let mut count = data.count();
            // Others count too, and the unit took turns. Where there are several units each counts
            // for a part of the time, and no turns can be derived from that.
            if alone && running < enabled && running.as_nanos() > 0 {
                let part = enabled.as_secs_f64() / running.as_secs_f64();
                count = (count as f64 * part) as u64;
            }
            sum = Some(sum.unwrap_or(0) + count);
        }
        sum
    }

    /// Forgets those that are read no more: all but the first `n`.
    pub fn keep(&mut self, n: usize) {
        self.open.truncate(n);
    }

    /// Threads are read in the same order point after point, so the hint is nearly always right.
    fn find(&mut self, id: ThreadId, hint: usize, is_it: impl FnOnce() -> bool) -> usize {
        if self.open.get(hint).is_some_and(|o| o.id == id) {
            return hint;
        }
        let at = match self.open.iter().position(|o| o.id == id) {
            Some(at) => at,
            None => {
                let room = (self.open.len() + 1) * self.kinds.len() <= self.most;
                let open = |&kind| count(kind, id.tid).ok();
                let counters: Option<SmallVec<[Counter; 2]>> =
                    if room { self.kinds.iter().map(open).collect() } else { None };
                // Of this thread, not of one that has its number now.
                let counters = counters.filter(|_| is_it()).unwrap_or_default();
                self.open.push(Open { id, counters });
                self.open.len() - 1
            }
        };
        let to = hint.min(self.open.len() - 1);
        self.open.swap(at, to);
        to
    }
}

/// Begins to count for a thread; for the calling one where its number is 0.
fn count(kind: Kind, tid: Tid) -> io::Result<Counter> {
    let mut builder = Builder::new(perf_event::events::Hardware::INSTRUCTIONS);
    let attributes = builder.attrs_mut();
    (attributes.type_, attributes.config) = (kind.unit, kind.config);
    builder.observe_pid(tid.0).any_cpu().enabled(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn own_tid() -> Tid {
        Tid(rustix::thread::gettid().as_raw_nonzero().get())
    }

    fn compute(rounds: u64) -> u64 {
        (0..rounds).fold(1, |x: u64, i| std::hint::black_box(x.wrapping_mul(31).wrapping_add(i)))
    }

    /// Two threads, one of which works ten times as much as the other; what was counted for each.
    fn counted(counted: Counted) -> Result<[u64; 2], CountersError> {
        let mut counters = Counters::new(counted, 16)?;
        let (sender, readings) = channel();
        let workers: Vec<_> = [1, 10]
            .into_iter()
            .map(|times| {
                let (go, wait) = channel::<()>();
                let sender = sender.clone();
                let thread = std::thread::spawn(move || {
                    sender.send((times, own_tid())).unwrap();
                    wait.recv().unwrap();
                    std::hint::black_box(compute(times * 3_000_000));
                    sender.send((times, own_tid())).unwrap();
                    let _ = wait.recv();
                });
                (go, thread)
            })
            .collect();
        let mut ids = [ThreadId::default(); 2];
        for _ in 0..2 {
            let (times, tid) = readings.recv().unwrap();
            ids[usize::from(times == 10)] = ThreadId { tid, start: 1 };
        }
        let mut read = || {
            let all = [0, 1].map(|i| counters.read(ids[i], i, || true).unwrap());
            counters.keep(2);
            all
        };
        let before = read();
        workers.iter().for_each(|(go, _)| go.send(()).unwrap());
        for _ in 0..2 {
            readings.recv().unwrap();
        }
        let after = read();
        for (go, thread) in workers {
            drop(go);
            thread.join().unwrap();
        }
        Ok([0, 1].map(|i| after[i] - before[i]))
    }

    #[test]
    fn work_is_counted_thread_by_thread() {
        let [less, more] = match counted(Counted::CpuTime) {
            Ok(both) => both,
            Err(e) => return evenly_testing::skip("perf-events", e),
        };
        // Time depends on the machine, and yet ten times the work is no less than twice the time.
        assert!(less > 100_000 && more > 2 * less, "{less} {more}");
    }

    #[test]
    fn instructions_follow_work() {
        let [less, more] = match counted(Counted::Instructions) {
            Ok(both) => both,
            Err(e) => return evenly_testing::skip("instructions", e),
        };
        let ratio = more as f64 / less as f64;
        assert!(less > 3_000_000 && (9.5..10.5).contains(&ratio), "{less} {more}");
    }

    #[test]
    fn threads_that_are_not_there_or_not_it_are_not_counted() {
        let mut counters = match Counters::new(Counted::CpuTime, 1) {
            Ok(counters) => counters,
            Err(e) => return evenly_testing::skip("perf-events", e),
        };
        let own = ThreadId { tid: own_tid(), start: 1 };
        assert_eq!(counters.read(own, 0, || false), None);
        // Nor is it tried again.
        assert_eq!(counters.read(own, 0, || true), None);
        counters.keep(0);
        assert!(counters.read(own, 0, || true).is_some());
        // No more descriptors than permitted, and none for a thread that has ended.
        let gone = ThreadId { tid: Tid(i32::MAX), start: 1 };
        assert_eq!(counters.read(gone, 1, || true), None);
        let other = ThreadId { tid: own.tid, start: 2 };
        assert_eq!(counters.read(other, 2, || true), None);
        assert!(counters.read(own, 0, || true).is_some());
    }

    #[test]
    fn what_is_missing_is_reported() {
        let of = |code| CountersError::new(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::ENOENT), CountersError::NoUnit);
        assert!(of(libc::EMFILE).to_string().contains("Too many open files"));
        let text = CountersError::Paranoid { found: 3 }.to_string();
        assert!(text.contains("is 3, needed is 2") && text.contains("sudo sysctl"), "{text}");
        assert!(of(libc::EACCES).to_string().contains("kernel.perf_event_paranoid is"));
    }

    /// Trees as machines show them.
    #[test]
    fn one_counter_for_each_kind_of_cpu() {
        let tmp = tempfile::tempdir().unwrap();
        let device = |name: &str, number: u32, cpus: bool| {
            let dir = tmp.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("type"), format!("{number}\n")).unwrap();
            fs::write(dir.join(if cpus { "cpus" } else { "cpumask" }), "0-3\n").unwrap();
        };
        device("uncore_imc_0", 14, false);
        device("software", 1, false);
        assert_eq!(kinds(Counted::Instructions, tmp.path())[..], [HARDWARE]);
        device("cpu_core", 4, true);
        assert_eq!(kinds(Counted::Instructions, tmp.path())[..], [HARDWARE]);
        device("cpu_atom", 10, true);
        assert_eq!(units(tmp.path()), [4, 10]);
        let both = kinds(Counted::Instructions, tmp.path());
        if cfg!(target_arch = "aarch64") {
            assert_eq!(both[1], Kind { unit: 10, config: 8 });
        } else {
            assert_eq!(both[0], Kind { unit: 0, config: 0x4_0000_0001 });
            assert_eq!(both[1], Kind { unit: 0, config: 0xa_0000_0001 });
        }
        assert_eq!(kinds(Counted::CpuTime, tmp.path())[..], [TASK_CLOCK]);
    }
}

//! Where in their code threads are: the kernel notes the instruction, each few ms of a thread's CPU time (perf_event_open).
//!
//! Invariants: a thread runs as without, but for the interrupts that take the notes. Nothing is noted but where it is in the
//! program, not in the kernel: that much is permitted to every user for the user's own threads, unless the machine forbids it.

use crate::counters::CountersError;
use evenly_model::{Nanos, ThreadId, Tid};
use evenly_spins::Seen;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler, data};
use std::collections::HashMap;
use std::io;

/// CPU time of a thread between two samples. No multiple of usual lengths of phases, which would be met at the same place
/// each time.
pub(crate) const PERIOD: Nanos = Nanos(4_870_000);
/// On how many CPUs, on average, threads computed that were seen computing so often.
#[must_use]
pub fn cpus(seen: Seen) -> Option<f64> {
    Some(PERIOD.as_secs_f64() * seen.rate()?)
}

/// Room for the samples of a thread, in bytes: more than two seconds of CPU time.
const ROOM: usize = 8 << 10;
/// So many threads are sampled: for each there are pages that are locked in memory, of which a user may have few.
pub(crate) const MOST: usize = 64;
/// A lower limit of samples per second is one that the machine set itself to because they took it too long. Some kernels
/// (6.16, 6.17) hang where a clock takes more samples than there may be.
const LEAST_RATE: u32 = 2_000;

/// The stack pointer among the registers of which the kernel tells (`asm/perf_regs.h`).
const STACK_POINTER: u64 = if cfg!(target_arch = "aarch64") { 1 << 31 } else { 1 << 7 };

/// Where a thread was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The address of the instruction.
    pub at: u64,
    /// The stack pointer there.
    pub stack: Option<u64>,
}

/// Samples of threads.
pub struct Samples {
    /// None for a thread that cannot be sampled.
    open: HashMap<ThreadId, Option<Sampler>>,
}

impl Samples {
    /// Sees whether threads can be sampled here.
    ///
    /// # Errors
    /// [`CountersError`] where they cannot.
    pub fn new() -> Result<Self, CountersError> {
        let rate = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
        let rate = rate.ok().and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(rate) = rate.filter(|&rate| rate < LEAST_RATE) {
            return Err(CountersError::Rate { rate, least: LEAST_RATE });
        }
        // Of this thread itself.
        sampler(Tid(0)).map_err(|e| match CountersError::new(&e) {
            // There is always a clock.
            CountersError::NoUnit => CountersError::System(e.to_string()),
            other => other,
        })?;
        Ok(Self { open: HashMap::new() })
    }

    /// Where a thread was since this was called last. Nothing the first time, and of a thread that cannot be sampled.
    pub fn take(&mut self, id: ThreadId, mut found: impl FnMut(Sample)) {
        if !self.open.contains_key(&id) && self.open.len() >= MOST {
            return;
        }
        let open = self.open.entry(id).or_insert_with(|| sampler(id.tid).ok());
        let Some(sampler) = open else { return };
        while let Some(record) = sampler.next_record() {
            if let Ok(data::Record::Sample(sample)) = record.parse_record()
                && let Some(at) = sample.ip()
            {
                let stack = sample.regs_user().and_then(|r| r.regs.first().copied());
                found(Sample { at, stack });
            }
        }
    }

    /// Forgets the others.
    pub fn keep(&mut self, is_kept: impl Fn(&ThreadId) -> bool) {
        self.open.retain(|id, _| is_kept(id));
    }
}

/// Begins to sample a thread; the calling one where its number is 0.
fn sampler(tid: Tid) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::TASK_CLOCK);
    builder.observe_pid(tid.0).any_cpu().sample_period(PERIOD.0);
    builder.sample(SampleFlag::IP | SampleFlag::REGS_USER).sample_regs_user(STACK_POINTER);
    // Nobody is woken for them.
    builder.wakeup_watermark(ROOM);
    builder.enabled(true).build()?.sampled(ROOM)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use evenly_testing::wait_for;

    #[inline(never)]
    fn computes() -> u64 {
        (0..1_000_000_u64).fold(1, |x, i| std::hint::black_box(x.wrapping_mul(31).wrapping_add(i)))
    }

    #[test]
    fn a_thread_is_seen_where_it_computes() {
        let mut samples = match Samples::new() {
            Ok(samples) => samples,
            Err(e) => return evenly_testing::skip("perf-events", e),
        };
        let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        let id = ThreadId { tid, start: 1 };
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let code = crate::modules::parse_code(&maps);
        let within = |at: u64| code.iter().any(|c| c.path == own && c.in_file(at).is_some());
        let (mut inside, mut all) = (0, 0);
        wait_for("it was seen a few times", || {
            std::hint::black_box(computes());
            samples.take(id, |sample| {
                all += 1;
                inside += u32::from(within(sample.at));
            });
            (inside >= 5).then_some(())
        });
        assert!(2 * inside > all, "{inside} of {all}");
        // One that is gone, or not there.
        samples.keep(|kept| *kept != id);
        assert!(samples.open.is_empty());
        let gone = ThreadId { tid: Tid(i32::MAX), start: 1 };
        samples.take(gone, |_| panic!("it is not there"));
        assert!(samples.open[&gone].is_none());
    }
}

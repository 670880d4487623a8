//! Snapshots as a balancing point sees them, for tests and benchmarks of policies.
//!
//! Invariant: a snapshot holds together. The threads of a CPU have shared it fairly, and the CPU's
//! count and speed are those of its threads, also where the caller has changed these.

use evenly_model::{
    CpuId, CpuIndex, CpuView, FULL_CAPACITY, Nanos, Snapshot, ThreadId, ThreadView, Tid,
};
use std::sync::Arc;

/// The period of all snapshots made here.
pub const PERIOD: Nanos = Nanos::from_millis(20);

/// n threads, which may run everywhere, on m equal CPUs: thread i on CPU `at(i)`. No progress has
/// been made yet. `change` makes it interesting: it is shown each thread with its number.
#[must_use]
pub fn snapshot(
    n: usize,
    m: usize,
    at: impl Fn(usize) -> CpuIndex,
    change: impl Fn(usize, &mut ThreadView),
) -> Snapshot {
    let mut counts = vec![0u64; m];
    for i in 0..n {
        counts[at(i)] += 1;
    }
    let threads: Vec<ThreadView> = (0..n)
        .map(|i| {
            let ran = Nanos(PERIOD.0 / counts[at(i)]);
            let mut thread = ThreadView {
                id: ThreadId { tid: Tid(i as i32 + 1), start: 1 },
                cpu: at(i),
                progress: 0,
                ran,
                waited: PERIOD - ran,
                blocked: Nanos::ZERO,
                spinning: Nanos::ZERO,
                turns: None,
                movable: true,
                mask: 0,
            };
            change(i, &mut thread);
            thread
        })
        .collect();
    let mut sums = vec![(0u32, 0u64, 0u64); m];
    for t in &threads {
        if let Some((threads, ran, wanted)) = sums.get_mut(t.cpu) {
            (*threads, *ran, *wanted) = (*threads + 1, *ran + t.ran.0, *wanted + t.demand().0);
        }
    }
    let cpus = sums.iter().enumerate().map(|(c, &(threads, ran, wanted))| {
        let speed = (wanted > 0).then(|| ran as f64 / wanted as f64);
        CpuView { id: CpuId(c as u32), capacity: FULL_CAPACITY, threads, speed }
    });
    Snapshot {
        point: 5,
        now: Nanos(5 * PERIOD.0),
        elapsed: PERIOD,
        resolution: Nanos::ZERO,
        cpus: cpus.collect(),
        threads,
        masks: vec![vec![true; m]],
        held: true,
        taken: Vec::new(),
        others: Vec::new(),
        tasks: Vec::new(),
        memory: Vec::new(),
        links: None,
        stayed: Vec::new(),
        environment: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_their_cpu_and_make_its_speed() {
        let s = snapshot(3, 2, |i| i % 2, |i, t| t.progress = i as i64);
        let ran: Vec<u64> = s.threads.iter().map(|t| t.ran.0 / 1_000_000).collect();
        assert_eq!(ran, [10, 20, 10]);
        let of = |c: usize| (s.cpus[c].threads, s.cpus[c].speed);
        assert_eq!((of(0), of(1)), ((2, Some(0.5)), (1, Some(1.0))));
        // What is changed counts: one is moved, one rests.
        let s = snapshot(
            3,
            2,
            |i| i % 2,
            |i, t| match i {
                0 => t.cpu = 1,
                1 => (t.ran, t.blocked) = (Nanos::ZERO, PERIOD),
                _ => t.cpu = usize::MAX,
            },
        );
        assert_eq!((s.cpus[0].threads, s.cpus[0].speed), (0, None));
        assert_eq!((s.cpus[1].threads, s.cpus[1].speed), (2, Some(0.5)));
    }
}

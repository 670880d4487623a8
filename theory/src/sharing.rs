//! Two jobs that share the CPUs of a node: the example of Juggle, section 6.
//!
//! Each job is spread over all nodes and asks for a part of them. Where the two together have more
//! threads than CPUs, as many CPUs are shared by one thread of each, and each job loses half of
//! these. Balancing makes the threads within each job progress equally.
//!
//! A slip in the print: its utilisation of 92.3 % counts the job that is left over with its demand
//! (30 %), though it runs with 5 threads on 16 CPUs (31.25 %), as all other figures of the example
//! do. Counted by threads, as work over capacity, it is 92.5 %, as here.

use crate::exact::ratio;
use crate::{ExactTime, OutOfRange};
use evenly_model::Nanos;
use num_rational::BigRational;
use num_traits::ToPrimitive;

/// A job that wants a part of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// The part of the node's CPUs that it asks for, in thousandths.
    pub per_mille: u32,
    /// Completion time with all CPUs that it asks for to itself.
    pub time: Nanos,
}

impl Job {
    /// Threads per node of so many CPUs: its demand, rounded up.
    #[must_use]
    pub fn threads(self, cpus: u32) -> u64 {
        (u64::from(self.per_mille) * u64::from(cpus)).div_ceil(1_000)
    }
}

/// What sharing comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// CPUs that threads of both jobs run on, until one of the jobs ends.
    pub shared_cpus: u64,
    /// When each job ends.
    pub completion: [ExactTime; 2],
    utilisation: BigRational,
}

impl Shared {
    /// When the last job ends.
    #[must_use]
    pub fn makespan(&self) -> &ExactTime {
        let [a, b] = &self.completion;
        a.max(b)
    }

    /// The part of the CPU time that is used until the last job ends: work over capacity.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.utilisation.to_f64().unwrap_or(f64::NAN)
    }
}

/// Why sharing is not described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// A job without threads, or with more than there are CPUs.
    #[error("a job has {threads} threads for {cpus} CPUs, and 1 to {cpus} are needed")]
    Threads {
        /// How many threads were given.
        threads: u64,
        /// How many CPUs there are.
        cpus: u32,
    },
    /// A job that takes no time.
    #[error("a job takes no time, and more than 0 is needed")]
    NoTime,
    /// The jobs need no more CPUs than there are.
    #[error("both jobs together have a CPU for each thread: {}", OutOfRange::EqualSlots)]
    NothingShared,
}

/// Two jobs at once on a node of so many CPUs, each balanced by itself.
///
/// # Errors
/// [`ShareError`] where the example's assumptions do not hold.
pub fn share(cpus: u32, jobs: [Job; 2]) -> Result<Shared, ShareError> {
    let threads = jobs.map(|j| j.threads(cpus));
    for (threads, job) in threads.into_iter().zip(&jobs) {
        if threads == 0 || threads > u64::from(cpus) {
            return Err(ShareError::Threads { threads, cpus });
        }
        if job.time == Nanos::ZERO {
            return Err(ShareError::NoTime);
        }
    }
    let shared = threads[0] + threads[1];
    let shared = shared.checked_sub(u64::from(cpus)).filter(|&s| s > 0);
    let shared_cpus = shared.ok_or(ShareError::NothingShared)?;
    // How much longer a job takes while it shares: n / (n - shared/2).
    let stretch = threads.map(|n| ratio(2 * n, 2 * n - shared_cpus));
    let alone = jobs.map(|j| ExactTime::from(j.time));
    let both = [alone[0].by(&stretch[0]), alone[1].by(&stretch[1])];
    let (first, last) = if both[0] <= both[1] { (0, 1) } else { (1, 0) };
    // The other has done this much of its work by then, and has a CPU for each thread from then on.
    let done = both[first].by(&stretch[last].recip());
    let end = both[first].clone() + (alone[last].clone() - done);
    let mut completion = both.clone();
    completion[last] = end.clone();

    let part = |t: &ExactTime| t.by(&ratio(1, cpus));
    let work =
        part(&alone[0].by(&ratio(threads[0], 1))) + part(&alone[1].by(&ratio(threads[1], 1)));
    Ok(Shared { shared_cpus, utilisation: work.part_of(&end), completion })
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = Nanos(1_000_000_000);

    fn job(per_mille: u32) -> Job {
        Job { per_mille, time: T }
    }

    #[test]
    fn the_example_of_section_6() {
        let s = share(16, [job(800), job(300)]).unwrap();
        assert_eq!([job(800), job(300)].map(|j| j.threads(16)), [13, 5]);
        assert_eq!(s.shared_cpus, 2);
        assert_eq!(s.completion[0], ExactTime::from(T).times(13, 12));
        // 13/12 + 1 - (13/12) (4/5).
        assert_eq!(s.completion[1], ExactTime::from(T).times(73, 60));
        assert_eq!(format!("{:.3}", s.completion[0].seconds()), "1.083");
        assert_eq!(format!("{:.3}", s.completion[1].seconds()), "1.217");
        assert_eq!(format!("{:.1}", 100.0 * s.utilisation()), "92.5");
        // In print: the job that is left over counts with its demand.
        let [first, end] = [0, 1].map(|job: usize| s.completion[job].seconds());
        assert_eq!(format!("{:.1}", 100.0 * (first + 0.3 * (end - first)) / end), "92.3");
        assert_eq!(s.makespan(), &s.completion[1]);
        let turned = share(16, [job(300), job(800)]).unwrap();
        assert_eq!(turned.completion[0], s.completion[1]);
        assert_eq!(turned.utilisation(), s.utilisation());
    }

    #[test]
    fn equal_jobs_take_twice_as_long_and_leave_nothing_idle() {
        let s = share(8, [job(1_000), job(1_000)]).unwrap();
        assert_eq!(s.completion, [ExactTime::from(T).times(2, 1), ExactTime::from(T).times(2, 1)]);
        assert_eq!(s.utilisation(), 1.0);
    }

    /// Direct: small steps of exact time, each shared CPU halved, a thread that has ended takes nothing.
    #[test]
    fn sharing_is_what_steps_of_time_give() {
        for (cpus, a, b) in [(16, 800, 300), (8, 1_000, 250), (12, 700, 600), (10, 600, 600)] {
            let (ja, jb) = (job(a), Job { per_mille: b, time: Nanos(700_000_000) });
            let s = share(cpus, [ja, jb]).unwrap();
            let n = [ja, jb].map(|j| j.threads(cpus) as f64);
            let shared = n[0] + n[1] - f64::from(cpus);
            let mut left = [1.0, 0.7];
            let (mut ends, mut t, step) = ([0.0, 0.0], 0.0, 1e-5);
            while left.iter().any(|&l| l > 0.0) {
                let both = left.iter().all(|&l| l > 0.0);
                t += step;
                for j in 0..2 {
                    if left[j] > 0.0 {
                        let lost = if both { shared / 2.0 } else { 0.0 };
                        left[j] -= step * (n[j] - lost) / n[j];
                        ends[j] = t;
                    }
                }
            }
            for (end, exact) in ends.iter().zip(&s.completion) {
                assert!((end - exact.seconds()).abs() < 1e-4, "{cpus} {a} {b}");
            }
            let used = (n[0] + 0.7 * n[1]) / f64::from(cpus) / ends[0].max(ends[1]);
            assert!((used - s.utilisation()).abs() < 1e-3);
        }
    }

    #[test]
    fn what_the_example_does_not_describe_is_refused() {
        assert_eq!(share(16, [job(500), job(500)]), Err(ShareError::NothingShared));
        assert_eq!(
            share(16, [job(1_200), job(500)]),
            Err(ShareError::Threads { threads: 20, cpus: 16 })
        );
        assert!(share(0, [job(500), job(800)]).is_err());
        let none = Job { per_mille: 900, time: Nanos::ZERO };
        assert_eq!(share(16, [none, job(500)]), Err(ShareError::NoTime));
    }
}

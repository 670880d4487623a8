//! Which arm may be better, by what is seen of a program: what `auto` tries, and what is recommended where a program was
//! only looked at.
//!
//! Parts of CPUs gain something where threads have unequal work and share CPUs: those with more of it are what the others
//! wait for. Whether they do gain is then measured ([`crate::arms`]).

use evenly_model::Nanos;

/// What the thread with most work computes beyond the mean, as a part of that, from which on work is unequal; from which on a
/// single window of a fifth of a second says so; and below which it no longer is.
pub(crate) const UNEQUAL: f64 = 0.2;
pub(crate) const CLEARLY: f64 = 0.4;
pub(crate) const EQUAL: f64 = 0.1;
/// The longest epochs in which an arm is compared with others.
const LONGEST_EPOCH: Nanos = Nanos::from_millis(2_000);

/// What is seen of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// How many of its threads compute.
    pub threads: usize,
    /// The CPUs that these have.
    pub cpus: usize,
    /// Whether their work is unequal.
    pub unequal: bool,
    /// How long it takes until they have met again, or waited for each other; None where nothing tells.
    pub epoch: Option<Nanos>,
}

/// What parts of CPUs promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing: no threads share CPUs.
    Apart,
    /// Nothing: all have about as much to do.
    Equal,
    /// Something, but nothing tells how fast the program progresses, so that it cannot be measured while it runs.
    Unmeasured,
    /// Something, but the program progresses in steps of so many seconds that measuring takes too long.
    Long,
    /// Something, and it is measured while it runs.
    Gain,
}

impl Seen {
    /// What parts of CPUs promise to this program.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self.epoch {
            _ if self.cpus < 2 || self.threads <= self.cpus => Promise::Apart,
            _ if !self.unequal => Promise::Equal,
            None => Promise::Unmeasured,
            Some(epoch) if epoch > LONGEST_EPOCH => Promise::Long,
            Some(_) => Promise::Gain,
        }
    }
}

/// What the one with most work computes beyond the mean of all, as a part of that.
pub(crate) fn most_beyond_mean(computed: impl Iterator<Item = f64> + Clone) -> f64 {
    let (all, most) = (computed.clone().sum::<f64>(), computed.clone().fold(0.0, f64::max));
    if all > 0.0 { most * computed.count() as f64 / all - 1.0 } else { 0.0 }
}

/// Whether threads have unequal work that computed so much over a run.
#[must_use]
pub fn is_unequal(computed: impl Iterator<Item = f64> + Clone) -> bool {
    most_beyond_mean(computed) > UNEQUAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_promise_something_where_threads_of_unequal_work_share_cpus() {
        let seen = Seen { threads: 4, cpus: 2, unequal: true, epoch: Some(Nanos(1_000)) };
        assert_eq!(seen.promise(), Promise::Gain);
        assert_eq!(Seen { threads: 2, ..seen }.promise(), Promise::Apart);
        assert_eq!(Seen { cpus: 1, ..seen }.promise(), Promise::Apart);
        assert_eq!(Seen { unequal: false, ..seen }.promise(), Promise::Equal);
        assert_eq!(Seen { epoch: None, ..seen }.promise(), Promise::Unmeasured);
        let long = Some(Nanos::from_millis(2_001));
        assert_eq!(Seen { epoch: long, ..seen }.promise(), Promise::Long);
    }

    #[test]
    fn what_the_busiest_computes_beyond_the_mean() {
        let beyond = |computed: &[f64]| most_beyond_mean(computed.iter().copied());
        assert!((beyond(&[1.0, 1.0, 4.0, 2.0]) - 1.0).abs() < 1e-12);
        assert_eq!([beyond(&[3.0, 3.0]), beyond(&[]), beyond(&[0.0, 0.0])], [0.0; 3]);
        assert!(is_unequal([1.21, 0.79].into_iter()) && !is_unequal([1.2, 0.8].into_iter()));
    }
}

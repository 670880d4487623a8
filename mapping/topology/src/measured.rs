//! What a measurement found, and the factors that follow from it.
//!
//! Invariant: pure; every figure is from values that were measured, and they are all kept.

use crate::date::date;
use crate::factors::{Factors, Source};
use evenly_cluster::RATIOS;
use evenly_model::stats::median;
use serde::{Deserialize, Serialize};

/// A figure that was measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median of all measurements.
    pub median: f64,
    /// The lowest of them.
    pub low: f64,
    /// The highest of them.
    pub high: f64,
    /// All values, in the order in which they were measured.
    pub values: Vec<f64>,
}

impl Spread {
    /// Of these values; None where there is none, or one is not above 0.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        if !values.iter().all(|v| v.is_finite() && *v > 0.0) {
            return None;
        }
        let median = median(&values)?;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        Some(Self { median, low, high, values })
    }

    /// Whether it is what its values say, but for the last digit, which a file may not keep.
    pub(crate) fn is_sound(&self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
        Self::of(self.values.clone()).is_some_and(|s| {
            near(self.median, s.median) && near(self.low, s.low) && near(self.high, s.high)
        })
    }
}

/// How sure it is that the memory was on the node that it was to be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binding {
    /// It was bound, and pages all over it were looked up.
    Checked,
    /// It was bound; the system does not say where pages are.
    Bound,
    /// It could not be bound; there is no other node.
    OnlyNode,
}

/// The CPUs of one node reading the memory of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Number of the node whose CPUs read.
    pub reader: u32,
    /// Number of the node whose memory is read.
    pub memory: u32,
    /// Nanoseconds of a dependent load, in CPU time of the thread that reads.
    pub latency_ns: Spread,
    /// Bytes a second that all cores of the node together read, one after the other.
    pub read_bytes_per_s: Option<Spread>,
    /// Threads that read for the bandwidth: one for each core.
    pub readers: u32,
    /// Size of the buffer; latency is measured in the first half of it.
    pub buffer_bytes: u64,
    /// Share of the buffer that was in huge pages; None where the system does not say.
    pub huge_share: Option<f64>,
    /// Where the memory was.
    pub binding: Binding,
}

/// Two cores that hand a cache line to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachePair {
    /// The innermost level of caches that they share, such as L3.
    pub level: String,
    /// A CPU of each of them.
    pub cpus: [u32; 2],
    /// Number of their NUMA node.
    pub node: u32,
    /// Nanoseconds from what one core writes to the other's having read it: half of a round trip.
    pub latency_ns: Spread,
}

/// What was measured on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// When, in seconds since 1970.
    pub unix_s: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Every pair of nodes that could be measured.
    pub pairs: Vec<Pair>,
    /// For each level of caches that cores share two of those that share it; none in files of before it
    /// was measured.
    #[serde(default)]
    pub caches: Vec<CachePair>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
    /// What else the CPUs did meanwhile; None where the system does not say, and in files of before it
    /// was looked at.
    #[serde(default)]
    pub load: Option<Meanwhile>,
}

/// Parts of the time of the CPUs that were measured, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Meanwhile {
    /// What other programs had.
    pub others: f64,
    /// What the host of a virtual machine took.
    pub stolen: f64,
}

/// A factor with its spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Factor {
    /// Median latency over the median of the reader's own memory; 1 for that.
    pub value: f64,
    /// Lowest latency over the same.
    pub low: f64,
    /// Highest latency over the same.
    pub high: f64,
}

impl Measurement {
    /// When it was measured, in words.
    #[must_use]
    pub fn when(&self) -> String {
        date(self.unix_s)
    }

    /// What was measured for the CPUs of one node and the memory of one.
    #[must_use]
    pub fn pair(&self, reader: u32, memory: u32) -> Option<&Pair> {
        self.pairs.iter().find(|p| (p.reader, p.memory) == (reader, memory))
    }

    /// The factor of a node's memory for a node's CPUs: its latency over that of their own memory
    /// (NucoLB, section III-A).
    #[must_use]
    pub fn factor(&self, reader: u32, memory: u32) -> Option<Factor> {
        let own = self.pair(reader, reader)?.latency_ns.median;
        let l = &self.pair(reader, memory)?.latency_ns;
        Some(Factor { value: l.median / own, low: l.low / own, high: l.high / own })
    }

    /// What cores that share a cache of this level pay, over the latency of their own memory. They share
    /// the memory, too, so that it is 1 at most.
    #[must_use]
    pub fn cache_factor(&self, level: &str) -> Option<f64> {
        let pair = self.caches.iter().find(|c| c.level == level)?;
        let own = self.pair(pair.node, pair.node)?.latency_ns.median;
        let factor = (pair.latency_ns.median / own).min(1.0);
        RATIOS.contains(&factor).then_some(factor)
    }

    /// The factors between these nodes, with bandwidths where all were measured; None where a latency
    /// is missing.
    #[must_use]
    pub fn factors(&self, nodes: &[u32]) -> Option<Factors> {
        let pairs: Vec<&Pair> = nodes
            .iter()
            .flat_map(|&i| nodes.iter().map(move |&j| self.pair(i, j)))
            .collect::<Option<_>>()?;
        let latencies: Vec<f64> = pairs.iter().map(|p| p.latency_ns.median).collect();
        let factors = Factors::from_latencies(&latencies, Source::Measured).ok()?;
        let bandwidth = |p: &&Pair| p.read_bytes_per_s.as_ref().map(|b| b.median);
        let bandwidths: Option<Vec<f64>> = pairs.iter().map(bandwidth).collect();
        match bandwidths {
            Some(b) => factors.with_bandwidths(b).ok(),
            None => Some(factors),
        }
    }

    /// Whether it can have come from measuring: what is read from a file need not have.
    pub(crate) fn is_sound(&self) -> bool {
        let part = |p: f64| (0.0..=1.0).contains(&p);
        let load = self.load.is_none_or(|l| part(l.others) && part(l.stolen));
        let caches = self.caches.iter().all(|c| c.latency_ns.is_sound());
        load && caches
            && self.pairs.iter().all(|p| {
                p.latency_ns.is_sound() && p.read_bytes_per_s.as_ref().is_none_or(Spread::is_sound)
            })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pair(reader: u32, memory: u32, latencies: &[f64]) -> Pair {
        Pair {
            reader,
            memory,
            latency_ns: Spread::of(latencies.to_vec()).unwrap(),
            read_bytes_per_s: Spread::of(vec![2e10, 1e10, 3e10]),
            readers: 4,
            buffer_bytes: 64 << 20,
            huge_share: Some(1.0),
            binding: Binding::Checked,
        }
    }

    pub(crate) fn two_nodes() -> Measurement {
        Measurement {
            unix_s: 1_700_000_000,
            seconds: 2.5,
            pairs: vec![
                pair(0, 0, &[80.0, 79.0, 84.0]),
                pair(0, 1, &[120.0, 118.0, 126.0]),
                pair(1, 0, &[150.0, 150.0, 150.0]),
                pair(1, 1, &[100.0, 100.0, 125.0]),
            ],
            caches: vec![],
            notes: vec![],
            load: None,
        }
    }

    /// Two CPUs of node 1 that share an L2.
    pub(crate) fn cache_pair(latencies: &[f64]) -> CachePair {
        let latency_ns = Spread::of(latencies.to_vec()).unwrap();
        CachePair { level: String::from("L2"), cpus: [2, 3], node: 1, latency_ns }
    }

    #[test]
    fn caches_are_over_the_memory_of_their_node() {
        let mut m = two_nodes();
        assert_eq!(m.cache_factor("L2"), None);
        m.caches.push(cache_pair(&[20.0, 25.0, 90.0]));
        assert_eq!((m.cache_factor("L2"), m.cache_factor("L3")), (Some(0.25), None));
        assert!(m.is_sound());
        m.caches[0].latency_ns.low = 1.0;
        assert!(!m.is_sound());
        // On a busy machine; memory they share, too.
        m.caches[0] = cache_pair(&[300.0]);
        assert_eq!(m.cache_factor("L2"), Some(1.0));
        m.caches[0].node = 7;
        assert_eq!(m.cache_factor("L2"), None);
    }

    #[test]
    fn factors_are_medians_over_the_own_median() {
        let m = two_nodes();
        let f = m.factors(&[0, 1]).unwrap();
        assert_eq!((f.values(), f.source()), (&[1.0, 1.5, 1.5, 1.0][..], Source::Measured));
        assert_eq!(f.bandwidths(), Some(&[2e10; 4][..]));
        let own = m.factor(0, 0).unwrap();
        assert_eq!((own.value, own.low, own.high), (1.0, 79.0 / 80.0, 84.0 / 80.0));
        assert_eq!(m.factor(0, 1).unwrap().high, 126.0 / 80.0);
        assert_eq!(m.factors(&[1]).unwrap().values(), [1.0]);
        assert!(m.factors(&[0, 2]).is_none() && m.factor(2, 0).is_none());
        assert!(m.is_sound());
    }

    #[test]
    fn without_a_bandwidth_there_are_factors_still() {
        let mut m = two_nodes();
        m.pairs[2].read_bytes_per_s = None;
        assert!(m.factors(&[0, 1]).unwrap().bandwidths().is_none());
    }

    #[test]
    fn spreads_are_of_numbers_above_0() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![1.0, 0.0]), None);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
        let s = Spread::of(vec![3.0, 1.0, 2.0, 8.0]).unwrap();
        assert_eq!((s.median, s.low, s.high), (2.5, 1.0, 8.0));
        let mut m = two_nodes();
        m.pairs[0].latency_ns.median = 1.0;
        assert!(!m.is_sound());
        let load = |others| Some(Meanwhile { others, stolen: 0.0 });
        assert!(Measurement { load: load(1.0), ..two_nodes() }.is_sound());
        assert!(!Measurement { load: load(-0.1), ..two_nodes() }.is_sound());
    }
}

//! NUCO factors: what it costs one NUMA node to read from another, over what its own memory costs it
//! (NucoLB, section III-A), and how those of several hosts and of the network between them become one
//! matrix (section IV).
//!
//! Invariant: pure arithmetic; factors are some of [`RATIOS`], and 1 from a node to itself.

use evenly_cluster::{BANDWIDTH_NEEDED, BANDWIDTHS, RATIO_NEEDED, RATIOS};
use evenly_model::short;
use serde::{Deserialize, Serialize};

/// What a message between hosts is taken to cost, over the latency of local memory, where nothing is
/// known: the least of the NETWORK factors on the paper's cluster (NucoLB, Figure 1). Others have
/// hundreds.
pub const ASSUMED_NETWORK_FACTOR: f64 = 3.4;

/// Where factors come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured on this machine by evenly.
    Measured,
    /// Distances that a user put into the XML; where evenly wrote it, they were measured.
    Xml,
    /// The firmware's table of distances (ACPI SLIT): declared, not measured.
    Slit,
    /// Given by the user.
    Given,
    /// Nothing is known, and all 1 would be far from it: what the network between hosts is taken to cost
    /// ([`ASSUMED_NETWORK_FACTOR`]), and what caches are.
    Assumed,
    /// Nothing is known: all are 1.
    Unknown,
}

impl Source {
    /// Where factors come from, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Xml => "distances in the XML",
            Self::Slit => "declared by the firmware (SLIT), not measured",
            Self::Given => "given",
            Self::Assumed => "assumed: 1 within a host, 3.4 between hosts",
            Self::Unknown => "unknown: all 1",
        }
    }
}

/// Why factors are none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FactorsError {
    /// The numbers are no square.
    #[error("{what}: {found} numbers were found; a square matrix is needed, n x n for n {things}")]
    Size {
        /// The matrix of latencies or that of bandwidths, in words.
        what: &'static str,
        /// How many numbers it has.
        found: usize,
        /// What rows and columns stand for.
        things: &'static str,
    },
    /// A value that is none.
    #[error("{what} of row {row}, column {column} is {}; {needed} is needed", short(*found))]
    Value {
        /// What it was to be.
        what: &'static str,
        /// The row of the number, from 0.
        row: usize,
        /// The column of the number, from 0.
        column: usize,
        /// The number that stands there.
        found: f64,
        /// What a number there has to be, in words.
        needed: &'static str,
    },
    /// As many matrices as hosts are needed.
    #[error("the network has {network} hosts, and {hosts} were given; both must be the same")]
    Hosts {
        /// Hosts of the network's matrix.
        network: usize,
        /// How many hosts were given.
        hosts: usize,
    },
}

/// Factors between the NUMA nodes that have cores, in the order in which the machine has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Factors {
    size: usize,
    values: Vec<f64>,
    source: Source,
    bandwidths: Option<Vec<f64>>,
}

/// The side of a square of so many numbers.
fn side(numbers: usize) -> Option<usize> {
    let n = numbers.isqrt();
    (n * n == numbers && n > 0).then_some(n)
}

/// Whether all values are such; `needed` says so in words.
fn check(
    what: &'static str,
    size: usize,
    values: &[f64],
    fits: impl Fn(f64) -> bool,
    needed: &'static str,
) -> Result<(), FactorsError> {
    match values.iter().position(|v| !fits(*v)) {
        None => Ok(()),
        Some(k) => {
            let (row, column, found) = (k / size, k % size, values[k]);
            Err(FactorsError::Value { what, row, column, found, needed })
        }
    }
}

/// Latencies, in any unit.
fn positive(what: &'static str, size: usize, values: &[f64]) -> Result<(), FactorsError> {
    check(what, size, values, |v| v.is_finite() && v > 0.0, "a number above 0")
}

fn ratios(what: &'static str, size: usize, values: &[f64]) -> Result<(), FactorsError> {
    check(what, size, values, |v| RATIOS.contains(&v), RATIO_NEEDED)
}

impl Factors {
    /// From the matrix itself, row by row.
    ///
    /// # Errors
    /// Where it is no square, a value is none of [`RATIOS`], or one of the diagonal is not 1.
    pub fn new(values: Vec<f64>, source: Source) -> Result<Self, FactorsError> {
        let what = "the factor";
        let size = side(values.len()).ok_or(FactorsError::Size {
            what: "the factors",
            found: values.len(),
            things: "NUMA nodes",
        })?;
        ratios(what, size, &values)?;
        if let Some(k) = (0..size).find(|k| values[k * size + k] != 1.0) {
            let (found, needed) = (values[k * size + k], "1, from a node to itself,");
            return Err(FactorsError::Value { what, row: k, column: k, found, needed });
        }
        Ok(Self { size, values, source, bandwidths: None })
    }

    /// Factors that the user gives, row by row.
    ///
    /// # Errors
    /// As [`Factors::new`].
    pub fn given(values: Vec<f64>) -> Result<Self, FactorsError> {
        Self::new(values, Source::Given)
    }

    /// From latencies in any unit, row by row: each over that of its row's diagonal (NucoLB,
    /// section III-A).
    ///
    /// # Errors
    /// Where they are no square, one is not above 0, or a factor would be none.
    pub fn from_latencies(latencies: &[f64], source: Source) -> Result<Self, FactorsError> {
        let size = side(latencies.len()).ok_or(FactorsError::Size {
            what: "the latencies",
            found: latencies.len(),
            things: "NUMA nodes",
        })?;
        positive("the latency", size, latencies)?;
        let over = |k: usize| match (k / size, k % size) {
            (i, j) if i == j => 1.0,
            (i, _) => latencies[k] / latencies[i * size + i],
        };
        Self::new((0..latencies.len()).map(over).collect(), source)
    }

    /// For so many nodes of which nothing is known: all 1.
    #[must_use]
    pub fn unknown(size: usize) -> Self {
        Self { size, values: vec![1.0; size * size], source: Source::Unknown, bandwidths: None }
    }

    /// With the bandwidths at which the CPUs of each node (rows) read from each (columns), in bytes a
    /// second.
    ///
    /// # Errors
    /// Where they are of another size, or one is none of [`BANDWIDTHS`].
    pub fn with_bandwidths(mut self, bandwidths: Vec<f64>) -> Result<Self, FactorsError> {
        if bandwidths.len() != self.values.len() {
            return Err(FactorsError::Size {
                what: "the bandwidths",
                found: bandwidths.len(),
                things: "NUMA nodes",
            });
        }
        let fits = |b: f64| BANDWIDTHS.contains(&b);
        check("the bandwidth", self.size, &bandwidths, fits, BANDWIDTH_NEEDED)?;
        self.bandwidths = Some(bandwidths);
        Ok(self)
    }

    /// How many nodes they are for.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.size
    }

    /// The matrix, row by row: from row i, column j, what node i pays to read from node j.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// What node `to` pays to read from node `from`.
    #[must_use]
    pub fn at(&self, to: usize, from: usize) -> f64 {
        self.values[to * self.size + from]
    }

    /// Where they come from.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Bytes a second at which the CPUs of each node (rows) read from each (columns), where that was
    /// measured.
    #[must_use]
    pub fn bandwidths(&self) -> Option<&[f64]> {
        self.bandwidths.as_deref()
    }
}

/// NETWORK factors between hosts: the latency of a message over that of local memory (NucoLB,
/// section IV).
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkFactors {
    hosts: usize,
    values: Vec<f64>,
}

impl NetworkFactors {
    /// From the factors themselves, row by row; the diagonal does not count.
    ///
    /// # Errors
    /// Where they are no square, or one outside the diagonal is none of [`RATIOS`].
    pub fn new(mut values: Vec<f64>) -> Result<Self, FactorsError> {
        let hosts = side(values.len()).ok_or(FactorsError::Size {
            what: "the network's factors",
            found: values.len(),
            things: "hosts",
        })?;
        (0..hosts).for_each(|k| values[k * hosts + k] = 1.0);
        ratios("the network's factor", hosts, &values)?;
        Ok(Self { hosts, values })
    }

    /// The same factor between all hosts.
    ///
    /// # Errors
    /// Where there is no host, or the factor is none of [`RATIOS`].
    pub fn uniform(hosts: usize, factor: f64) -> Result<Self, FactorsError> {
        Self::new(vec![factor; hosts * hosts])
    }

    /// From the latencies of messages between hosts (row by row: the row receives; one way, so half
    /// of a ping-pong) and of each host's local memory, in the same unit.
    ///
    /// # Errors
    /// Where there are not hosts x hosts messages, or a latency is not above 0.
    pub fn from_latencies(messages: &[f64], memory: &[f64]) -> Result<Self, FactorsError> {
        let hosts = memory.len();
        if messages.len() != hosts * hosts || hosts == 0 {
            return Err(FactorsError::Size {
                what: "the latencies of messages",
                found: messages.len(),
                things: "hosts",
            });
        }
        positive("the latency of local memory", hosts, memory)?;
        Self::new(messages.iter().enumerate().map(|(k, m)| m / memory[k / hosts]).collect())
    }

    /// How many hosts there are.
    #[must_use]
    pub const fn hosts(&self) -> usize {
        self.hosts
    }

    /// What host `to` pays for a message from host `from`.
    #[must_use]
    pub fn at(&self, to: usize, from: usize) -> f64 {
        self.values[to * self.hosts + from]
    }
}

/// The NUCO factors of several hosts as one matrix, row by row, the nodes of the first host first:
/// within a host its NUMA factors, between hosts the network's (NucoLB, sections III-A and IV).
///
/// # Errors
/// Where the network has another number of hosts.
pub fn compose(hosts: &[&Factors], network: &NetworkFactors) -> Result<Vec<f64>, FactorsError> {
    if hosts.len() != network.hosts() {
        return Err(FactorsError::Hosts { network: network.hosts(), hosts: hosts.len() });
    }
    let places: Vec<(usize, usize)> =
        hosts.iter().enumerate().flat_map(|(h, f)| (0..f.nodes()).map(move |n| (h, n))).collect();
    let factor = |(to, i): (usize, usize), (from, j): (usize, usize)| {
        if to == from { hosts[to].at(i, j) } else { network.at(to, from) }
    };
    Ok(places.iter().flat_map(|&to| places.iter().map(move |&from| factor(to, from))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn latencies_are_over_those_of_the_own_memory() {
        let f = Factors::from_latencies(&[80.0, 120.0, 150.0, 100.0], Source::Measured).unwrap();
        assert_eq!((f.values(), f.nodes()), (&[1.0, 1.5, 1.5, 1.0][..], 2));
        let slit = Factors::from_latencies(&[10.0, 21.0, 21.0, 10.0], Source::Slit).unwrap();
        assert_eq!((slit.at(0, 1), slit.source()), (2.1, Source::Slit));
    }

    #[test]
    fn hosts_and_network_become_one_matrix() {
        // As 20xNUMA4 in the paper: 1.52 within a host, the network behind it.
        let host = Factors::given(vec![1.0, 1.52, 1.53, 1.0]).unwrap();
        let one = Factors::unknown(1);
        let network = NetworkFactors::from_latencies(
            &[0.0, 340.0, 500.0, 0.0], // us; the diagonal does not count
            &[100.0, 125.0],
        )
        .unwrap();
        assert_eq!(
            compose(&[&host, &one], &network).unwrap(),
            [1.0, 1.52, 3.4, 1.53, 1.0, 3.4, 4.0, 4.0, 1.0]
        );
        assert_eq!(compose(&[&host], &network), Err(FactorsError::Hosts { network: 2, hosts: 1 }));
    }

    #[test]
    fn what_is_no_factor_is_named() {
        let said = |r: Result<Factors, FactorsError>| r.unwrap_err().to_string();
        assert!(said(Factors::given(vec![1.0, 2.0])).contains("2 numbers were found"));
        assert!(said(Factors::given(vec![])).contains("0 numbers"));
        assert!(said(Factors::given(vec![1.0, 0.0, 1.0, 1.0])).contains("row 0, column 1 is 0"));
        assert!(said(Factors::given(vec![1.0, 1.0, 1.0, 2.0])).contains("row 1, column 1 is 2"));
        let nan = Factors::from_latencies(&[f64::NAN], Source::Measured);
        assert!(said(nan).contains("NaN"));
        // What could be computed with it would be no number any more.
        for far in [1e308, 2e9, 1e-10] {
            let given = said(Factors::given(vec![1.0, far, 1.0, 1.0]));
            assert!(given.contains("from 1e-9 to 1e9, is needed"), "{given}");
            let latencies = [1.0, far, 1.0, 1.0];
            assert!(Factors::from_latencies(&latencies, Source::Xml).is_err());
        }
        let far = Factors::from_latencies(&[1e-308, 1e308, 1.0, 1.0], Source::Xml);
        assert!(said(far).contains("row 0, column 1 is inf"));
        let f = Factors::unknown(2);
        assert!(f.clone().with_bandwidths(vec![1.0]).is_err());
        assert!(f.clone().with_bandwidths(vec![1.0, -1.0, 1.0, 1.0]).is_err());
        assert!(f.clone().with_bandwidths(vec![1e19; 4]).is_err());
        assert!(f.with_bandwidths(vec![1e9; 4]).unwrap().bandwidths().is_some());
        assert!(NetworkFactors::uniform(2, f64::INFINITY).is_err());
        assert!(NetworkFactors::uniform(2, 1e10).is_err());
        assert!(NetworkFactors::uniform(0, 2.0).is_err());
        assert!(NetworkFactors::from_latencies(&[1.0; 3], &[1.0; 2]).is_err());
        assert_eq!(NetworkFactors::uniform(1, f64::NAN).unwrap().at(0, 0), 1.0);
    }

    proptest! {
        #[test]
        fn composed_blocks_are_the_hosts_own(
            sizes in proptest::collection::vec(1usize..4, 1..4), factor in 1.0..9.0f64,
        ) {
            let hosts: Vec<Factors> = sizes
                .iter()
                .map(|&n| {
                    let at = |k: usize| if k / n == k % n { 1.0 } else { 1.0 + k as f64 };
                    Factors::given((0..n * n).map(at).collect()).unwrap()
                })
                .collect();
            let refs: Vec<&Factors> = hosts.iter().collect();
            let all = compose(&refs, &NetworkFactors::uniform(sizes.len(), factor).unwrap()).unwrap();
            let n: usize = sizes.iter().sum();
            prop_assert_eq!(all.len(), n * n);
            let mut start = 0;
            for (h, size) in sizes.iter().enumerate() {
                for i in 0..*size {
                    for j in 0..n {
                        let inside = (start..start + size).contains(&j);
                        let expected = if inside { hosts[h].at(i, j - start) } else { factor };
                        prop_assert_eq!(all[(start + i) * n + j], expected);
                    }
                }
                start += size;
            }
        }
    }
}

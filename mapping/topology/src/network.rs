//! What a ping-pong between hosts found (`probe/c/pingpong.c`), and the NETWORK factors that follow from it
//! (NucoLB, section IV).
//!
//! Invariant: pure; there are at least two hosts with names of their own, each pair of them is there
//! exactly once, and every figure is from values that were measured, which are all kept.

use crate::date::date;
use crate::factors::{FactorsError, NetworkFactors};
use crate::measured::Spread;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name and version of what the ping-pong writes.
const SCHEMA_PING_PONG: &str = "evenly.pingpong/1";
/// Most hosts: as in `probe/c/pingpong.c`.
pub(crate) const MOST_HOSTS: usize = 256;
/// Most bytes that the ping-pong writes: its pairs are some 600 bytes each.
pub const MOST_PING_PONG_BYTES: u64 = 64 << 20;

/// Why a ping-pong says nothing about a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Nothing that it writes.
    #[error("what the ping-pong wrote cannot be read: {0}")]
    Unreadable(String),
    /// There is no network.
    #[error(
        "all ranks ran on host '{host}'; a rank on each of two hosts or more is needed, as with \
         mpirun -host a,b -n 2, and hosts must have names of their own"
    )]
    OneHost {
        /// The host on which all ranks ran.
        host: String,
    },
}

/// What was measured between two hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPair {
    /// The two, by their places in [`Network::hosts`], the lower one first.
    pub hosts: [usize; 2],
    /// Nanoseconds of a small message, one way: half a round trip.
    pub latency_ns: Spread,
    /// Bytes a second of large messages.
    pub bytes_per_s: Spread,
}

/// What was measured between hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// When, in seconds since 1970.
    pub unix_s: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The MPI, as it calls itself.
    pub mpi: String,
    /// Bytes of a small message.
    pub small_bytes: u64,
    /// Bytes of a large message.
    pub large_bytes: u64,
    /// Names of the hosts, in the order of their first ranks.
    pub hosts: Vec<String>,
    /// Every two of them.
    pub pairs: Vec<HostPair>,
}

#[derive(Deserialize)]
struct PingPong {
    schema: String,
    mpi: String,
    small_bytes: u64,
    large_bytes: u64,
    hosts: Vec<PlayingHost>,
    pairs: Vec<PlayedPair>,
}

#[derive(Deserialize)]
struct PlayingHost {
    name: String,
}

#[derive(Deserialize)]
struct PlayedPair {
    hosts: [usize; 2],
    latency_s: Vec<f64>,
    bytes_per_s: Vec<f64>,
}

/// Reads what the ping-pong wrote. `unix_s` is when it was started, and `seconds` how long it took.
///
/// # Errors
/// Where it is nothing of the kind, or all ranks ran on one host.
pub fn read_ping_pong(text: &[u8], unix_s: u64, seconds: f64) -> Result<Network, NetworkError> {
    let wrong = |what: String| NetworkError::Unreadable(what);
    let found: PingPong = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    if found.schema != SCHEMA_PING_PONG {
        return Err(wrong(format!(
            "its schema is '{}'; {SCHEMA_PING_PONG} is needed",
            found.schema
        )));
    }
    if let [only] = &found.hosts[..] {
        return Err(NetworkError::OneHost { host: only.name.clone() });
    }
    let pair = |p: PlayedPair| {
        let spread = |values: Vec<f64>, what: &str| {
            Spread::of(values).ok_or_else(|| {
                wrong(format!("the {what} between hosts {:?} are no numbers above 0", p.hosts))
            })
        };
        let latencies = p.latency_s.iter().map(|s| s * 1e9).collect();
        Ok(HostPair {
            hosts: p.hosts,
            latency_ns: spread(latencies, "latencies")?,
            bytes_per_s: spread(p.bytes_per_s, "bandwidths")?,
        })
    };
    let network = Network {
        unix_s,
        seconds,
        mpi: found.mpi,
        small_bytes: found.small_bytes,
        large_bytes: found.large_bytes,
        hosts: found.hosts.into_iter().map(|h| h.name).collect(),
        pairs: found.pairs.into_iter().map(pair).collect::<Result<_, _>>()?,
    };
    if !network.is_whole() {
        return Err(wrong(String::from("not every pair of its hosts is there once")));
    }
    Ok(network)
}

impl Network {
    /// When it was measured, in words.
    #[must_use]
    pub fn when(&self) -> String {
        date(self.unix_s)
    }

    /// What was measured between two hosts, by their places.
    #[must_use]
    pub fn pair(&self, a: usize, b: usize) -> Option<&HostPair> {
        let hosts = [a.min(b), a.max(b)];
        self.pairs.iter().find(|p| p.hosts == hosts)
    }

    /// The NETWORK factors: the latency of a message over that of the receiver's local memory, which is
    /// given in nanoseconds for each host.
    ///
    /// # Errors
    /// Where there is not one latency of memory for each host, or one is not above 0.
    pub fn factors(&self, memory_ns: &[f64]) -> Result<NetworkFactors, FactorsError> {
        let n = self.hosts.len();
        let message =
            |k: usize| self.pair(k / n, k % n).map_or(f64::NAN, |pair| pair.latency_ns.median);
        NetworkFactors::from_latencies(&(0..n * n).map(message).collect::<Vec<_>>(), memory_ns)
    }

    /// Whether every two hosts are there once, and no others.
    fn is_whole(&self) -> bool {
        let n = self.hosts.len();
        let names: BTreeSet<&String> = self.hosts.iter().collect();
        let pairs: BTreeSet<[usize; 2]> = self.pairs.iter().map(|p| p.hosts).collect();
        (2..=MOST_HOSTS).contains(&n)
            && names.len() == n
            && pairs.len() == self.pairs.len()
            && pairs.len() == n * (n - 1) / 2
            && pairs.iter().all(|[a, b]| a < b && *b < n)
    }

    /// Whether it can have come from measuring: what is read from a file need not have.
    pub(crate) fn is_sound(&self) -> bool {
        self.is_whole()
            && self.pairs.iter().all(|p| p.latency_ns.is_sound() && p.bytes_per_s.is_sound())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn text(hosts: &[&str], pairs: &[([usize; 2], f64)]) -> String {
        let hosts: Vec<_> = hosts
            .iter()
            .map(|name| serde_json::json!({ "name": name, "first_rank": 0, "ranks": 1 }))
            .collect();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(hosts, us)| {
                let latency: Vec<f64> = [1.0, 0.9, 1.5].iter().map(|f| f * us * 1e-6).collect();
                serde_json::json!({ "hosts": hosts, "latency_s": latency, "bytes_per_s": [1e9, 2e9, 3e9] })
            })
            .collect();
        serde_json::json!({
            "schema": SCHEMA_PING_PONG, "mpi": "An MPI 1.0", "ranks": 4, "small_bytes": 8,
            "large_bytes": 1 << 20, "hosts": hosts, "pairs": pairs,
        })
        .to_string()
    }

    pub(crate) fn two_hosts() -> Network {
        let text = text(&["a", "b"], &[([0, 1], 34.0)]);
        read_ping_pong(text.as_bytes(), 1_700_000_000, 0.5).unwrap()
    }

    #[test]
    fn factors_are_messages_over_the_receivers_memory() {
        let network = two_hosts();
        assert!(network.is_sound());
        let pair = network.pair(1, 0).unwrap();
        assert!((pair.latency_ns.median - 34_000.0).abs() < 1e-6);
        assert_eq!(pair.bytes_per_s.median, 2e9);
        let factors = network.factors(&[100.0, 125.0]).unwrap();
        assert!((factors.at(0, 1) - 340.0).abs() < 1e-9);
        assert!((factors.at(1, 0) - 272.0).abs() < 1e-9);
        assert_eq!(factors.at(1, 1), 1.0);
        assert!(network.factors(&[100.0]).is_err() && network.factors(&[100.0, 0.0]).is_err());
    }

    #[test]
    fn three_hosts_have_three_pairs() {
        let pairs = [([0, 1], 10.0), ([0, 2], 20.0), ([1, 2], 30.0)];
        let network = read_ping_pong(text(&["x", "y", "z"], &pairs).as_bytes(), 0, 1.0).unwrap();
        let factors = network.factors(&[100.0; 3]).unwrap();
        assert!((factors.at(2, 1) - 300.0).abs() < 1e-9 && (factors.at(0, 2) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_network() {
        let said = |text: &str| read_ping_pong(text.as_bytes(), 0, 1.0).unwrap_err().to_string();
        let one = said(&text(&["a"], &[]));
        assert!(one.contains("all ranks ran on host 'a'"), "{one}");
        for bad in [
            String::new(),
            String::from("{}"),
            text(&["a", "b"], &[([0, 1], 1.0)]).replace("pong/1", "pong/2"),
            text(&[], &[]),
            text(&["a", "b"], &[]),
            text(&["a", "a"], &[([0, 1], 1.0)]),
            text(&["a", "b"], &[([1, 0], 1.0)]),
            text(&["a", "b"], &[([0, 2], 1.0)]),
            text(&["a", "b"], &[([0, 1], 1.0), ([0, 1], 1.0)]),
            text(&["a", "b"], &[([0, 1], 0.0)]),
            text(&["a", "b"], &[([0, 1], 1.0)]).replace("[1000000000.0,", "[null,"),
            text(&["a", "b"], &[([0, 1], 1.0)]).replace("[1000000000.0,", "[-1,"),
        ] {
            let words = said(&bad);
            assert!(words.starts_with("what the ping-pong wrote"), "{bad}: {words}");
            assert_eq!(words.lines().count(), 1);
        }
    }
}

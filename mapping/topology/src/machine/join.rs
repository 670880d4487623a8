//! Several hosts as one machine.

use super::{Joined, MachineTopology, Origin};
use crate::factors::{Factors, FactorsError, Source, compose};
use crate::hosts::{self, HostXml};
use crate::hwloc::{self, Input};
use crate::measured::{Measurement, Pair};
use crate::network::Network;
use evenly_model::stats::median;

/// A host that is to be put together with others.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name, as it calls itself.
    pub name: String,
    /// Its tree, with what was measured on it.
    pub machine: MachineTopology,
}

/// Why hosts cannot be put together.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// A host of the network of which nothing else is known.
    #[error(
        "messages were measured to host {host}, and nothing is known of its memory; every host needs \
         a rank in all runs of the launcher"
    )]
    Missing {
        /// The host of which nothing is known.
        host: String,
    },
    /// A host whose own memory was not measured, so that nothing can be related to it.
    #[error(
        "the memory of host {host} was not measured, and factors are over its latency; run `evenly \
         topology --measure` there to see why"
    )]
    NotMeasured {
        /// The host whose memory was not measured.
        host: String,
    },
    /// Factors that are none.
    #[error(transparent)]
    Factors(#[from] FactorsError),
    /// No machine came out.
    #[error("the hosts are no machine together: {0}")]
    Machine(String),
}

/// Several hosts as one machine, in the order of the network: within a host its own factors, between
/// hosts the latency of a message over that of the receiver's local memory (NucoLB, section IV).
/// CPUs, cores and nodes are numbered through, host by host; hosts may differ in everything.
///
/// # Errors
/// Where a host of the network is missing, or its memory was not measured.
pub fn join(hosts: &[Host], network: Network) -> Result<MachineTopology, JoinError> {
    let of_network = |name: &String| {
        let host = hosts.iter().find(|h| h.name == *name);
        host.ok_or_else(|| JoinError::Missing { host: name.clone() })
    };
    let hosts: Vec<&Host> = network.hosts.iter().map(of_network).collect::<Result<_, _>>()?;
    let (mut own, mut memory_ns) = (Vec::new(), Vec::new());
    for host in &hosts {
        let not_measured = || JoinError::NotMeasured { host: host.name.clone() };
        own.push(host.machine.measured_factors().ok_or_else(not_measured)?);
        memory_ns.push(host.machine.memory_ns().ok_or_else(not_measured)?);
    }
    let mut factors = Factors::new(
        compose(&own.iter().collect::<Vec<_>>(), &network.factors(&memory_ns)?)?,
        Source::Measured,
    )?;
    if let Some(bandwidths) = bandwidths(&own, &network) {
        factors = factors.with_bandwidths(bandwidths)?;
    }
    let parts: Vec<HostXml<'_>> =
        hosts.iter().map(|h| HostXml { name: &h.name, xml: h.machine.plain_xml() }).collect();
    let merged = hosts::merge(&parts, median(&memory_ns)).map_err(JoinError::Machine)?;
    let found = hwloc::read(Input::Xml(&merged.xml)).map_err(JoinError::Machine)?;
    let origin = Origin::Hosts(network.hosts.clone());
    let mut machine =
        MachineTopology::new(origin, found).map_err(|e| JoinError::Machine(e.to_string()))?;
    let parts = hosts.iter().zip(&merged.node_offsets);
    machine.measurement =
        together(parts.filter_map(|(h, by)| Some((h.machine.measurement()?, *by))));
    machine.joined = Some(Joined { network, factors, memory_ns });
    Ok(machine)
}

/// At which bandwidth each node reads from each; None where a host's own are not known.
fn bandwidths(own: &[Factors], network: &Network) -> Option<Vec<f64>> {
    let nodes: Vec<(usize, usize)> =
        own.iter().enumerate().flat_map(|(h, f)| (0..f.nodes()).map(move |n| (h, n))).collect();
    let of = |&(a, i): &(usize, usize), &(b, j): &(usize, usize)| {
        if a == b {
            own[a].bandwidths().map(|values| values[i * own[a].nodes() + j])
        } else {
            network.pair(a, b).map(|pair| pair.bytes_per_s.median)
        }
    };
    nodes.iter().flat_map(|to| nodes.iter().map(move |from| of(to, from))).collect()
}

/// What was measured on several hosts, with their nodes numbered through. Caches are left out: a factor
/// there is of one host, and a level has one for all.
fn together<'a>(all: impl Iterator<Item = (&'a Measurement, u32)>) -> Option<Measurement> {
    all.map(|(measured, by)| {
        let shifted = |p: &Pair| Pair { reader: p.reader + by, memory: p.memory + by, ..p.clone() };
        let pairs = measured.pairs.iter().map(shifted).collect();
        Measurement { pairs, caches: Vec::new(), ..measured.clone() }
    })
    .reduce(|mut all, next| {
        all.unix_s = all.unix_s.min(next.unix_s);
        all.seconds = all.seconds.max(next.seconds);
        all.pairs.extend(next.pairs);
        all.notes.extend(next.notes);
        all
    })
}

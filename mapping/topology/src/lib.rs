//! What a machine is made of, and what it costs to reach one part of it from another.
//!
//! The tree (packages, NUMA nodes, caches, cores, hardware threads, kinds of CPUs) is hwloc's: of
//! [this machine](this_machine), of an [XML file](from_xml) or of a [synthetic
//! description](synthetic), which can be one of several hosts. [`Factors`] say what a NUMA node pays to read from another, over what its
//! own memory costs (the NUCO factors of NucoLB, section III-A); [`measure()`] measures them, and
//! [`declared()`] reads what the firmware says of them. [`join`] makes one
//! machine of several hosts, with a ping-pong's [`Network`] between them. Tree and factors together are the
//! [`Cluster`](evenly_cluster::Cluster) that tasks are mapped onto.
//!
//! Invariant: every factor says where it comes from ([`Source`]); one that was declared is never shown
//! as measured. What can be computed is computed apart from what measures: `factors`, `measured` and
//! `chase` read no clock and no file.

#![deny(unsafe_code)]

mod chase;
mod date;
mod declared;
mod element;
mod factors;
mod host_file;
mod hosts;
mod hwloc;
mod machine;
mod measure;
mod measured;
mod network;
mod network_store;
mod pages;
mod report;
mod store;
mod svg;
mod text;
mod tree;
mod xml;

pub use declared::{Access, Declared, declared, parse_free, parse_hmat, parse_huge, parse_slit};
pub use factors::{ASSUMED_NETWORK_FACTOR, Factors, FactorsError, NetworkFactors, Source, compose};
pub use host_file::{HostError, HostReport, claim_host, read_hosts, write_host};
pub use machine::{
    ASSUMED_CACHE_FACTORS, Host, JoinError, MOST_CPUS, MOST_XML_BYTES, MachineTopology, Origin,
    TopologyError, from_xml, join, parse_xml, synthetic, this_machine, this_machine_kept_in,
};
pub use measure::{MeasureError, MeasureOptions, measure};
pub use measured::{Binding, CachePair, Factor, Meanwhile, Measurement, Pair, Spread};
pub use network::{HostPair, MOST_PING_PONG_BYTES, Network, NetworkError, read_ping_pong};
pub use network_store::{keep_network, kept_network};
pub use report::{Report, SCHEMA};
pub use store::{cache_dir, default_dir, parse_kept};
pub use svg::svg;
pub use tree::{CpuKind, Kind, Object};

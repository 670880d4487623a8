//! The machine that is mapped onto: a description, and factors that count more than its own.

use crate::error::{InputError, name_of};
use crate::factors::read_factors;
use evenly_cluster::{Cluster, ClusterError};
use evenly_topology::{
    ASSUMED_NETWORK_FACTOR, Factors, FactorsError, MachineTopology, Source, TopologyError,
    from_xml, synthetic, this_machine,
};
use std::fs::File;
use std::path::Path;

/// Stands for the machine that this runs on.
pub const THIS: &str = "this";

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The description is none.
    #[error("--topology: {0}")]
    Topology(#[from] TopologyError),
    /// The factors cannot be read, or do not fit.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The factors are none.
    #[error(transparent)]
    Factors(#[from] FactorsError),
    /// It is no machine.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// Measured factors of nodes that are equally far are as much below 1 as measuring is inexact.
const LEAST_FACTOR: f64 = 0.9;

/// A machine, and where its factors come from.
#[derive(Debug, Clone)]
pub struct Described {
    /// The machine that tasks are mapped onto.
    pub cluster: Cluster,
    /// Where its factors come from, in words.
    pub factors_from: &'static str,
    /// The same of what cores pay that share a cache; None where they share none.
    pub caches_from: Option<&'static str>,
    /// The names of its hosts, where it is several.
    pub hosts: Vec<String>,
    /// How long a load from local memory takes, in seconds, where it was measured.
    pub memory_s: Option<f64>,
    /// What looks wrong about it.
    pub notes: Vec<String>,
}

/// The machine of a description: `this`, a file of hwloc's XML, or hwloc's synthetic syntax with hosts
/// ([`synthetic`]); with factors from a file where one is given.
///
/// # Errors
/// What is wrong with either, in one line.
pub fn machine(topology: &str, factors: Option<&Path>) -> Result<Described, MachineError> {
    let machine = match topology {
        THIS => this_machine()?,
        text if is_synthetic(text) => synthetic(text)?,
        path => from_xml(Path::new(path))?,
    };
    let (factors, factors_from) = match factors {
        Some(path) => given(path, &machine)?,
        None => {
            let factors = machine.factors();
            let from = factors.source().words();
            (factors, from)
        }
    };
    let cluster = machine.cluster(Some(&factors))?;
    let nearest = factors.values().iter().copied().fold(f64::INFINITY, f64::min);
    let mut notes = Vec::new();
    if nearest < LEAST_FACTOR {
        notes.push(format!(
            "a factor is {nearest}: that memory is said to be nearer than a node's own; needed is the \
             latency of the other node's memory over that of the own"
        ));
    }
    if factors.source() == Source::Assumed || factors_from == GIVEN_WITHIN {
        notes.push(format!(
            "what messages between hosts cost is assumed, {ASSUMED_NETWORK_FACTOR} times what local \
             memory does; `evenly topology --measure --network` measures it, --factors gives it"
        ));
    }
    let caches_from = machine.caches_from().map(|from| match from {
        Source::Measured => "measured",
        _ => ASSUMED,
    });
    Ok(Described {
        cluster,
        factors_from,
        caches_from,
        hosts: machine.hosts(),
        memory_s: machine.memory_ns().map(|ns| ns * 1e-9),
        notes,
    })
}

/// Whether a description is one in hwloc's synthetic syntax.
#[must_use]
pub fn is_synthetic(topology: &str) -> bool {
    let path = Path::new(topology);
    let is_xml = path.is_file() || path.extension().is_some_and(|e| e == "xml");
    topology != THIS && !is_xml
}

/// What is not known of caches.
pub(crate) const ASSUMED: &str = "assumed";

/// Where the factors of each host are given, and of the network nothing is known.
const GIVEN_WITHIN: &str = "given within a host, assumed between hosts: 3.4";

/// Factors from a file, and where they come from: those of all nodes, or of the nodes of one host for
/// each of several.
fn given(path: &Path, machine: &MachineTopology) -> Result<(Factors, &'static str), MachineError> {
    let file = name_of(path);
    let input = File::open(path).map_err(|e| InputError::unreadable(&file, &e))?;
    let factors = Factors::given(read_factors(input, &file)?)?;
    let (found, nodes) = (factors.nodes(), machine.homes().len());
    if found == nodes {
        let from = factors.source().words();
        return Ok((factors, from));
    }
    if let Some(all) = machine.factors_of_each_host(&factors) {
        return Ok((all, GIVEN_WITHIN));
    }
    let what = format!(
        "there are {found} x {found} factors; the machine has {nodes} NUMA nodes, so \
         {nodes} x {nodes} are needed"
    );
    Err(InputError::new(&file, what).into())
}

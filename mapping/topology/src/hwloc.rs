//! hwloc, through the crate hwlocality: trees from this machine, from XML and from synthetic
//! descriptions, and XML with distances.
//!
//! Invariant: nothing of hwloc gets out of this module but plain data. Whatever was read is kept as
//! hwloc's own XML too, so that an export loses nothing that evenly does not know.
//!
//! Of hwlocality 1.0.0-alpha.13: `add_distances` with a name hands hwloc a string that has been freed
//! already, so that distances are added without one. Their kind distinguishes them from the firmware's.

use crate::hosts;
use crate::tree::{CpuKind, Kind, Object};
use evenly_model::{CpuId, CpuSet};
use hwlocality::Topology;
use hwlocality::errors::RawHwlocError;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::{AddDistancesFlags, DistancesKind};
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::BuildFlags;
use hwlocality::topology::export::xml::XMLExportFlags;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

/// No kernel has a CPU of this number.
const CPU_NUMBERS: usize = 1 << 20;

/// Where a tree comes from.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// The machine that evenly runs on.
    Here,
    /// A synthetic description, as hwloc has it.
    Synthetic(&'a str),
    /// The text of an XML file.
    Xml(&'a str),
}

/// What the numbers of a matrix are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Latencies, in any unit.
    Latency,
    /// Bandwidths, in megabytes a second.
    Bandwidth,
}

impl Meaning {
    const fn kind(self) -> DistancesKind {
        match self {
            Self::Latency => DistancesKind::MEANS_LATENCY,
            Self::Bandwidth => DistancesKind::MEANS_BANDWIDTH,
        }
    }
}

/// Distances between NUMA nodes, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    /// Numbers of the nodes.
    pub(crate) nodes: Vec<u32>,
    /// From row to column.
    pub(crate) values: Vec<u64>,
    pub(crate) meaning: Meaning,
    /// Whether a user put it there; else it is the firmware's.
    pub(crate) by_user: bool,
}

/// What hwloc has found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) root: Object,
    /// CPUs that may be used.
    pub(crate) allowed: CpuSet,
    /// CPUs that are there and switched off.
    pub(crate) offline: CpuSet,
    pub(crate) kinds: Vec<CpuKind>,
    pub(crate) matrices: Vec<Matrix>,
    /// How long a load from local memory takes, where the XML of several hosts says it.
    pub(crate) memory_ns: Option<f64>,
    pub(crate) xml: String,
}

/// Reads a tree; the error is why there is none.
pub(crate) fn read(input: Input<'_>) -> Result<Found, String> {
    let topology = load(input)?;
    let set = |s: &hwlocality::cpu::cpuset::CpuSet| cpus(s);
    let (present, complete) = (set(&topology.cpuset()), set(&topology.complete_cpuset()));
    let kinds = topology.cpu_kinds().map(|kinds| {
        let infos = |k: &hwlocality::cpu::kind::CpuKind<'_>| {
            k.infos.iter().map(|i| (text(i.name()), text(i.value()))).collect()
        };
        kinds
            .map(|k| CpuKind {
                cpus: set(&k.cpuset).and(&present),
                efficiency: k.efficiency.and_then(|e| u32::try_from(e).ok()),
                infos: infos(&k),
            })
            .filter(|k| !k.cpus.is_empty())
            .collect()
    });
    let xml = topology.export_xml(XMLExportFlags::empty()).map_err(|e| e.to_string())?;
    let memory_ns = topology.root_object().info(hosts::MEMORY_NS);
    let memory_ns = memory_ns.and_then(|value| text(value).parse().ok());
    Ok(Found {
        memory_ns: memory_ns.filter(|ns: &f64| ns.is_finite() && *ns > 0.0),
        root: object(topology.root_object()),
        allowed: set(&topology.allowed_cpuset()),
        offline: complete.minus(&present),
        // No kinds are known where all CPUs are alike.
        kinds: kinds.unwrap_or_default(),
        matrices: matrices(&topology)?,
        xml: xml.as_str().to_owned(),
    })
}

/// hwloc's reader of XML (libxml2) takes 10 MB at most from memory, and any length from a file.
const MOST_FROM_MEMORY: usize = 9_000_000;

/// A file that is in memory only and has this text, and its name.
fn file_of(text: &str) -> io::Result<(File, String)> {
    let mut file = File::from(memfd_create("evenly-xml", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, name))
}

fn load(input: Input<'_>) -> Result<Topology, String> {
    let builder = Topology::builder()
        .with_flags(BuildFlags::INCLUDE_DISALLOWED)
        .map_err(|e| e.to_string())?;
    // It has to be there until the tree is built.
    let mut long = None;
    let builder = match input {
        Input::Here => builder,
        Input::Synthetic(text) => builder.from_synthetic(text).map_err(|e| e.to_string())?,
        Input::Xml(text) if text.len() > MOST_FROM_MEMORY => {
            let cannot = |e| format!("its {} bytes cannot be kept for hwloc: {e}", text.len());
            let (file, name) = file_of(text).map_err(cannot)?;
            long = Some(file);
            builder.from_xml_file(name).map_err(|e| e.to_string())?
        }
        Input::Xml(text) => builder.from_xml(text).map_err(|e| e.to_string())?,
    };
    let built = builder.build().map_err(|e| words(&e));
    drop(long);
    built
}

/// What hwloc says, in words for users.
fn words(e: &RawHwlocError) -> String {
    match e.errno {
        Some(why) => format!("hwloc says: {why}"),
        None => String::from("hwloc does not say why"),
    }
}

fn text(c: &CStr) -> String {
    c.to_string_lossy().into_owned()
}

fn cpus(set: &hwlocality::cpu::cpuset::CpuSet) -> CpuSet {
    // An unlimited set says nothing about any CPU.
    if set.weight().is_none() {
        return CpuSet::new();
    }
    let numbers = set.iter_set().map(usize::from).filter(|&n| n < CPU_NUMBERS);
    numbers.filter_map(|n| u32::try_from(n).ok()).map(CpuId).collect()
}

fn kind(object: &TopologyObject) -> Kind {
    let is_host = || object.subtype().is_some_and(|s| s.to_bytes() == hosts::SUBTYPE.as_bytes());
    match object.object_type() {
        ObjectType::Group if is_host() => Kind::Host,
        ObjectType::Machine => Kind::Machine,
        ObjectType::Package => Kind::Package,
        ObjectType::Die => Kind::Die,
        ObjectType::NUMANode => Kind::Node,
        ObjectType::MemCache => Kind::MemoryCache,
        ObjectType::L1Cache => Kind::L1,
        ObjectType::L2Cache => Kind::L2,
        ObjectType::L3Cache => Kind::L3,
        ObjectType::L4Cache => Kind::L4,
        ObjectType::L5Cache => Kind::L5,
        ObjectType::Core => Kind::Core,
        ObjectType::PU => Kind::Cpu,
        _ => Kind::Group,
    }
}

fn object(o: &TopologyObject) -> Object {
    let kind = kind(o);
    let number = |n: usize| u32::try_from(n).ok();
    let bytes = match o.attributes() {
        Some(ObjectAttributes::Cache(c)) => c.size().map(u64::from),
        Some(ObjectAttributes::NUMANode(n)) => n.local_memory().map(u64::from),
        _ => None,
    };
    let name = match kind {
        Kind::Package => o.info("CPUModel"),
        Kind::Host => o.info(hosts::NAME),
        Kind::Node | Kind::Group => o.subtype(),
        _ => None,
    };
    Object {
        kind,
        index: number(o.logical_index()).unwrap_or(u32::MAX),
        number: o.os_index().and_then(number),
        cpus: o.cpuset().map(|s| cpus(&s)).unwrap_or_default(),
        bytes,
        name: name.map(text).map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()),
        memory: o.memory_children().map(object).collect(),
        children: o.normal_children().map(object).collect(),
    }
}

fn matrices(topology: &Topology) -> Result<Vec<Matrix>, String> {
    let mut found = Vec::new();
    for meaning in [Meaning::Latency, Meaning::Bandwidth] {
        found.extend(matrices_of(topology, meaning)?);
    }
    Ok(found)
}

fn matrices_of(topology: &Topology, meaning: Meaning) -> Result<Vec<Matrix>, String> {
    let all = topology.distances(Some(meaning.kind())).map_err(|e| e.to_string())?;
    let number = |o: Option<&TopologyObject>| -> Option<u32> {
        let node = o.filter(|o| o.object_type() == ObjectType::NUMANode)?;
        node.os_index().and_then(|n| u32::try_from(n).ok())
    };
    let matrix = |d: &hwlocality::object::distance::Distances<'_>| {
        Some(Matrix {
            nodes: d.objects().map(number).collect::<Option<_>>()?,
            values: d.distances().to_vec(),
            meaning,
            by_user: d.kind().contains(DistancesKind::FROM_USER),
        })
    };
    // Distances between other things than NUMA nodes are none of ours.
    Ok(all.iter().filter_map(matrix).collect())
}

/// The XML with matrices between NUMA nodes added to it. hwloc has no distances of a single object:
/// with one node the XML stays as it is.
pub(crate) fn with_distances(xml: &str, matrices: &[Matrix]) -> Result<String, String> {
    if matrices.iter().all(|m| m.nodes.len() < 2) {
        return Ok(xml.to_owned());
    }
    let mut topology = load(Input::Xml(xml))?;
    for matrix in matrices {
        let kind = DistancesKind::FROM_USER | matrix.meaning.kind();
        let added = topology.edit(|editor| {
            editor.add_distances(None, kind, AddDistancesFlags::empty(), |topology| {
                let find = |&number: &u32| {
                    topology
                        .objects_with_type(ObjectType::NUMANode)
                        .find(|o| o.os_index().and_then(|n| u32::try_from(n).ok()) == Some(number))
                };
                (matrix.nodes.iter().map(find).collect(), matrix.values.clone())
            })
        });
        added.map_err(|e| e.to_string())?;
    }
    let xml = topology.export_xml(XMLExportFlags::empty()).map_err(|e| e.to_string())?;
    Ok(xml.as_str().to_owned())
}

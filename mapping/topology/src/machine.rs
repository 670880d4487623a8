//! A machine: its tree, the CPUs that may be used, and what is known of the distances in it; and how it
//! becomes the [`Cluster`] that tasks are mapped onto.
//!
//! Invariant: a machine that is here has at least one CPU that may be used, and what a cluster is made
//! of does not depend on whether CPUs beside those are there.

mod describe;
mod join;
mod synthetic;

pub use join::{Host, JoinError, join};
use synthetic::MOST_BESIDE;
pub use synthetic::{MOST_CPUS, synthetic};

use crate::factors::{ASSUMED_NETWORK_FACTOR, Factors, NetworkFactors, Source, compose};
use crate::hwloc::{self, Found, Input, Matrix, Meaning};
use crate::measured::{Factor, Measurement};
use crate::network::Network;
use crate::store;
use crate::tree::{CpuKind, Kind, Object, speeds};
use crate::xml;
use evenly_cluster::{Cluster, ClusterError, Core, Node};
use evenly_model::stats::median;
use evenly_model::{CacheLevel, CpuSet, Knowledge};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Most bytes of an XML file: a machine of 4,096 CPUs takes some 5 MB.
pub const MOST_XML_BYTES: u64 = 64 << 20;

/// Latency between cores that share a cache of a level, from the innermost, over that of local memory:
/// assumed where it was not measured. Of the order that today's servers have (a few, 15, 50
/// nanoseconds and more over 100).
pub const ASSUMED_CACHE_FACTORS: [f64; 5] = [0.05, 0.15, 0.5, 0.7, 0.8];

/// Most hosts that a title names.
const MOST_NAMES: usize = 8;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A synthetic description that hwloc does not understand.
    #[error(
        "'{text}' describes no machine ({why}); needed: levels with the number of each in the one \
         above, down to the CPUs, such as \"numa:2 core:4 pu:2\""
    )]
    Synthetic {
        /// The description that was given.
        text: String,
        /// What hwloc says about it.
        why: String,
    },
    /// A synthetic description of too large a machine.
    #[error("'{text}' describes more than {MOST_CPUS} CPUs, the most that is accepted")]
    TooMany {
        /// The description that was given.
        text: String,
    },
    /// A synthetic description that would take hwloc minutes.
    #[error(
        "'{text}' describes more than {MOST_BESIDE} things side by side, the most that is accepted; needed: a \
         level above them, as in \"numa:2 core:1024\""
    )]
    TooManyBeside {
        /// The description that was given.
        text: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is no XML of hwloc.
    #[error("{} is no XML of hwloc: {why}; `lstopo FILE.xml` and `evenly topology --export` write \
             such files", path.display())]
    Xml {
        /// The file that is wrong.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No CPU is left.
    #[error("{what}: no CPU of this machine may be used")]
    Empty {
        /// The machine that was asked for.
        what: String,
    },
    /// hwloc does not find out what this machine is.
    #[error("hwloc cannot find out what this machine is made of: {why}")]
    Here {
        /// What hwloc says about it.
        why: String,
    },
    /// Distances cannot be written.
    #[error("hwloc cannot write the machine as XML: {why}")]
    Export {
        /// What hwloc says about it.
        why: String,
    },
}

/// Where a machine comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A synthetic description, as hwloc has it.
    Synthetic(String),
    /// A file with XML of hwloc.
    Xml(PathBuf),
    /// It is the one that this runs on.
    Here,
    /// It is these hosts together, by their names.
    Hosts(Vec<String>),
}

/// A machine as hwloc sees it, with factors.
#[derive(Debug, Clone)]
pub struct MachineTopology {
    origin: Origin,
    found: Found,
    measurement: Option<Measurement>,
    joined: Option<Joined>,
}

/// What is known of hosts that were put together.
#[derive(Debug, Clone)]
struct Joined {
    network: Network,
    /// Within the hosts and between them.
    factors: Factors,
    /// The latency of each host's own memory.
    memory_ns: Vec<f64>,
}

/// The machine of an XML file that hwloc or evenly wrote.
///
/// # Errors
/// Where the file cannot be read or is no such XML.
pub fn from_xml(path: &Path) -> Result<MachineTopology, TopologyError> {
    let cannot = |source| TopologyError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(MOST_XML_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    parse_xml(&bytes, path)
}

/// The machine of what such a file holds; `path` is what errors name.
///
/// # Errors
/// Where it is no such XML.
pub fn parse_xml(bytes: &[u8], path: &Path) -> Result<MachineTopology, TopologyError> {
    let refused = |why: String| TopologyError::Xml { path: path.to_owned(), why };
    if bytes.len() as u64 > MOST_XML_BYTES {
        return Err(refused(format!("it has more than {MOST_XML_BYTES} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| refused("it is not text (UTF-8)".into()))?;
    from_xml_text(text, Origin::Xml(path.to_owned()), path)
}

/// The machine of such XML, which came from `path`.
pub(crate) fn from_xml_text(
    text: &str,
    origin: Origin,
    path: &Path,
) -> Result<MachineTopology, TopologyError> {
    let refused = |why: String| TopologyError::Xml { path: path.to_owned(), why };
    if !text.contains("<topology") {
        return Err(refused("it has no element 'topology'".into()));
    }
    // hwloc gets no XML that it could not stand.
    xml::check(text).map_err(refused)?;
    MachineTopology::new(origin, hwloc::read(Input::Xml(text)).map_err(refused)?)
}

/// The machine that this runs on, as its cpuset lets it be used, with what was measured on it and kept
/// in the user's cache directory.
///
/// # Errors
/// Where hwloc does not find out.
pub fn this_machine() -> Result<MachineTopology, TopologyError> {
    this_machine_kept_in(store::default_dir().as_deref())
}

/// As [`this_machine`], with another directory for what was measured; without one nothing is looked up.
///
/// # Errors
/// As [`this_machine`].
pub fn this_machine_kept_in(dir: Option<&Path>) -> Result<MachineTopology, TopologyError> {
    let found = hwloc::read(Input::Here).map_err(|why| TopologyError::Here { why })?;
    let machine = MachineTopology::new(Origin::Here, found)?;
    let kept = dir.and_then(|dir| store::load(dir, &store::key(machine.root())));
    Ok(match kept {
        Some(kept) => machine.with_measurement(kept),
        None => machine,
    })
}

/// A place where a task runs: a core, or a CPU that belongs to none.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// hwloc's number of it.
    index: u32,
    /// Its CPUs that may be used; never none.
    pub(crate) cpus: CpuSet,
    /// hwloc's number of its NUMA node.
    pub(crate) home: u32,
    /// Its host, counted from 0.
    host: u32,
    /// hwloc's numbers of its caches.
    pub(crate) caches: BTreeMap<Kind, u32>,
}

/// Finds all places below an object.
struct Finder<'a> {
    allowed: &'a CpuSet,
    caches: BTreeMap<Kind, u32>,
    places: Vec<Place>,
    /// Hosts that were found so far.
    hosts: u32,
}

impl Finder<'_> {
    /// `home` is the node of the object's memory; `near` what serves where there is none: the first of
    /// what is nearest around it.
    fn visit(&mut self, object: &Object, home: Option<u32>, near: Option<u32>) {
        if object.kind == Kind::Host {
            self.hosts += 1;
        }
        let home = object.home().map(|n| n.index).or(home);
        let near = match home {
            Some(_) => near,
            None => object.all().find_map(Object::home).map(|n| n.index).or(near),
        };
        if object.kind.is_cache() {
            self.caches.insert(object.kind, object.index);
        }
        if matches!(object.kind, Kind::Core | Kind::Cpu) {
            let cpus = object.cpus.and(self.allowed);
            if !cpus.is_empty() {
                let (index, caches) = (object.index, self.caches.clone());
                let host = self.hosts.saturating_sub(1);
                let home = home.or(near).unwrap_or(0);
                self.places.push(Place { index, cpus, home, host, caches });
            }
        } else {
            object.children.iter().for_each(|c| self.visit(c, home, near));
        }
        if object.kind.is_cache() {
            self.caches.remove(&object.kind);
        }
    }
}

impl MachineTopology {
    fn new(origin: Origin, found: Found) -> Result<Self, TopologyError> {
        let machine = Self { origin, found, measurement: None, joined: None };
        if machine.places().is_empty() {
            return Err(TopologyError::Empty { what: machine.title() });
        }
        Ok(machine)
    }

    /// Where it comes from.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What it is called in texts.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.origin {
            Origin::Synthetic(text) => format!("\"{text}\""),
            Origin::Xml(path) => path.display().to_string(),
            Origin::Here => "this machine".to_owned(),
            Origin::Hosts(names) if names.len() > MOST_NAMES => {
                format!("{} and {} more", names[..MOST_NAMES].join(", "), names.len() - MOST_NAMES)
            }
            Origin::Hosts(names) => names.join(", "),
        }
    }

    /// The tree of the machine.
    #[must_use]
    pub const fn root(&self) -> &Object {
        &self.found.root
    }

    /// CPUs that may be used.
    #[must_use]
    pub fn allowed(&self) -> CpuSet {
        self.found.allowed.and(&self.found.root.cpus)
    }

    /// CPUs that work and may not be used: those outside the cpuset.
    #[must_use]
    pub fn disallowed(&self) -> CpuSet {
        self.found.root.cpus.minus(&self.found.allowed)
    }

    /// CPUs that are there and switched off.
    #[must_use]
    pub const fn offline(&self) -> &CpuSet {
        &self.found.offline
    }

    /// Kinds of CPUs; none where all are alike.
    #[must_use]
    pub fn kinds(&self) -> &[CpuKind] {
        &self.found.kinds
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        let mut finder = Finder {
            allowed: &self.found.allowed,
            caches: BTreeMap::new(),
            places: Vec::new(),
            hosts: 0,
        };
        finder.visit(&self.found.root, None, None);
        finder.places
    }

    /// The NUMA nodes that have cores which may be used: those between which there are factors.
    #[must_use]
    pub fn homes(&self) -> Vec<&Object> {
        let homes: BTreeSet<u32> = self.places().iter().map(|p| p.home).collect();
        let mut nodes = self.found.root.of(Kind::Node);
        nodes.retain(|n| homes.contains(&n.index));
        nodes
    }

    /// The numbers of these nodes; None where one has none.
    fn home_numbers(&self) -> Option<Vec<u32>> {
        self.homes().iter().map(|h| h.number).collect()
    }

    /// With what was measured on it.
    #[must_use]
    pub fn with_measurement(mut self, measurement: Measurement) -> Self {
        self.measurement = Some(measurement);
        self
    }

    /// What was measured on it.
    #[must_use]
    pub const fn measurement(&self) -> Option<&Measurement> {
        self.measurement.as_ref()
    }

    /// Keeps what was measured for [`this_machine_kept_in`]; in which file.
    ///
    /// # Errors
    /// What the system says; where nothing was measured there is nothing to keep.
    pub fn keep_in(&self, dir: &Path) -> io::Result<PathBuf> {
        let measurement = self.measurement().ok_or(io::ErrorKind::NotFound)?;
        store::save(dir, &store::key(self.root()), measurement)
    }

    fn measured_factors(&self) -> Option<Factors> {
        if let Some(joined) = &self.joined {
            return Some(joined.factors.clone());
        }
        self.measurement.as_ref()?.factors(&self.home_numbers()?)
    }

    /// The names of its hosts, where it is several.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let hosts = self.root().all().filter(|o| o.kind == Kind::Host);
        hosts.map(|h| h.name.clone().unwrap_or_default()).collect()
    }

    /// What was measured between its hosts, where it is several that were put together now.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.joined.as_ref().map(|j| &j.network)
    }

    /// The latency of each host's own memory in nanoseconds, in the order of the hosts, where it is
    /// several that were put together now.
    #[must_use]
    pub fn memory_ns_of_hosts(&self) -> Option<&[f64]> {
        self.joined.as_ref().map(|j| &j.memory_ns[..])
    }

    /// How long a load from local memory takes, in nanoseconds, where it was measured: the median of
    /// the nodes, or of the hosts.
    #[must_use]
    pub fn memory_ns(&self) -> Option<f64> {
        if let Some(joined) = &self.joined {
            return median(&joined.memory_ns);
        }
        let measured = self.measurement.as_ref().and_then(|m| {
            let own = |n: u32| Some(m.pair(n, n)?.latency_ns.median);
            let own: Vec<f64> = self.home_numbers()?.into_iter().map(own).collect::<Option<_>>()?;
            median(&own)
        });
        measured.or(self.found.memory_ns)
    }

    /// The factor of one home for another ([`MachineTopology::homes`], by their places) with its spread, where
    /// it was measured.
    pub(crate) fn measured_factor(&self, to: usize, from: usize) -> Option<Factor> {
        if self.factors().source() != Source::Measured {
            return None;
        }
        let numbers = self.home_numbers()?;
        let within = self.measurement.as_ref()?.factor(*numbers.get(to)?, *numbers.get(from)?);
        within.or_else(|| {
            let joined = self.joined.as_ref()?;
            let hosts = self.home_hosts();
            let (a, b) = (*hosts.get(to)? as usize, *hosts.get(from)? as usize);
            let (message, own) = (&joined.network.pair(a, b)?.latency_ns, joined.memory_ns.get(a)?);
            let over = |ns: f64| ns / own;
            Some(Factor {
                value: over(message.median),
                low: over(message.low),
                high: over(message.high),
            })
        })
    }

    /// The host of each home, counted from 0.
    fn home_hosts(&self) -> Vec<u32> {
        let places = self.places();
        let host = |home: &&Object| places.iter().find(|p| p.home == home.index).map(|p| p.host);
        self.homes().iter().map(|h| host(h).unwrap_or(0)).collect()
    }

    /// The best factors that are known of it: measured; else distances that are in its XML; else the
    /// firmware's (SLIT); else all 1, but between hosts [`ASSUMED_NETWORK_FACTOR`].
    #[must_use]
    pub fn factors(&self) -> Factors {
        if let Some(f) = self.measured_factors() {
            return f;
        }
        let of = |meaning: Meaning, by_user: bool| {
            let wanted = move |m: &&Matrix| m.by_user == by_user && m.meaning == meaning;
            let matrices = self.found.matrices.iter().filter(wanted);
            matrices.filter_map(|m| self.of_matrix(m))
        };
        let by = |user: bool, source: Source| {
            let mut latencies = of(Meaning::Latency, user);
            latencies.find_map(|values| Factors::from_latencies(&values, source).ok())
        };
        let from_xml = by(true, Source::Xml).map(|factors| {
            let bandwidths = of(Meaning::Bandwidth, true).next();
            let bandwidths = bandwidths.map(|all| all.into_iter().map(|mb| mb * 1e6).collect());
            match bandwidths.map(|all| factors.clone().with_bandwidths(all)) {
                Some(Ok(both)) => both,
                _ => factors,
            }
        });
        from_xml.or_else(|| by(false, Source::Slit)).unwrap_or_else(|| self.assumed_factors())
    }

    /// Where nothing is known.
    fn assumed_factors(&self) -> Factors {
        let hosts = self.home_hosts();
        let n = hosts.len();
        if hosts.iter().all(|h| *h == hosts[0]) {
            return Factors::unknown(n);
        }
        let factor =
            |k: usize| if hosts[k / n] == hosts[k % n] { 1.0 } else { ASSUMED_NETWORK_FACTOR };
        let assumed = Factors::new((0..n * n).map(factor).collect(), Source::Assumed);
        assumed.unwrap_or_else(|_| Factors::unknown(n))
    }

    /// Factors for all of its hosts, from those of one, which are those of each, and
    /// [`ASSUMED_NETWORK_FACTOR`] between them; None where it is one host, or one has another number of
    /// nodes with cores.
    #[must_use]
    pub fn factors_of_each_host(&self, own: &Factors) -> Option<Factors> {
        let of_nodes = self.home_hosts();
        let hosts: Vec<&[u32]> = of_nodes.chunk_by(|a, b| a == b).collect();
        if hosts.len() < 2 || hosts.iter().any(|nodes| nodes.len() != own.nodes()) {
            return None;
        }
        let network = NetworkFactors::uniform(hosts.len(), ASSUMED_NETWORK_FACTOR).ok()?;
        Factors::given(compose(&vec![own; hosts.len()], &network).ok()?).ok()
    }

    /// The values of a matrix between homes, row by row; None where a node is not in it.
    fn of_matrix(&self, matrix: &Matrix) -> Option<Vec<f64>> {
        let homes = self.homes();
        let at = |o: &&Object| matrix.nodes.iter().position(|&n| Some(n) == o.number);
        let places: Vec<usize> = homes.iter().map(at).collect::<Option<_>>()?;
        let side = matrix.nodes.len();
        let values = |&i: &usize| {
            let row = places.iter().map(move |&j| matrix.values.get(i * side + j));
            row.map(|v| v.map(|&v| v as f64)).collect::<Vec<_>>()
        };
        places.iter().flat_map(values).collect()
    }

    /// What a policy that places threads by load may know of it: its nodes with their CPUs, the
    /// best factors and bandwidths that are known ([`MachineTopology::factors`]), and which CPUs share caches.
    #[must_use]
    pub fn knowledge(&self) -> Knowledge {
        let factors = self.factors();
        let nodes: Vec<(u32, CpuSet)> =
            self.homes().iter().map(|h| (h.shown(), h.cpus.clone())).collect();
        let allowed = self.allowed();
        let level = |kind: Kind| {
            let caches = self.root().of(kind);
            let sets = caches.iter().map(|c| c.cpus.and(&allowed)).filter(|c| !c.is_empty());
            let sets: Vec<CpuSet> = sets.collect();
            let shared = sets.iter().any(|cpus| cpus.len() > 1);
            shared.then(|| {
                (CacheLevel { name: kind.name().to_owned(), factor: self.cache_factor(kind) }, sets)
            })
        };
        Knowledge {
            caches: Kind::CACHES.into_iter().filter_map(level).collect(),
            factors: factors.values().to_vec(),
            bandwidths: factors.bandwidths().map(|b| transposed(b, nodes.len())),
            ..Knowledge::even(nodes, 1.0)
        }
    }

    /// The machine as tasks are mapped onto it, with these factors or else the best known
    /// ([`MachineTopology::factors`]).
    ///
    /// Its cores are the physical cores of which a CPU may be used (hardware threads of one core are
    /// one place to compute), or CPUs where the tree has no cores. Their numbers are hwloc's (logical
    /// index, from 0) for synthetic machines and those of XML files, CPU numbers of the system (of the
    /// core's first CPU that may be used) for this machine; the latter is [`Core::cpu`] always. Its nodes are the NUMA nodes that have
    /// cores; memory without cores runs no tasks. Speeds are those of the CPU kinds, where there are
    /// several. Caches are those that cores share, with what was measured of them, or else
    /// [`ASSUMED_CACHE_FACTORS`].
    ///
    /// # Errors
    /// Where the factors are for another number of nodes.
    pub fn cluster(&self, factors: Option<&Factors>) -> Result<Cluster, ClusterError> {
        let best;
        let factors = match factors {
            Some(f) => f,
            None => {
                best = self.factors();
                &best
            }
        };
        let parts = self.parts();
        let cluster =
            Cluster::new(parts.cores, parts.nodes, parts.caches, factors.values().to_vec())?;
        match factors.bandwidths() {
            Some(b) => cluster.with_bandwidths(transposed(b, factors.nodes())),
            None => Ok(cluster),
        }
    }

    /// What two cores that share a cache of this level pay, over the latency of local memory: measured, or
    /// else assumed.
    fn cache_factor(&self, level: Kind) -> f64 {
        let measured = self.measurement.as_ref().and_then(|m| m.cache_factor(level.name()));
        let at = Kind::CACHES.iter().position(|c| *c == level);
        let assumed = at.and_then(|at| ASSUMED_CACHE_FACTORS.get(at)).copied();
        measured.or(assumed).unwrap_or(1.0)
    }

    /// Where the factors of the caches come from that cores share: all of them measured, or one or
    /// another assumed ([`ASSUMED_CACHE_FACTORS`]); None where cores share none.
    #[must_use]
    pub fn caches_from(&self) -> Option<Source> {
        let levels = shared_levels(&self.places());
        let measured = |level: &Kind| {
            self.measurement.as_ref().is_some_and(|m| m.cache_factor(level.name()).is_some())
        };
        let from = if levels.iter().all(measured) { Source::Measured } else { Source::Assumed };
        (!levels.is_empty()).then_some(from)
    }

    fn parts(&self) -> Parts {
        let places = self.places();
        let homes = self.homes();
        let kinds = self.kinds();
        let speeds = speeds(kinds);
        let levels = shared_levels(&places);
        let ids: Vec<u32> = places
            .iter()
            .map(|p| match (&self.origin, p.cpus.first()) {
                (Origin::Here, Some(cpu)) => cpu.0,
                _ => p.index,
            })
            .collect();
        // Cores beside CPUs without a core: their numbers may be the same, places are not.
        let twice = ids.iter().collect::<BTreeSet<_>>().len() < ids.len();
        let cores = places.iter().zip(ids).enumerate().map(|(at, (p, id))| Core {
            id: if twice { at as u32 } else { id },
            cpu: p.cpus.first().map_or(id, |cpu| cpu.0),
            node: homes.iter().position(|h| h.index == p.home).unwrap_or(0),
            speed: kinds
                .iter()
                .zip(&speeds)
                .find(|(k, _)| !k.cpus.and(&p.cpus).is_empty())
                .map_or(1.0, |(_, s)| *s),
            // One that lacks a level shares it with no other.
            caches: levels
                .iter()
                .map(|l| p.caches.get(l).copied().unwrap_or(u32::MAX - at as u32))
                .collect(),
        });
        Parts {
            cores: cores.collect(),
            nodes: homes
                .iter()
                .zip(self.home_hosts())
                .map(|(h, host)| Node { id: h.shown(), host })
                .collect(),
            caches: levels
                .iter()
                .map(|k| CacheLevel { name: k.name().to_owned(), factor: self.cache_factor(*k) })
                .collect(),
        }
    }

    /// The machine as hwloc's XML, as it was found, without what was measured.
    pub(crate) fn plain_xml(&self) -> &str {
        &self.found.xml
    }

    /// The machine as hwloc's XML, with the factors that were measured as distances (kind: latency,
    /// from the user), and with the bandwidths, where they were (kind: bandwidth, in megabytes a
    /// second).
    ///
    /// # Errors
    /// Where hwloc cannot write it.
    pub fn to_xml(&self) -> Result<String, TopologyError> {
        let (Some(factors), Some(nodes)) = (self.measured_factors(), self.home_numbers()) else {
            return Ok(self.found.xml.clone());
        };
        // hwloc has whole numbers: thousandths of the latency of the own memory.
        let scaled = |values: &[f64], by: f64| -> Vec<u64> {
            values.iter().map(|f| ((f * by).round() as u64).max(1)).collect()
        };
        let matrix =
            |meaning, values| Matrix { nodes: nodes.clone(), values, meaning, by_user: true };
        let mut matrices = vec![matrix(Meaning::Latency, scaled(factors.values(), 1000.0))];
        if let Some(bandwidths) = factors.bandwidths() {
            matrices.push(matrix(Meaning::Bandwidth, scaled(bandwidths, 1e-6)));
        }
        hwloc::with_distances(&self.found.xml, &matrices)
            .map_err(|why| TopologyError::Export { why })
    }
}

/// The levels of caches that some of these share, from the innermost.
fn shared_levels(places: &[Place]) -> Vec<Kind> {
    let is_shared = |level: &Kind| {
        let mut seen = BTreeSet::new();
        places.iter().filter_map(|p| p.caches.get(level)).any(|c| !seen.insert(c))
    };
    Kind::CACHES.into_iter().filter(is_shared).collect()
}

/// What a cluster is made of.
struct Parts {
    cores: Vec<Core>,
    nodes: Vec<Node>,
    caches: Vec<CacheLevel>,
}

/// Bandwidths from one node to another, from those at which the other reads from the one.
fn transposed(reading: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|k| reading[k % n * n + k / n]).collect()
}

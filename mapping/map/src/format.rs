//! A mapping, written for launchers.
//!
//! Where a launcher takes one list for all hosts, and there are several, that is refused: it would
//! say something else than was asked for.

use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::TaskGraph;
use std::collections::HashSet;
use std::fmt::Write as _;

/// The highest CPU number, exclusive, of which a mask is written.
const MOST_CPUS: u32 = 1 << 16;

/// A form in which a mapping can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `id,pe` with a first line, a line for each task in the order that they were given in: what
    /// `--judge` and `--current` read.
    Csv,
    /// Open MPI's rank file: `rank 0=host slot=3`. A slot is the logical number of a core of the
    /// host (`docs/man-openmpi/man1/mpirun.1.rst` in Open MPI's sources, "Rankfiles": "only logical
    /// processor locations are supported. By default, the values specified are assumed to be
    /// cores"), and `+n1` the second host of those that `mpirun` knows (ibid.). Where two ranks
    /// share a core, `--bind-to :overload-allowed` must be given (ibid.).
    RankFile,
    /// Slurm: `--cpu-bind=map_cpu:3,1`, a CPU number for each task of a host (`srun(1)`,
    /// `map_cpu:<list>`).
    MapCpu,
    /// MPICH's Hydra: `-bind-to user:3,1`, a CPU number for each process of a host; several CPUs of one
    /// process would be joined by `+` (`mpiexec -bind-to -help`: "user:0+2,1+4,3,2 -- user specified
    /// binding"; `src/pm/hydra` in MPICH's sources takes them for the system's numbers). For several
    /// hosts `-hosts a:2,b:1,a:1`: ranks 0 and 1 on a, 2 on b, 3 on a. That places ranks on hosts, and
    /// not on cores of these: the numbers behind `user:` would be the same on each host. Where a host
    /// comes again after another, Hydra starts a second proxy there (`HYDU_add_to_node_list` joins
    /// neighbours only), and ranks of the two send each other messages over the network.
    Mpich,
    /// A host for each rank, one a line: what Open MPI's `mpirun --hostfile FILE --map-by seq` reads
    /// (`mpirun(1)`: "one process is launched per line on whatever node is listed on the line"), and
    /// Slurm's `SLURM_HOSTFILE` with `--distribution=arbitrary` (`srun(1)`).
    HostFile,
    /// `id,mask` with a first line: hexadecimal CPU masks as `taskset` takes them.
    Masks,
    /// `id,from,to,bytes` with a first line: the tasks that change their core, in the order that they
    /// were given in, and what has to be moved with each. For runtimes that move objects themselves.
    Migrations,
}

/// What is to be known of a form.
#[derive(Debug, Clone, Copy)]
pub struct FormatInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the form is, in a line for the help.
    pub about: &'static str,
    /// The form itself.
    pub format: Format,
}

/// All forms in which a mapping is written.
pub const FORMATS: &[FormatInfo] = &[
    FormatInfo { name: "csv", about: "id,pe: a line for each task", format: Format::Csv },
    FormatInfo {
        name: "rankfile",
        about: "rank file of Open MPI: mpirun --map-by rankfile:file=FILE (before version 5 -rf FILE)",
        format: Format::RankFile,
    },
    FormatInfo {
        name: "map-cpu",
        about: "option of Slurm's srun: --cpu-bind=map_cpu:...",
        format: Format::MapCpu,
    },
    FormatInfo {
        name: "mpich",
        about: "option of MPICH's mpiexec: -bind-to user:..., for several hosts -hosts a:2,b:1,...",
        format: Format::Mpich,
    },
    FormatInfo {
        name: "hostfile",
        about: "a host for each rank: mpirun --hostfile FILE --map-by seq, SLURM_HOSTFILE",
        format: Format::HostFile,
    },
    FormatInfo {
        name: "masks",
        about: "id,mask: CPU masks in hexadecimal, as taskset takes them",
        format: Format::Masks,
    },
    FormatInfo {
        name: "migrations",
        about: "id,from,to,bytes: the tasks that change their core, and no others",
        format: Format::Migrations,
    },
];

/// A form by its name.
#[must_use]
pub fn format(name: &str) -> Option<Format> {
    FORMATS.iter().find(|f| f.name == name).map(|f| f.format)
}

/// Why a mapping cannot be written in a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Launchers start ranks, and those are numbered from 0.
    #[error(
        "task {id} is no rank: {tasks} tasks must be numbered 0 to {}; number them so, or take the \
         format csv",
        .tasks - 1
    )]
    NoRank {
        /// The number of the task that is no rank.
        id: u64,
        /// How many tasks there are.
        tasks: usize,
    },
    /// A list that launchers take for every host.
    #[error("this format holds for one host, the machine has {hosts}; take the format rankfile")]
    OneHost {
        /// How many hosts the machine has.
        hosts: usize,
    },
    /// Names of hosts are missing, or are too many.
    #[error(
        "there are {found} names of hosts; the machine has {hosts}, and a name for each is needed"
    )]
    Hosts {
        /// How many names were given.
        found: usize,
        /// How many hosts the machine has.
        hosts: usize,
    },
    /// A launcher could not distinguish two hosts.
    #[error("two hosts have the name '{name}'; each host needs a name of its own")]
    SameName {
        /// The name that two hosts have.
        name: String,
    },
    /// A mask would be too long.
    #[error("CPU {cpu} is beyond {}, the highest that a mask is written for", MOST_CPUS - 1)]
    Mask {
        /// The CPU that such a file cannot name.
        cpu: u32,
    },
}

/// Where a core is, as launchers count.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The host, from 0, in the order of their numbers.
    host: usize,
    /// The logical number of the core on its host: its place among the host's.
    slot: usize,
    /// The CPU number on its host; not where there are several, whose CPUs are numbered through.
    cpu: u32,
}

/// Writes a mapping; each form ends with a line feed. `present` is where each task is before, which
/// only [`Format::Migrations`] looks at; `hosts` are the names of the hosts, or none: then
/// rank files count hosts, and one host is `localhost` in a host file.
///
/// CPU numbers are those that the described system has for them ([`evenly_cluster::Core::cpu`]).
///
/// # Errors
/// Where the form cannot say it.
pub fn write(
    format: Format,
    graph: &TaskGraph,
    cluster: &Cluster,
    present: &[CoreIndex],
    mapping: &[CoreIndex],
    hosts: &[String],
) -> Result<String, FormatError> {
    let places = places(cluster);
    let count = places.iter().map(|p| p.host + 1).max().unwrap_or(0);
    if !hosts.is_empty() && hosts.len() != count {
        return Err(FormatError::Hosts { found: hosts.len(), hosts: count });
    }
    names_differ(hosts)?;
    let one_host = || if count > 1 { Err(FormatError::OneHost { hosts: count }) } else { Ok(()) };
    let mut text = String::new();
    // Writing to a string cannot fail.
    match format {
        Format::Csv => {
            text.push_str("id,pe\n");
            for (t, &core) in graph.tasks().iter().zip(mapping) {
                let _ = writeln!(text, "{},{}", t.id, cluster.cores()[core].id);
            }
        }
        Format::Migrations => {
            text.push_str("id,from,to,bytes\n");
            let id = |core: CoreIndex| cluster.cores()[core].id;
            for ((t, &from), &to) in graph.tasks().iter().zip(present).zip(mapping) {
                if from != to {
                    let _ = writeln!(text, "{},{},{},{}", t.id, id(from), id(to), t.size_bytes);
                }
            }
        }
        Format::Masks => {
            one_host()?;
            text.push_str("id,mask\n");
            for (t, &core) in graph.tasks().iter().zip(mapping) {
                let _ = writeln!(text, "{},{}", t.id, mask(places[core].cpu)?);
            }
        }
        Format::RankFile => {
            for (rank, core) in ranks(graph, mapping)?.into_iter().enumerate() {
                let Place { host, slot, .. } = places[core];
                let _ = match hosts.get(host) {
                    Some(name) => writeln!(text, "rank {rank}={name} slot={slot}"),
                    None => writeln!(text, "rank {rank}=+n{host} slot={slot}"),
                };
            }
        }
        Format::HostFile => {
            if hosts.is_empty() && count > 1 {
                return Err(FormatError::Hosts { found: 0, hosts: count });
            }
            for core in ranks(graph, mapping)? {
                text.push_str(hosts.get(places[core].host).map_or("localhost", String::as_str));
                text.push('\n');
            }
        }
        Format::Mpich if count > 1 => {
            if hosts.is_empty() {
                return Err(FormatError::Hosts { found: 0, hosts: count });
            }
            text.push_str("-hosts ");
            let on: Vec<usize> =
                ranks(graph, mapping)?.into_iter().map(|c| places[c].host).collect();
            for (k, ranks) in on.chunk_by(|a, b| a == b).enumerate() {
                let comma = if k == 0 { "" } else { "," };
                let name =
                    ranks.first().and_then(|host| hosts.get(*host)).map_or("", String::as_str);
                let _ = write!(text, "{comma}{name}:{}", ranks.len());
            }
            text.push('\n');
        }
        Format::MapCpu | Format::Mpich => {
            one_host()?;
            text.push_str(if format == Format::MapCpu {
                "--cpu-bind=map_cpu:"
            } else {
                "-bind-to user:"
            });
            for (rank, core) in ranks(graph, mapping)?.into_iter().enumerate() {
                let comma = if rank == 0 { "" } else { "," };
                let _ = write!(text, "{comma}{}", places[core].cpu);
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Whether each host has a name of its own.
///
/// # Errors
/// The first name that is there twice.
pub fn names_differ(hosts: &[String]) -> Result<(), FormatError> {
    let mut names = HashSet::new();
    match hosts.iter().find(|name| !names.insert(name.as_str())) {
        Some(name) => Err(FormatError::SameName { name: name.clone() }),
        None => Ok(()),
    }
}

/// Where each core is, by its index.
fn places(cluster: &Cluster) -> Vec<Place> {
    let host_of = |core: &evenly_cluster::Core| cluster.nodes()[core.node].host;
    let mut numbers: Vec<u32> = cluster.cores().iter().map(host_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut cores = vec![0; numbers.len()];
    let mut places = Vec::with_capacity(cluster.cores().len());
    for core in cluster.cores() {
        let number = host_of(core);
        let host = numbers.iter().position(|n| *n == number).unwrap_or(0);
        places.push(Place { host, slot: cores[host], cpu: core.cpu });
        cores[host] += 1;
    }
    places
}

/// The core of each rank.
fn ranks(graph: &TaskGraph, mapping: &[CoreIndex]) -> Result<Vec<CoreIndex>, FormatError> {
    let mut cores = vec![0; graph.len()];
    for (t, &core) in graph.tasks().iter().zip(mapping) {
        // Numbers differ, so all are used where none is too high.
        let place = usize::try_from(t.id).ok().and_then(|rank| cores.get_mut(rank));
        *place.ok_or(FormatError::NoRank { id: t.id, tasks: graph.len() })? = core;
    }
    Ok(cores)
}

/// The mask of one CPU.
fn mask(cpu: u32) -> Result<String, FormatError> {
    if cpu >= MOST_CPUS {
        return Err(FormatError::Mask { cpu });
    }
    Ok(format!("0x{:x}{}", 1_u32 << (cpu % 4), "0".repeat(cpu as usize / 4)))
}

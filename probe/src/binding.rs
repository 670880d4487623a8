//! Launchers that bind ranks to CPUs by default, and how to switch that off.
//!
//! Open MPI's `mpirun` binds each of up to two ranks to a core, and each of more to a socket or a NUMA node,
//! where no two have to share one (mpirun(1), "Mapping, Ranking, and Binding"). A rank that is bound may use only
//! that, so that it cannot be placed elsewhere. MPICH's (Hydra) binds nothing by default.
//!
//! Invariant: where the user has chosen a binding, on the command line or in the environment, nothing is said.

use crate::mpi::{Flavour, launcher};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What keeps Open MPI from binding ranks by default: up to version 4, and from version 5 on, in
/// which the launcher is PRRTE's. Each looks at its own alone.
const UNBOUND: [(&str, &str); 2] = [
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("PRTE_MCA_hwloc_default_binding_policy", "none"),
];

/// Other variables by which a user says where ranks go.
const CHOSEN: [&str; 8] = [
    "OMPI_MCA_hwloc_base_bind_to_core",
    "OMPI_MCA_hwloc_base_bind_to_socket",
    "OMPI_MCA_hwloc_base_cpu_list",
    "OMPI_MCA_hwloc_base_cpu_set",
    "OMPI_MCA_hwloc_base_slot_list",
    "OMPI_MCA_orte_rankfile",
    "OMPI_MCA_rmaps_rank_file_path",
    "PRTE_MCA_hwloc_default_cpu_list",
];

/// Options that bind, or that say on which CPUs ranks are, without their dashes; all that begin so count.
const OPTIONS: [&str; 8] = [
    "bind-to",
    "cpu-list",
    "cpu-set",
    "cpus-per-proc",
    "cpus-per-rank",
    "rankfile",
    "rf",
    "slot-list",
];

/// Variables with which the command has to be started so that ranks stay free to be placed. Empty where its
/// launcher binds none, or the user has said how.
#[must_use]
pub fn unbound(
    command: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, &'static str)> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let chosen = UNBOUND.iter().map(|(name, _)| *name).chain(CHOSEN).any(is_set)
        || command.iter().skip(1).zip(command.iter().skip(2).map(Some).chain([None])).any(binds);
    let binds_by_itself = || {
        let by = command.first().and_then(|word| launcher(word));
        by == Some(Flavour::OpenMpi)
    };
    if !chosen && binds_by_itself() { UNBOUND.to_vec() } else { Vec::new() }
}

/// Whether a word of the command, with the one behind it, binds. It may be one of the program's: then nothing is
/// done, which is no worse than before.
fn binds((word, next): (&OsString, Option<&OsString>)) -> bool {
    let Some(option) = option(word) else {
        // As in `--mca hwloc_base_binding_policy core`.
        let named = |name: &str| word.as_bytes() == parameter(name).as_bytes();
        return UNBOUND.iter().map(|(name, _)| *name).chain(CHOSEN).any(named);
    };
    let next = next.map(|word| word.to_string_lossy()).unwrap_or_default();
    // Several CPUs for each rank are bound to; so is what a rank file says.
    let maps = ["map-by", "rank-by"].iter().any(|name| option.starts_with(name));
    let mapped = [&*option, &*next].iter().any(|by| {
        let by = by.to_ascii_lowercase();
        by.contains("pe=") || by.contains("rankfile") || by.contains("pe-list")
    });
    OPTIONS.iter().any(|name| option.starts_with(name)) || (maps && mapped)
}

/// A word without its one or two dashes; None where it has none.
fn option(word: &OsStr) -> Option<std::borrow::Cow<'_, str>> {
    let bytes = word.as_bytes();
    let name = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-"))?;
    Some(String::from_utf8_lossy(name))
}

/// The name of a parameter, without what its variable begins with.
fn parameter(variable: &str) -> &str {
    variable.split_once("_MCA_").map_or(variable, |(_, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_chosen_stays() {
        let dir = tempfile::tempdir().unwrap();
        let launcher = |name: &str, said: &str| {
            let path = dir.path().join(name);
            evenly_testing::script(&path, &format!("#!/bin/sh\necho '{said}'\n"));
            path.display().to_string()
        };
        let open_mpi = launcher("mpirun", "mpirun (Open MPI) 4.1.4");
        let mpich = launcher("mpiexec", "HYDRA build details:");
        let names = |command: &str, set: Option<(&str, &str)>| -> Vec<&str> {
            let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            let variable = |name: &str| {
                set.and_then(|(known, value)| (known == name).then(|| OsString::from(value)))
            };
            unbound(&command, variable).into_iter().map(|(name, _)| name).collect()
        };
        let both = UNBOUND.map(|(name, _)| name);
        for free in ["-n 2 ./app", "-n 2 --map-by node ./app", "--report-bindings ./app"] {
            assert_eq!(names(&format!("{open_mpi} {free}"), None), both, "{free}");
        }
        for bound in [
            "-n 2 --bind-to core ./app",
            "-bind-to-core ./app",
            "--bind-to=none ./app",
            "--map-by socket:PE=2 ./app",
            "--map-by=slot:pe=2 ./app",
            "--map-by rankfile:file=ranks.txt ./app",
            "--rankfile ranks.txt ./app",
            "-rf ranks.txt ./app",
            "--cpu-set 0,1 ./app",
            "--mca hwloc_base_binding_policy core ./app",
            "--prtemca hwloc_default_binding_policy core ./app",
        ] {
            assert!(names(&format!("{open_mpi} {bound}"), None).is_empty(), "{bound}");
        }
        for (name, value, free) in [
            ("OMPI_MCA_hwloc_base_binding_policy", "core", false),
            ("PRTE_MCA_hwloc_default_binding_policy", "numa", false),
            ("OMPI_MCA_hwloc_base_cpu_list", "0", false),
            ("OMPI_MCA_hwloc_base_binding_policy", "", true),
            ("OMP_PROC_BIND", "true", true),
        ] {
            let found = names(&format!("{open_mpi} ./app"), Some((name, value)));
            assert_eq!(!found.is_empty(), free, "{name}={value}");
        }
        for other in [format!("{mpich} -n 2 ./app"), String::from("./app -n 2"), String::new()] {
            assert!(names(&other, None).is_empty(), "{other}");
        }
        assert!(unbound(&[], |_| None).is_empty());
    }
}

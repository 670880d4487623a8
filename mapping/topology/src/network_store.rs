//! What was measured between hosts, kept for the next time: once per MPI and set of hosts, keyed by their names and
//! trees.

use crate::machine::Host;
use crate::network::Network;
use crate::store::{digest, key, parse, path, write};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name and version of a kept file.
const SCHEMA: &str = "evenly.network/1";

/// What distinguishes sets of hosts that one MPI connects, in whichever order they are given.
fn network_key(hosts: &[Host], mpi: &str) -> String {
    let mut lines: Vec<String> =
        hosts.iter().map(|h| format!("{} {}\n", h.name, key(h.machine.root()))).collect();
    lines.sort();
    format!("network-{}", digest(&format!("{mpi}\n{}", lines.concat())))
}

/// What was kept of the network between these hosts, as this MPI uses it.
#[must_use]
pub fn kept_network(dir: &Path, hosts: &[Host], mpi: &str) -> Option<Network> {
    let file = fs::read(path(dir, &network_key(hosts, mpi))).ok()?;
    let network: Network = parse(&file, SCHEMA)?;
    let (mut kept, mut wanted): (Vec<&str>, Vec<&str>) = (
        network.hosts.iter().map(String::as_str).collect(),
        hosts.iter().map(|h| h.name.as_str()).collect(),
    );
    kept.sort_unstable();
    wanted.sort_unstable();
    (network.is_sound() && kept == wanted).then_some(network)
}

/// Keeps what was measured between these hosts; where.
///
/// # Errors
/// What the system says.
pub fn keep_network(
    dir: &Path,
    hosts: &[Host],
    mpi: &str,
    network: &Network,
) -> io::Result<PathBuf> {
    write(dir, &network_key(hosts, mpi), SCHEMA, network)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::two_hosts;
    use crate::synthetic;

    #[test]
    fn a_network_is_kept_for_its_hosts_and_mpi() {
        let dir = tempfile::tempdir().unwrap();
        let host =
            |name: &str, text| Host { name: name.to_owned(), machine: synthetic(text).unwrap() };
        let hosts = [host("a", "core:2"), host("b", "core:2")];
        let at = dir.path();
        assert_eq!(kept_network(at, &hosts, "MPICH"), None);
        let path = keep_network(at, &hosts, "MPICH", &two_hosts()).unwrap();
        let turned = [hosts[1].clone(), hosts[0].clone()];
        assert_eq!(kept_network(at, &turned, "MPICH"), Some(two_hosts()));
        for (others, mpi) in [
            (hosts.clone(), "Open MPI"),
            ([host("a", "core:2"), host("c", "core:2")], "MPICH"),
            ([host("a", "core:2"), host("b", "core:4")], "MPICH"),
        ] {
            assert_eq!(kept_network(at, &others, mpi), None);
        }
        let text = fs::read_to_string(&path).unwrap();
        for bad in
            [String::new(), text.replace("network/1", "network/2"), text.replace("\"a\"", "\"z\"")]
        {
            fs::write(&path, bad).unwrap();
            assert_eq!(kept_network(at, &hosts, "MPICH"), None);
        }
    }
}

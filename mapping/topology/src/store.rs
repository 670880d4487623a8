//! What was measured, kept for the next time: once per machine, keyed by its tree, and once per MPI and
//! set of hosts, keyed by their names and trees; below the user's cache directory (XDG).
//!
//! Invariant: what cannot be read, or does not hold together, is as if it were not there; a file is
//! replaced as a whole or not at all.

use crate::machine::Host;
use crate::measured::Measurement;
use crate::network::Network;
use crate::tree::{Kind, Object};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name and version of a kept file.
const SCHEMA: &str = "evenly.factors/1";
/// The same of what was measured between hosts.
const SCHEMA_NETWORK: &str = "evenly.network/1";

#[derive(Serialize, Deserialize)]
struct File<T> {
    schema: String,
    measured: T,
}

/// Where evenly keeps a part of what it found out or made: `$XDG_CACHE_HOME/evenly/PART`, or below
/// `~/.cache`; None where neither is known.
#[must_use]
pub fn cache_dir(part: &str) -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("evenly").join(part))
}

/// Where measurements are kept: [`cache_dir`] of `topology`.
#[must_use]
pub fn default_dir() -> Option<PathBuf> {
    cache_dir("topology")
}

/// What distinguishes machines: kinds and numbers of all objects, sizes of caches, models of packages.
/// Sizes of memory are left out: they change a little from kernel to kernel.
pub(crate) fn key(root: &Object) -> String {
    let mut text = String::new();
    for o in root.all() {
        let size = if o.kind.is_cache() { o.bytes } else { None };
        let name = if o.kind == Kind::Package { o.name.as_deref() } else { None };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:?} {:?} {} {size:?} {name:?}", o.kind, o.number, o.cpus);
    }
    digest(&text)
}

/// The same of hosts that one MPI connects, in whichever order they are given.
fn network_key(hosts: &[Host], mpi: &str) -> String {
    let mut lines: Vec<String> =
        hosts.iter().map(|h| format!("{} {}\n", h.name, key(h.machine.root()))).collect();
    lines.sort();
    format!("network-{}", digest(&format!("{mpi}\n{}", lines.concat())))
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(12).fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn path(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("{key}.json"))
}

fn parse<T: DeserializeOwned>(bytes: &[u8], schema: &str) -> Option<T> {
    let file: File<T> = serde_json::from_slice(bytes).ok()?;
    (file.schema == schema).then_some(file.measured)
}

fn write<T: Serialize>(dir: &Path, key: &str, schema: &str, measured: T) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let text = serde_json::to_vec_pretty(&File { schema: schema.to_owned(), measured })?;
    let (path, part) = (path(dir, key), dir.join(format!("{key}.{}.part", std::process::id())));
    fs::write(&part, text)?;
    fs::rename(&part, &path).inspect_err(|_| {
        // What is left is only clutter.
        let _ = fs::remove_file(&part);
    })?;
    Ok(path)
}

/// What was kept of this machine.
pub(crate) fn load(dir: &Path, key: &str) -> Option<Measurement> {
    parse_kept(&fs::read(path(dir, key)).ok()?)
}

/// What a kept file holds; None where it does not hold together.
#[must_use]
pub fn parse_kept(bytes: &[u8]) -> Option<Measurement> {
    parse(bytes, SCHEMA).filter(Measurement::is_sound)
}

/// Keeps what was measured; where.
pub(crate) fn save(dir: &Path, key: &str, measured: &Measurement) -> io::Result<PathBuf> {
    write(dir, key, SCHEMA, measured)
}

/// What was kept of the network between these hosts, as this MPI uses it.
#[must_use]
pub fn kept_network(dir: &Path, hosts: &[Host], mpi: &str) -> Option<Network> {
    let file = fs::read(path(dir, &network_key(hosts, mpi))).ok()?;
    let network: Network = parse(&file, SCHEMA_NETWORK)?;
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
    write(dir, &network_key(hosts, mpi), SCHEMA_NETWORK, network)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::two_nodes;
    use crate::network::tests::two_hosts;
    use crate::synthetic;

    #[test]
    fn what_is_kept_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("a/b");
        assert_eq!(load(&at, "k"), None);
        let path = save(&at, "k", &two_nodes()).unwrap();
        assert_eq!(load(&at, "k"), Some(two_nodes()));
        assert_eq!(load(&at, "other"), None);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 1);
        for bad in ["", "{}", "null", &fs::read_to_string(&path).unwrap().replace("80.0", "-80.0")]
        {
            fs::write(&path, bad).unwrap();
            assert_eq!(load(&at, "k"), None);
        }
    }

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

    #[test]
    fn keys_tell_machines_apart() {
        let of = |text| key(synthetic(text).unwrap().root());
        assert_eq!(of("numa:2 core:4 pu:2"), of("numa:2 core:4 pu:2"));
        assert_eq!(of("numa:2(memory=1GiB) core:4 pu:2"), of("numa:2(memory=2GiB) core:4 pu:2"));
        assert_ne!(of("numa:2 core:4 pu:2"), of("numa:2 core:4 pu:1"));
        assert_ne!(of("l3:2(size=1MiB) core:4 pu:2"), of("l3:2(size=2MiB) core:4 pu:2"));
    }
}

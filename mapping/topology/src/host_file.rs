//! What a host says of itself to the evenly that puts hosts together: a file in a directory that they
//! share, `evenly.host/1`.
//!
//! Invariant: of processes on one host, one writes; a file is there as a whole or not at all.

use crate::machine::{Host, MOST_XML_BYTES, MachineTopology, Origin, TopologyError, from_xml_text};
use crate::measured::Measurement;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Name and version of the file.
const SCHEMA: &str = "evenly.host/1";
/// What the names of such files end with.
const ENDING: &str = "host.json";

#[derive(Serialize, Deserialize)]
struct HostFile {
    schema: String,
    name: String,
    xml: String,
    measured: Option<Measurement>,
    /// Why nothing was measured, and what else is to be said.
    notes: Vec<String>,
}

/// Why there are no hosts.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file or the directory cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is none of a host.
    #[error("{}: {what}", .path.display())]
    Wrong {
        /// The file that is wrong.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Its tree is none.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

/// What is known of a host, and what it had to say.
#[derive(Debug, Clone)]
pub struct HostReport {
    /// The host, as the file has it.
    pub host: Host,
    /// What there is to say about it.
    pub notes: Vec<String>,
}

/// Takes the part of this host in a directory; false where another process of the host has it already.
///
/// # Errors
/// What the system says.
pub fn claim_host(dir: &Path, name: &str) -> io::Result<bool> {
    let path = dir.join(format!("{}.lock", plain(name)));
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

/// Writes what is known of this host.
///
/// # Errors
/// What the system says.
pub fn write_host(
    dir: &Path,
    name: &str,
    machine: &MachineTopology,
    notes: &[String],
) -> io::Result<()> {
    let file = HostFile {
        schema: SCHEMA.to_owned(),
        name: name.to_owned(),
        xml: machine.plain_xml().to_owned(),
        measured: machine.measurement().cloned(),
        notes: notes.to_vec(),
    };
    let path = dir.join(format!("{}.{ENDING}", plain(name)));
    let part = path.with_extension("part");
    fs::write(&part, serde_json::to_vec(&file)?)?;
    fs::rename(&part, &path)
}

/// A name that can be one of a file.
fn plain(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    format!("host-{name}")
}

/// All hosts that have described themselves, in the order of their names.
///
/// # Errors
/// Where one cannot be read, or is none.
pub fn read_hosts(dir: &Path) -> Result<Vec<HostReport>, HostError> {
    let cannot = |path: &Path| {
        let path = path.to_owned();
        move |source| HostError::Read { path, source }
    };
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(cannot(dir))? {
        let path = entry.map_err(cannot(dir))?.path();
        if path.to_str().is_some_and(|name| name.ends_with(ENDING)) {
            all.push(read_host(&path)?);
        }
    }
    all.sort_by(|a, b| a.host.name.cmp(&b.host.name));
    Ok(all)
}

fn read_host(path: &Path) -> Result<HostReport, HostError> {
    let cannot = |source| HostError::Read { path: path.to_owned(), source };
    let wrong = |what: String| HostError::Wrong { path: path.to_owned(), what };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(2 * MOST_XML_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    let found: HostFile = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    if found.schema != SCHEMA {
        return Err(wrong(format!("its schema is '{}'; {SCHEMA} is needed", found.schema)));
    }
    let origin = Origin::Hosts(vec![found.name.clone()]);
    let mut machine = from_xml_text(&found.xml, origin, path)?;
    if let Some(measured) = found.measured {
        if !measured.is_sound() {
            return Err(wrong(String::from("what was measured does not hold together")));
        }
        machine = machine.with_measurement(measured);
    }
    Ok(HostReport { host: Host { name: found.name, machine }, notes: found.notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::two_nodes;
    use crate::synthetic;

    #[test]
    fn hosts_tell_about_themselves_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        for name in ["b", "a/../x"] {
            assert!(claim_host(at, name).unwrap() && !claim_host(at, name).unwrap());
        }
        let machine = synthetic("numa:2 core:2").unwrap();
        write_host(at, "b", &machine.clone().with_measurement(two_nodes()), &[]).unwrap();
        write_host(at, "a/../x", &machine, &["why".to_owned()]).unwrap();
        let hosts = read_hosts(at).unwrap();
        let names: Vec<&str> = hosts.iter().map(|t| t.host.name.as_str()).collect();
        assert_eq!(names, ["a/../x", "b"]);
        assert_eq!(hosts[0].notes, ["why"]);
        assert_eq!(hosts[1].host.machine.measurement(), Some(&two_nodes()));
        assert!(hosts[0].host.machine.measurement().is_none());
        assert_eq!(hosts[1].host.machine.factors().values(), [1.0, 1.5, 1.5, 1.0]);
    }

    #[test]
    fn what_is_no_host_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write_host(
            dir.path(),
            "b",
            &synthetic("core:2").unwrap().with_measurement(two_nodes()),
            &[],
        )
        .unwrap();
        let file = dir.path().join("host-b.host.json");
        let good = fs::read_to_string(&file).unwrap();
        for bad in [
            String::new(),
            good.replace("host/1", "host/2"),
            good.replace("<topology", "<nothing"),
            good.replace("80.0", "-80.0"),
        ] {
            assert_ne!(bad, good);
            fs::write(&file, bad).unwrap();
            let error = read_hosts(dir.path()).unwrap_err().to_string();
            assert!(error.contains("host-b.host.json") && error.lines().count() == 1, "{error}");
        }
        assert!(read_hosts(&dir.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}

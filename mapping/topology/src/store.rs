//! What was measured, kept for the next time below the user's cache directory (XDG): once per machine, keyed by
//! its tree.
//!
//! Invariant: what cannot be read, or does not hold together, is as if it were not there; a file is
//! replaced as a whole or not at all.

use crate::measured::Measurement;
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

pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(12).fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

pub(crate) fn path(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("{key}.json"))
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], schema: &str) -> Option<T> {
    let file: File<T> = serde_json::from_slice(bytes).ok()?;
    (file.schema == schema).then_some(file.measured)
}

pub(crate) fn write<T: Serialize>(
    dir: &Path,
    key: &str,
    schema: &str,
    measured: T,
) -> io::Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::two_nodes;
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
    fn keys_tell_machines_apart() {
        let of = |text| key(synthetic(text).unwrap().root());
        assert_eq!(of("numa:2 core:4 pu:2"), of("numa:2 core:4 pu:2"));
        assert_eq!(of("numa:2(memory=1GiB) core:4 pu:2"), of("numa:2(memory=2GiB) core:4 pu:2"));
        assert_ne!(of("numa:2 core:4 pu:2"), of("numa:2 core:4 pu:1"));
        assert_ne!(of("l3:2(size=1MiB) core:4 pu:2"), of("l3:2(size=2MiB) core:4 pu:2"));
    }
}

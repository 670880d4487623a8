//! The guest's root file system: a cpio archive in the `newc` format, written
//! here, with the programs that are to run and the shared libraries they need.
//!
//! Invariant: every entry's parent directories precede it, as the kernel's
//! unpacker needs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{FileHeader, ProgramHeader};

use crate::error::{LabError, Result};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_600;

enum Entry {
    Directory,
    File { mode: u32, data: Vec<u8> },
    CharacterDevice { major: u32, minor: u32 },
}

/// An archive in the making, ordered by path.
#[derive(Default)]
pub(crate) struct Initramfs {
    entries: BTreeMap<String, Entry>,
}

impl Initramfs {
    pub(crate) fn file(&mut self, guest: &str, mode: u32, data: Vec<u8>) {
        let path = self.parents(guest);
        self.entries.insert(path, Entry::File { mode, data });
    }

    pub(crate) fn character_device(&mut self, guest: &str, major: u32, minor: u32) {
        let path = self.parents(guest);
        self.entries.insert(path, Entry::CharacterDevice { major, minor });
    }

    pub(crate) fn directory(&mut self, guest: &str) {
        let path = self.parents(guest);
        self.entries.entry(path).or_insert(Entry::Directory);
    }

    /// Copies a host file, and, where it is a dynamically linked program, its
    /// loader and libraries to the paths that they have on the host. A symbolic
    /// link becomes the file it leads to.
    pub(crate) fn host_file(&mut self, host: &Path, guest: &str) -> Result<()> {
        let data = fs::read(host).map_err(LabError::file(host))?;
        let mode = fs::metadata(host).map_err(LabError::file(host))?.permissions().mode() & 0o7777;
        let loader = interpreter(&data);
        self.file(guest, mode, data);
        let Some(loader) = loader else { return Ok(()) };
        let output = Command::new(&loader)
            .arg("--list")
            .arg(host)
            .env_remove("LD_PRELOAD")
            .output()
            .map_err(LabError::file(&loader))?;
        let listing = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(LabError::Options(format!(
                "{}: its libraries cannot be found: {} --list says {}",
                host.display(),
                loader.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        let libraries = libraries(&listing).map_err(|missing| {
            LabError::Options(format!(
                "{}: its shared library {missing} is not on this machine",
                host.display()
            ))
        })?;
        for library in libraries.into_iter().chain([loader]) {
            let Some(guest) = library.to_str() else { continue };
            if !self.entries.contains_key(guest.trim_start_matches('/')) {
                let data = fs::read(&library).map_err(LabError::file(&library))?;
                self.file(guest, 0o755, data);
            }
        }
        Ok(())
    }

    /// The archive, in the kernel's `newc` cpio format (its
    /// Documentation/driver-api/early-userspace/buffer-format.rst).
    pub(crate) fn archive(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        for (number, (path, entry)) in (1u32..).zip(&self.entries) {
            let (mode, data, device) = match entry {
                Entry::Directory => (DIRECTORY, &[][..], (0, 0)),
                Entry::File { mode, data } => (FILE | mode, data.as_slice(), (0, 0)),
                Entry::CharacterDevice { major, minor } => {
                    (CHARACTER_DEVICE, &[][..], (*major, *minor))
                }
            };
            append(&mut archive, number, path, mode, device, data);
        }
        append(&mut archive, 0, "TRAILER!!!", 0, (0, 0), &[]);
        archive
    }

    fn parents(&mut self, guest: &str) -> String {
        let path = guest.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Directory);
        }
        path.to_owned()
    }
}

fn append(
    archive: &mut Vec<u8>,
    inode: u32,
    path: &str,
    mode: u32,
    (major, minor): (u32, u32),
    data: &[u8],
) {
    let links = 1;
    let fields = [
        u64::from(inode),
        u64::from(mode),
        0, // owner
        0, // group
        links,
        0, // time of change
        data.len() as u64,
        0, // device, major
        0, // device, minor
        u64::from(major),
        u64::from(minor),
        path.len() as u64 + 1,
        0, // checksum, unused
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(path.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(data);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// The dynamic loader that a program asks for; none for static programs and for
/// what is no program.
pub(crate) fn interpreter(data: &[u8]) -> Option<PathBuf> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    header.program_headers(endian, data).ok()?.iter().find_map(|segment| {
        let path = segment.interpreter(endian, data).ok()??;
        Some(PathBuf::from(std::str::from_utf8(path).ok()?))
    })
}

/// Reads what `ld.so --list` prints. The error names a library that is missing.
pub(crate) fn libraries(listing: &str) -> std::result::Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in listing.lines() {
        let line = line.trim();
        let (name, target) = match line.split_once(" => ") {
            Some((name, target)) => (name, target),
            None => (line, line),
        };
        if target.starts_with("not found") {
            return Err(name.to_owned());
        }
        let path = target.rsplit_once(" (").map_or(target, |(path, _)| path);
        // The rest is the vDSO, which has no file, and remarks.
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_loaders_listing() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc0d1f2000)\n\
            \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f0000000000)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000100000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f0000300000)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(libraries(listing), Ok(expected.iter().map(PathBuf::from).collect()));
        assert_eq!(libraries("\tstatically linked\n"), Ok(vec![]));
        assert_eq!(libraries("\tlibomp.so.5 => not found\n"), Err("libomp.so.5".into()));
    }

    #[test]
    fn archive_has_parents_first_and_is_padded() {
        let mut initramfs = Initramfs::default();
        initramfs.file("/a/b/c", 0o755, b"xyz".to_vec());
        initramfs.character_device("/dev/null", 1, 3);
        let archive = initramfs.archive();
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"));
        assert!(at("a/b/c\0") < at("TRAILER!!!\0"));
        // Header and name of `a` (110 + 2 bytes), then `a/b` at a multiple of 4.
        assert_eq!(&archive[112..118], b"070701");
        assert_eq!(&text[14..22], "000041ed");
    }

    #[test]
    fn a_dynamic_program_brings_its_libraries() {
        let this = std::env::current_exe().unwrap();
        let mut initramfs = Initramfs::default();
        initramfs.host_file(&this, "/bin/this").unwrap();
        let dynamic = interpreter(&fs::read(&this).unwrap()).is_some();
        let has_libc = initramfs.entries.keys().any(|path| path.ends_with("/libc.so.6"));
        assert_eq!(dynamic, has_libc);
    }
}

//! Whether the programs of a command can wait by spinning, as far as their files show.

use crate::load::programs;
use crate::mpi::needed;
use evenly_spins::Module;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// Where libraries are that a program needs by their name.
const DIRECTORIES: [&str; 5] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
];
/// A file that is larger is not looked at.
const LARGEST: u64 = 256 << 20;

/// Whether one of the programs among the words of a command waits by `pause` somewhere, or a library that it names, as
/// OpenMP's are; not so where a program has Go's runtime. Libraries of libraries, and those that are loaded later, are
/// left out.
#[must_use]
pub fn may_spin(command: &[OsString]) -> bool {
    programs(command).iter().any(|(_, path)| {
        let Some((module, needed)) = look_at(path.clone()) else { return false };
        let of_library = |name: &String| {
            let paths = DIRECTORIES.iter().map(|dir| PathBuf::from(dir).join(name));
            // The C library spins for as long as a lock takes to be given back.
            !name.starts_with("libc.so")
                && !name.starts_with("ld-")
                && paths.filter(|p| p.exists()).take(1).filter_map(look_at).any(|(m, _)| spins(&m))
        };
        !module.is_go && (spins(&module) || needed.iter().any(of_library))
    })
}

fn spins(module: &Module) -> bool {
    !module.pauses.is_empty()
}

/// What is known of a file, and the names of libraries that it needs; None where it is no module.
fn look_at(path: PathBuf) -> Option<(Module, Vec<String>)> {
    if fs::metadata(&path).ok()?.len() > LARGEST {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let names = needed(&*bytes).unwrap_or_default();
    let names = names.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    Some((Module::of(&bytes).ok()?, names))
}

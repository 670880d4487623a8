//! The files in memory through which probes talk to evenly.
//!
//! Invariant: such a file keeps its size for ever. One program that made it shorter would end all others that
//! have mapped it.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;

/// A new file of this name, as given to memfd_create(2), with so many bytes. An error comes with what failed.
pub(crate) fn sealed(name: &str, bytes: u64) -> Result<File, (&'static str, io::Error)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags).map_err(|e| ("memfd_create", e.into()))?);
    file.set_len(bytes).map_err(|e| ("its size", e))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(|e| ("sealing its size", e.into()))?;
    Ok(file)
}

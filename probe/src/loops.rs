//! The file in memory to which `libevenly_loops` tells, in lines of JSON, what loops do (`loops/src/telling.rs`): it is gone with
//! evenly, whatever ends it.
//!
//! Invariant: it is only read here. What stands in it is whatever programs write.

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsRawFd;

/// The variable that names the file to programs.
pub const VARIABLE: &str = "EVENLY_LOOPS_REPORT";
/// How the file is called in `/proc`. The library writes to no other one there.
const NAME: &str = "evenly-loops";
/// No more bytes than that are read.
const MOST: u64 = 64 << 20;

/// What the loops of a run have told, if its programs are started with [`Told::variable`] in their environment.
#[derive(Debug)]
pub struct Told(File);

impl Told {
    /// Nothing yet.
    ///
    /// # Errors
    /// Where the system has no place for it.
    pub fn new() -> io::Result<Self> {
        let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        Ok(Self(file))
    }

    /// The variable to be set for programs.
    #[must_use]
    pub fn variable(&self) -> (OsString, OsString) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        (VARIABLE.into(), path.into())
    }

    /// Its lines, as far as it can be read.
    pub fn lines(self) -> impl Iterator<Item = Vec<u8>> {
        BufReader::new(self.0.take(MOST)).split(b'\n').map_while(Result::ok)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_programs_write_is_read_by_lines() {
        let told = Told::new().unwrap();
        let (_, path) = told.variable();
        for line in ["one\n", "two\n", "a part"] {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            file.write_all(line.as_bytes()).unwrap();
        }
        assert!(told.lines().eq(["one", "two", "a part"].map(Vec::from)));
    }
}

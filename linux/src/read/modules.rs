//! The code that a process has mapped.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// An executable mapping of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// Where in the file the first of them is.
    pub offset: u64,
    /// The file's inode.
    pub inode: u64,
    /// The file's path, as the process sees it.
    pub path: PathBuf,
}

impl Code {
    /// The address of a byte of the file, where this mapping has it.
    #[must_use]
    pub fn address(&self, in_file: u64) -> Option<u64> {
        let at = self.addresses.start.checked_add(in_file.checked_sub(self.offset)?)?;
        self.addresses.contains(&at).then_some(at)
    }
}

/// The private executable mappings of files in `/proc/<pid>/maps`, but those that can be written to as well and those of
/// files that are gone.
#[must_use]
pub fn parse_code(maps: &[u8]) -> Vec<Code> {
    maps.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// `7f8a1c028000-7f8a1c1b0000 r-xp 00028000 fe:00 1443 /usr/lib/libc.so.6`.
fn parse_line(line: &[u8]) -> Option<Code> {
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        std::str::from_utf8(word).ok()
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let rights = field()?;
    let offset = hex(field()?)?;
    let _device = field()?;
    let inode = field()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    let addresses = hex(start)?..hex(end)?;
    let is_code = rights == "r-xp" && path.starts_with(b"/") && !path.ends_with(b" (deleted)");
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    is_code.then_some(Code { addresses, offset, inode, path })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_with_the_place_of_each_byte() {
        let maps = b"55d0c8a00000-55d0c8a01000 r--p 00000000 fe:00 1234                       /opt/my app\n\
            55d0c8a01000-55d0c8a02000 r-xp 00001000 fe:00 1234                       /opt/my app\n\
            55d0c8a05000-55d0c8a06000 rwxp 00000000 00:00 0 \n\
            7f0000000000-7f0000001000 r-xp 00000000 fe:00 77 /lib/gone.so (deleted)\n\
            7ffd1b9f2000-7ffd1b9f4000 r-xp 00000000 00:00 0                          [vdso]\n\
            garbage\n\
            -1-2 r-xp 0 0 0 /x\n";
        let code = parse_code(maps);
        assert_eq!(code.len(), 1);
        assert_eq!((code[0].path.to_str(), code[0].inode), (Some("/opt/my app"), 1234));
        assert_eq!(code[0].address(0x1010), Some(0x55d0_c8a0_1010));
        assert_eq!((code[0].address(0xfff), code[0].address(0x2000)), (None, None));
    }

    #[test]
    fn this_process_has_code() {
        let code = parse_code(&std::fs::read("/proc/self/maps").unwrap());
        let own = std::env::current_exe().unwrap();
        assert!(code.iter().any(|c| c.path == own), "{code:?}");
    }
}

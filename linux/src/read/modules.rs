//! The code that a process has mapped, and what is known of it by its files.

use crate::proc::Proc;
use evenly_model::Pid;
use evenly_spins::{Module, is_go};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A file that is larger is not looked at.
const LARGEST: u64 = 512 << 20;

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

    /// Where in the file the byte at an address is, where this mapping has it.
    #[must_use]
    pub fn in_file(&self, at: u64) -> Option<u64> {
        let within = at.checked_sub(self.addresses.start).filter(|_| at < self.addresses.end)?;
        self.offset.checked_add(within)
    }

    /// Whether it is the loader, whose code runs while all signals are blocked, or one of evenly's own libraries.
    #[must_use]
    pub fn is_of_system(&self) -> bool {
        let name = self.path.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
        ["ld-", "ld.so", "waiting-"].iter().any(|prefix| name.starts_with(prefix))
            || self.hands_over()
    }

    /// Whether it is the library by which threads hand over their CPU.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        let name = self.path.file_name().unwrap_or(OsStr::new(""));
        name.as_bytes().starts_with(b"handover-")
    }
}

/// A file that is larger is gone through by another thread, which can take a second where threads spin on all CPUs.
const LARGE: u64 = 4 << 20;

/// One that takes longer, as its disk does not answer, is no longer waited for.
const LONGEST: Duration = Duration::from_secs(60);

/// What is known of a file; nothing yet while it is gone through.
#[derive(Debug)]
struct Known {
    module: Arc<OnceLock<Arc<Module>>>,
    since: Instant,
}

/// While nobody waits for it, a search goes on for so long at a time, and then pauses for so long.
const STRETCH: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(19);

/// A large file that is to be gone through.
struct Search {
    file: File,
    module: Arc<OnceLock<Arc<Module>>>,
}

impl Search {
    fn go(self, pause: impl FnMut()) {
        let search = || {
            let module = read(&self.file).and_then(|bytes| Module::of_slowly(&bytes, pause).ok());
            Arc::new(module.unwrap_or_default())
        };
        // Nothing is known of what the decoder cannot stand; all others go on.
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(search));
        _ = self.module.set(found.unwrap_or_default());
    }
}

/// What is known of files: each is read once.
#[derive(Debug, Default)]
pub struct Modules {
    files: HashMap<(u64, PathBuf), Known>,
    /// Which have Go's runtime.
    go: HashMap<(u64, PathBuf), bool>,
    /// To the thread that goes through large files, one after the other.
    searches: Option<Sender<Search>>,
    /// Nobody waits for what that thread finds.
    may_wait: Arc<AtomicBool>,
}

impl Modules {
    /// What is known of the file of a mapping; nothing of one that is no module, or cannot be read. None while it is gone through.
    pub fn of(&mut self, proc: &Proc, pid: Pid, code: &Code) -> Option<Arc<Module>> {
        let key = (code.inode, code.path.clone());
        if let Some(known) = self.files.get(&key) {
            return known.module.get().cloned();
        }
        let module = Arc::new(OnceLock::new());
        let known = Known { module: module.clone(), since: Instant::now() };
        self.files.insert(key, known);
        let file = open(proc, pid, code);
        let search = |file| Search { file, module: module.clone() };
        let size = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |m| m.len());
        match file {
            None => _ = module.set(Arc::default()),
            Some(file) if size <= LARGE => search(file).go(|| {}),
            Some(file) => self.later(search(file)),
        }
        module.get().cloned()
    }

    /// Whether the file of a mapping has Go's runtime.
    pub fn is_go(&mut self, proc: &Proc, pid: Pid, code: &Code) -> bool {
        let is_small = |file: &File| file.metadata().is_ok_and(|m| m.len() <= LARGEST);
        let is_go = || open(proc, pid, code).filter(is_small).is_some_and(is_go);
        *self.go.entry((code.inode, code.path.clone())).or_insert_with(is_go)
    }

    fn later(&mut self, search: Search) {
        let start = || {
            let (sender, receiver) = channel::<Search>();
            let may_wait = self.may_wait.clone();
            let go = move || {
                let mut since = Instant::now();
                let mut pause = || {
                    // Relaxed: when it is seen matters little.
                    if may_wait.load(Ordering::Relaxed) && since.elapsed() > STRETCH {
                        std::thread::sleep(PAUSE);
                        since = Instant::now();
                    }
                };
                receiver.into_iter().for_each(|search: Search| search.go(&mut pause));
            };
            std::thread::Builder::new().name("search".into()).spawn(go).ok().map(|_| sender)
        };
        if self.searches.is_none() {
            self.searches = start();
        }
        let module = search.module.clone();
        if self.searches.as_ref().is_none_or(|searches| searches.send(search).is_err()) {
            // Where no thread can be had nothing is known of it.
            _ = module.set(Arc::default());
        }
    }

    /// Whether nobody waits for what is searched for: large files are gone through at a twentieth of the pace then, as their
    /// search takes CPUs from the program.
    pub fn may_wait(&self, may: bool) {
        self.may_wait.store(may, Ordering::Relaxed);
    }

    /// Whether a file is gone through at present.
    #[must_use]
    pub fn is_searching(&self) -> bool {
        let is_waited_for = |known: &Known| known.since.elapsed() < LONGEST;
        self.files.values().any(|known| known.module.get().is_none() && is_waited_for(known))
    }

    /// How many files it has been asked for.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }
}

/// The file of a mapping, as the process sees it; None where it is another one by now, or out of reach.
#[must_use]
pub fn open(proc: &Proc, pid: Pid, code: &Code) -> Option<File> {
    let path = code.path.strip_prefix("/").unwrap_or(&code.path);
    let file = File::open(proc.process_file(pid, "root").join(path)).ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.ino() == code.inode && metadata.is_file()).then_some(file)
}

/// All that is in it, if that is not too much.
#[must_use]
pub fn read(mut file: &File) -> Option<Vec<u8>> {
    if file.metadata().ok()?.len() > LARGEST {
        return None;
    }
    let mut bytes = Vec::new();
    file.rewind().ok()?;
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// How this place of a file is called in its source, where that can be said.
#[must_use]
pub fn named(path: &Path, offset: u64) -> Option<String> {
    let module = path.file_name()?.to_string_lossy();
    evenly_spins::place(&read(&File::open(path).ok()?)?, offset, &module)
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
        assert_eq!(code[0].in_file(0x55d0_c8a0_1010), Some(0x1010));
        let outside = [0x55d0_c8a0_0fff, 0x55d0_c8a0_2000].map(|at| code[0].in_file(at));
        assert_eq!(outside, [None, None]);
    }

    /// Would catch: what is found in a large file that never arrives; one that is gone through again and again.
    #[test]
    fn large_files_are_gone_through_meanwhile() {
        let (proc, pid) = (Proc::default(), Pid(std::process::id().cast_signed()));
        let code = parse_code(&std::fs::read("/proc/self/maps").unwrap());
        let exe = std::env::current_exe().unwrap();
        let own = code.iter().find(|c| c.path == exe).unwrap();
        let mut modules = Modules::default();
        let at_once = modules.of(&proc, pid, own);
        assert_eq!(at_once.is_none(), std::fs::metadata(&exe).unwrap().len() > LARGE);
        let begin = std::time::Instant::now();
        while modules.is_searching() && begin.elapsed().as_secs() < 120 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let found = modules.of(&proc, pid, own).unwrap();
        assert_eq!(found.machine, evenly_spins::Machine::HOST);
        assert!(Arc::ptr_eq(&found, &modules.of(&proc, pid, own).unwrap()));
        assert!(!modules.is_go(&proc, pid, own));
        assert_eq!(modules.count(), 1);
    }

    #[test]
    fn this_process_has_code() {
        let code = parse_code(&std::fs::read("/proc/self/maps").unwrap());
        let own = std::env::current_exe().unwrap();
        assert!(code.iter().any(|c| c.path == own), "{code:?}");
    }
}

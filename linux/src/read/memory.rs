//! Memory of another process: on which NUMA nodes it is, and how it is moved from one to another, piece by
//! piece.
//!
//! Which pages: those of private writable mappings (`/proc/<pid>/maps`) of which `/proc/<pid>/numa_maps`
//! says that some are on the node, and which move_pages(2) then finds there one by one. Shared memory
//! and files are left alone: others use them too.
//!
//! Invariants:
//! - The program notices nothing: pages keep their addresses and contents.
//! - A piece is short (a few thousand pages), because the balancer waits for it.
//! - Everything that the kernel refuses, a page or all of them, is counted or reported, never an end of
//!   anything else: a process may end, or belong to another user.

use crate::proc::{Proc, read_all, status_number};
use evenly_engine::{MemoryMoved, MemoryUnknown};
use evenly_model::Pid;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::ops::Range;
use std::ptr;

/// Pages that are looked at in one piece.
const PAGES_PER_PIECE: usize = 4096;
/// Pages of one system call.
const PAGES_PER_CALL: usize = 1024;
/// Most pages of a process that are looked at in one go: 64 GiB of small pages.
const MOST_PAGES: u64 = 16 << 20;
/// How often a process is gone through: a page that the kernel is just making part of a large one is on
/// no node, or on its old one again a moment after it was moved.
const MOST_LOOKS: u32 = 4;

/// Private writable mappings of `/proc/<pid>/maps`: their addresses.
#[must_use]
pub fn parse_maps(text: &[u8]) -> Vec<Range<u64>> {
    let line = |line: &[u8]| {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |s: &str| u64::from_str_radix(s, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let rights = words.next()?.as_bytes();
        let ours = rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b'p');
        (ours && start < end).then_some(start..end)
    };
    // A line with a name that is no text is none of anonymous memory.
    text.split(|&b| b == b'\n').filter_map(line).collect()
}

/// How many pages of each mapping, by its first address, `/proc/<pid>/numa_maps` says to be on the node:
/// of small pages that are not shared with a file. Huge pages that were asked for as such are left out.
#[must_use]
pub fn parse_numa_maps(text: &[u8], node: u32) -> HashMap<u64, u64> {
    let on = |(start, nodes): (u64, Vec<(u32, u64)>)| {
        let pages = nodes.into_iter().filter(|(n, _)| *n == node).map(|(_, pages)| pages).max()?;
        (pages > 0).then_some((start, pages))
    };
    own_mappings(text).filter_map(on).collect()
}

/// How many pages `/proc/<pid>/numa_maps` says to be on each node, of the same mappings. Such a mapping
/// may have pages of a file beside its own, which are counted, too.
#[must_use]
pub fn parse_nodes(text: &[u8]) -> BTreeMap<u32, u64> {
    let mut found: BTreeMap<u32, u64> = BTreeMap::new();
    for (node, pages) in own_mappings(text).flat_map(|(_, nodes)| nodes) {
        if pages > 0 {
            let all = found.entry(node).or_default();
            *all = all.saturating_add(pages);
        }
    }
    found
}

/// The lines of `/proc/<pid>/numa_maps` of mappings with pages of the process's own: where each begins,
/// and its pages on nodes. A line that cannot be read is left out.
fn own_mappings(text: &[u8]) -> impl Iterator<Item = (u64, Vec<(u32, u64)>)> {
    let line = |line: &[u8]| {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        let (mut nodes, mut anonymous) = (Vec::new(), false);
        for word in words {
            anonymous |= word.starts_with("anon=");
            // Nothing else begins with an N and a number.
            let of_node = word.strip_prefix('N').and_then(|w| w.split_once('='));
            if let Some((Ok(node), pages)) = of_node.map(|(node, pages)| (node.parse(), pages)) {
                nodes.push((node, pages.parse().ok()?));
            }
            if word == "huge" {
                return None;
            }
        }
        anonymous.then_some((start, nodes))
    };
    text.split(|&b| b == b'\n').filter_map(line)
}

/// Bytes of its own that a process has on each node. The kernel goes through all its pages for that, and
/// the process cannot change its mappings meanwhile.
///
/// # Errors
/// [`MemoryUnknown`], with what would mend it.
pub(crate) fn on_nodes(proc: &Proc, pid: Pid) -> Result<Vec<(u32, u64)>, MemoryUnknown> {
    let unknown = |e: io::Error| {
        let has_ended = !proc.process_file(pid, "stat").exists();
        if e.raw_os_error() == Some(libc::ESRCH) || has_ended {
            return MemoryUnknown::Gone;
        }
        let remedy = match e.kind() {
            io::ErrorKind::PermissionDenied => {
                "; that of another user's process, or of one that may not be traced, needs \
                 CAP_SYS_PTRACE (sudo evenly)"
            }
            io::ErrorKind::NotFound => "; needed: a kernel with CONFIG_PROC_PAGE_MONITOR",
            _ => "",
        };
        let file = proc.process_file(pid, "numa_maps");
        MemoryUnknown::Unreadable(format!("{} cannot be read: {e}{remedy}", file.display()))
    };
    let text = read_all_of(proc, pid, "numa_maps").map_err(unknown)?;
    let page = page_size();
    Ok(parse_nodes(&text).into_iter().map(|(n, pages)| (n, pages.saturating_mul(page))).collect())
}

/// Bytes of a process in memory that are its own.
pub(crate) fn bytes_of(proc: &Proc, pid: Pid) -> Option<u64> {
    let status = read_all(&proc.process_file(pid, "status")).ok()?;
    let kib = |key| status_number(&status, key);
    Some(kib("RssAnon").or_else(|| kib("VmRSS"))?.saturating_mul(1024))
}

/// Memory that is to be moved, one process after the other.
#[derive(Default)]
pub(crate) struct Mover {
    jobs: VecDeque<Job>,
}

struct Job {
    pid: Pid,
    from: u32,
    to: u32,
    /// What is still to be looked at, with how many pages there are on the node.
    ranges: VecDeque<(Range<u64>, u64)>,
    looks: u32,
    looked_at: u64,
    moved: u64,
    /// Pages that were still on the node after they were to be moved, in this look alone.
    stayed: u64,
}

impl Mover {
    /// Adds the memory of a process.
    pub(crate) fn add(&mut self, proc: &Proc, pid: Pid, from: u32, to: u32) {
        let ranges = ranges(proc, pid, from);
        let (looked_at, moved, stayed) = (0, 0, 0);
        self.jobs.push_back(Job { pid, from, to, ranges, looks: 1, looked_at, moved, stayed });
    }

    /// Moves a piece. What is done with, if that ended it.
    pub(crate) fn go_on(&mut self, proc: &Proc) -> Option<MemoryMoved> {
        let job = self.jobs.front_mut()?;
        let error = match job.piece() {
            Ok(false) => return None,
            Ok(true) if job.looks_again(proc) => return None,
            Ok(true) => None,
            Err(e) => Some(reason(&e, job.to)),
        };
        let job = self.jobs.pop_front()?;
        let page = page_size();
        Some(MemoryMoved {
            pid: job.pid,
            from: job.from,
            to: job.to,
            bytes: job.moved * page,
            stayed: job.stayed * page,
            error,
        })
    }
}

impl Job {
    /// Whether all is done.
    fn piece(&mut self) -> io::Result<bool> {
        let page = page_size();
        let mut left = PAGES_PER_PIECE;
        while left > 0 {
            let Some((range, pages)) = self.ranges.front_mut() else { return Ok(true) };
            let in_range = usize::try_from((range.end - range.start).div_ceil(page));
            let n = in_range.unwrap_or(usize::MAX).min(left).min(PAGES_PER_CALL);
            if n == 0 || *pages == 0 {
                self.ranges.pop_front();
                continue;
            }
            let first = range.start;
            range.start += n as u64 * page;
            let addresses: Vec<u64> = (0..n as u64).map(|i| first + i * page).collect();
            let here = on_node(self.pid, &addresses, self.from)?;
            *pages = pages.saturating_sub(here.len() as u64);
            if !here.is_empty() {
                move_pages(self.pid, &here, Some(self.to))?;
                // What the call says of each page is not the end of it: parts of a large page are
                // moved with the first of them, and said to be busy.
                let stayed = on_node(self.pid, &here, self.from)?.len();
                self.stayed += stayed as u64;
                self.moved += (here.len() - stayed) as u64;
            }
            self.looked_at += n as u64;
            left -= n;
            if self.looked_at >= MOST_PAGES {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Begins from the first page again, where more are on the node than those that stayed.
    fn looks_again(&mut self, proc: &Proc) -> bool {
        if self.looks >= MOST_LOOKS || self.looked_at >= MOST_PAGES {
            return false;
        }
        let ranges = ranges(proc, self.pid, self.from);
        let on_node = ranges.iter().fold(0u64, |all, (_, pages)| all.saturating_add(*pages));
        // Without numa_maps it is unknown.
        let is_more = on_node > self.stayed && on_node != u64::MAX;
        if is_more {
            (self.ranges, self.looked_at, self.stayed) = (ranges, 0, 0);
            self.looks += 1;
        }
        is_more
    }
}

/// The mappings of a process with pages on the node, and how many.
fn ranges(proc: &Proc, pid: Pid, node: u32) -> VecDeque<(Range<u64>, u64)> {
    let read = |file| read_all_of(proc, pid, file);
    // What cannot be read has no ranges: then the first piece says what move_pages thinks of it.
    let maps = parse_maps(&read("maps").unwrap_or_default());
    match read("numa_maps") {
        Ok(text) => {
            let on = parse_numa_maps(&text, node);
            maps.into_iter().filter_map(|r| Some((r.clone(), *on.get(&r.start)?))).collect()
        }
        // A kernel without this file: all of them are looked at.
        Err(_) => maps.into_iter().map(|r| (r, u64::MAX)).collect(),
    }
}

/// Reads a whole file of a process: such as have a line for each mapping, of which there may be many.
fn read_all_of(proc: &Proc, pid: Pid, file: &str) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(proc.process_file(pid, file))?;
    file.take(64 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Those of the addresses whose pages are on the node.
fn on_node(pid: Pid, addresses: &[u64], node: u32) -> io::Result<Vec<u64>> {
    let status = move_pages(pid, addresses, None)?;
    let here = |(_, s): &(&u64, c_int)| u32::try_from(*s) == Ok(node);
    Ok(addresses.iter().zip(status).filter(here).map(|(a, _)| *a).collect())
}

/// move_pages(2): what it says of each page, its node or less than 0. Without a node nothing is moved.
///
/// # Errors
/// As the call: ESRCH where the process has ended, EPERM, EACCES where the node is not allowed, ENODEV
/// where it is not there.
fn move_pages(pid: Pid, addresses: &[u64], to: Option<u32>) -> io::Result<Vec<c_int>> {
    const MPOL_MF_MOVE: c_int = 2;
    let pages: Vec<*mut c_void> =
        addresses.iter().map(|&a| ptr::without_provenance_mut(a as usize)).collect();
    let node = |to: u32| c_int::try_from(to).map_err(|_| io::ErrorKind::InvalidInput);
    let nodes: Option<Vec<c_int>> =
        to.map(|to| node(to).map(|n| vec![n; pages.len()])).transpose()?;
    let mut status: Vec<c_int> = vec![-libc::ENOENT; pages.len()];
    // SAFETY: addresses are numbers to this process, which the kernel looks up in the other one; the
    // vectors of addresses, nodes (or null, to move nothing) and status all have as many elements as
    // the count says, and only those of the status are written.
    let r = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid.0,
            pages.len() as c_ulong,
            pages.as_ptr(),
            nodes.as_ref().map_or(ptr::null(), |n| n.as_ptr()),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // Above 0: so many pages were not moved.
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// What an error means for the user.
fn reason(e: &io::Error, node: u32) -> String {
    match e.raw_os_error() {
        Some(libc::ESRCH) => String::from("the process has ended"),
        Some(libc::EPERM) => String::from(
            "moving memory of another user's process, or one that may not be traced, needs \
             CAP_SYS_NICE and CAP_SYS_PTRACE (sudo evenly)",
        ),
        Some(libc::EACCES) => format!("node {node} is not in the cpuset of evenly or the program"),
        Some(libc::ENODEV) => format!("there is no node {node} with memory"),
        Some(libc::ENOSYS) => String::from("this kernel cannot move memory (CONFIG_MIGRATION)"),
        _ => e.to_string(),
    }
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn files_are_read() {
        let maps = b"5581-5582 r--p 00000000 fe:00 12 /bin/x\n7f00-7f10 rw-p 00000000 00:00 0\n\
            7f20-7f30 rw-s 0 00:00 0 /dev/shm/a b\n9-8 rw-p 0\nx\n7f40-7f48 rw-p 0 00:00 0 [heap]\n";
        assert_eq!(parse_maps(maps), [0x7f00..0x7f10, 0x7f40..0x7f48]);
        let numa = b"7f00 default anon=12 dirty=12 N0=10 N1=2 kernelpagesize_kB=4\n\
            7f20 default file=/x mapped=3 N1=3\n7f40 bind:1 anon=4 N1=4\n7f50 default huge anon=1 N1=1\n";
        assert_eq!(parse_numa_maps(numa, 1), HashMap::from([(0x7f00, 2), (0x7f40, 4)]));
        assert_eq!(parse_numa_maps(numa, 0), HashMap::from([(0x7f00, 10)]));
        assert!(parse_numa_maps(numa, 10).is_empty());
        assert_eq!(parse_nodes(numa), BTreeMap::from([(0, 10), (1, 6)]));
    }

    /// Captured: a rank in a virtual machine of two nodes (Linux 6.1), which started on node 0 and then was
    /// bound to node 1; and a program on a machine with one (Linux 6.18).
    #[test]
    fn captured_files_say_where_memory_is() {
        let seed = |name: &str| {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/fuzz/seeds/maps/");
            parse_nodes(&std::fs::read(format!("{dir}{name}")).unwrap())
        };
        assert_eq!(seed("two-nodes"), BTreeMap::from([(0, 2), (1, 2 + 3 + 3 + 4 + 1416 + 2)]));
        let spmd = seed("spmd");
        assert!(spmd.keys().eq([&0]) && spmd[&0] > 3, "{spmd:?}");
    }

    #[test]
    fn unexpected_lines_are_left_out() {
        let unexpected =
            b"7f00 default anon=1 N0=18446744073709551615\n7f10 default anon=1 N0=9 N1=2\n\
            7f20 default anon=1 N0=-3 N1=1\n7f30 default anon=1 N0=1 N1=0 NX=5 N=7 N4294967296=8\n\
            g default anon=1 N0=1\n7f40\n\n7f50 default anon=1 N2=1 N2=2 \xff\n7f60 x anon=1 N3=4";
        assert_eq!(parse_nodes(unexpected), BTreeMap::from([(0, u64::MAX), (1, 2), (3, 4)]));
        assert_eq!(parse_nodes(b""), BTreeMap::new());
    }

    /// A process that has some memory of its own, and waits.
    struct Waiting(Child);

    impl Waiting {
        fn new() -> Self {
            let script = "x=$(head -c 3000000 /dev/zero | tr '\\0' y); echo ready; read line";
            let mut c = Command::new("sh");
            c.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = c.spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
            Self(child)
        }

        fn pid(&self) -> Pid {
            Pid(self.0.id().cast_signed())
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn end(mover: &mut Mover) -> MemoryMoved {
        (0..100_000).find_map(|_| mover.go_on(&Proc::default())).unwrap()
    }

    #[test]
    fn memory_of_a_real_process_is_found_where_it_is() {
        let process = Waiting::new();
        let proc = Proc::default();
        assert!(bytes_of(&proc, process.pid()).unwrap() >= 3_000_000);
        let mut mover = Mover::default();
        assert_eq!(mover.go_on(&proc), None);
        // To where it is: all of it is found, and all of it stays on its node.
        mover.add(&proc, process.pid(), 0, 0);
        let done = end(&mut mover);
        if done.error.is_some() {
            return evenly_testing::skip("mbind", format!("move_pages: {:?}", done.error));
        }
        // Which is what numa_maps says, but for what the shell did meanwhile; a kernel without NUMA has none.
        match on_nodes(&proc, process.pid()) {
            Ok(nodes) => {
                assert!(
                    nodes.iter().map(|(_, bytes)| bytes).sum::<u64>() >= 3_000_000,
                    "{nodes:?}"
                );
            }
            Err(e) => evenly_testing::skip("mbind", e.to_string()),
        }
        let all = done.bytes + done.stayed;
        assert!(all >= 3_000_000 && done.bytes == 0, "{done:?}");
        // From a node on which there is nothing.
        mover.add(&proc, process.pid(), 900, 0);
        let done = end(&mut mover);
        assert_eq!((done.bytes, done.stayed, done.error), (0, 0, None));
    }

    #[test]
    fn what_the_kernel_refuses_is_reported() {
        let mut process = Waiting::new();
        let proc = Proc::default();
        let (mut mover, pid) = (Mover::default(), process.pid());
        mover.add(&proc, pid, 0, 900);
        let done = end(&mut mover);
        assert!(done.bytes == 0 && done.error.is_some(), "{done:?}");
        mover.add(&proc, pid, 0, 0);
        process.0.kill().unwrap();
        process.0.wait().unwrap();
        assert_eq!(end(&mut mover).error.as_deref(), Some("the process has ended"));
        assert_eq!(bytes_of(&proc, pid), None);
        assert_eq!(on_nodes(&proc, pid), Err(MemoryUnknown::Gone));
    }

    #[test]
    fn what_cannot_be_read_is_reported_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let proc = Proc::at(dir.path());
        let process = dir.path().join("7");
        std::fs::create_dir(&process).unwrap();
        assert_eq!(on_nodes(&proc, Pid(7)), Err(MemoryUnknown::Gone));
        std::fs::write(process.join("stat"), "").unwrap();
        let said = on_nodes(&proc, Pid(7)).unwrap_err().to_string();
        assert!(
            said.contains("7/numa_maps cannot be read: ") && said.contains("CONFIG_"),
            "{said}"
        );
        std::fs::write(process.join("numa_maps"), "7f00 default anon=3 N0=1 N1=2\n").unwrap();
        let page = page_size();
        assert_eq!(on_nodes(&proc, Pid(7)), Ok(vec![(0, page), (1, 2 * page)]));
    }

    #[test]
    fn pages_that_are_not_there_are_no_error() {
        let own = Pid(std::process::id().cast_signed());
        match move_pages(own, &[0x1000, 0x2000], None) {
            Ok(status) => assert!(status.iter().all(|s| *s < 0), "{status:?}"),
            Err(e) => evenly_testing::skip("mbind", format!("move_pages: {e}")),
        }
    }
}

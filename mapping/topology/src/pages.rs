//! Memory on a NUMA node of one's choice. All that is unsafe in this crate is here.
//!
//! Invariant: the mapping belongs to one [`Pages`] from beginning to end, is readable and writable all
//! the time, and is given out only as slices that borrow from it.

#![allow(unsafe_code)]

use crate::chase::HUGE_PAGE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::ptr::{self, NonNull};

/// Nodes that a mask of nodes can name: as many as any kernel is built for.
const NODES: usize = 1024;
const WORD_BITS: usize = c_ulong::BITS as usize;

/// A private mapping of whole huge pages.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The mapping, which is a huge page longer, so that the words can begin at one.
    map: NonNull<c_void>,
    map_bytes: usize,
    first: NonNull<u64>,
    words: usize,
}

impl Pages {
    /// So many bytes (rounded up to huge pages), all zero; nothing of it is in memory before it is
    /// written.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let huge = HUGE_PAGE as usize;
        let bytes =
            usize::try_from(bytes.max(1)).ok().and_then(|b| b.checked_next_multiple_of(huge));
        let bytes = bytes.ok_or_else(too_large)?;
        let map_bytes = bytes.checked_add(huge).ok_or_else(too_large)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping at a place that the kernel chooses overlaps no other.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), map_bytes, protection, flags)? };
        let map = NonNull::new(map).ok_or_else(too_large)?;
        let skipped = map.as_ptr().addr().next_multiple_of(huge) - map.as_ptr().addr();
        // SAFETY: less than a huge page is skipped, and the mapping is that much longer than `bytes`.
        let first = unsafe { map.byte_add(skipped) }.cast::<u64>();
        // SAFETY: `first` and the `bytes` behind it are within the mapping; this advice changes no
        // content. Kernels without huge pages refuse it; how many there are is looked up later.
        let _ = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self { map, map_bytes, first, words: bytes / 8 })
    }

    /// How many bytes there are.
    pub(crate) const fn bytes(&self) -> usize {
        self.words * 8
    }

    /// The address at which they begin.
    pub(crate) fn address(&self) -> u64 {
        self.first.as_ptr().addr() as u64
    }

    /// Lets all pages that are not there yet come from this node only.
    ///
    /// # Errors
    /// As mbind(2): EPERM in containers that do not allow it, EINVAL where there is no such node or
    /// the cpuset does not allow it.
    pub(crate) fn bind(&mut self, node: u32) -> io::Result<()> {
        let node = node as usize;
        if node >= NODES {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut mask: [c_ulong; NODES / WORD_BITS] = [0; NODES / WORD_BITS];
        mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
        // SAFETY: the range is the mapping's own, whose content this does not change; the kernel reads
        // one bit less than the size of the mask says, which has all of them, and writes nothing.
        let r = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.first.as_ptr(),
                self.bytes(),
                libc::MPOL_BIND,
                mask.as_ptr(),
                (NODES + 1) as c_ulong,
                0_u32,
            )
        };
        done(r)
    }

    /// The nodes on which so many of its pages are, taken at equal distances; pages that are not in
    /// memory are left out.
    ///
    /// # Errors
    /// As move_pages(2) and get_mempolicy(2), of which either will do.
    pub(crate) fn nodes(&self, samples: usize) -> io::Result<Vec<u32>> {
        let samples = samples.clamp(1, self.words);
        let stride = self.words / samples;
        let at = |i: usize| -> *const c_void {
            // SAFETY: i is less than `samples`, so the word is within the mapping.
            unsafe { self.first.add(i * stride) }.as_ptr().cast_const().cast()
        };
        let pages: Vec<*const c_void> = (0..samples).map(at).collect();
        let mut status: Vec<c_int> = vec![-libc::ENOENT; samples];
        // SAFETY: without target nodes the kernel moves nothing; it reads `samples` addresses and
        // writes as many numbers, and both vectors have that many.
        let r = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0_i32,
                samples as c_ulong,
                pages.as_ptr(),
                ptr::null::<c_int>(),
                status.as_mut_ptr(),
                0_i32,
            )
        };
        match done(r) {
            Ok(()) => Ok(status.into_iter().filter_map(|s| u32::try_from(s).ok()).collect()),
            Err(_) => pages.into_iter().map(node_of).collect(),
        }
    }

    /// All of the memory, as words.
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: the mapping holds that many words, aligned to a huge page and zero or written since;
        // it is unmapped only when this is dropped, and a writer has to borrow it mutably.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }

    /// All of it, to write.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; it is borrowed mutably, so there is no other slice of it.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.words) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own from its first byte to its last, and no slice of it
        // outlives it. A failure would leave memory mapped, no more.
        let _ = unsafe { munmap(self.map.as_ptr(), self.map_bytes) };
    }
}

/// The node of the page at an address, by get_mempolicy(2).
fn node_of(page: *const c_void) -> io::Result<u32> {
    /// `MPOL_F_NODE | MPOL_F_ADDR`: the node that the page at this address is on.
    const NODE_OF_ADDRESS: c_ulong = 1 | 2;
    let mut node: c_int = -1;
    // SAFETY: the kernel writes one number to `node`, and reads at most one byte of the page.
    let r = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            ptr::null::<c_ulong>(),
            0 as c_ulong,
            page,
            NODE_OF_ADDRESS,
        )
    };
    done(r)?;
    u32::try_from(node).map_err(|_| io::Error::from_raw_os_error(libc::ENOENT))
}

fn done(r: c_long) -> io::Result<()> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_zero_and_can_be_written() {
        let mut p = Pages::new(3 << 20).unwrap();
        assert_eq!((p.bytes(), p.address() % HUGE_PAGE), (4 << 20, 0));
        assert!(p.words().iter().all(|w| *w == 0));
        p.words_mut().fill(7);
        assert_eq!(p.words().iter().sum::<u64>(), 7 * (4 << 20) / 8);
    }

    #[test]
    fn pages_are_on_the_node_that_they_are_bound_to() {
        let mut p = Pages::new(4 << 20).unwrap();
        if let Err(e) = p.bind(0) {
            return evenly_testing::skip("mbind", format!("mbind: {e}"));
        }
        p.words_mut().fill(1);
        let nodes = p.nodes(64).unwrap();
        assert_eq!(nodes, vec![0; 64]);
        assert_eq!(node_of(p.first.as_ptr().cast_const().cast()).unwrap(), 0);
    }

    #[test]
    fn no_such_node_is_an_error() {
        let mut p = Pages::new(1).unwrap();
        assert!(p.bind(1023).is_err() && p.bind(1024).is_err() && p.bind(u32::MAX).is_err());
    }
}

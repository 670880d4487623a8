//! Shared memory of pages, as Cashmere-2L has it (the paper's section 2.1): several nodes may write to a page, what they wrote is
//! put together at a barrier, and the home of a page follows whoever writes to it.

use std::ops::Range;

/// Nodes as bits.
type Nodes = u64;

pub(super) const MOST_NODES: usize = Nodes::BITS as usize;

#[derive(Debug, Clone, Copy)]
struct Page {
    /// Those who have it as it is.
    valid: Nodes,
    /// Those who have written to it since the last barrier.
    writers: Nodes,
    home: u8,
}

/// What an access has to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Access {
    /// The page comes from this node.
    pub(super) fetched_from: Option<usize>,
    /// A copy is made before it is written to, and compared with at the barrier.
    pub(super) twin: bool,
}

/// The pages of all arrays.
#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Page>,
    /// The first page of each array.
    first: Vec<usize>,
    page_bytes: u64,
    written: Vec<usize>,
}

impl Pages {
    /// Arrays of so many bytes, of which each node has filled an equal part.
    pub(super) fn new(arrays: &[u64], page_bytes: u64, nodes: usize) -> Self {
        let (mut first, mut pages) = (Vec::new(), Vec::new());
        for bytes in arrays {
            first.push(pages.len());
            let count = bytes.div_ceil(page_bytes) as usize;
            pages.extend((0..count).map(|page| {
                let home = page * nodes / count;
                Page { valid: 1 << home, writers: 0, home: home as u8 }
            }));
        }
        Self { pages, first, page_bytes, written: Vec::new() }
    }

    /// The pages in which these bytes of an array are.
    pub(super) fn of(&self, array: usize, bytes: Range<u64>) -> Range<usize> {
        let first = self.first.get(array).copied().unwrap_or(self.pages.len());
        let end = self.first.get(array + 1).copied().unwrap_or(self.pages.len());
        let at = |page: u64| (first + page as usize).min(end);
        at(bytes.start / self.page_bytes)..at(bytes.end.div_ceil(self.page_bytes))
    }

    pub(super) fn read(&mut self, page: usize, node: usize) -> Access {
        let page = &mut self.pages[page];
        let fetched = page.valid & (1 << node) == 0;
        page.valid |= 1 << node;
        Access { fetched_from: fetched.then_some(page.home.into()), twin: false }
    }

    pub(super) fn write(&mut self, page: usize, node: usize) -> Access {
        let mut access = self.read(page, node);
        let own = &mut self.pages[page];
        if own.writers & (1 << node) == 0 {
            if own.writers == 0 {
                self.written.push(page);
            }
            own.writers |= 1 << node;
            if own.writers & (1 << own.home) == 0 {
                own.home = node as u8;
            }
            access.twin = usize::from(own.home) != node;
        }
        access
    }

    /// A write by whoever holds the lock of what is written: it is seen by whoever has the lock next, without a barrier.
    pub(super) fn write_locked(&mut self, page: usize, node: usize) -> Access {
        let access = self.read(page, node);
        let own = &mut self.pages[page];
        (own.valid, own.home) = (1 << node, node as u8);
        access
    }

    /// At a barrier what was written is at the home of its page, and nowhere else.
    pub(super) fn barrier(&mut self) {
        for page in self.written.drain(..) {
            let page = &mut self.pages[page];
            (page.valid, page.writers) = (1 << page.home, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Access = Access { fetched_from: None, twin: false };

    #[test]
    fn pages_are_those_of_their_arrays() {
        let pages = Pages::new(&[10_000, 8_192], 8_192, 2);
        assert_eq!((pages.of(0, 0..8_192), pages.of(0, 8_191..8_193)), (0..1, 0..2));
        assert_eq!(
            (pages.of(1, 0..1), pages.of(0, 0..100_000), pages.of(2, 0..1)),
            (2..3, 0..2, 3..3)
        );
    }

    #[test]
    fn the_home_follows_the_only_writer() {
        let mut pages = Pages::new(&[8_192], 8_192, 4);
        assert_eq!(pages.write(0, 1), Access { fetched_from: Some(0), twin: false });
        pages.barrier();
        // It is the writer's now, and whoever reads it has to fetch it, once.
        assert_eq!((pages.write(0, 1), pages.read(0, 1)), (FREE, FREE));
        pages.barrier();
        assert_eq!(pages.read(0, 2), Access { fetched_from: Some(1), twin: false });
        assert_eq!(pages.read(0, 2), FREE);
        pages.barrier();
        assert_eq!(pages.read(0, 2), FREE);
    }

    #[test]
    fn of_two_writers_one_makes_a_twin() {
        let mut pages = Pages::new(&[8_192], 8_192, 4);
        assert_eq!(pages.write(0, 0), FREE);
        assert_eq!(pages.write(0, 3), Access { fetched_from: Some(0), twin: true });
        assert_eq!(pages.write(0, 3), FREE);
        pages.barrier();
        assert_eq!(pages.read(0, 0), FREE);
        assert_eq!(pages.read(0, 3).fetched_from, Some(0));
    }

    #[test]
    fn what_is_locked_goes_from_writer_to_writer() {
        let mut pages = Pages::new(&[8_192], 8_192, 4);
        assert_eq!(pages.write_locked(0, 0), FREE);
        assert_eq!(pages.write_locked(0, 1).fetched_from, Some(0));
        assert_eq!(pages.write_locked(0, 0).fetched_from, Some(1));
    }
}

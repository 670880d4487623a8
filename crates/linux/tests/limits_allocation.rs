//! What is called in every period allocates nothing in the steady state: checking the limits for
//! changes, and reading the times of threads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_linux::limits::Limits;
use evenly_linux::taskstats::TaskStats;
use evenly_model::{Pid, Tid};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all memory comes from the system's allocator, unchanged. The counter is a thread local
// without destructor and with a constant initial value, so using it does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(of: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    of();
    ALLOCATIONS.with(Cell::get) - before
}

fn own() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

#[test]
fn the_count_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

#[test]
fn checking_limits_that_do_not_change_allocates_nothing() {
    // A captured tree would be as good, but this also opens the real files of the kernel.
    let mut watch = Limits::default().watch(Pid(std::process::id().cast_signed()));
    // CPUs of the machine may go on- or offline just now: then the next check finds no change.
    let found = (0..10).any(|_| {
        let mut changed = true;
        allocations(|| changed = watch.changed()) == 0 && !changed
    });
    assert!(found, "{watch:?}");
}

#[test]
fn reading_times_allocates_nothing() {
    let mut stats = match TaskStats::open() {
        Ok(stats) => stats,
        Err(e) => return evenly_testing::skip("taskstats", e),
    };
    let tids = vec![Tid(own()); 100];
    let mut seen = 0;
    let count = allocations(|| {
        stats.read_many(&tids, |_, times| seen += usize::from(times.is_some())).unwrap();
        stats.read(Tid(i32::MAX)).unwrap();
    });
    assert_eq!((count, seen), (0, 100));
}

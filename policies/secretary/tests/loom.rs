//! What balancers share, under all interleavings of their threads:
//! `RUSTFLAGS="--cfg loom" cargo test -p evenly-secretary --test loom`, which `./dev test --all` runs.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_secretary::shared::{Claim, Mean, MoveRate, Share, ThreadCell};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

const NOW: Nanos = Nanos(1_000);
const STAY: Nanos = Nanos(100);

/// Three balancers publish, two of them twice; one looks. No update is lost, and no mean is seen that
/// no state of the values has.
#[test]
fn no_update_of_the_global_speed_is_lost() {
    loom::model(|| {
        let mean = Arc::new(Mean::default());
        let publish = |values: &'static [f64]| {
            let mean = mean.clone();
            thread::spawn(move || {
                let mut share = Share::default();
                for &v in values {
                    mean.replace(&mut share, Share::one(v));
                }
            })
        };
        let others = [publish(&[0.5, 0.25]), publish(&[1.0, 0.75])];
        let seen = mean.get();
        let possible = [
            None,
            Some((0.5, 1)),
            Some((0.25, 1)),
            Some((1.0, 1)),
            Some((0.75, 1)),
            Some((0.625, 2)),
            Some((0.5, 2)),
            Some((0.75, 2)),
        ];
        assert!(possible.contains(&seen), "{seen:?}");
        for o in others {
            o.join().unwrap();
        }
        assert_eq!(mean.get(), Some((0.5, 2)));
    });
}

/// Moves that are counted at once are all counted, also where a new stretch begins.
#[test]
fn no_move_is_left_uncounted() {
    loom::model(|| {
        let rate = Arc::new(MoveRate::default());
        rate.note(Nanos(150), STAY, 5);
        let note = |at| {
            let rate = rate.clone();
            thread::spawn(move || rate.note(Nanos(at), STAY, 2))
        };
        let others = [note(210), note(220)];
        for o in others {
            o.join().unwrap();
        }
        assert_eq!(rate.recent(Nanos(310), STAY), 4);
    });
}

/// What the engine does to swap two threads: claim both, or nothing.
fn swap(a: &ThreadCell, b: &ThreadCell) -> bool {
    let Some(first) = a.claim(NOW, STAY) else { return false };
    let Some(second) = b.claim(NOW, STAY) else { return false };
    let (here, there) = (a.place(), b.place());
    let moved = |c: Claim, to| c.moved(NOW, to);
    moved(first, there);
    moved(second, here);
    true
}

/// Two balancers want to swap pairs that have a thread in common, in opposite orders: neither waits
/// (the model would find a deadlock), at most one swaps, and every place still has its one thread.
#[test]
fn a_thread_is_swapped_by_one_balancer_at_most() {
    loom::model(|| {
        let cells = Arc::new([ThreadCell::new(0), ThreadCell::new(1), ThreadCell::new(2)]);
        let other = {
            let cells = cells.clone();
            thread::spawn(move || swap(&cells[2], &cells[1]))
        };
        let here = swap(&cells[1], &cells[0]);
        let there = other.join().unwrap();
        assert!(!(here && there), "thread 1 was swapped twice");
        let mut places: Vec<u32> = cells.iter().map(ThreadCell::place).collect();
        if !here && !there {
            assert_eq!(places, [0, 1, 2]);
        }
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2]);
        // Nothing stays claimed, and what was moved stays for a while.
        let later = Nanos(NOW.0 + STAY.0);
        for cell in cells.iter() {
            assert!(cell.claim(later, STAY).is_some());
        }
        assert_eq!(cells[1].claim(NOW, STAY).is_none(), here || there);
    });
}

/// Of those that claim one thread at the same time one has it, and no other meanwhile.
#[test]
fn a_thread_is_claimed_by_one_at_a_time() {
    loom::model(|| {
        let cell = Arc::new(ThreadCell::new(0));
        let holders = Arc::new(AtomicU32::new(0));
        let claim = || {
            let (cell, holders) = (cell.clone(), holders.clone());
            thread::spawn(move || {
                let Some(claim) = cell.claim(NOW, STAY) else { return 0 };
                assert_eq!(holders.fetch_add(1, Relaxed), 0);
                let at = cell.place();
                holders.fetch_sub(1, Relaxed);
                claim.moved(NOW, at + 1);
                1
            })
        };
        let others = [claim(), claim()];
        let moved: u32 = others.map(|o| o.join().unwrap()).iter().sum();
        // The second one finds it moved just now.
        assert_eq!((moved, cell.place()), (1, 1));
    });
}

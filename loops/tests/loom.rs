//! All interleavings of what the threads of a team share.
//! `RUSTFLAGS="--cfg loom" cargo test -p evenly-loops --test loom`
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_loops::LoopsError;
use evenly_loops::board::Board;
use evenly_loops::queue::{Common, Queue};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

/// Would catch: a task that the owner takes from the head and a thief from the tail.
#[test]
fn each_task_is_taken_once() {
    loom::model(|| {
        let queue = Arc::new(Queue::default());
        queue.set(1, 3);
        let thief = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [queue.steal(1), queue.steal(1)])
        };
        let mut taken: Vec<u16> = Vec::new();
        while let Some((from, to)) = queue.take_own(1, |from, _| from + 1) {
            taken.extend(from..to);
        }
        taken.extend(thief.join().unwrap().into_iter().flatten());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
    });
}

/// Would catch: a thread that took so long between its look and its exchange that it takes what belongs to a later instance.
#[test]
fn whoever_is_late_takes_nothing() {
    loom::model(|| {
        let queue = Arc::new(Queue::default());
        let common = Arc::new(Common::default());
        queue.set(1, 1);
        common.set(1);
        let late = {
            let (queue, common) = (Arc::clone(&queue), Arc::clone(&common));
            thread::spawn(move || {
                let next = common.take(1, |taken| u32::from(taken == 0));
                usize::from(queue.steal(1).is_some()) + usize::from(next.is_some())
            })
        };
        let first = usize::from(queue.steal(1).is_some());
        let next = usize::from(common.take(1, |taken| u32::from(taken == 0)).is_some());
        // Both are taken by now, or the other one has taken them.
        queue.set(2, 1);
        common.set(2);
        let after = usize::from(queue.steal(2).is_some())
            + usize::from(common.take(2, |taken| u32::from(taken == 0)).is_some());
        assert_eq!(after, 2);
        assert!(first + next + late.join().unwrap() <= 2);
    });
}

/// Would catch: an instance that is set up by two; one that is left, or summed up, before all of it was carried out; a thread that
/// waits for ever.
#[test]
fn instances_follow_one_another() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let board = Arc::new(Board::new(2));
        let done = Arc::new(AtomicUsize::new(0));
        let carry_out = |board: &Board, done: &AtomicUsize, own: usize| {
            for instance in 1..=2_u32 {
                let before = 2 * (instance as usize - 1);
                let set_up = || {
                    assert_eq!(done.load(Relaxed), before);
                    // All belong to the first.
                    board.queues[0].set(instance, 2);
                    board.queues[1].set(instance, 0);
                };
                assert!(board.begin(instance, 0, set_up, || false));
                while board.queues[own].take_own(instance, |from, _| from + 1).is_some()
                    || board.steal(instance).is_some()
                {
                    done.fetch_add(1, Relaxed);
                }
                assert!(board.end(
                    instance,
                    0,
                    || assert_eq!(done.load(Relaxed), before + 2),
                    || false
                ));
                assert!(done.load(Relaxed) >= before + 2);
            }
        };
        let other = {
            let (board, done) = (Arc::clone(&board), Arc::clone(&done));
            thread::spawn(move || carry_out(&board, &done, 1))
        };
        carry_out(&board, &done, 0);
        other.join().unwrap();
        assert_eq!(done.load(Relaxed), 4);
    });
}

/// Would catch: a thread that waits for one that has left.
#[test]
fn nobody_waits_for_a_loop_that_is_given_up() {
    loom::model(|| {
        let board = Arc::new(Board::new(2));
        let other = {
            let board = Arc::clone(&board);
            thread::spawn(move || {
                board.begin(1, 0, || (), || false);
                board.give_up(LoopsError::Threads { threads: 0 });
            })
        };
        let ended = board.begin(1, 0, || (), || false) && board.end(1, 0, || (), || false);
        assert!(!ended);
        other.join().unwrap();
    });
}

//! All interleavings of what the threads of a team share.
//! `RUSTFLAGS="--cfg loom" cargo test -p evenly-loops --test loom`
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_loops::LoopsError;
use evenly_loops::board::{Begun, Board};
use evenly_loops::gate::Patience;
use evenly_loops::queue::{Common, Queue};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use loom::thread;
use std::time::Duration;

const NONE: Patience = Patience { spins: Duration::ZERO, yields: None };

/// Tries interleavings with so many preemptions at most.
fn check(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

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

/// Carries out two instances of so many tasks each, of which all belong to the first thread.
fn two_instances(board: &Board, done: &AtomicUsize, own: usize, tasks: u16, ahead: bool) {
    let all = usize::from(tasks);
    for instance in 1..=2_u32 {
        let before = all * (instance as usize - 1);
        let set_up = |instance: u32| {
            move || {
                assert_eq!(done.load(Relaxed), all * (instance as usize - 1));
                board.queues[0].set(instance, tasks);
                board.queues[1].set(instance, 0);
                u32::from(tasks)
            }
        };
        let next = || set_up(instance + 1)();
        let sum_up = || {
            assert_eq!(done.load(Relaxed), before + all);
            ahead
        };
        match board.begin(own, instance, NONE, || true, set_up(instance), || false) {
            Begun::Within(completes) => {
                while board.queues[own].take_own(instance, |from, _| from + 1).is_some()
                    || board.steal(instance).is_some()
                {
                    // Nobody goes on while there is something to do.
                    assert!(board.is_at(instance));
                    done.fetch_add(1, Relaxed);
                    board.complete(instance, u32::from(board.overtakes()), sum_up, next);
                }
                board.complete(instance, completes, sum_up, next);
                assert!(board.end(instance, NONE, |_| false));
            }
            Begun::Late => assert!(board.overtakes()),
            Begun::Disagrees | Begun::GivenUp => panic!("nobody gives up"),
        }
        assert!(done.load(Relaxed) >= before + all);
    }
}

/// Would catch: an instance that is set up by two; one that is left, or summed up, before all of it was carried out; a thread that
/// waits for ever.
#[test]
fn instances_follow_one_another() {
    // Those of which each task counts have more interleavings.
    let ways = [(false, 2, false), (true, 1, false), (false, 1, true), (true, 1, true)];
    for (overtakes, tasks, ahead) in ways {
        check(1, move || {
            let board = Arc::new(Board::new(2, overtakes));
            let done = Arc::new(AtomicUsize::new(0));
            let other = {
                let (board, done) = (Arc::clone(&board), Arc::clone(&done));
                thread::spawn(move || two_instances(&board, &done, 1, tasks, ahead))
            };
            two_instances(&board, &done, 0, tasks, ahead);
            other.join().unwrap();
            assert_eq!(done.load(Relaxed), 2 * usize::from(tasks));
        });
    }
}

/// Would catch: a thread that reads of a later instance than it is in, and does not see that; an empty one that nobody ends.
#[test]
fn whoever_is_overtaken_sees_it() {
    check(1, || {
        let (board, shown) = (Arc::new(Board::new(2, true)), Arc::new(AtomicUsize::new(0)));
        let instances = |board: &Board, shown: &AtomicUsize, own: usize| {
            for instance in 1..=2_u32 {
                let set_up = || {
                    shown.store(instance as usize, Relaxed);
                    0
                };
                let begun = board.begin(own, instance, NONE, || true, set_up, || false);
                let Begun::Within(completes) = begun else { continue };
                let seen = shown.load(Relaxed);
                assert!(seen == instance as usize || !board.is_at(instance));
                board.complete(instance, completes, || false, || 0);
                assert!(board.end(instance, NONE, |_| false));
            }
        };
        let other = {
            let (board, shown) = (Arc::clone(&board), Arc::clone(&shown));
            thread::spawn(move || instances(&board, &shown, 1))
        };
        instances(&board, &shown, 0);
        other.join().unwrap();
    });
}

/// For whatever reason.
fn give_up(board: &Board) {
    board.give_up(std::sync::Arc::new(LoopsError::Threads { threads: 0 }.into()));
}

/// Would catch: a thread that waits for one that has left.
#[test]
fn nobody_waits_for_a_loop_that_is_given_up() {
    check(3, || {
        let board = Arc::new(Board::new(2, false));
        let other = {
            let board = Arc::clone(&board);
            thread::spawn(move || {
                board.begin(1, 1, NONE, || true, || 0, || false);
                give_up(&board);
            })
        };
        let begun = board.begin(0, 1, NONE, || true, || 0, || false);
        let within = matches!(begun, Begun::Within(_));
        if within {
            board.complete(1, 1, || false, || 0);
        }
        let ended = within && board.end(1, NONE, |_| false);
        assert!(!ended);
        other.join().unwrap();
    });
}

/// Would catch: a thread that begins by what was set up ahead, while one that has other bounds sets it up anew.
#[test]
fn whoever_disagrees_with_what_was_set_up_ahead_is_seen() {
    check(3, || {
        let board = Arc::new(Board::new(2, false));
        let _ = board.begin(0, 1, NONE, || true, || 0, || false);
        board.complete(1, 2, || true, || 0);
        let (sets, begins) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let other = {
            let (board, sets) = (Arc::clone(&board), Arc::clone(&sets));
            thread::spawn(move || {
                let set_up = || {
                    sets.store(1, Relaxed);
                    0
                };
                let begun = board.begin(1, 2, NONE, || false, set_up, || false);
                assert!(matches!(begun, Begun::Disagrees | Begun::Within(_)));
                if begun == Begun::Disagrees {
                    give_up(&board);
                }
            })
        };
        if let Begun::Within(_) = board.begin(0, 2, NONE, || true, || 0, || false) {
            begins.store(1, Relaxed);
        }
        let begun_by_it = begins.load(Relaxed) == 1 && sets.load(Relaxed) == 0;
        other.join().unwrap();
        // By what was set up ahead, or by what the other one has set up, and never by the one while the other is set up.
        assert!(!begun_by_it || sets.load(Relaxed) == 0);
    });
}

/// Would catch: an instance that is set up anew once the other thread has ended it, and gone on.
#[test]
fn what_a_thread_alone_has_ended_is_not_set_up_anew() {
    check(3, || {
        let board = Arc::new(Board::new(2, true));
        let _ = board.begin(0, 1, NONE, || true, || 1, || false);
        board.complete(1, 1, || true, || 1);
        let begun = Arc::new(AtomicUsize::new(0));
        let other = {
            let (board, begun) = (Arc::clone(&board), Arc::clone(&begun));
            thread::spawn(move || {
                let set_up = || {
                    assert_eq!(begun.load(SeqCst), 0, "carried out by the other");
                    1
                };
                match board.begin(1, 2, NONE, || false, set_up, || false) {
                    Begun::Disagrees => give_up(&board),
                    Begun::Within(done) => {
                        board.complete(2, done, || false, || 0);
                        board.end(2, NONE, |_| false);
                    }
                    _ => {}
                }
            })
        };
        if let Begun::Within(_) = board.begin(0, 2, NONE, || true, || 1, || false) {
            begun.store(1, SeqCst);
            board.complete(2, 1, || true, || 1);
            if board.end(2, NONE, |_| false) {
                let _ = board.begin(0, 3, NONE, || true, || 1, || false);
            }
        }
        other.join().unwrap();
    });
}

/// Two instances, in which each thread has a task that nobody else takes, and marks that it has carried it out. Whoever ends the
/// second one, and whoever sets it up if that was not done ahead, looks at marks of the first one, too.
fn two_marked_instances(board: &Board, marks: &[[AtomicUsize; 2]; 2], own: usize, ahead: bool) {
    let all_of = |instance: u32| {
        let of = |marks: &[AtomicUsize; 2]| marks[instance as usize - 1].load(Relaxed);
        assert!(marks.iter().all(|marks| of(marks) == 1), "not seen in instance {instance}");
    };
    for instance in 1..=2_u32 {
        let set_up = || {
            (1..instance).for_each(all_of);
            2
        };
        let sum_up = || {
            if instance == 2 {
                (1..=2).for_each(all_of);
            }
            ahead && instance == 1
        };
        let begun = board.begin(own, instance, NONE, || true, set_up, || false);
        // It has a task, and so the instance is not over without it.
        let Begun::Within(completes) = begun else { panic!("{begun:?}") };
        assert!(board.is_at(instance));
        marks[own][instance as usize - 1].store(1, Relaxed);
        board.complete(instance, u32::from(board.overtakes()), sum_up, || 2);
        board.complete(instance, completes, sum_up, || 2);
        assert!(board.end(instance, NONE, |_| false));
    }
}

/// Would catch: what a thread has measured, and whoever tells of it an instance later does not see; a thread that has a task which
/// is in no queue, in an instance that is over.
#[test]
fn whoever_ends_an_instance_sees_all_that_was_done_before() {
    for (overtakes, ahead) in [(false, false), (false, true), (true, false), (true, true)] {
        check(2, move || {
            let board = Arc::new(Board::new(2, overtakes));
            let marks = Arc::new(<[[AtomicUsize; 2]; 2]>::default());
            let other = {
                let (board, marks) = (Arc::clone(&board), Arc::clone(&marks));
                thread::spawn(move || two_marked_instances(&board, &marks, 1, ahead))
            };
            two_marked_instances(&board, &marks, 0, ahead);
            other.join().unwrap();
        });
    }
}

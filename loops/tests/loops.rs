//! Loops are carried out whole, each iteration once, under all policies and by any number of threads; and what a program does
//! wrong ends neither in a wrong answer nor in waiting for ever.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(not(loom))]

use evenly_loops::{Access, Bounds, Load, LoopsError, Policy, Region, Team, Use};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

const fn bounds(lower: i64, upper: i64, stride: i64) -> Bounds {
    Bounds { lower, upper, stride }
}

/// All threads of a team do this.
fn all<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = (0..threads).map(|i| scope.spawn(move || work(i))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Jacobi: where a row is computed before its neighbours of the step before are, or twice, the answer is another.
fn jacobi(
    team: &Team,
    region: &Region,
    grids: &[Vec<AtomicU32>; 2],
    rows: i64,
    width: usize,
    steps: usize,
) {
    let at = |grid: usize, row: i64, column: usize| &grids[grid][row as usize * width + column];
    all(team.threads(), |thread| {
        for step in 0..steps {
            let (from, to) = (step % 2, 1 - step % 2);
            let mut turn = region.begin(thread, bounds(1, rows - 1, 1)).unwrap();
            while let Some(part) = turn.next_task().unwrap() {
                for row in part.values() {
                    for column in 0..width {
                        let value = |row| at(from, row, column).load(Relaxed);
                        let new = value(row - 1).wrapping_mul(3)
                            ^ value(row + 1).wrapping_add(value(row));
                        at(to, row, column).store(new, Relaxed);
                    }
                }
            }
        }
    });
}

fn grids(rows: i64, width: usize) -> [Vec<AtomicU32>; 2] {
    let grid = || (0..rows as usize * width).map(|i| AtomicU32::new(i as u32 * 7)).collect();
    [grid(), grid()]
}

fn numbers(grid: &[AtomicU32]) -> Vec<u32> {
    grid.iter().map(|word| word.load(Relaxed)).collect()
}

#[test]
fn answers_are_the_same_under_all_policies_and_by_one_to_nine_threads() {
    let (rows, width, steps) = (70, 16, 60);
    let reference = {
        let (team, grids) = (Team::new(1).unwrap(), grids(rows, width));
        jacobi(&team, &team.region("one").build(), &grids, rows, width, steps);
        numbers(&grids[0])
    };
    for (policy, overtakes) in Policy::ALL.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        for threads in 1..=9 {
            let (team, grids) = (Team::new(threads).unwrap(), grids(rows, width));
            let sizes = [rows as usize, width];
            let arrays = [0, 1].map(|i| team.array_of(grids[i].as_ptr(), &sizes).unwrap());
            let declared =
                team.region("sweep").load(Load::Fixed).access(Access::Stencil).policy(policy);
            let width_of = i64::try_from(width).unwrap();
            let declared = declared.uses(Use::Reads, &arrays[0], width_of, 0);
            let declared = declared.uses(Use::Writes, &arrays[1], width_of, 0);
            let region = if overtakes { declared.overtakes().build() } else { declared.build() };
            jacobi(&team, &region, &grids, rows, width, steps);
            assert_eq!(numbers(&grids[0]), reference, "{policy}, {threads} threads");
            let report = region.report();
            assert_eq!(report.instances, steps as u64);
            assert_eq!(
                report.iterations.iter().sum::<u64>(),
                steps as u64 * (rows as u64 - 2),
                "{policy}"
            );
        }
    }
}

/// Would catch: a loop over one row too many that writes to what is behind its array.
#[test]
fn a_loop_that_would_leave_its_array_carries_out_nothing() {
    let data = vec![0.0_f64; 8 * 16];
    let team = Team::new(2).unwrap();
    let array = team.array_of(data.as_ptr(), &[8, 16]).unwrap();
    let new = |b| team.region("rows").uses(Use::Writes, &array, 16, b);
    let run = |region: &Region, thread, bounds| -> Result<u64, LoopsError> {
        let mut turn = region.begin(thread, bounds)?;
        let mut own = 0;
        while let Some(part) = turn.next_task()? {
            own += part.count().unwrap();
        }
        Ok(own)
    };
    for (declared, all, error) in [
        (new(0), bounds(0, 9, 1), Some((8, 128))),
        (new(-16), bounds(3, -1, -1), Some((0, -16))),
        (new(-16).overtakes(), bounds(1, 10, 1), Some((9, 128))),
        (new(-16), bounds(1, 9, 1), None),
        (new(0), bounds(9, 9, 1), None),
    ] {
        let region = declared.build();
        for found in self::all(2, |thread| run(&region, thread, all)) {
            let found = match found {
                Err(LoopsError::Leaves { iteration, element, .. }) => Some((iteration, element)),
                other => {
                    other.unwrap();
                    None
                }
            };
            assert_eq!(found, error);
        }
    }
    // A larger one at the same address counts for loops that are built after it; and there is none without a dimension.
    assert!(matches!(team.array_of(data.as_ptr(), &[]), Err(LoopsError::Array { .. })));
    team.array_of(data.as_ptr(), &[9, 16]).unwrap();
    let region = new(0).build();
    let done = self::all(2, |thread| run(&region, thread, bounds(0, 9, 1)).unwrap());
    assert_eq!(done.iter().sum::<u64>(), 9);
}

/// Bounds that change, none at all, fewer iterations than threads, backwards, at the end of all numbers.
#[test]
fn each_iteration_is_carried_out_once() {
    let loops = [
        bounds(0, 1_000, 1),
        bounds(5, 5, 1),
        bounds(9, 5, 1),
        bounds(0, 1, 1),
        bounds(7, 0, -3),
        bounds(i64::MAX - 3, i64::MAX, 2),
        bounds(i64::MIN + 5, i64::MIN, -1),
        bounds(-10, 100, 7),
        bounds(0, 333, 1),
    ];
    for policy in Policy::ALL {
        for (threads, load) in
            [(1, Load::Fixed), (2, Load::Variable), (3, Load::Fixed), (9, Load::Variable)]
        {
            let team = Team::new(threads).unwrap();
            let region =
                team.region("r").load(load).access(Access::Independent).policy(policy).build();
            let overtaking = team.region("o").load(load).access(Access::Independent);
            let overtaking = overtaking.policy(policy).overtakes().build();
            let ways = [&region, &overtaking];
            let loops = loops.iter().chain(loops.iter().rev());
            for (region, bounds) in loops.flat_map(|b| ways.map(|region| (region, b))) {
                let mut found: Vec<i64> = all(threads, |thread| {
                    let mut turn = region.begin(thread, *bounds).unwrap();
                    let mut own = Vec::new();
                    while let Some(part) = turn.next_task().unwrap() {
                        assert!(part.count().unwrap() > 0);
                        own.extend(part.values());
                    }
                    assert_eq!(turn.next_task(), Ok(None));
                    own
                })
                .concat();
                let mut expected: Vec<i64> = bounds.values().collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{policy}, {threads} threads, {bounds:?}");
            }
        }
    }
}

/// Would catch: a thread that waits for one that has nothing to do; one that is late and takes something of a later instance.
#[test]
fn whoever_is_late_is_overtaken() {
    let team = Team::new(2).unwrap();
    let region = team.region("r").policy(Policy::StaticSteal).overtakes().build();
    let (first, second) = std::sync::mpsc::channel();
    let second = std::sync::Mutex::new(second);
    let carried_out = all(2, |thread| {
        if thread == 1 {
            second.lock().unwrap().recv().unwrap();
        }
        let mut own = 0;
        for instance in 0..100 {
            let mut turn = region.begin(thread, bounds(0, 50 + instance, 1)).unwrap();
            while let Some(part) = turn.next_task().unwrap() {
                own += part.count().unwrap();
            }
            if thread == 0 && instance == 49 {
                first.clone().send(()).unwrap();
            }
        }
        own
    });
    let whole: u64 = (0..100).map(|instance| 50 + instance).sum();
    assert_eq!(carried_out.iter().sum::<u64>(), whole);
    assert!(carried_out[0] >= (0..50).map(|instance| 50 + instance).sum());
    assert_eq!(region.report().instances, 100);
}

/// Would catch: threads that run through many instances, and see what belongs to another one than they are in; tasks of what was set
/// up ahead, with the bounds of the instance before.
#[test]
fn whatever_bounds_follow_each_other_each_iteration_is_carried_out_once() {
    let policies =
        [Policy::Static, Policy::RpSteal, Policy::StaticSteal, Policy::Guided, Policy::AwfB];
    for (policy, overtakes) in policies.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let team = Team::new(4).unwrap();
        let declared = team.region("r").policy(policy);
        let region = if overtakes { declared.overtakes().build() } else { declared.build() };
        let counts: Vec<AtomicU32> = (0..300).map(|_| AtomicU32::new(0)).collect();
        let instances = 3_000;
        // Other bounds each time, so that each instance has other tasks; later the same for some instances.
        let length = |instance: i64| {
            let which = if instance < 1_000 { instance } else { instance / 5 };
            1 + (which * 7_919) % 300
        };
        all(4, |thread| {
            for instance in 0..instances {
                let mut turn = region.begin(thread, bounds(0, length(instance), 1)).unwrap();
                while let Some(part) = turn.next_task().unwrap() {
                    part.values().for_each(|i| _ = counts[i as usize].fetch_add(1, Relaxed));
                }
            }
        });
        for (i, count) in counts.iter().enumerate() {
            let expected = (0..instances).filter(|k| (i as i64) < length(*k)).count();
            assert_eq!(count.load(Relaxed), expected as u32, "{policy}: iteration {i}");
        }
        assert_eq!(region.report().instances, instances as u64);
    }
}

#[test]
fn what_threads_give_is_put_together_in_order() {
    let team = Team::new(3).unwrap();
    let region = team.region("r").build();
    let sums = all(3, |thread| {
        let mut last = 0.0;
        for time in 0..200 {
            let mut turn = region.begin(thread, bounds(0, 3, 1)).unwrap();
            while turn.next_task().unwrap().is_some() {}
            last = turn.reduce(thread as f64 + f64::from(time), |a, b| a * 10.0 + b).unwrap();
            assert_eq!(last, 12.0 + 111.0 * f64::from(time));
        }
        last
    });
    assert_eq!(sums, [12.0 + 111.0 * 199.0; 3]);
}

type Way = fn(&Region);

/// Would catch: threads that wait for ever for one that is gone.
#[test]
fn a_loop_that_a_thread_leaves_is_given_up_for_all() {
    let team = Team::new(2).unwrap();
    let ways: [(&str, Way); 3] = [
        ("left it before its end", |region| drop(region.begin(1, bounds(0, 100, 1)).unwrap())),
        ("left it before its end", |region| {
            let mut turn = region.begin(1, bounds(0, 100, 1)).unwrap();
            turn.next_task().unwrap();
        }),
        ("panicked in it", |region| {
            let panics = || {
                let _turn = region.begin(1, bounds(0, 100, 1)).unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        }),
    ];
    for (how, leaves) in ways {
        let region = team.region("sweep").policy(Policy::Static).build();
        let error = all(2, |thread| {
            if thread == 1 {
                leaves(&region);
                return None;
            }
            let carry_out = || -> Result<(), LoopsError> {
                let mut turn = region.begin(0, bounds(0, 100, 1))?;
                while turn.next_task()?.is_some() {}
                Ok(())
            };
            Some(carry_out().unwrap_err())
        });
        let said = error[0].as_ref().unwrap().to_string();
        assert_eq!(said, format!("loop 'sweep' was given up: thread 1 {how}"));
        // It stays so.
        assert_eq!(region.begin(0, bounds(0, 1, 1)).err().unwrap().to_string(), said);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let team = Team::new(1).unwrap();
    let (outer, inner) = (team.region("outer").build(), team.region("inner").build());
    let (far, never) = (team.region("far").build(), team.region("never").build());
    let once = bounds(0, 1, 1);
    let said = |result: Result<_, LoopsError>| result.err().unwrap().to_string();
    assert!(
        said(far.begin(1, once).map(drop))
            .starts_with("loop 'far' was begun by thread 1 of a team of 1")
    );
    assert_eq!(said(never.begin(0, bounds(0, 1, 0)).map(drop)), "loop 'never' has a stride of 0");
    for threads in [0, 100_000] {
        assert!(matches!(Team::new(threads), Err(LoopsError::Threads { .. })));
    }
    let mut turn = outer.begin(0, once).unwrap();
    let nested = said(inner.begin(0, once).map(drop));
    assert!(
        nested.starts_with("thread 0 began loop 'inner' within loop 'outer' of the same team"),
        "{nested}"
    );
    let other =
        thread::scope(|scope| scope.spawn(|| said(inner.begin(0, once).map(drop))).join().unwrap());
    assert_eq!(other, "two threads of the program begin loop 'inner' as thread 0 of one team");
    // Others would wait for it: so both are given up.
    assert_eq!(said(turn.next_task().map(drop)), nested);
    assert_eq!(said(inner.begin(0, once).map(drop)), nested);
    let last = team.region("last").build();
    let mut early = last.begin(0, once).unwrap();
    assert!(
        said(early.reduce(0.0, f64::max).map(drop))
            .ends_with("reduced before it had carried out all of its tasks")
    );
}

/// Would catch: a thread that waits for ever for one that was refused.
#[test]
fn nobody_waits_for_a_thread_that_is_refused() {
    for (thread, stride) in [(0, 1), (2, 1), (1, 0)] {
        let team = Team::new(2).unwrap();
        let region = team.region("sweep").policy(Policy::Static).build();
        let results = all(2, |number| {
            let (thread, stride) = if number == 1 { (thread, stride) } else { (0, 1) };
            let mut turn = region.begin(thread, bounds(0, 10, stride))?;
            while turn.next_task()?.is_some() {}
            Ok::<(), LoopsError>(())
        });
        assert!(results.iter().all(Result::is_err), "{thread}, {stride}: {results:?}");
    }
}

/// Would catch: a sum of some threads, where others have not carried out theirs.
#[test]
fn nothing_is_reduced_from_a_loop_that_was_given_up() {
    let team = Team::new(2).unwrap();
    let region = team.region("sweep").policy(Policy::Static).build();
    let results = all(2, |thread| {
        let mut turn = region.begin(thread, bounds(0, 10, 1)).ok()?;
        if thread == 1 {
            return None;
        }
        while let Ok(Some(_)) = turn.next_task() {}
        Some(turn.reduce(1.0, |a, b| a + b))
    });
    // Whoever came late has not even begun.
    assert!(!matches!(results[0], Some(Ok(_))), "{results:?}");
}

/// Would catch: threads that wait for ever for one that is no more.
#[test]
fn who_ends_before_it_has_reduced_is_not_waited_for() {
    let team = Team::new(2).unwrap();
    let region = team.region("sweep").build();
    let results = all(2, |thread| {
        let mut turn = region.begin(thread, bounds(0, 10, 1)).unwrap();
        while turn.next_task().unwrap().is_some() {}
        (thread == 0).then(|| turn.reduce(1.0, |a, b| a + b))
    });
    assert!(matches!(results[0], Some(Err(LoopsError::GivenUp { .. }))), "{results:?}");
}

#[test]
fn threads_that_disagree_about_a_loop_are_told() {
    // From the third on instances are set up ahead.
    for same in [0, 1, 2, 5] {
        let team = Team::new(2).unwrap();
        let region = team.region("sweep").build();
        let results = all(2, |thread| {
            for instance in 0..=same {
                let more = if instance == same { thread as i64 } else { 0 };
                let mut turn = region.begin(thread, bounds(0, 10 + more, 1))?;
                while turn.next_task()?.is_some() {}
            }
            Ok::<(), LoopsError>(())
        });
        assert!(
            results.iter().all(|result| matches!(result, Err(LoopsError::Disagrees { .. }))),
            "{same}: {results:?}"
        );
    }
}

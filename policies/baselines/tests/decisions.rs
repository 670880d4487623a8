//! What the policies decide that others are compared with.
#![allow(missing_docs)]

use evenly_baselines::{OBSERVE, REACTIVE, STATIC};
use evenly_model::{Plan, Reason, Snapshot};
use evenly_policy::PolicyInfo;
use evenly_testing::snapshots::{PERIOD, snapshot};

fn moves(info: &PolicyInfo, s: &Snapshot) -> Vec<(usize, usize, Reason)> {
    let mut plan = Plan::default();
    (info.make)().decide(s, &mut plan);
    plan.moves.iter().map(|m| (m.thread, m.to, m.reason)).collect()
}

/// Threads 0 and 2 on CPU 0, thread 1 on CPU 1, which has blocked for this part of the period, in percent.
fn beside_one_that_blocks(percent: u64) -> Snapshot {
    snapshot(
        3,
        2,
        |i| i % 2,
        |i, t| {
            t.progress = [30, 20, 10][i];
            if i == 1 {
                t.blocked = PERIOD.scale(percent as f64 / 100.0);
                (t.ran, t.waited) = (PERIOD - t.blocked, evenly_model::Nanos::ZERO);
            }
        },
    )
}

#[test]
fn observe_moves_nothing_however_uneven_it_is() {
    assert_eq!(moves(&OBSERVE, &snapshot(4, 2, |_| 0, |_, _| ())), []);
}

#[test]
fn static_spreads_once_and_leaves_the_place_of_a_thread_that_ended() {
    let mut s = snapshot(4, 2, |_| 0, |_, _| ());
    assert_eq!(moves(&STATIC, &s), [], "balancing has begun");
    s.point = 0;
    assert_eq!(moves(&STATIC, &s).len(), 2);
    s.point = 5;
    s.threads[3].cpu = usize::MAX;
    assert!(moves(&STATIC, &s).iter().any(|m| m.0 == 3), "its CPU was lost");
}

#[test]
fn reactive_leaves_threads_alone_while_all_cpus_have_something_to_do() {
    assert_eq!(moves(&REACTIVE, &beside_one_that_blocks(0)), []);
    assert_eq!(
        moves(&REACTIVE, &beside_one_that_blocks(49)),
        [],
        "half of the period is the bound"
    );
}

/// The CPU of the blocked thread holds fewer threads, so it takes one in exchange for none.
#[test]
fn reactive_gives_the_cpu_of_a_blocked_thread_to_the_one_that_is_furthest_behind() {
    assert_eq!(moves(&REACTIVE, &beside_one_that_blocks(51)), [(2, 1, Reason::Behind)]);
}

#[test]
fn reactive_takes_the_next_where_the_one_furthest_behind_may_not_go_there() {
    let mut s = beside_one_that_blocks(90);
    s.masks.push(vec![true, false]);
    s.threads[2].mask = 1;
    assert_eq!(moves(&REACTIVE, &s), [(0, 1, Reason::Behind)]);
    s.threads[0].movable = false;
    assert_eq!(moves(&REACTIVE, &s), []);
}

#[test]
fn reactive_exchanges_threads_where_the_idle_cpu_holds_as_many() {
    let s = snapshot(
        4,
        2,
        |i| i % 2,
        |i, t| {
            t.progress = i as i64;
            if i % 2 == 1 {
                t.blocked = PERIOD.scale(0.9);
                (t.ran, t.waited) = (PERIOD - t.blocked, evenly_model::Nanos::ZERO);
            }
        },
    );
    let mut found = moves(&REACTIVE, &s);
    found.sort_by_key(|m| m.0);
    assert_eq!(found, [(0, 1, Reason::Behind), (1, 0, Reason::Ahead)]);
}

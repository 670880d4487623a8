//! What no decision may ever do, over random snapshots.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::{
    CpuId, CpuView, FULL_CAPACITY, Nanos, Plan, Snapshot, ThreadId, ThreadView, Tid, Turns,
};
use evenly_policies::by_name;
use evenly_policy::spread;
use evenly_testing::snapshots;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

/// A snapshot with masks and threads that may not be moved.
fn any_snapshot(most_threads: usize, most_cpus: usize) -> impl Strategy<Value = Snapshot> {
    (1..=most_cpus, 1..4usize).prop_flat_map(move |(m, masks)| {
        let thread = (0..=m, -50..50i64, 0..=20u64, 0..=20u64, 0..5u8, 0..masks);
        (
            vec(thread, 1..=most_threads),
            vec(prop_oneof![Just(None), (1..=100u32).prop_map(|s| Some(f64::from(s) / 100.0))], m),
            vec(vec(any::<bool>(), m), masks),
            prop_oneof![Just(Vec::new()), vec(0..2u32, m)],
            0..3u64,
            0..2u64,
        )
            .prop_map(move |(threads, speeds, mut masks, mut others, point, coarse)| {
                for mask in &mut masks {
                    if !mask.contains(&true) {
                        mask[0] = true;
                    }
                }
                // Others count only where there are two for each CPU in all.
                if others.iter().sum::<u32>() as usize + threads.len() < 2 * m {
                    others.clear();
                }
                let ms = |x: u64| Nanos::from_millis(x);
                let threads: Vec<ThreadView> = threads
                    .into_iter()
                    .enumerate()
                    .map(|(i, (cpu, progress, ran, waited, movable, mask))| ThreadView {
                        id: ThreadId { tid: Tid(i as i32), start: 0 },
                        // A thread is on a CPU of its mask, or on none of the CPUs.
                        cpu: if masks[mask].get(cpu) == Some(&true) { cpu } else { usize::MAX },
                        progress: progress * 1_000_000,
                        ran: ms(ran),
                        waited: ms(waited.min(20 - ran)),
                        blocked: ms(20 - ran - waited.min(20 - ran)),
                        spinning: Nanos::ZERO,
                        // Some report their turns, more from point to point.
                        turns: (movable % 2 == 0).then(|| Turns {
                            phases: point * ran,
                            waits: point * waited,
                            runnable: ms(ran),
                            waited: ms(waited),
                            computed: ms(point * ran),
                            spun: ms(point),
                        }),
                        movable: movable > 0,
                        mask,
                    })
                    .collect();
                let cpus = speeds
                    .into_iter()
                    .enumerate()
                    .map(|(c, speed)| CpuView {
                        id: CpuId(c as u32),
                        capacity: FULL_CAPACITY,
                        threads: threads.iter().filter(|t| t.cpu == c).count() as u32,
                        speed,
                    })
                    .collect();
                Snapshot {
                    point,
                    now: ms(1_000),
                    elapsed: ms(20),
                    resolution: ms(4 * coarse),
                    threads,
                    cpus,
                    masks,
                    held: true,
                    taken: Vec::new(),
                    others,
                    tasks: Vec::new(),
                    memory: Vec::new(),
                    links: None,
                    stayed: Vec::new(),
                    environment: Arc::default(),
                }
            })
    })
}

/// Threads on each CPU, those of others included.
fn counts(at: impl Iterator<Item = usize>, s: &Snapshot) -> Vec<usize> {
    let mut counts: Vec<usize> = s.others.iter().map(|&n| n as usize).collect();
    counts.resize(s.cpus.len(), 0);
    let m = counts.len();
    for c in at {
        if c < m {
            counts[c] += 1;
        }
    }
    counts
}

fn apart(counts: &[usize]) -> usize {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

fn applied(s: &Snapshot, plan: &Plan) -> Vec<usize> {
    let mut at: Vec<usize> = s.threads.iter().map(|t| t.cpu).collect();
    for m in &plan.moves {
        at[m.thread] = m.to;
    }
    at
}

/// The least sum of squared counts that masks and immovable threads permit, by trying all.
fn most_even(s: &Snapshot) -> usize {
    fn go(s: &Snapshot, t: usize, counts: &mut Vec<usize>) -> usize {
        let Some(view) = s.threads.get(t) else { return counts.iter().map(|c| c * c).sum() };
        let choices: Vec<usize> = if view.movable {
            (0..counts.len()).filter(|&c| s.allows(t, c)).collect()
        } else {
            vec![view.cpu]
        };
        choices
            .into_iter()
            .map(|c| {
                if c < counts.len() {
                    counts[c] += 1;
                }
                let least = go(s, t + 1, counts);
                if c < counts.len() {
                    counts[c] -= 1;
                }
                least
            })
            .min()
            .unwrap_or(usize::MAX)
    }
    go(s, 0, &mut counts([].into_iter(), s))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn spreading_is_as_even_as_masks_permit(s in any_snapshot(7, 4)) {
        let mut plan = Plan::default();
        spread(&s, &mut plan);
        let after = counts(applied(&s, &plan).into_iter(), &s);
        let before = counts(s.threads.iter().map(|t| t.cpu), &s);
        let nowhere = s.threads.iter().any(|t| t.movable && t.cpu >= s.cpus.len());
        // What is within one is left as it is, even where another choice were as even.
        let squares = |counts: &[usize]| counts.iter().map(|c| c * c).sum::<usize>();
        if nowhere || apart(&before) > 1 {
            prop_assert_eq!(squares(&after), most_even(&s));
        } else if s.others.contains(&1) {
            // Who makes way for others.
            prop_assert_eq!(squares(&after), squares(&before));
        } else {
            prop_assert!(plan.moves.is_empty());
        }
    }

    #[test]
    fn no_policy_breaks_a_mask_or_moves_what_it_must_not(
        snapshots in vec(any_snapshot(24, 8), 1..6),
    ) {
        for info in evenly_policies::POLICIES.iter() {
            let (mut policy, mut again) = ((info.make)(), (info.make)());
            for s in &snapshots {
                let (mut plan, mut second) = (Plan::default(), Plan::default());
                policy.decide(s, &mut plan);
                again.decide(s, &mut second);
                prop_assert_eq!(&plan, &second, "{} is not deterministic", info.name);
                for m in &plan.moves {
                    prop_assert!(s.allows(m.thread, m.to), "{}: outside its mask", info.name);
                    prop_assert!(s.threads[m.thread].movable, "{}: not movable", info.name);
                    prop_assert!(s.threads[m.thread].cpu != m.to, "{}: to where it is", info.name);
                }
                let mut moved: Vec<usize> = plan.moves.iter().map(|m| m.thread).collect();
                moved.sort_unstable();
                moved.dedup();
                prop_assert_eq!(moved.len(), plan.moves.len(), "{}: moved twice", info.name);
                let before = counts(s.threads.iter().map(|t| t.cpu), s);
                let after = counts(applied(s, &plan).into_iter(), s);
                if s.threads.iter().all(|t| t.cpu < s.cpus.len()) {
                    prop_assert!(
                        apart(&after) <= apart(&before).max(1),
                        "{}: {before:?} -> {after:?}", info.name
                    );
                }
            }
        }
    }
}

/// n threads in turn on m equal CPUs; `change` makes it interesting.
fn snapshot(n: usize, m: usize, change: impl Fn(usize, &mut ThreadView)) -> Snapshot {
    snapshots::snapshot(n, m, |i| i % m, change)
}

fn decide(policy: &str, s: &Snapshot) -> Vec<(usize, usize)> {
    let mut plan = Plan::default();
    (by_name(policy).unwrap().make)().decide(s, &mut plan);
    plan.moves.iter().map(|m| (m.thread, m.to)).collect()
}

#[test]
fn a_thread_behind_is_swapped_with_the_one_furthest_ahead() {
    // 0 and 2 share CPU 0; 1 has CPU 1.
    let s = snapshot(3, 2, |i, t| t.progress = [9_000_000, 30_000_000, 10_000_000][i]);
    assert_eq!(decide("juggle", &s), [(0, 1), (1, 0)]);
}

#[test]
fn one_slow_cpu_among_many_that_differ_by_noise() {
    // All of 64 threads progress at 1, give or take 3 %, but for one at half of that.
    let s = snapshot(64, 64, |i, t| {
        t.ran = Nanos(if i == 40 { 10_000_000 } else { 19_400_000 + (i as u64 * 7 % 13) * 46_000 });
        t.waited = Nanos::from_millis(20) - t.ran;
        t.progress = t.ran.0 as i64 * 10;
    });
    let moves = decide("juggle", &s);
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert_eq!(moves[0].0, 40);
}

#[test]
fn one_fast_cpu_among_many_that_differ_by_noise() {
    let s = snapshot(64, 64, |i, t| {
        t.ran = Nanos(if i == 40 { 20_000_000 } else { 9_700_000 + (i as u64 * 7 % 13) * 46_000 });
        t.waited = Nanos::from_millis(20) - t.ran;
        t.progress = t.ran.0 as i64 * 10;
    });
    let moves = decide("juggle", &s);
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert_eq!(moves[1].0, 40);
}

/// A thread that may not be moved and is far behind does not make all others seem ahead.
#[test]
fn a_laggard_that_must_stay_does_not_stop_the_others() {
    let s = snapshot(5, 2, |i, t| {
        (t.progress, t.movable) = if i == 0 { (-1_000_000_000, false) } else { (0, true) };
        // On CPU 0: 0, 2, 4. On CPU 1: 1, 3.
        t.progress += [0, 40_000_000, 10_000_000, 30_000_000, 20_000_000][i];
    });
    assert_eq!(decide("juggle", &s), [(2, 1), (1, 0), (4, 1), (3, 0)]);
}

/// One that has finished its phase makes room, although it is behind in total.
#[test]
fn a_thread_that_rests_gives_up_its_slot() {
    let s = snapshot(3, 2, |i, t| {
        if i == 1 {
            (t.ran, t.waited, t.blocked) = (Nanos::ZERO, Nanos::ZERO, Nanos::from_millis(20));
            t.progress = -500_000_000;
        }
    });
    let moves = decide("juggle", &s);
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert!(moves.contains(&(1, 0)));
}

/// Extra threads are where others cannot make room: one of them has to leave for it.
#[test]
fn spreading_makes_room_in_a_chain() {
    // CPU 0 holds three that may go to CPU 1 only; CPU 1 holds two that may go to CPU 2.
    let mut s = snapshot(5, 3, |i, t| {
        (t.cpu, t.mask) = if i < 3 { (0, 0) } else { (1, 1) };
    });
    s.masks = vec![vec![true, true, false], vec![false, true, true]];
    let mut plan = Plan::default();
    assert!(spread(&s, &mut plan));
    assert_eq!(counts(applied(&s, &plan).into_iter(), &s), [2, 2, 1]);
}

#[test]
fn static_does_not_fill_the_place_of_a_thread_that_ended() {
    let mut s = snapshot(6, 3, |i, t| t.cpu = if i < 3 { 0 } else { 1 });
    assert!(decide("static", &s).is_empty());
    s.point = 0;
    assert_eq!(decide("static", &s).len(), 2);
}

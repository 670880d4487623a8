//! The engine and the policies on a machine where things happen: masks, neighbours, CPUs and
//! threads that come and go.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{Event, GuardOptions, Observer, Reader};
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, Nanos};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Costs, Driver, DriverOptions, Hotplug, Kernel, Placement, Scenario, Sharing, Sim,
    Stranger,
};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn driver(scenario: Scenario, policy: &str, seed: u64) -> Driver {
    Driver::new(Sim::new(scenario), by_name(policy).unwrap(), &DriverOptions::fixed(ms(20), seed))
}

/// Difference between the CPUs with most and fewest threads, of those in `among`.
fn apart(sim: &Sim, among: impl Fn(CpuId) -> bool) -> usize {
    let counts: Vec<usize> =
        sim.counts().into_iter().filter(|(c, _)| among(*c)).map(|(_, k)| k).collect();
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

fn all_there(d: &Driver) -> bool {
    d.sim.phases().iter().all(|&p| p == 0)
}

/// The CPUs that no living thread may use, although one could before it was balanced. None where
/// not all that live are balanced, so that one has ended since, or come.
fn lost(d: &Driver, original: &[CpuSet]) -> Option<CpuSet> {
    let living: Vec<usize> = (d.sim.candidates().iter())
        .map(|c| c.name.strip_prefix("thread-").unwrap().parse().unwrap())
        .collect();
    let union = |masks: &[CpuSet]| living.iter().fold(CpuSet::new(), |all, &t| all.or(&masks[t]));
    (living.len() == d.balancer().len()).then(|| union(original).minus(&union(&d.sim.masks())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn counts_stay_within_one(
        n in 2..24usize,
        m in 1..9usize,
        seed in any::<u64>(),
        strangers in proptest::collection::vec(0..9u32, 0..4),
        coarse in any::<bool>(),
        policy in prop_oneof![Just("juggle"), Just("static")],
    ) {
        let mut s = Scenario { seed, placement: Placement::Random, ..Scenario::new(n, m, ms(400)) };
        s.strangers = strangers
            .into_iter()
            .map(|c| Stranger {
                busy: Some((ms(5), ms(200))),
                sleep: (ms(5), ms(200)),
                ..Stranger::always(CpuId(c % m as u32))
            })
            .collect();
        if coarse {
            (s.sharing, s.tick) = (Sharing::Slices(ms(4)), ms(4));
        }
        let mut d = driver(s, policy, seed);
        while d.step(&mut []) && all_there(&d) {
            if d.balancer().len() == n {
                prop_assert!(apart(&d.sim, |_| true) <= 1, "{:?}", d.sim.counts());
            }
        }
    }

    /// The simulator panics where a mask is set outside the original one; here is looked whether
    /// a thread is, and whether one that has its own mask was left where it was.
    #[test]
    fn masks_and_wishes_are_kept(
        n in 2..16usize,
        m in 2..9usize,
        seed in any::<u64>(),
        policy in prop_oneof![Just("juggle"), Just("hybrid"), Just("static")],
    ) {
        let mut random = Random::new(seed);
        let mut s = Scenario { seed, placement: Placement::Random, ..Scenario::new(n, m, ms(300)) };
        for t in &mut s.threads {
            let mut mask: CpuSet = (0..m as u32).map(CpuId).filter(|_| random.unit() < 0.6).collect();
            mask.insert(CpuId(random.below(m) as u32));
            t.mask = mask;
            t.own_mask = random.unit() < 0.2;
        }
        s.strangers = vec![Stranger::random(CpuId(0))];
        let own_masks: Vec<bool> = s.threads.iter().map(|t| t.own_mask).collect();
        let original: Vec<CpuSet> = s.threads.iter().map(|t| t.mask.clone()).collect();
        let mut d = driver(s, policy, seed);
        while d.step(&mut []) {
            prop_assert!(d.sim.outside_their_masks().is_empty());
            // `static` places once: the CPU of a thread that has ended stays empty.
            if policy != "static" {
                prop_assert!(lost(&d, &original).is_none_or(|cpus| cpus.is_empty()));
            }
        }
        for (moves, own_mask) in d.sim.moves().into_iter().zip(own_masks) {
            prop_assert!(!own_mask || moves == 0);
        }
        d.finish();
        prop_assert!(d.sim.changed_masks().is_empty());
    }

    /// For so long that `hybrid` pins, too; with few kinds of masks, so that threads often outnumber
    /// the CPUs of one kind and leave those of another to fewer; and threads that end.
    #[test]
    fn the_union_of_masks_stays(
        n in 2..14usize,
        m in 2..9usize,
        seed in any::<u64>(),
        policy in prop_oneof![
            Just("juggle"),
            Just("hybrid"),
            Just("secretary"),
            Just("reactive"),
        ],
    ) {
        let mut random = Random::new(seed);
        let mut s = Scenario { seed, ..Scenario::new(n, m, ms(60_000)) };
        s.placement = Placement::Random;
        let narrow = random.below(m);
        for t in &mut s.threads {
            if random.unit() < 0.6 {
                t.mask = (0..=narrow as u32).map(CpuId).collect();
            }
            t.own_mask = random.unit() < 0.05;
            t.end = Some(ms(500 + random.below(5_000) as u64));
        }
        let original: Vec<CpuSet> = s.threads.iter().map(|t| t.mask.clone()).collect();
        let mut d = driver(s, policy, seed);
        while d.step(&mut []) {
            let lost = lost(&d, &original).unwrap_or_default();
            prop_assert!(lost.is_empty(), "{lost} at {}, threads at {:?}", d.sim.now(), d.sim.counts());
        }
    }
}

/// A thread that turns out to have set its own mask when all are placed for the first time is not
/// where the plan has it, so the thread that was to make room for it stays as well: pinned so, all of them would
/// leave a CPU empty. They are placed anew without it instead.
#[test]
fn a_thread_with_a_mask_of_its_own_leaves_no_cpu_unused() {
    for policy in ["juggle", "hybrid", "reactive", "secretary"] {
        let mut pinned = 0;
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut s = Scenario { seed, ..Scenario::new(6, 5, ms(20_000)) };
            s.placement = Placement::Random;
            for t in &mut s.threads[2..4] {
                t.mask = "0-1".parse().unwrap();
            }
            s.threads[2].own_mask = true;
            s.threads[random.below(6)].own_mask = true;
            let original: Vec<CpuSet> = s.threads.iter().map(|t| t.mask.clone()).collect();
            let mut d = driver(s, policy, seed);
            while d.sim.now() < ms(5_000) && d.step(&mut []) {
                let lost = lost(&d, &original).unwrap_or_default();
                assert!(lost.is_empty(), "{policy}, seed {seed}: {lost} at {}", d.sim.now());
            }
            pinned += usize::from(d.sim.changed_masks().len() >= 4);
        }
        assert!(pinned > 200, "{policy}: {pinned}");
    }
}

/// Four threads may use two CPUs, and four others all eight: spread evenly, all eight leave two CPUs
/// without a thread of the program, so they must not be pinned. With two more they can.
#[test]
fn threads_are_pinned_only_where_that_leaves_no_cpu_unused() {
    for (policy, wide, pinned) in
        [("juggle", 4, false), ("hybrid", 4, false), ("juggle", 6, true), ("hybrid", 6, true)]
    {
        let mut s = Scenario::new(4 + wide, 8, ms(5_000));
        s.threads[..4].iter_mut().for_each(|t| t.mask = "0-1".parse().unwrap());
        let original: Vec<CpuSet> = s.threads.iter().map(|t| t.mask.clone()).collect();
        let mut d = driver(s, policy, 1);
        let mut were = false;
        while d.step(&mut []) && all_there(&d) {
            assert!(lost(&d, &original).is_none_or(|cpus| cpus.is_empty()), "{policy} {wide}");
            were |= d.sim.changed_masks().len() == 4 + wide;
        }
        assert_eq!(were, pinned, "{policy} {wide}");
    }
    // Fewer threads than the machine has CPUs, but one for each that they may use.
    let mut s = Scenario::new(3, 8, ms(2_000));
    s.threads.iter_mut().for_each(|t| t.mask = "2-3".parse().unwrap());
    let mut d = driver(s, "juggle", 1);
    while d.sim.now() < ms(500) && d.step(&mut []) {}
    assert_eq!(d.sim.changed_masks().len(), 3);
}

/// Keeps the progress of all threads at each point.
#[derive(Clone, Default)]
struct Progress(Arc<Mutex<Vec<Vec<i64>>>>);

impl Observer for Progress {
    fn event(&mut self, event: &Event) {
        if let Event::Point(p) = event {
            self.0.lock().unwrap().push(p.threads.iter().map(|t| t.progress).collect());
        }
    }
}

/// Lemma 1 says lambda / (floor(n/m) * ceil(n/m)) for the ideal algorithm. The practical one, with
/// a jitter of a tenth, stays within three of that where it pleases, and never drifts.
#[test]
fn progress_stays_even() {
    for (n, m) in [(3, 2), (5, 2), (8, 7), (9, 8), (16, 12)] {
        let seen = Progress::default();
        let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(seen.clone())];
        let mut d = driver(Scenario::new(n, m, ms(4_000)), "juggle", 5);
        while d.step(&mut observers) && all_there(&d) {}
        let points = seen.0.lock().unwrap();
        let step = 20e6 / ((n / m) * n.div_ceil(m)) as f64;
        // The first points make up for the time before balancing began.
        let worst = points[40..points.len() - 2]
            .iter()
            .map(|p| p.iter().max().unwrap() - p.iter().min().unwrap())
            .max()
            .unwrap() as f64;
        assert!(worst < 3.0 * step, "n={n} m={m}: {:.2} steps apart", worst / step);
    }
}

#[test]
fn a_cpu_goes_and_comes_back() {
    for policy in ["juggle", "hybrid", "static"] {
        let gone = CpuId(2);
        let mut s = Scenario::new(9, 4, ms(4_000));
        s.hotplug = vec![
            Hotplug { at: ms(1_000), cpu: gone, online: false },
            Hotplug { at: ms(2_000), cpu: gone, online: true },
        ];
        let mut d = driver(s, policy, 2);
        let on_it = |d: &Driver| d.sim.counts().iter().find(|(c, _)| *c == gone).map(|(_, k)| *k);
        while d.sim.now() < ms(950) && d.step(&mut []) {}
        assert!(on_it(&d).unwrap() >= 2, "{policy}");
        // The engine asks for usable CPUs every 200 ms.
        while d.sim.now() < ms(1_350) && d.step(&mut []) {}
        assert_eq!(on_it(&d), None);
        assert_eq!(apart(&d.sim, |_| true), 0, "{policy}: {:?}", d.sim.counts());
        while d.sim.now() < ms(2_350) && d.step(&mut []) {}
        assert!(on_it(&d).unwrap() >= 2, "{policy}: {:?}", d.sim.counts());
        assert!(apart(&d.sim, |_| true) <= 1, "{policy}");
        while d.step(&mut []) {}
        assert!(d.finish().makespan.is_some());
    }
}

/// While the balancer reads and places, the machine runs on, and threads end in between.
#[test]
fn threads_that_vanish_under_the_balancers_hands() {
    for policy in ["juggle", "hybrid", "static"] {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut s = Scenario::new(40, 6, ms(60_000));
            s.costs =
                Costs { read: Nanos::from_micros(80), place: Nanos::from_micros(150), ..s.costs };
            for t in &mut s.threads {
                t.end = Some(ms(300) + Nanos(random.below(1_500_000_000) as u64));
            }
            let mut options = DriverOptions::fixed(ms(20), seed);
            options.period.budget = 1.0;
            let mut d = Driver::new(Sim::new(s), by_name(policy).unwrap(), &options);
            while d.step(&mut []) {}
            let out = d.finish();
            assert!(out.points > 20, "{policy} seed={seed}");
            assert_eq!(out.summary.domains[0].failed, 0, "{policy} seed={seed}");
        }
    }
}

/// A thread that starts late neither has to catch up nor is it held back, and needs no more moves
/// than its coming makes necessary.
#[test]
fn late_threads_join_at_the_mean() {
    let mut s = Scenario::new(8, 4, ms(4_000));
    for t in &mut s.threads[6..] {
        (t.start, t.work) = (ms(2_000), ms(3_000));
    }
    let seen = Progress::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(seen.clone())];
    let mut d = driver(s, "juggle", 3);
    while d.sim.now() < ms(2_500) && d.step(&mut observers) {}
    let before = d.migrations();
    let mut moved = before;
    // At the point that follows the first end, slots are unequal again.
    while d.step(&mut observers) && all_there(&d) {
        moved = d.migrations();
    }
    assert_eq!(moved, before, "8 on 4 are even");
    let points = seen.0.lock().unwrap();
    let last = points.iter().rfind(|p| p.len() == 8).unwrap();
    let apart = last.iter().max().unwrap() - last.iter().min().unwrap();
    assert!(apart < 40_000_000, "{apart} ns");
}

/// Records the times at which the regression guard began a pause.
#[derive(Clone, Default)]
struct Pauses(Arc<Mutex<(bool, Vec<Nanos>)>>);

impl Observer for Pauses {
    fn event(&mut self, event: &Event) {
        let Event::Point(p) = event else { return };
        let (was_paused, began) = &mut *self.0.lock().unwrap();
        if p.paused && !std::mem::replace(was_paused, p.paused) {
            began.push(p.at);
        }
        *was_paused = p.paused;
    }
}

/// Balancing that harms rests after six pauses at most, of which four are the least that count. Then no thread has a mask of
/// ours, and none is moved; it is tried again for a small part of the time, and the program is done earlier than without the
/// guard.
fn the_guard_ends_it(s: &Scenario) {
    let options = |guard| DriverOptions { guard, ..DriverOptions::fixed(ms(20), 1) };
    let juggle = by_name("juggle").unwrap();
    let on = options(GuardOptions::default());
    let off = options(GuardOptions { enabled: false, ..GuardOptions::default() });
    let pauses = Pauses::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(pauses.clone())];
    let mut d = Driver::new(Sim::new(s.clone()), juggle, &on);
    while d.step(&mut observers) && !d.balancer().summary(d.sim.now()).0.stood_down {}
    let domain = d.balancer().summary(d.sim.now()).0;
    assert!(domain.stood_down, "{:?}", domain.verdict);
    assert!(domain.verdict.ratio < 1.0);
    let began = pauses.0.lock().unwrap().1.clone();
    assert!((4..=6).contains(&began.len()), "{began:?}");
    let (moves, rests) = (d.migrations(), d.sim.now());
    assert!(moves > 0 && d.sim.changed_masks().is_empty(), "{moves}: {:?}", d.sim.masks());
    while d.sim.now() < rests + ms(7_500) && d.step(&mut observers) {
        assert!(d.sim.changed_masks().is_empty(), "{:?}", d.sim.masks());
    }
    assert_eq!((d.migrations(), &pauses.0.lock().unwrap().1), (moves, &began));
    let (mut changed, mut points) = (0, 0);
    while d.step(&mut observers) {
        changed += usize::from(!d.sim.changed_masks().is_empty());
        points += 1;
    }
    assert!(changed * 4 < points, "{changed} of {points}");
    let mut unguarded = Driver::new(Sim::new(s.clone()), juggle, &off);
    while unguarded.step(&mut []) {}
    let (with, without) = (d.finish().makespan.unwrap(), unguarded.finish().makespan.unwrap());
    assert!(with < without, "{with}, without the guard {without}");
}

/// Phases much shorter than the period, and a kernel that would pull at each barrier: threads that
/// are pinned cannot be pulled, and balancing harms.
#[test]
fn the_guard_ends_pinning_that_harms() {
    the_guard_ends_it(&Scenario {
        phases: 60_000,
        barrier: Barrier::Block,
        kernel: Kernel { reactive: true, rotate: None },
        ..Scenario::new(3, 2, ms(2))
    });
}

/// Phases as long as the period, and caches that are cold after each move: what a move gains in a phase it costs.
#[test]
fn the_guard_ends_moves_that_cost_more_than_they_gain() {
    the_guard_ends_it(&Scenario {
        phases: 3_000,
        barrier: Barrier::Block,
        kernel: Kernel { reactive: true, rotate: None },
        costs: Costs { refill: ms(2), ..Costs::default() },
        ..Scenario::new(3, 2, ms(20))
    });
}

/// The guard does not end what helps.
#[test]
fn the_guard_leaves_what_helps() {
    let options =
        DriverOptions { guard: GuardOptions::default(), ..DriverOptions::fixed(ms(20), 1) };
    let scenario = Scenario::new(3, 2, ms(60_000));
    let mut d = Driver::new(Sim::new(scenario), by_name("juggle").unwrap(), &options);
    while d.step(&mut []) {}
    let out = d.finish();
    assert!(!out.summary.domains[0].stood_down);
    assert!(out.summary.domains[0].verdict.pairs >= 3);
    let over = out.makespan.unwrap().0 as f64 / 90e9 - 1.0;
    assert!((0.0..0.001).contains(&over), "{over:.5}");
}

/// The account says which threads have a mask of their own, and what all may use.
#[test]
fn masks_of_threads_are_in_the_account() {
    let own = |masks: [&str; 3]| {
        let mut s = Scenario::new(3, 3, ms(2_000));
        for (t, mask) in s.threads.iter_mut().zip(masks) {
            t.mask = mask.parse().unwrap();
        }
        let mut d = driver(s, "hybrid", 1);
        while d.step(&mut []) {}
        let summary = d.finish().summary;
        assert_eq!(summary.threads.len(), 3);
        let own = summary.threads.iter().filter(|t| t.own_mask).count();
        (own, summary.domains[0].allowed.to_string())
    };
    assert_eq!(own(["0-2"; 3]), (0, "0-2".into()));
    assert_eq!(own(["0", "1", "0"]), (3, "0-1".into()));
    assert_eq!(own(["0-1", "1", "0-1"]), (1, "0-1".into()));
    // All have the same, from a wrapper: that is no mask of one thread's own.
    assert_eq!(own(["1"; 3]), (0, "1".into()));
    // Set by the program while it is balanced: found when the thread is to be moved.
    let mut s = Scenario::new(3, 2, ms(2_000));
    s.threads.iter_mut().for_each(|t| t.own_mask = true);
    let mut d = driver(s, "juggle", 1);
    while d.step(&mut []) {}
    assert_eq!(d.finish().summary.threads.iter().filter(|t| t.own_mask).count(), 3);
}

#[test]
fn the_machine_keeps_its_books() {
    // Three threads share two CPUs under fluid sharing, for a span that three cannot divide.
    let mut sim = Sim::new(Scenario::new(5, 2, ms(1_000)));
    sim.run_until(Nanos(1_000_001));
    let ran: u64 = sim.progress().iter().map(|p| p.0).sum();
    assert_eq!(ran, 2 * 1_000_001);
    // A CPU of half the speed needs twice the time.
    let mut s = Scenario::new(1, 1, ms(10));
    s.cpus[0].speed_permille = 500;
    let mut sim = Sim::new(s);
    sim.run_until(ms(100));
    assert_eq!(sim.makespan(), Some(ms(20)));
    // Blocking at a barrier costs no CPU time; spinning does.
    for (barrier, ran) in [(Barrier::Block, 20), (Barrier::Spin, 30)] {
        let mut s = Scenario { barrier, phases: 2, ..Scenario::new(2, 2, ms(20)) };
        s.threads[0].work = ms(10);
        let mut sim = Sim::new(s);
        sim.run_until(ms(100));
        assert_eq!(sim.makespan(), Some(ms(40)), "{barrier:?}");
        assert_eq!(sim.progress()[0], ms(ran), "{barrier:?}");
    }
    // Readings lag by up to a tick.
    let s =
        Scenario { tick: ms(4), sharing: Sharing::Slices(ms(4)), ..Scenario::new(1, 1, ms(50)) };
    let mut sim = Sim::new(s);
    sim.run_until(ms(11));
    assert_eq!(sim.candidates()[0].times.ran, ms(8));
    assert_eq!(sim.now(), ms(11));
}

/// A list of threads that is brought up to date is the same as one that is made anew.
#[test]
fn threads_seen_again_are_as_seen_for_the_first_time() {
    let mut s = Scenario::new(6, 3, ms(60));
    s.threads[4].start = ms(25);
    for (t, end) in [(0, 10), (3, 35), (5, 45)] {
        s.threads[t].end = Some(ms(end));
    }
    let mut sim = Sim::new(s);
    let mut seen = Vec::new();
    let mut counts = Vec::new();
    for time in [5, 15, 30, 40, 1_000] {
        sim.run_until(ms(time));
        sim.refresh(None, &mut seen);
        assert_eq!(seen, sim.candidates(), "at {time} ms");
        counts.push(seen.len());
    }
    assert_eq!(counts, [5, 4, 5, 4, 0]);
}

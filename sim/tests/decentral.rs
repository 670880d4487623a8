//! The balancers of CPUs, each with wake-ups of its own, against what OSLB says of them.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{
    BalancerOptions, Event, GuardOptions, MoveRecord, Observer, PeriodOptions, Reader, Selection,
};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Nanos};
use evenly_policies::by_name;
use evenly_secretary::{CARE, Decentral, HIGH_RATE, Step};
use evenly_sim::{
    Costs, Driver, DriverOptions, Hotplug, Outcome, Scenario, Sim, Stranger, simulate,
    simulate_seen_by,
};
use std::sync::{Arc, Mutex};

const LIMIT: Nanos = Nanos::from_millis(3_600_000);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn at_once(period: Nanos, seed: u64) -> DriverOptions {
    let analysed = DriverOptions::as_analysed(period, seed);
    // All balancers together may take more than one CPU.
    let period = PeriodOptions { budget: f64::INFINITY, ..analysed.period };
    DriverOptions { jitter: true, period, ..analysed }
}

fn run(scenario: &Scenario, options: &DriverOptions) -> Outcome {
    simulate(Sim::new(scenario.clone()), by_name("secretary").unwrap(), options, LIMIT)
}

fn secretary_on(cpus: CpuSet) -> BalancerOptions {
    BalancerOptions {
        domain: DomainId(0),
        cpus,
        wanted: None,
        policy: by_name("secretary").unwrap(),
        environment: Environment::default(),
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    }
}

/// Each balancer reads the threads of its own CPU, and those that it observes: nothing else is read.
#[test]
fn readings_are_those_of_own_threads_and_of_observations() {
    let (n, m, periods) = (24, 16, 100);
    let s = Scenario::new(n, m, ms(10_000));
    let mut driver = Driver::new(Sim::new(s), by_name("secretary").unwrap(), &at_once(ms(100), 5));
    while driver.sim.now() < ms(100 * periods) && driver.step(&mut []) {}
    let effort = driver.balancer().effort();
    let own = driver.sim.readings() - effort.readings;
    // Every thread once in a period, by one balancer or another; one that has just moved may be read
    // twice or not at all.
    let each = own as f64 / (n as u64 * periods) as f64;
    assert!((0.9..1.1).contains(&each), "{each}");
    assert!(effort.searches > 0 && effort.most >= effort.readings / effort.searches);
    assert!(effort.readings < effort.threads / 2, "{effort:?}");
}

/// Wake-ups are independent: no two balancers wake at the same moment, and each does so once a period.
#[test]
fn every_balancer_wakes_once_a_period() {
    let (period, mut now) = (ms(50), ms(1));
    let mut sim = Sim::new(Scenario::new(12, 8, ms(2_000)));
    let cpus = sim.all_cpus();
    sim.run_until(now);
    let (mut caretaker, Decentral { board, mut balancers }) =
        Decentral::with_caretaker(secretary_on(cpus.clone()), &[], period, 7, now);
    for thread in sim.candidates() {
        let selection = Selection { baseline: thread.times, thread };
        caretaker.join(&mut sim, selection, &cpus, &mut []);
    }
    caretaker.point(&mut sim, period, &mut []);
    let mut due: Vec<Nanos> = balancers.iter_mut().map(|b| b.first_wake(now, period)).collect();
    let mut wakes = vec![Vec::new(); due.len()];
    while now < ms(1_001) {
        let next = (0..due.len()).min_by_key(|&b| due[b]).unwrap();
        now = due[next];
        sim.run_until(now);
        wakes[next].push(now);
        while matches!(balancers[next].step(&board, &mut sim), Step::Again) {}
        due[next] = balancers[next].next_wake(period, true);
    }
    let mut all: Vec<Nanos> = wakes.concat();
    assert!(wakes.iter().all(|w| (18..=22).contains(&w.len())), "{wakes:?}");
    all.sort_unstable();
    assert!(all.windows(2).all(|w| w[0] < w[1]), "{all:?}");
}

/// The same, as the driver and its report count them.
#[test]
fn wakes_are_counted() {
    let s = Scenario::new(12, 8, ms(2_000));
    let mut driver = Driver::new(Sim::new(s), by_name("secretary").unwrap(), &at_once(ms(50), 2));
    while driver.sim.now() < ms(1_000) && driver.step(&mut []) {}
    let summary = driver.finish().summary;
    let wakes = summary.domains[0].points;
    assert!((8 * 18..=8 * 22).contains(&wakes), "{wakes}");
    assert!((summary.domains[0].period_s - 0.05).abs() < 0.005, "{}", summary.domains[0].period_s);
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let s = Scenario::new(40, 28, ms(3_000));
    let [a, b, c] = [3, 3, 4].map(|seed| run(&s, &at_once(ms(20), seed)));
    assert_eq!(a, b);
    assert_ne!((a.migrations, a.readings), (c.migrations, c.readings));
}

/// What takes time is done beside others: reading costs each balancer's own time, not everybody's. With
/// one after the other, 64 balancers with a millisecond for each reading would need more than a
/// period for one round.
#[test]
fn balancers_work_beside_each_other() {
    let e = ms(20_000);
    let costs = Costs { read: ms(1), place: ms(1), ..Costs::default() };
    let s = Scenario { costs, ..Scenario::new(80, 64, e) };
    let out = run(&s, &at_once(ms(50), 1));
    let over = out.makespan.unwrap().0 as f64 / (e.0 as f64 * 1.25) - 1.0;
    assert!((-1e-9..0.01).contains(&over), "{over}");
    let each = out.points as f64 / (out.makespan.unwrap().0 as f64 / 50e6) / 64.0;
    assert!((0.9..1.1).contains(&each), "{each} wake-ups a period");
}

struct Moves(Arc<Mutex<Vec<MoveRecord>>>);

impl Observer for Moves {
    fn event(&mut self, event: &Event) {
        if let Event::Point(p) = event {
            self.0.lock().unwrap().extend(p.moves.clone());
        }
    }
}

/// CPUs of even and of odd numbers.
fn two_nodes(m: u32) -> Vec<CpuSet> {
    [0, 1].map(|odd| (0..m).filter(|c| c % 2 == odd).map(CpuId).collect()).into()
}

fn crosses(from: CpuId, to: CpuId) -> bool {
    from.0 % 2 != to.0 % 2
}

/// Two threads that changed places, at the moment at which they did.
struct Swapped {
    at: Nanos,
    /// The faster CPU, and the other one.
    here: CpuId,
    there: CpuId,
    /// What the thread that came to the faster CPU had got since the start, and the one that left it.
    came: Nanos,
    left: Nanos,
}

/// All swaps of a run of 10 s, the balancers being driven by hand. (A recording cannot show moments: it has what
/// was read up to the caretaker's next point.)
fn swaps(s: Scenario, nodes: &[CpuSet], period: Nanos) -> Vec<Swapped> {
    let (n, end, mut seen) = (s.threads.len(), ms(10_000), Vec::new());
    let mut sim = Sim::new(s);
    let cpus = sim.all_cpus();
    sim.run_until(ms(1));
    let options = secretary_on(cpus.clone());
    let (mut caretaker, Decentral { board, mut balancers }) =
        Decentral::with_caretaker(options, nodes, period, 7, sim.now());
    let threads = sim.candidates();
    for thread in threads.clone() {
        let selection = Selection { baseline: thread.times, thread };
        caretaker.join(&mut sim, selection, &cpus, &mut []);
    }
    caretaker.point(&mut sim, period, &mut []);
    let places = |sim: &mut Sim| -> Vec<CpuId> {
        threads.iter().map(|t| sim.locate(t.id).unwrap().cpu).collect()
    };
    let (first, now) = (sim.progress(), sim.now());
    let mut due: Vec<Nanos> =
        balancers.iter_mut().map(|b| b.first_wake(now, board.interval())).collect();
    let mut next_point = now + period.scale(CARE);
    while sim.now() < end {
        let (b, &at) = due.iter().enumerate().min_by_key(|&(i, at)| (*at, i)).unwrap();
        if next_point < at {
            sim.run_until(next_point);
            caretaker.point(&mut sim, period, &mut []);
            next_point += period.scale(CARE);
            continue;
        }
        sim.run_until(at);
        let mut step = balancers[b].step(&board, &mut sim);
        while matches!(step, Step::Again) {
            step = balancers[b].step(&board, &mut sim);
        }
        if let Step::Swap(swap) = step {
            let here = balancers[b].cpu(&board);
            let before = places(&mut sim);
            assert!(board.swap(&swap, &mut sim), "nobody else is at work at this moment");
            let after = places(&mut sim);
            let came = (0..n).find(|&t| before[t] != here && after[t] == here).unwrap();
            let left = (0..n).find(|&t| before[t] == here && after[t] != here).unwrap();
            assert_eq!(before[came], after[left], "they change places");
            let progress = sim.progress();
            let got = |t: usize| progress[t] - first[t];
            let there = before[came];
            seen.push(Swapped { at, here, there, came: got(came), left: got(left) });
        }
        due[b] = balancers[b].next_wake(board.interval(), true);
    }
    assert_eq!(board.migrations(), 2 * seen.len() as u64);
    seen
}

/// OSLB 3.2: threads do not go to another node while the migration rate is high.
#[test]
fn no_thread_goes_to_another_node_while_many_move() {
    // Two thirds of the threads move in each period.
    let (n, m, period) = (24, 16, ms(50));
    let busy = |nodes: &[CpuSet]| {
        let all = swaps(Scenario::new(n, m, ms(60_000)), nodes, period);
        let most = HIGH_RATE * n as f64;
        // Threads moved before this swap, in its stretch of a period or in the one before.
        let is_high = |i: usize| {
            let stretch = |s: &Swapped| s.at.0 / period.0;
            let of = |k: u64| 2 * all[..i].iter().filter(|s| stretch(s) == k).count();
            let now = stretch(&all[i]);
            of(now).max(of(now.wrapping_sub(1))) as f64 > most
        };
        let high: Vec<&Swapped> = (0..all.len()).filter(|&i| is_high(i)).map(|i| &all[i]).collect();
        let across = high.iter().filter(|s| crosses(s.here, s.there)).count();
        assert!(high.len() > 500, "{} of {} swaps while many move", high.len(), all.len());
        (across, high.len())
    };
    let (across, all) = busy(&[]);
    assert!(across > all / 4, "without nodes they do: {across} of {all}");
    assert_eq!(busy(&two_nodes(m as u32)).0, 0);
}

#[test]
fn threads_go_to_another_node_while_few_move() {
    // One CPU has a stranger: the others of its node would be left with it.
    let strangers = vec![Stranger::always(CpuId(0))];
    let few = Scenario { strangers, ..Scenario::new(16, 16, ms(60_000)) };
    let options = DriverOptions { domains: two_nodes(16), ..at_once(ms(50), 3) };
    let moves = Arc::new(Mutex::new(Vec::new()));
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(Moves(moves.clone()))];
    let secretary = by_name("secretary").unwrap();
    let out = simulate_seen_by(Sim::new(few), secretary, &options, ms(10_000), &mut observers);
    let moves = moves.lock().unwrap();
    let (across, all) = (moves.iter().filter(|m| crosses(m.from, m.to)).count(), moves.len());
    // Those since the last point of the caretaker are in no record.
    assert!(all as u64 <= out.migrations && all as u64 * 20 > out.migrations * 19, "{all}");
    assert!(across > all / 4 && all > 50, "{across} of {all}");
    let level = |progress: &[Nanos]| {
        let least = progress.iter().min().unwrap().0 as f64;
        least / progress.iter().max().unwrap().0 as f64
    };
    assert!(level(&out.progress) > 0.95, "{:?}", out.progress);
}

/// Whoever is swapped: at that moment the one that comes to the fast CPU has got less than the one that
/// leaves it.
#[test]
fn whoever_is_swapped_is_behind_at_that_moment() {
    for (n, m) in [(3, 2), (24, 16)] {
        let swaps = swaps(Scenario::new(n, m, ms(60_000)), &[], ms(20));
        for s in &swaps {
            assert!(s.came < s.left, "{n} on {m}: {} came, {} left", s.came, s.left);
        }
        assert!(swaps.len() > 100, "{n} on {m}: {} swaps", swaps.len());
    }
}

/// A CPU that goes takes nobody with it, and one that comes is used.
#[test]
fn cpus_that_come_and_go() {
    let plug = |at, online| Hotplug { at: ms(at), cpu: CpuId(2), online };
    let s = Scenario {
        hotplug: vec![plug(1_000, false), plug(5_000, true)],
        ..Scenario::new(6, 4, ms(8_000))
    };
    let mut driver = Driver::new(Sim::new(s), by_name("secretary").unwrap(), &at_once(ms(20), 1));
    while driver.sim.now() < ms(4_000) && driver.step(&mut []) {}
    let counts = |d: &Driver| d.sim.counts().iter().map(|c| c.1).collect::<Vec<_>>();
    assert_eq!(counts(&driver), [2, 2, 2]);
    while driver.sim.now() < ms(8_000) && driver.step(&mut []) {}
    let now = counts(&driver);
    assert!(now.len() == 4 && now.iter().all(|c| (1..=2).contains(c)), "{now:?}");
    while driver.step(&mut []) {}
    let out = driver.finish();
    // 4 CPUs for 5 s less 4 times one CPU for 4 s.
    let work = 6.0 * 8.0;
    let bound = (work + 4.0) / 4.0;
    let over = out.makespan.unwrap().as_secs_f64() / bound - 1.0;
    assert!((-1e-9..0.05).contains(&over), "{over}");
}

/// Threads that end are noticed by whoever reads them, and the caretaker comes at once.
#[test]
fn places_of_threads_that_end_are_filled() {
    // At any time between two regular points of the caretaker, which are 250 ms apart.
    for end in [2_000, 2_050, 2_100, 2_150, 2_200].map(ms) {
        let mut s = Scenario::new(8, 4, ms(10_000));
        for t in 0..4 {
            // All of those that are first on their CPUs, and so on two of them all.
            s.threads[t * 2].end = Some(end);
        }
        let secretary = by_name("secretary").unwrap();
        let mut driver = Driver::new(Sim::new(s), secretary, &at_once(ms(50), 1));
        while driver.sim.now() < end + ms(120) && driver.step(&mut []) {}
        let counts: Vec<usize> = driver.sim.counts().iter().map(|c| c.1).collect();
        assert_eq!((counts, driver.balancer().len()), (vec![1, 1, 1, 1], 4), "after {end}");
    }
}

/// Masks are given back, whatever a balancer was about to do: reading and moving take time, so that searches and
/// swaps are under way.
#[test]
fn masks_are_given_back() {
    let costs = Costs { read: ms(1), place: ms(1), ..Costs::default() };
    for steps in 0..100 {
        let s = Scenario { costs, ..Scenario::new(24, 16, ms(60_000)) };
        let secretary = by_name("secretary").unwrap();
        let mut driver = Driver::new(Sim::new(s), secretary, &at_once(ms(20), 1));
        while driver.sim.now() < ms(1_000) && driver.step(&mut []) {}
        for _ in 0..steps {
            driver.step(&mut []);
        }
        assert!(driver.migrations() > 20, "{}", driver.migrations());
        assert_eq!(driver.sim.changed_masks().len(), 24, "after {steps} steps");
        driver.finish();
        assert!(driver.sim.changed_masks().is_empty(), "after {steps} steps");
    }
}

/// A thread whose mask is the program's is left alone, and the others are balanced.
#[test]
fn a_thread_with_a_mask_of_its_own_is_left_alone() {
    let mut s = Scenario::new(7, 4, ms(4_000));
    // One of two on a CPU: the other is still swapped.
    s.threads[0].own_mask = true;
    let own = s.threads[0].mask.clone();
    let mut driver = Driver::new(Sim::new(s), by_name("secretary").unwrap(), &at_once(ms(20), 1));
    while driver.sim.now() < ms(3_000) && driver.step(&mut []) {}
    assert_eq!(driver.sim.masks()[0], own);
    assert_eq!(driver.sim.moves()[0], 0);
    assert!(driver.migrations() > 50);
}

/// A whole machine in virtual time: as many as the simulator promises, in seconds.
#[test]
fn thousands_of_cpus() {
    let s = Scenario::new(1_280, 1_024, ms(4_000));
    let out = run(&s, &at_once(ms(100), 1));
    let over = out.makespan.unwrap().as_secs_f64() / 5.0 - 1.0;
    assert!((-1e-9..0.03).contains(&over), "{over}");
    // A search reads a small part of all.
    let per_search = out.search.observations as f64 / out.search.threads as f64;
    assert!(per_search < 0.05, "{per_search}");
}

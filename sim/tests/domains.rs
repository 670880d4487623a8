//! Threads of two domains follow CPUs that come and go: the balancers of both, and the spreading
//! between them, as the coordinator of a real program uses them.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{
    Balancer, BalancerOptions, DomainSpread, DomainThread, Event, GuardOptions, Observer, Reader,
    Selection, Sensors, Summary, roomiest,
};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Nanos, ThreadId};
use evenly_policies::by_name;
use evenly_sim::{Barrier, Hotplug, Scenario, Sim};
use std::sync::{Arc, Mutex};

const PERIOD: Nanos = Nanos::from_millis(100);

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn s(seconds: u64) -> Nanos {
    Nanos::from_millis(1_000 * seconds)
}

struct Log(Arc<Mutex<Vec<Event>>>);

impl Observer for Log {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }

    fn wants_points(&self) -> bool {
        false
    }
}

struct Two {
    sim: Sim,
    balancers: Vec<Balancer>,
    sets: [CpuSet; 2],
    spread: DomainSpread,
    members: Vec<(ThreadId, CpuSet, usize)>,
    observers: Vec<Box<dyn Observer>>,
    log: Arc<Mutex<Vec<Event>>>,
}

impl Two {
    fn new(scenario: Scenario, policy: &str) -> Self {
        Self::of(scenario, policy, [cpus("0-3"), cpus("4-7")])
    }

    fn of(scenario: Scenario, policy: &str, sets: [CpuSet; 2]) -> Self {
        let info = by_name(policy).unwrap();
        let sim = Sim::new(scenario);
        let balancer = |(i, cpus): (usize, &CpuSet)| {
            let options = BalancerOptions {
                domain: DomainId(i as u32),
                cpus: cpus.clone(),
                wanted: None,
                policy: info,
                environment: Environment::default(),
                guard: GuardOptions { enabled: false, ..GuardOptions::default() },
            };
            Balancer::new(options, sim.now())
        };
        let balancers = sets.iter().enumerate().map(balancer).collect();
        let log = Arc::new(Mutex::new(Vec::new()));
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(Log(log.clone()))];
        let spread = DomainSpread::new(policy == "static");
        Self { balancers, sets, sim, spread, members: Vec::new(), observers, log }
    }

    fn rooms(&mut self) -> Vec<usize> {
        self.sets.clone().iter().map(|set| self.sim.usable(set).len()).collect()
    }

    fn start(&mut self) {
        let rooms = self.rooms();
        let mut counts = [0, 0];
        for thread in self.sim.candidates() {
            let (id, baseline) = (thread.id, thread.times);
            let mask = self.sim.original_mask(id).unwrap();
            let d = roomiest(&rooms, &counts, &[true, true], None).unwrap();
            counts[d] += 1;
            let selection = Selection { thread, baseline };
            self.balancers[d].join(&mut self.sim, selection, &mask, &mut self.observers);
            self.members.push((id, mask, d));
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while self.sim.now() < end {
            let next = self.sim.now() + PERIOD;
            self.sim.run_until(next);
            let living: Vec<ThreadId> = self.sim.candidates().iter().map(|c| c.id).collect();
            self.members.retain(|(id, ..)| living.contains(id));
            let threads: Vec<DomainThread> = (self.members.iter())
                .map(|&(_, _, domain)| DomainThread { domain, class: 0, movable: true })
                .collect();
            let rooms = self.rooms();
            let now = self.sim.now();
            for t in self.spread.look(now, &rooms, &[vec![true, true]], &threads) {
                let (id, mask, domain) = &mut self.members[t.thread];
                let to = DomainId(t.to as u32);
                let balancer = &mut self.balancers[*domain];
                let observers = &mut self.observers;
                let selection = balancer.release(&mut self.sim, *id, to, observers).unwrap();
                self.balancers[t.to].join(&mut self.sim, selection, mask, observers);
                *domain = t.to;
            }
            for b in &mut self.balancers {
                let left = b.point(&mut self.sim, PERIOD, &mut self.observers);
                assert!(left.is_empty());
            }
        }
    }

    fn adopt(&mut self, domain: usize, cpu: u32) {
        self.sets[domain].insert(CpuId(cpu));
        let cpu = CpuSet::single(CpuId(cpu));
        self.balancers[domain].adopt(&mut self.sim, &cpu, &mut self.observers);
    }

    fn counts(&self) -> Vec<usize> {
        self.balancers.iter().map(Balancer::len).collect()
    }

    /// All threads, of which none has ended, have masks of the domain that they are in.
    fn assert_masks_inside(&self) {
        for (mask, (id, _, domain)) in self.sim.masks().iter().zip(&self.members) {
            assert!(mask.is_subset(&self.sets[*domain]), "{id}: {mask}");
        }
    }

    fn finish(&mut self) -> Summary {
        let mut summary = Summary::default();
        for b in &mut self.balancers {
            b.finish(&mut self.sim);
            summary.add(b.summary(self.sim.now()));
        }
        assert!(self.sim.changed_masks().is_empty());
        summary
    }
}

fn hotplug(at: Nanos, cpu: u32, online: bool) -> Hotplug {
    Hotplug { at, cpu: CpuId(cpu), online }
}

#[test]
fn threads_follow_a_cpu_that_comes() {
    for policy in ["juggle", "hybrid", "static"] {
        let hotplug = vec![hotplug(Nanos::ZERO, 5, false), hotplug(s(5), 5, true)];
        let mut two = Two::new(Scenario { hotplug, ..Scenario::new(8, 8, s(60)) }, policy);
        two.sim.run_until(PERIOD);
        two.start();
        two.run_until(s(5));
        assert_eq!(two.counts(), [5, 3]);
        two.assert_masks_inside();
        two.run_until(s(7));
        assert_eq!(two.counts(), [4, 4]);
        two.assert_masks_inside();
        let per_cpu: Vec<usize> = two.sim.counts().into_iter().map(|(_, n)| n).collect();
        assert_eq!(per_cpu, [1; 8], "{policy}");

        // One thread has changed its domain, and that is reported, in this order.
        let log = two.log.lock().unwrap().clone();
        let moved = log.iter().position(|e| matches!(e, Event::Left { to: Some(_), .. })).unwrap();
        let Event::Left { id, ended: false, to: Some(DomainId(1)), .. } = log[moved] else {
            panic!("{:?}", log[moved]);
        };
        let joins: Vec<(usize, u32)> = (log.iter().enumerate())
            .filter_map(|(i, e)| match e {
                Event::Joined { domain, thread, .. } if thread.id == id => Some((i, domain.0)),
                _ => None,
            })
            .collect();
        assert!(joins.len() == 2 && joins[0].1 == 0 && joins[1].1 == 1, "{joins:?}");
        assert!(joins[0].0 < moved && moved < joins[1].0);
        assert_eq!(log.iter().filter(|e| matches!(e, Event::Left { .. })).count(), 1);

        // Nothing of what it did is lost or counted twice.
        let ran = two.sim.progress();
        let summary = two.finish();
        assert_eq!(summary.threads.len(), 8);
        let total: f64 = summary.threads.iter().map(|t| t.ran_s).sum();
        let before: f64 = 7.0 * PERIOD.as_secs_f64();
        let real: f64 = ran.iter().map(|r| r.as_secs_f64()).sum();
        assert!((total + before - real).abs() < 1e-6, "{total} and {before}: {real}");
        let t = summary.threads.iter().find(|t| t.id == id).unwrap();
        assert!((t.present_s - 6.9).abs() < 1e-6, "{}", t.present_s);
    }
}

#[test]
fn a_cpu_that_belongs_to_no_domain_is_used_once_one_adopts_it() {
    for policy in ["juggle", "hybrid", "static"] {
        let hotplug = vec![hotplug(Nanos::ZERO, 7, false), hotplug(s(5), 7, true)];
        let scenario = Scenario { hotplug, ..Scenario::new(8, 8, s(60)) };
        let mut two = Two::of(scenario, policy, [cpus("0-3"), cpus("4-6")]);
        two.sim.run_until(PERIOD);
        two.start();
        two.run_until(s(6));
        assert_eq!(two.counts(), [5, 3], "{policy}");
        two.assert_masks_inside();
        two.adopt(1, 7);
        two.run_until(s(9));
        assert_eq!(two.counts(), [4, 4], "{policy}");
        two.assert_masks_inside();
        let per_cpu: Vec<usize> = two.sim.counts().into_iter().map(|(_, n)| n).collect();
        assert_eq!(per_cpu, [1; 8], "{policy}");
        two.finish();
    }
}

/// Threads that are not pinned may go there at once, and no further than their domain.
#[test]
fn threads_that_roam_may_use_an_adopted_cpu_at_once() {
    let hotplug = vec![hotplug(Nanos::ZERO, 7, false), hotplug(s(5), 7, true)];
    let scenario = Scenario {
        hotplug,
        phases: 2_000,
        barrier: Barrier::Block,
        ..Scenario::new(8, 8, Nanos::from_millis(30))
    };
    let mut two = Two::of(scenario, "hybrid", [cpus("0-3"), cpus("4-6")]);
    two.sim.run_until(PERIOD);
    two.start();
    two.run_until(s(6));
    let roaming =
        |two: &Two, set: &str| two.sim.masks().iter().filter(|m| **m == cpus(set)).count();
    assert!(roaming(&two, "4-6") >= 3, "{:?}", two.sim.masks());
    two.adopt(1, 7);
    assert!(roaming(&two, "4-7") >= 3, "{:?}", two.sim.masks());
    assert_eq!(roaming(&two, "4-6"), 0);
    two.assert_masks_inside();
    two.run_until(s(9));
    assert_eq!(two.counts(), [4, 4]);
    two.finish();
}

#[test]
fn threads_give_way_to_a_cpu_that_goes_and_come_back_with_it() {
    let hotplug = vec![hotplug(s(3), 3, false), hotplug(s(8), 3, true)];
    let mut two = Two::new(Scenario { hotplug, ..Scenario::new(8, 8, s(60)) }, "juggle");
    two.sim.run_until(PERIOD);
    two.start();
    let mut seen = Vec::new();
    for second in 1..12 {
        two.run_until(s(second));
        two.assert_masks_inside();
        let counts = two.counts();
        if seen.last() != Some(&counts) {
            seen.push(counts);
        }
    }
    assert_eq!(seen, [[4, 4], [3, 5], [4, 4]]);
    two.finish();
}

/// What a thread did before it came is no blocking of the domain that it comes to, which would let
/// all go that are held there.
#[test]
fn a_thread_that_comes_does_not_let_those_go_that_are_held() {
    let hotplug = vec![hotplug(Nanos::from_millis(3_450), 3, false), hotplug(s(6), 3, true)];
    let mut two = Two::new(Scenario { hotplug, ..Scenario::new(8, 8, s(60)) }, "hybrid");
    two.sim.run_until(PERIOD);
    two.start();
    two.run_until(s(2));
    let mut seen = vec![two.counts()];
    let mut free_for = [0; 8];
    for step in 1..=80 {
        two.run_until(s(2) + Nanos::from_millis(100 * step));
        if seen.last() != Some(&two.counts()) {
            seen.push(two.counts());
        }
        let (masks, rooms, counts) = (two.sim.masks(), two.rooms(), two.counts());
        for ((mask, (.., home)), steps) in masks.iter().zip(&two.members).zip(&mut free_for) {
            // Three threads that are pinned would leave a CPU of four unused.
            let too_few = counts[*home] < rooms[*home];
            *steps = if mask.len() == 1 || too_few { 0 } else { *steps + 1 };
            assert!(*steps <= 2, "{mask} at step {step}");
        }
    }
    assert_eq!(seen, [[4, 4], [3, 5], [4, 4]]);
    two.finish();
}

#[test]
fn a_domain_that_loses_all_of_its_cpus_is_left() {
    let gone = (4..8).map(|cpu| hotplug(s(3), cpu, false));
    let back = (4..8).map(|cpu| hotplug(s(8), cpu, true));
    let hotplug = gone.chain(back).collect();
    let mut two = Two::new(Scenario { hotplug, ..Scenario::new(6, 8, s(60)) }, "juggle");
    two.sim.run_until(PERIOD);
    two.start();
    two.run_until(s(3));
    assert_eq!(two.counts(), [3, 3]);
    two.run_until(s(7));
    assert_eq!(two.counts(), [6, 0]);
    two.assert_masks_inside();
    let per_cpu: Vec<usize> = two.sim.counts().into_iter().map(|(_, n)| n).collect();
    assert_eq!(per_cpu.iter().max(), Some(&2));
    two.run_until(s(11));
    assert_eq!(two.counts(), [3, 3]);
    two.finish();
}

#[test]
fn threads_that_end_make_room_for_others_unless_the_policy_is_static() {
    for (policy, expected) in [("juggle", [3, 3]), ("static", [2, 4])] {
        // Threads are handed to the domains in turn: of the first, two more end.
        let mut scenario = Scenario::new(12, 8, s(60));
        for t in [0, 2, 4, 6, 1, 3] {
            scenario.threads[t].end = Some(s(3));
        }
        let mut two = Two::new(scenario, policy);
        two.sim.run_until(PERIOD);
        two.start();
        assert_eq!(two.counts(), [6, 6]);
        two.run_until(s(6));
        assert_eq!(two.counts(), expected);
    }
}

#[test]
fn a_thread_that_cannot_be_moved_is_not_given_up() {
    let mut scenario = Scenario::new(2, 8, s(60));
    scenario.threads[0].own_mask = true;
    let mut two = Two::new(scenario, "juggle");
    two.sim.run_until(PERIOD);
    two.start();
    two.run_until(s(1));
    let own = two.members[0].0;
    let to = DomainId(1);
    assert!(two.balancers[0].release(&mut two.sim, own, to, &mut two.observers).is_none());
    assert_eq!(two.balancers[0].len(), 1);
    // Nor one that is not here.
    let other = two.members[1].0;
    assert!(two.balancers[0].release(&mut two.sim, other, to, &mut two.observers).is_none());
}

/// While the other domain has no thread, threads may use its CPUs (promise P2); then they are
/// confined again, and moved only inside.
#[test]
fn a_domain_is_open_while_another_has_no_thread() {
    for policy in ["hybrid", "juggle"] {
        let info = by_name(policy).unwrap();
        let scenario = Scenario::new(5, 8, s(60));
        let mut sim = Sim::new(scenario);
        let options = BalancerOptions {
            domain: DomainId(0),
            cpus: cpus("0-3"),
            wanted: None,
            policy: info,
            environment: Environment::default(),
            guard: GuardOptions { enabled: false, ..GuardOptions::default() },
        };
        let mut balancer = Balancer::new(options, sim.now());
        sim.run_until(PERIOD);
        assert_eq!(sim.candidates().len(), 5);
        for thread in sim.candidates() {
            let baseline = thread.times;
            let mask = sim.original_mask(thread.id).unwrap();
            balancer.join(&mut sim, Selection { thread, baseline }, &mask, &mut []);
        }
        let inside = |sim: &Sim, list: &str| sim.masks().iter().all(|m| m.is_subset(&cpus(list)));
        let run = |sim: &mut Sim, balancer: &mut Balancer, open: bool| {
            for _ in 0..30 {
                let next = sim.now() + PERIOD;
                sim.run_until(next);
                balancer.open(sim, open);
                balancer.point(sim, PERIOD, &mut []);
            }
        };
        run(&mut sim, &mut balancer, false);
        assert!(inside(&sim, "0-3"), "{policy}");
        run(&mut sim, &mut balancer, true);
        let free = sim.masks().iter().filter(|m| **m == cpus("0-7")).count();
        assert_eq!(free, 5, "{policy}: {:?}", sim.masks());
        run(&mut sim, &mut balancer, false);
        assert!(inside(&sim, "0-3"), "{policy}: {:?}", sim.masks());
    }
}

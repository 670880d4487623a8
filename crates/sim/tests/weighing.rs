//! What a policy that gives weights does to threads, call by call.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{
    ApplyError, Balancer, BalancerOptions, GuardOptions, Located, Machine, Reading, Selection,
    Waiting, Wanted,
};
use evenly_model::{CpuId, CpuSet, DomainId, Nanos, Pid, ThreadId};
use evenly_policy::by_name;
use evenly_sim::{Barrier, Scenario, Sharing, Sim};
use std::collections::BTreeMap;

const PERIOD: Nanos = Nanos::from_millis(20);

/// Keeps account of what is done to threads.
struct Account {
    sim: Sim,
    /// Calls that change something.
    acts: usize,
    weights: BTreeMap<ThreadId, f64>,
    /// This one has ended.
    ended: Option<ThreadId>,
}

impl Machine for Account {
    fn now(&self) -> Nanos {
        self.sim.now()
    }

    fn own_cpu_time(&self) -> Nanos {
        self.sim.own_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        self.sim.read(ids, out);
        for (id, reading) in ids.iter().zip(out) {
            if self.ended == Some(*id) {
                *reading = Reading::Gone;
            }
        }
    }

    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        self.sim.waiting(ids, out);
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        self.sim.locate(id)
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.sim.usable(within)
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.sim.original_mask(id)
    }

    fn place(&mut self, id: ThreadId, cpu: CpuId, to: Option<&CpuSet>) -> Result<(), ApplyError> {
        self.acts += 1;
        self.sim.place(id, cpu, to)
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.acts += 1;
        self.sim.confine(id, mask)
    }

    fn restore(&mut self, id: ThreadId) {
        self.acts += 1;
        self.sim.restore(id);
    }

    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        self.acts += 1;
        self.weights.extend(wanted.iter().map(|w| (w.thread, w.weight)));
        self.sim.weigh(wanted)
    }

    fn unweigh(&mut self, process: Pid, thread: ThreadId) {
        self.acts += 1;
        assert!(self.weights.remove(&thread).is_some(), "{thread} has no weight");
        self.sim.unweigh(process, thread);
    }

    fn resolution(&self) -> Nanos {
        self.sim.resolution()
    }
}

/// Threads with these loads that meet in a barrier and spin there, or sleep, on two CPUs in slices of 4 ms.
fn start(policy: &str, loads_ms: [u64; 4], barrier: Barrier) -> (Account, Balancer) {
    let work = Nanos::from_millis(10);
    let sharing = Sharing::Slices(Nanos::from_millis(4));
    let mut s =
        Scenario { sharing, phases: 10_000, barrier, probe: true, ..Scenario::new(4, 2, work) };
    for (thread, load) in s.threads.iter_mut().zip(loads_ms) {
        thread.work = Nanos::from_millis(load);
    }
    let info = by_name(policy).unwrap();
    let options = BalancerOptions {
        domain: DomainId(0),
        cpus: "0-1".parse().unwrap(),
        wanted: None,
        mechanism: info.mechanism,
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    };
    let sim = Sim::new(s);
    let mut machine = Account { sim, acts: 0, weights: BTreeMap::new(), ended: None };
    machine.sim.run_until(Nanos::from_millis(1));
    let mut balancer = Balancer::new(options, (info.make)(), machine.now());
    for thread in machine.sim.candidates() {
        let baseline = thread.times;
        let mask = machine.original_mask(thread.id).unwrap();
        balancer.join(&mut machine, Selection { thread, baseline }, &mask, &mut []);
    }
    (machine, balancer)
}

fn points(machine: &mut Account, balancer: &mut Balancer, count: u64) {
    for _ in 0..count {
        machine.sim.run_until(machine.now() + PERIOD);
        balancer.point(machine, PERIOD, &mut []);
    }
}

/// Once threads have their places, a balanced program is looked at and nothing is done to it, however it waits.
#[test]
fn a_balanced_program_is_only_looked_at() {
    for policy in ["hpc-auto", "hpc-uniform", "hpc-adaptive"] {
        for barrier in [Barrier::Block, Barrier::Yield, Barrier::Spin] {
            let (mut machine, mut balancer) = start(policy, [20; 4], barrier);
            points(&mut machine, &mut balancer, 50);
            machine.acts = 0;
            points(&mut machine, &mut balancer, 1_000);
            assert_eq!(machine.acts, 0, "{policy}, {barrier:?}");
            assert!(machine.weights.is_empty(), "{policy}, {barrier:?}: {:?}", machine.weights);
        }
    }
}

/// Of a thread that has ended nothing is left to be undone.
#[test]
fn what_one_was_given_ends_with_it() {
    let (mut machine, mut balancer) = start("hpc-auto", [40, 10, 40, 10], Barrier::Spin);
    points(&mut machine, &mut balancer, 40);
    assert_eq!(machine.weights.len(), 4);
    let ended = *machine.weights.keys().next().unwrap();
    machine.ended = Some(ended);
    points(&mut machine, &mut balancer, 1);
    assert!(!machine.weights.contains_key(&ended), "{:?}", machine.weights);
    assert_eq!(machine.weights.len(), 3);
}

/// Whoever sleeps leaves its CPU to the others: parts would gain nothing, and cost who wakes the others.
#[test]
fn those_that_sleep_at_a_triangular_loop_are_only_placed() {
    let (mut machine, mut balancer) = start("hpc-auto", [30, 10, 50, 70], Barrier::Block);
    points(&mut machine, &mut balancer, 500);
    assert!(machine.weights.is_empty(), "{:?}", machine.weights);
    let (mut machine, mut balancer) = start("hpc-auto", [30, 10, 50, 70], Barrier::Spin);
    points(&mut machine, &mut balancer, 500);
    assert_eq!(machine.weights.len(), 4);
}

//! A simulated machine that keeps account of what is asked of it and done to threads, and a balancer for
//! it, for tests of single points.
#![allow(dead_code, reason = "each test looks at a part of it")]

use evenly_engine::{
    Actuator, ApplyError, Balancer, BalancerOptions, GuardOptions, Located, Reader, Reading,
    Selection, Sensors, Waiting, Wanted,
};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Nanos, Pid, ThreadId};
use evenly_policies::by_name;
use evenly_secretary::Decentral;
use evenly_sim::{Scenario, Sim};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Two CPUs and what is done on them.
pub(crate) struct Watched {
    pub(crate) sim: Sim,
    /// Threads that were read, and that were looked for.
    pub(crate) read: usize,
    pub(crate) located: usize,
    /// Capacities that were asked for.
    pub(crate) capacities: Cell<usize>,
    /// Calls that change something.
    pub(crate) acts: usize,
    /// Weights that threads have.
    pub(crate) weights: BTreeMap<ThreadId, f64>,
    /// This one has ended, and this one cannot be read.
    pub(crate) ended: Option<ThreadId>,
    pub(crate) hidden: Option<ThreadId>,
}

impl Reader for Watched {
    fn now(&self) -> Nanos {
        self.sim.now()
    }

    fn own_cpu_time(&self) -> Nanos {
        self.sim.own_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        self.read += ids.len();
        self.sim.read(ids, out);
        for (id, reading) in ids.iter().zip(out) {
            if self.ended == Some(*id) {
                *reading = Reading::Gone;
            } else if self.hidden == Some(*id) {
                *reading = Reading::Unknown;
            }
        }
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        self.located += 1;
        self.sim.locate(id)
    }

    fn resolution(&self) -> Nanos {
        self.sim.resolution()
    }
}

impl Sensors for Watched {
    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        self.sim.waiting(ids, out);
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.sim.usable(within)
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.sim.original_mask(id)
    }

    fn capacity(&self, cpu: CpuId) -> u32 {
        self.capacities.set(self.capacities.get() + 1);
        self.sim.capacity(cpu)
    }
}

impl Actuator for Watched {
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
}

/// A balancer with this policy for both CPUs, and all threads with it.
pub(crate) fn start(policy: &str, scenario: Scenario) -> (Watched, Balancer) {
    let info = by_name(policy).unwrap();
    let options = BalancerOptions {
        domain: DomainId(0),
        cpus: "0-1".parse().unwrap(),
        wanted: None,
        policy: info,
        environment: Environment::default(),
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    };
    let mut machine = Watched {
        sim: Sim::new(scenario),
        read: 0,
        located: 0,
        capacities: Cell::new(0),
        acts: 0,
        weights: BTreeMap::new(),
        ended: None,
        hidden: None,
    };
    machine.sim.run_until(Nanos::from_millis(1));
    let period = Nanos::from_millis(20);
    let mut balancer = if info.is_on_each_cpu() {
        // Those of CPUs sleep: only their caretaker's points are looked at.
        Decentral::with_caretaker(options, &[], period, 1, machine.now()).0
    } else {
        Balancer::new(options, machine.now())
    };
    for thread in machine.sim.candidates() {
        let baseline = thread.times;
        let mask = machine.original_mask(thread.id).unwrap();
        balancer.join(&mut machine, Selection { thread, baseline }, &mask, &mut []);
    }
    (machine, balancer)
}

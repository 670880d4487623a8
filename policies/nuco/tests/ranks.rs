//! The whole cycle over ranks whose messages and computing are counted, or only how long they wait:
//! `nuco` places them by it, and follows them when they talk to others.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{
    Actuator, ApplyError, Balancer, BalancerOptions, Candidate, GuardOptions, Located,
    RankActivity, Reader, Reading, RunState, Selection, Sensors, Tally, Times, Waiting,
};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Knowledge, Nanos, Pid, ThreadId, Tid};
use evenly_nuco::NUCO;
use std::sync::Arc;

const PERIOD: Nanos = Nanos::from_millis(20);
const RANKS: usize = 4;
const BEGAN: Nanos = Nanos::from_millis(1_000);

/// Four CPUs in two nodes, and ranks of which each uses all of its share of a CPU.
struct Ranks {
    now: Nanos,
    at: [usize; RANKS],
    times: [Times; RANKS],
    /// To whom each talks now, and what it has sent so far.
    partner: fn(usize) -> usize,
    sent: [[u64; RANKS]; RANKS],
    /// How often they were asked.
    asked: u32,
    /// The part of the time that each waits, busily, for all at a barrier, where that is counted.
    waits: Option<[f64; RANKS]>,
    /// They count messages, and what they compute.
    counts: bool,
    /// All ranks have ended: they no longer run, and readings say so.
    gone: bool,
}

impl Ranks {
    fn id(t: usize) -> ThreadId {
        ThreadId { tid: Tid(100 + t as i32), start: 1 }
    }

    fn place_of(id: ThreadId) -> usize {
        (id.tid.0 - 100) as usize
    }

    fn run(&mut self) {
        self.now += PERIOD;
        for t in 0..if self.gone { 0 } else { RANKS } {
            let sharing = self.at.iter().filter(|at| **at == self.at[t]).count() as u64;
            let ran = Nanos(PERIOD.0 / sharing);
            self.times[t].ran += ran;
            self.times[t].waited += PERIOD - ran;
            self.times[t].slices += 3;
            self.sent[t][(self.partner)(t)] += 400;
        }
    }
}

impl Reader for Ranks {
    fn now(&self) -> Nanos {
        self.now
    }

    fn own_cpu_time(&self) -> Nanos {
        Nanos::ZERO
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        let times = |id: &ThreadId| Reading::Times(self.times[Self::place_of(*id)]);
        out.extend(ids.iter().map(|id| if self.gone { Reading::Gone } else { times(id) }));
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        let cpu = CpuId(self.at[Self::place_of(id)] as u32);
        let state = RunState::Runnable;
        Some(Located { cpu, state, minor_faults: 0, major_faults: 0 })
    }

    fn resolution(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Sensors for Ranks {
    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        within.clone()
    }

    fn original_mask(&mut self, _id: ThreadId) -> Option<CpuSet> {
        "0-3".parse().ok()
    }

    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        out.clear();
        let Some(waits) = self.waits else { return };
        let passed = self.now - BEGAN;
        out.extend(ids.iter().map(|id| {
            let phases = (passed.0 / PERIOD.0) as u32 + 1;
            let waited = passed.scale(waits[Self::place_of(*id)]);
            Some(Waiting { waited, phases, waits: phases, ..Waiting::default() })
        }));
    }

    fn ranks(&mut self, of: &[(ThreadId, Nanos)], out: &mut Vec<Option<RankActivity>>) -> bool {
        if !self.counts {
            return false;
        }
        self.asked += 1;
        out.extend(of.iter().map(|(id, cpu)| {
            let t = Self::place_of(*id);
            assert_eq!(*cpu, self.times[t].ran);
            let tally = |(with, messages): (usize, &u64)| Tally {
                with: with as u64,
                messages: *messages,
                bytes: 8 * messages,
            };
            Some(RankActivity {
                rank: t as u64,
                ranks: RANKS as u64,
                computed: cpu.scale(0.5),
                sent: self.sent[t].iter().enumerate().map(tally).collect(),
                fetched: Vec::new(),
            })
        }));
        true
    }
}

impl Actuator for Ranks {
    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        _release: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        self.at[Self::place_of(id)] = cpu.0 as usize;
        Ok(())
    }

    fn confine(&mut self, _id: ThreadId, _mask: &CpuSet) -> Result<(), ApplyError> {
        Ok(())
    }

    fn restore(&mut self, _id: ThreadId) {}
}

/// `nuco` on a machine; what it knows has windows of ten periods.
fn balancer(machine: &mut Ranks, usable: &str, nodes: [&str; 2]) -> Balancer {
    let cpus = |list: &str| -> CpuSet { list.parse().unwrap() };
    let nodes = vec![(0, cpus(nodes[0])), (1, cpus(nodes[1]))];
    let knowledge = Arc::new(Knowledge { every: 10, ..Knowledge::even(nodes, 3.0) });
    let options = BalancerOptions {
        domain: DomainId(0),
        cpus: cpus(usable),
        wanted: None,
        policy: &NUCO,
        environment: Environment { knowledge: Some(knowledge), ..Environment::default() },
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    };
    let mut balancer = Balancer::new(options, machine.now);
    for t in 0..RANKS {
        let thread = Candidate {
            id: Ranks::id(t),
            pid: Pid(100 + t as i32),
            name: format!("rank{t}"),
            first: true,
            fair: true,
            times: machine.times[t],
            state: RunState::Runnable,
            read_at: machine.now,
        };
        let baseline = thread.times;
        balancer.join(machine, Selection { thread, baseline }, &cpus(usable), &mut []);
    }
    balancer
}

fn run(balancer: &mut Balancer, machine: &mut Ranks, points: u32) {
    for _ in 0..points {
        machine.run();
        balancer.point(machine, PERIOD, &mut []);
    }
}

fn ranks(at: [usize; RANKS], waits: Option<[f64; RANKS]>) -> Ranks {
    Ranks {
        now: BEGAN,
        at,
        times: [Times { ran: Nanos(1), ..Times::default() }; RANKS],
        partner: |t| t ^ 2,
        sent: [[0; RANKS]; RANKS],
        asked: 0,
        waits,
        counts: waits.is_none(),
        gone: false,
    }
}

#[test]
fn ranks_are_placed_by_what_they_tell() {
    let mut machine = ranks([0, 1, 2, 3], None);
    let mut balancer = balancer(&mut machine, "0-3", ["0-1", "2-3"]);
    let together = |machine: &Ranks, i: usize, j: usize| machine.at[i] / 2 == machine.at[j] / 2;
    run(&mut balancer, &mut machine, 100);
    // At the first point, and at the end of each window.
    assert_eq!(machine.asked, 1 + 9);
    assert!(together(&machine, 0, 2) && together(&machine, 1, 3), "{:?}", machine.at);
    machine.partner = |t| t ^ 1;
    run(&mut balancer, &mut machine, 200);
    assert!(together(&machine, 0, 1) && together(&machine, 2, 3), "{:?}", machine.at);
}

/// All threads are as busy as the others; those that say how long they waited are as light as they are, though
/// all are equally far at each barrier.
#[test]
fn what_threads_spin_at_barriers_is_no_load() {
    let mut machine = ranks([0, 0, 1, 1], Some([0.0, 0.0, 0.9, 0.9]));
    let mut balancer = balancer(&mut machine, "0-1", ["0-1", "2-3"]);
    run(&mut balancer, &mut machine, 100);
    assert_ne!(machine.at[0], machine.at[1], "{:?}", machine.at);
    let mut machine = ranks([0, 0, 1, 1], Some([0.0; RANKS]));
    let mut balancer = self::balancer(&mut machine, "0-1", ["0-1", "2-3"]);
    run(&mut balancer, &mut machine, 100);
    assert_eq!(machine.at, [0, 0, 1, 1]);
}

/// How long a thread waited says what it spun only by an estimate, which yielding makes wrong: these wait for
/// nine tenths of the time, and of their CPU time half is spinning, as they have counted. The report has that,
/// also of those that end within a window.
#[test]
fn what_ranks_count_is_what_is_reported() {
    let mut machine = Ranks { counts: true, ..ranks([0, 1, 2, 3], Some([0.9; RANKS])) };
    let mut balancer = balancer(&mut machine, "0-3", ["0-1", "2-3"]);
    for (points, gone) in [(2, false), (20, false), (7, true)] {
        run(&mut balancer, &mut machine, points);
        if gone {
            machine.gone = true;
            run(&mut balancer, &mut machine, 1);
        }
        let (_, threads, _) = balancer.summary(machine.now);
        assert_eq!(threads.len(), RANKS);
        // By the estimate alone nine tenths would be; at most a window of it is not agreed upon.
        let window = 10.0 * PERIOD.as_secs_f64();
        for t in threads {
            let (spun, all) = (t.spun_s.unwrap(), t.ran_s);
            let most = 0.5 * all + if gone { 0.0 } else { 0.4 * window };
            assert!((0.5 * all - 1e-6..=most + 1e-6).contains(&spun), "{spun} of {all}");
        }
    }
}

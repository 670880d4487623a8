//! Promise P2, call by call: while pinned threads are moved, no call takes the last thread off a CPU.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_engine::{
    Actuator, ApplyError, Balancer, BalancerOptions, Candidate, GuardOptions, Located, Reader,
    Reading, RunState, Selection, Sensors, Times,
};
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Nanos, Pid, ThreadId, Tid};
use evenly_policies::by_name;
use evenly_secretary::{CARE, Decentral, Step};
use proptest::prelude::*;

/// The policy with a balancer for each CPU.
const DECENTRAL: &str = "secretary";
const PERIOD: Nanos = Nanos::from_millis(20);

fn cpus(list: impl IntoIterator<Item = usize>) -> CpuSet {
    list.into_iter().map(|c| CpuId(c as u32)).collect()
}

struct Thread {
    original: CpuSet,
    mask: CpuSet,
    cpu: usize,
    times: Times,
    /// The thread has ended: it no longer runs, and calls for it fail.
    ended: bool,
    /// After so many calls for it no more are obeyed.
    obeys: usize,
}

/// CPUs that are shared fairly between the threads on them and strangers, and the union of all masks
/// after every call.
struct Recorder {
    now: Nanos,
    strangers: Vec<u64>,
    threads: Vec<Thread>,
    /// Calls that left CPUs outside the union of all masks, in words.
    broken: Vec<String>,
    /// Among pinned threads one was let off its CPU.
    let_off: bool,
}

impl Recorder {
    fn new(strangers: &[u64], masks: &[CpuSet]) -> Self {
        let thread = |mask: &CpuSet| Thread {
            original: mask.clone(),
            mask: mask.clone(),
            cpu: mask.first().unwrap().0 as usize,
            times: Times { ran: Nanos(1), ..Times::default() },
            ended: false,
            obeys: usize::MAX,
        };
        Self {
            now: Nanos::from_millis(1_000),
            strangers: strangers.to_vec(),
            threads: masks.iter().map(thread).collect(),
            broken: Vec::new(),
            let_off: false,
        }
    }

    fn id(t: usize) -> ThreadId {
        ThreadId { tid: Tid(100 + t as i32), start: 1 }
    }

    fn find(&mut self, id: ThreadId) -> Option<&mut Thread> {
        self.threads.get_mut((id.tid.0 - 100) as usize).filter(|t| !t.ended)
    }

    fn living(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(|t| !t.ended)
    }

    fn union(&self) -> CpuSet {
        self.living().fold(CpuSet::new(), |all, t| all.or(&t.mask))
    }

    fn on(&self, cpu: usize) -> u64 {
        self.living().filter(|t| t.cpu == cpu).count() as u64
    }

    fn run(&mut self, time: Nanos) {
        self.now += time;
        let shares: Vec<u64> =
            (0..self.strangers.len()).map(|c| self.on(c) + self.strangers[c]).collect();
        for t in self.threads.iter_mut().filter(|t| !t.ended) {
            let ran = Nanos(time.0 / shares[t.cpu]);
            t.times.ran += ran;
            t.times.waited += time - ran;
            t.times.slices += 3;
        }
    }

    fn set(&mut self, what: &str, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        let before = self.union();
        let pinned = self.living().all(|t| t.mask.len() == 1);
        let t = self.find(id).ok_or(ApplyError::Gone)?;
        assert!(mask.is_subset(&t.original) && !mask.is_empty(), "P1: {mask}");
        if t.obeys == 0 {
            return Err(ApplyError::Refused(String::from("no more")));
        }
        t.obeys -= 1;
        let was_pinned = pinned && t.mask.len() == 1;
        t.mask = mask.clone();
        if !mask.contains(CpuId(t.cpu as u32)) {
            t.cpu = mask.first().unwrap().0 as usize;
        }
        let after = self.union();
        self.let_off |= was_pinned && what == "confine";
        if !before.is_subset(&after) {
            let lost = before.minus(&after);
            self.broken.push(format!("{what} of {id} to {mask} leaves {lost} unused"));
        }
        Ok(())
    }

    fn selections(&self, from: usize) -> Vec<(Selection, CpuSet)> {
        let all = self.threads.iter().enumerate().skip(from);
        all.map(|(t, thread)| {
            let candidate = Candidate {
                id: Self::id(t),
                pid: Pid(100),
                name: format!("t{t}"),
                first: t == 0,
                fair: true,
                times: thread.times,
                state: RunState::Runnable,
                read_at: self.now,
            };
            let baseline = thread.times;
            let selection = Selection { thread: candidate, baseline };
            (selection, thread.original.clone())
        })
        .collect()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.broken.is_empty(), "{:#?}", self.broken);
        Ok(())
    }
}

impl Reader for Recorder {
    fn now(&self) -> Nanos {
        self.now
    }

    fn own_cpu_time(&self) -> Nanos {
        Nanos::ZERO
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        for &id in ids {
            let times = self.find(id).map(|t| t.times);
            out.push(times.map_or(Reading::Gone, Reading::Times));
        }
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        let cpu = CpuId(self.find(id)?.cpu as u32);
        Some(Located { cpu, state: RunState::Runnable, minor_faults: 0, major_faults: 0 })
    }

    fn resolution(&self) -> Nanos {
        Nanos::from_micros(1)
    }
}

impl Sensors for Recorder {
    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        within.and(&cpus(0..self.strangers.len()))
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.find(id).map(|t| t.original.clone())
    }
}

impl Actuator for Recorder {
    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        release: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        // One call, for what is looked at here.
        let mask = release.cloned().unwrap_or_else(|| CpuSet::single(cpu));
        self.set("place", id, &mask)?;
        if let Some(t) = self.find(id) {
            t.cpu = cpu.0 as usize;
        }
        Ok(())
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.set("confine", id, mask)
    }

    fn restore(&mut self, id: ThreadId) {
        if let Some(mask) = self.original_mask(id) {
            // One that obeys no more keeps what it has.
            let _ = self.set("restore", id, &mask);
        }
    }
}

fn options(cpus: &CpuSet, policy: &str) -> BalancerOptions {
    BalancerOptions {
        domain: DomainId(0),
        cpus: cpus.clone(),
        wanted: None,
        policy: by_name(policy).unwrap(),
        environment: Environment::default(),
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    }
}

/// What happens to the threads of a run.
#[derive(Debug, Clone, Default)]
struct Story {
    strangers: Vec<u64>,
    masks: Vec<CpuSet>,
    /// Threads that join later.
    late: usize,
    /// Threads that end, each before this point.
    ends: Vec<(usize, u32)>,
    /// Threads that obey no more after so many calls.
    obey: Vec<(usize, usize)>,
    points: u32,
}

impl Story {
    fn recorder(&self) -> Recorder {
        let mut recorder = Recorder::new(&self.strangers, &self.masks);
        for &(t, calls) in &self.obey {
            recorder.threads[t % self.masks.len()].obeys = calls;
        }
        recorder
    }

    fn whole(&self) -> CpuSet {
        cpus(0..self.strangers.len())
    }

    /// Balanced by a policy that has a cycle. Returns how many threads were moved.
    fn cycle(&self, policy: &str) -> (Recorder, u64) {
        let mut machine = self.recorder();
        let mut balancer = Balancer::new(options(&self.whole(), policy), machine.now);
        let early = self.masks.len() - self.late.min(self.masks.len() - 1);
        for (i, (selection, original)) in machine.selections(0).into_iter().enumerate() {
            if i < early {
                balancer.join(&mut machine, selection, &original, &mut []);
            }
        }
        for point in 0..self.points {
            if point == self.points / 2 {
                for (selection, original) in machine.selections(early) {
                    balancer.join(&mut machine, selection, &original, &mut []);
                }
            }
            for &(t, at) in &self.ends {
                if at == point {
                    machine.threads[t % self.masks.len()].ended = true;
                }
            }
            balancer.point(&mut machine, PERIOD, &mut []);
            machine.run(PERIOD);
        }
        balancer.finish(&mut machine);
        let migrations = balancer.summary(machine.now).0.migrations;
        (machine, migrations)
    }

    /// Balanced by one balancer for each CPU. No thread ends or joins here.
    fn decentral(&self) -> (Recorder, u64) {
        let mut machine = self.recorder();
        let options = options(&self.whole(), DECENTRAL);
        let (mut caretaker, Decentral { board, mut balancers }) =
            Decentral::with_caretaker(options, &[], PERIOD, 7, machine.now);
        for (selection, original) in machine.selections(0) {
            caretaker.join(&mut machine, selection, &original, &mut []);
        }
        for round in 0..self.points {
            if round % CARE as u32 == 0 || board.called() {
                caretaker.point(&mut machine, PERIOD, &mut []);
            }
            machine.run(PERIOD);
            for balancer in &mut balancers {
                loop {
                    match balancer.step(&board, &mut machine) {
                        Step::Again => {}
                        Step::Sleep => break,
                        Step::Swap(swap) => {
                            board.swap(&swap, &mut machine);
                            break;
                        }
                    }
                }
            }
        }
        caretaker.finish(&mut machine);
        let migrations = caretaker.summary(machine.now).0.migrations;
        (machine, migrations)
    }
}

/// Two threads on two CPUs, of which one has a stranger: they swap all the time, and each has its CPU
/// to itself.
#[test]
fn two_that_are_alone_swap_without_leaving_a_cpu() {
    let story = Story {
        strangers: vec![1, 0],
        masks: vec![cpus([0, 1]); 2],
        points: 200,
        ..Story::default()
    };
    for (machine, migrations) in [story.cycle("juggle"), story.decentral()] {
        assert!(machine.broken.is_empty(), "{:#?}", machine.broken);
        assert!(migrations > 20 && machine.let_off, "{migrations}");
        let ran: Vec<f64> = machine.threads.iter().map(|t| t.times.ran.as_secs_f64()).collect();
        assert!((ran[0] / ran[1] - 1.0).abs() < 0.1, "{ran:?}");
    }
}

/// Where a thread stays on the CPU none is unpinned: that would be a call for nothing.
#[test]
fn three_on_two_need_no_more_calls_than_before() {
    let story = Story {
        strangers: vec![0, 0],
        masks: vec![cpus([0, 1]); 3],
        points: 100,
        ..Story::default()
    };
    for (machine, migrations) in [story.cycle("juggle"), story.decentral()] {
        assert!(machine.broken.is_empty(), "{:#?}", machine.broken);
        assert!(migrations > 20 && !machine.let_off, "{migrations}");
    }
}

/// Strangers on up to five CPUs, and up to eight threads that may use all of them.
fn stories() -> impl Strategy<Value = Story> {
    (prop::collection::vec(0u64..3, 1..=5), 1usize..=8).prop_map(|(strangers, n)| {
        let masks = vec![cpus(0..strangers.len()); n];
        Story { strangers, masks, points: 60, ..Story::default() }
    })
}

/// The same with threads that may use only some of the CPUs.
fn stories_with_masks() -> impl Strategy<Value = Story> {
    (2usize..=5).prop_flat_map(|m| {
        let mask = prop::collection::btree_set(0..m, 1..=m).prop_map(cpus);
        let strangers = prop::collection::vec(0u64..3, m);
        (strangers, prop::collection::vec(mask, 1..=8)).prop_map(|(strangers, masks)| Story {
            strangers,
            masks,
            points: 60,
            ..Story::default()
        })
    })
}

proptest! {
    #[test]
    fn juggle_leaves_no_cpu_unused(
        story in stories(),
        late in 0usize..3,
        ends in prop::collection::vec((0usize..8, 1u32..60), 0..3),
    ) {
        Story { late, ends, ..story }.cycle("juggle").0.check()?;
    }

    #[test]
    fn juggle_leaves_none_where_masks_differ(story in stories_with_masks()) {
        story.cycle("juggle").0.check()?;
    }

    #[test]
    fn secretary_leaves_no_cpu_unused(story in stories()) {
        story.decentral().0.check()?;
    }

    #[test]
    fn secretary_leaves_none_where_masks_differ(story in stories_with_masks()) {
        story.decentral().0.check()?;
    }

    /// Threads that cannot be moved any more, from any moment on: while they are let off their CPUs,
    /// or when the one that they swap with has been moved.
    #[test]
    fn neither_does_where_threads_refuse(
        story in stories(),
        obey in prop::collection::vec((0usize..8, 0usize..12), 1..3),
    ) {
        let story = Story { obey, ..story };
        story.cycle("juggle").0.check()?;
        story.decentral().0.check()?;
    }
}

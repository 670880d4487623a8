use super::*;
use evenly_model::Environment;
use evenly_model::{CacheLevel, CpuSet, LinkView, Tid};

const PERIOD: Nanos = Nanos::from_millis(20);

/// Threads of processes of their own on four CPUs in two nodes: (CPU, part of its time that each
/// ran).
#[derive(Clone)]
struct FourCpus {
    at: Vec<CpuIndex>,
    shares: Vec<f64>,
    bytes: f64,
    /// Where the memory of processes is, if that can be read.
    on: BTreeMap<i32, Vec<f64>>,
    masks: Vec<Vec<bool>>,
    point: u64,
    /// What the probe counts: the part of the time for which each computes, and messages a second.
    computes: Option<Vec<f64>>,
    talk: Vec<(ThreadIndex, ThreadIndex, f64)>,
    sent: BTreeMap<(ThreadIndex, ThreadIndex), f64>,
}

impl FourCpus {
    fn new(threads: &[(CpuIndex, f64)]) -> Self {
        Self {
            at: threads.iter().map(|t| t.0).collect(),
            shares: threads.iter().map(|t| t.1).collect(),
            bytes: 0.0,
            on: BTreeMap::new(),
            masks: vec![vec![true; 4]],
            point: 0,
            computes: None,
            talk: Vec::new(),
            sent: BTreeMap::new(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let threads = self.at.iter().zip(&self.shares).enumerate();
        let thread = |(i, (&cpu, &share)): (usize, (&CpuIndex, &f64))| ThreadView {
            id: ThreadId { tid: Tid(i as i32), start: 0 },
            cpu,
            progress: (share * (PERIOD.0 * self.point) as f64) as i64,
            ran: PERIOD.scale(share),
            waited: Nanos::ZERO,
            blocked: PERIOD.scale(1.0 - share),
            spinning: Nanos::ZERO,
            turns: None,
            movable: true,
            mask: i.min(self.masks.len() - 1),
        };
        let threads: Vec<ThreadView> = threads.map(thread).collect();
        let cpu = |c: u32| CpuView {
            id: CpuId(c),
            capacity: FULL_CAPACITY,
            threads: threads.iter().filter(|t| t.cpu == c as usize).count() as u32,
            speed: None,
        };
        let task = |i: usize| TaskView {
            process: Pid(i as i32),
            number: Some(i as u64),
            process_bytes: self.bytes,
            computed: None,
        };
        Snapshot {
            point: self.point,
            now: Nanos(PERIOD.0 * self.point),
            elapsed: PERIOD,
            cpus: (0..4).map(cpu).collect(),
            masks: self.masks.clone(),
            tasks: (0..threads.len()).map(task).collect(),
            threads,
            ..Snapshot::default()
        }
    }

    /// Adds what the probe counts, if it does.
    fn add_counts(&self, s: &mut Snapshot) {
        let Some(computes) = &self.computes else { return };
        for (task, share) in s.tasks.iter_mut().zip(computes) {
            task.computed = Some(s.now.scale(*share));
        }
        let link = |(&(from, to), &messages): (&(usize, usize), &f64)| LinkView {
            from,
            to,
            messages,
            bytes: 8.0 * messages,
        };
        s.links = Some(self.sent.iter().map(link).collect());
    }

    /// So many points; the plans that were not empty.
    fn run(&mut self, nuco: &mut Nuco, points: u64) -> Vec<Plan> {
        let mut plans = Vec::new();
        for _ in 0..points {
            let mut plan = Plan::default();
            let mut snapshot = self.snapshot();
            snapshot.environment = nuco.environment.clone();
            if nuco.asked {
                let view = |(&p, on): (&i32, &Vec<f64>)| MemoryView {
                    process: Pid(p),
                    on: on.clone(),
                    elsewhere: 0.0,
                };
                snapshot.memory = self.on.iter().map(view).collect();
                self.add_counts(&mut snapshot);
            }
            for &(from, to, rate) in &self.talk {
                *self.sent.entry((from, to)).or_default() += rate * PERIOD.as_secs_f64();
            }
            snapshot.stayed = std::mem::take(&mut nuco.stayed);
            nuco.policy.decide(&snapshot, &mut plan);
            nuco.asked = plan.asks;
            plan.moves.iter().for_each(|m| self.at[m.thread] = m.to);
            self.point += 1;
            if !plan.moves.is_empty() || !plan.memory.is_empty() {
                plans.push(plan);
            }
        }
        plans
    }
}

/// The policy, with what it knows, and whether it has asked for counts and memory.
struct Nuco {
    policy: Remap,
    environment: Arc<Environment>,
    asked: bool,
    stayed: Vec<MemoryMove>,
}

impl Nuco {
    fn that_knows(knowledge: Knowledge) -> Self {
        let knowledge = Some(Arc::new(knowledge));
        let environment = Arc::new(Environment { knowledge, ..Environment::default() });
        Self { policy: Remap::default(), environment, asked: true, stayed: Vec::new() }
    }
}

fn policy(every: u32, factor: f64, profile: Option<TaskGraph>) -> Nuco {
    let cpus = |list: &str| -> CpuSet { list.parse().unwrap() };
    let nodes = vec![(0, cpus("0-1")), (1, cpus("2-3"))];
    Nuco::that_knows(Knowledge { every, profile, ..Knowledge::even(nodes, factor) })
}

fn heaviest(m: &FourCpus) -> f64 {
    let load =
        |c| -> f64 { m.at.iter().zip(&m.shares).filter(|(at, _)| **at == c).map(|(_, s)| s).sum() };
    (0..4).map(load).fold(0.0, f64::max)
}

#[test]
fn loads_are_evened_out_at_the_end_of_a_window_and_then_left() {
    // Two heavy ones on CPU 0, light ones elsewhere.
    let mut m = FourCpus::new(&[
        (0, 0.45),
        (0, 0.45),
        (1, 0.1),
        (1, 0.1),
        (2, 0.1),
        (2, 0.1),
        (3, 0.1),
        (3, 0.1),
    ]);
    let mut nuco = policy(10, 1.5, None);
    assert!(m.run(&mut nuco, 20).is_empty(), "within the first two windows");
    let plans = m.run(&mut nuco, 1);
    assert_eq!(plans.len(), 1);
    assert!(plans[0].moves.iter().all(|m| m.reason == Reason::Mapped));
    assert!(heaviest(&m) <= 0.5, "{:?}", m.at);
    assert!(m.run(&mut nuco, 100).is_empty(), "nothing more to gain");
}

/// Of two windows in which different threads were the busy ones, neither decides.
#[test]
fn what_changes_from_window_to_window_is_not_followed() {
    let mut m = FourCpus::new(&[(0, 0.4), (0, 0.4), (1, 0.1), (2, 0.1), (3, 0.1), (3, 0.1)]);
    let mut nuco = policy(10, 1.5, None);
    // Progress counts from the beginning, so each window's is added to it.
    let mut progress = [0i64; 6];
    let mut moved = 0;
    for point in 0..400u64 {
        let mut s = m.snapshot();
        let busy = if point.saturating_sub(1) / 10 % 2 == 0 { [0, 1] } else { [4, 5] };
        for (i, t) in s.threads.iter_mut().enumerate() {
            progress[i] += if busy.contains(&i) { 8_000_000 } else { 1_000_000 };
            t.progress = progress[i];
        }
        s.environment = nuco.environment.clone();
        let mut plan = Plan::default();
        nuco.policy.decide(&s, &mut plan);
        plan.moves.iter().for_each(|x| m.at[x.thread] = x.to);
        moved += plan.moves.len();
        m.point += 1;
    }
    // At most once, when it is best for both.
    assert!(moved <= 4, "{moved}: {:?}", m.at);
}

/// A light one beside either of two heavy ones: the other is alone, and waits for its partner among those that
/// share a CPU, so that its CPU looks free. The light one goes to and fro ever more rarely.
#[test]
fn a_plan_that_comes_of_the_one_before_is_put_off() {
    let mut m = FourCpus::new(&[(0, 0.5), (1, 0.3), (0, 0.15), (2, 0.5), (3, 0.5)]);
    let mut nuco = policy(10, 1.5, None);
    let mut progress = [0i64; 5];
    let mut flights: Vec<u64> = Vec::new();
    for point in 0..4_000 {
        let mut s = m.snapshot();
        let with = m.at[2];
        let rates = if with == 0 { [0.5, 0.3] } else { [0.3, 0.5] };
        for (i, t) in s.threads.iter_mut().enumerate() {
            let rate = rates.get(i).copied().unwrap_or(m.shares[i]);
            progress[i] += PERIOD.scale(rate).0 as i64;
            t.progress = progress[i];
        }
        s.environment = nuco.environment.clone();
        let mut plan = Plan::default();
        nuco.policy.decide(&s, &mut plan);
        plan.moves.iter().for_each(|x| m.at[x.thread] = x.to);
        if !plan.moves.is_empty() {
            assert_eq!(m.at, [0, 1, 1 - with, 2, 3]);
            flights.push(point / 10);
        }
        m.point += 1;
    }
    let between: Vec<u64> = flights.windows(2).map(|f| f[1] - f[0]).collect();
    assert_eq!(between[..6], [2, 2, 4, 8, 16, 32], "{flights:?}");
    assert!(between[6..].iter().all(|n| *n == LONGEST_REST), "{flights:?}");
}

#[test]
fn nothing_is_moved_for_less_than_it_costs() {
    // 2 ms of work in a window of 200 ms, which no move of 1 ms can pay for.
    let mut m = FourCpus::new(&[(0, 0.006), (0, 0.004), (1, 0.0), (2, 0.0), (3, 0.0)]);
    assert!(m.run(&mut policy(10, 1.5, None), 12).is_empty());
    // A program that goes on for ever.
    let plans = m.run(&mut policy(10, 1.5, None), 5_000);
    assert!(!plans.is_empty() && heaviest(&m) < 0.0061, "{:?}", m.at);
}

#[test]
fn threads_with_masks_stay_and_no_cpu_is_left_empty() {
    let mut m = FourCpus::new(&[(0, 0.4), (0, 0.4), (1, 0.0), (2, 0.0), (3, 0.0)]);
    m.masks = vec![vec![true, false, false, false]; 2];
    m.masks.push(vec![true; 4]);
    let mut nuco = policy(5, 1.5, None);
    m.run(&mut nuco, 50);
    assert_eq!(m.at[..2], [0, 0]);
    m.masks = vec![vec![true; 4]];
    m.run(&mut nuco, 50);
    let used: std::collections::BTreeSet<usize> = m.at.iter().copied().collect();
    assert_eq!(used.len(), 4, "{:?}", m.at);
}

#[test]
fn a_thread_whose_cpu_has_gone_gets_another_at_once() {
    let mut m = FourCpus::new(&[(0, 0.4), (1, 0.4), (2, 0.4), (3, 0.4), (3, 0.1)]);
    let mut nuco = policy(50, 1.5, None);
    m.run(&mut nuco, 3);
    m.at[4] = usize::MAX;
    let plans = m.run(&mut nuco, 1);
    assert_eq!(plans[0].moves.len(), 1);
    assert_eq!((plans[0].moves[0].thread, plans[0].moves[0].reason), (4, Reason::Evicted));
    // And a CPU without threads gets one.
    m.at = vec![0, 0, 2, 3, 3];
    let plans = m.run(&mut nuco, 1);
    assert_eq!((plans[0].moves.len(), plans[0].moves[0].to), (1, 1));
}

/// Of ranks that talk, as a profile says, partners come to one node.
#[test]
fn partners_are_brought_to_one_node() {
    let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
    let edge = |from, to| Edge { from, to, messages: 50_000.0, bytes: 0.0 };
    let edges = [edge(0, 2), edge(2, 0), edge(1, 3), edge(3, 1)];
    let profile = TaskGraph::new((0..4).map(task).collect(), &edges).unwrap();
    // 0 and 1 on node 0; 2 and 3, to whom they talk, on node 1.
    let mut m = FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
    m.run(&mut policy(10, 3.0, Some(profile)), 200);
    let node = |t: usize| m.at[t] / 2;
    assert!(node(0) == node(2) && node(1) == node(3), "{:?}", m.at);
    // Without it nothing is known.
    let mut m = FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
    assert!(m.run(&mut policy(10, 3.0, None), 200).is_empty());
}

/// On one node partners come to CPUs that share a cache; where nothing is known of caches all are alike.
#[test]
fn partners_are_brought_to_one_cache() {
    let cpus = |list: &str| -> CpuSet { list.parse().unwrap() };
    let both = |i, j| [(i, j, 20_000.0), (j, i, 20_000.0)];
    let start = FourCpus {
        computes: Some(vec![0.5; 4]),
        talk: [both(0, 2), both(1, 3)].concat(),
        ..FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
    };
    let level = CacheLevel { name: String::from("L2"), factor: 0.15 };
    let caches = vec![(level, vec![cpus("0-1"), cpus("2-3")])];
    for caches in [caches, Vec::new()] {
        let known = !caches.is_empty();
        let node = vec![(0, cpus("0-3"))];
        let knowledge = Knowledge { every: 10, caches, ..Knowledge::even(node, 1.0) };
        let mut nuco = Nuco::that_knows(knowledge);
        let mut m = start.clone();
        let moved = !m.run(&mut nuco, 200).is_empty();
        let together = |i: usize, j: usize| m.at[i] / 2 == m.at[j] / 2;
        assert_eq!(moved, known, "{:?}", m.at);
        assert!(!known || (together(0, 2) && together(1, 3)), "{:?}", m.at);
    }
}

/// Ranks that say to whom they talk, and then talk to others: partners come to one node, both times. What a
/// profile says of them counts more than what they say.
#[test]
fn partners_are_found_while_the_program_runs() {
    let pairs = |a: [usize; 2], b: [usize; 2]| {
        let both = |[i, j]: [usize; 2]| [(i, j, 20_000.0), (j, i, 20_000.0)];
        [both(a), both(b)].concat()
    };
    let start = FourCpus {
        computes: Some(vec![0.5; 4]),
        talk: pairs([0, 2], [1, 3]),
        ..FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
    };
    let (mut m, mut nuco) = (start.clone(), policy(10, 3.0, None));
    let together = |m: &FourCpus, i: usize, j: usize| m.at[i] / 2 == m.at[j] / 2;
    assert!(m.run(&mut nuco, 20).is_empty(), "within the first two windows");
    m.run(&mut nuco, 100);
    assert!(together(&m, 0, 2) && together(&m, 1, 3), "{:?}", m.at);
    assert!(m.run(&mut nuco, 100).is_empty(), "nothing more to gain");
    m.talk = pairs([0, 1], [2, 3]);
    m.run(&mut nuco, 100);
    assert!(together(&m, 0, 1) && together(&m, 2, 3), "{:?}", m.at);
    let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
    let edge = |from, to| Edge { from, to, messages: 50_000.0, bytes: 0.0 };
    let edges = [edge(0, 3), edge(3, 0), edge(1, 2), edge(2, 1)];
    let profile = TaskGraph::new((0..4).map(task).collect(), &edges).unwrap();
    let mut m = start;
    m.run(&mut policy(10, 3.0, Some(profile)), 200);
    assert!(together(&m, 0, 3) && together(&m, 1, 2), "{:?}", m.at);
}

/// A pattern that lasts no longer than a window moves no thread.
#[test]
fn talk_that_changes_from_window_to_window_is_not_followed() {
    let mut m = FourCpus {
        computes: Some(vec![0.5; 4]),
        ..FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
    };
    let mut nuco = policy(10, 3.0, None);
    let mut moves = 0;
    for window in 0..40 {
        let partner = |i: usize| i ^ if window % 2 == 0 { 1 } else { 2 };
        m.talk = (0..4).map(|i| (i, partner(i), 20_000.0)).collect();
        moves += m.run(&mut nuco, 10).iter().map(|p| p.moves.len()).sum::<usize>();
    }
    assert_eq!(moves, 0, "{:?}", m.at);
}

/// All are equally busy, as those that wait spin; which ones compute is what they report.
#[test]
fn those_that_spin_while_they_wait_are_light() {
    let threads = [(0, 0.5), (0, 0.5), (1, 0.5), (1, 0.5), (2, 0.5), (2, 0.5), (3, 0.5), (3, 0.5)];
    let computes = vec![0.45, 0.45, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1];
    let mut m = FourCpus { computes: Some(computes.clone()), ..FourCpus::new(&threads) };
    m.run(&mut policy(10, 1.5, None), 100);
    m.shares = computes;
    assert!(heaviest(&m) <= 0.5, "{:?}", m.at);
    let mut m = FourCpus::new(&threads);
    assert!(m.run(&mut policy(10, 1.5, None), 100).is_empty(), "their counts are not known");
}

/// A rank that was not asked before has counted from its beginning: that is nothing of the window.
#[test]
fn what_was_sent_long_ago_is_not_of_the_window() {
    let m = FourCpus {
        computes: Some(vec![0.5; 4]),
        sent: BTreeMap::from([((0, 2), 1e9), ((1, 3), 1e3)]),
        ..FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
    };
    let mut nuco = policy(10, 3.0, None);
    let counted = |point: u64, silent: Option<usize>| {
        let mut s = FourCpus { point, ..m.clone() }.snapshot();
        m.add_counts(&mut s);
        if let Some(i) = silent {
            s.tasks[i].computed = None;
            s.links.as_mut().unwrap().retain(|l| l.from != i && l.to != i);
        }
        s
    };
    nuco.policy.open_window(&counted(1, Some(0)));
    assert_eq!(nuco.policy.links(&counted(11, None)), Some(Links::new()));
    nuco.policy.open_window(&counted(1, None));
    assert_eq!(nuco.policy.links(&counted(11, None)), Some(Links::new()));
    let mut s = counted(11, None);
    s.links.as_mut().unwrap()[1].messages += 20.0;
    let found = nuco.policy.links(&s).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&(1, 3)]);
    assert!((found[&(1, 3)].messages - 100.0).abs() < 1e-9);
    s.links = None;
    assert_eq!(nuco.policy.links(&s), None);
}

/// Where bandwidths are known, too: a thread is not copied to go to another CPU of its node, however
/// much memory it has, and bytes count by the bandwidths of the machine.
#[test]
fn known_bandwidths_do_not_keep_threads_from_their_own_node() {
    let mut m = FourCpus::new(&[(0, 0.45), (0, 0.45), (1, 0.05), (2, 0.4), (3, 0.4)]);
    m.bytes = 1e12;
    let known = policy(10, 1.5, None).environment.knowledge.clone().unwrap();
    let bandwidths = Some(vec![2e10, 1e10, 1e10, 2e10]);
    let known = Knowledge { bandwidths, ..(*known).clone() };
    let mut nuco = Nuco::that_knows(known.clone());
    let request = {
        let s = m.snapshot();
        nuco.policy.see(&s);
        nuco.policy.window = Nanos::ZERO;
        let s = Snapshot { now: Nanos::from_millis(1_000), ..s };
        nuco.policy.case(&s, &known, &Demand { rates: m.shares.clone(), links: None }).unwrap()
    };
    // Two cores at 20 GB/s.
    assert_eq!(request.options.byte_s(&request.cluster), 1e-10);
    assert_eq!(request.cluster.byte_cost(0, 2), 2.0);
    let plans = m.run(&mut nuco, 60);
    assert!(!plans.is_empty() && heaviest(&m) <= 0.5, "{:?}", m.at);
    assert!(m.at[..3].iter().all(|c| *c < 2) && m.at[3..].iter().all(|c| *c >= 2));
}

#[test]
fn memory_follows_where_that_pays() {
    let start = [(0, 0.45), (0, 0.45), (1, 0.4), (2, 0.1), (2, 0.05), (3, 0.1)];
    let moved = |bytes: f64, factor: f64| {
        let mut m = FourCpus::new(&start);
        m.bytes = bytes;
        let plans = m.run(&mut policy(10, factor, None), 2_000);
        let memory: Vec<MemoryMove> = plans.iter().flat_map(|p| p.memory.clone()).collect();
        for (t, at) in m.at.iter().enumerate() {
            let last = memory.iter().rfind(|x| x.process.0 == t as i32);
            assert!(last.is_none_or(|x| x.to == at / 2), "{t} on {at}: {memory:?}");
        }
        assert!(heaviest(&m) < 0.6, "{:?}", m.at);
        memory.len()
    };
    assert!(moved(1e6, 2.0) > 0);
    // Nothing to move; nothing to gain; not in any time.
    assert_eq!((moved(0.0, 2.0), moved(1e6, 1.0), moved(1e15, 2.0)), (0, 0, 0));
}

/// The kernel has moved threads before they are observed: memory has to be moved, threads have not.
#[test]
fn memory_that_was_left_behind_follows() {
    let mut m = FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
    m.bytes = 1e7;
    // Of 0 all is where it computes, of 1 none, of 2 half, of 3 nearly all.
    m.on = BTreeMap::from([
        (0, vec![1e7, 0.0]),
        (1, vec![0.0, 1e7]),
        (2, vec![5e6, 5e6]),
        (3, vec![1e5, 9.9e6]),
    ]);
    let moves = |m: &mut FourCpus, nuco: &mut Nuco| -> Vec<MemoryMove> {
        let plans = m.run(nuco, 60);
        assert!(plans.iter().all(|p| p.moves.is_empty()), "{plans:?}");
        plans.into_iter().flat_map(|p| p.memory).collect()
    };
    let followed = |process, from| MemoryMove { process: Pid(process), from, to: 1 - from };
    let mut nuco = policy(10, 2.0, None);
    // What was read was true at first, and is read again and again: as if nothing had been moved.
    let first = moves(&mut m.clone(), &mut nuco);
    assert_eq!(first[..2], [followed(1, 1), followed(2, 0)]);
    m.on = BTreeMap::from([(1, vec![1e7, 0.0]), (2, vec![0.0, 1e7])]);
    assert_eq!(moves(&mut m, &mut nuco), []);
    // Where reading from afar costs nothing it stays; and where nothing is read it is not known.
    m.on = BTreeMap::from([(1, vec![0.0, 1e7])]);
    assert_eq!(moves(&mut m.clone(), &mut policy(10, 1.0, None)), []);
    m.on = BTreeMap::new();
    assert_eq!(moves(&mut m, &mut policy(10, 2.0, None)), []);
}

/// Of a process with 1 MB beside the one node and 50 GB elsewhere, only the part that is far counts.
#[test]
fn a_part_of_memory_counts_for_a_part_of_the_load() {
    let run = |bytes: f64, elsewhere: f64| {
        let m = FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
        let mut nuco = policy(10, 2.0, None);
        let mut plans = Vec::new();
        for point in 0..=40 {
            let mut s = FourCpus { point, ..m.clone() }.snapshot();
            s.memory = vec![MemoryView { process: Pid(0), on: vec![0.0, bytes], elsewhere }];
            s.environment = nuco.environment.clone();
            let mut plan = Plan::default();
            nuco.policy.decide(&s, &mut plan);
            plans.extend(plan.memory);
        }
        plans.len()
    };
    // 0.5 of 0.8 s, a tenth of it waiting: 40 ms, in which 80 MB are copied.
    assert!(run(7e7, 0.0) > 0);
    assert_eq!(run(1e9, 0.0), 0);
    // Half the gain, for half the bytes.
    assert!(run(3.5e7, 3.5e7) > 0);
    // A remnant.
    assert_eq!(run(3e6, 6.7e7), 0);
}

#[test]
fn memory_that_stays_is_tried_ever_more_rarely() {
    let mut m = FourCpus::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
    m.on = BTreeMap::from([(0, vec![0.0, 1e6])]);
    let mut nuco = policy(10, 2.0, None);
    // Windows in which it was tried: between two of them are those in which it was left.
    let mut tried = Vec::new();
    for window in 0..200 {
        for planned in m.run(&mut nuco, 10).into_iter().flat_map(|p| p.memory) {
            nuco.stayed.push(planned);
            tried.push(window);
        }
    }
    let apart: Vec<i32> = tried.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(apart.starts_with(&[2, 3, 5, 9, 17, 33, 65]), "{tried:?}");
    assert!(apart.iter().skip(7).all(|a| *a == 65), "{tried:?}");
}

#[test]
fn memory_that_stayed_is_tried_again() {
    let mut m = FourCpus::new(&[(0, 0.45), (0, 0.45), (1, 0.4), (2, 0.1), (2, 0.05), (3, 0.1)]);
    m.bytes = 1e6;
    let mut nuco = policy(10, 2.0, None);
    let first = m.run(&mut nuco, 500).into_iter().flat_map(|p| p.memory).next().unwrap();
    nuco.stayed.push(first);
    let again = m.run(&mut nuco, 500).into_iter().flat_map(|p| p.memory).next();
    assert_eq!(again, Some(first));
}

//! A made-up program in virtual time, for tests, the example, and trials of the screen without a
//! machine that shows the case. Deterministic.

use evenly_engine::{CpuRecord, Event, MoveRecord, PointRecord, ThreadMeta, ThreadRecord};
use evenly_model::{CpuId, DomainId, Nanos, Pid, Reason, ThreadId, Tid};

/// A compute-bound program: `threads` threads on `cpus` CPUs in `domains` domains, each CPU shared
/// fairly, observed every 20 ms.
#[derive(Debug)]
pub struct Synthetic {
    cpus: u32,
    domains: u32,
    balances: bool,
    threads: Vec<(ThreadMeta, u32, i64)>,
    points: u64,
    started: bool,
}

/// Length of a period.
const PERIOD: Nanos = Nanos::from_millis(20);

impl Synthetic {
    /// Threads go to the CPUs in turn; with `balances`, at every fifth point the thread that is
    /// furthest behind and the one that is furthest ahead change places in each domain.
    #[must_use]
    pub fn new(threads: u32, cpus: u32, domains: u32, balances: bool) -> Self {
        let thread = |i: u32| {
            let tid = 41_001 + i as i32;
            let id = ThreadId { tid: Tid(tid), start: 100 };
            (ThreadMeta { id, pid: Pid(41_000), name: format!("worker-{i}") }, i % cpus.max(1), 0)
        };
        Self {
            cpus: cpus.max(1),
            domains: domains.clamp(1, cpus.max(1)),
            balances,
            threads: (0..threads).map(thread).collect(),
            points: 0,
            started: false,
        }
    }

    fn domain_of(&self, cpu: u32) -> u32 {
        cpu * self.domains / self.cpus
    }

    /// The events of the next period.
    pub fn step(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let at = Nanos(PERIOD.0 * self.points);
        if !self.started {
            self.started = true;
            for d in 0..self.domains {
                let cpus = (0..self.cpus).filter(|&c| self.domain_of(c) == d).map(CpuId).collect();
                events.push(Event::Domain { at, domain: DomainId(d), cpus });
            }
            for (thread, cpu, _) in &self.threads {
                let domain = DomainId(self.domain_of(*cpu));
                events.push(Event::Joined { at, domain, thread: thread.clone() });
            }
        }
        for d in 0..self.domains {
            events.push(Event::Point(self.point(d, at)));
        }
        self.points += 1;
        events
    }

    fn point(&mut self, d: u32, at: Nanos) -> PointRecord {
        let domain_cpus: Vec<u32> = (0..self.cpus).filter(|&c| self.domain_of(c) == d).collect();
        let on: Vec<u32> = (0..self.cpus)
            .map(|c| self.threads.iter().filter(|t| t.1 == c).count() as u32)
            .collect();
        let elapsed = if self.points == 0 { Nanos::ZERO } else { PERIOD };
        let inside: Vec<usize> =
            (0..self.threads.len()).filter(|&i| domain_cpus.contains(&self.threads[i].1)).collect();
        let mut records: Vec<ThreadRecord> = inside
            .iter()
            .map(|&i| {
                let (meta, cpu, progress) = &mut self.threads[i];
                let ran = Nanos(elapsed.0 / u64::from(on[*cpu as usize].max(1)));
                *progress += ran.0 as i64;
                ThreadRecord {
                    id: meta.id,
                    cpu: CpuId(*cpu),
                    progress: *progress,
                    ran,
                    waited: elapsed - ran,
                    blocked: Nanos::ZERO,
                    spinning: None,
                    turns: None,
                    minor_faults: 0,
                    major_faults: 0,
                }
            })
            .collect();
        let mut moves = Vec::new();
        if self.balances && self.points % 5 == 4 {
            self.swap(&inside, &mut records, &mut moves);
        }
        PointRecord {
            domain: DomainId(d),
            point: self.points,
            at,
            elapsed,
            paused: !self.balances,
            held: false,
            spins_progress: false,
            agents: false,
            others: Vec::new(),
            arm: None,
            cost: Nanos::from_micros(24),
            threads: records,
            cpus: domain_cpus
                .iter()
                .map(|&c| {
                    let threads = on[c as usize];
                    let speed =
                        (threads > 0 && elapsed > Nanos::ZERO).then(|| 1.0 / f64::from(threads));
                    CpuRecord { id: CpuId(c), threads, speed }
                })
                .collect(),
            moves,
            weights: Vec::new(),
        }
    }

    fn swap(
        &mut self,
        inside: &[usize],
        records: &mut [ThreadRecord],
        moves: &mut Vec<MoveRecord>,
    ) {
        let by_progress = |&i: &usize| (self.threads[i].2, i);
        let (Some(&last), Some(&first)) = (
            inside.iter().min_by_key(|i| by_progress(i)),
            inside.iter().max_by_key(|i| by_progress(i)),
        ) else {
            return;
        };
        let (a, b) = (self.threads[last].1, self.threads[first].1);
        if a == b || self.threads[last].2 == self.threads[first].2 {
            return;
        }
        for (i, from, to, reason) in [(last, a, b, Reason::Behind), (first, b, a, Reason::Ahead)] {
            self.threads[i].1 = to;
            let id = self.threads[i].0.id;
            for r in records.iter_mut().filter(|r| r.id == id) {
                r.cpu = CpuId(to);
            }
            moves.push(MoveRecord { id, from: CpuId(from), to: CpuId(to), reason, error: None });
        }
    }
}

/// The events of a run of so many periods.
#[must_use]
pub fn run(threads: u32, cpus: u32, domains: u32, periods: u32, balances: bool) -> Vec<Event> {
    let mut program = Synthetic::new(threads, cpus, domains, balances);
    (0..periods).flat_map(|_| program.step()).collect()
}

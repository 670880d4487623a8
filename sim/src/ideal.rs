//! The idealised algorithm of the paper's section 3, exactly.
//!
//! At each balancing point (every lambda, without jitter) the threads that have not ended their
//! phase are sorted by progress; those furthest behind fill the fast slots, one CPU after the other
//! in turn, and the rest fill the slow ones in the same way (Figure 4). Sharing is perfectly fair,
//! nothing costs anything. A thread that has ended its phase blocks until all have; the period runs
//! on over the barrier (Figure 5).
//!
//! The paper leaves open which of several equal CPUs a thread goes to, and which of several equally
//! far threads comes first. Neither has an effect on the times; here threads stay where they are as
//! far as that is possible, so that the number of migrations is one that a real balancer could
//! have. Threads that wait at the barrier fill up the CPUs that have room, so that the next phase
//! begins with counts that differ by one at most.
//!
//! Invariant: all times are integers in units of 1/d ns, and d grows whenever a division would leave
//! a remainder. Nothing is rounded unless d would no longer fit, and then the run says so
//! ([`IdealRun::exact`]).

use crate::report::Sample;
use evenly_model::Nanos;
use evenly_theory::{ExactTime, Shape};

/// What the idealised algorithm runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdealOptions {
    /// n threads on m CPUs.
    pub shape: Shape,
    /// e: CPU time of one phase of a thread.
    pub phase: Nanos,
    /// lambda; at least 1 ns.
    pub period: Nanos,
    /// Number of phases, at least 1.
    pub phases: u32,
    /// Whether the progress at each balancing point is kept.
    pub samples: bool,
}

impl IdealOptions {
    /// One phase, no samples.
    #[must_use]
    pub fn new(shape: Shape, phase: Nanos, period: Nanos) -> Self {
        Self { shape, phase, period, phases: 1, samples: false }
    }
}

/// What it came to.
#[derive(Debug, Clone, PartialEq)]
pub struct IdealRun {
    /// When the last phase ended, in units of 1/`units` ns.
    time: u128,
    units: u128,
    /// Whether nothing was rounded.
    pub exact: bool,
    /// Threads that went to another CPU, those that wait at a barrier not counted.
    pub migrations: u64,
    /// How many balancing points there were.
    pub points: u64,
    /// Readings of a thread's progress.
    pub readings: u64,
    /// Progress at the balancing points, where it was asked for.
    pub samples: Vec<Sample>,
}

impl IdealRun {
    /// When the last phase ended.
    #[must_use]
    pub fn makespan(&self) -> ExactTime {
        ExactTime::fraction(self.time, self.units)
    }

    /// The same in seconds.
    #[must_use]
    pub fn makespan_s(&self) -> f64 {
        // Whole nanoseconds first: the rest alone loses no digit that an f64 could show.
        let (whole, rest) = (self.time / self.units, self.time % self.units);
        (whole as f64 + rest as f64 / self.units as f64) / 1e9
    }
}

/// Times stay below this.
const ROOM: u128 = 1 << 126;

struct Course {
    /// d: units per nanosecond.
    units: u128,
    /// No time in this run is longer, in nanoseconds.
    longest: u128,
    exact: bool,
    phase: u128,
    period: u128,
    now: u128,
    /// When the next balancing point is.
    next: u128,
    progress: Vec<u128>,
}

impl Course {
    /// Makes `value` divisible by k, and divides it. All times grow with the unit, `value` too.
    fn divide(&mut self, value: &mut u128, also: &mut [&mut u128], k: u128) -> u128 {
        if !value.is_multiple_of(k) {
            let factor = k / gcd(*value, k);
            let fits = self.units.checked_mul(factor).and_then(|u| u.checked_mul(self.longest));
            if fits.is_some_and(|f| f < ROOM) {
                self.units *= factor;
                let all = [&mut self.phase, &mut self.period, &mut self.now, &mut self.next, value];
                for x in all.into_iter().chain(also.iter_mut().map(|x| &mut **x)) {
                    *x *= factor;
                }
                for p in &mut self.progress {
                    *p *= factor;
                }
            } else {
                self.exact = false;
            }
        }
        *value / k
    }

    /// Where a phase begins no thread has progressed: the unit is made as large as it can be.
    fn reduce(&mut self) {
        let d = [self.phase, self.period, self.now, self.next].into_iter().fold(self.units, gcd);
        for x in [&mut self.units, &mut self.phase, &mut self.period, &mut self.now, &mut self.next]
        {
            *x /= d;
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        if let (Ok(x), Ok(y)) = (u64::try_from(a), u64::try_from(b)) {
            return u128::from(num_integer::gcd(x, y));
        }
        (a, b) = (b, a % b);
    }
    a
}

/// Which thread is in which slot.
struct Places {
    cpu: Vec<usize>,
    /// The threads on each CPU that have not ended their phase.
    active: Vec<Vec<usize>>,
    /// Threads in the order of their progress; kept from point to point.
    order: Vec<usize>,
    groups: Vec<Vec<usize>>,
    taken: Vec<bool>,
    counts: Vec<usize>,
    migrations: u64,
}

impl Places {
    fn new(n: usize, m: usize) -> Self {
        Self {
            cpu: (0..n).map(|t| t % m).collect(),
            active: vec![Vec::new(); m],
            order: Vec::with_capacity(n),
            groups: vec![Vec::new(); m],
            taken: Vec::new(),
            counts: Vec::new(),
            migrations: 0,
        }
    }

    /// All threads begin a phase where they are.
    fn wake(&mut self) {
        for list in &mut self.active {
            list.clear();
        }
        for (t, &c) in self.cpu.iter().enumerate() {
            self.active[c].push(t);
        }
    }

    /// One balancing point: sort, and fill the fast slots first (Figure 4). Returns how many
    /// threads were sorted.
    fn balance(&mut self, progress: &[u128]) -> usize {
        let m = self.active.len();
        self.order.clear();
        self.order.extend(self.active.iter().flatten());
        // Among equals, those on a fast CPU already come first.
        let (cpu, active) = (&self.cpu, &self.active);
        self.order.sort_unstable_by_key(|&t| (progress[t], active[cpu[t]].len(), cpu[t], t));
        let n = self.order.len();
        let (floor, slow) = (n / m, n % m);
        let fast = m - slow;
        for g in &mut self.groups {
            g.clear();
        }
        for (i, &t) in self.order.iter().enumerate() {
            let g = match i.checked_sub(fast * floor) {
                None => i % fast,
                Some(j) => fast + j % slow.max(1),
            };
            self.groups[g].push(t);
        }
        self.label();
        self.let_the_others_make_room();
        n
    }

    /// Each group gets a CPU on which one of its threads is, as far as that is free.
    fn label(&mut self) {
        let m = self.active.len();
        self.taken.clear();
        self.taken.resize(m, false);
        let mut left = Vec::new();
        for g in 0..m {
            match self.groups[g].iter().map(|&t| self.cpu[t]).find(|&c| !self.taken[c]) {
                Some(c) => {
                    self.taken[c] = true;
                    self.active[c].clear();
                    std::mem::swap(&mut self.active[c], &mut self.groups[g]);
                }
                None => left.push(g),
            }
        }
        let mut c = 0;
        for g in left {
            while self.taken[c] {
                c += 1;
            }
            self.taken[c] = true;
            self.active[c].clear();
            std::mem::swap(&mut self.active[c], &mut self.groups[g]);
        }
        for (c, list) in self.active.iter().enumerate() {
            for &t in list {
                self.migrations += u64::from(self.cpu[t] != c);
                self.cpu[t] = c;
            }
        }
    }

    /// Threads that wait at the barrier fill up the counts to within one of each other.
    fn let_the_others_make_room(&mut self) {
        let (n, m) = (self.cpu.len(), self.active.len());
        if self.order.len() == n {
            return;
        }
        let floor = n / m;
        self.counts.clear();
        self.counts.extend(self.active.iter().map(Vec::len));
        let mut more = n % m - self.counts.iter().filter(|&&k| k > floor).count();
        let mut waits = vec![true; n];
        for &t in &self.order {
            waits[t] = false;
        }
        let mut homeless = Vec::new();
        for t in (0..n).filter(|&t| waits[t]) {
            let c = self.cpu[t];
            if self.counts[c] < floor {
                self.counts[c] += 1;
            } else {
                homeless.push(t);
            }
        }
        let (mut c, mut full) = (0, 0);
        for t in homeless {
            while c < m && self.counts[c] >= floor {
                c += 1;
            }
            let own = self.cpu[t];
            if more > 0 && self.counts[own] == floor {
                (self.counts[own], more) = (floor + 1, more - 1);
            } else if c < m {
                (self.counts[c], self.cpu[t]) = (self.counts[c] + 1, c);
            } else {
                // From here on counts only grow above it.
                while full < m && self.counts[full] != floor {
                    full += 1;
                }
                if full < m {
                    (self.counts[full], self.cpu[t]) = (floor + 1, full);
                }
            }
        }
    }
}

/// Lets the threads of one CPU run until `until`; returns when the last one ended, if all did.
fn run_cpu(s: &mut Course, threads: &mut Vec<usize>, until: &mut u128, last: &mut u128) -> bool {
    if threads.is_empty() {
        return true;
    }
    let mut at = s.now;
    threads.sort_unstable_by_key(|&t| std::cmp::Reverse(s.progress[t]));
    let mut ended = 0;
    while ended < threads.len() {
        let k = (threads.len() - ended) as u128;
        // The one that is furthest ends first.
        let left = s.phase.saturating_sub(s.progress[threads[ended]]);
        let mut span = *until - at;
        if left * k > span {
            let share = s.divide(&mut span, &mut [&mut at, until, last], k);
            for &t in &threads[ended..] {
                s.progress[t] += share;
            }
            threads.drain(..ended);
            return false;
        }
        at += left * k;
        for &t in &threads[ended..] {
            s.progress[t] += left;
        }
        while ended < threads.len() && s.progress[threads[ended]] >= s.phase {
            ended += 1;
        }
    }
    threads.clear();
    *last = (*last).max(at);
    true
}

/// Runs the idealised algorithm.
#[must_use]
pub fn ideal(options: &IdealOptions) -> IdealRun {
    let (n, m) = (options.shape.n() as usize, options.shape.m() as usize);
    let phases = options.phases.max(1);
    let (phase, period) = (u128::from(options.phase.0), u128::from(options.period.0.max(1)));
    let longest = phase * u128::from(phases) * n.div_ceil(m) as u128 + period;
    let mut s = Course {
        units: 1,
        // Spans are multiplied by counts of threads on the way.
        longest: (longest + 1) * n as u128,
        exact: true,
        phase,
        period,
        now: 0,
        next: period,
        progress: vec![0; n],
    };
    let mut places = Places::new(n, m);
    let mut run = IdealRun {
        time: 0,
        units: 1,
        exact: true,
        migrations: 0,
        points: 0,
        readings: 0,
        samples: Vec::new(),
    };
    for phase in 0..phases {
        s.progress.fill(0);
        s.reduce();
        places.wake();
        loop {
            let (mut until, mut last) = (s.next, s.now);
            let mut all = true;
            for c in 0..m {
                let mut threads = std::mem::take(&mut places.active[c]);
                all &= run_cpu(&mut s, &mut threads, &mut until, &mut last);
                places.active[c] = threads;
            }
            if all {
                s.now = last;
                break;
            }
            s.now = until;
            s.next = s.now + s.period;
            run.points += 1;
            run.readings += places.balance(&s.progress) as u64;
            if options.samples {
                run.samples.push(sample(&s, u64::from(phase)));
            }
        }
        // A point at the very end of a phase finds all threads equal: it changes nothing.
        if s.now == s.next && phase + 1 < phases {
            s.next += s.period;
            run.points += 1;
            run.readings += n as u64;
        }
    }
    (run.time, run.units, run.exact, run.migrations) = (s.now, s.units, s.exact, places.migrations);
    run
}

fn sample(s: &Course, phases: u64) -> Sample {
    let seconds = |x: u128| x as f64 / s.units as f64 / 1e9;
    let before = phases as f64 * seconds(s.phase);
    let sum: u128 = s.progress.iter().sum();
    Sample {
        at_s: seconds(s.now),
        least_s: before + seconds(s.progress.iter().copied().min().unwrap_or(0)),
        mean_s: before + seconds(sum) / s.progress.len() as f64,
        most_s: before + seconds(s.progress.iter().copied().max().unwrap_or(0)),
    }
}

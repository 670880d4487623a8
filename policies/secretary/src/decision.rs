//! Decentralised balancing by optimal stopping (Yun: Application of secretary algorithm to dynamic
//! load balancing, 2013, "OSLB", sections 3.1 to 3.3 and Figure 3).
//!
//! Each CPU has a balancer that wakes on its own, every interval with jitter of its own:
//!
//! 1. It works out the speeds of the threads on its CPU, and publishes their mean.
//! 2. If its CPU is faster than the mean of all CPUs as they were last published, it takes the
//!    thread that is furthest ahead of those that have not been moved lately.
//! 3. It looks for one that is as far behind the mean as that one is ahead: it observes threads of
//!    other CPUs in random order, lets sqrt(n) - 1 of them pass, and takes the first that is at least
//!    as near to what it looks for as all before ([`crate::stopping`]).
//! 4. The two are swapped.
//!
//! What a balancer decides is here ([`Searcher`], [`Hunt`], [`is_faster`]). The balancers themselves and what
//! they share are a crate of their own (`evenly_secretary`). Each has wake-ups of its own there, live and
//! in the simulator: a thread of another CPU is read when, and only when, it is observed.
//!
//! [`Secretary`] is for recordings, where all has been read before: the balancers of all CPUs take their
//! turns at each recorded point, in the order of their wake-ups (each at the point that is nearest).
//!
//! Invariant: only swaps, of threads that may be moved and have been where they are for an interval.
//!
//! Where this departs from the paper, and why:
//! - The paper defines speed as CPU time over elapsed time and leaves open since when. Whether a CPU
//!   is fast is a matter of the last interval. Whether a thread is ahead is taken from all of its time
//!   under balancing (as the paper's counters have it, 3.3): with the last interval alone, swaps have
//!   no memory, and threads become equal only on average. So the mean that threads are compared with
//!   is that of the threads; each balancer publishes both.
//! - Only threads that are behind are candidates, and only those on CPUs that were published as
//!   slower than one's own by more than noise; the others are passed over without an observation.
//!   Else many swaps would win nothing. So n of the rule is the number of threads on slow CPUs, and
//!   where slow CPUs are few, only so many draws are made to find their threads.
//! - If none is taken, the last candidate is, as the theory has it, but only if it is behind.
//! - A pair is swapped only if the lead is more than a reading can be wrong by, as in Juggle.
//! - A CPU all of whose threads rest is a fast one. Where threads or CPUs come or go, threads are
//!   spread evenly first, by one hand.

use crate::stopping::{Rule, uniform_skip};
use evenly_model::stats::Random;
use evenly_model::{
    CpuIndex, Effort, Nanos, Plan, Reason, Snapshot, ThreadId, ThreadIndex, ThreadView,
};
use evenly_policy::speed::{RESTS, averaged};
use evenly_policy::{Acts, Needs, Policy, PolicyInfo, Spreader};
use std::collections::HashMap;

/// `secretary`: a balancer on each CPU.
pub const SECRETARY: PolicyInfo = PolicyInfo {
    name: "secretary",
    about: "each CPU reads a few threads to find one to swap with (OSLB); all stay pinned",
    needs: Needs::Progress,
    acts: Acts::OnEachCpu,
    make: || Box::new(Secretary::default()),
    arms: &[],
};

/// Whether a CPU is so much faster than another that a thread gains by going there. `off` is by what
/// part each speed can be wrong; `margin` how much faster it has to be beyond that.
#[must_use]
pub fn is_faster(here: (f64, f64), there: (f64, f64), margin: f64) -> bool {
    let ((speed, off), (other, other_off)) = (here, there);
    speed / (1.0 + off) > other * (1.0 + margin + other_off)
}

/// By how much a CPU has to be faster, in parts, where `k` threads share one on average. Where it is
/// known to be faster, by its capacity, it need not be so by a margin as well.
#[must_use]
pub fn margin(k: f64, known: bool) -> f64 {
    if known { 0.0 } else { FASTER / k }
}

/// Outcome of one search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Search {
    /// Which remote thread to swap with; None for none.
    pub found: Option<usize>,
    /// How many speeds were read.
    pub readings: usize,
}

/// The balancer of one CPU: what it needs to search.
#[derive(Debug, Clone)]
pub struct Searcher {
    random: Random,
}

/// No more draws than this many times the square root of the number of threads (and no fewer than
/// the next constant) are made in one search.
const DRAWS: usize = 8;
const LEAST_DRAWS: usize = 64;

impl Searcher {
    /// `seed` is that of the random order.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    /// Begins to search a thread that is as much slower than `mean` as `ahead` is faster (Figure 3,
    /// line 5). `threads` is the number of threads there are; `candidates` is about how many of them
    /// are not passed over.
    pub fn begin(&mut self, ahead: f64, mean: f64, threads: usize, candidates: usize) -> Hunt {
        Hunt {
            wanted: 2.0 * mean - ahead,
            mean,
            rule: Rule::new(uniform_skip(candidates)),
            order: Order::new(threads, &mut self.random),
            drawn: 0,
            draws: threads.min(LEAST_DRAWS.max(DRAWS * threads.isqrt())),
            candidates,
            last: None,
            found: None,
        }
    }

    /// A whole search at once. `look` is called with threads, each at most once, and gives their
    /// speeds; None for one that cannot be had, which is known without reading it: moved lately, on a
    /// CPU that is no slower, or not allowed here.
    fn decide(
        &mut self,
        ahead: f64,
        mean: f64,
        threads: usize,
        candidates: usize,
        mut look: impl FnMut(usize) -> Option<f64>,
    ) -> Search {
        let mut hunt = self.begin(ahead, mean, threads, candidates);
        while let Some(t) = hunt.draw() {
            if let Some(speed) = look(t) {
                hunt.saw(t, speed);
            }
        }
        hunt.outcome()
    }
}

/// A search under way: one thread after the other is drawn, and its speed is given where it was
/// read.
#[derive(Debug, Clone)]
pub struct Hunt {
    wanted: f64,
    mean: f64,
    rule: Rule,
    order: Order,
    drawn: usize,
    draws: usize,
    candidates: usize,
    last: Option<usize>,
    found: Option<usize>,
}

impl Hunt {
    /// The next thread to look at; None when the search is over. One that is not read is passed over.
    pub fn draw(&mut self) -> Option<usize> {
        let over = self.found.is_some()
            || self.drawn >= self.draws
            || (self.rule.seen() >= self.candidates && self.rule.seen() > 0);
        if over {
            return None;
        }
        self.drawn += 1;
        Some(self.order.at(self.drawn - 1))
    }

    /// The speed of the thread that was drawn, read just now.
    pub fn saw(&mut self, thread: usize, speed: f64) {
        let behind = speed < self.mean;
        let value = if behind { -(speed - self.wanted).abs() } else { f64::NEG_INFINITY };
        if self.rule.take(value) {
            self.found = Some(thread);
        }
        self.last = behind.then_some(thread);
    }

    /// What came of it. If none was taken, the last candidate is, if it is behind.
    #[must_use]
    pub fn outcome(&self) -> Search {
        Search { found: self.found.or(self.last), readings: self.rule.seen() }
    }
}

/// A random order of the numbers below n that takes no memory: a Feistel network over the least power
/// of 4 that holds them, gone through again wherever it leads beyond them (Black and Rogaway, Ciphers
/// with arbitrary finite domains, 2002).
#[derive(Debug, Clone, Copy)]
struct Order {
    n: u64,
    half: u32,
    keys: [u64; 4],
}

impl Order {
    fn new(n: usize, random: &mut Random) -> Self {
        let n = n as u64;
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half: bits.div_ceil(2), keys: std::array::from_fn(|_| random.next_u64()) }
    }

    /// The number in this place.
    fn at(&self, place: usize) -> usize {
        let mut x = place as u64;
        loop {
            x = self.mix(x);
            if x < self.n.max(1) {
                return x as usize;
            }
        }
    }

    fn mix(&self, x: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (x >> self.half, x & mask);
        for key in self.keys {
            // The upper bits of a product depend on all bits of its factors.
            let hash = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            (left, right) = (right, left ^ (hash & mask));
        }
        left << self.half | right
    }
}

/// What a CPU has published, by its number.
#[derive(Debug, Clone, Copy, Default)]
struct Published {
    /// When its balancer wakes next.
    due: Nanos,
    threads: u32,
    /// Mean speed of its threads over the last interval; over several where readings are coarse.
    speed: f64,
    samples: u32,
    /// Sum of the speeds of its threads since balancing began.
    total: f64,
    slow: bool,
}

/// A thread has been on its CPU for long enough after this part of an interval.
pub const SETTLED: f64 = 0.75;
/// Half width of the jitter of wake-ups, as part of the interval.
pub const JITTER: f64 = 0.1;
/// How much of the gap between neighbouring slot speeds a CPU must be faster than another.
const FASTER: f64 = 0.3;
/// The least lead, as a part of the reading's resolution, for which a pair is swapped.
pub const LEAD: f64 = 0.5;

/// Sums over all CPUs of what they have published: in the paper, the global core speed.
#[derive(Debug, Clone, Copy, Default)]
struct Global {
    speeds: f64,
    cpus: f64,
    totals: f64,
    threads: f64,
    /// Threads on CPUs that were slower than the mean.
    on_slow: u32,
}

/// The balancers of all CPUs of a domain, as far as they can be asked about a recording.
#[derive(Debug, Clone)]
pub struct Secretary {
    balancer: Searcher,
    jitter: Random,
    spreader: Spreader,
    began: Option<Nanos>,
    published: Vec<Published>,
    global: Global,
    moved: HashMap<ThreadId, Nanos>,
    by_cpu: Vec<Vec<ThreadIndex>>,
    turns: Vec<(Nanos, CpuIndex)>,
}

impl Default for Secretary {
    fn default() -> Self {
        Self {
            balancer: Searcher::new(1),
            jitter: Random::new(2),
            spreader: Spreader::default(),
            began: None,
            published: Vec::new(),
            global: Global::default(),
            moved: HashMap::new(),
            by_cpu: Vec::new(),
            turns: Vec::new(),
        }
    }
}

impl Secretary {
    /// Whether it was moved less than about an interval ago.
    fn lately(moved: &HashMap<ThreadId, Nanos>, snapshot: &Snapshot, t: &ThreadView) -> bool {
        moved.get(&t.id).is_some_and(|&at| snapshot.now - at < snapshot.elapsed.scale(SETTLED))
    }

    /// Lines 1 and 2 of Figure 3. Returns the speed of the CPU; None where it has no threads.
    fn publish(&mut self, snapshot: &Snapshot, c: CpuIndex, age: f64, noise: f64) -> Option<f64> {
        let cpu = &snapshot.cpus[c];
        let p = &mut self.published[cpu.id.0 as usize];
        let g = &mut self.global;
        if p.threads > 0 {
            (g.speeds, g.cpus) = (g.speeds - p.speed, g.cpus - 1.0);
            (g.totals, g.threads) = (g.totals - p.total, g.threads - f64::from(p.threads));
            g.on_slow -= if p.slow { p.threads } else { 0 };
        }
        let threads = self.by_cpu[c].len() as u32;
        if p.threads != threads {
            p.samples = 0;
        }
        p.threads = threads;
        if threads == 0 {
            return None;
        }
        // Whose threads all rest has room.
        let speed = cpu.speed.unwrap_or(1.0) * cpu.weight();
        (p.speed, p.samples) = averaged((p.speed, p.samples), speed, noise);
        p.total = self.by_cpu[c].iter().map(|&t| snapshot.threads[t].progress as f64 / age).sum();
        (g.speeds, g.cpus) = (g.speeds + p.speed, g.cpus + 1.0);
        (g.totals, g.threads) = (g.totals + p.total, g.threads + f64::from(threads));
        p.slow = p.speed * g.cpus < g.speeds;
        g.on_slow += if p.slow { threads } else { 0 };
        Some(p.speed)
    }

    /// The balancer of one CPU wakes.
    fn wake(&mut self, snapshot: &Snapshot, c: CpuIndex, age: f64, plan: &mut Plan) {
        let elapsed = (snapshot.elapsed.0 as f64).max(1.0);
        let k = (self.global.threads / self.global.cpus.max(1.0)).max(1.0);
        let noise = k * snapshot.resolution.0 as f64 / elapsed;
        let Some(speed) = self.publish(snapshot, c, age, noise) else { return };
        let g = self.global;
        if speed * g.cpus <= g.speeds || g.on_slow == 0 {
            return;
        }
        let number = |c: CpuIndex| snapshot.cpus[c].id.0 as usize;
        let off = |p: &Published| noise / k / f64::from(p.samples.max(1));
        let here = &self.published[number(c)];
        let speed = (speed, off(here));
        let mean = g.totals / g.threads.max(1.0);
        // A thread that rests loses nothing if it leaves.
        let rank = |&t: &ThreadIndex| {
            let t = &snapshot.threads[t];
            let rests = (t.demand().0 as f64) < RESTS * elapsed;
            (rests, t.progress)
        };
        let moved = &self.moved;
        let stays = |t: &ThreadView| !t.movable || Self::lately(moved, snapshot, t);
        let may = |&t: &ThreadIndex| !stays(&snapshot.threads[t]);
        let Some(ahead) = self.by_cpu[c].iter().copied().filter(may).max_by_key(rank) else {
            return;
        };
        let (rests, progress) = rank(&ahead);
        let own = progress as f64 / age;
        if !rests && own <= mean {
            return;
        }
        let least_lead = (LEAD * snapshot.resolution.0 as f64) as i64;
        let published = &self.published;
        let search = self.balancer.decide(
            own.max(mean),
            mean,
            snapshot.threads.len(),
            g.on_slow as usize,
            |t| {
                let view = &snapshot.threads[t];
                let cpu = snapshot.cpus.get(view.cpu)?;
                let there = &published[cpu.id.0 as usize];
                let margin = margin(k, snapshot.cpus[c].capacity > cpu.capacity);
                let faster = is_faster(speed, (there.speed, off(there)), margin);
                if view.cpu == c || there.threads == 0 || !faster || stays(view) {
                    return None;
                }
                let allowed = snapshot.allows(t, c) && snapshot.allows(ahead, view.cpu);
                allowed.then(|| view.progress as f64 / age)
            },
        );
        let readings = search.readings as u64;
        let threads = snapshot.threads.len() as u64;
        plan.effort.add(Effort { searches: 1, readings, threads, most: readings });
        let Some(behind) = search.found else { return };
        let lead = progress - snapshot.threads[behind].progress;
        if !rests && lead <= least_lead {
            return;
        }
        plan.push(behind, c, Reason::Behind);
        plan.push(ahead, snapshot.threads[behind].cpu, Reason::Ahead);
        for t in [ahead, behind] {
            self.moved.insert(snapshot.threads[t].id, snapshot.now);
        }
    }

    /// The CPUs whose balancers wake at this point, in the order in which they do.
    fn find_turns(&mut self, snapshot: &Snapshot) {
        self.turns.clear();
        for (c, cpu) in snapshot.cpus.iter().enumerate() {
            let number = cpu.id.0 as usize;
            if number >= self.published.len() {
                self.published.resize(number + 1, Published::default());
            }
            let p = &mut self.published[number];
            // Each wake-up is at the balancing point that is nearest.
            if p.due <= snapshot.now + snapshot.elapsed.scale(0.5) {
                self.turns.push((p.due, c));
                let interval = 1.0 + JITTER * (2.0 * self.jitter.unit() - 1.0);
                p.due = p.due.max(snapshot.now) + snapshot.elapsed.scale(interval);
            }
        }
        self.turns.sort_unstable();
    }

    fn sort_by_cpu(&mut self, snapshot: &Snapshot) {
        for list in &mut self.by_cpu {
            list.clear();
        }
        self.by_cpu.resize_with(snapshot.cpus.len(), Vec::new);
        for (i, t) in snapshot.threads.iter().enumerate() {
            if let Some(list) = self.by_cpu.get_mut(t.cpu) {
                list.push(i);
            }
        }
    }
}

impl Policy for Secretary {
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        let began = *self.began.get_or_insert(snapshot.now - snapshot.elapsed);
        if self.spreader.spread(snapshot, plan) {
            // Sums over CPUs that are no longer there would stay for good.
            self.published.clear();
            self.global = Global::default();
            return;
        }
        // Marks that are no longer of any use.
        let now = snapshot.now;
        let long_ago = snapshot.elapsed.scale(SETTLED);
        self.moved.retain(|_, at| now - *at < long_ago);
        self.sort_by_cpu(snapshot);
        self.find_turns(snapshot);
        let age = ((now - began).0 as f64).max(1.0);
        let turns = std::mem::take(&mut self.turns);
        for &(_, c) in &turns {
            self.wake(snapshot, c, age, plan);
        }
        self.turns = turns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads on slow CPUs have speeds 0, 0.01, 0.02 and so on; the others are passed over.
    fn search(seed: u64, n: usize, ahead: f64) -> (Search, Vec<usize>) {
        let mut seen = Vec::new();
        let found = Searcher::new(seed).decide(ahead, 0.5, n, n / 2, |t| {
            if t % 2 == 1 {
                return None;
            }
            assert!(!seen.contains(&t), "looked at twice");
            seen.push(t);
            Some(t as f64 / n as f64)
        });
        (found, seen)
    }

    #[test]
    fn it_finds_one_about_as_far_behind_and_reads_few() {
        let (mut off, mut found, mut readings) = (0.0, 0, 0);
        for seed in 0..200 {
            let (search, seen) = search(seed, 400, 0.7);
            assert_eq!(search.readings, seen.len());
            readings += seen.len();
            // Where none was better than those that passed, the last may not be behind.
            if let Some(t) = search.found {
                let speed = t as f64 / 400.0;
                assert!(speed < 0.5);
                off += (speed - 0.3).abs();
                found += 1;
            }
        }
        // Anyone behind would be 0.13 off on average.
        let (off, mean) = (off / f64::from(found), readings as f64 / 200.0);
        assert!(found > 160 && off < 0.06, "{found} found, {off} off");
        assert!((13.0..80.0).contains(&mean), "{mean}");
    }

    #[test]
    fn where_none_is_behind_none_is_found() {
        let mut b = Searcher::new(3);
        let found = b.decide(0.9, 0.5, 50, 50, |_| Some(0.6));
        assert_eq!((found.found, found.readings), (None, 50));
        let found = b.decide(0.9, 0.5, 50, 50, |_| None);
        assert_eq!(found, Search::default());
        assert_eq!(b.decide(0.9, 0.5, 0, 0, |_| Some(0.1)), Search::default());
    }

    #[test]
    fn an_order_has_each_number_once_and_any_of_them_first() {
        let mut random = Random::new(11);
        for n in [0, 1, 2, 3, 4, 5, 16, 17, 100, 1_000] {
            let order = Order::new(n, &mut random);
            let mut all: Vec<usize> = (0..n).map(|i| order.at(i)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
        for n in [3, 10, 37] {
            for place in [0, 1, n - 1] {
                let mut times = vec![0; n];
                for _ in 0..1_000 * n {
                    times[Order::new(n, &mut random).at(place)] += 1;
                }
                assert!(
                    times.iter().all(|t| (800..1_200).contains(t)),
                    "{n} at {place}: {times:?}"
                );
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_searches() {
        assert_eq!(search(5, 300, 0.9), search(5, 300, 0.9));
        assert_ne!(search(5, 300, 0.9).1, search(6, 300, 0.9).1);
    }
}

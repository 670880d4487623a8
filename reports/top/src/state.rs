//! What is shown, kept up to date from events; pure.
//!
//! Invariants:
//! - Only the events' own times count. Nothing here reads a clock, so a recording replayed at any
//!   speed shows the same numbers.
//! - History is bounded: a window of [`WINDOW`] per thread, CPU and domain, and [`RECENT`] lines.
//! - Every point names all threads and CPUs of its domain, so events that were lost on the way
//!   (the feed drops the oldest when the screen is slow) are healed by the next point.

use crate::{Balancer, BalancerState};
use evenly_engine::{Event, MoveRecord, PointRecord};
use evenly_model::efficiency::{Efficiency, Stay};
use evenly_model::metrics::Level;
use evenly_model::{CpuId, DomainId, Nanos, Pid, Reason, ThreadId};
use evenly_policy::Margins;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::AddAssign;

/// Over how much time rates, shares and speeds are averaged.
pub const WINDOW: Nanos = Nanos::from_millis(2_000);
/// How many recent decisions are kept.
pub const RECENT: usize = 100;
/// The window moves in steps of this length.
const STEP: Nanos = Nanos::from_millis(250);
/// A thread this close to the mean is level, whatever the period: the kernel accounts CPU time in
/// ticks, and two of the longest ticks that are built are 20 ms apart.
const LEVEL_AT_LEAST: Nanos = Nanos::from_millis(20);

/// Sums over the last [`WINDOW`], in steps, so that its size does not depend on the period.
#[derive(Debug, Clone)]
struct Window<T> {
    steps: VecDeque<(u64, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self { steps: VecDeque::new() }
    }
}

impl<T: Copy + Default + AddAssign> Window<T> {
    fn add(&mut self, at: Nanos, value: T) {
        let step = at.0 / STEP.0;
        match self.steps.back_mut() {
            Some((last, sum)) if *last >= step => *sum += value,
            _ => self.steps.push_back((step, value)),
        }
        // The newest step stays, however long ago the one before it was.
        while self.steps.front().is_some_and(|(s, _)| s + WINDOW.0 / STEP.0 <= step) {
            self.steps.pop_front();
        }
    }

    fn sum(&self) -> T {
        self.steps.iter().fold(T::default(), |mut sum, (_, v)| {
            sum += *v;
            sum
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    ran: Nanos,
    waited: Nanos,
    blocked: Nanos,
    /// CPU time that it spun.
    spun: Nanos,
    /// How often that was not told.
    untold: u32,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, o: Self) {
        self.ran += o.ran;
        self.waited += o.waited;
        self.blocked += o.blocked;
        self.spun += o.spun;
        self.untold += o.untold;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Weighted {
    sum: f64,
    weight: f64,
}

impl AddAssign for Weighted {
    fn add_assign(&mut self, o: Self) {
        self.sum += o.sum;
        self.weight += o.weight;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Traffic {
    elapsed: Nanos,
    cost: Nanos,
    points: u64,
    own: u64,
    other: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, o: Self) {
        self.elapsed += o.elapsed;
        self.cost += o.cost;
        self.points += o.points;
        self.own += o.own;
        self.other += o.other;
    }
}

/// How a thread spent the last [`WINDOW`]; the first three parts add up to 1, or are all 0 where nothing is
/// known yet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shares {
    /// On a CPU.
    pub running: f64,
    /// Waiting for a CPU.
    pub waiting: f64,
    /// Blocked.
    pub blocked: f64,
    /// Of `running`, spinning, as it told itself. None where it told nothing.
    pub spinning: Option<f64>,
}

/// Where a thread stands among those of its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Behind the mean.
    Behind,
    /// As close to the mean as balancing can bring it.
    Level,
    /// Ahead of the mean.
    Ahead,
}

impl Standing {
    /// Of a thread with that progress (nanoseconds of CPU time), where `mean` is the mean progress
    /// of its domain and `period` the length of a period.
    ///
    /// The rule is the paper's (section 2.2): behind is what is below the mean plus a margin. By it
    /// a perfectly level thread is behind, which is right for deciding and alarming on a screen;
    /// so threads within one period of the mean, which is what one swap can change, are level.
    #[must_use]
    pub fn of(progress: i64, mean: f64, period: Nanos) -> Self {
        let margin = Margins::default().level * period.0 as f64;
        if (progress as f64 - mean).abs() <= period.max(LEVEL_AT_LEAST).0 as f64 {
            Self::Level
        } else if (progress as f64) < mean + margin {
            Self::Behind
        } else {
            Self::Ahead
        }
    }

    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Level => "level",
            Self::Ahead => "ahead",
        }
    }
}

/// What a CPU is to the threads of its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Slower than the mean.
    Slow,
    /// All CPUs are equally fast.
    Even,
    /// Faster than the mean.
    Fast,
    /// No thread of the program is on it.
    Free,
    /// It has threads, and none wants to run.
    Idle,
}

impl Pace {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Even => "even",
            Self::Fast => "fast",
            Self::Free => "free",
            Self::Idle => "idle",
        }
    }
}

/// A thread as last seen.
#[derive(Debug, Clone)]
pub struct ThreadState {
    /// Which thread.
    pub id: ThreadId,
    /// Its process; none where the event that tells it was lost.
    pub pid: Option<Pid>,
    /// Its name, as it is: whoever shows it makes it printable.
    pub name: String,
    /// Its domain.
    pub domain: DomainId,
    /// CPU on which it was last found; none before the first point.
    pub cpu: Option<CpuId>,
    /// Progress in nanoseconds of CPU time.
    pub progress: i64,
    /// Times that evenly moved it.
    pub moved: u64,
    /// Times that it was found on another CPU without evenly's doing.
    pub wandered: u64,
    spent: Window<Spent>,
}

impl ThreadState {
    fn new(id: ThreadId, domain: DomainId) -> Self {
        Self {
            id,
            pid: None,
            name: String::from("?"),
            domain,
            cpu: None,
            progress: 0,
            moved: 0,
            wandered: 0,
            spent: Window::default(),
        }
    }

    /// How it spent the last [`WINDOW`].
    #[must_use]
    pub fn shares(&self) -> Shares {
        let s = self.spent.sum();
        let total = (s.ran + s.waited + s.blocked).0 as f64;
        if total > 0.0 {
            Shares {
                running: s.ran.0 as f64 / total,
                waiting: s.waited.0 as f64 / total,
                blocked: s.blocked.0 as f64 / total,
                spinning: (s.untold == 0).then(|| s.spun.0 as f64 / total),
            }
        } else {
            Shares::default()
        }
    }

    /// Whether a whole period has been seen of it: before that, all its figures are 0.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        let s = self.spent.sum();
        s.ran + s.waited + s.blocked > Nanos::ZERO
    }

    /// All changes of CPU that were seen.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.moved + self.wandered
    }
}

/// A CPU as last seen.
#[derive(Debug, Clone, Default)]
pub struct CpuState {
    /// Compute threads on it.
    pub threads: u32,
    speed: Window<Weighted>,
}

impl CpuState {
    /// Mean speed over the last [`WINDOW`], from 0 to 1; none where no thread wanted it.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let s = self.speed.sum();
        (s.weight > 0.0).then(|| s.sum / s.weight)
    }
}

/// A domain as last seen.
#[derive(Debug, Clone, Default)]
pub struct DomainState {
    /// Its CPUs.
    pub cpus: BTreeMap<CpuId, CpuState>,
    /// Progress of its threads, in nanoseconds; none without threads.
    pub level: Option<Level>,
    /// How many threads it has.
    pub threads: usize,
    /// Whether nothing was moved at the last point by intention.
    pub paused: bool,
    traffic: Window<Traffic>,
}

impl DomainState {
    /// Mean length of a period in the window.
    #[must_use]
    pub fn period(&self) -> Nanos {
        let t = self.traffic.sum();
        Nanos(t.elapsed.0 / t.points.max(1))
    }

    /// Whether a whole period has been seen of it: before that, all its figures are 0.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.traffic.sum().elapsed > Nanos::ZERO
    }

    /// The CPUs, with their pace: fast and slow as Juggle has them (section 2.3 and the noise
    /// margin of the policy), over the window instead of the last period.
    pub fn paces(&self) -> impl Iterator<Item = (CpuId, &CpuState, Pace)> {
        let level = Level::of(self.cpus.values().filter_map(CpuState::speed));
        let k = (self.threads / self.cpus.len().max(1)).max(1) as f64;
        let margin = Margins::default().fast / k;
        self.cpus.iter().map(move |(&id, c)| {
            let pace = match (c.speed(), level) {
                _ if c.threads == 0 => Pace::Free,
                (Some(_), Some(l)) if l.max <= l.min * (1.0 + margin) => Pace::Even,
                (Some(s), Some(l)) if s > l.mean => Pace::Fast,
                (Some(_), _) => Pace::Slow,
                (None, _) => Pace::Idle,
            };
            (id, c, pace)
        })
    }
}

/// One line of history.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    /// Monotonic time since balancing began.
    pub at: Nanos,
    /// In which domain; none where it concerns all.
    pub domain: Option<DomainId>,
    /// What happened.
    pub what: Happened,
}

/// What a line of history tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// A thread changed its CPU, or was to.
    Migration {
        /// Name of the thread.
        name: String,
        /// The thread.
        id: ThreadId,
        /// From this CPU.
        from: CpuId,
        /// To this CPU.
        to: CpuId,
        /// Why evenly moved it; none where another did (the kernel, the program, another evenly).
        reason: Option<Reason>,
        /// What stopped it.
        error: Option<String>,
    },
    /// Words of the balancer.
    Note(String),
}

/// Migrations and cost in the window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Moves by evenly a second.
    pub own: f64,
    /// Other changes of CPU a second.
    pub other: f64,
    /// Part of one CPU that the balancing points took.
    pub overhead: f64,
    /// CPU time of one point.
    pub cost: Nanos,
    /// Mean length of a period.
    pub period: Nanos,
}

/// Columns by which threads can be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Distance from the mean, those behind first.
    #[default]
    Mean,
    /// Name.
    Name,
    /// Thread id.
    Tid,
    /// CPU.
    Cpu,
    /// Progress, least first.
    Progress,
    /// Share running, greatest first.
    Running,
    /// Share spinning, greatest first, and last those that do not tell.
    Spinning,
    /// Share waiting, greatest first.
    Waiting,
    /// Share blocked, greatest first.
    Blocked,
    /// Migrations, most first.
    Migrations,
}

impl Sort {
    /// The next column.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Mean => Self::Name,
            Self::Name => Self::Tid,
            Self::Tid => Self::Cpu,
            Self::Cpu => Self::Progress,
            Self::Progress => Self::Running,
            Self::Running => Self::Spinning,
            Self::Spinning => Self::Waiting,
            Self::Waiting => Self::Blocked,
            Self::Blocked => Self::Migrations,
            Self::Migrations => Self::Mean,
        }
    }

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Mean => "vs mean",
            Self::Name => "name",
            Self::Tid => "tid",
            Self::Cpu => "cpu",
            Self::Progress => "progress",
            Self::Running => "running",
            Self::Spinning => "spinning",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Migrations => "migrations",
        }
    }
}

/// One thread with what is worked out from its domain.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The thread.
    pub thread: &'a ThreadState,
    /// Progress minus the mean of the domain, in nanoseconds.
    pub lead: f64,
    /// The same in a word.
    pub standing: Standing,
    /// How it spent the window.
    pub shares: Shares,
}

/// All that is shown.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Time of the latest event.
    pub now: Nanos,
    /// The domains.
    pub domains: BTreeMap<DomainId, DomainState>,
    /// The threads.
    pub threads: HashMap<ThreadId, ThreadState>,
    /// Recent history, oldest first.
    pub recent: VecDeque<Recent>,
    /// Events that were dropped because the screen was slow.
    pub missed: u64,
    /// Whether no more events will come.
    pub ended: bool,
    /// The other evenly that balances the program, or did.
    pub balancer: Option<Balancer>,
    asked: bool,
    stood_down: bool,
    log_all: bool,
}

impl View {
    /// An empty view. With `log_all` the history shows changes of CPU that others made, too: right
    /// where evenly only observes, a flood where it balances and the kernel pulls threads about.
    #[must_use]
    pub fn new(log_all: bool) -> Self {
        Self { log_all, ..Self::default() }
    }

    /// Takes in who else balances the program: the one that did, if nobody does now, is gone. Returns
    /// whether that is news, which the history then tells, but for what was so from the beginning.
    pub fn balanced_by(&mut self, balancer: Option<Balancer>) -> bool {
        let first = !std::mem::replace(&mut self.asked, true);
        let gone = self.balancer.map(|b| Balancer { state: BalancerState::Gone, ..b });
        let balancer = balancer.or(gone);
        if self.balancer == balancer {
            return false;
        }
        let before = std::mem::replace(&mut self.balancer, balancer);
        let news = balancer.filter(|_| !first).map(|b| {
            let same = before.is_some_and(|before| before.pid == b.pid);
            let what = match b.state {
                BalancerState::Working if same => "goes on",
                BalancerState::Working => "balances the program",
                BalancerState::Stopped => "has stopped",
                BalancerState::Gone => "has ended",
            };
            Happened::Note(format!("evenly (pid {}) {what}", b.pid))
        });
        if let Some(what) = news {
            self.log(Recent { at: self.now, domain: None, what });
        }
        true
    }

    /// Takes one event in.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Domain { at, domain, cpus } => {
                self.now = self.now.max(*at);
                let d = self.domains.entry(*domain).or_default();
                d.cpus.retain(|&c, _| cpus.contains(c));
                for c in cpus.iter() {
                    d.cpus.entry(c).or_default();
                }
            }
            Event::Joined { at, domain, thread } => {
                self.now = self.now.max(*at);
                let t = self.thread(thread.id, *domain);
                t.pid = Some(thread.pid);
                t.name.clone_from(&thread.name);
            }
            Event::Left { at, id, .. } => {
                self.now = self.now.max(*at);
                self.threads.remove(id);
            }
            Event::Point(p) => self.point(p),
            Event::Note { at, text } => {
                self.now = self.now.max(*at);
                // The only sign of it among the events.
                self.stood_down |= text.starts_with("balancing stands down");
                self.log(Recent { at: *at, domain: None, what: Happened::Note(text.clone()) });
            }
        }
    }

    fn thread(&mut self, id: ThreadId, domain: DomainId) -> &mut ThreadState {
        let t = self.threads.entry(id).or_insert_with(|| ThreadState::new(id, domain));
        t.domain = domain;
        t
    }

    fn log(&mut self, line: Recent) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
    }

    fn point(&mut self, p: &PointRecord) {
        self.now = self.now.max(p.at);
        let moves: HashMap<ThreadId, &MoveRecord> = p.moves.iter().map(|m| (m.id, m)).collect();
        let (mut own, mut other) = (0, 0);
        let mut lines = Vec::new();
        for r in &p.threads {
            let t = self.thread(r.id, p.domain);
            t.progress = r.progress;
            if p.elapsed > Nanos::ZERO {
                let spent = Spent {
                    ran: r.ran,
                    waited: r.waited,
                    blocked: r.blocked,
                    spun: r.spun().unwrap_or_default(),
                    untold: u32::from(r.spinning.is_none()),
                };
                t.spent.add(p.at, spent);
            }
            let mut line = |t: &ThreadState, from, to, m: Option<&MoveRecord>| {
                lines.push(Recent {
                    at: p.at,
                    domain: Some(p.domain),
                    what: Happened::Migration {
                        name: t.name.clone(),
                        id: t.id,
                        from,
                        to,
                        reason: m.map(|m| m.reason),
                        error: m.and_then(|m| m.error.clone()),
                    },
                });
            };
            // A move of this point is already in the record's CPU; what remains was not ours.
            let found = moves.get(&r.id).map_or(r.cpu, |m| m.from);
            if let Some(before) = t.cpu
                && before != found
            {
                t.wandered += 1;
                other += 1;
                if self.log_all {
                    let t = &self.threads[&r.id];
                    line(t, before, found, None);
                }
            }
            let t = self.thread(r.id, p.domain);
            t.cpu = Some(r.cpu);
            if let Some(m) = moves.get(&r.id) {
                line(t, m.from, m.to, Some(m));
                if m.error.is_none() {
                    t.moved += 1;
                    own += 1;
                }
            }
        }
        for line in lines {
            self.log(line);
        }
        if self.threads.len() > p.threads.len() || self.domains.len() > 1 {
            // Only needed where the event that a thread left was lost.
            let there: std::collections::HashSet<ThreadId> =
                p.threads.iter().map(|t| t.id).collect();
            self.threads.retain(|id, t| t.domain != p.domain || there.contains(id));
        }
        let d = self.domains.entry(p.domain).or_default();
        d.level = Level::of(p.threads.iter().map(|t| t.progress as f64));
        d.threads = p.threads.len();
        d.paused = p.paused;
        if p.elapsed > Nanos::ZERO {
            let (elapsed, cost) = (p.elapsed, p.cost);
            d.traffic.add(p.at, Traffic { elapsed, cost, points: 1, own, other });
        }
        d.cpus.retain(|id, _| p.cpus.iter().any(|c| c.id == *id));
        for r in &p.cpus {
            let c = d.cpus.entry(r.id).or_default();
            c.threads = r.threads;
            let weight = p.elapsed.0 as f64;
            let seen = r.speed.map(|s| Weighted { sum: s * weight, weight });
            c.speed.add(p.at, seen.unwrap_or_default());
        }
    }

    /// Domains that are shown: all, or one.
    pub fn shown(
        &self,
        only: Option<DomainId>,
    ) -> impl Iterator<Item = (DomainId, &DomainState)> + Clone {
        self.domains
            .iter()
            .map(|(&id, d)| (id, d))
            .filter(move |(id, _)| only.is_none_or(|o| o == *id))
    }

    /// Whether a whole period has been seen of any of the domains shown.
    #[must_use]
    pub fn is_measured(&self, only: Option<DomainId>) -> bool {
        self.shown(only).any(|(_, d)| d.is_measured())
    }

    /// The threads, sorted. Equal ones stay in the order of their ids, so rows do not dance.
    #[must_use]
    pub fn rows(&self, only: Option<DomainId>, sort: Sort, reverse: bool) -> Vec<Row<'_>> {
        let of_domain: HashMap<DomainId, (f64, Nanos)> = self
            .shown(only)
            .map(|(id, d)| (id, (d.level.map_or(0.0, |l| l.mean), d.period())))
            .collect();
        let mut rows: Vec<Row<'_>> = self
            .threads
            .values()
            .filter_map(|thread| {
                let &(mean, period) = of_domain.get(&thread.domain)?;
                // A thread that joined since the last point starts level.
                let (lead, standing) = if thread.cpu.is_some() {
                    (thread.progress as f64 - mean, Standing::of(thread.progress, mean, period))
                } else {
                    (0.0, Standing::Level)
                };
                Some(Row { thread, lead, standing, shares: thread.shares() })
            })
            .collect();
        rows.sort_by(|a, b| {
            let order = match sort {
                // Level threads count as equal: who of them leads by a hair changes all the time.
                Sort::Mean => a.standing.cmp(&b.standing).then_with(|| {
                    if a.standing == Standing::Level {
                        std::cmp::Ordering::Equal
                    } else {
                        a.lead.total_cmp(&b.lead)
                    }
                }),
                Sort::Name => a.thread.name.cmp(&b.thread.name),
                Sort::Tid => std::cmp::Ordering::Equal,
                Sort::Cpu => a.thread.cpu.cmp(&b.thread.cpu),
                Sort::Progress => a.thread.progress.cmp(&b.thread.progress),
                Sort::Running => b.shares.running.total_cmp(&a.shares.running),
                Sort::Spinning => {
                    let spins = |r: &Row<'_>| r.shares.spinning.unwrap_or(-1.0);
                    spins(b).total_cmp(&spins(a))
                }
                Sort::Waiting => b.shares.waiting.total_cmp(&a.shares.waiting),
                Sort::Blocked => b.shares.blocked.total_cmp(&a.shares.blocked),
                Sort::Migrations => b.thread.migrations().cmp(&a.thread.migrations()),
            };
            let order = order.then_with(|| a.thread.id.cmp(&b.thread.id));
            if reverse { order.reverse() } else { order }
        });
        rows
    }

    /// Migrations and cost, summed over the domains shown.
    #[must_use]
    pub fn rates(&self, only: Option<DomainId>) -> Rates {
        let mut r = Rates::default();
        let (mut points, mut cost, mut elapsed) = (0, Nanos::ZERO, Nanos::ZERO);
        for (_, d) in self.shown(only) {
            let t = d.traffic.sum();
            if t.elapsed == Nanos::ZERO {
                continue;
            }
            let seconds = t.elapsed.as_secs_f64();
            r.own += t.own as f64 / seconds;
            r.other += t.other as f64 / seconds;
            r.overhead += t.cost.as_secs_f64() / seconds;
            points += t.points;
            cost += t.cost;
            elapsed += t.elapsed;
        }
        r.cost = Nanos(cost.0 / points.max(1));
        r.period = Nanos(elapsed.0 / points.max(1));
        r
    }

    /// Where the time of the last [`WINDOW`] went, of all threads that are shown. None where nothing is
    /// measured yet.
    #[must_use]
    pub fn efficiency(&self, only: Option<DomainId>) -> Option<Efficiency> {
        let shown = self.threads.values().filter(|t| only.is_none_or(|d| d == t.domain));
        Efficiency::of(shown.filter(|t| t.is_measured()).map(|t| {
            let s = t.spent.sum();
            Stay {
                ran_s: s.ran.as_secs_f64(),
                spun_s: (s.untold == 0).then(|| s.spun.as_secs_f64()),
                waited_s: s.waited.as_secs_f64(),
                blocked_s: s.blocked.as_secs_f64(),
                present_s: (s.ran + s.waited + s.blocked).as_secs_f64(),
            }
        }))
    }

    /// Whether the domains shown are paused, all of them.
    #[must_use]
    pub fn paused(&self, only: Option<DomainId>) -> bool {
        let mut shown = self.shown(only).peekable();
        shown.peek().is_some() && shown.all(|(_, d)| d.paused)
    }

    /// Whether balancing has stood down in the domains shown.
    #[must_use]
    pub fn stood_down(&self, only: Option<DomainId>) -> bool {
        self.stood_down && self.paused(only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use evenly_engine::{CpuRecord, ThreadRecord};
    use evenly_model::{CpuSet, Tid};

    const D: DomainId = DomainId(0);

    fn id(tid: i32) -> ThreadId {
        ThreadId { tid: Tid(tid), start: 7 }
    }

    fn record(tid: i32, cpu: u32, progress_ms: i64, ran_ms: u64) -> ThreadRecord {
        ThreadRecord {
            id: id(tid),
            cpu: CpuId(cpu),
            progress: progress_ms * 1_000_000,
            ran: Nanos::from_millis(ran_ms),
            waited: Nanos::from_millis(100 - ran_ms),
            blocked: Nanos::ZERO,
            spinning: None,
            turns: None,
            minor_faults: 0,
            major_faults: 0,
        }
    }

    fn point(n: u64, threads: Vec<ThreadRecord>, moves: Vec<MoveRecord>) -> Event {
        Event::Point(PointRecord {
            domain: D,
            point: n,
            at: Nanos::from_millis(100 * (n + 1)),
            elapsed: Nanos::from_millis(100),
            paused: false,
            held: false,
            spins_progress: false,
            cost: Nanos::from_micros(50),
            cpus: (0..2)
                .map(|c| {
                    let on = threads.iter().filter(|t| t.cpu == CpuId(c)).count() as u32;
                    CpuRecord {
                        id: CpuId(c),
                        threads: on,
                        speed: (on > 0).then(|| 1.0 / f64::from(on)),
                    }
                })
                .collect(),
            threads,
            moves,
            weights: Vec::new(),
        })
    }

    fn moved(tid: i32, from: u32, to: u32, error: Option<&str>) -> MoveRecord {
        MoveRecord {
            id: id(tid),
            from: CpuId(from),
            to: CpuId(to),
            reason: Reason::Behind,
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn standing_follows_the_paper_outside_one_period() {
        let period = Nanos::from_millis(100);
        let of = |ms: i64| Standing::of(ms * 1_000_000, 1e9, period);
        assert_eq!(of(899), Standing::Behind);
        assert_eq!(of(901), Standing::Level);
        assert_eq!(of(1_099), Standing::Level);
        assert_eq!(of(1_101), Standing::Ahead);
        // With a very short period the kernel's tick decides.
        assert_eq!(Standing::of(1_010_000_000, 1e9, Nanos::from_millis(1)), Standing::Level);
    }

    #[test]
    fn sorted_worst_first_and_reversible() {
        let mut v = View::new(false);
        v.apply(&point(
            0,
            vec![record(1, 0, 2_000, 100), record(2, 1, 500, 50), record(3, 1, 600, 50)],
            vec![],
        ));
        let tids = |v: &View, s, r| {
            v.rows(None, s, r).iter().map(|r| r.thread.id.tid.0).collect::<Vec<_>>()
        };
        assert_eq!(tids(&v, Sort::Mean, false), [2, 3, 1]);
        assert_eq!(tids(&v, Sort::Mean, true), [1, 3, 2]);
        assert_eq!(tids(&v, Sort::Cpu, false), [1, 2, 3]);
        assert_eq!(tids(&v, Sort::Running, false), [1, 2, 3]);
        assert_eq!(tids(&v, Sort::Waiting, false), [2, 3, 1]);
        let rows = v.rows(None, Sort::Mean, false);
        assert_eq!(rows[0].standing, Standing::Behind);
        assert!((rows[0].lead + 533.333e6).abs() < 1e6, "{}", rows[0].lead);
        assert_eq!(rows[0].shares, Shares { running: 0.5, waiting: 0.5, ..Shares::default() });
    }

    #[test]
    fn level_threads_keep_their_order() {
        let mut v = View::new(false);
        v.apply(&point(0, vec![record(1, 0, 1_010, 50), record(2, 1, 1_000, 50)], vec![]));
        let first = v.rows(None, Sort::Mean, false)[0].thread.id;
        v.apply(&point(1, vec![record(1, 0, 1_060, 50), record(2, 1, 1_070, 70)], vec![]));
        assert_eq!(v.rows(None, Sort::Mean, false)[0].thread.id, first);
    }

    #[test]
    fn cpus_are_fast_slow_even_or_free() {
        let paces = |threads| {
            let mut v = View::new(false);
            v.apply(&point(0, threads, vec![]));
            v.domains[&D].paces().map(|(_, _, p)| p).collect::<Vec<_>>()
        };
        let (a, b, c) = (record(1, 0, 0, 50), record(2, 0, 0, 50), record(3, 1, 0, 100));
        assert_eq!(paces(vec![a, b, c]), [Pace::Slow, Pace::Fast]);
        assert_eq!(paces(vec![a, c]), [Pace::Even, Pace::Even]);
        assert_eq!(paces(vec![a, b]), [Pace::Even, Pace::Free]);
    }

    #[test]
    fn own_moves_and_others_are_told_apart() {
        let mut v = View::new(true);
        v.apply(&point(0, vec![record(1, 0, 0, 50)], vec![]));
        // Found where it was, moved by evenly from 0 to 1.
        v.apply(&point(1, vec![record(1, 1, 0, 50)], vec![moved(1, 0, 1, None)]));
        assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (1, 0));
        // Back on 0 without evenly's doing.
        v.apply(&point(2, vec![record(1, 0, 0, 50)], vec![]));
        assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (1, 1));
        // Found on 1 and moved to 0 at once: one of each, although the CPU is the same.
        v.apply(&point(3, vec![record(1, 0, 0, 50)], vec![moved(1, 1, 0, None)]));
        assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (2, 2));
        // A move that failed is told, and not counted.
        v.apply(&point(4, vec![record(1, 0, 0, 50)], vec![moved(1, 0, 1, Some("no"))]));
        assert_eq!((v.threads[&id(1)].moved, v.threads[&id(1)].wandered), (2, 2));
        assert_eq!(v.recent.len(), 5);
        let r = v.rates(None);
        // Five points of 100 ms: two moves of each kind in half a second.
        assert!((r.own - 4.0).abs() < 1e-9 && (r.other - 4.0).abs() < 1e-9, "{r:?}");
        assert!((r.overhead - 0.0005).abs() < 1e-9);
        assert_eq!((r.cost, r.period), (Nanos::from_micros(50), Nanos::from_millis(100)));
    }

    #[test]
    fn rates_forget_what_is_older_than_the_window() {
        let mut v = View::new(false);
        v.apply(&point(0, vec![record(1, 0, 0, 50)], vec![]));
        v.apply(&point(1, vec![record(1, 1, 0, 50)], vec![]));
        assert!(v.rates(None).other > 0.0);
        for n in 2..40 {
            v.apply(&point(n, vec![record(1, 1, 0, 100)], vec![]));
        }
        assert_eq!(v.rates(None).other, 0.0);
        assert_eq!(v.threads[&id(1)].shares().running, 1.0);
        assert_eq!(v.threads[&id(1)].wandered, 1);
    }

    /// Programs whose efficiencies are known: parallel, load balance, communication, run queue,
    /// synchronisation, and the share of run queues.
    #[test]
    fn efficiencies_are_those_of_the_window() {
        // Running, of that spinning, waiting for a CPU and asleep, in ms of a period of 100.
        type Times = (u64, Option<u64>, u64, u64);
        let threads = |all: &[Times]| -> Vec<ThreadRecord> {
            let of = |(i, &(ran, spun, waited, blocked)): (i32, &Times)| ThreadRecord {
                waited: Nanos::from_millis(waited),
                blocked: Nanos::from_millis(blocked),
                spinning: spun.map(Nanos::from_millis),
                ..record(i, i as u32 % 2, 0, ran)
            };
            (1..).zip(all).map(of).collect()
        };
        let known = |v: &View| {
            let e = v.efficiency(None).unwrap();
            let f = e.factors?;
            let factors = [f.parallel, f.load_balance, f.communication, f.run_queue];
            Some((factors, f.synchronisation, e.run_queue_share))
        };
        let near = |found: Option<([f64; 4], f64, f64)>, factors: [f64; 4], rest: [f64; 2]| {
            let (f, synchronisation, share) = found.unwrap();
            let all = f.into_iter().chain([synchronisation, share]);
            let close = all.zip(factors.into_iter().chain(rest)).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(close, "{found:?}");
        };
        let mut v = View::new(true);
        let mut points = 0;
        let mut pass = |v: &mut View, all: &[Times], n: u64| {
            for _ in 0..n {
                v.apply(&point(points, threads(all), vec![]));
                points += 1;
            }
        };
        assert_eq!(v.efficiency(None), None);
        // A CPU each, work of 4 and 1.
        pass(&mut v, &[(100, None, 0, 0), (25, None, 0, 75)], 4);
        near(known(&v), [0.625, 0.625, 1.0, 1.0], [1.0, 0.0]);
        assert_eq!(v.efficiency(Some(DomainId(1))), None);
        // The other spins instead: nobody knows that, unless it is told.
        let mut v = View::new(true);
        pass(&mut v, &[(100, None, 0, 0), (100, None, 0, 0)], 4);
        assert_eq!(known(&v), None);
        let mut v = View::new(true);
        pass(&mut v, &[(100, Some(0), 0, 0), (100, Some(75), 0, 0)], 4);
        near(known(&v), [0.625, 0.625, 1.0, 1.0], [1.0, 0.0]);
        // Three on two CPUs, left where they are, and asleep at the barrier.
        let mut v = View::new(true);
        let three = [(50, None, 0, 50), (50, None, 50, 0), (50, None, 50, 0)];
        pass(&mut v, &three, 40);
        near(known(&v), [0.5, 1.0, 0.5, 0.5], [1.0, 1.0 / 3.0]);
        // What is over for as long as the window is forgotten: all wait for messages now.
        pass(&mut v, &[(75, None, 0, 25); 3], 24);
        near(known(&v), [0.75, 1.0, 0.75, 1.0], [0.75, 0.0]);
    }

    #[test]
    fn a_lost_departure_is_healed_by_the_next_point() {
        let mut v = View::new(false);
        v.apply(&point(0, vec![record(1, 0, 0, 50), record(2, 1, 0, 50)], vec![]));
        v.apply(&point(1, vec![record(2, 1, 0, 50), record(3, 1, 0, 50)], vec![]));
        let mut tids: Vec<i32> = v.threads.keys().map(|i| i.tid.0).collect();
        tids.sort_unstable();
        assert_eq!(tids, [2, 3]);
    }

    #[test]
    fn history_and_windows_are_bounded() {
        let mut v = View::new(true);
        for n in 0..5_000 {
            let cpu = (n % 2) as u32;
            v.apply(&point(n, vec![record(1, cpu, 0, 50)], vec![]));
        }
        assert_eq!(v.recent.len(), RECENT);
        assert!(v.threads[&id(1)].spent.steps.len() <= 9);
        assert!(v.domains[&D].traffic.steps.len() <= 9);
    }

    #[test]
    fn a_reused_tid_is_another_thread() {
        let mut v = View::new(false);
        v.apply(&point(0, vec![record(1, 0, 5_000, 50)], vec![]));
        let reused = ThreadId { tid: Tid(1), start: 99 };
        let mut fresh = record(1, 0, 0, 50);
        fresh.id = reused;
        v.apply(&point(1, vec![fresh], vec![]));
        assert_eq!(v.threads.keys().collect::<Vec<_>>(), [&reused]);
    }

    #[test]
    fn standing_down_is_told_from_a_pause() {
        let mut v = View::new(false);
        let mut p = match point(0, vec![record(1, 0, 0, 50)], vec![]) {
            Event::Point(p) => p,
            _ => unreachable!(),
        };
        p.paused = true;
        v.apply(&Event::Point(p.clone()));
        assert!(v.paused(None) && !v.stood_down(None));
        v.apply(&Event::Note { at: Nanos::ZERO, text: "balancing stands down: x".into() });
        assert!(v.stood_down(None));
    }

    #[test]
    fn what_becomes_of_the_balancer_stands_in_the_history() {
        let is = |pid, state| Some(Balancer { pid: Pid(pid), state });
        let mut v = View::new(false);
        // Nothing new at the first look, nor where nothing changes.
        assert!(v.balanced_by(is(7, BalancerState::Working)));
        assert!(!v.balanced_by(is(7, BalancerState::Working)));
        assert!(v.recent.is_empty());
        for next in [
            is(7, BalancerState::Stopped),
            is(7, BalancerState::Working),
            is(7, BalancerState::Gone),
            is(8, BalancerState::Working),
        ] {
            assert!(v.balanced_by(next) && v.balancer == next);
        }
        // It is not there any more.
        assert!(v.balanced_by(None) && v.balancer == is(8, BalancerState::Gone));
        assert!(!v.balanced_by(None));
        let told: Vec<String> = v.recent.iter().map(|r| format!("{:?}", r.what)).collect();
        let words = ["7) has stopped", "7) goes on", "7) has ended", "8) balances", "8) has ended"];
        assert_eq!(told.len(), words.len());
        assert!(told.iter().zip(words).all(|(told, words)| told.contains(words)), "{told:?}");
    }

    #[test]
    fn cpus_follow_the_domain() {
        let mut v = View::new(false);
        let cpus: CpuSet = "0-3".parse().unwrap();
        v.apply(&Event::Domain { at: Nanos::ZERO, domain: D, cpus });
        assert_eq!(v.domains[&D].cpus.len(), 4);
        v.apply(&Event::Domain { at: Nanos::ZERO, domain: D, cpus: "1".parse().unwrap() });
        assert_eq!(v.domains[&D].cpus.keys().collect::<Vec<_>>(), [&CpuId(1)]);
    }

    #[test]
    fn a_whole_synthetic_run_adds_up() {
        let mut v = View::new(false);
        for e in synthetic::run(3, 2, 1, 100, true) {
            v.apply(&e);
        }
        assert_eq!(v.threads.len(), 3);
        let total: i64 = v.threads.values().map(|t| t.progress).sum();
        // Two CPUs were busy all the time.
        assert!((total as f64 / 2.0 / v.now.0 as f64 - 1.0).abs() < 0.02);
    }
}

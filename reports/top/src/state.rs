//! What is shown of threads, CPUs and domains; pure.
//!
//! Invariants:
//! - Only the events' own times count. Nothing here reads a clock, so a recording replayed at any
//!   speed shows the same numbers.
//! - History is bounded: a window of [`WINDOW`] per thread, CPU and domain, and [`RECENT`] lines.

mod view;
mod window;

#[cfg(test)]
mod tests;

pub use view::View;
pub use window::WINDOW;
use window::{Spent, Traffic, Weighted, Window};

use evenly_juggle::Margins;
use evenly_model::metrics::Spread;
use evenly_model::{CpuId, DomainId, Nanos, Pid, Reason, ThreadId};
use std::collections::BTreeMap;

/// How many recent decisions are kept.
pub const RECENT: usize = 100;
/// A thread this close to the mean is even with it, whatever the period: the kernel accounts CPU time in
/// ticks, and two of the longest ticks that are built are 20 ms apart.
const EVEN_AT_LEAST: Nanos = Nanos::from_millis(20);

/// How a thread spent the last [`WINDOW`]; the first three parts add up to 1, or are all 0 where
/// nothing is known yet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shares {
    /// The part of the time on a CPU.
    pub running: f64,
    /// Waiting for a CPU.
    pub waiting: f64,
    /// The part of the time in which it was blocked.
    pub blocked: f64,
    /// Spinning, as a part of `running`; None where no probe reported it.
    pub spinning: Option<f64>,
}

/// Where a thread stands among those of its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is behind the mean by more than the margin.
    Behind,
    /// As close to the mean as balancing can bring it.
    Even,
    /// Ahead of the mean.
    Ahead,
}

impl Standing {
    /// Of a thread with that progress (nanoseconds of CPU time), where `mean` is the mean progress
    /// of its domain and `period` the length of a period.
    ///
    /// The rule is the paper's (section 2.2): behind is what is below the mean plus a margin. By it
    /// a thread exactly at the mean is behind, which is right for deciding and misleading on a screen;
    /// so threads within one period of the mean, which is what one swap can change, are even with it.
    #[must_use]
    pub fn of(progress: i64, mean: f64, period: Nanos) -> Self {
        let margin = Margins::default().equal * period.0 as f64;
        if (progress as f64 - mean).abs() <= period.max(EVEN_AT_LEAST).0 as f64 {
            Self::Even
        } else if (progress as f64) < mean + margin {
            Self::Behind
        } else {
            Self::Ahead
        }
    }

    /// The name of the state, as it is shown.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Even => "level",
            Self::Ahead => "ahead",
        }
    }
}

/// The speed of a CPU compared with those of its domain, or why it has none.
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
    /// It has threads, and all of them block.
    Idle,
}

impl Pace {
    /// The name of the standing, as it is shown.
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
    /// The thread that this is about.
    pub id: ThreadId,
    /// Its process; none where the event that names it was lost.
    pub pid: Option<Pid>,
    /// Its name as the kernel has it: it is made printable where it is shown.
    pub name: String,
    /// The domain in which it is balanced.
    pub domain: DomainId,
    /// CPU on which it was last found; none before the first point.
    pub cpu: Option<CpuId>,
    /// Progress in nanoseconds of CPU time.
    pub progress: i64,
    /// Times that evenly moved it.
    pub moved: u64,
    /// Times that it was found on another CPU to which evenly had not moved it.
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
                spinning: (s.unreported == 0).then(|| s.spun.0 as f64 / total),
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

    /// All changes of CPU that were observed.
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
    /// What each of its CPUs does.
    pub cpus: BTreeMap<CpuId, CpuState>,
    /// Progress of its threads, in nanoseconds; none without threads.
    pub spread: Option<Spread>,
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
        let speeds = Spread::of(self.cpus.values().filter_map(CpuState::speed));
        let k = (self.threads / self.cpus.len().max(1)).max(1) as f64;
        let margin = Margins::default().fast / k;
        self.cpus.iter().map(move |(&id, c)| {
            let pace = match (c.speed(), speeds) {
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
    /// What has happened.
    pub what: Happened,
}

/// The content of a line of history.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// A thread changed its CPU, or was to.
    Migration {
        /// Name of the thread.
        name: String,
        /// The thread that was moved.
        id: ThreadId,
        /// The CPU that it was on.
        from: CpuId,
        /// The CPU on which it is now.
        to: CpuId,
        /// Why evenly moved it; none where another did (the kernel, the program, another evenly).
        reason: Option<Reason>,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// A message of the balancer.
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
    /// By the name of the thread.
    Name,
    /// By the id of the thread.
    Tid,
    /// By the CPU that it is on.
    Cpu,
    /// By progress, those with least first.
    Progress,
    /// Share running, greatest first.
    Running,
    /// Share spinning, greatest first; threads without a probe last.
    Spinning,
    /// Share waiting, greatest first.
    Waiting,
    /// Share blocked, greatest first.
    Blocked,
    /// By migrations, those with most first.
    Migrations,
}

impl Sort {
    /// The column by which is sorted next.
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

    /// The name of the column, as it is shown.
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

/// A thread, with the figures that depend on its domain.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The thread of the row.
    pub thread: &'a ThreadState,
    /// Progress minus the mean of the domain, in nanoseconds.
    pub lead: f64,
    /// The same in a word.
    pub standing: Standing,
    /// How it spent the window.
    pub shares: Shares,
}

//! All that is shown: how events change it, and what is computed from it.
//!
//! Invariant: every point names all threads and CPUs of its domain, so events that were lost on the
//! way (the feed drops the oldest when the screen is slow) are healed by the next point.

use super::window::{Spent, Traffic, Weighted};
use super::{DomainState, Happened, RECENT, Rates, Recent, Row, Sort, Standing, ThreadState};
use crate::{OtherEvenly, OtherState};
use evenly_engine::{Event, MoveRecord, PointRecord};
use evenly_model::efficiency::{Efficiency, Stay};
use evenly_model::metrics::Spread;
use evenly_model::{DomainId, Nanos, ThreadId};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// All that is shown.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Time of the latest event.
    pub now: Nanos,
    /// What each domain does.
    pub domains: BTreeMap<DomainId, DomainState>,
    /// What each thread does.
    pub threads: HashMap<ThreadId, ThreadState>,
    /// Recent history, oldest first.
    pub recent: VecDeque<Recent>,
    /// Events that were dropped because the screen was slow.
    pub missed: u64,
    /// Whether no more events will come.
    pub ended: bool,
    /// The other evenly that balances the program, or did.
    pub balancer: Option<OtherEvenly>,
    asked: bool,
    stood_down: bool,
    log_all: bool,
}

impl View {
    /// An empty view. With `log_all` the history also shows changes of CPU that others made: useful
    /// where evenly only observes, too many where it balances and the kernel moves threads as well.
    #[must_use]
    pub fn new(log_all: bool) -> Self {
        Self { log_all, ..Self::default() }
    }

    /// Sets the other evenly that balances the program; with None, the one that did is gone.
    /// Returns whether that is a change. The history shows all changes after the first call.
    pub fn balanced_by(&mut self, balancer: Option<OtherEvenly>) -> bool {
        let first = !std::mem::replace(&mut self.asked, true);
        let gone = self.balancer.map(|b| OtherEvenly { state: OtherState::Gone, ..b });
        let balancer = balancer.or(gone);
        let before = std::mem::replace(&mut self.balancer, balancer);
        // What it has given grows all the time.
        if before.map(|b| (b.pid, b.state)) == balancer.map(|b| (b.pid, b.state)) {
            return false;
        }
        let news = balancer.filter(|_| !first).map(|b| {
            let same = before.is_some_and(|before| before.pid == b.pid);
            let what = match b.state {
                OtherState::Working if same => "goes on",
                OtherState::Working => "balances the program",
                OtherState::Stopped => "has stopped",
                OtherState::Gone => "has ended",
            };
            Happened::Note(format!("evenly (pid {}) {what}", b.pid))
        });
        if let Some(what) = news {
            self.log(Recent { at: self.now, domain: None, what });
        }
        true
    }

    /// Takes in what has happened.
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
                // No other event reports it.
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
                    unreported: u32::from(r.spinning.is_none()),
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
            // The record's CPU includes the move of this point; any other change was made by
            // others.
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
        d.spread = Spread::of(p.threads.iter().map(|t| t.progress as f64));
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

    /// The threads, sorted. Equal ones stay in the order of their ids, so rows do not jump.
    #[must_use]
    pub fn rows(&self, only: Option<DomainId>, sort: Sort, reverse: bool) -> Vec<Row<'_>> {
        let of_domain: HashMap<DomainId, (f64, Nanos)> = self
            .shown(only)
            .map(|(id, d)| (id, (d.spread.map_or(0.0, |s| s.mean), d.period())))
            .collect();
        let mut rows: Vec<Row<'_>> = self
            .threads
            .values()
            .filter_map(|thread| {
                let &(mean, period) = of_domain.get(&thread.domain)?;
                // A thread that joined since the last point starts at the mean.
                let (lead, standing) = if thread.cpu.is_some() {
                    (thread.progress as f64 - mean, Standing::of(thread.progress, mean, period))
                } else {
                    (0.0, Standing::Even)
                };
                Some(Row { thread, lead, standing, shares: thread.shares() })
            })
            .collect();
        rows.sort_by(|a, b| {
            let order = match sort {
                // Threads that are even count as equal: which one leads by a hair changes all the time.
                Sort::Mean => a.standing.cmp(&b.standing).then_with(|| {
                    if a.standing == Standing::Even {
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

    /// Where the time of the last [`WINDOW`](super::WINDOW) went, of all threads that are shown.
    /// None where nothing is measured yet.
    #[must_use]
    pub fn efficiency(&self, only: Option<DomainId>) -> Option<Efficiency> {
        let shown = self.threads.values().filter(|t| only.is_none_or(|d| d == t.domain));
        Efficiency::of(shown.filter(|t| t.is_measured()).map(|t| {
            let s = t.spent.sum();
            Stay {
                ran_s: s.ran.as_secs_f64(),
                spun_s: (s.unreported == 0).then(|| s.spun.as_secs_f64()),
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

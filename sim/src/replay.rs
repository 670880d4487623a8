//! What a policy would have decided in a run that was recorded.
//!
//! At each recorded point the policy is given what was observed then, and its plan is set beside
//! what was done. Its decisions have no effect: at the next point it is given again what was
//! observed, not what would have come of them.
//!
//! Where agents moved threads, or an arm decided in place of the policy, the same do here, if the policy has them.
//!
//! Invariant: the policy sees nothing that the recording does not hold. Masks are not recorded:
//! every thread may go to every CPU of its domain.

use evenly_engine::{Event, PointRecord};
use evenly_model::{
    CpuSet, CpuView, DomainId, FULL_CAPACITY, Nanos, Plan, Reason, Snapshot, ThreadId, ThreadView,
};
use evenly_policy::{Policy, PolicyInfo, Spreading};
use serde::Serialize;
use std::collections::BTreeMap;

/// A move, decided or carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReplayMove {
    /// The thread, by the id that it had.
    pub tid: i32,
    /// The CPU that it was on.
    pub from: u32,
    /// The CPU that it goes to.
    pub to: u32,
    /// Why the policy moves it.
    pub reason: Reason,
}

/// One point at which one of the two moved something, or gave weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayPoint {
    /// Time since balancing began.
    pub at_s: f64,
    /// The domain that decides.
    pub domain: u32,
    /// Number of the point.
    pub point: u64,
    /// The moves that were recorded.
    pub was: Vec<ReplayMove>,
    /// What the policy would have done.
    pub would: Vec<ReplayMove>,
    /// Parts of their CPUs that threads were to have from then on, by their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub was_weights: Vec<(i32, f64)>,
    /// Those that the policy would have given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would_weights: Vec<(i32, f64)>,
}

/// A recording seen by a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Replay {
    /// Points that the policy decided at.
    pub points: u64,
    /// Points without threads (thinned out), or at which balancing was paused: left out.
    pub left_out: u64,
    /// Moves that were carried out at these points.
    pub moved: u64,
    /// Moves that the policy would have made.
    pub would_move: u64,
    /// Points at which weights were given.
    pub weighed: u64,
    /// Points at which the policy would have given some.
    pub would_weigh: u64,
    /// Points at which the same threads would have gone to the same CPUs, and have been given the same weights.
    pub same: u64,
    /// What the policy looks at and a recording does not hold, where there is such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<&'static str>,
    /// The points at which one of the two moved something, or gave weights.
    pub decisions: Vec<ReplayPoint>,
}

/// What is not in a recording, for a policy that places threads by load.
const LACKING: &str = "distances between NUMA nodes, memory, messages, and what ranks said of their \
                       computing: it decides by progress alone";
/// What is not in this one, for a policy that gives weights.
const SILENT: &str = "turns of computing and waiting, because no thread reported any (evenly run --probe on): \
                      it spreads threads evenly, and nothing else";

/// What is in no recording, for a policy that moves threads within phases.
const BETWEEN: &str = "what happens between two points, where it moves threads while they meet often: at points it only \
                       spreads them then";
/// The same for a policy with arms, whose choice is by what happens there.
const CHOICE: &str = "what happens between two points, where it moves threads while they meet often (at points it only \
                      spreads them then), and by which it chooses its arms: it has those that acted in the recorded run";

struct Domain {
    policy: Box<dyn Policy>,
    /// Those that take its place, by their names.
    arms: Vec<(&'static str, Box<dyn Policy>)>,
    /// The one that did at the last point.
    arm: Option<usize>,
    /// What spreads threads where agents move them.
    spreading: Spreading,
    within_phases: bool,
    cpus: CpuSet,
    snapshot: Snapshot,
    /// Threads or CPUs have come or gone: the next point is a first one.
    changed: bool,
}

/// Shows the events of a recording to a policy.
#[must_use]
pub fn replay(events: &[Event], policy: &PolicyInfo) -> Replay {
    let mut domains: BTreeMap<DomainId, Domain> = BTreeMap::new();
    let mut of = |id: DomainId, act: &mut dyn FnMut(&mut Domain)| {
        act(domains.entry(id).or_insert_with(|| Domain {
            policy: (policy.make)(),
            arms: policy.arms.iter().map(|arm| (arm.name, (arm.make)())).collect(),
            arm: None,
            spreading: Spreading::default(),
            within_phases: policy.moves_within_phases(),
            cpus: CpuSet::new(),
            snapshot: Snapshot::default(),
            changed: true,
        }));
    };
    let has_turns = |e: &Event| match e {
        Event::Point(p) => p.threads.iter().any(|t| t.turns.is_some()),
        _ => false,
    };
    let silent = policy.gives_weights() && !events.iter().any(has_turns);
    let between = if policy.arms.is_empty() { BETWEEN } else { CHOICE };
    let lacks = policy.places_load().then_some(LACKING).or(silent.then_some(SILENT));
    let lacks = lacks.or(policy.moves_within_phases().then_some(between));
    let mut replay = Replay { lacks, ..Replay::default() };
    for event in events {
        match event {
            Event::Domain { domain, cpus, .. } => of(*domain, &mut |d| {
                (d.cpus, d.changed) = (cpus.clone(), true);
            }),
            Event::Joined { domain, .. } => of(*domain, &mut |d| d.changed = true),
            // Threads are distributed anew after a pause.
            Event::Point(p) if p.paused => {
                replay.left_out += 1;
                of(p.domain, &mut |d| d.changed = true);
            }
            Event::Point(p) if p.threads.is_empty() => replay.left_out += 1,
            Event::Point(p) => of(p.domain, &mut |d| replay.point(d, p)),
            Event::Left { .. } | Event::Note { .. } => {}
        }
    }
    replay
}

/// A weight as recordings have it.
fn rounded(weight: f64) -> f64 {
    (weight * 1e4).round() / 1e4
}

impl Replay {
    fn point(&mut self, d: &mut Domain, p: &PointRecord) {
        let plan = d.decide(p);
        let id = |t: ThreadId| t.tid.0;
        let was: Vec<ReplayMove> = (p.moves.iter().filter(|m| m.error.is_none()))
            .map(|m| ReplayMove { tid: id(m.id), from: m.from.0, to: m.to.0, reason: m.reason })
            .collect();
        let would: Vec<ReplayMove> = (plan.moves.iter())
            .filter_map(|m| {
                let (thread, to) = (p.threads.get(m.thread)?, d.snapshot.cpus.get(m.to)?);
                let from = thread.cpu.0;
                Some(ReplayMove { tid: id(thread.id), from, to: to.id.0, reason: m.reason })
            })
            .collect();
        self.points += 1;
        self.moved += was.len() as u64;
        self.would_move += would.len() as u64;
        let places = |moves: &[ReplayMove]| {
            let mut all: Vec<(i32, u32)> = moves.iter().map(|m| (m.tid, m.to)).collect();
            all.sort_unstable();
            all
        };
        let was_weights: Vec<(i32, f64)> =
            p.weights.iter().map(|&(t, weight)| (id(t), rounded(weight))).collect();
        let would_weights: Vec<(i32, f64)> = (plan.weights.iter())
            .filter_map(|w| Some((id(p.threads.get(w.thread)?.id), rounded(w.weight))))
            .collect();
        self.weighed += u64::from(!was_weights.is_empty());
        self.would_weigh += u64::from(!would_weights.is_empty());
        self.same += u64::from(places(&was) == places(&would) && was_weights == would_weights);
        let moves = was.len() + would.len();
        if moves + was_weights.len() + would_weights.len() > 0 {
            let (at_s, domain, point) = (p.at.as_secs_f64(), p.domain.0, p.point);
            let decided =
                ReplayPoint { at_s, domain, point, was, would, was_weights, would_weights };
            self.decisions.push(decided);
        }
    }
}

impl Domain {
    /// What is decided at this point: by who decided when it was recorded, as far as the policy has such.
    fn decide(&mut self, p: &PointRecord) -> Plan {
        let acted = p.arm.as_deref();
        let arm = self.arms.iter().position(|(name, _)| Some(*name) == acted);
        // Whoever takes the place of another begins with a distribution.
        self.changed |= std::mem::replace(&mut self.arm, arm) != arm;
        self.see(p);
        self.changed = false;
        let policy: &mut dyn Policy = match arm {
            Some(arm) => &mut *self.arms[arm].1,
            None if self.within_phases && p.agents => &mut self.spreading,
            None => &mut *self.policy,
        };
        let mut plan = Plan::default();
        policy.decide(&self.snapshot, &mut plan);
        plan
    }

    /// What the policy saw, or would have seen, at this point.
    fn see(&mut self, p: &PointRecord) {
        let s = &mut self.snapshot;
        s.point = if self.changed { 0 } else { p.point.max(1) };
        (s.now, s.elapsed, s.resolution) = (p.at, p.elapsed, Nanos::ZERO);
        s.held = p.held;
        s.others.clone_from(&p.others);
        s.cpus.clear();
        s.cpus.extend(p.cpus.iter().map(|c| CpuView {
            id: c.id,
            capacity: FULL_CAPACITY,
            threads: c.threads,
            speed: c.speed,
        }));
        s.masks = vec![vec![true; s.cpus.len()]];
        let cpus = &s.cpus;
        let at = |cpu| cpus.binary_search_by_key(&cpu, |c| c.id).unwrap_or(usize::MAX);
        s.threads = (p.threads.iter())
            .map(|t| ThreadView {
                id: t.id,
                cpu: at(t.cpu),
                progress: t.progress,
                ran: t.ran,
                waited: t.waited,
                blocked: t.blocked,
                spinning: t.spinning.filter(|_| !p.spins_progress).unwrap_or_default(),
                turns: t.turns,
                movable: true,
                mask: 0,
            })
            .collect();
    }
}

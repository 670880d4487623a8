//! The arms of a policy: others that take its place where they may be better, and are measured to be.
//!
//! Which may be is known by what can be seen of the program; whether it is, by how often its threads meet per second
//! ([`Trial`]), with the arm and without in turns. Without it the usual policy moves threads, or the kernel does alone where that
//! was found to be no slower ([`crate::lead`], [`crate::guard`]).
//!
//! ```text
//!   usual  --- threads have unequal work and share CPUs --->  compared: arm, usual, usual, arm ...
//!     ^                                                             |
//!     +--------------------- it is not better ----------------------+---> the arm acts, compared again now and then
//! ```
//!
//! An arm that gives threads parts of CPUs is tried where their work is unequal: where all have the same to do, parts gain
//! nothing. It begins, as what can be seen is right in most cases; and it learns for some epochs before it is measured.

use crate::agents::{Epochs, Work};
use crate::balancer::Balancer;
use crate::guard::Verdict;
use crate::lead::Turn;
use crate::managed::ManagedThread;
use crate::trial::Trial;
use crate::unequal::Unequal;
use crate::{Choice, Observer, weights};
use evenly_model::Nanos;
use evenly_policy::{Policy, PolicyInfo};

/// Epochs that a policy needs to know what threads compute.
const LEARNS: u32 = 6;
/// Barriers by which threads may be apart that meet: those that wait have reached the next one, and as some are asked earlier than
/// others they may be one more ahead.
const APART: u32 = 2;
/// For how long nothing may be known of epochs before an arm is left.
const UNKNOWN: Nanos = Nanos::from_millis(2_000);

/// A policy, and what is tried in its place.
pub(crate) struct Arms {
    usual: &'static PolicyInfo,
    policy: Box<dyn Policy>,
    others: Vec<Arm>,
    /// Which of the others acts, and which is compared with the usual one.
    acting: Option<usize>,
    compared: Option<usize>,
    unequal: Unequal,
    known_at: Nanos,
    /// Which one was found to be better, and what it is worth.
    found: Option<(&'static str, Verdict)>,
}

struct Arm {
    info: &'static PolicyInfo,
    policy: Box<dyn Policy>,
    /// None before there was a reason to try it.
    trial: Option<Trial>,
}

impl Arms {
    pub(crate) fn new(usual: &'static PolicyInfo) -> Self {
        let arm = |info: &'static PolicyInfo| Arm { info, policy: (info.make)(), trial: None };
        Self {
            usual,
            policy: (usual.make)(),
            others: usual.arms.iter().map(arm).collect(),
            acting: None,
            compared: None,
            unequal: Unequal::default(),
            known_at: Nanos::ZERO,
            found: None,
        }
    }

    /// The policy that moves threads now.
    pub(crate) fn acting(&self) -> &'static PolicyInfo {
        self.acting.map_or(self.usual, |arm| self.others[arm].info)
    }

    pub(crate) fn policy(&mut self) -> &mut dyn Policy {
        match self.acting {
            Some(arm) => &mut *self.others[arm].policy,
            None => &mut *self.policy,
        }
    }

    /// Whether an arm acts, or is compared.
    pub(crate) fn compares(&self) -> bool {
        self.compared.is_some()
    }

    /// Whether nothing is measured.
    pub(crate) fn is_settled(&self) -> bool {
        let trial = self.compared.and_then(|arm| self.others[arm].trial.as_ref());
        trial.is_none_or(Trial::is_decided)
    }

    /// The time to the next point; see [`Balancer::until_next_point`].
    pub(crate) fn period(&self, usual: Nanos) -> Nanos {
        let trial = self.compared.and_then(|arm| self.others[arm].trial.as_ref());
        trial.map_or(usual, |trial| trial.period(usual))
    }

    /// A balancing point on so many CPUs. Returns whether another acts from now on.
    fn point(
        &mut self,
        now: Nanos,
        epochs: Option<Epochs>,
        (threads, cpus): (&[ManagedThread], usize),
        is_answered: bool,
    ) -> bool {
        let before = self.acting;
        let disturbed = self.unequal.point(now, epochs, threads);
        if epochs.is_some() || self.known_at == Nanos::ZERO {
            self.known_at = now;
        }
        let crowded = threads.len() > cpus && cpus > 1;
        let is_known = now - self.known_at < UNKNOWN;
        let unequal = self.unequal.is_so();
        self.compared = None;
        for (i, arm) in self.others.iter_mut().enumerate() {
            let may_be_better = crowded && is_known && arm.info.gives_weights();
            if !may_be_better || !unequal || !(is_answered || arm.trial.is_some()) {
                arm.trial = None;
                continue;
            }
            let window = self.unequal.window();
            let trial = arm.trial.get_or_insert_with(|| Trial::of_learner(LEARNS, window, now));
            if let Some(epochs) = epochs {
                trial.point(now, epochs, disturbed);
                let is_better = trial.answer() == Some(true);
                let found = trial.verdict().filter(|_| is_better);
                self.found = found.map(|verdict| (arm.info.name, verdict));
            }
            let acts = trial.work() == Work::Move;
            if acts || !trial.is_decided() {
                (self.acting, self.compared) = (acts.then_some(i), Some(i));
                return self.acting != before;
            }
        }
        self.acting = None;
        before.is_some()
    }
}

/// How often all threads have met by now, and when they did last, by what they report of their barriers; None where they do not
/// count the same ones.
fn epochs(threads: &[ManagedThread], now: Nanos) -> Option<Epochs> {
    let (mut least, mut most, mut left_at) = (u32::MAX, 0, now);
    for t in threads {
        let said = t.account.report.last()?;
        (least, most) = (least.min(said.phases), most.max(said.phases));
        left_at = left_at.min(said.computes_since.unwrap_or(now));
    }
    let together = threads.len() > 1 && least > 0 && most - least <= APART;
    together.then_some(Epochs { count: least, at: left_at, of: 0, worth: 0 })
}

impl Balancer {
    /// Who moves threads from now on: the usual policy, or one of its arms.
    pub(crate) fn choose_arm(&mut self, now: Nanos, observers: &mut [Box<dyn Observer>]) {
        if self.options.policy.arms.is_empty() || !self.options.guard.enabled {
            return;
        }
        let epochs = epochs(&self.membership.threads, now);
        let of = (&self.membership.threads[..], self.snapshot.cpus.len());
        let changed = self.arms.point(now, epochs, of, self.lead.is_answered());
        let turn = match (self.arms.compares(), self.arms.acting) {
            (_, Some(_)) => Turn::Others,
            (true, None) => Turn::Compared,
            (false, None) => Turn::Usual,
        };
        self.lead.set_turn(turn);
        if !changed {
            return;
        }
        weights::take_back(&mut self.membership.threads, &mut self.actions);
        self.weights.anew = true;
        self.placement.placed = false;
        self.pauses.guard.disturbed(now);
        let name = self.arms.acting().name;
        self.notes.tell(now, &format!("{name} moves threads from now on"), observers);
    }

    /// What its arms came to, for the report.
    pub(crate) fn choice(&self) -> Option<Choice> {
        let (policy, verdict) = self.arms.found?;
        let rests = self.lead.would_rest() || self.pauses.guard.rests();
        let over = match (rests, self.lead.leads) {
            (true, _) => None,
            (false, true) => Some("moves within phases"),
            (false, false) => Some("moves by progress alone"),
        };
        Some(Choice { policy, over, verdict })
    }
}

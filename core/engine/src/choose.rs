//! Who moves threads from one point to the next: the usual policy, or one of its arms ([`crate::arms`]).

use crate::balancer::Balancer;
use crate::lead::Turn;
use crate::managed::ManagedThread;
use crate::promise::is_unequal;
use crate::{Choice, Observer, weights};
use evenly_model::Nanos;

impl Balancer {
    /// Who moves threads from now on: the usual policy, or one of its arms.
    pub(crate) fn choose_arm(&mut self, now: Nanos, observers: &mut [Box<dyn Observer>]) {
        let guard = &self.options.guard;
        if self.options.policy.arms.is_empty() || !guard.enabled || !guard.arms {
            return;
        }
        let place = (&self.snapshot.cpus[..], self.placement.open);
        let is_answered = self.lead.is_answered();
        // What threads report of short phases, in which agents move them, is exact; what they computed is estimated where they spin.
        let agents = self.agents.as_deref().filter(|_| self.lead.leads);
        let members = &self.membership.threads;
        let equal = || {
            let expected = |t: &ManagedThread| Some(agents?.expected(t.meta.id)?.0 as f64);
            let expected: Option<Vec<f64>> = members.iter().map(expected).collect();
            expected.is_some_and(|e| !is_unequal(e.iter().copied()))
        };
        let changed = self.arms.point(now, members, place, (is_answered, &equal));
        let turn = match (self.arms.compares(), self.arms.act()) {
            (_, true) => Turn::Others,
            (true, false) => Turn::Compared,
            (false, false) => Turn::Usual,
        };
        if self.lead.set_turn(turn) {
            self.pauses.guard.disturbed(now);
        }
        if !changed {
            return;
        }
        weights::take_back(&mut self.membership.threads, &mut self.actions);
        self.weights.anew = true;
        self.placement.placed = false;
        let name = self.arms.acting().name;
        self.notes.tell(now, &format!("{name} moves threads from now on"), observers);
    }

    /// What its arms came to, for the report.
    pub(crate) fn choice(&self) -> Option<Choice> {
        let (policy, verdict) = self.arms.choice()?;
        let rests = self.lead.would_rest() || self.pauses.guard.rests();
        let over = match (rests, self.lead.leads) {
            (true, _) => None,
            (false, true) => Some("moves within phases"),
            (false, false) => Some("moves by progress alone"),
        };
        Some(Choice { policy, over, verdict })
    }
}

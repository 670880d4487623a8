//! What a balancer amounted to: its sums, those of its agents, and what its threads have received.

use crate::agents::Agents;
use crate::lead::Turn;
use crate::{Balancer, DomainSummary, SearchSummary, ThreadSummary};
use evenly_model::Nanos;

impl Balancer {
    /// What this domain amounted to, and its threads.
    #[must_use]
    pub fn summary(&self, now: Nanos) -> (DomainSummary, Vec<ThreadSummary>, Vec<String>) {
        let (ledger, agents) = (&self.ledger, self.agents.as_deref());
        let threads = self.membership.summaries(now, |id| agents.map_or(0, |d| d.migrations(id)));
        let others = agents.map(Agents::account);
        let of_others = others.unwrap_or_default();
        let total: f64 = threads.iter().map(|t| t.ran_s + t.waited_s + t.blocked_s).sum();
        let part = |f: fn(&ThreadSummary) -> f64| {
            if total > 0.0 { threads.iter().map(f).sum::<f64>() / total } else { 0.0 }
        };
        let longest = threads.iter().map(|t| t.present_s).fold(0.0, f64::max);
        let least = threads
            .iter()
            .filter(|t| t.present_s > 0.9 * longest)
            .map(|t| t.computed_s() / t.present_s)
            .fold(f64::INFINITY, f64::min);
        let slot = ledger.slowest_slot();
        let migrations = ledger.migrations + of_others.migrations;
        let acted = migrations > 0 && self.moves_threads();
        // CPU time is progress only where all CPUs are equally fast.
        let equal_cpus = self.snapshot.cpus.windows(2).all(|c| c[0].capacity == c[1].capacity);
        let in_phases = self.options.policy.moves_within_phases();
        // Where threads never met the policy did all.
        let woke = others.filter(|o| o.points > 0 || !in_phases);
        let points = points(ledger.points, woke.map(|o| o.points), in_phases);
        let usable = self.surroundings.usable();
        let at_once = if woke.is_some() && !in_phases { usable.len().max(1) as f64 } else { 1.0 };
        let effort = self.effort();
        let cpu_time = ledger.cpu_time + of_others.cpu_time;
        let guard = &self.pauses.guard;
        let domain = DomainSummary {
            id: self.options.domain,
            cpus: usable.clone(),
            allowed: self.membership.allowed(),
            points,
            migrations,
            weighings: self.weights.times(),
            failed: ledger.failed + of_others.failed,
            cpu_s: cpu_time.as_secs_f64(),
            period_s: (now - self.began).as_secs_f64() / points.max(1) as f64 * at_once,
            cost: ledger.cost.and(&of_others.cost),
            search: SearchSummary::from(effort),
            threads: self.membership.most(),
            estimated_gain: (acted && slot > 0.0 && least.is_finite() && equal_cpus)
                .then(|| (least / slot).max(1.0)),
            verdict: self.lead.verdict().unwrap_or_else(|| guard.verdict()),
            choice: self.choice(),
            untried: self.arms.untried(),
            stood_down: self.lead.turn != Turn::Others && (guard.rests() || self.lead.rests()),
            rested_s: ledger.rested.as_secs_f64(),
            idle_s: woke.is_none().then(|| ledger.idle.as_secs_f64()),
            wait_share: part(|t| t.waited_s),
            blocked_share: part(|t| t.blocked_s),
        };
        let mut notes = self.notes.kept().to_vec();
        if self.options.policy.is_reactive() {
            notes.push(format!(
                "CPUs did no work of the program for {:.2} s while its threads waited for others: the \
                 cost of reacting, and the time of other programs",
                ledger.idle.as_secs_f64()
            ));
        }
        // What an arm gave that was left has been taken back.
        let gives = self.options.policy.gives_weights() || self.choice().is_some();
        notes.extend(self.weights.summary().filter(|_| gives));
        if effort.searches > 0 {
            let each = |sum: u64| sum as f64 / effort.searches as f64;
            notes.push(format!(
                "{} searches read the speeds of {:.1} threads each, of {:.1} that there were",
                effort.searches,
                each(effort.readings),
                each(effort.threads)
            ));
        }
        (domain, threads, notes)
    }
}

/// Balancing points: those of the balancer; the wake-ups of agents where each CPU has one; and both where agents
/// move threads within phases, as what they do not do the balancer does.
fn points(own: u64, agents: Option<u64>, in_phases: bool) -> u64 {
    match agents {
        Some(woke) if in_phases => own + woke,
        Some(woke) => woke,
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: two openings of barriers in place of the hundreds of points at which threads were moved.
    #[test]
    fn few_openings_do_not_hide_the_points_of_the_balancer() {
        assert_eq!(points(300, Some(2), true), 302);
        assert_eq!(points(300, Some(4_000), false), 4_000);
        assert_eq!(points(300, None, true), 300);
    }
}

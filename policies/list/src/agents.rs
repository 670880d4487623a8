//! The balancer of a domain with the agents of its policy.

use evenly_engine::{Agent, Balancer, BalancerOptions};
use evenly_model::{CpuSet, Nanos};
use evenly_phase::{Allowance, Helper, Openings, Phases};
use evenly_policy::Acts;
use evenly_secretary::Decentral;
use std::sync::Arc;

/// Where agents act, and what they may cost.
pub struct Setting<'a> {
    /// The CPUs of the domain that can be used now.
    pub usable: &'a CpuSet,
    /// The NUMA nodes of the domain, for agents that stay within them while few threads move; none for one.
    pub nodes: &'a [CpuSet],
    /// The period at first.
    pub period: Nanos,
    /// Whether the period varies by a tenth.
    pub jitter: bool,
    /// Seed of all that is random.
    pub seed: u64,
    /// What evenly may cost in all, as a part of one CPU.
    pub budget: f64,
    /// What all agents may cost that gain nothing, as a part of one CPU.
    pub of_agents: f64,
    /// How it becomes known that barriers of the program open; None where it does not, or these threads are of several domains.
    pub openings: Option<Arc<dyn Openings>>,
    /// The time at which balancing begins.
    pub now: Nanos,
}

/// The balancer of a domain, and the agents through which its policy acts between points, if it has any.
#[must_use]
pub fn balancer(
    options: BalancerOptions,
    setting: &Setting<'_>,
) -> (Balancer, Vec<Box<dyn Agent>>) {
    let now = setting.now;
    match (options.policy.acts, &setting.openings) {
        (Acts::OnEachCpu, _) => {
            let (nodes, period) = (setting.nodes, setting.period);
            let (caretaker, all) =
                Decentral::with_caretaker(options, nodes, period, setting.seed, now);
            (caretaker, all.agents(setting.jitter))
        }
        (Acts::WithinPhases(_), Some(openings)) => {
            let (caretaker, phases) = Phases::with_caretaker(options, openings.clone(), now);
            let rate = setting.of_agents / setting.usable.len().max(1) as f64;
            let helper = |cpu| -> Box<dyn Agent> {
                let allowance = Allowance::new(rate, setting.budget, now);
                Box::new(Helper::new(cpu, phases.clone(), allowance))
            };
            (caretaker, setting.usable.iter().map(helper).collect())
        }
        _ => (Balancer::new(options, now), Vec::new()),
    }
}

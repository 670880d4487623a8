//! Runs the real tracker, balancer and period control over a simulated machine.
//!
//! Invariant: nothing of the engine or of a policy is replaced here; only time is virtual.

use crate::Sim;
use evenly_engine::{
    Balancer, BalancerOptions, GuardOptions, Machine, Observer, Period, PeriodControl,
    PeriodOptions, Summary, Tracker, TrackerOptions,
};
use evenly_model::{CpuSet, DomainId, Nanos};
use evenly_policy::{Mechanism, POLICIES, by_name};

/// No policy has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy '{0}'; the policies are {names}", names = policy_names())]
pub struct UnknownPolicy(pub String);

fn policy_names() -> String {
    POLICIES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ")
}

/// How a simulated run is balanced.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    /// The period.
    pub period: PeriodOptions,
    /// The regression guard.
    pub guard: GuardOptions,
    /// Begin as soon as this many threads compute; None waits for them to stand still.
    pub expected: Option<u32>,
    /// For how long they must stand still.
    pub settle: Nanos,
    /// The CPUs that may be used; None for all.
    pub cpus: Option<CpuSet>,
}

impl DriverOptions {
    /// A fixed period, no guard, the usual settling.
    #[must_use]
    pub fn fixed(period: Nanos, seed: u64) -> Self {
        Self {
            period: PeriodOptions {
                period: Period::Fixed(period),
                budget: 0.01,
                slice: Nanos::from_millis(4),
                seed,
            },
            guard: GuardOptions { enabled: false, ..GuardOptions::default() },
            expected: None,
            settle: Nanos::from_millis(60),
            cpus: None,
        }
    }
}

/// What a simulated run amounted to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When the last thread ended; None where the limit came first.
    pub makespan: Option<Nanos>,
    /// Moves by the policy.
    pub migrations: u64,
    /// Balancing points.
    pub points: u64,
    /// CPU time that each thread received.
    pub progress: Vec<Nanos>,
    /// The engine's own account.
    pub summary: Summary,
}

/// A simulated machine with a balancer at work on it.
pub struct Driver {
    /// The machine.
    pub sim: Sim,
    /// The balancer of its one domain.
    pub balancer: Balancer,
    tracker: Tracker,
    control: PeriodControl,
    mechanism: Mechanism,
    next: Nanos,
}

impl Driver {
    /// Makes a balancer with the policy of that name.
    ///
    /// # Errors
    /// [`UnknownPolicy`].
    pub fn new(sim: Sim, policy: &str, options: &DriverOptions) -> Result<Self, UnknownPolicy> {
        let info = by_name(policy).ok_or_else(|| UnknownPolicy(policy.to_owned()))?;
        let cpus = options.cpus.clone().unwrap_or_else(|| sim.all_cpus());
        let balancer = Balancer::new(
            BalancerOptions {
                wanted: options.cpus.clone(),
                domain: DomainId(0),
                cpus,
                mechanism: info.mechanism,
                guard: options.guard,
            },
            (info.make)(),
            sim.now(),
        );
        let mut control = PeriodControl::new(options.period);
        let next = sim.now() + control.next_period();
        Ok(Self {
            sim,
            balancer,
            tracker: Tracker::new(TrackerOptions {
                expected: options.expected,
                settle: options.settle,
                eligible: None,
            }),
            control,
            mechanism: info.mechanism,
            next,
        })
    }

    /// How moves are carried out.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Moves by the policy so far.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.balancer.summary(self.sim.now()).0.migrations
    }

    /// Runs the machine to the next balancing point, and carries that out. False once the program
    /// has ended.
    pub fn step(&mut self, observers: &mut [Box<dyn Observer>]) -> bool {
        self.sim.run_until(self.next);
        if self.sim.makespan().is_some() {
            return false;
        }
        let candidates = self.sim.candidates();
        let now = self.sim.now();
        for selection in self.tracker.look(now, &candidates) {
            if let Some(mask) = self.sim.original_mask(selection.thread.id) {
                self.balancer.join(&mut self.sim, selection, &mask, observers);
            }
        }
        if self.tracker.started() {
            let period = self.control.current();
            for (id, times) in self.balancer.point(&mut self.sim, period, observers) {
                self.tracker.idle(id, times, now);
            }
            self.control.cost(self.balancer.last_cost());
        }
        self.next = self.sim.now() + self.control.next_period();
        true
    }

    /// Ends balancing and gives the account.
    pub fn finish(&mut self) -> Outcome {
        self.balancer.finish(&mut self.sim);
        let (domain, threads, notes) = self.balancer.summary(self.sim.now());
        Outcome {
            makespan: self.sim.makespan(),
            migrations: domain.migrations,
            points: domain.points,
            progress: self.sim.progress(),
            summary: Summary { domains: vec![domain], threads, notes },
        }
    }
}

/// Runs a program under a policy until it ends, or until `limit`.
///
/// # Errors
/// [`UnknownPolicy`].
pub fn simulate(
    sim: Sim,
    policy: &str,
    options: &DriverOptions,
    limit: Nanos,
) -> Result<Outcome, UnknownPolicy> {
    let mut driver = Driver::new(sim, policy, options)?;
    while driver.sim.now() < limit && driver.step(&mut []) {}
    Ok(driver.finish())
}

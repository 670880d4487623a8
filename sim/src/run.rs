//! From a description to a report: the run under the policy that was asked for, and the one under
//! `static` that it is compared with.
//!
//! Invariant: both runs have the same machine, programs and seed.

use crate::report::{Report, SCHEMA, thinned};
use crate::{
    Barrier, DriverOptions, IdealOptions, Kernel, Samples, Scenario, Sim, ideal, simulate_seen_by,
};
use evenly_engine::Observer;
use evenly_model::Nanos;
use evenly_policies::reference;
use evenly_policy::{Mechanism, PolicyInfo};
use evenly_theory::{self as theory, Shape};

/// The name under which the idealised algorithm of section 3 runs.
pub const IDEAL: &str = "ideal";

/// The most balancing points times threads and CPUs that a run may have: minutes, where a central
/// balancer decides, and below an hour for `secretary` on the largest machines.
const MOST_WORK: u128 = 200_000_000;
/// The most threads that a run may have.
pub const MOST_THREADS: u32 = 1_000_000;
/// The most CPUs.
pub const MOST_CPUS: u32 = 1_000_000;
/// The most threads times CPUs, but for [`IDEAL`]: each thread has a mask of its own, with a bit for each CPU, in
/// the machine, in the engine and in what the run is made of: a GiB, about.
pub(crate) const MOST_MASK_BITS: u64 = 100_000 * 16_384;

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Not possible with the idealised algorithm.
    #[error(
        "the policy ideal is the analysis of section 3: equal threads on equal CPUs, barriers that \
         block, nothing else ({found} was asked for); try juggle, which runs everywhere"
    )]
    Ideal {
        /// What is beyond it.
        found: String,
    },
    /// It would take too long.
    #[error(
        "about {points} balancing points with {threads_and_cpus} threads and CPUs would take too long; at most \
         {most} points are simulated with so many: choose a longer period (at least {least})"
    )]
    TooLong {
        /// How many balancing points it would have.
        points: u128,
        /// How many threads and CPUs there are together.
        threads_and_cpus: usize,
        /// The most balancing points with so many.
        most: u128,
        /// The least period that would do.
        least: Nanos,
    },
    /// The masks of threads would fill the memory.
    #[error(
        "the masks of {threads} threads on {cpus} CPUs are too large; at most {most} threads are simulated on so \
         many CPUs, but with --policy {IDEAL}"
    )]
    TooMany {
        /// How many threads it would have.
        threads: usize,
        /// How many CPUs.
        cpus: usize,
        /// The most threads on so many CPUs.
        most: u64,
    },
    /// It failed, and something costs far more than it is a part of.
    #[error("{cost}: {error}")]
    Dear {
        /// Which cost, and beside what.
        cost: String,
        /// What came of it.
        error: Box<RunError>,
    },
    /// Some thread never gets its work done.
    #[error(
        "the programs have not ended after {limit} of simulated time; is there a CPU for each \
         thread, and an end to the interference?"
    )]
    NoEnd {
        /// When it was given up.
        limit: Nanos,
    },
}

/// n equal threads on m equal CPUs, as `evenly simulate` takes it from its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simple {
    /// n threads on m CPUs.
    pub shape: Shape,
    /// e: CPU time of a thread in one phase.
    pub phase: Nanos,
    /// lambda: the balancing period.
    pub period: Nanos,
    /// How many phases each thread has.
    pub phases: u32,
    /// What is between them.
    pub barrier: Barrier,
    /// Whether lambda varies by a tenth.
    pub jitter: bool,
    /// Seed of all that is random.
    pub seed: u64,
}

impl Simple {
    /// The same as a scenario: sharing is fluid, nothing costs anything, and the kernel lets an
    /// idle CPU pull threads that are not pinned.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let (n, m) = (self.shape.n() as usize, self.shape.m() as usize);
        Scenario {
            phases: self.phases,
            barrier: self.barrier,
            kernel: Kernel { reactive: true, rotate: None },
            seed: self.seed,
            ..Scenario::new(n, m, self.phase)
        }
    }

    /// Balancing as the paper analyses it.
    #[must_use]
    pub fn options(&self) -> DriverOptions {
        let analysed = DriverOptions::as_analysed(self.period, self.seed);
        DriverOptions { jitter: self.jitter, ..analysed }
    }

    fn static_time(&self) -> Nanos {
        let c = u64::from(self.shape.ceil()) * u64::from(self.phases);
        Nanos(self.phase.0.saturating_mul(c))
    }

    /// Runs it under a policy.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, policy: &'static PolicyInfo) -> Result<Report, RunError> {
        self.run_with(policy, &self.options())
    }

    /// The same, balanced in another way than the paper's analysis has it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run_with(
        &self,
        policy: &'static PolicyInfo,
        options: &DriverOptions,
    ) -> Result<Report, RunError> {
        check_size(self.shape.n() as usize, self.shape.m() as usize)?;
        let report = run(&self.scenario(), policy, options, self.static_time())?;
        let only_at_points = policy.mechanism() == Mechanism::Pin
            && !policy.is_on_each_cpu()
            && !policy.moves_within_phases()
            && !self.options().for_policy(policy).at_blocking;
        Ok(Report { bound_speedup: Some(self.bound(only_at_points)), ..report })
    }

    /// UB(RelativeSpeedup) of section 4. Eq. 2 holds for what is balanced once a period and at no
    /// other moment, and for the first phase only: period and phase need not begin together later.
    fn bound(&self, only_at_points: bool) -> f64 {
        if only_at_points && self.phases == 1 && !self.jitter {
            theory::speedup_bound(self.shape, self.phase, self.period)
        } else {
            theory::upper_bound(self.shape.n(), self.shape.m())
        }
    }

    /// Runs it under the idealised algorithm of section 3, [`IDEAL`].
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run_ideal(&self) -> Result<Report, RunError> {
        if self.barrier != Barrier::Block {
            return Err(RunError::Ideal { found: String::from("another barrier") });
        }
        if self.jitter {
            return Err(RunError::Ideal { found: String::from("jitter") });
        }
        let (n, m) = (self.shape.n() as usize, self.shape.m() as usize);
        check_length(self.static_time(), self.period, n + m)?;
        let options = IdealOptions {
            phases: self.phases,
            samples: true,
            ..IdealOptions::new(self.shape, self.phase, self.period)
        };
        let out = ideal(&options);
        let makespan_s = out.makespan_s();
        let static_s = self.static_time().as_secs_f64();
        Ok(Report {
            schema: SCHEMA,
            policy: IDEAL.to_owned(),
            scenario: String::from("flags"),
            threads: n,
            cpus: m,
            period_s: self.period.as_secs_f64(),
            seed: self.seed,
            makespan_s,
            programs_s: vec![makespan_s],
            static_s,
            relative_speedup: static_s / makespan_s,
            bound_speedup: Some(self.bound(true)),
            migrations: out.migrations,
            kernel_migrations: 0,
            stood_down: false,
            balancing_points: out.points,
            readings: out.readings,
            searches: 0,
            observations: 0,
            observations_most: 0,
            progress: thinned(&out.samples),
        })
    }
}

fn check_size(threads: usize, cpus: usize) -> Result<(), RunError> {
    let most = MOST_MASK_BITS / cpus.max(1) as u64;
    if threads as u64 <= most { Ok(()) } else { Err(RunError::TooMany { threads, cpus, most }) }
}

/// Of all costs of a scenario that are more than what they are a part of, the greatest in proportion to it, in words.
#[must_use]
pub fn dear_cost(scenario: &Scenario, options: &DriverOptions) -> Option<String> {
    let period = least_period(options);
    let c = &scenario.costs;
    let threads = scenario.threads.len() as u64;
    let phase = scenario.threads.iter().map(|t| t.work_of(0)).min()?;
    let each = |cost: Nanos| Nanos(cost.0.saturating_mul(threads));
    let all = [
        ("point", c.point, c.point, "a period", period),
        ("read", c.read, each(c.read), "a period", period),
        ("place", c.place, each(c.place), "a period", period),
        ("late", c.late, c.late, "a period", period),
        ("refill", c.refill, c.refill, "a phase", phase),
        ("wake", c.wake, each(c.wake), "a phase", phase),
    ];
    let times = |whole: Nanos, of: Nanos| whole.0 as f64 / of.0.max(1) as f64;
    let dear = all.into_iter().filter(|(_, _, whole, _, of)| whole > of);
    let most = dear.max_by(|a, b| times(a.2, a.4).total_cmp(&times(b.2, b.4)));
    most.map(|(key, cost, whole, part, of)| {
        let for_all =
            if whole > cost { format!(" for each of {threads} threads") } else { String::new() };
        format!("costs.{key} is {cost}{for_all}, where {part} is {of}")
    })
}

fn check_length(length: Nanos, period: Nanos, threads_and_cpus: usize) -> Result<(), RunError> {
    let points = u128::from(length.0) / u128::from(period.0.max(1));
    let work = points * threads_and_cpus as u128;
    if work <= MOST_WORK {
        return Ok(());
    }
    let least = u128::from(length.0) * threads_and_cpus as u128 / MOST_WORK + 1;
    let most = MOST_WORK / threads_and_cpus as u128;
    Err(RunError::TooLong { points, threads_and_cpus, most, least: Nanos(least as u64) })
}

/// Runs a scenario under a policy and under `static`. `expected` is about how long a run may be; it is
/// given up after twenty times as long.
///
/// # Errors
/// [`RunError`].
pub fn run(
    scenario: &Scenario,
    policy: &'static PolicyInfo,
    options: &DriverOptions,
    expected: Nanos,
) -> Result<Report, RunError> {
    run_both(least_period(options), scenario, policy, options, expected).map_err(|error| {
        match dear_cost(scenario, options) {
            Some(cost) => RunError::Dear { cost, error: Box::new(error) },
            None => error,
        }
    })
}

fn least_period(options: &DriverOptions) -> Nanos {
    match options.period.period {
        evenly_engine::Period::Fixed(p) => p,
        evenly_engine::Period::Auto => Nanos::from_millis(5),
    }
}

fn run_both(
    period: Nanos,
    scenario: &Scenario,
    policy: &'static PolicyInfo,
    options: &DriverOptions,
    expected: Nanos,
) -> Result<Report, RunError> {
    check_size(scenario.threads.len(), scenario.cpus.len())?;
    let threads_and_cpus = scenario.threads.len() + scenario.cpus.len();
    check_length(expected, period, threads_and_cpus)?;
    let limit = Nanos(expected.0.saturating_mul(20).max(1_000_000_000));
    let samples = Samples::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(samples.clone())];
    let own = options.for_policy(policy);
    let out = simulate_seen_by(Sim::new(scenario.clone()), policy, &own, limit, &mut observers);
    let no_end = RunError::NoEnd { limit };
    let makespan = out.makespan.ok_or(no_end.clone())?;
    let reference = reference();
    let static_makespan = if policy.name == reference.name {
        makespan
    } else {
        let compared = options.for_policy(reference);
        // What balancing costs is not lost where nothing is balanced.
        let mut unbalanced = scenario.clone();
        unbalanced.costs.point = Nanos::ZERO;
        simulate_seen_by(Sim::new(unbalanced), reference, &compared, limit, &mut [])
            .makespan
            .ok_or(no_end)?
    };
    let (makespan_s, static_s) = (makespan.as_secs_f64(), static_makespan.as_secs_f64());
    Ok(Report {
        schema: SCHEMA,
        policy: policy.name.to_owned(),
        scenario: String::from("flags"),
        threads: scenario.threads.len(),
        cpus: scenario.cpus.len(),
        period_s: period.as_secs_f64(),
        seed: scenario.seed,
        makespan_s,
        programs_s: out.programs.iter().flatten().map(|p| p.as_secs_f64()).collect(),
        static_s,
        relative_speedup: static_s / makespan_s,
        bound_speedup: None,
        migrations: out.migrations,
        kernel_migrations: out.kernel_migrations,
        stood_down: out.summary.domains.iter().any(|d| d.stood_down),
        balancing_points: out.points,
        readings: out.readings,
        searches: out.search.searches,
        observations: out.search.observations,
        observations_most: out.search.most,
        progress: thinned(&samples.taken()),
    })
}

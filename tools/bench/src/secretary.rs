//! A balancer for each CPU (`secretary`) against one for all (`juggle`), in virtual time: from how many
//! CPUs on does the decentralised one pay?
//!
//! One phase of n threads on m CPUs. The balancer of `juggle` reads all threads one after the other,
//! decides, and moves one after the other; the program runs on meanwhile, and what was read grows old.
//! The balancers of `secretary` do the same to few threads each, beside each other. What neither is
//! charged for is the CPU time that balancers take from threads.
//!
//! Invariant: both run on equal machines with equal costs, and nothing is computed that was not
//! simulated.

use crate::show::{print, table, tell};
use anyhow::Context;
use clap::Args;
use evenly_engine::PeriodOptions;
use evenly_model::Nanos;
use evenly_policies::by_name;
use evenly_sim::{Costs, DriverOptions, Scenario, Sim, simulate};
use serde::Serialize;
use std::path::PathBuf;

/// The arguments of `evenly-bench secretary`.
#[derive(Debug, Args)]
pub(crate) struct SecretaryArgs {
    /// Numbers of CPUs
    #[arg(
        long,
        value_name = "M,M,...",
        value_delimiter = ',',
        default_values_t = [16, 64, 256, 1_024, 4_096],
        value_parser = clap::value_parser!(u32).range(4..=16_384)
    )]
    cpus: Vec<u32>,
    /// Threads for each four CPUs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=24))]
    threads_per_4: u32,
    /// Length of the phase, in milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=100_000))]
    phase_ms: u64,
    /// Lambda, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    period_ms: u64,
    /// What reading one thread takes, in nanoseconds
    #[arg(long, default_value_t = 800)]
    read_ns: u64,
    /// What moving one thread takes, in nanoseconds
    #[arg(long, default_value_t = 17_000)]
    place_ns: u64,
    /// Seeds; the figures are means
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Write everything to FILE as JSON (evenly.bench-secretary/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One policy on one machine.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Arm {
    /// Mean makespan, in seconds.
    makespan_s: f64,
    /// The limit, e n / m, over it.
    of_limit: f64,
    /// Readings of a thread's times.
    readings: f64,
    /// The same in one period, for each CPU.
    readings_per_cpu_and_period: f64,
    /// How many threads were moved.
    migrations: f64,
    /// What one hand does without a break in one round: reading and moving, in milliseconds.
    round_ms: f64,
    /// Readings of one search, and as part of all threads; 0 where there are no searches.
    observations_per_search: f64,
    observed_part: f64,
}

/// One number of CPUs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Row {
    cpus: u32,
    threads: u32,
    /// Whether reading and moving take time.
    costs: bool,
    juggle: Arm,
    secretary: Arm,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    phase_s: f64,
    period_s: f64,
    read_ns: u64,
    place_ns: u64,
    runs: u32,
    rows: &'a [Row],
    /// The least number of CPUs from which on `secretary` is at least as fast, with costs; null where
    /// there is none.
    crossover_cpus: Option<u32>,
}

impl SecretaryArgs {
    fn arm(&self, policy: &str, n: u32, m: u32, costs: bool) -> anyhow::Result<Arm> {
        let info = by_name(policy).with_context(|| format!("there is no policy '{policy}'"))?;
        let e = Nanos::from_millis(self.phase_ms);
        let period = Nanos::from_millis(self.period_ms);
        let (read, place) = if costs { (self.read_ns, self.place_ns) } else { (0, 0) };
        let mut sum = [0.0; 7];
        for seed in 1..=u64::from(self.runs) {
            let scenario = Scenario {
                costs: Costs { read: Nanos(read), place: Nanos(place), ..Costs::default() },
                seed,
                ..Scenario::new(n as usize, m as usize, e)
            };
            let analysed = DriverOptions::as_analysed(period, seed);
            // No thread is limited to a part of one CPU.
            let period_options = PeriodOptions { budget: f64::INFINITY, ..analysed.period };
            let options = DriverOptions { jitter: true, period: period_options, ..analysed };
            let limit = e.scale(50.0);
            let out = simulate(Sim::new(scenario), info, &options, limit);
            let makespan = out.makespan.context("the simulated program does not end")?;
            let rounds = out.points.max(1) as f64;
            let each = (out.readings * read + out.migrations * place) as f64 / rounds / 1e6;
            let searches = out.search.searches.max(1) as f64;
            let values = [
                makespan.as_secs_f64(),
                out.readings as f64,
                out.migrations as f64,
                each,
                out.search.observations as f64 / searches,
                out.search.observations as f64 / out.search.threads.max(1) as f64,
                makespan.as_secs_f64() / period.as_secs_f64(),
            ];
            sum.iter_mut().zip(values).for_each(|(s, v)| *s += v);
        }
        let [makespan_s, readings, migrations, round_ms, per_search, part, periods] =
            sum.map(|s| s / f64::from(self.runs));
        Ok(Arm {
            makespan_s,
            of_limit: e.as_secs_f64() * f64::from(n) / f64::from(m) / makespan_s,
            readings,
            readings_per_cpu_and_period: readings / periods / f64::from(m),
            migrations,
            round_ms,
            observations_per_search: per_search,
            observed_part: part,
        })
    }
}

/// The least number of CPUs from which on the decentralised one is at least as fast.
fn crossover(rows: &[Row]) -> Option<u32> {
    let with = rows.iter().filter(|r| r.costs).rev();
    with.take_while(|r| r.secretary.makespan_s <= r.juggle.makespan_s).last().map(|r| r.cpus)
}

fn text(rows: &[Row]) -> String {
    let head =
        ["CPUs", "threads", "costs", "policy", "makespan", "of limit", "readings", "per CPU"];
    let more = ["moves", "round", "observed"];
    let mut lines = vec![head.iter().chain(&more).map(|s| (*s).to_owned()).collect::<Vec<_>>()];
    for r in rows {
        for (name, a) in [("juggle", &r.juggle), ("secretary", &r.secretary)] {
            let observed = if a.observations_per_search > 0.0 {
                format!("{:.1} ({:.1} %)", a.observations_per_search, 100.0 * a.observed_part)
            } else {
                String::from("all")
            };
            lines.push(vec![
                r.cpus.to_string(),
                r.threads.to_string(),
                String::from(if r.costs { "yes" } else { "no" }),
                name.to_owned(),
                format!("{:.3} s", a.makespan_s),
                format!("{:.2} %", 100.0 * a.of_limit),
                format!("{:.0}", a.readings),
                format!("{:.2}", a.readings_per_cpu_and_period),
                format!("{:.0}", a.migrations),
                format!("{:.3} ms", a.round_ms),
                observed,
            ]);
        }
    }
    table(&lines)
}

/// Runs all and shows them.
///
/// # Errors
/// Where a run does not end, or the file cannot be written.
pub(crate) fn compare(args: &SecretaryArgs) -> anyhow::Result<()> {
    let mut sizes = args.cpus.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let mut rows = Vec::new();
    for costs in [false, true] {
        for &cpus in &sizes {
            let threads = (cpus * args.threads_per_4).div_ceil(4);
            tell(&format!(
                "{threads} threads on {cpus} CPUs{}",
                if costs { ", with costs" } else { "" }
            ));
            let arm = |policy| args.arm(policy, threads, cpus, costs);
            let (juggle, secretary) = (arm("juggle")?, arm("secretary")?);
            rows.push(Row { cpus, threads, costs, juggle, secretary });
        }
    }
    let crossover_cpus = crossover(&rows);
    print(&text(&rows))?;
    print(&match crossover_cpus {
        Some(m) => format!("with costs, secretary is at least as fast from {m} CPUs on\n"),
        None => String::from("with costs, juggle is faster on the largest machine as well\n"),
    })?;
    if let Some(path) = &args.json {
        let report = Report {
            schema: "evenly.bench-secretary/1",
            phase_s: args.phase_ms as f64 / 1e3,
            period_s: args.period_ms as f64 / 1e3,
            read_ns: args.read_ns,
            place_ns: args.place_ns,
            runs: args.runs,
            rows: &rows,
            crossover_cpus,
        };
        let file = std::fs::File::create(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        serde_json::to_writer_pretty(file, &report)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cpus: u32, costs: bool, juggle_s: f64, secretary_s: f64) -> Row {
        let arm = |makespan_s| Arm {
            makespan_s,
            of_limit: 1.0,
            readings: 0.0,
            readings_per_cpu_and_period: 0.0,
            migrations: 0.0,
            round_ms: 0.0,
            observations_per_search: 0.0,
            observed_part: 0.0,
        };
        Row { cpus, threads: cpus, costs, juggle: arm(juggle_s), secretary: arm(secretary_s) }
    }

    #[test]
    fn the_crossover_is_where_it_stays_faster() {
        let free = row(9, false, 2.0, 1.0);
        assert_eq!(crossover(&[free, row(4, true, 1.0, 2.0), row(8, true, 2.0, 2.0)]), Some(8));
        let rows = [row(4, true, 2.0, 1.0), row(8, true, 1.0, 2.0), row(16, true, 2.0, 1.0)];
        assert_eq!(crossover(&rows), Some(16));
        assert_eq!(crossover(&[free, row(4, true, 1.0, 2.0)]), None);
    }

    #[test]
    fn a_small_machine_is_compared() {
        let args = SecretaryArgs {
            cpus: vec![16],
            threads_per_4: 5,
            phase_ms: 2_000,
            period_ms: 100,
            read_ns: 800,
            place_ns: 17_000,
            runs: 1,
            json: None,
        };
        for policy in ["juggle", "secretary"] {
            let arm = args.arm(policy, 20, 16, true).unwrap();
            assert!(arm.of_limit > 0.8 && arm.of_limit <= 1.0 + 1e-9, "{policy}: {arm:?}");
            assert!(arm.round_ms > 0.0 && arm.readings > 0.0);
            assert_eq!(arm.observations_per_search > 0.0, policy == "secretary");
        }
    }
}

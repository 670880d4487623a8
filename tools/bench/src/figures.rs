//! What the runs of a benchmark amount to: table and JSON (`evenly.bench/1`).
//!
//! Invariant: a ratio is between arms of one call. The limit is made of e as the lone thread took
//! it in this call: e*n/m (paper, Equation 14), or, beside neighbours, the time that the CPUs need
//! for all that was really done, (e*n + what the neighbours got)/m.

use crate::cost::Cost;
use crate::host::HostRecord;
use crate::measure::{MAKESPAN, Note, Noting, Site, measure};
use crate::measured::Measured;
use crate::show::{print, table, tell};
use crate::simulated::{Measurements, makespan_s};
use crate::suite::{Benchmark, HYBRID, JUGGLE, Way};
use anyhow::Context;
use evenly_compare::Comparison;
use evenly_linux::limits::Slice;
use evenly_model::stats::median;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// Name and version of the JSON form.
const SCHEMA: &str = "evenly.bench/1";
/// A run of which others took more than this part of the CPUs is called disturbed.
const DISTURBED: f64 = 0.02;
/// Where others took more than this part of the CPUs in the median run, figures are void.
pub(crate) const VOID: f64 = 0.1;
/// A makespan that differs from the simulator's by more than this part is pointed at.
const DIFFERS: f64 = 0.03;

/// What evenly's own reports say, in the median over the runs of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Own {
    /// How many balancing points there were.
    pub(crate) points: f64,
    /// Mean length of a period, in milliseconds.
    pub(crate) period_ms: f64,
    /// How many threads were moved.
    pub(crate) migrations: f64,
    /// How often threads were given parts of the CPUs that they share.
    pub(crate) weighings: f64,
    /// CPU time of evenly as part of one CPU, in percent.
    pub(crate) overhead_percent: f64,
    /// Runs in which it stood down.
    pub(crate) stood_down: usize,
}

/// What the runs of one arm amount to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArmFigures {
    /// The name of the arm.
    pub(crate) arm: String,
    /// Whether it is there to measure the limit.
    pub(crate) reference: bool,
    /// Makespans in the order of the runs, in seconds.
    pub(crate) seconds: Vec<f64>,
    /// Median makespan, in seconds.
    pub(crate) makespan_s: Option<Measured>,
    /// Median of the wall time with start-up, in seconds.
    pub(crate) wall_s: Option<Measured>,
    /// Median makespan of the static arm over this one's.
    pub(crate) speedup_vs_static: Option<Measured>,
    /// Median makespan of the kernel's arm over this one's.
    pub(crate) speedup_vs_kernel: Option<Measured>,
    /// The same for the wall time.
    pub(crate) wall_speedup_vs_kernel: Option<Measured>,
    /// Limit over makespan, in percent: 100 cannot be exceeded but by noise.
    pub(crate) limit_percent: Option<Measured>,
    /// The greatest part of the CPUs that others took in a run, in percent.
    pub(crate) others_max_percent: Option<f64>,
    /// What the simulator gives for it, in seconds; none where it has no such thing.
    pub(crate) simulated_s: Option<f64>,
    /// Median makespan over that.
    pub(crate) over_simulated: Option<f64>,
    /// The part of the time until they finished in which threads had no CPU, in percent: what others
    /// on their CPUs cost them, without the noise of makespans. For programs of one phase whose
    /// threads have a CPU each.
    pub(crate) off_cpu_percent: Option<Measured>,
    /// From evenly's own reports.
    pub(crate) own: Option<Own>,
    /// Evenly's own reports as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) reports: Vec<Value>,
}

/// What the runs of one benchmark amount to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// The benchmark that was run.
    pub(crate) benchmark: Benchmark,
    /// The benchmark in words.
    pub(crate) what: String,
    /// The command, as the kernel's arm has it.
    pub(crate) command: Vec<String>,
    /// Whether it was interrupted.
    pub(crate) incomplete: bool,
    /// e: the lone thread, in seconds.
    pub(crate) alone_s: Option<Measured>,
    /// A full machine over a lone thread: above 1 where busy CPUs slow each other down.
    pub(crate) full_over_alone: Option<Measured>,
    /// The limit of the makespan without neighbours, in seconds.
    pub(crate) limit_s: Option<Measured>,
    /// What each arm amounts to.
    pub(crate) arms: Vec<ArmFigures>,
    /// Median makespan of juggle over hybrid's: what it is worth to release threads.
    pub(crate) hybrid_vs_juggle: Option<Measured>,
    /// What `evenly compare` says about each pair.
    pub(crate) verdicts: Vec<String>,
    /// Runs of which others took more than 2 % of the CPUs; they are in the figures.
    pub(crate) disturbed: usize,
    /// Every run in its order.
    pub(crate) runs: Vec<Note>,
    /// Why the figures are void, if they are.
    pub(crate) void: Option<String>,
}

impl Figures {
    /// Makes figures of the runs.
    pub(crate) fn new(
        benchmark: &Benchmark,
        comparison: Comparison,
        runs: Vec<Note>,
        seed: u64,
    ) -> Self {
        let of = |name: &str| -> Vec<f64> {
            let arm = comparison.results.iter().find(|r| r.policy == name);
            arm.map(|r| r.seconds.clone()).unwrap_or_default()
        };
        let walls = |name: &str| -> Vec<f64> {
            runs.iter().filter(|r| r.arm == name).map(|r| r.wall_s).collect()
        };
        let alone = of(Way::Alone.name());
        let share =
            if benchmark.program.work_is_per_thread() { benchmark.threads as f64 } else { 1.0 };
        let factor = share / benchmark.cpus as f64;
        let limits: Vec<f64> = alone.iter().map(|e| e * factor).collect();
        let percent = |name: &str, seconds: &[f64]| {
            if benchmark.neighbours.is_empty() {
                return Measured::ratio(&limits, seconds, seed).map(|r| r.scaled(100.0));
            }
            let e = median(&alone)?;
            let parts: Vec<f64> = runs
                .iter()
                .filter(|r| r.arm == name)
                .filter_map(|r| {
                    let makespan = r.makespan_s?;
                    let got = r.neighbours_s * (makespan / r.wall_s).min(1.0);
                    Some((e * share + got) / benchmark.cpus as f64 / makespan)
                })
                .collect();
            Measured::median(&parts, seed).map(|r| r.scaled(100.0))
        };
        let off_cpu = |name: &str| {
            let of = runs.iter().filter(|r| r.arm == name && benchmark.is_balanced());
            let parts: Vec<f64> = of.filter_map(|r| r.off_cpu).collect();
            Measured::median(&parts, seed).map(|r| r.scaled(100.0))
        };
        let (fixed, kernel) = (of(Way::Static.name()), of(Way::Kernel.name()));
        let kernel_walls = walls(Way::Kernel.name());
        let arms = benchmark
            .ways
            .iter()
            .zip(&comparison.results)
            .map(|(way, result)| {
                let reference = way.is_reference();
                let (name, seconds) = (way.name(), &result.seconds);
                let versus = |other: &[f64], mine: &[f64]| {
                    Measured::ratio(other, mine, seed).filter(|_| !reference)
                };
                ArmFigures {
                    arm: name.to_owned(),
                    reference,
                    seconds: seconds.clone(),
                    makespan_s: Measured::median(seconds, seed),
                    wall_s: Measured::median(&walls(name), seed),
                    speedup_vs_static: versus(&fixed, seconds),
                    speedup_vs_kernel: versus(&kernel, seconds),
                    wall_speedup_vs_kernel: versus(&kernel_walls, &walls(name)),
                    limit_percent: percent(name, seconds).filter(|_| !reference),
                    others_max_percent: runs
                        .iter()
                        .filter(|r| r.arm == name)
                        .filter_map(|r| r.load.map(|l| 100.0 * (l.others + l.stolen)))
                        .max_by(f64::total_cmp),
                    simulated_s: None,
                    over_simulated: None,
                    off_cpu_percent: off_cpu(name),
                    own: own(&result.reports),
                    reports: result.reports.clone(),
                }
            })
            .collect();
        let disturbed =
            runs.iter().filter(|r| r.load.is_some_and(|l| l.others + l.stolen > DISTURBED)).count();
        let taken: Vec<f64> =
            runs.iter().filter_map(|r| r.load.map(|l| l.others + l.stolen)).collect();
        let void = median(&taken).filter(|part| *part > VOID).map(|part| {
            format!(
                "others took {:.0} % of the CPUs in the median run (at most {:.0} % is allowed); \
                 end them and measure again",
                part * 100.0,
                VOID * 100.0
            )
        });
        Self {
            what: benchmark.what(),
            command: comparison.command.clone(),
            incomplete: comparison.incomplete,
            alone_s: Measured::median(&alone, seed),
            full_over_alone: benchmark
                .program
                .work_is_per_thread()
                .then(|| Measured::ratio(&of(Way::Full.name()), &alone, seed))
                .flatten(),
            limit_s: Measured::median(&limits, seed),
            hybrid_vs_juggle: Measured::ratio(&of(JUGGLE.name()), &of(HYBRID.name()), seed),
            arms,
            verdicts: comparison.verdicts.iter().map(|v| v.text.clone()).collect(),
            disturbed,
            runs,
            void,
            benchmark: benchmark.clone(),
        }
    }

    /// With what the simulator gives for each arm, on such a machine.
    pub(crate) fn beside(mut self, clockwork: Slice) -> Self {
        let Some(alone) = self.alone_s else { return self };
        for (way, arm) in self.benchmark.ways.iter().zip(&mut self.arms) {
            let measured = Measurements {
                alone_s: alone.value,
                full_over_alone: self.full_over_alone.map(|f| f.value),
                period_ms: arm.own.map(|own| own.period_ms),
                overhead: arm.own.map_or(0.0, |own| own.overhead_percent / 100.0),
            };
            arm.simulated_s = makespan_s(&self.benchmark, *way, clockwork, measured);
            arm.over_simulated = arm
                .makespan_s
                .zip(arm.simulated_s)
                .map(|(measured, simulated)| measured.value / simulated);
        }
        self
    }

    /// The table, with what has to be known beside it.
    pub(crate) fn text(&self) -> String {
        let dash = || "-".to_owned();
        let cell = |m: Option<Measured>, decimals| m.map_or_else(dash, |m| m.text(decimals));
        let mut rows = vec![
            [
                "arm",
                "runs",
                "makespan s",
                "simulated s",
                "vs static",
                "vs kernel",
                "% of limit",
                "others %",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for a in &self.arms {
            rows.push(vec![
                a.arm.clone(),
                a.seconds.len().to_string(),
                cell(a.makespan_s, 3),
                a.simulated_s.map_or_else(dash, |s| format!("{s:.3}")),
                cell(a.speedup_vs_static, 3),
                cell(a.speedup_vs_kernel, 3),
                cell(a.limit_percent, 1),
                a.others_max_percent.map_or_else(dash, |p| format!("{p:.1}")),
            ]);
        }
        let mut text = format!("\n{}: {}\n", self.benchmark.name, self.what);
        let limit = if self.benchmark.neighbours.is_empty() {
            let formula = if self.benchmark.program.work_is_per_thread() { "e*n/m" } else { "e/m" };
            format!("limit {formula} {} s", cell(self.limit_s, 3))
        } else {
            "limit (e*n + what the neighbours got)/m".to_owned()
        };
        text.push_str(&format!("  one thread alone e {} s; {limit}", cell(self.alone_s, 3)));
        if let Some(full) = self.full_over_alone {
            text.push_str(&format!("; all CPUs busy: {} times e", full.text(3)));
        }
        text.push('\n');
        text.push_str(&table(&rows));
        for (a, own) in self.arms.iter().filter_map(|a| a.own.map(|own| (a, own))) {
            text.push_str(&format!(
                "  {}: {:.0} points of {:.1} ms, {:.0} migrations, {:.2} % of one CPU{}\n",
                a.arm,
                own.points,
                own.period_ms,
                own.migrations,
                own.overhead_percent,
                match own.stood_down {
                    0 => String::new(),
                    k => format!(", stood down in {k} of {}", a.reports.len()),
                }
            ));
        }
        let differs = |a: &&ArmFigures| a.over_simulated.is_some_and(|o| (o - 1.0).abs() > DIFFERS);
        for a in self.arms.iter().filter(differs) {
            text.push_str(&format!(
                "  {}: {:+.1} % against the simulator; tools/bench/README.md says what it does not model\n",
                a.arm,
                100.0 * (a.over_simulated.unwrap_or(1.0) - 1.0)
            ));
        }
        if self.benchmark.is_balanced() {
            for a in self.arms.iter().filter(|a| !a.reference && a.off_cpu_percent.is_some()) {
                text.push_str(&format!(
                    "  {}: threads had no CPU for {} % of their time\n",
                    a.arm,
                    cell(a.off_cpu_percent, 3)
                ));
            }
            for a in self.arms.iter().filter(|a| a.own.is_some()) {
                text.push_str(&format!(
                    "  {}: with start-up, the kernel's wall time over this one's is {}\n",
                    a.arm,
                    cell(a.wall_speedup_vs_kernel, 4)
                ));
            }
        }
        if let Some(ratio) = self.hybrid_vs_juggle {
            let text_of = ratio.text(3);
            text.push_str(&format!("  hybrid against juggle: {text_of} times as fast\n"));
        }
        if self.disturbed > 0 {
            text.push_str(&format!(
                "  unsure: in {} of {} runs others took more than {:.0} % of the CPUs; these runs \
                 are in the figures\n",
                self.disturbed,
                self.runs.len(),
                DISTURBED * 100.0
            ));
        }
        if self.incomplete {
            text.push_str("  interrupted: fewer runs than asked for\n");
        }
        if let Some(why) = &self.void {
            text.push_str(&format!("  VOID: {why}\n"));
        }
        text
    }
}

/// What evenly's reports (`evenly.run/1`) say. None where there are none.
pub(crate) fn own(reports: &[Value]) -> Option<Own> {
    let total = |report: &Value, field: &str| -> f64 {
        let domains = report["domains"].as_array().map(Vec::as_slice).unwrap_or_default();
        domains.iter().filter_map(|d| d[field].as_f64()).sum()
    };
    let over = |f: &dyn Fn(&Value) -> f64| median(&reports.iter().map(f).collect::<Vec<f64>>());
    Some(Own {
        points: over(&|r| total(r, "points"))?,
        period_ms: over(&|r| r["domains"][0]["period_s"].as_f64().unwrap_or(0.0) * 1e3)?,
        migrations: over(&|r| total(r, "migrations"))?,
        weighings: over(&|r| total(r, "weighings"))?,
        overhead_percent: over(&|r| {
            let (used, of) = (r["overhead_s"].as_f64(), r["seconds"].as_f64());
            100.0 * used.unwrap_or(0.0) / of.unwrap_or(f64::INFINITY)
        })?,
        stood_down: reports
            .iter()
            .filter(|r| {
                let domains = r["domains"].as_array().map(Vec::as_slice).unwrap_or_default();
                domains.iter().any(|d| d["stood_down"] == Value::Bool(true))
            })
            .count(),
    })
}

/// Everything of one call.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Name and version of the form, [`SCHEMA`].
    schema: &'static str,
    /// The machine that it ran on.
    machine: HostRecord,
    /// Whether it was the short form.
    quick: bool,
    /// Seed of orders and intervals.
    seed: u64,
    /// What is measured of each run.
    metric: &'static str,
    /// Whether it was interrupted.
    pub(crate) interrupted: bool,
    /// What each benchmark amounts to.
    pub(crate) benchmarks: Vec<Figures>,
    /// What a balancing point costs.
    pub(crate) cost: Option<Cost>,
    /// What parallel loops beside a load amount to, in an emulated machine (`labs::loops`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) loops: Vec<serde_json::Value>,
    /// Benchmarks that could not be made, and why.
    failed: Vec<String>,
}

impl Report {
    /// A form without a benchmark yet.
    pub(crate) fn new(machine: HostRecord, quick: bool, seed: u64) -> Self {
        Self {
            schema: SCHEMA,
            machine,
            quick,
            seed,
            metric: MAKESPAN,
            interrupted: false,
            benchmarks: Vec::new(),
            cost: None,
            loops: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Runs one benchmark and prints its table. One that fails is noted, and the others go on.
    ///
    /// # Errors
    /// Where the table cannot be printed.
    pub(crate) fn run<E: Noting>(
        &mut self,
        benchmark: &Benchmark,
        site: &Site,
        executor: &mut E,
    ) -> anyhow::Result<()> {
        self.run_shown(benchmark, site, executor, Figures::text)
    }

    /// The same with other words for what came out.
    ///
    /// # Errors
    /// Where they cannot be printed.
    pub(crate) fn run_shown<E: Noting>(
        &mut self,
        benchmark: &Benchmark,
        site: &Site,
        executor: &mut E,
        text: impl Fn(&Figures) -> String,
    ) -> anyhow::Result<()> {
        if self.interrupted {
            return Ok(());
        }
        match measure(benchmark, site, executor) {
            Ok(comparison) => {
                let notes = executor.notes();
                let figures = Figures::new(benchmark, comparison, notes, site.seed);
                let figures = figures.beside(site.clockwork);
                print(&text(&figures))?;
                self.interrupted = figures.incomplete;
                self.benchmarks.push(figures);
            }
            Err(e) => self.failed(&benchmark.name, &e),
        }
        Ok(())
    }

    /// Says and notes that a benchmark could not be made.
    pub(crate) fn failed(&mut self, benchmark: &str, e: &anyhow::Error) {
        tell(&format!("evenly-bench: {e:#}"));
        self.failed.push(format!("{benchmark}: {e:#}"));
    }

    /// Writes the JSON and says what failed.
    ///
    /// # Errors
    /// Where it cannot be written, or a benchmark failed.
    pub(crate) fn finish(&self, json: Option<&Path>) -> anyhow::Result<()> {
        if let Some(path) = json {
            std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        anyhow::ensure!(
            self.failed.is_empty(),
            "{} of {} benchmarks could not be made: {}",
            self.failed.len(),
            self.failed.len() + self.benchmarks.len() + self.loops.len(),
            self.failed.join("; ")
        );
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::suite;
    use evenly_compare::{Arm, Executor, Metric, Options, RunError, RunOutcome, Silent, compare};
    use evenly_linux::usage::Load;

    /// Prints what each arm is said to take.
    struct Scripted(Vec<Note>, Option<Load>);

    impl Executor for Scripted {
        fn run(&mut self, arm: &Arm, _index: usize) -> Result<RunOutcome, RunError> {
            let seconds = match arm.name.as_str() {
                "alone" => 2.0,
                "full" => 2.2,
                "static" => 4.0,
                "kernel" => 3.5,
                _ => 3.1,
            };
            let text = format!("{{\"makespan_s\":{seconds}}}\n");
            let outcome = crate::measure::outcome(seconds + 0.1, 0, text.as_bytes(), b"")?;
            let neighbours_s = if arm.name == "alone" { 0.0 } else { 1.0 };
            self.0.push(crate::measure::note(arm, &outcome, neighbours_s, self.1));
            Ok(outcome)
        }
    }

    fn figures(name: &str) -> Figures {
        figures_beside(name, None)
    }

    fn figures_beside(name: &str, load: Option<Load>) -> Figures {
        let all =
            suite::chosen(suite::host(true), &[], (&[name.to_owned()], &[]), Some(3)).unwrap();
        scripted(&all[0], load)
    }

    /// Of three runs of each arm, each of which takes always the same: 2 s alone, 2.2 s with all CPUs
    /// busy, 4 s under static pinning, 3.5 s under the kernel, and 3.1 s under evenly.
    pub(crate) fn scripted(benchmark: &Benchmark, load: Option<Load>) -> Figures {
        let arms: Vec<Arm> = benchmark.ways.iter().map(|w| Arm::new(w.name(), ["x"])).collect();
        let metric = Metric::Field(MAKESPAN.to_owned());
        let command = vec!["x".to_owned()];
        let options = Options { command, runs: 3, metric, ..Options::default() };
        let mut executor = Scripted(Vec::new(), load);
        let comparison = compare(&arms, &options, &mut executor, &mut Silent).unwrap();
        Figures::new(benchmark, comparison, executor.0, 1)
    }

    fn arm<'a>(f: &'a Figures, name: &str) -> &'a ArmFigures {
        f.arms.iter().find(|a| a.arm == name).unwrap()
    }

    #[test]
    fn the_limit_is_made_of_the_lone_thread() {
        let f = figures("one-phase-3-on-2");
        assert_eq!(f.limit_s.unwrap().value, 3.0);
        let hybrid = arm(&f, "hybrid");
        assert!((hybrid.limit_percent.unwrap().value - 100.0 * 3.0 / 3.1).abs() < 1e-9);
        assert!((hybrid.speedup_vs_static.unwrap().value - 4.0 / 3.1).abs() < 1e-9);
        assert!((f.full_over_alone.unwrap().value - 1.1).abs() < 1e-9);
        assert!(arm(&f, "alone").limit_percent.is_none());
        assert!(f.text().contains("limit e*n/m 3.000"), "{}", f.text());
        assert!(f.text().contains("hybrid against juggle: 1.000 [1.000, 1.000]"), "{}", f.text());
    }

    #[test]
    fn the_simulator_stands_beside_what_was_measured() {
        let f = figures("one-phase-3-on-2").beside(crate::simulated::GUEST);
        assert_eq!(arm(&f, "alone").simulated_s, None);
        // One phase of 2.2 s where all CPUs are busy.
        let fixed = arm(&f, "static");
        assert!((fixed.simulated_s.unwrap() - 4.4).abs() < 0.02, "{:?}", fixed.simulated_s);
        assert!((fixed.over_simulated.unwrap() - 4.0 / 4.4).abs() < 0.01);
        let text = f.text();
        assert!(text.contains("simulated s") && text.contains("static: -9.1 % against"), "{text}");
        assert!(!text.contains("alone: "), "{text}");
        let value = serde_json::to_value(&f).unwrap();
        assert!(value["arms"][2]["simulated_s"].as_f64().unwrap() > 4.0, "{value}");
    }

    #[test]
    fn shared_work_and_neighbours_have_limits_of_their_own() {
        let f = figures("ep-gomp");
        assert_eq!(f.limit_s.unwrap().value, 1.0);
        let f = figures("neighbour-2-on-2");
        let got = 3.5 / 3.6;
        let expected = 100.0 * (2.0 * 2.0 + got) / 2.0 / 3.5;
        assert!((arm(&f, "kernel").limit_percent.unwrap().value - expected).abs() < 1e-9);
    }

    #[test]
    fn figures_are_void_where_others_had_much_of_the_machine() {
        let load = |others| Load { elapsed_s: 1.0, own_s: 1.0, others, stolen: 0.0 };
        assert!(figures_beside("one-phase-3", Some(load(0.05))).void.is_none());
        let f = figures_beside("one-phase-3", Some(load(0.7)));
        assert!(f.text().contains("VOID: others took 70 %"), "{}", f.text());
        assert_eq!(f.disturbed, f.runs.len());
    }

    /// The schema; strictly: without what it does not describe.
    fn validator(strict: bool) -> jsonschema::Validator {
        fn close(value: &mut Value) {
            match value {
                Value::Object(fields) => {
                    if fields.get("properties").is_some_and(Value::is_object) {
                        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
                    }
                    fields.values_mut().for_each(close);
                }
                Value::Array(items) => items.iter_mut().for_each(close),
                _ => {}
            }
        }
        let text = include_str!("../../../docs/schemas/evenly.bench-1.json");
        let mut schema: Value = serde_json::from_str(text).unwrap();
        if strict {
            close(&mut schema);
        }
        jsonschema::validator_for(&schema).unwrap()
    }

    #[test]
    fn the_json_is_as_its_schema_says() {
        let errors = |value: &Value, strict| -> Vec<String> {
            let validator = validator(strict);
            validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect()
        };
        let machine = HostRecord::this(&"0-1".parse().unwrap());
        let mut report = Report::new(machine, true, 1);
        let empty = serde_json::to_value(&report).unwrap();
        assert_eq!(errors(&empty, true), Vec::<String>::new());
        // All benchmarks that there are, with their programs, neighbours and ways.
        let load = Load { elapsed_s: 1.0, own_s: 1.0, others: 0.05, stolen: 0.0 };
        for (i, benchmark) in suite::host(true).iter().enumerate() {
            report.benchmarks.push(figures_beside(&benchmark.name, (i % 2 == 0).then_some(load)));
        }
        let mut emulated = figures("one-phase-3-on-2");
        emulated.benchmark = suite::lab(true).pop().unwrap();
        emulated.void = Some("others took too much".to_owned());
        let own_report = serde_json::json!({"overhead_s": 0.03, "seconds": 3.0, "domains": [
            {"points": 100, "migrations": 40, "period_s": 0.02, "stood_down": false}]});
        emulated.arms[5].own = own(std::slice::from_ref(&own_report));
        emulated.arms[5].reports = vec![own_report];
        report.benchmarks.push(emulated);
        report.cost = Some(crate::cost::sample_of_costs());
        report.loops = vec![serde_json::to_value(crate::labs::loops::tests::sample()).unwrap()];
        report.failed = vec!["ep-omp-3-on-2: no clang".to_owned()];
        let whole = serde_json::to_value(&report).unwrap();
        assert_eq!(errors(&whole, true), Vec::<String>::new());
        // What breaks it is found.
        for (path, bad) in [
            ("/schema", Value::from("evenly.bench/2")),
            ("/benchmarks/0/arms/0/seconds/0", Value::from(-1.0)),
            ("/benchmarks/0/runs/0/load/others", Value::from(2.0)),
            ("/cost/points/0/wall_us", Value::Null),
            ("/loops/0/distortion/0/threads", Value::from(0)),
            ("/benchmarks/0/benchmark/program/name", Value::from("other")),
        ] {
            let mut broken = whole.clone();
            *broken.pointer_mut(path).unwrap() = bad;
            assert!(!errors(&broken, false).is_empty(), "{path}");
        }
        let mut longer = whole;
        longer["benchmarks"][0]["new"] = Value::from(1);
        assert!(errors(&longer, false).is_empty() && !errors(&longer, true).is_empty());
    }

    #[test]
    fn own_reports_are_read() {
        let report = serde_json::json!({
            "overhead_s": 0.03, "seconds": 3.0,
            "domains": [
                {"points": 100, "migrations": 40, "period_s": 0.02, "stood_down": false},
                {"points": 50, "migrations": 2, "period_s": 0.02, "stood_down": true},
            ],
        });
        let own = own(&[report]).unwrap();
        assert_eq!((own.points, own.migrations, own.stood_down), (150.0, 42.0, 1));
        assert!((own.overhead_percent - 1.0).abs() < 1e-9);
        assert_eq!(super::own(&[]), None);
    }
}

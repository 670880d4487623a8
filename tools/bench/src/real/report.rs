//! What came out, as a table and as JSON.

use super::{Case, KERNEL, LIMIT, TWO};
use crate::args::Cases;
use crate::host::HostRecord;
use crate::measure::MOST_OTHERS;
use crate::measured::Measured;
use crate::show::table;
use serde::Serialize;

/// Name and version of the JSON form.
const SCHEMA: &str = "evenly.bench-real/1";

/// The runs of an arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Runs {
    pub(super) name: &'static str,
    /// What is compared, in every run.
    pub(super) seconds: Vec<f64>,
    /// Of the whole command.
    pub(super) wall_s: Vec<f64>,
    /// Part of the CPUs that others took, the host of a virtual machine among them.
    pub(super) others: Vec<f64>,
    /// Whether a run took too long; there are no more then.
    pub(super) late: bool,
}

impl Runs {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, seconds: vec![], wall_s: vec![], others: vec![], late: false }
    }

    /// One more: its seconds, those of the whole command, and the part that others took.
    pub(super) fn add(&mut self, [seconds, wall_s, others]: [f64; 3]) {
        self.seconds.push(seconds);
        self.wall_s.push(wall_s);
        self.others.push(others);
    }
}

/// An arm, and what it amounts to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ArmFigures {
    #[serde(flatten)]
    runs: Runs,
    /// Its time over that of the kernel; of the limit what would be its.
    of_kernel: Option<Measured>,
}

/// A case and its figures.
#[derive(Debug, Serialize)]
pub(super) struct Measurement {
    name: String,
    what: String,
    threads: u32,
    /// The limit over what two threads take alone.
    bound: f64,
    kernel_s: Option<Measured>,
    arms: Vec<ArmFigures>,
}

impl Measurement {
    pub(super) fn new(case: &Case, runs: Vec<Runs>, seed: u64) -> Self {
        let find = |name: &str| runs.iter().find(|runs| runs.name == name);
        let kernel = find(KERNEL).map(|runs| runs.seconds.clone()).unwrap_or_default();
        // Two threads alone are their own limit.
        let mut all = runs.clone();
        if let (None, Some(kernel)) = (find(TWO), find(KERNEL)) {
            all.insert(0, Runs { name: TWO, ..kernel.clone() });
        }
        let of = |runs: Runs| {
            let part = if runs.name == TWO { case.bound() } else { 1.0 };
            let of_kernel = Measured::ratio(&runs.seconds, &kernel, seed).map(|m| m.scaled(part));
            ArmFigures { runs, of_kernel }
        };
        Self {
            name: case.name(),
            what: case.what(),
            threads: case.threads,
            bound: case.bound(),
            kernel_s: Measured::median(&kernel, seed),
            arms: all.into_iter().map(of).collect(),
        }
    }

    fn arm(&self, name: &str) -> Option<&ArmFigures> {
        self.arms.iter().find(|arm| arm.runs.name == name)
    }

    /// Its line of the table.
    pub(super) fn row(&self) -> Vec<String> {
        let text = |arm: &ArmFigures| {
            let figure = arm.of_kernel.map(|m| m.text(2));
            let late = || format!("over {} s", LIMIT.as_secs());
            if arm.runs.late { late() } else { figure.unwrap_or_else(|| "-".into()) }
        };
        let is_late = self.arm(KERNEL).is_some_and(|arm| arm.runs.late);
        let seconds = self.kernel_s.filter(|_| !is_late).map(|m| format!("{:.2} s", m.value));
        let late = || format!("over {} s", LIMIT.as_secs());
        let kernel = seconds.unwrap_or_else(|| if is_late { late() } else { "-".into() });
        let mut row = vec![self.what.clone()];
        for arm in &self.arms {
            row.push(if arm.runs.name == KERNEL { kernel.clone() } else { text(arm) });
        }
        row
    }
}

/// What the benchmark has measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    machine: HostRecord,
    runs: u32,
    seed: u64,
    /// Programs that were not there.
    left_out: Vec<String>,
    pub(super) cases: Vec<Measurement>,
    /// Runs of which others took too much of the CPUs.
    pub(super) disturbed: u32,
    /// Whether it was interrupted.
    pub(super) incomplete: bool,
}

impl Report {
    /// Without any cases.
    pub(super) fn new(machine: HostRecord, cases: &Cases, left_out: Vec<String>) -> Self {
        Self {
            schema: SCHEMA,
            machine,
            runs: cases.runs,
            seed: cases.seed,
            left_out,
            cases: Vec::new(),
            disturbed: 0,
            incomplete: false,
        }
    }

    /// The table.
    pub(super) fn text(&self) -> String {
        let Some(first) = self.cases.first() else { return String::new() };
        let head = std::iter::once("on two CPUs, times of the kernel".to_owned())
            .chain(first.arms.iter().map(|arm| arm.runs.name.to_owned()))
            .collect();
        let rows: Vec<Vec<String>> =
            std::iter::once(head).chain(self.cases.iter().map(Measurement::row)).collect();
        let worst = self.cases.iter().flat_map(|case| &case.arms);
        let worst = worst.flat_map(|arm| arm.runs.others.iter().copied()).fold(0.0, f64::max);
        let left_out = if self.left_out.is_empty() {
            String::new()
        } else {
            format!("Left out, as they are not there: {}.\n", self.left_out.join(", "))
        };
        format!(
            "{}The limit is what two threads take alone, times what the neighbours leave. Medians, 95 % \
             intervals. Runs of which others took more than {:.0} % of the CPUs, and which were made again, \
             up to three times: {}; of those that count others took at most {:.0} %.\n{left_out}",
            table(&rows),
            100.0 * MOST_OTHERS,
            self.disturbed,
            100.0 * worst
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::programs;
    use super::*;
    use crate::beside::Beside;

    fn runs(name: &'static str, seconds: &[f64]) -> Runs {
        let mut runs = Runs::new(name);
        seconds.iter().for_each(|s| runs.add([*s, s + 0.5, 0.01]));
        runs
    }

    fn report() -> Report {
        let case = |threads, beside| Case { program: programs()[0], threads, beside };
        let alone = vec![runs(KERNEL, &[4.0, 4.0, 4.0]), runs("auto", &[5.0, 5.0, 5.0])];
        let mut late = runs("auto", &[]);
        late.late = true;
        let hog = vec![runs(TWO, &[4.0; 3]), runs(KERNEL, &[12.0; 3]), late];
        let json = HostRecord {
            kernel: "6.18".into(),
            cpu_model: "one".into(),
            online: "0-1".into(),
            used: "0-1".into(),
        };
        Report {
            schema: SCHEMA,
            machine: json,
            runs: 3,
            seed: 1,
            left_out: vec!["tbb".into()],
            cases: vec![
                Measurement::new(&case(2, Beside::Nobody), alone, 1),
                Measurement::new(&case(2, Beside::Hog), hog, 1),
            ],
            disturbed: 2,
            incomplete: false,
        }
    }

    #[test]
    fn times_are_those_of_the_kernel_and_the_limit_counts_neighbours() {
        let report = report();
        assert_eq!(
            report.cases[0].row()[1..],
            ["1.00 [1.00, 1.00]", "4.00 s", "1.25 [1.25, 1.25]"]
        );
        // Two of three computing threads, on two CPUs: 1.5 times as long.
        assert_eq!(report.cases[1].row()[1..], ["0.50 [0.50, 0.50]", "12.00 s", "over 120 s"]);
        let text = report.text();
        assert!(text.contains("of those that count others took at most 1 %"), "{text}");
        assert!(text.ends_with("Left out, as they are not there: tbb.\n"), "{text}");
    }

    #[test]
    fn json_is_what_the_schema_says() {
        let value = serde_json::to_value(report()).unwrap();
        let schema = include_str!("../../../../docs/schemas/evenly.bench-real-1.json");
        let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        let errors = |value: &serde_json::Value| -> Vec<String> {
            validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect()
        };
        assert!(errors(&value).is_empty(), "{:?}", errors(&value));
        for member in
            ["schema", "machine", "runs", "seed", "left_out", "cases", "disturbed", "incomplete"]
        {
            let mut without = value.clone();
            without.as_object_mut().unwrap().remove(member);
            assert!(!errors(&without).is_empty(), "{member}");
        }
    }
}

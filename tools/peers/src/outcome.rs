//! What came out: a table, the list of what fails, and both as JSON (`docs/schemas/evenly.peers-1.json`).

use crate::judge::{Arm, Judged, Verdict};
use crate::suites::{Case, Compiler, Found};
use serde::Serialize;
use std::fmt::Write as _;

/// All that is known after a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Name and version of the form: `evenly.peers/1`.
    pub schema: &'static str,
    /// What evenly calls itself.
    pub evenly: String,
    /// Compilers, with their versions.
    pub compilers: Vec<String>,
    /// The arms beside the plain one.
    pub arms: Vec<String>,
    /// One row for each suite, compiler and number of threads.
    pub suites: Vec<Row>,
    /// What passes plain and not under an arm.
    pub failures: Vec<Failure>,
    /// What does not pass plain or is not built.
    pub not_compared: Vec<NotCompared>,
    /// Tests that are of no use here.
    pub left_out: Vec<LeftOut>,
}

/// The configurations of a suite with one compiler and number of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The suite that was run.
    pub suite: String,
    /// The compiler, or nothing.
    pub compiler: String,
    /// Number of threads, where it is given.
    pub threads: Option<u32>,
    /// How many there are.
    pub configurations: usize,
    /// How many could be built and pass plain.
    pub pass_plain: usize,
    /// How many of these pass under each arm, flaky ones among them.
    pub pass: Vec<usize>,
}

/// A test that passes plain and fails under an arm.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// The arm in which it was run.
    pub arm: String,
    /// The suite that the test is of.
    pub suite: String,
    /// The name of the test.
    pub name: String,
    /// The compiler, or nothing.
    pub compiler: String,
    /// Number of threads, where it is given.
    pub threads: Option<u32>,
    /// Whether it passed when it was run again, or fails without evenly, too.
    pub flaky: bool,
    /// How each run that failed ended.
    pub symptoms: Vec<String>,
}

/// A test of which nothing can be said.
#[derive(Debug, Serialize)]
pub struct NotCompared {
    /// The suite that the test is of.
    pub suite: String,
    /// The name of the test.
    pub name: String,
    /// The compiler, or nothing.
    pub compiler: String,
    /// Number of threads, where it is given.
    pub threads: Option<u32>,
    /// Why nothing can be said of it.
    pub why: String,
}

/// A test that is of no use here.
#[derive(Debug, Serialize)]
pub struct LeftOut {
    /// The name of the test.
    pub name: String,
    /// Why the test was left out.
    pub why: String,
}

impl Outcome {
    /// Sums up what all tests came to.
    #[must_use]
    pub fn new(
        evenly: String,
        compilers: &[Compiler],
        arms: &[Arm],
        found: &Found,
        judged: &[Judged],
    ) -> Self {
        let mut outcome = Self {
            schema: "evenly.peers/1",
            evenly,
            compilers: compilers.iter().map(|c| format!("{} {}", c.cc, c.version)).collect(),
            arms: arms.iter().map(|a| a.name.clone()).collect(),
            suites: Vec::new(),
            failures: Vec::new(),
            not_compared: Vec::new(),
            left_out: Vec::new(),
        };
        for (name, why) in &found.left_out {
            outcome.left_out.push(LeftOut { name: name.clone(), why: why.clone() });
        }
        for (case, judged) in found.cases.iter().zip(judged) {
            outcome.add(case, judged, arms);
        }
        outcome
    }

    fn add(&mut self, case: &Case, judged: &Judged, arms: &[Arm]) {
        let row = self.row(case, arms.len());
        row.configurations += 1;
        let why = match judged {
            Judged::NotBuilt(symptom) => format!("not built: {symptom}"),
            Judged::FailsPlain(symptom) => format!("fails plain: {symptom}"),
            Judged::Compared(verdicts) => {
                row.pass_plain += 1;
                for (pass, verdict) in row.pass.iter_mut().zip(verdicts) {
                    *pass += usize::from(!matches!(verdict, Verdict::Failed(_)));
                }
                for (arm, verdict) in arms.iter().zip(verdicts) {
                    let (flaky, symptoms) = match verdict {
                        Verdict::Passed => continue,
                        Verdict::Flaky(symptom) => (true, vec![symptom.clone()]),
                        Verdict::Failed(symptoms) => (false, symptoms.clone()),
                    };
                    self.failures.push(Failure {
                        arm: arm.name.clone(),
                        suite: case.suite.clone(),
                        name: case.name.clone(),
                        compiler: case.compiler.clone(),
                        threads: case.threads,
                        flaky,
                        symptoms,
                    });
                }
                return;
            }
        };
        self.not_compared.push(NotCompared {
            suite: case.suite.clone(),
            name: case.name.clone(),
            compiler: case.compiler.clone(),
            threads: case.threads,
            why,
        });
    }

    fn row(&mut self, case: &Case, arms: usize) -> &mut Row {
        let same = |row: &Row| {
            (&row.suite, &row.compiler, row.threads) == (&case.suite, &case.compiler, case.threads)
        };
        let at = self.suites.iter().position(same).unwrap_or_else(|| {
            self.suites.push(Row {
                suite: case.suite.clone(),
                compiler: case.compiler.clone(),
                threads: case.threads,
                configurations: 0,
                pass_plain: 0,
                pass: vec![0; arms],
            });
            self.suites.len() - 1
        });
        &mut self.suites[at]
    }

    /// Whether evenly breaks nothing: whatever passes plain passes under each arm in one of two runs.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failures.iter().all(|f| f.flaky)
    }

    /// The outcome in lines for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut head: Vec<String> =
            ["suite", "compiler", "threads", "tests", "pass plain"].map(str::to_owned).to_vec();
        head.extend((1..=self.arms.len()).map(|arm| format!("pass ({arm})")));
        let mut rows = vec![head];
        for row in &self.suites {
            let mut cells = vec![
                row.suite.clone(),
                or_none(&row.compiler),
                row.threads.map_or_else(|| "-".into(), |t| t.to_string()),
                row.configurations.to_string(),
                row.pass_plain.to_string(),
            ];
            cells.extend(row.pass.iter().map(ToString::to_string));
            rows.push(cells);
        }
        let mut text = table(&rows);
        for (number, arm) in (1..).zip(&self.arms) {
            let _ = writeln!(text, "({number}) {arm}");
        }
        for (title, flaky) in [
            ("pass plain and fail", false),
            ("flaky: failed once, then passed, or fail plain, too", true),
        ] {
            let these: Vec<&Failure> = self.failures.iter().filter(|f| f.flaky == flaky).collect();
            if !these.is_empty() {
                let _ = writeln!(text, "\n{title}: {}", these.len());
            }
            for failure in these {
                let threads = failure.threads.map(|t| format!(", {t} threads")).unwrap_or_default();
                let _ = writeln!(
                    text,
                    "  {} {} ({}{threads}) under `{}`: {}",
                    failure.suite,
                    failure.name,
                    or_none(&failure.compiler),
                    failure.arm,
                    failure.symptoms.first().map_or("", String::as_str),
                );
            }
        }
        let built = self.not_compared.iter().filter(|n| n.why.starts_with("not built")).count();
        let _ = writeln!(
            text,
            "\nnot compared: {} fail plain, {built} are not built; {} tests are left out (--json names all)",
            self.not_compared.len() - built,
            self.left_out.len()
        );
        text
    }
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Columns under each other: the first to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "{cell:<width$}")
            } else {
                write!(text, "  {cell:>width$}")
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Outcome;
    use crate::judge::{Arm, Judged, Verdict};
    use crate::suites::{Case, Compiler, Found, Passes};

    fn outcome() -> Outcome {
        let case = |name: &str| Case {
            suite: "suite".into(),
            name: name.into(),
            compiler: "gcc".into(),
            threads: Some(3),
            build: String::new(),
            run: "%arm true".into(),
            dir: None,
            environment: Vec::new(),
            passes: Passes { fails: false, output: String::new() },
        };
        let cases = ["good", "bad", "flaky", "plain", "unbuilt"].map(case).to_vec();
        let found = Found { cases, left_out: vec![("other".into(), "needs tls".into())] };
        let judged = [
            Judged::Compared(vec![Verdict::Passed]),
            Judged::Compared(vec![Verdict::Failed(vec!["SIGSEGV".into(), "SIGABRT".into()])]),
            Judged::Compared(vec![Verdict::Flaky("status 1".into())]),
            Judged::FailsPlain("status 2".into()),
            Judged::NotBuilt("status 1".into()),
        ];
        let arms = [Arm { name: "evenly run --".into(), command: String::new() }];
        let compilers = [Compiler { cc: "gcc".into(), version: "12.2.0".into() }];
        Outcome::new("evenly 1".into(), &compilers, &arms, &found, &judged)
    }

    #[test]
    fn only_what_fails_twice_counts() {
        let mut outcome = outcome();
        let row = &outcome.suites[0];
        assert_eq!((row.configurations, row.pass_plain, row.pass[0]), (5, 3, 2));
        assert!(!outcome.is_clean());
        outcome.failures.retain(|f| f.flaky);
        assert!(outcome.is_clean());
    }

    #[test]
    fn the_text_names_what_fails() {
        let expected = "\
suite  compiler  threads  tests  pass plain  pass (1)
suite       gcc        3      5           3         2
(1) evenly run --

pass plain and fail: 1
  suite bad (gcc, 3 threads) under `evenly run --`: SIGSEGV

flaky: failed once, then passed, or fail plain, too: 1
  suite flaky (gcc, 3 threads) under `evenly run --`: status 1

not compared: 1 fail plain, 1 are not built; 1 tests are left out (--json names all)
";
        assert_eq!(outcome().text(), expected);
    }

    #[test]
    fn the_json_has_its_schema() {
        let schema = include_str!("../../../docs/schemas/evenly.peers-1.json");
        let schema = serde_json::from_str(schema).unwrap();
        let value = serde_json::to_value(outcome()).unwrap();
        let valid = jsonschema::validate(&schema, &value);
        assert!(valid.is_ok(), "{:?}", valid.err().map(|e| e.to_string()));
    }
}

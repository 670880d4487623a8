//! Builds cases and runs them plain and under every arm. A failure counts if it comes twice and never in further
//! plain runs; else it is flaky.

use crate::exec::{Ended, Ran, shell};
use crate::shell::DIR_VARIABLE;
use crate::suites::{Case, Passes};
use anyhow::Context as _;
use regex::RegexBuilder;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A build, and a plain run, may take so long.
const LIMIT: Duration = Duration::from_secs(300);
/// A run under an arm may take ten times the plain one, and this.
const BESIDE: Duration = Duration::from_secs(20);
/// Runs of a test under an arm that fails it.
const TRIES: usize = 2;
/// Plain runs of a test that an arm fails: one that fails among them is flaky by itself. For so long at most.
const AGAIN: (usize, Duration) = (30, Duration::from_secs(60));

/// What comes before the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// As the user wrote it.
    pub name: String,
    /// As the shell is given it.
    pub command: String,
}

/// What became of a case under an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It passed at once.
    Passed,
    /// It failed once, then it passed; or it fails now and then without evenly.
    Flaky(String),
    /// It failed, and failed again when it was repeated.
    Failed(Vec<String>),
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// It could not be built.
    NotBuilt(String),
    /// It does not pass plain, so that nothing can be said of evenly.
    FailsPlain(String),
    /// It passes plain; one verdict for each arm.
    Compared(Vec<Verdict>),
}

/// Judges all cases, `jobs` at a time; `told` hears of each as it is done, with its number. Neighbours that are built
/// alike are built once.
///
/// # Errors
/// Where no process can be started.
pub fn all(
    cases: &[Case],
    arms: &[Arm],
    jobs: usize,
    told: &(dyn Fn(usize, &Judged) + Sync),
) -> anyhow::Result<Vec<Judged>> {
    let mut number = 0;
    let groups = cases.chunk_by(|a, b| a.build == b.build).map(|group| {
        number += group.len();
        (number - group.len(), group)
    });
    let open: Mutex<VecDeque<(usize, &[Case])>> = Mutex::new(groups.collect());
    let done: Mutex<BTreeMap<usize, anyhow::Result<Vec<Judged>>>> = Mutex::default();
    let work = || {
        loop {
            let next = open.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((first, group)) = next else { return };
            let judged = alike(group, arms, &|at, judged| told(first + at, judged));
            if judged.is_err() {
                // The others would end in the same way.
                open.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(first, judged);
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let groups: Vec<Vec<Judged>> = done.into_values().collect::<anyhow::Result<_>>()?;
    Ok(groups.into_iter().flatten().collect())
}

/// Cases with the same build.
fn alike(
    cases: &[Case],
    arms: &[Arm],
    told: &dyn Fn(usize, &Judged),
) -> anyhow::Result<Vec<Judged>> {
    let built = tempfile::tempdir().context("a folder for a program")?;
    let dir = (DIR_VARIABLE.to_owned(), built.path().to_string_lossy().into_owned());
    let mut not_built = None;
    if let Some(case) = cases.first().filter(|c| !c.build.is_empty()) {
        let build = shell(&case.build, None, std::slice::from_ref(&dir), LIMIT)?;
        not_built = (build.ended != Ended::Status(0)).then(|| Judged::NotBuilt(build.symptom()));
    }
    let judge = |(at, case): (usize, &Case)| {
        let judged = match &not_built {
            Some(judged) => judged.clone(),
            None => one(case, arms, &dir)?,
        };
        told(at, &judged);
        Ok(judged)
    };
    cases.iter().enumerate().map(judge).collect()
}

/// A case that is built.
fn one(case: &Case, arms: &[Arm], dir: &(String, String)) -> anyhow::Result<Judged> {
    let environment: Vec<_> = case.environment.iter().chain([dir]).cloned().collect();
    let run = |arm: &str, limit| {
        shell(&case.run.replace("%arm", arm), case.dir.as_deref(), &environment, limit)
    };
    let plain = run("", LIMIT)?;
    if !passes(&case.passes, &plain) {
        return Ok(Judged::FailsPlain(plain.symptom()));
    }
    let limit = plain.took * 10 + BESIDE;
    let judge = |arm: &Arm| -> anyhow::Result<Verdict> {
        let mut symptoms = Vec::new();
        while symptoms.len() < TRIES {
            let ran = run(&arm.command, limit)?;
            if passes(&case.passes, &ran) {
                break;
            }
            symptoms.push(ran.symptom());
        }
        let start = Instant::now();
        for _ in 0..if symptoms.len() == TRIES { AGAIN.0 } else { 0 } {
            if start.elapsed() > AGAIN.1 {
                break;
            }
            let again = run("", limit)?;
            if !passes(&case.passes, &again) {
                return Ok(Verdict::Flaky(format!("plain, too: {}", again.symptom())));
            }
        }
        Ok(verdict(symptoms))
    };
    Ok(Judged::Compared(arms.iter().map(judge).collect::<anyhow::Result<_>>()?))
}

fn verdict(mut symptoms: Vec<String>) -> Verdict {
    if symptoms.len() == TRIES {
        return Verdict::Failed(symptoms);
    }
    symptoms.pop().map_or(Verdict::Passed, Verdict::Flaky)
}

fn passes(wanted: &Passes, ran: &Ran) -> bool {
    let Ended::Status(status) = ran.ended else { return false };
    let pattern = RegexBuilder::new(&wanted.output).dot_matches_new_line(true).build();
    // An expression of another dialect is not held against the program.
    let written = wanted.output.is_empty() || pattern.map_or(true, |p| p.is_match(&ran.output));
    (status != 0) == wanted.fails && written
}

#[cfg(test)]
mod tests {
    use super::{Arm, Judged, Verdict, all};
    use crate::suites::{Case, Passes};

    fn case(build: &str, run: &str) -> Case {
        Case {
            suite: "suite".into(),
            name: "name".into(),
            compiler: String::new(),
            threads: None,
            build: build.into(),
            run: run.into(),
            dir: None,
            environment: Vec::new(),
            passes: Passes { fails: false, output: String::new() },
        }
    }

    fn judged(case: Case, arms: &[&str]) -> Judged {
        let arms: Vec<Arm> =
            arms.iter().map(|a| Arm { name: (*a).into(), command: (*a).into() }).collect();
        all(&[case], &arms, 1, &|_, _| {}).unwrap().pop().unwrap()
    }

    #[test]
    fn what_passes_everywhere_has_passed() {
        let case =
            case("touch \"$EVENLY_PEERS_DIR\"/a", "test -f \"$EVENLY_PEERS_DIR\"/a && %arm true");
        assert_eq!(judged(case, &["", "env"]), Judged::Compared(vec![Verdict::Passed; 2]));
    }

    #[test]
    fn what_fails_twice_under_an_arm_has_failed() {
        let Judged::Compared(verdicts) = judged(case("", "%arm true"), &["false", "env"]) else {
            panic!("it passes plain");
        };
        let symptom = "status 1".to_owned();
        assert_eq!(verdicts, [Verdict::Failed(vec![symptom.clone(), symptom]), Verdict::Passed]);
    }

    #[test]
    fn what_fails_once_is_flaky() {
        // The file is there from the second run under the arm on.
        let once = "[ -e \"$EVENLY_PEERS_DIR\"/a ] || { touch \"$EVENLY_PEERS_DIR\"/a; exit 1; };";
        let Judged::Compared(verdicts) = judged(case("", "%arm true"), &[once]) else {
            panic!("it passes plain");
        };
        assert_eq!(verdicts, [Verdict::Flaky("status 1".into())]);
    }

    #[test]
    fn what_fails_plain_now_and_then_is_flaky() {
        // Plain it passes in the first run only, under the arm never.
        let once = "[ ! -e \"$EVENLY_PEERS_DIR\"/a ] && touch \"$EVENLY_PEERS_DIR\"/a && %arm true";
        let Judged::Compared(verdicts) = judged(case("", once), &["false"]) else {
            panic!("it passes plain at first");
        };
        assert_eq!(verdicts, [Verdict::Flaky("plain, too: status 1".into())]);
    }

    #[test]
    fn what_does_not_pass_plain_is_not_compared() {
        assert_eq!(judged(case("", "%arm false"), &["!"]), Judged::FailsPlain("status 1".into()));
        assert_eq!(judged(case("false", "%arm true"), &[""]), Judged::NotBuilt("status 1".into()));
    }

    #[test]
    fn status_and_output_are_as_wanted() {
        let mut case = case("", "%arm echo abc; exit 2");
        case.passes = Passes { fails: true, output: "b(c|d)".into() };
        assert_eq!(judged(case.clone(), &[""]), Judged::Compared(vec![Verdict::Passed]));
        case.passes.output = "d".into();
        assert_eq!(judged(case, &[""]), Judged::FailsPlain("status 2: abc".into()));
    }

    #[test]
    fn neighbours_are_built_once_and_keep_their_order() {
        let count = tempfile::NamedTempFile::new().unwrap();
        let build = &format!("echo >> {}", count.path().display());
        let cases =
            [case(build, "%arm true"), case(build, "%arm false"), case("false", "%arm true")];
        let judged = all(&cases, &[], 2, &|_, _| {}).unwrap();
        let failed = "status 1".to_owned();
        let expected = [
            Judged::Compared(Vec::new()),
            Judged::FailsPlain(failed.clone()),
            Judged::NotBuilt(failed),
        ];
        assert_eq!(judged, expected);
        assert_eq!(std::fs::read_to_string(count.path()).unwrap(), "\n");
    }
}

//! The sequence of calls that balancing makes to a machine, in about a thousand simulated runs with
//! all policies and whatever can go wrong: it is the same as when it was recorded.
//!
//! `golden.txt` has a line for each run: its name, how many calls were made, how many of them were to
//! change something, and digests of the calls (with their arguments and results) and of what observers
//! and the summary were given. Where agents move threads within phases, what comes of further runs follows. A change of structure leaves the file as it is; where behaviour is meant
//! to change, the file is recorded anew in the commit that changes it.
//!
//! - To record it: `EVENLY_BLESS=1 cargo test -p evenly-sim --test calls`.
//! - To see one run, and compare it with that of another version: `EVENLY_CALLS="juggle 7" cargo test -p
//!   evenly-sim --test calls -- --nocapture`.
//!
//! Questions about the clock and about constants of the machine are not recorded. Numbers with fractions
//! are recorded to six digits: they come from the four basic operations, which are the same everywhere,
//! but for a few logarithms and powers, of which mathematical libraries may differ in the last digit.
#![allow(missing_docs, clippy::unwrap_used)]

mod cases;
mod machine;
mod within;

use cases::{Run, runs};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calls/golden.txt"))
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn line(run: &Run) -> String {
    let (calls, events) = (digest(&run.calls), digest(&run.events));
    let all = run.calls.lines().count();
    let acts: usize = run.kinds.iter().filter(|(k, _)| !is_question(k)).map(|(_, n)| n).sum();
    format!("{}: {all} calls, {acts} acts, {calls} {events}", run.name)
}

fn is_question(kind: &str) -> bool {
    kind.starts_with('?')
}

/// How often each kind of call, with each kind of result, must occur in all runs together. What is not
/// listed must not occur.
const COVERED: [(&str, usize); 38] = [
    ("?locate", 10_000),
    ("?mask", 1_000),
    ("?memory", 100),
    ("?memory unknown", 10),
    ("?neighbours", 1_000),
    ("?neighbours some", 20),
    ("?process", 100),
    ("?ranks", 10),
    ("?ranks none", 100),
    ("?read", 10_000),
    ("?read gone", 100),
    ("?read unknown", 100),
    ("?retired", 1_000),
    ("?times", 1_000),
    ("?times gone", 10),
    ("?times unknown", 10),
    ("?usable", 1_000),
    ("?waiting", 1_000),
    ("confine", 1_000),
    ("confine foreign", 10),
    ("confine gone", 10),
    ("confine refused", 10),
    ("confine unusable", 10),
    ("go on", 10),
    ("go on, nothing", 10),
    ("move memory", 10),
    ("move memory, no", 2),
    ("place", 5_000),
    ("place foreign", 20),
    ("place gone", 10),
    ("place refused", 20),
    ("place unusable", 20),
    ("release", 20),
    ("release, no", 5),
    ("restore", 1_000),
    ("unweigh", 100),
    ("weigh", 500),
    ("weigh refused", 20),
];

/// What observers must have been sent, and how often at least.
const REPORTED: [(&str, usize); 5] = [
    ("is left alone", 100),
    ("could not be read", 10),
    ("keeps its share of a CPU", 5),
    ("paused: true", 500),
    ("held: false", 1_000),
];

#[test]
fn every_run_makes_the_same_calls_as_when_it_was_recorded() {
    let wanted = std::env::var("EVENLY_CALLS").ok();
    let all: Vec<_> =
        runs().into_iter().filter(|r| wanted.as_ref().is_none_or(|w| *w == r.name)).collect();
    let mut done: Vec<Run> = all.into_par_iter().map(cases::Case::run).collect();
    let within = evenly_policies::POLICIES.iter().filter(|info| info.moves_within_phases());
    let within = within.flat_map(within::runs);
    done.extend(within.filter(|run| wanted.as_ref().is_none_or(|w| *w == run.name)));
    if wanted.is_some() {
        for run in &done {
            println!("{}{}", run.calls, run.events);
        }
        return;
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, n) in done.iter().flat_map(|r| &r.kinds) {
        *kinds.entry(kind).or_default() += n;
    }
    let found: String = done.iter().map(|r| line(r) + "\n").collect();
    if std::env::var_os("EVENLY_BLESS").is_some() {
        std::fs::write(golden(), &found).unwrap();
        println!("{kinds:#?}");
    }
    let names: Vec<&str> = kinds.keys().copied().collect();
    assert_eq!(names, COVERED.map(|(kind, _)| kind));
    for (kind, least) in COVERED {
        assert!(kinds[kind] >= least, "{kind}: {} times", kinds[kind]);
    }
    for (text, least) in REPORTED {
        let times: usize = done.iter().map(|r| r.events.matches(text).count()).sum();
        assert!(times >= least, "{text}: {times} times");
    }
    let recorded = std::fs::read_to_string(golden()).unwrap();
    let differ: Vec<(&str, &str)> =
        recorded.lines().zip(found.lines()).filter(|(a, b)| a != b).collect();
    assert!(
        differ.is_empty() && recorded.lines().count() == found.lines().count(),
        "{} runs differ, the first ones as recorded and as found: {:#?}",
        differ.len(),
        &differ[..differ.len().min(5)]
    );
}

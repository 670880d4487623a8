//! The diagnosis, as data.
//!
//! Invariant: findings are in the order of their costs, the highest first.

use crate::case::Case;
use crate::{Finding, Kind, Recommended, Setting, paste, rules};
use evenly_evidence::{Evidence, MIN_SECONDS, Source};
use evenly_model::CpuSet;
use evenly_model::efficiency::Efficiency;
use serde::Serialize;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "evenly.doctor/1";

/// What evenly would gain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prospect {
    /// Upper bound of the speed-up over threads that stay on their CPUs; 1 where nothing can be gained, None
    /// where it is unknown.
    pub gain_at_most: Option<f64>,
    /// The same in words, with the reason.
    pub reason: String,
}

/// All that the doctor reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Name and version of the form, [`SCHEMA`].
    pub schema: &'static str,
    /// The version of evenly that has diagnosed it.
    pub evenly: &'static str,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// For how long it was observed, in seconds.
    pub seconds: f64,
    /// How many threads compute.
    pub threads: usize,
    /// CPUs that they may use.
    pub cpus: CpuSet,
    /// The causes, the one with the highest cost first.
    pub findings: Vec<Finding>,
    /// What the evidence leaves open.
    pub unknown: Vec<String>,
    /// Where the threads' time went.
    pub efficiency: Option<Efficiency>,
    /// What evenly would gain.
    pub prospect: Prospect,
    /// The policy to balance it with; None where balancing promises nothing.
    pub recommended: Option<Recommended>,
    /// Settings that were applied before the program started.
    pub applied: Vec<Setting>,
    /// The command line that measures what balancing gains.
    pub compare: Option<String>,
    /// What could not be read.
    pub gaps: Vec<String>,
    /// Where the evidence is from.
    #[serde(skip)]
    pub source: Source,
}

impl Diagnosis {
    /// Diagnoses the evidence. `applied` are the settings that were changed before the program started.
    #[must_use]
    pub fn of(evidence: &Evidence, applied: Vec<Setting>) -> Self {
        let case = Case::new(evidence);
        let enough = evidence.seconds >= MIN_SECONDS && case.n() > 0;
        let mut findings = if enough { rules::all(&case) } else { Vec::new() };
        // The highest cost first, and measured costs before upper bounds; equal and unknown costs in the order
        // of the rules.
        findings.sort_by(|a, b| {
            let class = |f: &Finding| (f.cost.is_none(), f.at_most);
            let cost = |f: &Finding| f.cost.unwrap_or(0.0);
            class(a).cmp(&class(b)).then(cost(b).total_cmp(&cost(a))).then(a.kind.cmp(&b.kind))
        });
        let mut unknown = if enough { case.unknown(&findings) } else { Vec::new() };
        if !enough {
            unknown.push(match case.n() {
                0 => String::from("no thread computed, so there is no diagnosis"),
                _ => format!(
                    "it was observed for only {:.2} s; a diagnosis needs {MIN_SECONDS} s",
                    evidence.seconds
                ),
            });
        }
        let prospect = if enough {
            case.prospect(&findings)
        } else {
            let reason = String::from("unknown");
            Prospect { gain_at_most: None, reason }
        };
        let recommended = case.recommended(&findings, prospect.gain_at_most);
        let mut compare = case.measure(&findings);
        if prospect.gain_at_most == Some(1.0) {
            for f in &mut findings {
                // Balancing promises no gain as things are, so the line is replaced.
                if let Some(before) = f.paste.as_deref().and_then(paste::balances) {
                    f.paste = case.instead(f, before, compare.as_deref());
                }
            }
        }
        // The program was observed with the settings that were applied, so lines to paste contain them.
        let own = case.line("").unwrap_or_default();
        for line in findings.iter_mut().filter_map(|f| f.paste.as_mut()).chain(compare.as_mut()) {
            if own.is_empty() || !line.contains(own.trim()) {
                continue;
            }
            for s in applied.iter().rev() {
                let is = |word: &str| word.split_once('=').is_some_and(|(name, _)| name == s.name);
                if !line.split(' ').any(is) {
                    *line = format!("{} {line}", s.assignment());
                }
            }
        }
        Self {
            schema: SCHEMA,
            evenly: env!("CARGO_PKG_VERSION"),
            command: evidence.command.clone(),
            seconds: evidence.seconds,
            threads: case.n(),
            cpus: case.usable.clone(),
            findings,
            unknown,
            efficiency: case.efficiency(),
            prospect,
            recommended,
            applied,
            compare,
            gaps: evidence.gaps.clone(),
            source: evidence.source,
        }
    }

    /// Whether this cause was found.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.findings.iter().any(|f| f.kind == kind)
    }
}

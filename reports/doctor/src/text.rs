//! The diagnosis as text.
//!
//! Invariant: it fits on one screen, the cause first, and every line is printable.

use crate::{Diagnosis, Finding, Kind};
use evenly_evidence::{MIN_SECONDS, Source};
use evenly_model::{counted, printable};
use std::fmt::Write;

/// Findings that are printed in full.
const FULL: usize = 2;
/// Further findings, with one line each.
const LINES: usize = 4;

impl Diagnosis {
    /// As text for people; ends with a newline.
    #[must_use]
    pub fn text(&self) -> String {
        let mut t = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut t);
        t
    }

    fn write(&self, t: &mut String) -> std::fmt::Result {
        let mut row = |name: &str, words: &str| writeln!(t, "  {name:<11} {}", printable(words));
        let head = format!(
            "evenly doctor: {} on {} ({}), {:.2} s",
            counted(self.threads, "thread"),
            counted(self.cpus.len(), "CPU"),
            self.cpus,
            self.seconds
        );
        let mut lines: Vec<(&str, String)> = Vec::new();
        for s in &self.applied {
            lines.push(("set", format!("{}: {}", s.assignment(), s.why)));
        }
        if self.findings.is_empty() {
            lines.push(("diagnosis", self.healthy()));
        }
        for (i, f) in self.findings.iter().enumerate().take(FULL) {
            let name = if i == 0 { "diagnosis" } else { "and" };
            lines.push((name, format!("{} {}", f.sentence, cost(f))));
            lines.extend(f.evidence.iter().map(|e| ("evidence", e.clone())));
            lines.push(("remedy", f.remedy.clone()));
            // One line may help against both.
            let again = self.findings[..i].iter().any(|before| before.paste == f.paste);
            lines.extend(f.paste.iter().filter(|_| !again).map(|p| ("paste", p.clone())));
        }
        for f in self.findings.iter().skip(FULL).take(LINES) {
            lines.push(("also", format!("{} {}", f.sentence, cost(f))));
        }
        lines.extend(self.unknown.iter().map(|u| ("not known", u.clone())));
        match &self.efficiency {
            // What threads that hardly ran waited says nothing.
            _ if self.threads == 0 => {}
            Some(e) if e.factors.is_some() => lines.push(("efficiency", e.words())),
            // The reason for the missing figures is printed above.
            Some(e) => lines.push((
                "efficiency",
                format!(
                    "{:.1} % of the threads' time spent waiting for a CPU; the rest is unknown",
                    100.0 * e.run_queue_share
                ),
            )),
            None => {}
        }
        lines.push(("evenly", self.prospect.reason.clone()));
        let policy = self.recommended.iter();
        lines.extend(policy.map(|r| ("policy", format!("{}: {}", r.policy, r.reason))));
        // No rule can decide which way of waiting is best.
        let open = [Kind::Spinning, Kind::MpiOversubscribed, Kind::TooManyThreads];
        let open = open.iter().any(|kind| self.has(*kind));
        if (open || self.prospect.gain_at_most.is_none_or(|g| g > 1.0))
            && let Some(line) = &self.compare
        {
            lines.push(("measure", line.clone()));
        }
        lines.extend(self.gaps.iter().map(|g| ("not seen", g.clone())));
        let mut last = "";
        let body: Vec<(&str, String)> = lines
            .into_iter()
            .map(|(name, words)| {
                let again = name == last;
                last = name;
                (if again { "" } else { name }, words)
            })
            .collect();
        for (name, words) in &body {
            row(name, words)?;
        }
        t.insert_str(0, &format!("{head}\n"));
        Ok(())
    }

    fn healthy(&self) -> String {
        if self.threads == 0 || self.seconds < MIN_SECONDS {
            return String::from("none");
        }
        String::from(match self.source {
            Source::Live => "no problem found from outside",
            Source::Recording => {
                "no problem found in this recording, which has few data: see below"
            }
        })
    }
}

fn cost(f: &Finding) -> String {
    match f.cost {
        Some(c) if f.at_most => format!("[up to {:.0} % of the threads' time]", 100.0 * c),
        Some(c) => format!("[{:.0} % of the threads' time]", 100.0 * c),
        None => String::from("[cost not known]"),
    }
}

//! `evenly doctor --mechanisms`: what this machine offers to give a rank or a thread more or less of it,
//! and where the times of threads can be had from.
//!
//! Invariant: nothing is changed; what may be changed is tried on threads of evenly's own that end at
//! once.

use crate::restore::leftovers;
use crate::{End, output};
use evenly_linux::live::{SourceOffer, sources};
use evenly_linux::share::{Gives, Offer, Real, offers, user};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Name and version of what `--json` writes.
const SCHEMA: &str = "evenly.mechanisms/1";

pub(crate) fn mechanisms(json: Option<&Path>) -> anyhow::Result<End> {
    let json = json.map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    leftovers(false);
    let (offers, sources) = (offers(&Real::default()), sources());
    let text = text(&offers) + &sources_text(&sources);
    output::say(&text, json.as_deref(), || as_json(&offers, &sources))
}

/// Writes a factor with few digits, such as `x1.5`.
fn factor(f: f64) -> String {
    if f >= 100.0 {
        format!("x{f:.0}")
    } else if f >= 1.0 {
        format!("x{}", (f * 10.0).round() / 10.0)
    } else {
        format!("x{f:.3}")
    }
}

fn text(offers: &[Offer]) -> String {
    let mut text = format!("evenly doctor: mechanisms for user {}\n", user());
    let (here, not): (Vec<&Offer>, Vec<&Offer>) = offers.iter().partition(|o| o.missing.is_none());
    for o in here {
        let range = o.range.map_or_else(String::new, |(least, most)| {
            format!(", {} to {}", factor(least), factor(most))
        });
        let lowers = if o.only_lowers && o.gives == Gives::Share {
            "; it can only be lowered, so others are lowered instead"
        } else {
            ""
        };
        let gives = o.gives.word();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:18} {}", o.name, o.what);
        let _ = writeln!(text, "  {:18} {gives} of a thread{range}: {}{lowers}", "", o.steps);
        for note in &o.notes {
            let _ = writeln!(text, "  {:18} {note}", "");
        }
    }
    text += "not available\n";
    for (o, missing) in not.iter().filter_map(|o| Some((o, o.missing.as_ref()?))) {
        let _ = writeln!(text, "  {:18} {}: {}", o.name, o.what, missing.why);
        if let Some(remedy) = &missing.remedy {
            let _ = writeln!(text, "  {:18} remedy: {remedy}", "");
        }
    }
    text
}

fn sources_text(sources: &[SourceOffer]) -> String {
    let mut text = String::from("thread times (--source)\n");
    for s in sources {
        let _ = writeln!(text, "  {:18} {}", s.name, s.what);
        if let Some(why) = &s.missing {
            let _ = writeln!(text, "  {:18} not available: {why}", "");
        }
    }
    text
}

fn as_json(offers: &[Offer], sources: &[SourceOffer]) -> Value {
    let mechanisms: Vec<Value> = offers
        .iter()
        .map(|o| {
            json!({"name": o.name, "what": o.what, "gives": o.gives.word(),
                "least": o.range.map(|r| r.0), "most": o.range.map(|r| r.1), "steps": o.steps, "only_lowers": o.only_lowers,
                "available": o.missing.is_none(),
                "why_not": o.missing.as_ref().map(|m| &m.why),
                "remedy": o.missing.as_ref().and_then(|m| m.remedy.as_ref()), "notes": o.notes})
        })
        .collect();
    let sources: Vec<Value> = sources
        .iter()
        .map(|s| {
            json!({"name": s.name, "what": s.what, "available": s.missing.is_none(),
                "why_not": s.missing})
        })
        .collect();
    json!({"schema": SCHEMA, "evenly": env!("CARGO_PKG_VERSION"), "uid": user(),
        "mechanisms": mechanisms, "sources": sources})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_short() {
        let shown = [86.68, 1.0, 0.0146, 256.0].map(factor);
        assert_eq!(shown, ["x86.7", "x1", "x0.015", "x256"]);
    }
}

//! Events as text for the decision log.
//!
//! Invariant: each line begins with the time of its event.

use evenly_engine::Event;
use evenly_model::Nanos;

/// Makes events as text for the decision log.
#[must_use]
pub fn describe(event: &Event) -> Vec<String> {
    let t = |at: &Nanos| format!("{:9.3} s", at.as_secs_f64());
    match event {
        Event::Domain { at, domain, cpus } => {
            vec![format!("{} domain {domain}: CPUs {cpus}", t(at))]
        }
        Event::Joined { at, domain, thread } => vec![format!(
            "{} thread {} ({}) of process {} joins domain {domain}",
            t(at),
            thread.id,
            thread.name,
            thread.pid
        )],
        Event::Left { at, id, to: Some(to), .. } => {
            vec![format!("{} thread {id} goes to domain {to}", t(at))]
        }
        Event::Left { at, id, ended, to: None } => vec![format!(
            "{} thread {id} {}",
            t(at),
            if *ended { "has ended" } else { "no longer computes" }
        )],
        Event::Note { at, text } => vec![format!("{} {text}", t(at))],
        Event::Point(p) => p
            .moves
            .iter()
            .map(|m| {
                let error = m.error.as_deref().map(|e| format!(": failed, {e}"));
                format!(
                    "{} thread {} from CPU {} to CPU {} ({}){}",
                    t(&p.at),
                    m.id,
                    m.from,
                    m.to,
                    m.reason.text(),
                    error.unwrap_or_default()
                )
            })
            .collect(),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::{DomainId, ThreadId, Tid};

    /// Would catch: a thread that went to another domain and is reported as ended, or the reverse.
    #[test]
    fn how_a_thread_left_is_named() {
        let (at, id) = (Nanos::from_millis(1_500), ThreadId { tid: Tid(7), start: 1 });
        let left = |ended, to| describe(&Event::Left { at, id, ended, to }).concat();
        assert!(left(true, None).ends_with("has ended"));
        assert!(left(false, None).ends_with("no longer computes"));
        assert!(left(false, Some(DomainId(2))).ends_with("goes to domain 2"));
        assert!(left(true, None).trim_start().starts_with("1.500 s thread 7"));
    }

    #[test]
    fn a_note_is_one_line_with_its_time() {
        let event = Event::Note { at: Nanos::from_millis(20), text: String::from("words") };
        assert_eq!(describe(&event), ["    0.020 s words"]);
    }
}

//! What the live view shows, as JSON: `evenly.top/1`, one object a line and a second.
//!
//! Invariant: what is written here is what `docs/schemas/evenly.top-1.json` describes; a field is
//! never renamed or re-used.

use crate::plain::each_second;
use crate::{Exit, Feed, Header, OtherState, Sort, View, World};
use evenly_model::Printable;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Name and version of the JSON form.
pub const SCHEMA: &str = "evenly.top/1";

/// Writes the state as one line of JSON a second, and once more at the end; ends as
/// [`run_plain`](crate::run_plain) does.
///
/// # Errors
/// Errors of writing, except for a closed pipe, which is [`Exit::Closed`].
pub fn run_json(
    feed: &Feed,
    header: &Header,
    world: World<'_>,
    out: &mut dyn Write,
) -> io::Result<Exit> {
    let mut out = Printable::json(out);
    each_second(feed, header, world, &mut |view| {
        writeln!(out, "{}", state(view, header))?;
        out.flush()
    })
}

/// The state at this moment.
fn state(view: &View, header: &Header) -> Value {
    let domains: Vec<Value> = view
        .domains
        .iter()
        .map(|(&id, d)| {
            let rates = view.rates(Some(id));
            let cpus: Vec<Value> = d
                .paces()
                .map(|(cpu, c, pace)| {
                    json!({
                        "cpu": cpu,
                        "threads": c.threads,
                        "speed": c.speed(),
                        "pace": pace.word(),
                    })
                })
                .collect();
            json!({
                "domain": id,
                "measured": d.is_measured(),
                "period_s": rates.period.as_secs_f64(),
                "imbalance": d.spread.map(|s| s.imbalance()),
                "moves_per_s": rates.own,
                "other_migrations_per_s": rates.other,
                "overhead": rates.overhead,
                "paused": d.paused,
                "stood_down": view.stood_down(Some(id)),
                "cpus": cpus,
            })
        })
        .collect();
    let threads: Vec<Value> = view
        .rows(None, Sort::Tid, false)
        .iter()
        .map(|row| {
            let t = row.thread;
            json!({
                "tid": t.id.tid,
                "start": t.id.start,
                "pid": t.pid,
                "name": t.name,
                "domain": t.domain,
                "cpu": t.cpu,
                "measured": t.is_measured(),
                "progress_s": t.progress as f64 / 1e9,
                "lead_s": row.lead / 1e9,
                "standing": row.standing.word(),
                "running": row.shares.running,
                "waiting": row.shares.waiting,
                "blocked": row.shares.blocked,
                "spinning": row.shares.spinning,
                "moved": t.moved,
                "wandered": t.wandered,
            })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "evenly": env!("CARGO_PKG_VERSION"),
        "at_s": view.now.as_secs_f64(),
        "pid": header.pid,
        "command": header.command,
        "policy": header.policy,
        "balanced_by": view.balancer.filter(|b| b.state != OtherState::Gone).map(|b| b.pid),
        "balancer": view.balancer.map(|b| json!({
            "pid": b.pid,
            "state": b.state.word(),
            "given_s": b.given.as_secs_f64(),
        })),
        "domains": domains,
        "threads": threads,
        "efficiency": view.efficiency(None),
        "missed_events": view.missed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OtherEvenly, synthetic};
    use evenly_engine::Observer;
    use evenly_model::{Nanos, Pid};

    fn lines(feed: &Feed, by: Option<OtherEvenly>) -> Vec<Value> {
        let header =
            Header { pid: Pid(41_000), command: "./spmd".into(), policy: "observe".into() };
        let mut out = Vec::new();
        let world = World { ended: &|| true, balancer: &|| by };
        assert_eq!(run_json(feed, &header, world, &mut out).unwrap(), Exit::Ended);
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn it_is_as_the_schema_says() {
        let schema = include_str!("../../../docs/schemas/evenly.top-1.json");
        let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        let is = |state| Some(OtherEvenly { pid: Pid(7), state, given: Nanos::ZERO });
        let cases = [
            (0, 1, None),
            (3, 1, is(OtherState::Working)),
            (3, 1, is(OtherState::Stopped)),
            (6, 2, is(OtherState::Gone)),
        ];
        for (threads, domains, by) in cases {
            let feed = Feed::new();
            let mut observer = feed.clone();
            for e in synthetic::run(threads, 2, domains, 100, false) {
                observer.event(&e);
            }
            let lines = lines(&feed, by);
            assert_eq!(lines.len(), 1);
            let errors: Vec<String> = validator
                .iter_errors(&lines[0])
                .map(|e| format!("{}: {e}", e.instance_path))
                .collect();
            assert!(errors.is_empty(), "{errors:?}\n{:#}", lines[0]);
            let balancer = by.map(|b| (Value::from(7), Value::from(b.state.word())));
            let found = &lines[0]["balancer"];
            assert_eq!(balancer, found.get("pid").map(|p| (p.clone(), found["state"].clone())));
            let at_it = by.is_some_and(|b| b.state != OtherState::Gone);
            assert_eq!(lines[0]["balanced_by"] == 7, at_it);
            assert_eq!(lines[0]["threads"].as_array().unwrap().len(), threads as usize);
            assert_eq!(lines[0]["domains"].as_array().unwrap().len(), domains as usize);
        }
        let nothing = &lines(&Feed::new(), None)[0];
        assert!(validator.is_valid(nothing), "{nothing:#}");
        assert!(!validator.is_valid(&serde_json::json!({"schema": "evenly.top/2"})));
    }
}

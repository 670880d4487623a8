//! What `evenly topology` says: the tree, the factors and where they come from, what was measured
//! beside what the firmware declares; as text and as JSON (`evenly.topology/1`).
//!
//! Invariant: a factor never stands without its source.

use crate::date::date;
use crate::declared::Declared;
use crate::factors::Source;
use crate::machine::{MachineTopology, Origin};
use crate::measured::{Binding, Pair, Spread};
use crate::network::HostPair;
use crate::text::bytes;
use crate::tree::Kind;
use serde_json::{Value, json};
use std::fmt::Write;

/// Name and version of the JSON.
pub const SCHEMA: &str = "evenly.topology/1";

/// Most nodes of which all pairs are printed; the JSON has them all.
const MOST_PRINTED: usize = 16;

/// Part of the CPUs' time above which it is said that others had it while it was measured.
const BUSY: f64 = 0.05;

/// What is said of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The machine, with what was measured on it.
    pub machine: &'a MachineTopology,
    /// What its firmware declares; None where it is not this machine.
    pub declared: Option<&'a Declared>,
    /// What else is to be said, such as why nothing was measured.
    pub notes: &'a [String],
}

fn spread(s: &Spread, scale: f64, unit: &str) -> String {
    let [m, l, h] = [s.median, s.low, s.high].map(|v| v / scale);
    format!("{m:.1} [{l:.1}, {h:.1}] {unit}")
}

impl Report<'_> {
    /// The machine in lines for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = self.machine.describe();
        self.factors(&mut out);
        self.pairs(&mut out);
        self.network(&mut out);
        self.declared(&mut out);
        for note in self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }

    fn source(&self) -> String {
        match (self.machine.factors().source(), self.machine.measurement()) {
            (Source::Measured, Some(m)) => format!("measured {}", date(m.unix_s)),
            (source, _) => source.words().to_owned(),
        }
    }

    fn factors(&self, out: &mut String) {
        let (factors, homes) = (self.machine.factors(), self.machine.homes());
        let _ = writeln!(out, "latency over that of the own memory ({}):", self.source());
        if homes.len() > MOST_PRINTED {
            let _ = writeln!(out, "  {} nodes: the JSON has the matrix", homes.len());
            return;
        }
        let names: Vec<String> = homes.iter().map(|h| format!("node {}", h.shown())).collect();
        let cells: Vec<Vec<String>> = (0..homes.len())
            .map(|i| {
                let cell = |j: usize| {
                    let spread = self.machine.measured_factor(i, j);
                    let value = factors.at(i, j);
                    spread.map_or_else(
                        || format!("{value:.2}"),
                        |f| format!("{value:.2} [{:.2}, {:.2}]", f.low, f.high),
                    )
                };
                (0..homes.len()).map(cell).collect()
            })
            .collect();
        let width = names.iter().chain(cells.iter().flatten()).map(String::len).max().unwrap_or(0);
        let side = names.iter().map(String::len).max().unwrap_or(0).max("CPUs of".len());
        let line = |head: &str, cells: &[String]| {
            let cells: String = cells.iter().map(|c| format!("  {c:>width$}")).collect();
            format!("  {head:<side$}{cells}\n")
        };
        out.push_str(&line("CPUs of", &names));
        for (name, row) in names.iter().zip(&cells) {
            out.push_str(&line(name, row));
        }
    }

    fn pairs(&self, out: &mut String) {
        let Some(m) = self.machine.measurement() else { return };
        let line = |p: &Pair| {
            let bandwidth = p.read_bytes_per_s.as_ref().map_or_else(String::new, |b| {
                format!(", {} read by {}", spread(b, 1e9, "GB/s"), threads(p.readers))
            });
            let huge = match p.huge_share {
                Some(s) if s > 0.99 => ", huge pages",
                Some(s) if s > 0.0 => ", partly huge pages",
                Some(_) => ", no huge pages",
                None => "",
            };
            let binding = match p.binding {
                Binding::Checked => "pages checked",
                Binding::Bound => "pages not checked: the system does not report them",
                Binding::OnlyNode => "not bound: there is no other node",
            };
            format!(
                "  CPUs of node {} from node {}: {}{bandwidth} ({}{huge}, {binding})\n",
                p.reader,
                p.memory,
                spread(&p.latency_ns, 1.0, "ns"),
                bytes(p.buffer_bytes)
            )
        };
        let most = MOST_PRINTED * 2;
        let _ = writeln!(
            out,
            "measured in {:.1} s, a load that waits for the one before (median [lowest, highest]):",
            m.seconds
        );
        m.pairs.iter().take(most).for_each(|p| out.push_str(&line(p)));
        if m.pairs.len() > most {
            let _ = writeln!(out, "  {} pairs more: the JSON has them", m.pairs.len() - most);
        }
        for c in &m.caches {
            let factor = m
                .cache_factor(&c.level)
                .map_or_else(String::new, |f| format!(", {f:.2} of memory"));
            let _ = writeln!(
                out,
                "  a line from CPU {} to CPU {}, which share an {}: {}{factor}",
                c.cpus[0],
                c.cpus[1],
                c.level,
                spread(&c.latency_ns, 1.0, "ns")
            );
        }
        for note in &m.notes {
            let _ = writeln!(out, "  {note}");
        }
        if let Some(load) = m.load.filter(|l| l.others + l.stolen > BUSY) {
            let percent = |part: f64| (100.0 * part).round();
            let host = if load.stolen > 0.005 {
                format!(", and the host of this virtual machine {} %", percent(load.stolen))
            } else {
                String::new()
            };
            let _ = writeln!(
                out,
                "  other programs had {} % of these CPUs meanwhile{host}: for figures of an idle \
                 machine measure again when it is (--measure --again)",
                percent(load.others)
            );
        }
    }

    fn network(&self, out: &mut String) {
        let Some(n) = self.machine.network() else { return };
        let _ = writeln!(
            out,
            "messages between hosts, {} by {}: half a round trip of {}; bandwidth of {}:",
            date(n.unix_s),
            n.mpi,
            bytes(n.small_bytes),
            bytes(n.large_bytes)
        );
        let most = MOST_PRINTED * 2;
        let line = |p: &HostPair| {
            let [a, b] = p.hosts.map(|h| n.hosts.get(h).map_or("?", String::as_str));
            let (latency, bandwidth) =
                (spread(&p.latency_ns, 1e3, "us"), spread(&p.bytes_per_s, 1e6, "MB/s"));
            format!("  {a} and {b}: {latency}, {bandwidth}\n")
        };
        n.pairs.iter().take(most).for_each(|p| out.push_str(&line(p)));
        if n.pairs.len() > most {
            let _ = writeln!(out, "  {} pairs more: the JSON has them", n.pairs.len() - most);
        }
    }

    fn declared(&self, out: &mut String) {
        let Some(d) = self.declared else { return };
        match &d.slit {
            Some(rows) if rows.len() <= MOST_PRINTED => {
                let row = |r: &Vec<u32>| r.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
                let rows: Vec<String> = rows.iter().map(row).collect();
                let _ = writeln!(out, "declared distances (SLIT): {}", rows.join(" / "));
            }
            Some(rows) => {
                let _ = writeln!(out, "declared distances (SLIT): of {} nodes", rows.len());
            }
            None => out.push_str("declared distances (SLIT): none\n"),
        }
        let nearest = d.hmat.iter().map(|a| (a, "access0"));
        let with_cpus = d.hmat_cpus.iter().map(|a| (a, "access1, nodes with CPUs"));
        for (a, class) in nearest.chain(with_cpus) {
            let readers: Vec<String> = a.readers.iter().map(u32::to_string).collect();
            let value = |v: Option<u64>, unit: &str| {
                v.map_or_else(|| "?".to_owned(), |v| format!("{v} {unit}"))
            };
            let _ = writeln!(
                out,
                "declared by the HMAT ({class}): node {} read by node {}: {}, {}; written: {}, {}",
                a.memory,
                readers.join(", "),
                value(a.read_latency_ns, "ns"),
                value(a.read_mb_per_s, "MB/s"),
                value(a.write_latency_ns, "ns"),
                value(a.write_mb_per_s, "MB/s")
            );
        }
    }

    /// For programs: the schema is docs/schemas/evenly.topology-1.json.
    #[must_use]
    pub fn json(&self) -> Value {
        let m = self.machine;
        let (root, factors, homes) = (m.root(), m.factors(), m.homes());
        let n = factors.nodes();
        let rows = |value: &dyn Fn(usize, usize) -> Value| -> Vec<Vec<Value>> {
            (0..n).map(|i| (0..n).map(|j| value(i, j)).collect()).collect()
        };
        let (source, from) = match m.origin() {
            Origin::Here => ("here", Value::Null),
            Origin::Synthetic(text) => ("synthetic", json!(text)),
            Origin::Xml(path) => ("xml", json!(path.display().to_string())),
            Origin::Hosts(_) => ("hosts", Value::Null),
        };
        let spread = |high: bool| {
            rows(&|i, j| json!(m.measured_factor(i, j).map(|f| if high { f.high } else { f.low })))
        };
        let measured = factors.source() == Source::Measured;
        json!({
            "schema": SCHEMA,
            "evenly": env!("CARGO_PKG_VERSION"),
            "source": source,
            "from": from,
            "packages": root.of(Kind::Package).len(),
            "nodes": root.of(Kind::Node).len(),
            "cores": root.of(Kind::Core).len(),
            "cpus": root.of(Kind::Cpu).len(),
            "allowed": m.allowed(),
            "disallowed": m.disallowed(),
            "offline": m.offline(),
            "kinds": m.kinds(),
            "tree": root,
            "factors": {
                "source": factors.source(),
                "nodes": homes.iter().map(|h| h.shown()).collect::<Vec<_>>(),
                "matrix": rows(&|i, j| json!(factors.at(i, j))),
                "low": measured.then(|| spread(false)),
                "high": measured.then(|| spread(true)),
            },
            "declared": self.declared,
            "measured": m.measurement(),
            "hosts": m.hosts(),
            "memory_ns": m.memory_ns_of_hosts(),
            "network": m.network(),
            "notes": self.notes,
        })
    }
}

fn threads(n: u32) -> String {
    format!("{n} thread{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::Access;
    use crate::measured::Meanwhile;
    use crate::measured::tests::{cache_pair, two_nodes};
    use crate::network::tests::two_hosts;
    use crate::{Host, join, synthetic};

    fn declared() -> Declared {
        let access = Access {
            memory: 0,
            readers: vec![0, 1],
            read_latency_ns: Some(90),
            write_latency_ns: None,
            read_mb_per_s: Some(100_000),
            write_mb_per_s: Some(80_000),
        };
        Declared {
            nodes: vec![0, 1],
            slit: Some(vec![vec![10, 21], vec![21, 10]]),
            hmat: vec![access.clone()],
            hmat_cpus: vec![Access { readers: vec![0], read_latency_ns: Some(95), ..access }],
        }
    }

    #[test]
    fn measured_beside_declared() {
        let machine = synthetic("numa:2 core:2 pu:1").unwrap().with_measurement(two_nodes());
        let (declared, notes) = (declared(), ["something else".to_owned()]);
        let report = Report { machine: &machine, declared: Some(&declared), notes: &notes };
        insta::assert_snapshot!(report.text());
        let json = report.json();
        assert_eq!(json["factors"]["matrix"][0][1], 1.5);
        assert_eq!(
            (&json["factors"]["source"], &json["factors"]["high"][1][1]),
            (&json!("measured"), &json!(1.25))
        );
        assert_eq!(json["measured"]["pairs"].as_array().unwrap().len(), 4);
        assert_eq!((&json["cores"], &json["allowed"]), (&json!(4), &json!("0-3")));
    }

    #[test]
    fn caches_are_beside_the_memory() {
        let measured =
            crate::Measurement { caches: vec![cache_pair(&[20.0, 25.0, 90.0])], ..two_nodes() };
        let machine = synthetic("numa:2 l2:1 core:2").unwrap();
        assert_eq!(machine.caches_from(), Some(Source::Assumed));
        assert_eq!(machine.cluster(None).unwrap().caches()[0].factor, 0.15);
        let machine = machine.with_measurement(measured);
        assert_eq!(machine.caches_from(), Some(Source::Measured));
        assert_eq!(machine.cluster(None).unwrap().caches()[0].factor, 0.25);
        assert_eq!(machine.knowledge().caches[0].0.factor, 0.25);
        let report = Report { machine: &machine, declared: None, notes: &[] };
        let line =
            "a line from CPU 2 to CPU 3, which share an L2: 25.0 [20.0, 90.0] ns, 0.25 of memory";
        assert!(report.text().contains(line), "{}", report.text());
        assert_eq!(report.json()["measured"]["caches"][0]["level"], "L2");
        assert_eq!(synthetic("numa:2 core:2").unwrap().caches_from(), None);
    }

    #[test]
    fn a_busy_machine_is_named() {
        let with = |load| {
            let measured = crate::Measurement { load, ..two_nodes() };
            let machine = synthetic("numa:2 core:2").unwrap().with_measurement(measured);
            let report = Report { machine: &machine, declared: None, notes: &[] };
            (report.text(), report.json()["measured"]["load"].clone())
        };
        let (text, json) = with(Some(Meanwhile { others: 0.43, stolen: 0.0 }));
        assert!(text.contains("  other programs had 43 % of these CPUs meanwhile: "), "{text}");
        assert_eq!(json, json!({ "others": 0.43, "stolen": 0.0 }));
        let (text, _) = with(Some(Meanwhile { others: 0.01, stolen: 0.25 }));
        assert!(text.contains("had 1 % of these CPUs meanwhile, and the host of this"), "{text}");
        for quiet in [Some(Meanwhile { others: 0.02, stolen: 0.01 }), None] {
            assert!(!with(quiet).0.contains("other programs"));
        }
    }

    #[test]
    fn hosts_and_their_network() {
        let host = |name: &str| Host {
            name: name.to_owned(),
            machine: synthetic("numa:2 core:2 pu:1").unwrap().with_measurement(two_nodes()),
        };
        let all = join(&[host("b"), host("a")], two_hosts()).unwrap();
        let report = Report { machine: &all, declared: None, notes: &[] };
        insta::assert_snapshot!(report.text());
        let json = report.json();
        assert_eq!((&json["source"], &json["hosts"]), (&json!("hosts"), &json!(["a", "b"])));
        // 34 us over the median of 80 and 100 ns.
        assert_eq!(json["memory_ns"], json!([90.0, 90.0]));
        let factor = json["factors"]["matrix"][0][3].as_f64().unwrap();
        assert!((factor - 34_000.0 / 90.0).abs() < 1e-6, "{factor}");
        assert_eq!(json["network"]["pairs"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn nothing_known_is_said() {
        let machine = synthetic("numa:2 core:2").unwrap();
        let report = Report { machine: &machine, declared: None, notes: &[] };
        let text = report.text();
        assert!(text.contains("(unknown: all 1)") && !text.contains("SLIT"), "{text}");
        let json = report.json();
        assert_eq!((&json["factors"]["low"], &json["measured"]), (&Value::Null, &Value::Null));
        let none = Declared::default();
        let text = Report { machine: &machine, declared: Some(&none), notes: &[] }.text();
        assert!(text.contains("(SLIT): none"), "{text}");
    }

    #[test]
    fn moments_are_written_whatever_they_are() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert!(date(u64::MAX).starts_with("9999"));
    }
}

//! A program in the guest with an evenly attached to it: what was seen of it, and what is asserted of that.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenly_lab::{Lab, Output};
use serde_json::Value;

use crate::guests::run;

/// Periods are 100 ms. In one of this length the guest stood still while its clock went on: all that time is
/// counted to the threads that held a CPU, so that it says nothing of shares, and is left out of them.
const STANDSTILL: Duration = Duration::from_secs(1);
/// By how much shares of CPU time differ, as greatest over least less one: 0 where all have the same, 1 where
/// threads stay and one CPU has two of them. Below the middle threads take turns, above it they do not: emulated
/// CPUs are not equally fast at all times, which is some 0.3 on a busy host.
pub(crate) const EVEN: f64 = 0.5;

/// What a script that uses `guest/test-functions` printed.
pub(crate) fn run_script(lab: &mut Lab, script: &str) -> Output {
    let output = run(lab, &format!(". /lab/test-functions; {script}"));
    if output.status != 0 {
        let rest = run(lab, "cd /tmp; tail -c 3000 said record");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        panic!("{script}\n{}\n{said}\n{}\n{}", output.status, output.text(), rest.text());
    }
    output
}

/// `threads` equal threads, balanced while `during` happens.
pub(crate) fn observe(lab: &mut Lab, threads: u32, options: &str, during: &str) -> Run {
    Run::of(lab, &format!("begin {threads}; balance {options}; {during}"))
}

pub(crate) fn cpus(list: &str) -> BTreeSet<u32> {
    let mut set = BTreeSet::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        set.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    set
}

/// Text in parts, each begun by a line `== NAME`.
pub(crate) fn parts(text: &str) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    for part in format!("\n{text}").split("\n== ").skip(1) {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
        parts.insert(name.to_owned(), content.to_owned());
    }
    parts
}

pub(crate) type Masks = BTreeMap<u32, Vec<BTreeSet<u32>>>;

/// Reads what the guest's `masks` prints.
pub(crate) fn masks_of(text: &str) -> Masks {
    let mut masks = Masks::new();
    for line in text.lines() {
        let (tid, list) = line.split_once(' ').unwrap();
        masks.entry(tid.parse().unwrap()).or_default().push(cpus(list));
    }
    masks
}

pub(crate) struct Move {
    pub(crate) domain: u64,
    pub(crate) at: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) reason: String,
}

/// One program with an evenly attached to it for a while.
pub(crate) struct Run {
    /// The masks before evenly came, and after it had gone.
    pub(crate) before: BTreeMap<u32, BTreeSet<u32>>,
    pub(crate) after: BTreeMap<u32, BTreeSet<u32>>,
    /// The masks that were seen while it was there.
    pub(crate) seen: Masks,
    pub(crate) said: String,
    pub(crate) json: Value,
    pub(crate) events: Vec<Value>,
}

impl Run {
    /// Runs a script up to the end of evenly and of the program.
    pub(crate) fn of(lab: &mut Lab, script: &str) -> Run {
        let output = run_script(lab, &format!("{script}; finish"));
        let text = output.text();
        assert!(text.starts_with("status 0\n"), "{script}: {text}");
        let parts = parts(&text);
        let single = |part: &str| -> BTreeMap<u32, BTreeSet<u32>> {
            masks_of(&parts[part]).into_iter().map(|(tid, masks)| (tid, masks[0].clone())).collect()
        };
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        Run {
            before: single("before"),
            after: single("after"),
            seen: masks_of(&parts["seen"]),
            said: parts["said"].clone(),
            json: parse(&parts["json"]),
            events: parts["record"].lines().map(parse).collect(),
        }
    }

    /// What every case ends with: each thread's mask is the one that it had.
    pub(crate) fn restored(&self) {
        assert!(!self.before.is_empty());
        assert_eq!(self.before, self.after, "{}", self.said);
    }

    pub(crate) fn assert_nothing_foreign(&self) {
        assert!(!self.said.contains("left alone"), "{}", self.said);
    }

    pub(crate) fn list<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Value> {
        self.json[name].as_array().unwrap().iter()
    }

    pub(crate) fn domain_cpus(&self) -> Vec<&str> {
        self.list("domains").map(|d| d["cpus"].as_str().unwrap()).collect()
    }

    /// At the end, in ascending order: which domain has the odd thread is open.
    pub(crate) fn threads_per_domain(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.homes().values().map(BTreeSet::len).collect();
        threads.sort_unstable();
        threads
    }

    /// Threads on each CPU at the last balancing points.
    pub(crate) fn last_counts(&self) -> BTreeMap<u64, u64> {
        let mut last = BTreeMap::new();
        for point in self.kind("point") {
            last.insert(number(&point["domain"]), &point["cpus"]);
        }
        let rows = last.into_values().flat_map(|cpus| cpus.as_array().unwrap());
        rows.map(|row| (number(&row[0]), number(&row[1]))).collect()
    }

    pub(crate) fn all(&self) -> BTreeSet<u32> {
        self.homes().into_values().flatten().collect()
    }

    pub(crate) fn kind<'a>(&'a self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["event"] == kind)
    }

    /// The threads of each domain, at the end.
    pub(crate) fn homes(&self) -> BTreeMap<u64, BTreeSet<u32>> {
        let tids = self.tids();
        let of = |e: &Value| (tids[&number(&e["thread"])], number(&e["domain"]));
        let last: BTreeMap<u32, u64> = self.kind("joined").map(of).collect();
        let mut homes: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (tid, domain) in last {
            homes.entry(domain).or_default().insert(tid);
        }
        homes
    }

    /// When the CPUs of a domain changed, and to what.
    pub(crate) fn domain_events(&self, domain: u64) -> Vec<(u64, &str)> {
        let of = self.kind("domain").filter(|e| number(&e["domain"]) == domain);
        of.map(|e| (number(&e["at"]), e["cpus"].as_str().unwrap())).collect()
    }

    pub(crate) fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for point in self.kind("point") {
            for row in point["moves"].as_array().into_iter().flatten() {
                // A fifth element says why it could not be done.
                if row[4].is_null() {
                    moves.push(Move {
                        domain: number(&point["domain"]),
                        at: number(&point["at"]),
                        from: number(&row[1]).try_into().unwrap(),
                        to: number(&row[2]).try_into().unwrap(),
                        reason: row[3].as_str().unwrap().to_owned(),
                    });
                }
            }
        }
        moves
    }

    /// The whole node of a domain, or all CPUs where there is one domain.
    pub(crate) fn bounds(&self, domain: u64) -> BTreeSet<u32> {
        let all = self.before.values().flatten().copied().max().unwrap_or(0).max(7) + 1;
        match self.list("domains").count() {
            1 => (0..all).collect(),
            _ if domain == 0 => (0..all / 2).collect(),
            _ => (all / 2..all).collect(),
        }
    }

    /// Once a thread has been brought into its domain it never leaves it.
    pub(crate) fn assert_moves_stay_inside(&self) {
        for m in self.moves() {
            let bounds = self.bounds(m.domain);
            assert!(bounds.contains(&m.to), "to CPU {} in domain {}", m.to, m.domain);
            let swap = ["behind", "ahead"].contains(&m.reason.as_str());
            assert!(
                !swap || bounds.contains(&m.from),
                "from CPU {} in domain {}",
                m.from,
                m.domain
            );
        }
    }

    pub(crate) fn assert_masks_inside_domains(&self) {
        for (domain, threads) in self.homes() {
            let bounds = self.bounds(domain);
            for tid in threads {
                let masks = &self.seen[&tid];
                assert!(masks.iter().all(|mask| mask.is_subset(&bounds)), "{tid}: {masks:?}");
            }
        }
    }

    /// The threads that are balanced are pinned, to such CPUs. Those that are just being swapped may
    /// be on their way, with the mask of their domain, at the moment at which masks are read.
    pub(crate) fn assert_pinned_within(&self, usable: impl Fn(u32) -> bool) {
        let (mut pinned, all) = (0, self.all());
        for tid in &all {
            let mask = self.seen[tid].last().unwrap();
            if mask.len() == 1 {
                pinned += 1;
                assert!(mask.iter().all(|&cpu| usable(cpu)), "{tid}: {mask:?}");
            }
        }
        assert!(pinned * 2 >= all.len(), "{:?}: {}", self.seen, self.record());
    }

    /// Once threads have been spread, the CPUs of a domain hold numbers of them that differ by at
    /// most one. Threads roam between a change of the CPUs of a domain and the first distribution
    /// after it, and go where the kernel lets them go.
    pub(crate) fn assert_counts_even(&self) {
        for domain in self.homes().into_keys() {
            let spread = |reason: &str| ["spread", "evicted"].contains(&reason);
            let spread = self.moves().into_iter().filter(|m| spread(&m.reason));
            let spread = spread.filter(|m| m.domain == domain).map(|m| m.at);
            let of = |e: &&Value| number(&e["domain"]) == domain;
            let came = self.kind("joined").filter(of).map(|e| number(&e["at"]));
            let changed = self.domain_events(domain).into_iter().map(|(at, _)| at);
            let last = spread.chain(came).chain(changed).max().unwrap_or(0);
            let later = |p: &&Value| of(p) && number(&p["at"]) > last;
            let mut checked = 0;
            for point in self.kind("point").filter(later).skip(2) {
                let counts: Vec<u64> =
                    point["cpus"].as_array().unwrap().iter().map(|row| number(&row[1])).collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                let record = || self.record();
                assert!(most - least <= 1, "{counts:?} at {}: {}", point["at"], record());
                checked += 1;
            }
            assert!(checked > 0, "domain {domain}: spread until the end: {}", self.record());
        }
    }

    pub(crate) fn thread(&self, tid: u32) -> &Value {
        self.list("threads").find(|t| t["id"]["tid"] == tid).unwrap()
    }

    /// The ids of the threads that were recorded, by their numbers in the recording.
    fn tids(&self) -> BTreeMap<u64, u32> {
        let of = |e: &Value| (number(&e["thread"]), number(&e["tid"]).try_into().unwrap());
        self.kind("thread").map(of).collect()
    }

    /// By how much the shares of CPU time of these threads differ: greatest over least less one.
    pub(crate) fn spread(&self, threads: &BTreeSet<u32>) -> f64 {
        let tids = self.tids();
        // What each ran, and of how long.
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for point in self.kind("point") {
            let elapsed = number(&point["elapsed"]);
            if Duration::from_nanos(elapsed) >= STANDSTILL {
                continue;
            }
            for row in point["threads"].as_array().unwrap() {
                let sum = sums.entry(tids[&number(&row[0])]).or_default();
                *sum = (sum.0 + number(&row[3]), sum.1 + elapsed);
            }
        }
        let shares: Vec<f64> =
            threads.iter().map(|tid| sums[tid].0 as f64 / sums[tid].1 as f64).collect();
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        shares.into_iter().fold(0.0, f64::max) / least - 1.0
    }

    /// All of these, more than there are CPUs for them, have been moved, and none got as little as one that shares
    /// its CPU all the time.
    pub(crate) fn assert_taking_turns(&self, threads: &BTreeSet<u32>) {
        for &tid in threads {
            let t = self.thread(tid);
            assert!(number(&t["migrations"]) > 0, "{t} was never moved: {}", self.said);
        }
        let spread = self.spread(threads);
        assert!(spread < EVEN, "{spread}: {}\n{}", self.said, self.record());
    }

    /// The recording without what happened at each point but moves.
    pub(crate) fn record(&self) -> String {
        let lines = self.events.iter().filter(|e| e["event"] != "point" || !e["moves"].is_null());
        lines.map(|e| format!("{e}\n")).collect()
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

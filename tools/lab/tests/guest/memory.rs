//! Memory on two nodes with a CPU each, twice as far as the own one: ranks that talk are brought together, and
//! their memory goes with them where that pays.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};

use evenly_lab::Lab;
use serde_json::Value;

use crate::guests::{run, text};
use crate::run::{cpus, parts, run_script};

/// Wherever the kernel has the ranks when evenly comes, two of them end on another node than their memory
/// was on. How far the nodes are is what the firmware declares.
pub(crate) fn it_follows_ranks_to_the_node_of_their_cpu(lab: &mut Lab) {
    text(lab, "rm -rf ~/.cache/evenly/topology");
    let ranks = Ranks::of(lab, "await 'memory beside the ranks' have_memory_beside_them");
    ranks.assert_paired();
    for (rank, after) in ranks.after.iter().enumerate() {
        let (here, all) = (after.pages[after.node()], after.pages[0] + after.pages[1]);
        assert!(here * 10 > all * 9, "rank {rank}: {ranks:?}");
    }
    let is_move = |line: &&str| line.starts_with("evenly: ") && line.contains(" moved from node ");
    assert!(ranks.said.lines().filter(is_move).count() >= 2, "{ranks:?}");
}

pub(crate) fn it_stays_where_nodes_are_equally_far(lab: &mut Lab) {
    measure(lab);
    equally_far(lab);
    let ranks = Ranks::of(lab, "await 'the ranks in pairs' are_paired; more 10");
    ranks.assert_paired();
    assert!(!ranks.said.contains("moved from node"), "{}", ranks.said);
    for rank in ranks.moved() {
        let (before, after) = (&ranks.before[rank], &ranks.after[rank]);
        let there = 1 - after.node();
        assert!(after.pages[there] * 10 > before.pages[there] * 9, "rank {rank}: {ranks:?}");
    }
}

/// The file in which evenly keeps what it has measured.
fn kept(lab: &mut Lab) -> String {
    let kept = text(lab, "echo ~/.cache/evenly/topology/*.json");
    assert!(kept.ends_with(".json") && !kept.contains(' ') && !kept.contains('*'), "{kept}");
    kept
}

/// What is measured, as JSON and as text.
fn measure(lab: &mut Lab) -> (Value, String) {
    let output = run(lab, "evenly topology --measure --export /tmp/measured.xml --json -");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status, 0, "{said}");
    (serde_json::from_str(&output.text()).unwrap(), said)
}

/// On two nodes, each with a CPU and memory of its own: every pair is measured on memory that was looked
/// up, each figure has its spread, what the firmware declares stands beside it, and all of it is kept and
/// exported. How far the nodes are from each other is not looked at: under emulation it is noise.
pub(crate) fn every_pair_of_nodes_is_measured(lab: &mut Lab) {
    let (found, said) = measure(lab);
    let measured = &found["measured"];
    let pairs = measured["pairs"].as_array().unwrap();
    let found_pairs: Vec<_> =
        pairs.iter().map(|p| (p["reader"].as_u64(), p["memory"].as_u64())).collect();
    let all = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(r, m)| (Some(r), Some(m)));
    assert_eq!(found_pairs, all, "{found:#}");
    let spread = |s: &Value, values: usize| {
        let [low, median, high] = ["low", "median", "high"].map(|k| s[k].as_f64().unwrap());
        assert!(0.0 < low && low <= median && median <= high, "{s:#}");
        assert_eq!(s["values"].as_array().unwrap().len(), values);
        median
    };
    let mut latencies = BTreeMap::new();
    for pair in pairs {
        assert_eq!(
            (&pair["binding"], &pair["readers"]),
            (&"checked".into(), &1.into()),
            "{pair:#}"
        );
        assert!(pair["buffer_bytes"].as_u64().unwrap() >= 64 << 20, "{pair:#}");
        spread(&pair["read_bytes_per_s"], 5);
        let place = |of: &str| pair[of].as_u64().unwrap() as usize;
        latencies.insert((place("reader"), place("memory")), spread(&pair["latency_ns"], 11));
    }
    let factors = &found["factors"];
    assert_eq!((&factors["source"], &factors["nodes"]), (&"measured".into(), &vec![0, 1].into()));
    let of = |matrix: &str, i: usize, j: usize| factors[matrix][i][j].as_f64().unwrap();
    for (&(i, j), latency) in &latencies {
        let expected = latency / latencies[&(i, i)];
        assert!((of("matrix", i, j) - expected).abs() < 1e-9, "{found:#}");
        assert!(of("low", i, j) <= expected && expected <= of("high", i, j), "{found:#}");
    }
    assert_eq!(found["declared"]["slit"], serde_json::json!([[10, 21], [21, 10]]));
    // The same for people, in the words that name them.
    assert_eq!(said.matches(", pages checked)").count(), 4, "{said}");
    assert!(said.contains("declared distances (SLIT): 10 21 / 21 10"), "{said}");
    let path = kept(lab);
    let file: Value = serde_json::from_str(&text(lab, &format!("cat {path}"))).unwrap();
    assert_eq!(&file["measured"], measured);
    // In the XML they are distances, in thousandths.
    let again = text(lab, "evenly topology --xml /tmp/measured.xml --json - 2>/dev/null");
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["factors"]["source"], "xml");
    for &(i, j) in latencies.keys() {
        let exported = again["factors"]["matrix"][i][j].as_f64().unwrap();
        assert!((exported - of("matrix", i, j)).abs() <= 0.0005, "{again:#}");
    }
}

/// A measurement that says so, where evenly keeps its own: under emulation every node is as far as any
/// other, but for noise.
fn equally_far(lab: &mut Lab) {
    let kept = kept(lab);
    let pair = |k: u32| {
        let latency =
            serde_json::json!({ "median": 100.0, "low": 100.0, "high": 100.0, "values": [100.0] });
        serde_json::json!({
            "reader": k / 2, "memory": k % 2, "latency_ns": latency, "read_bytes_per_s": null,
            "readers": 1, "buffer_bytes": 1, "huge_share": null, "binding": "checked",
        })
    };
    let pairs: Vec<Value> = (0..4).map(pair).collect();
    let measured = serde_json::json!({ "unix_s": 0, "seconds": 0.0, "pairs": pairs, "notes": [] });
    let file = serde_json::json!({ "schema": "evenly.factors/1", "measured": measured });
    text(lab, &format!("echo '{file}' >{kept}"));
}

/// A rank, as `look_at_ranks` prints it.
#[derive(Debug)]
struct Rank {
    /// On node 0 and on node 1.
    pages: [u64; 2],
    /// What its threads may use: as many sets as differ.
    masks: Vec<BTreeSet<u32>>,
}

impl Rank {
    /// The node that it is pinned to; node k has CPU k.
    fn node(&self) -> usize {
        // The first thread may only wait for the one that computes.
        let pinned: Vec<_> = self.masks.iter().filter(|mask| mask.len() == 1).flatten().collect();
        let [cpu] = pinned[..] else { panic!("{self:?}") };
        *cpu as usize
    }
}

/// Four ranks, before they were placed and when they were.
#[derive(Debug)]
struct Ranks {
    before: Vec<Rank>,
    after: Vec<Rank>,
    said: String,
}

impl Ranks {
    fn of(lab: &mut Lab, meanwhile: &str) -> Ranks {
        let output = run_script(lab, &format!("meanwhile() {{ {meanwhile}; }}; pair meanwhile"));
        let text = output.text();
        assert!(text.starts_with("status 0\n"), "{text}");
        let parts = parts(&text);
        let ranks = |part: &str| -> Vec<Rank> {
            let rank = |line: &str| {
                let mut words = line.split_ascii_whitespace();
                let mut number = || words.next().unwrap().parse().unwrap();
                let pages = [number(), number()];
                Rank { pages, masks: words.map(cpus).collect() }
            };
            parts[part].lines().map(rank).collect()
        };
        // No thread is left pinned.
        for free in ranks("free") {
            assert_eq!(free.masks, [cpus("0-1")], "{text}");
        }
        let ranks =
            Ranks { before: ranks("before"), after: ranks("after"), said: parts["said"].clone() };
        assert_eq!((ranks.before.len(), ranks.after.len()), (4, 4), "{text}");
        ranks
    }

    fn assert_paired(&self) {
        let node = |rank: usize| self.after[rank].node();
        assert!(node(0) == node(2) && node(1) == node(3) && node(0) != node(1), "{self:?}");
        assert_eq!(self.moved().len(), 2, "{self:?}");
        // Nothing was guessed.
        assert!(!self.said.contains("first seen computing"), "{}", self.said);
    }

    /// Those on another node than most of their memory was.
    fn moved(&self) -> Vec<usize> {
        let moved = |&rank: &usize| {
            let [a, b] = self.before[rank].pages;
            self.after[rank].node() != usize::from(b > a)
        };
        (0..4).filter(moved).collect()
    }
}

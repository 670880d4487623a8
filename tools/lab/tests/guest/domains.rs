//! Domains, and that threads take turns within them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use evenly_lab::Lab;
use serde_json::Value;

use crate::guests::text;
use crate::run::{EVEN, Run, cpus, observe, parts, run_script};

/// Nine threads on two nodes of four CPUs: five and four, each node balanced on its own.
pub(crate) fn domains_are_nodes(lab: &mut Lab) {
    let run = observe(lab, 9, "--policy juggle", "more 20; watch_masks 1; more 20");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [4, 5]);
    run.assert_moves_stay_inside();
    run.assert_masks_inside_domains();
    run.assert_counts_even();
    // The other four have a CPU each.
    for threads in run.homes().values().filter(|threads| threads.len() == 5) {
        run.assert_taking_turns(threads);
    }
}

/// Eight threads on eight CPUs need no turns; their masks are those of their nodes, or single CPUs.
pub(crate) fn hybrid_leaves_eight_threads_in_their_nodes(lab: &mut Lab) {
    let run = observe(lab, 8, "--policy hybrid", "more 15; watch_masks 1");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [4, 4]);
    run.assert_moves_stay_inside();
    run.assert_masks_inside_domains();
}

pub(crate) fn hybrid_lets_ten_threads_take_turns_within_nodes(lab: &mut Lab) {
    let run = observe(lab, 10, "--policy hybrid", "more 20; watch_masks 1; more 25");
    run.restored();
    assert_eq!(run.threads_per_domain(), [5, 5]);
    run.assert_moves_stay_inside();
    run.assert_masks_inside_domains();
    for threads in run.homes().values() {
        run.assert_taking_turns(threads);
    }
}

/// The guest's sockets have a last cache each, and are its nodes.
pub(crate) fn domains_are_caches(lab: &mut Lab) {
    let shared = text(lab, "cat /sys/devices/system/cpu/cpu[05]/cache/index3/shared_cpu_list");
    assert_eq!(shared, "0-3\n4-7");
    let run = observe(lab, 5, "--policy juggle --domain llc", "more 10");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [2, 3]);
}

pub(crate) fn one_domain_on_request(lab: &mut Lab) {
    let run = observe(lab, 9, "--policy juggle --domain machine", "more 35");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-7"]);
    assert_eq!(run.threads_per_domain(), [9]);
    run.assert_counts_even();
    run.assert_taking_turns(&run.all());
}

/// What the other cases would look like if CPUs took no turns.
pub(crate) fn pinned_threads_do_not_take_turns(lab: &mut Lab) {
    let run = observe(lab, 8, "--policy static --domain machine --cpus 0-6", "more 12");
    run.restored();
    run.assert_counts_even();
    let spread = run.spread(&run.all());
    assert!(spread > EVEN, "{spread}: {}", run.said);
}

pub(crate) fn juggle_lets_eight_threads_take_turns_on_seven_cpus(lab: &mut Lab) {
    eight_threads_on_seven_cpus(lab, "juggle").assert_counts_even();
}

pub(crate) fn hybrid_lets_eight_threads_take_turns_on_seven_cpus(lab: &mut Lab) {
    eight_threads_on_seven_cpus(lab, "hybrid");
}

fn eight_threads_on_seven_cpus(lab: &mut Lab, policy: &str) -> Run {
    let options = format!("--policy {policy} --domain machine --cpus 0-6");
    let run = observe(lab, 8, &options, "more 25; watch_masks 1; more 5");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-6"]);
    let allowed = cpus("0-6");
    for tid in run.all() {
        assert!(run.seen[&tid].iter().all(|mask| mask.is_subset(&allowed)), "{:?}", run.seen);
    }
    run.assert_taking_turns(&run.all());
    run
}

/// The same by the program's own mask, which is what it has again in the end.
pub(crate) fn a_program_confined_by_its_mask(lab: &mut Lab) {
    let script = "begin 8 taskset 7f; balance --policy hybrid; more 15; watch_masks 1; more 25";
    let run = Run::of(lab, script);
    run.restored();
    assert!(run.before.values().all(|mask| *mask == cpus("0-6")), "{:?}", run.before);
    // More room on the node with four CPUs: 4 + 1 on four, 3 on three, or 4 on four and 3 + 1 on
    // three.
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    let inside = |mask: &BTreeSet<u32>| mask.is_subset(&cpus("0-6"));
    assert!(run.seen.values().flatten().all(inside), "{:?}", run.seen);
    run.assert_moves_stay_inside();
    for move_ in run.moves() {
        assert_ne!(move_.to, 7);
    }
    let homes = run.homes();
    assert_eq!(homes.values().map(BTreeSet::len).sum::<usize>(), 8);
    for (domain, threads) in homes {
        let room = if domain == 0 { 4 } else { 3 };
        if threads.len() > room {
            run.assert_taking_turns(&threads);
        }
    }
}

/// `evenly run`: the program's own output and exit status, and the report.
pub(crate) fn a_program_from_start_to_end(lab: &mut Lab) {
    // It ends once it was balanced for a while; alone it does the same work as then.
    let work = "spmd --threads 9 --iters 3000000";
    let output = run_script(
        lab,
        &format!(
            "rm -f record end; evenly run --period 100ms --budget 100 --threads 9 --json json \
             --record record --policy hybrid -- \
             sh -c '{work} --phases 1000000 --end-on end; exit 3' >balanced 2>said & E=$!; \
             await 'a recording' test -s record; more 10; touch end; wait $E; echo \"status $?\"; \
             {work} --phases $(sed 's/.*\"phases\":\\([0-9]*\\),.*/\\1/' balanced) >alone; \
             for part in alone balanced said json; do echo \"== $part\"; cat $part; done"
        ),
    );
    let text = output.text();
    assert!(text.starts_with("status 3\n"), "{text}");
    let parts = parts(&text);
    let checksum =
        |part: &str| serde_json::from_str::<Value>(&parts[part]).unwrap()["checksum"].clone();
    assert!(!checksum("alone").is_null());
    assert_eq!(checksum("alone"), checksum("balanced"));
    let json: Value = serde_json::from_str(&parts["json"]).unwrap();
    assert_eq!(json["ended"]["exit"], 3, "{json}");
    assert_eq!(json["domains"].as_array().unwrap().len(), 2, "{json}");
    let mut threads: Vec<u64> = json["domains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["threads"].as_u64().unwrap())
        .collect();
    threads.sort_unstable();
    assert_eq!(threads, [4, 5], "{json}");
}

/// One domain of twelve CPUs.
pub(crate) fn juggle_lets_sixteen_threads_take_turns_on_twelve_cpus(lab: &mut Lab) {
    let run = observe(lab, 16, "--policy juggle --domain machine", "more 45");
    run.restored();
    assert_eq!(run.homes().len(), 1);
    run.assert_counts_even();
    run.assert_moves_stay_inside();
    run.assert_taking_turns(&run.all());
}

/// Six CPUs in each of two nodes.
pub(crate) fn hybrid_lets_sixteen_threads_take_turns_in_two_nodes(lab: &mut Lab) {
    let run = observe(lab, 16, "--policy hybrid", "more 45");
    run.restored();
    let homes = run.homes();
    assert_eq!(homes.values().map(BTreeSet::len).collect::<Vec<_>>(), [8, 8]);
    run.assert_moves_stay_inside();
    for threads in homes.values() {
        run.assert_taking_turns(threads);
    }
}

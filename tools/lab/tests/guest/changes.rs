//! What changes while a program is balanced: CPUs that go and come, cpusets, quotas, and a balancer that is
//! killed.

use std::collections::BTreeMap;

use evenly_lab::Lab;

use crate::run::{Run, cpus, masks_of, observe, parts, run_script};

/// A CPU goes offline: its threads go elsewhere in its node, and where that is fuller than the
/// other one, one goes there. The CPU comes back and is used again.
pub(crate) fn a_cpu_goes_and_comes_back(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu3/online";
    let run = observe(
        lab,
        8,
        "--policy juggle",
        &format!(
            "more 10; echo 0 >{online}; await gone domain_is 0 0-2; await 'one to leave' hold 3 5; \
             more 10; masks $P >seen; \
             echo 1 >{online}; await back domain_is 0 0-3; await 'one to return' hold 4 4; more 15"
        ),
    );
    run.restored();
    run.assert_nothing_foreign();
    let history: Vec<_> = run.domain_events(0).into_iter().map(|(_, cpus)| cpus).collect();
    assert_eq!(history, ["0-3", "0-2", "0-3"]);
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [4, 4]);
    // Not to the CPU that was offline.
    run.assert_pinned_within(|cpu| cpu != 3);
    run.assert_moves_stay_inside();
    let times: Vec<u64> = run.domain_events(0).into_iter().map(|(at, _)| at).collect();
    let evicted: Vec<_> = run.moves().into_iter().filter(|m| m.at >= times[1]).collect();
    assert!(evicted.iter().any(|m| m.domain == 0 && m.at < times[2]), "{}", run.record());
    assert!(evicted.iter().all(|m| m.to != 3 || m.at >= times[2]), "{}", run.record());
    run.assert_counts_even();
    assert_eq!(run.last_counts(), BTreeMap::from_iter((0..8).map(|cpu| (cpu, 1))));
}

/// A CPU that is offline when evenly comes, and online later, is used then, in its own node, which
/// has room for one more thread with it.
pub(crate) fn a_cpu_is_offline_at_the_start(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu5/online";
    let run = Run::of(
        lab,
        &format!(
            "echo 0 >{online}; begin 8; balance --policy juggle; await 'less where it is' hold 5 3; \
             more 10; masks $P >seen; \
             echo 1 >{online}; await 'the CPU that came' domain_is 1 4-7; \
             await 'one to follow it' hold 4 4; more 15"
        ),
    );
    run.restored();
    run.assert_nothing_foreign();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    for tid in run.all() {
        assert!(run.seen[&tid].iter().all(|mask| !mask.contains(&5)), "{:?}", run.seen);
    }
    assert_eq!(run.threads_per_domain(), [4, 4]);
    run.assert_moves_stay_inside();
    run.assert_counts_even();
    assert_eq!(run.last_counts(), BTreeMap::from_iter((0..8).map(|cpu| (cpu, 1))));
}

/// A program's own mask holds a CPU that has gone offline, which it has again in the end, and uses
/// when it comes online. (A mask that is set while the CPU is offline does not get it.)
pub(crate) fn a_mask_holds_a_cpu_that_is_offline(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu5/online";
    let run = Run::of(
        lab,
        &format!(
            "begin 3 taskset f0; echo 0 >{online}; balance --policy juggle; more 5; \
             masks $P >seen; echo 1 >{online}; await 'the CPU that came' domain_is 1 4-7; more 10"
        ),
    );
    run.restored();
    run.assert_nothing_foreign();
    assert!(run.before.values().all(|mask| *mask == cpus("4-7")), "{:?}", run.before);
    // Inside of its own mask and to no CPU that is offline; the one that waits is not.
    run.assert_pinned_within(|cpu| cpus("4,6-7").contains(&cpu));
    assert_eq!(run.homes().into_keys().collect::<Vec<_>>(), [1], "{}", run.record());
    run.assert_moves_stay_inside();
    let of = run.domain_events(1).into_iter().map(|(_, cpus)| cpus).collect::<Vec<_>>();
    assert_eq!(of, ["4,6-7", "4-7"]);
}

/// The cpuset shrinks and grows, and a quota comes, while the program runs. The nodes hold as many
/// threads as they have CPUs left for.
pub(crate) fn cpuset_and_quota_change(lab: &mut Lab) {
    let run = Run::of(
        lab,
        "G=/sys/fs/cgroup/part; mkdir -p $G; echo 0-5 >$G/cpuset.cpus; trap 'usleep 300000; rmdir $G' EXIT; \
         begin 8 sh -c \"echo \\$\\$ >$G/cgroup.procs; exec \\\"\\$@\\\"\" sh; \
         balance --policy juggle; more 8; \
         echo 0-2,4 >$G/cpuset.cpus; await shrunk domain_is 1 4; \
         await 'three to one' hold 6 2; more 8; masks $P >seen; \
         echo '200000 100000' >$G/cpu.max; await quota is_recorded 'quota is now 2.00 CPUs'; \
         echo 0-7 >$G/cpuset.cpus; await grown domain_is 1 4-7; await 'equal parts' hold 4 4; more 8; \
         echo 0-5 >$G/cpuset.cpus; await 'the first cpuset' domain_is 1 4-5; \
         await 'as much as that has' hold 5 3; more 8",
    );
    run.restored();
    run.assert_nothing_foreign();
    assert!(run.before.values().all(|mask| *mask == cpus("0-5")), "{:?}", run.before);
    assert_eq!(run.domain_cpus(), ["0-3", "4-5"]);
    let small = cpus("0-2,4");
    for masks in run.seen.values() {
        assert!(masks.iter().all(|mask| mask.is_subset(&small)), "{:?}", run.seen);
    }
    assert_eq!(run.json["quota_cpus"], 2.0, "{}", run.json);
    assert!(run.said.contains("quota"), "{}", run.said);
    run.assert_moves_stay_inside();
}

/// A balancer that is killed leaves masks that its guardian gives back.
pub(crate) fn the_guardian_restores(lab: &mut Lab) {
    let output = run_script(
        lab,
        "begin 9; balance --policy juggle; more 10; masks $P >seen; kill -9 $E; wait $E; \
         await 'masks given back' is_restored; \
         for part in before seen; do echo \"== $part\"; cat $part; done; kill $P",
    );
    let parts = parts(&output.text());
    let (before, seen) = (masks_of(&parts["before"]), masks_of(&parts["seen"]));
    assert!(before.values().flatten().all(|mask| *mask == cpus("0-7")), "{before:?}");
    let pinned = seen.values().flatten().filter(|mask| mask.len() == 1).count();
    // All nine, but for those that are just being swapped.
    assert!(pinned > 4, "nothing was to be given back: {seen:?}");
}

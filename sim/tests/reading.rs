//! How much is read at a balancing point, and that what is not read is known all the same.
#![allow(missing_docs, clippy::unwrap_used)]

mod watched;

use evenly_engine::{Balancer, Reader};
use evenly_model::{CpuId, Nanos};
use evenly_sim::{Barrier, Hotplug, Scenario, Sharing};
use watched::{Watched, start as start_with};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Threads that share CPUs in slices of 4 ms, as a kernel lets them.
fn scenario(n: usize, work: Nanos, phases: u32, barrier: Barrier) -> Scenario {
    Scenario {
        sharing: Sharing::Slices(ms(4)),
        tick: ms(4),
        phases,
        barrier,
        ..Scenario::new(n, 2, work)
    }
}

fn start(scenario: Scenario) -> (Watched, Balancer) {
    start_with("juggle", scenario)
}

#[test]
fn one_thread_in_sixteen_is_looked_at_where_none_gives_up_its_cpu() {
    // A rotation takes 32 ms: with a period of 20 ms, several threads have not run in each.
    for n in [16, 40] {
        let (mut machine, mut balancer) = start(scenario(n, ms(100_000), 1, Barrier::None));
        let mut looks = Vec::new();
        let mut read = 0;
        for point in 1..=500 {
            (machine.located, machine.read) = (0, 0);
            machine.sim.run_until(ms(20 * point));
            balancer.point(&mut machine, ms(20), &mut []);
            // After the first seconds.
            if point > 150 {
                looks.push(machine.located);
                read += machine.read;
            }
        }
        assert_eq!(read, n * looks.len());
        // Once a second all are, for their page faults.
        let most = n.div_ceil(16);
        let many = looks.iter().filter(|&&l| l > most).count();
        assert!(many <= 7, "{n} threads: {looks:?}");
        assert!(looks.iter().all(|&l| l <= n + most), "{n} threads: {looks:?}");
        // What was not looked at is known: none was blocked, all waited for the rest of the time.
        let (domain, threads, _) = balancer.summary(machine.now());
        assert!(domain.blocked_share < 0.01, "{}", domain.blocked_share);
        let waiting = 1.0 - 2.0 / n as f64;
        assert!((domain.wait_share - waiting).abs() < 0.02, "{}", domain.wait_share);
        assert_eq!(threads.len(), n);
    }
}

/// Also where no thread is pinned, one that has had its CPU without a break is where it was.
#[test]
fn threads_that_keep_their_cpus_are_not_looked_for() {
    for (threads, expected) in [(2, 0), (3, 2), (4, 4)] {
        let scenario = Scenario {
            sharing: Sharing::Fluid,
            ..scenario(threads, ms(100_000), 1, Barrier::None)
        };
        let (mut machine, mut balancer) = start_with("observe", scenario);
        let mut looks = Vec::new();
        for point in 1..=500 {
            machine.located = 0;
            machine.sim.run_until(ms(20 * point));
            balancer.point(&mut machine, ms(20), &mut []);
            looks.push(machine.located);
        }
        // But for the first points, and for once a second, when all are.
        let many = looks[2..].iter().filter(|&&l| l > expected).count();
        assert!(many <= 10, "{threads} threads: {looks:?}");
        assert!(looks[2..].iter().all(|&l| l >= expected.min(1)), "{looks:?}");
    }
}

#[test]
fn what_a_thread_did_while_it_could_not_be_read_is_counted_when_it_can() {
    type At = fn(u64) -> bool;
    let run = |blind: At| {
        let (mut machine, mut balancer) = start(scenario(3, ms(100_000), 1, Barrier::None));
        let second = machine.sim.candidates()[1].id;
        for point in 1..=200 {
            machine.sim.run_until(ms(20 * point));
            machine.hidden = blind(point).then_some(second);
            balancer.point(&mut machine, ms(20), &mut []);
        }
        let (_, threads, notes) = balancer.summary(machine.now());
        let accounts = threads.iter().map(|t| t.ran_s + t.waited_s + t.blocked_s);
        let ran: f64 = threads.iter().map(|t| t.ran_s).sum();
        (accounts.collect::<Vec<_>>(), ran, notes.join(" "))
    };
    let cases: [(At, bool); 4] =
        [(|_| false, false), (|p| p % 3 == 1, false), (|p| p < 49, false), (|p| p < 60, true)];
    for (blind, noted) in cases {
        let (accounts, ran, notes) = run(blind);
        // All three are there all the time, to a tick, and two CPUs are shared among them.
        assert_eq!(accounts.len(), 3);
        assert!(accounts.iter().all(|a| (a - 3.999).abs() < 0.004), "{accounts:?}");
        assert!((ran - 2.0 * 3.999).abs() < 0.02, "{ran}");
        assert_eq!(notes.contains("could not be read"), noted, "{notes}");
    }
}

#[test]
fn a_thread_that_blocks_after_all_is_found() {
    // One of sixteen is done early, and waits for the others at a barrier.
    let mut s = scenario(16, ms(2_000), 2, Barrier::Block);
    s.threads[5].work = ms(500);
    let (mut machine, mut balancer) = start(s);
    let (mut blocked_at, mut found_at) = (None, None);
    for point in 1..600 {
        machine.located = 0;
        machine.sim.run_until(ms(20 * point));
        let blocked = machine.sim.candidates()[5].state == evenly_engine::RunState::Blocked;
        let left = balancer.point(&mut machine, ms(20), &mut []);
        if blocked && blocked_at.is_none() {
            blocked_at = Some(point);
        }
        // It is given back when it has been quiet for a second.
        if !left.is_empty() {
            found_at = Some(point);
            break;
        }
    }
    let (blocked_at, found_at) = (blocked_at.unwrap(), found_at.unwrap());
    assert!((50..=60).contains(&(found_at - blocked_at)), "{blocked_at} to {found_at}");
}

/// The kernel's word for the capacity of a CPU is a file: it is asked for when CPUs come or go, and
/// not at each point.
#[test]
fn capacities_are_asked_for_where_cpus_have_changed_only() {
    for policy in ["juggle", "secretary"] {
        let plug = |at, online| Hotplug { at: ms(at), cpu: CpuId(1), online };
        let hotplug = vec![plug(2_010, false), plug(4_010, true)];
        let s = Scenario { hotplug, ..scenario(3, ms(100_000), 1, Barrier::None) };
        let (mut machine, mut balancer) = start_with(policy, s);
        let mut asked = Vec::new();
        for second in 0..6 {
            machine.capacities.set(0);
            for point in 1..=10 {
                machine.sim.run_until(ms(1_000 * second + 100 * point));
                balancer.point(&mut machine, ms(20), &mut []);
            }
            asked.push(machine.capacities.get());
        }
        // Two CPUs at first, one is left, two again.
        assert_eq!(asked, [2, 0, 1, 0, 2, 0], "{policy}");
    }
}

//! Two evenly at once on the same CPUs: each knows of the other, and the second makes way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_model::{CpuId, CpuSet, Pid};

fn program() -> Running {
    Running::computing(3)
}

/// How many threads are pinned to this CPU.
fn on(pid: Pid, cpu: CpuId) -> Option<usize> {
    let masks = steady_masks(pid)?;
    let one = CpuSet::single(cpu);
    (masks.values().filter(|m| m.len() == 1).count() == 3)
        .then(|| masks.values().filter(|m| **m == one).count())
}

#[test]
fn the_second_puts_its_surplus_where_the_first_has_fewer() {
    let Some(whole) = whole() else { return };
    // Two CPUs and three threads each: two and one of the one, one and two of the other.
    let list = whole.iter().take(2).map(|c| c.to_string()).collect::<Vec<_>>().join(",");
    let first_cpu = whole.first().unwrap();
    let (state, programs) = (State::new(), [program(), program()]);
    let start = |p: &Running| {
        state.start(&[
            "attach",
            "--policy",
            "static",
            "--no-guard",
            "--period",
            "10ms",
            "--budget",
            "50",
            "--cpus",
            &list,
            "--threads",
            "3",
            &p.pid().to_string(),
        ])
    };
    let mut evenlys = vec![start(&programs[0])];
    wait_for("the first to pin its threads", || on(programs[0].pid(), first_cpu));
    evenlys.push(start(&programs[1]));
    wait_until("six threads, three on each CPU", || {
        let counts = programs.iter().map(|p| on(p.pid(), first_cpu)).sum::<Option<usize>>();
        counts == Some(3)
    });
    for e in &mut evenlys {
        e.kill(Signal::TERM);
        assert_eq!(e.wait().code(), Some(0));
    }
    for p in &programs {
        wait_until_restored(p.pid(), &whole);
    }
    let said = evenlys[1].stderr();
    let note = format!("another evenly (process {}) balances on the same CPUs", evenlys[0].pid());
    assert!(said.contains(&note), "{said}");
}

#[test]
fn both_restore_what_they_changed() {
    let Some(whole) = whole() else { return };
    let (state, programs) = (State::new(), [program(), program()]);
    let mut evenlys = programs.each_ref().map(|p| state.attach("juggle", 3, p.pid()));
    for p in &programs {
        wait_until_narrowed(p.pid(), &whole, 3);
    }
    evenlys[0].kill(Signal::KILL);
    evenlys[0].wait();
    wait_until_restored(programs[0].pid(), &whole);
    wait_until_narrowed(programs[1].pid(), &whole, 3);
    evenlys[1].kill(Signal::TERM);
    evenlys[1].wait();
    assert_eq!(narrowed(programs[1].pid(), &whole), 0);
    assert!(state.journals().is_empty());
}

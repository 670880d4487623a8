//! What goes wrong while threads are moved within phases, or given parts of CPUs, in virtual time.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failure here is the test's own")]

use evenly_engine::{GuardOptions, Reader};
use evenly_model::{CpuId, Nanos};
use evenly_policies::by_name;
use evenly_sim::{
    Barrier, Costs, Driver, DriverOptions, Hotplug, Scenario, Sharing, Sim, Stranger,
};

const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// What a program has to do, for some ten seconds.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// As many equal threads and one more than CPUs, with phases of a millisecond.
    Equal,
    /// Twice as many threads as CPUs, every second one with four times as much work.
    Unequal,
}

fn scenario(program: Program, cpus: usize, barrier: Barrier) -> Scenario {
    let (phase, loads): (Nanos, Vec<u64>) = match program {
        Program::Equal => (ms(1), vec![1; cpus + 1]),
        Program::Unequal => {
            (ms(10), (0..2 * cpus).map(|i| if i % 2 == 0 { 1 } else { 4 }).collect())
        }
    };
    let all: u64 = loads.iter().sum();
    let phases = 10.0 * cpus as f64 / (phase.as_secs_f64() * all as f64);
    let mut s = Scenario {
        sharing: Sharing::Slices(ms(3)),
        costs: Costs {
            point: Nanos::from_micros(30),
            read: Nanos::from_micros(1),
            place: Nanos::from_micros(8),
            ..Costs::default()
        },
        phases: phases as u32,
        barrier,
        probe: true,
        ..Scenario::new(loads.len(), cpus, phase)
    };
    for (thread, load) in s.threads.iter_mut().zip(loads) {
        thread.work = phase.scale(load as f64);
        thread.noise_permille = 20;
    }
    s
}

/// How many phases are over at the end of each tenth of a second.
fn phases(scenario: &Scenario, policy: &str) -> Vec<u32> {
    let options = DriverOptions::as_analysed(ms(14), scenario.seed);
    let options = DriverOptions { guard: GuardOptions::default(), ..options };
    let mut driver = Driver::new(Sim::new(scenario.clone()), by_name(policy).unwrap(), &options);
    let mut seen = Vec::new();
    while driver.step(&mut []) {
        let now = driver.sim.now();
        while Nanos(ms(100).0 * (1 + seen.len() as u64)) <= now {
            seen.push(driver.sim.phases().into_iter().max().unwrap());
        }
        assert!(now < ms(100_000));
    }
    seen
}

/// When a fault begins, and when it is over, in tenths of a second.
const FAULT: [usize; 2] = [30, 50];

type Fault = fn(&mut Scenario);

fn hog(busy: Option<(Nanos, Nanos)>) -> Stranger {
    let sleep = busy.unwrap_or_default();
    Stranger { busy, sleep, ..Stranger::always(CpuId(1)) }
}

/// What passes: a hog, and a CPU that is taken away.
const PASSING: [(&str, Fault); 2] = [
    ("a hog", |s| {
        let [from, until] = FAULT.map(|tenths| ms(100 * tenths as u64));
        s.strangers = vec![Stranger { from, until: Some(until), ..hog(None) }];
    }),
    ("a CPU", |s| {
        let [from, until] = FAULT.map(|tenths| ms(100 * tenths as u64));
        let change = |at, online| Hotplug { at, cpu: CpuId(1), online };
        s.hotplug = vec![change(from, false), change(until, true)];
    }),
];

/// What stays: a hog that comes and goes in seconds, helpers that wake late, a thread that dies in mid-phase; and a hog that
/// comes and goes so often that it is there in some stretches that are compared, and not in others.
const LASTING: [(&str, Fault); 3] = [
    ("long bursts", |s| s.strangers = vec![hog(Some((ms(1_000), ms(2_000))))]),
    ("late helpers", |s| s.costs.late = ms(10)),
    ("a death", |s| s.threads[1].end = Some(ms(3_003))),
];
const BURSTS: (&str, Fault) = ("bursts", |s| s.strangers = vec![hog(Some((ms(100), ms(1_000))))]);

/// Calls this with programs of all kinds while something goes wrong, and its name.
fn each(faults: &[(&str, Fault)], check: impl Fn(&str, &Scenario)) {
    for (name, fault) in faults {
        for program in [Program::Equal, Program::Unequal] {
            for (cpus, barrier) in [2, 3].into_iter().flat_map(|cpus| {
                [Barrier::Spin, Barrier::Yield, Barrier::Block].map(|barrier| (cpus, barrier))
            }) {
                let mut s = scenario(program, cpus, barrier);
                fault(&mut s);
                check(&format!("{name}, {program:?} on {cpus}, {barrier:?}"), &s);
            }
        }
    }
}

/// Over the whole run `auto` takes at most so many times as long as the best of its arms, and as its usual one.
fn is_near_its_best_arm(name: &str, s: &Scenario, most: f64) {
    let took = |policy| phases(s, policy).len() as f64 / 10.0;
    let ([kernel, phase, hpc], auto) = (["observe", "phase", "hpc-auto"].map(took), took("auto"));
    let usual = kernel.min(phase);
    assert!(
        auto < most * usual.min(hpc) && auto < 1.08 * usual,
        "{name}: kernel {kernel}, phase {phase}, hpc-auto {hpc}, auto {auto}"
    );
}

/// Would catch: an arm that is left, or kept, for long because of what has passed; equal threads taken for unequal ones beside a
/// hog; a policy that rests while CPUs are others than those on which it was found to gain nothing.
#[test]
fn whatever_goes_wrong_auto_is_near_its_best_arm() {
    each(&PASSING, |name, s| is_near_its_best_arm(name, s, 1.08));
    each(&LASTING, |name, s| is_near_its_best_arm(name, s, 1.08));
    // Known gap: one comparison decides, and either stretch of it may be that in which others had the CPU.
    each(&[BURSTS], |name, s| is_near_its_best_arm(name, s, 1.2));
}

/// Would catch: a policy that takes long to be again what it was.
#[test]
fn what_has_passed_is_over_soon() {
    each(&PASSING, |name, s| {
        for policy in ["phase", "auto"] {
            let phases = phases(s, policy);
            let in_a_second = |from: usize| phases[from + 10] - phases[from];
            let [begins, ends] = FAULT;
            let before = in_a_second(begins - 11);
            let after = (ends..ends + 25).map(in_a_second).max().unwrap();
            assert!(20 * after >= 19 * before, "{name}, {policy}: {before} {after}");
        }
    });
}

//! Policies whose agents move threads within phases, run by the simulator's own driver: short phases, with barriers whose
//! openings are known. What comes of a run, to the nanosecond, stands for the decisions of all agents.

use crate::cases::{Draw, Run};
use evenly_model::Nanos;
use evenly_model::stats::Random;
use evenly_policy::PolicyInfo;
use evenly_sim::{Barrier, Costs, DriverOptions, Scenario, Sharing, Sim, Stranger, simulate};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Runs of each policy.
const EACH: u64 = 40;

const fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

fn scenario(draw: &mut Draw, seed: u64) -> Scenario {
    let m = draw.of(&[2, 2, 3, 4, 8]);
    let n = m + 1 + draw.below(m);
    let phase = draw.of(&[us(50), us(200), us(700), us(1_000), us(3_000), us(10_000)]);
    let late = draw.of(&[us(5), us(20), us(60)]);
    let costs =
        Costs { point: us(3), read: us(1), place: us(8), refill: us(5), late, ..Costs::default() };
    let mut s = Scenario {
        sharing: Sharing::Slices(draw.of(&[us(2_800), us(4_000)])),
        tick: draw.of(&[us(1_000), us(4_000)]),
        costs,
        phases: (400_000_000 / phase.0) as u32,
        barrier: draw.of(&[Barrier::Block, Barrier::Block, Barrier::Yield, Barrier::Spin]),
        seed,
        ..Scenario::new(n, m, phase)
    };
    let noise = draw.of(&[0, 10, 50]);
    s.threads.iter_mut().for_each(|t| t.noise_permille = noise);
    if draw.once_in(4) {
        s.threads[0].work = phase.scale(1.5);
    }
    if draw.once_in(5) {
        let cpu = evenly_model::CpuId(0);
        let busy = Some((us(2_000), us(9_000)));
        s.strangers.push(Stranger {
            busy,
            sleep: (us(5_000), us(20_000)),
            ..Stranger::always(cpu)
        });
    }
    s
}

/// The runs of this policy.
pub(crate) fn runs(info: &'static PolicyInfo) -> impl Iterator<Item = Run> {
    (1..=EACH).map(move |seed| {
        let mut draw = Draw(Random::new(seed * 104_729));
        let scenario = scenario(&mut draw, seed);
        let fixed = DriverOptions::fixed(us(14_000), seed);
        let options = if draw.once_in(2) {
            DriverOptions::as_analysed(us(14_000), seed)
        } else {
            DriverOptions { expected: Some(scenario.threads.len() as u32), ..fixed }
        };
        let out = simulate(Sim::new(scenario), info, &options, us(60_000_000));
        let mut events = String::new();
        writeln!(events, "{:?} {:?}", out.makespan, out.progress).unwrap();
        writeln!(
            events,
            "{} moves, {} points, {} readings",
            out.migrations, out.points, out.readings
        )
        .unwrap();
        let name = format!("{} within phases {seed}", info.name);
        Run { name, calls: String::new(), events, kinds: BTreeMap::new() }
    })
}

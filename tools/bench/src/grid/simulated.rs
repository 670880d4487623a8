//! The grid in virtual time: the cells that the simulator knows, which is barriers of a program's own.
//!
//! Threads share CPUs in slices of 3 ms, the kernel moves one that waits to a CPU that falls idle, and the program tells when
//! threads wait. A hog is bound to a CPU, as the simulator has no others. Balancing costs what it is measured to cost.
//!
//! Known gaps: threads that spin do not hand over their CPUs here. One that yields leaves its CPU to a hog for a whole slice each time;
//! live, it sleeps where others compute.

use super::cells::{Cell, Waits};
use super::kept::{AUTO, Measurement, Runs};
use crate::commands::KERNEL;
use evenly_engine::GuardOptions;
use evenly_model::{CpuId, Nanos};
use evenly_sim::{
    Barrier, Costs, DriverOptions, Kernel, Scenario, Sharing, Sim, Stranger, simulate,
};
use std::time::Duration;

const CPUS: usize = 2;
const PERIOD: Nanos = Nanos::from_millis(14);

fn scenario(cell: &Cell, seconds: u32) -> Option<Scenario> {
    let Waits::Spmd(barrier) = cell.waits.1 else { return None };
    let phase = Nanos::from_micros(cell.phase.1);
    let parts = f64::from(cell.threads) / CPUS as f64;
    let phases = (cell.phases(seconds) as f64 / parts).ceil() as u32;
    let mut s = Scenario {
        sharing: Sharing::Slices(Nanos::from_millis(3)),
        kernel: Kernel { reactive: true, rotate: None },
        costs: Costs {
            point: Nanos::from_micros(30),
            read: Nanos::from_micros(1),
            place: Nanos::from_micros(8),
            ..Costs::default()
        },
        phases,
        barrier: match barrier {
            "spin" => Barrier::Spin,
            "yield" => Barrier::Yield,
            _ => Barrier::Block,
        },
        probe: true,
        strangers: if cell.hog { vec![Stranger::always(CpuId(1))] } else { Vec::new() },
        ..Scenario::new(cell.threads as usize, CPUS, phase)
    };
    for (thread, load) in s.threads.iter_mut().zip(cell.loads()) {
        thread.work = phase.scale(load);
        thread.noise_permille = 20;
    }
    Some(s)
}

/// A run of ten seconds or so under this policy, or so long as it may take.
fn run(scenario: &Scenario, policy: &str, limit: Duration) -> Option<(f64, bool)> {
    let info = evenly_policies::by_name(policy)?;
    let options = DriverOptions::as_analysed(PERIOD, scenario.seed);
    let options = DriverOptions { guard: GuardOptions::default(), ..options };
    let limit = Nanos::from_secs_f64(limit.as_secs_f64());
    let outcome = simulate(Sim::new(scenario.clone()), info, &options, limit);
    Some(match outcome.makespan {
        Some(took) => (took.as_secs_f64(), false),
        None => (limit.as_secs_f64(), true),
    })
}

/// A cell with these policies beside the kernel and the default; None where the simulator does not know it.
pub(super) fn measure(
    cell: &Cell,
    policies: &[String],
    seconds: u32,
    limit: Duration,
) -> Option<Measurement> {
    let scenario = scenario(cell, seconds)?;
    let arms = [KERNEL, AUTO].into_iter().chain(policies.iter().map(String::as_str));
    let runs = arms.map(|arm| {
        let watching = evenly_policies::watching().name;
        let policy = if arm == KERNEL { watching } else { arm };
        let (took, late) = run(&scenario, policy, limit)?;
        Some(Runs { name: arm.to_owned(), seconds: vec![took], late })
    });
    Some(Measurement::new(cell, true, seconds, runs.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::super::cells::cells;
    use super::super::kept::read;
    use super::*;
    use std::path::Path;

    const HOW: &str = "to make them anew: rm docs/grid-simulated.jsonl; evenly-bench grid --simulated --seconds 10 --only block- \
                       --only yield- --only spin- --file docs/grid-simulated.jsonl --svg docs/grid-simulated.svg";

    /// The least part of the best arm's speed that the default has in any cell, but for two threads that yield to a hog in each short
    /// phase.
    const WORST: f64 = 0.67;
    const YIELDS: [&str; 4] = [
        "yield-2-hog-20us",
        "yield-2-hog-200us",
        "yield-2-hog-unequal-20us",
        "yield-2-hog-unequal-200us",
    ];
    /// Cells in which no arm comes to its end.
    const OPEN: usize = 18;

    fn committed() -> Vec<Measurement> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        read(&docs.join("grid-simulated.jsonl")).unwrap()
    }

    /// Would catch: regret that is larger in some cell than what is said of it.
    #[test]
    fn no_cell_is_worse_than_is_said() {
        let all = committed();
        let known = cells().into_iter().filter(|cell| scenario(cell, 10).is_some()).count();
        assert_eq!(all.len(), known);
        let parts = || all.iter().filter_map(|m| Some((m, m.of_best(1)?)));
        assert_eq!(
            (parts().count(), all.iter().filter(|m| m.is_open()).count()),
            (known - OPEN, OPEN)
        );
        for (m, (part, arm)) in parts().filter(|(m, _)| !YIELDS.contains(&&*m.cell)) {
            assert!(part.value >= WORST, "{}: {:.3} of {arm}", m.cell, part.value);
        }
    }

    /// Would catch: committed figures that are no longer those of the code. Short phases take long where this is not optimised.
    #[test]
    fn committed_figures_are_what_comes_out_now() {
        let all = committed();
        let chosen = |cell: &Cell| cell.threads == 3 && cell.phase.1 >= 20_000;
        for cell in cells().into_iter().filter(|cell| chosen(cell)) {
            let Some(there) = all.iter().find(|m| m.cell == cell.name()) else { continue };
            let policies: Vec<String> = there.arms[2..].iter().map(|a| a.name.clone()).collect();
            let limit = Duration::from_secs(u64::from(there.asked_s * super::super::LATE));
            let now = measure(&cell, &policies, there.asked_s, limit).unwrap();
            assert_eq!(&now, there, "{HOW}");
        }
    }
}

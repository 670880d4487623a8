//! What a loop that does nothing takes, two iterations by two threads, beside the least that it takes threads to meet.

use super::{Bench, By, Kernel, Way, outcome, seconds};
use crate::measured::Measured;
use crate::show::{table, tell_above};

/// How it is called among the cases.
pub(super) const NAME: &str = "empty-free";

/// Loops of a run: some 30 ms, so that most runs end before somebody else has a CPU for long.
const STEPS: u32 = 20_000;

/// Runs for each that is asked for.
const TIMES: u32 = 20;

/// Who carries out loops, and by which kernel.
const ARMS: [(&str, Way); 6] = [
    ("flags", ("two flags", "loops-gomp", By::OpenMp("static"))),
    ("empty", ("libgomp static", "loops-gomp", By::OpenMp("static"))),
    ("empty", ("libomp static", "loops-omp", By::OpenMp("static"))),
    ("empty", ("evenly, static", "loops-gomp", By::Meets("static"))),
    ("empty", ("evenly", "loops-gomp", By::Meets("evenly"))),
    ("empty", ("evenly, overtakes", "loops-gomp", By::Policy("evenly"))),
];

/// As a table of microseconds, after so many times [`TIMES`] runs of each arm in turn.
///
/// # Errors
/// Where a run fails.
pub(super) fn measure(bench: &mut Bench<'_>, runs: u32, seed: u64) -> anyhow::Result<String> {
    let steps = STEPS.to_string();
    let is_built = |(_, way): &(_, Way)| bench.tools.path(way.1).is_ok();
    let arms: Vec<_> = ARMS.into_iter().filter(is_built).collect();
    let mut times = vec![Vec::new(); arms.len()];
    for _ in 0..runs * TIMES {
        for ((kernel, way), times) in arms.iter().zip(&mut times) {
            let kernel: Kernel<'_> = [*kernel, "2", &steps];
            let outcome = outcome(&mut bench.executor, &bench.tools, kernel, *way, None)?;
            let (seconds, _) = seconds(&outcome, kernel, *way)?;
            times.push(1e6 * seconds / f64::from(STEPS));
        }
    }
    let mut rows = vec![vec!["an empty loop, two threads".to_owned(), "us".to_owned()]];
    for ((_, way), times) in arms.iter().zip(&times) {
        let text = Measured::median(times, seed).map_or_else(|| "-".into(), |m| m.text(2));
        tell_above(&format!("{}   {text}", way.0));
        rows.push(vec![way.0.to_owned(), text]);
    }
    Ok(table(&rows))
}

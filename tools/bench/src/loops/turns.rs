//! What evenly costs where nothing can be gained: in one program, some steps by OpenMP's static loops, the next by evenly, and so on, with
//! nothing beside it. Memory is the same for both, and whatever else slows down the machine for more than a moment meets both.

use super::{Bench, By, KERNELS, Kernel, Load, checked};
use crate::measure::printed;
use crate::measured::Measured;
use crate::show::{table, tell_above};
use crate::suite::is_asked;
use anyhow::Context;

/// The kernels that are asked for, and the steps of their stretches.
pub(super) fn asked(only: &[String]) -> Vec<(Kernel<'static>, &'static str)> {
    let is_asked = |(kernel, _): &(Kernel<'_>, _)| is_asked(&format!("{}-turns", kernel[0]), only);
    KERNELS.into_iter().filter(is_asked).collect()
}

/// As a table of the time by evenly over that by OpenMP.
///
/// # Errors
/// Where a run fails.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    kernels: &[(Kernel<'static>, &'static str)],
    runs: u32,
    seed: u64,
) -> anyhow::Result<String> {
    let head = ["nothing beside it, in turn", "times of OpenMP's static"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    for (kernel, steps) in kernels {
        let way = ("in turn", "loops-gomp", By::InTurn(steps));
        let (mut ratios, mut sum) = (Vec::new(), None);
        for _ in 0..runs {
            if bench.stops() {
                break;
            }
            let outcome = bench.run(*kernel, way, Load::Nothing)?;
            checked(&outcome, *kernel, way, &mut sum)?;
            let text = printed(&outcome).unwrap_or_default();
            let ratio = stretches(&text).and_then(|stretches| of_run(&stretches));
            let too_few = || format!("{}: too few stretches in {text}", kernel[0]);
            ratios.push(ratio.with_context(too_few)?);
        }
        let text = Measured::median(&ratios, seed).map_or_else(|| "-".into(), |m| m.text(4));
        tell_above(&format!("{}   {text}", kernel[0]));
        rows.push(vec![kernel[0].to_owned(), text]);
    }
    Ok(table(&rows))
}

/// The time of each stretch, in a result.
fn stretches(text: &str) -> Option<Vec<f64>> {
    let result: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    result.get("turns_s")?.as_array()?.iter().map(serde_json::Value::as_f64).collect()
}

/// The median over all stretches by evenly, each over the mean of those around it and weighted by it: in Gauss they get shorter. Those
/// at both ends are left out: the first one meets memory that no thread has seen, and the last one may be shorter. None where there
/// are too few.
fn of_run(stretches: &[f64]) -> Option<f64> {
    let inner = stretches.get(2..stretches.len().checked_sub(1)?)?;
    let around = |s: &[f64]| (s[0] + s[2]) / 2.0;
    let ratio = |s: &[f64]| (s[1] / around(s), around(s));
    let mut ratios: Vec<(f64, f64)> = inner.windows(3).step_by(2).map(ratio).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    // That of half of the weight from below, and from above.
    Some(f64::midpoint(at_half(ratios.iter())?, at_half(ratios.iter().rev())?))
}

fn at_half<'a>(mut ratios: impl Iterator<Item = &'a (f64, f64)> + Clone) -> Option<f64> {
    let half = ratios.clone().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut so_far = 0.0;
    let reaches_half = |(_, weight): &&(f64, f64)| {
        so_far += weight;
        so_far >= half
    };
    ratios.find(reaches_half).map(|(ratio, _)| *ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: a stretch by OpenMP that is taken for one by evenly; a machine that gets slower, which is seen as a cost; short
    /// stretches that count as much as long ones; the lower one of two in the middle.
    #[test]
    fn each_stretch_is_compared_with_those_around_it() {
        assert_eq!(of_run(&[9.0, 9.0, 1.0, 2.0, 1.0, 3.0, 1.0, 9.0]), Some(2.5));
        assert_eq!(of_run(&[0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 9.0]), Some(1.0));
        let shorter = [0.0, 0.0, 20.0, 20.0, 20.0, 10.5, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 9.0];
        assert_eq!(of_run(&shorter), Some(1.0));
        assert_eq!((of_run(&[1.0]), of_run(&[])), (None, None));
    }
}

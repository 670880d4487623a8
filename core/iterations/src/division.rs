//! Who owns which task: the first assignment, and how it changes when powers do (section 2.4).

use crate::Processor;
use crate::powers::normalized;
use crate::region::Region;

/// The owner of each task, by its number.
pub type Owners = Vec<Processor>;

/// The first assignment, in proportion to powers: tasks that follow one another for each processor, or dealt out in turn.
///
/// # Panics
/// If there are tasks, and no processor.
#[must_use]
pub fn divide(region: &Region, tasks: usize, powers: &[f64]) -> Owners {
    let shares = shares(tasks, powers);
    if region.is_cyclic() { cyclic(tasks, &shares) } else { block(&counts(tasks, &shares)) }
}

/// What becomes of an assignment where powers have changed. Where neighbours share data their boundaries are shifted, over whole
/// neighbours if powers have changed that much; else tasks go straight from those who have too many, or are gone, to those who
/// have too few, and all others stay.
///
/// # Panics
/// If there are tasks, and no processor.
#[must_use]
pub fn redivide(region: &Region, owners: &Owners, powers: &[f64]) -> Owners {
    let targets = counts(owners.len(), &shares(owners.len(), powers));
    if region.moves_freely() {
        direct(owners, &targets, region.is_cyclic())
    } else {
        block(&targets)
    }
}

/// Powers that add up to 1. What is no number above 0 is none; where no power is one, all are the same.
fn shares(tasks: usize, powers: &[f64]) -> Vec<f64> {
    assert!(tasks == 0 || !powers.is_empty(), "tasks need a processor");
    let usable = |&p: &f64| if p.is_finite() && p > 0.0 { p } else { 0.0 };
    // Each by the largest first: the sum of large ones may be none.
    let most = powers.iter().map(usable).fold(0.0, f64::max);
    let share = |p| if most > 0.0 { usable(p) / most } else { 1.0 };
    normalized(powers.iter().map(share).collect())
}

/// Tasks of each processor, by shares; whole ones, the largest rests first.
fn counts(tasks: usize, shares: &[f64]) -> Vec<usize> {
    let exact: Vec<f64> = shares.iter().map(|share| tasks as f64 * share).collect();
    let mut counts: Vec<usize> = exact.iter().map(|e| e.floor() as usize).collect();
    let mut by_rest: Vec<usize> = (0..shares.len()).collect();
    by_rest.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let missing = tasks.saturating_sub(counts.iter().sum());
    by_rest.iter().cycle().take(missing).for_each(|&p| counts[p] += 1);
    counts
}

fn block(counts: &[usize]) -> Owners {
    counts.iter().enumerate().flat_map(|(p, &n)| std::iter::repeat_n(p, n)).collect()
}

/// Each of the next tasks goes to whoever is furthest behind its share of those so far.
fn cyclic(tasks: usize, shares: &[f64]) -> Owners {
    let mut due = vec![0.0; shares.len()];
    let next = |_| {
        due.iter_mut().zip(shares).for_each(|(d, share)| *d += share);
        // The first of equals, so that all are dealt out in order.
        let furthest = |best: usize, p: usize| if due[p] > due[best] + 1e-9 { p } else { best };
        let owner = (0..due.len()).fold(0, furthest);
        due[owner] -= 1.0;
        owner
    };
    (0..tasks).map(next).collect()
}

/// `spread`: what a processor gives away is spread over all that it has, as tasks differ by their number; else it is what it
/// would come to last.
fn direct(owners: &Owners, targets: &[usize], spread: bool) -> Owners {
    let mut missing = targets.to_vec();
    let mut after = owners.clone();
    let mut given = Vec::new();
    let owned = |p| move |&task: &usize| owners[task] == p;
    for (p, &target) in targets.iter().enumerate() {
        let tasks: Vec<usize> = (0..owners.len()).filter(owned(p)).collect();
        let surplus = tasks.len().saturating_sub(target);
        missing[p] -= tasks.len().min(target);
        let place = |i: usize| {
            if spread { (2 * i + 1) * tasks.len() / (2 * surplus) } else { tasks.len() - 1 - i }
        };
        given.extend((0..surplus).map(|i| tasks[place(i)]));
    }
    given.extend((0..owners.len()).filter(|&task| owners[task] >= targets.len()));
    given.sort_unstable();
    for task in given {
        let most = (0..missing.len()).max_by_key(|&p| (missing[p], std::cmp::Reverse(p)));
        if let Some(p) = most.filter(|&p| missing[p] > 0) {
            missing[p] -= 1;
            after[task] = p;
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Access, Load};
    use proptest::prelude::*;

    fn region(load: Load, access: Access) -> Region {
        Region { load, access, ..Region::default() }
    }

    /// How many tasks have another owner.
    fn moved(before: &Owners, after: &Owners) -> usize {
        before.iter().zip(after).filter(|(b, a)| b != a).count()
    }

    fn owned(owners: &Owners, processors: usize) -> Vec<usize> {
        let count = |p| owners.iter().filter(|&&o| o == p).count();
        (0..processors).map(count).collect()
    }

    #[test]
    fn iterations_of_the_same_load_are_given_in_blocks_and_others_in_turn() {
        let equal = [0.25; 4];
        let blocks = divide(&region(Load::Fixed, Access::Independent), 8, &equal);
        assert_eq!(blocks, [0, 0, 1, 1, 2, 2, 3, 3]);
        let dealt = divide(&region(Load::Variable, Access::Independent), 8, &equal);
        assert_eq!(dealt, [0, 1, 2, 3, 0, 1, 2, 3]);
        // A stencil stays together, whatever its load; what nobody knows goes by its load.
        assert_eq!(divide(&region(Load::Variable, Access::Stencil), 8, &equal), blocks);
        assert_eq!(divide(&region(Load::Variable, Access::Unknown), 8, &equal), dealt);
        assert_eq!(divide(&region(Load::Fixed, Access::Unknown), 8, &equal), blocks);
        // One of half the power is dealt half as many.
        let dealt = divide(&region(Load::Variable, Access::Independent), 6, &[0.4, 0.4, 0.2]);
        assert_eq!(owned(&dealt, 3), [3, 2, 1]);
    }

    /// Would catch: all boundaries shifted where one processor alone has become slower.
    #[test]
    fn tasks_go_straight_to_the_faster_where_no_data_are_shared() {
        let powers = [0.3, 0.3, 0.3, 0.1];
        let free = region(Load::Fixed, Access::Independent);
        let before = divide(&free, 40, &[0.25; 4]);
        let after = redivide(&free, &before, &powers);
        assert_eq!(owned(&after, 4), [12, 12, 12, 4]);
        assert_eq!(moved(&before, &after), 6);
        assert!(before.iter().zip(&after).all(|(b, a)| a == b || *b == 3));
        let stencil = region(Load::Fixed, Access::Stencil);
        let shifted = redivide(&stencil, &before, &powers);
        assert!(shifted.is_sorted());
        assert_eq!(owned(&shifted, 4), [12, 12, 12, 4]);
        // From 10, 20, 30 to 12, 24, 36.
        assert_eq!(moved(&before, &shifted), 2 + 4 + 6);
        let neighbours = before.iter().zip(&shifted).all(|(b, a)| a.abs_diff(*b) <= 1);
        assert!(neighbours, "{shifted:?}");
    }

    /// Would catch: a loop over a triangle in which one processor is given the longest rows of another.
    #[test]
    fn what_is_dealt_out_stays_so_where_powers_change() {
        for access in [Access::Independent, Access::Unknown] {
            let region = region(Load::Variable, access);
            let powers = [0.3, 0.3, 0.3, 0.1];
            let before = divide(&region, 160, &[0.25; 4]);
            let after = redivide(&region, &before, &powers);
            let work =
                |p: usize| -> f64 { (0..160).filter(|&t| after[t] == p).map(|t| t as f64).sum() };
            let all: f64 = (0..4).map(work).sum();
            for (p, power) in powers.iter().enumerate() {
                assert!((work(p) / all - power).abs() < 0.01, "{p}: {} of {power}", work(p) / all);
            }
        }
    }

    #[test]
    fn what_is_no_power_counts_as_none() {
        let region = Region::default();
        assert_eq!(divide(&region, 4, &[f64::NAN, 1.0, -1.0, 1.0]), [1, 1, 3, 3]);
        assert_eq!(divide(&region, 4, &[0.0, f64::INFINITY]), [0, 0, 1, 1]);
        assert_eq!(divide(&region, 2, &[f64::MAX, f64::MAX]), [0, 1]);
        assert!(divide(&region, 0, &[]).is_empty());
        // The team has become smaller.
        let free = self::region(Load::Fixed, Access::Independent);
        assert_eq!(redivide(&free, &vec![0, 0, 1, 1, 2, 2], &[0.5, 0.5]), [0, 0, 1, 1, 0, 1]);
    }

    proptest! {
        #[test]
        fn shares_are_by_powers_and_no_more_moves_than_has_to(
            tasks in 0..400_usize,
            first in prop::collection::vec(0.01..1.0_f64, 1..20),
            second in prop::collection::vec(0.01..1.0_f64, 20),
            variable: bool,
            access in prop::sample::select(vec![Access::Independent, Access::Stencil, Access::Unknown]),
        ) {
            let load = if variable { Load::Variable } else { Load::Fixed };
            let region = region(load, access);
            let second = &second[..first.len()];
            let before = divide(&region, tasks, &first);
            let after = redivide(&region, &before, second);
            for (owners, powers) in [(&before, &first[..]), (&after, second)] {
                prop_assert_eq!(owners.len(), tasks);
                let sum: f64 = powers.iter().sum();
                for (has, power) in owned(owners, powers.len()).into_iter().zip(powers) {
                    // In turn, shares are right at each moment, and so less so at the end.
                    let within = if region.is_cyclic() { 2.0 } else { 1.0 };
                    prop_assert!((has as f64 - tasks as f64 * power / sum).abs() <= within);
                }
            }
            if region.moves_freely() {
                let (had, has) = (owned(&before, first.len()), owned(&after, first.len()));
                let least: usize = had.iter().zip(&has).map(|(b, a)| b.saturating_sub(*a)).sum();
                prop_assert_eq!(moved(&before, &after), least);
            } else {
                prop_assert!(after.is_sorted());
            }
        }
    }
}

//! Bounds on migrations and on imbalance, whichever of them can be had.
//!
//! ```text
//! both bounds:  refine, below one bound after the other -> what is surely within the migrations
//!               the search, within both                -> done, where it keeps them
//!               the search, half way between what was asked for and what was found, again and again
//!               the search, within what was reached    -> the least communication there
//! ```
//!
//! Invariant: no mapping that comes from here has more migrations than are allowed. That can always be
//! kept, as nothing has to move; an imbalance may be out of reach, with so many migrations or with any.
//! Then the least that was found is taken, whatever it communicates, and [`Unreached`] says so.
//!
//! What is done here takes no more than the time limit of the options, but for what it takes to refine
//! the present mapping a few times.

use evenly_cluster::CoreIndex;
use evenly_nuco::map::{Objectives, Options, is_within};
use std::fmt;

/// The part of the search that goes to both bounds, where it is not known whether they can be had.
const BOTH: f64 = 0.5;
/// How often the search tries to come nearer than it has, with this part of it each.
const NEARER: usize = 3;
const EACH: f64 = 0.125;
/// How often what refining takes is looked for by bisection.
const REFINED: usize = 8;

/// A bound on imbalance that a mapping does not keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unreached {
    /// What was asked for, as a share: 0.05 is 5 %.
    pub asked: f64,
    /// What the mapping has.
    pub reached: f64,
    /// The bound on migrations, where there is one; it is kept.
    pub max_migrations: Option<usize>,
}

impl Unreached {
    /// What a mapping that was made with these options is above. None where it keeps their bounds, or
    /// there are none.
    #[must_use]
    pub fn of(objectives: &Objectives, options: &Options) -> Option<Self> {
        let (asked, reached) = (options.max_imbalance?, objectives.imbalance);
        let max_migrations = options.max_migrations;
        (!is_within(reached, asked)).then_some(Self { asked, reached, max_migrations })
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [asked, reached] = [self.asked, self.reached].map(|share| 100.0 * share);
        write!(f, "an imbalance of {asked:.2} % was not reached")?;
        if let Some(most) = self.max_migrations {
            write!(f, " with at most {most} migrations, which are kept to")?;
        }
        write!(f, ": {reached:.2} % is the least that was found")
    }
}

/// A mapping, and what of it is bounded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) mapping: Vec<CoreIndex>,
    pub(crate) imbalance: f64,
    pub(crate) migrations: usize,
}

/// Who makes mappings of the same tasks.
pub(crate) trait Maker {
    /// Where tasks are.
    fn present(&self) -> Found;
    /// Few migrations, to an imbalance of no more than this where that can be. None where the time is up.
    fn refined(&self, imbalance: f64) -> Option<Found>;
    /// What a search finds with these options.
    fn searched(&self, options: &Options) -> Found;
}

/// What is found within the bounds of the options; see the module.
pub(crate) fn within(maker: &impl Maker, options: &Options) -> Vec<CoreIndex> {
    let Some(most) = options.max_migrations else { return maker.searched(options).mapping };
    if most == 0 {
        return maker.present().mapping;
    }
    let Some(asked) = options.max_imbalance else {
        let found = maker.searched(options);
        return if found.migrations <= most { found } else { maker.present() }.mapping;
    };
    let reaches = |f: &Found| f.migrations <= most && is_within(f.imbalance, asked);
    let near = nearest(maker, most, asked);
    if reaches(&near) {
        let found = maker.searched(options);
        return if reaches(&found) { found } else { near }.mapping;
    }
    let part =
        |share: f64| Options { time_limit: options.time_limit.scale(share), ..options.clone() };
    let found = maker.searched(&part(BOTH));
    if reaches(&found) {
        return found.mapping;
    }
    let mut best = near;
    let take = |found: Found, best: &mut Found| {
        let is_nearer = found.migrations <= most && found.imbalance < best.imbalance;
        if is_nearer {
            *best = found;
        }
        is_nearer
    };
    take(found, &mut best);
    let mut fails = asked;
    for _ in 0..NEARER {
        let middle = fails + (best.imbalance - fails) / 2.0;
        let aim = Options { max_imbalance: Some(middle), ..part(EACH) };
        if !take(maker.searched(&aim), &mut best) || best.imbalance > middle {
            fails = middle;
        }
    }
    // There, what communicates least.
    let aim = Options { max_imbalance: Some(best.imbalance), ..part(EACH) };
    let last = maker.searched(&aim);
    let is_as_near = last.migrations <= most && is_within(last.imbalance, best.imbalance);
    if is_as_near { last.mapping } else { best.mapping }
}

/// What comes nearest to this imbalance of all that refining makes with so many migrations.
fn nearest(maker: &impl Maker, most: usize, asked: f64) -> Found {
    let mut best = maker.present();
    let (mut fails, mut aim) = (asked, asked);
    for _ in 0..=REFINED {
        if is_within(best.imbalance, asked) {
            break;
        }
        let Some(found) = maker.refined(aim) else { break };
        if found.migrations > most {
            fails = aim;
        } else if found.imbalance < best.imbalance {
            best = found;
        } else {
            // It comes no nearer with more migrations.
            fails = fails.max(aim);
        }
        aim = fails + (best.imbalance - fails) / 2.0;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Nanos;
    use std::cell::RefCell;

    /// Each migration takes a tenth off the imbalance of 1, down to 0.2; whoever searches breaks the bound
    /// on migrations to keep the other, as long as it is asked for less than `honest`.
    struct Fake {
        honest: f64,
        asked: RefCell<Vec<(Option<f64>, Nanos)>>,
    }

    fn found(migrations: usize) -> Found {
        let imbalance = (1.0 - migrations as f64 / 10.0).max(0.2);
        Found { mapping: vec![migrations], imbalance, migrations }
    }

    fn needed(imbalance: f64) -> usize {
        (10.0 * (1.0 - imbalance.max(0.2)) - 1e-9).ceil().max(0.0) as usize
    }

    impl Maker for Fake {
        fn present(&self) -> Found {
            found(0)
        }
        fn refined(&self, imbalance: f64) -> Option<Found> {
            // One migration more than need be.
            Some(found(if imbalance < 1.0 { needed(imbalance) + 1 } else { 0 }))
        }
        fn searched(&self, options: &Options) -> Found {
            self.asked.borrow_mut().push((options.max_imbalance, options.time_limit));
            let needed = needed(options.max_imbalance.unwrap_or(0.2));
            let most = options.max_migrations.unwrap_or(usize::MAX);
            let is_honest = options.max_imbalance.is_none_or(|i| i >= self.honest);
            found(if is_honest { needed.min(most) } else { needed })
        }
    }

    fn mapped(
        honest: f64,
        max_migrations: Option<usize>,
        max_imbalance: Option<f64>,
    ) -> (usize, Fake) {
        let fake = Fake { honest, asked: RefCell::default() };
        let options = Options { max_migrations, max_imbalance, ..Options::default() };
        (within(&fake, &options)[0], fake)
    }

    #[test]
    fn migrations_are_kept_to_whatever_a_search_makes() {
        for most in 0..9 {
            for asked in [0.0, 0.1, 0.3, 0.55, 0.8, 1.0] {
                let (moved, fake) = mapped(2.0, Some(most), Some(asked));
                assert!(moved <= most, "{moved} of {most}, {asked}");
                // As near as refining comes at least.
                let as_near = found(most.saturating_sub(1)).imbalance.max(asked);
                assert!(found(moved).imbalance <= as_near + 0.1, "{moved} of {most}, {asked}");
                let spent: f64 = fake.asked.borrow().iter().map(|a| a.1.as_secs_f64()).sum();
                let limit = Options::default().time_limit.as_secs_f64();
                assert!(spent <= limit * (1.0 + 1e-9), "{spent} s");
            }
            assert!(mapped(2.0, Some(most), None).0 <= most);
        }
    }

    /// A search that keeps to the migrations comes nearer than refining.
    #[test]
    fn what_is_out_of_reach_is_approached() {
        let (moved, _) = mapped(0.0, Some(5), Some(0.1));
        assert_eq!(moved, 5);
    }

    #[test]
    fn bounds_that_can_be_had_get_all_of_the_time() {
        let limit = Options::default().time_limit;
        for (migrations, imbalance) in
            [(None, None), (Some(4), None), (None, Some(0.1)), (Some(8), Some(0.4))]
        {
            let (_, fake) = mapped(0.0, migrations, imbalance);
            assert_eq!(*fake.asked.borrow(), [(imbalance, limit)], "{migrations:?}");
        }
        // Where nothing may move there is nothing to search for.
        assert!(mapped(0.0, Some(0), Some(0.4)).1.asked.borrow().is_empty());
    }

    #[test]
    fn what_is_not_reached_is_said() {
        let objectives = Objectives {
            makespan_s: 1.7,
            mean_load_s: 1.0,
            imbalance: 0.703,
            hop_bytes: 0.0,
            nuco_messages: 0.0,
            remote_messages: 0.0,
            remote_share: 0.0,
            migrations: 0,
            migrated_bytes: 0.0,
        };
        let said = |max_migrations, max_imbalance| {
            let options = Options { max_migrations, max_imbalance, ..Options::default() };
            Unreached::of(&objectives, &options).map(|u| u.to_string())
        };
        assert_eq!(
            said(Some(0), Some(0.68)).as_deref(),
            Some(
                "an imbalance of 68.00 % was not reached with at most 0 migrations, which are kept to: \
                 70.30 % is the least that was found"
            )
        );
        assert_eq!(
            said(None, Some(0.05)).as_deref(),
            Some("an imbalance of 5.00 % was not reached: 70.30 % is the least that was found")
        );
        assert_eq!((said(Some(0), None), said(None, Some(0.703))), (None, None));
    }
}

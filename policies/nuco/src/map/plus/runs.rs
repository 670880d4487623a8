//! The search from its starts: passes by gain, annealing, and passes by gain of what was found.

use super::Search;
use super::buckets::Spent;
use super::search::{Best, Draft};
use super::starts::Starts;
use evenly_cluster::CoreIndex;
use evenly_model::stats::Random;

/// Sweeps that a second of the time limit stands for at most: small graphs need no more.
const SWEEPS_PER_SECOND: f64 = 10_000.0;
/// How often a start is annealed for its bounds alone, as long as they are not kept.
const BOUND_TRIES: usize = 4;
/// Fewer sweeps than these are not worth a start of their own.
const LEAST_SWEEPS: usize = 40;
/// How hot a search starts, over what a random move costs or gains: little of the start is lost.
const COOL: f64 = 0.01;
/// What is good in the start remains.
const WARM: f64 = 0.1;
/// Nothing of the start remains.
const HOT: f64 = 1.0;
/// The parts of the search that are passes by gain, before annealing and after it.
const FIRST: f64 = 0.1;
const LAST: f64 = 0.3;
/// How often a pass begins with steps by lot before the bound is looked at.
const KICKS: usize = 16;
/// Passes that may look at less than so many sweeps are not worth beginning after groups within a bound.
const LEAST_PASS: f64 = 1.0;

/// A search from one beginning.
struct Run<'a> {
    from: &'a [CoreIndex],
    bound_s: f64,
    sweeps: usize,
    heat: f64,
    /// Whether half of the sweeps go to the bounds alone.
    bounds_first: bool,
}

/// What a search starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// What `refine` makes of the present mapping below the bound.
    Refined,
    /// The same, and then what is above the bounds is annealed alone.
    BoundsFirst,
    /// Tasks that talk to each other are together at first.
    Grouped,
    /// Tasks are anywhere at first.
    Molten,
}

/// What is annealed, and how the work is shared out.
pub(super) struct Runs<'r, 'm> {
    search: &'r Search<'r, 'm>,
    best: Best<'r, 'm>,
    grouped: Vec<CoreIndex>,
    is_halved: bool,
    random: Random,
    /// Looks of the passes before annealing and after it.
    first: usize,
    last: usize,
    starts: Vec<(f64, Start)>,
    /// Sweeps of each of them, and of what was found, before and after.
    each: usize,
    polish: usize,
}

impl<'r, 'm> Runs<'r, 'm> {
    pub(super) fn new(search: &'r Search<'r, 'm>, from: Starts<'r, 'm>) -> Self {
        let options = search.request.options;
        let most_sweeps = options.time_limit.as_secs_f64() * SWEEPS_PER_SECOND;
        let left = (search.looks - from.looks).max(0.0);
        let all_sweeps = (left / search.sweep).min(most_sweeps);
        // Passes by gain of what is there, and at the end of what was found; the rest is annealed.
        let part = |part: f64| (all_sweeps * part * search.sweep) as usize;
        let is_grouped = search.is_within() && !from.grouped.is_empty();
        let (first, last, sweeps) = if is_grouped && all_sweeps < 2.0 * LEAST_PASS {
            // Beginning takes longer than what is left, and what there is comes from searches already.
            (0, 0, 0)
        } else if all_sweeps < 3.0 * LEAST_SWEEPS as f64 {
            // No time to anneal anything.
            (part(0.5), part(0.5), 0)
        } else {
            (part(FIRST), part(LAST), (all_sweeps * (1.0 - FIRST - LAST)) as usize)
        };
        let mut starts = Vec::new();
        for &bound in search.bounds() {
            starts.push((bound, Start::Refined));
            if search.is_within() {
                starts.push((bound, Start::BoundsFirst));
            }
            if search.all_may_move {
                starts.push((bound, Start::Grouped));
                starts.push((bound, Start::Molten));
            }
        }
        starts.truncate((sweeps / LEAST_SWEEPS).saturating_sub(1));
        // Where there is no time for others, all of it is for what was found.
        let polish = if starts.is_empty() { sweeps / 2 } else { sweeps / 8 };
        let each = (sweeps - 2 * polish.min(sweeps / 2)) / starts.len().max(1);
        let Starts { best, grouped, is_halved, .. } = from;
        let random = Random::new(options.seed);
        Self { search, best, grouped, is_halved, random, first, last, starts, each, polish }
    }

    /// The best mapping there is then.
    pub(super) fn all(mut self) -> Vec<CoreIndex> {
        self.first();
        self.polish();
        for (bound, start) in std::mem::take(&mut self.starts) {
            if !self.search.has_time_for(12.0) {
                break;
            }
            self.anneal(bound, start);
        }
        self.polish();
        if self.last > 0 && self.search.has_time_for(8.0) {
            let from = self.best.mapping.clone();
            self.squeeze(&from, self.is_halved, self.last);
        }
        self.best.mapping
    }

    /// The best start first: what it gives is there early.
    fn first(&mut self) {
        let s = self.search;
        if self.first == 0 || !s.has_time_for(8.0) {
            return;
        }
        let from = self.best.mapping.clone();
        let best_is_halved = self.is_halved && from == self.grouped;
        // Where imbalance is bounded the best has come from groups already.
        let is_one = best_is_halved || s.groups_first;
        let its = if is_one { self.first } else { self.first / 2 };
        self.squeeze(&from, best_is_halved, its);
        if !is_one && s.all_may_move && !self.grouped.is_empty() && s.has_time_for(8.0) {
            let from = self.grouped.clone();
            self.squeeze(&from, self.is_halved, self.first / 2);
        }
    }

    /// Anneals the best, without heat.
    fn polish(&mut self) {
        let s = self.search;
        if s.has_time_for(8.0) && self.polish > 0 {
            let from = self.best.mapping.clone();
            let bound_s = if s.is_within() { s.load_bound_s(0.0) } else { self.best.slowest_s };
            let sweeps = self.polish;
            self.run(Run { from: &from, bound_s, sweeps, heat: COOL, bounds_first: false });
        }
    }

    fn anneal(&mut self, bound: f64, start: Start) {
        let s = self.search;
        let refined = s.refined(s.request.present, s.load_bound_s(bound), &|| s.late());
        self.best.offer(&refined);
        let (from, heat) = match start {
            Start::Refined | Start::BoundsFirst => (refined, WARM),
            Start::Grouped => (self.grouped.clone(), WARM),
            Start::Molten => (refined, HOT),
        };
        if !from.is_empty() && s.has_time_for(8.0) {
            let bounds_first = start == Start::BoundsFirst;
            let bound_s = match s.is_within() {
                true => s.load_bound_s(bound),
                false => s.even_s(self.best.communication_s) * (1.0 + bound),
            };
            self.run(Run { from: &from, bound_s, sweeps: self.each, heat, bounds_first });
        }
    }

    /// Anneals, and then passes by gain.
    fn run(&mut self, run: Run<'_>) {
        let s = self.search;
        let late = || s.late();
        let Self { best, random, .. } = self;
        let mut state = Draft::new(s.model, s.tasks, run.from, run.bound_s);
        let mut sweeps = run.sweeps;
        if run.bounds_first {
            sweeps -= run.sweeps / 2;
            for left in (0..BOUND_TRIES).rev() {
                state.anneal_bounds(run.sweeps / 2, random, &late);
                if late() {
                    return state.claim(best);
                }
                best.offer(&state.at);
                if state.keeps_bounds() || left == 0 {
                    break;
                }
                // By other lots.
                state = Draft::new(s.model, s.tasks, run.from, run.bound_s);
            }
        }
        state.anneal(sweeps, run.heat, random, best, &late);
        if late() {
            return state.claim(best);
        }
        let looks = run.sweeps.saturating_mul(s.sweep as usize);
        let scale_s = state.scale_s(random);
        let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { s.model.mean_s });
        state.pass_by_gain(&mut scratch, &mut Spent { looks: 0, limit: looks, late: &late });
        best.offer(&state.at);
    }

    /// Passes below nearer and nearer bounds, and then from places near the best. Where what it starts from
    /// comes from such passes (halves do), one below no bound gains little and takes long.
    fn squeeze(&mut self, from: &[CoreIndex], is_passed: bool, looks: usize) {
        let s = self.search;
        let late = || s.late();
        let Self { best, random, .. } = self;
        let mut state = Draft::new(s.model, s.tasks, from, s.load_bound_s(0.0));
        let mut spent = Spent { looks: 0, limit: looks, late: &late };
        let scale_s = state.scale_s(random);
        let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { s.model.mean_s });
        let slides = !s.is_within();
        if slides {
            state.bind(state.slowest_s());
        }
        if !is_passed || !slides {
            state.pass_by_gain(&mut scratch, &mut spent);
            state.claim(best);
        }
        let (mut part, mut rounds) = (0.5, 0);
        while !spent.all() {
            let slowest_s = state.slowest_s();
            if slides {
                let even_s = s.even_s(state.sums.communication_s);
                state.bind(slowest_s - (slowest_s - even_s).max(0.0) * part);
                state.pass_of_slow_cores(&mut scratch, &mut spent);
                state.claim(best);
            }
            for _ in 0..KICKS {
                if spent.all() {
                    break;
                }
                state.kick(random, &mut scratch, &mut spent);
            }
            state.claim(best);
            rounds += 1;
            if slides && state.slowest_s() >= slowest_s {
                part = if part < 0.02 { 0.5 } else { part / 2.0 };
            }
            // Sums drift by rounding, and a state may have gone astray.
            if rounds % 32 == 0 && !late() {
                state = Draft::new(s.model, s.tasks, &best.mapping, best.slowest_s);
            }
        }
    }
}

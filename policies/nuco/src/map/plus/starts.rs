//! What the search starts from: what other mappers make of the present mapping, and groups by communication.

use super::super::nuco::NUCO_AUTO;
use super::super::treematch::TREEMATCH;
use super::super::{Effort, MAPPERS, MapperInfo, Request};
use super::Search;
use super::buckets::Spent;
use super::budget::{HALVING, Halving, halving_looks, is_scattered, treematch_looks};
use super::graph::Graph;
use super::home::at_home;
use super::kway::{self, Kway};
use super::model::Value;
use super::multilevel::{self, Care};
use super::search::{Best, Draft};
use evenly_cluster::CoreIndex;
use evenly_model::stats::Random;

/// The part of the time limit that other mappers may take.
const OTHERS: f64 = 0.5;
/// The part of what may be looked at that groups within a bound may take: where there is little, they are what counts.
const KWAY: f64 = 0.95;
/// Within what imbalance groups of all cores at once are made where it is not bounded.
const UNBOUNDED: f64 = 0.01;
/// The part of what may be looked at that a mapper may take which looks at every core for every task, where
/// imbalance is bounded: it makes no groups.
const EVERY_CORE: f64 = 0.05;
/// The part of what may be looked at that taking groups below the bound may take, for each of them.
const SETTLING: f64 = 0.25;
/// In so many sweeps annealing finds groups within a bound on imbalance that are better than those it is given.
pub(super) const GROUPING_SWEEPS: f64 = 300.0;

/// The starts, and what was looked at to find them.
pub(super) struct Starts<'r, 'm> {
    search: &'r Search<'r, 'm>,
    pub(super) best: Best<'r, 'm>,
    /// Groups by communication, where there are any.
    pub(super) grouped: Vec<CoreIndex>,
    /// Whether they come from halving.
    pub(super) is_halved: bool,
    pub(super) looks: f64,
    /// What halving takes, where it is worth that.
    halving: Option<Halving>,
}

impl<'r, 'm> Starts<'r, 'm> {
    /// From the best so far, which is the present mapping, on.
    pub(super) fn find(search: &'r Search<'r, 'm>, best: Best<'r, 'm>) -> Self {
        let halving = (search.all_may_move && !search.is_within())
            .then(|| halving_looks(search.model, search.looks))
            .flatten();
        let (grouped, is_halved) = (Vec::new(), false);
        let mut starts = Self { search, best, grouped, is_halved, looks: 0.0, halving };
        starts.refine();
        starts.group();
        starts.others(halving.map_or(0.0, |h| h.looks));
        if let Some(halving) = halving {
            starts.halve(halving);
        }
        starts
    }

    /// Whether those mappers are stopped that are on their way.
    fn stop(&self) -> bool {
        let limit = self.search.request.options.time_limit;
        self.search.late() || self.search.spent() >= limit.scale(OTHERS)
    }

    /// The cheapest of all by far, and what there is time for where there are millions of tasks.
    fn refine(&mut self) {
        let s = self.search;
        for &bound in s.bounds() {
            if !s.has_time_for(16.0) || self.stop() {
                break;
            }
            let made = s.refined(s.request.present, s.load_bound_s(bound), &|| self.stop());
            self.best.offer(&made);
        }
    }

    /// How carefully there is time to make groups of all cores at once, and within what imbalance.
    fn care(&self) -> Option<(f64, Care)> {
        let s = self.search;
        if !s.all_may_move {
            return None;
        }
        let most = match s.request.options.max_imbalance {
            Some(most) => most,
            // Where there is too little time to halve all tasks, and communication has not been looked at yet.
            None if self.halving.is_none() && is_scattered(s.model, s.model.present) => UNBOUNDED,
            None => return None,
        };
        Some((most, kway::affordable(s.model, KWAY * s.looks)?))
    }

    /// Groups within the bound, made better as long as that gains something; as near home as they can be first.
    fn group(&mut self) {
        let s = self.search;
        let Some((most, care)) = self.care().filter(|_| s.has_time_for(32.0)) else { return };
        let hurry = || !s.has_time_for(20.0);
        let mut spent = Spent { looks: 0, limit: (KWAY * s.looks) as usize, late: &hurry };
        let mut random = Random::new(!s.request.options.seed);
        let mut kway = Kway::new(s.model, most, &mut random, &mut spent);
        let made = kway.groups(care).filter(|_| s.has_time_for(12.0)).map(|made| {
            let home = at_home(s.model, &made);
            let is_there = self.best.offer(&made) <= self.best.offer(&home);
            let mut last = if is_there { made } else { home };
            kway.again(&last.clone(), |made| {
                last.copy_from_slice(made);
                self.best.offer_and_judge(made).communication_s
            });
            last
        });
        self.looks += spent.looks as f64;
        if let Some(groups) = made {
            if !s.model.keeps_bounds(&groups) {
                self.settle(&groups);
            }
            // Without a bound the best may be no groups.
            self.grouped = if s.is_within() { self.best.mapping.clone() } else { groups };
        }
    }

    /// Passes by gain of groups that are near the bound, until they are below it.
    fn settle(&mut self, groups: &[CoreIndex]) {
        let s = self.search;
        let late = || s.late();
        let mut spent = Spent { looks: 0, limit: (SETTLING * s.looks) as usize, late: &late };
        let mut random = Random::new(!s.request.options.seed);
        let bound_s = s.load_bound_s(0.0);
        let mut from = groups.to_vec();
        for is_last in [false, true] {
            let mut state = Draft::new(s.model, s.tasks, &from, bound_s);
            let scale_s = state.scale_s(&mut random);
            let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { s.model.mean_s });
            state.pass_by_gain(&mut scratch, &mut spent);
            state.claim(&mut self.best);
            if is_last || state.is_below_bound() || spent.all() {
                break;
            }
            // Whatever that communicates: the next passes see to it.
            from = s.refined(&state.at, bound_s, &late);
            self.best.offer(&from);
        }
        self.looks += spent.looks as f64;
    }

    /// The others with what each looks at, the quickest first; before all that of `nuco-auto`, which mostly is the
    /// best of them, or where groups are what counts and there are none yet, that of `treematch`.
    fn in_order(&self) -> Vec<(f64, bool, &'static MapperInfo)> {
        let s = self.search;
        let Request { graph, cluster, .. } = *s.request;
        let is_grouping = s.groups_first && self.care().is_none();
        let first = if is_grouping { TREEMATCH.name } else { NUCO_AUTO.name };
        let looks_of = |m: &MapperInfo| match m.name == TREEMATCH.name && s.groups_first {
            true => treematch_looks(s.model),
            false => m.effort.looks(graph.len(), cluster.cores().len(), graph.pairs()),
        };
        let others = MAPPERS.iter().filter(|m| !m.effort.searches());
        let mut others: Vec<_> = others.map(|m| (looks_of(m), m.name != first, m)).collect();
        others.sort_by(|a, b| a.1.cmp(&b.1).then(a.0.total_cmp(&b.0)));
        others
    }

    /// What other mappers make of it; `planned` is to be looked at later.
    fn others(&mut self, planned: f64) {
        let s = self.search;
        let is_grouped = !self.grouped.is_empty();
        let most_of_all = OTHERS * (s.looks - self.looks - planned).max(0.0);
        let mut looks_of_others = 0.0;
        for (its_looks, is_later, other) in self.in_order() {
            // Orders and copies of all tasks are made before one can stop.
            if !s.has_time_for(16.0) || self.stop() {
                break;
            }
            let most = match s.groups_first && is_later && other.effort == Effort::EveryCore {
                true => most_of_all.min(EVERY_CORE * s.looks),
                false => most_of_all,
            };
            if looks_of_others + its_looks > most {
                continue;
            }
            // Those of `nuco-auto` go along the cores in order, and take a fraction of what others do; none of the
            // search is given up for it.
            if is_later || s.groups_first {
                looks_of_others += its_looks;
            }
            let mapping = (other.map)(&Request { stop: &|| self.stop(), ..*s.request });
            let there = self.best.offer(&mapping);
            if !s.has_time_for(12.0) {
                break;
            }
            let home = at_home(s.model, &mapping);
            let is_better_at_home = self.best.offer(&home) < there;
            if other.name == TREEMATCH.name && !is_grouped {
                self.grouped = if is_better_at_home { home } else { mapping };
            }
        }
        self.looks += looks_of_others;
        // Those of `treematch` are to be taken below the bound first.
        let is_new = !is_grouped && !self.grouped.is_empty();
        if s.groups_first && s.all_may_move && is_new && s.has_time_for(16.0) {
            let groups = std::mem::take(&mut self.grouped);
            self.settle(&groups);
            self.grouped.clone_from(&self.best.mapping);
        }
    }

    /// Groups by halving, where no others have been found, or better ones.
    fn halve(&mut self, halving: Halving) {
        let s = self.search;
        let is_grouped = !self.grouped.is_empty() && !is_scattered(s.model, &self.grouped);
        if !s.has_time_for(32.0) || (halving.is_dear && is_grouped) {
            return;
        }
        let Some((halves, value)) = self.halves() else { return };
        // Where there is time to anneal groups, those of `treematch` do as well.
        let is_better = || !halving.is_cheap && value < s.model.value(&self.grouped);
        if self.grouped.is_empty() || is_better() {
            self.grouped = halves;
            self.is_halved = true;
        }
    }

    /// A step of it may take some judgings, and what it made is judged thrice. Lots of its own, so that the rest is
    /// the same with it and without.
    fn halves(&mut self) -> Option<(Vec<CoreIndex>, Value)> {
        let s = self.search;
        let (model, cluster) = (s.model, s.request.cluster);
        let hurry = || !s.has_time_for(20.0);
        let mut spent = Spent { looks: 0, limit: (HALVING * s.looks) as usize, late: &hurry };
        let mut random = Random::new(!s.request.options.seed);
        let graph = Graph::of(model, multilevel::least_load(model));
        let made = multilevel::groups(&graph, cluster, None, Care::USUAL, &mut random, &mut spent);
        self.looks += spent.looks as f64;
        let mapping: Vec<CoreIndex> = made?.into_iter().map(|c| c as CoreIndex).collect();
        if !s.has_time_for(12.0) {
            return None;
        }
        let there = self.best.offer(&mapping);
        let home = at_home(model, &mapping);
        let then = self.best.offer(&home);
        Some(if then < there { (home, then) } else { (mapping, there) })
    }
}

//! `nuco+`: makespan, communication and migrations together, by search.
//!
//! The objective J, which is minimised, is described in `model`.
//!
//! # The search
//! Invariant: the mapping returned is the best of all that were looked at, and the present one is
//! among them: it is never worse than that under the model, whenever the search is ended. Those of
//! other mappers are among them, too, as far as they fit into half of the time limit: that of `nuco-auto`
//! first, and then the quickest.
//!
//! It starts from the present mapping, from what every other mapper makes of it and from groups by
//! communication of its own (`multilevel`: halves of halves, down the tree of the machine; not where imbalance
//! is bounded, and where there is little time only if the present mapping and `treematch` have not found such
//! groups), each also with its
//! groups given the cores that most of their tasks are on. Where imbalance is bounded, groups of all cores at once
//! come before all else (`kway`), and again and again as long as that gains something; where there is too little time
//! for them, those of `treematch`, taken below the bound. Where it is not, they stand in for halving if that would take
//! too long. The slowest core is not searched for
//! but bounded (the epsilon-constraint method of multi-objective optimisation): below a bound the mean
//! of communication and what migrations cost are reduced. Three things do that:
//!
//! - **passes by gain** (`buckets`): moves and exchanges of tasks kept in buckets by what they gain, losses
//!   among them, of which the best moment is kept. From the best start and from groups by communication,
//!   below bounds nearer and nearer to what each core would take if all took the same; and then from
//!   places near the best, where some tasks were moved by lot;
//! - **simulated annealing** (`search`) for each of several bounds, or the one that the options give, where
//!   there is the time: what exceeds the bound is charged for, at a price that rises while there is
//!   some and falls while there is none; passes by gain end it;
//! - and passes by gain from places near the best with what is left of the time.
//!
//! **Lower bound**: [`lower_bound_s`]. **Time**: what the other mappers look at and the number of
//! sweeps, of which one is O(n + e + m), follow from the sizes and the time limit by a fixed rate,
//! not from the clock, so that the result is the same on every machine on which the limit is not
//! hit. Where it is hit, it is kept: other mappers are stopped on their way
//! ([`Request::stop`]), and what judging a mapping takes is measured at the beginning and kept in
//! reserve. Only that first judging, O(n + e), is done whatever the limit.

mod border;
mod buckets;
mod budget;
mod distances;
mod graph;
mod home;
mod kway;
mod model;
mod multilevel;
mod runs;
mod search;
mod starts;

use super::refine::refine;
use super::{Effort, MapperInfo, Request, movable};
use evenly_cluster::CoreIndex;
use evenly_model::{Nanos, TaskIndex};
use model::Model;
use runs::Runs;
use search::Best;
use starts::Starts;

pub use model::{lower_bound_s, objective_s};

/// `nuco+`: a search from several beginnings, by a model of the makespan.
pub(super) const NUCO_PLUS: MapperInfo = MapperInfo {
    name: "nuco+",
    about: "least makespan, communication and migration together, by search within a time limit",
    effort: Effort::Search,
    map: nuco_plus,
};

/// Looks at a link that a second of the time limit stands for. Real machines do more.
const LOOKS_PER_SECOND: f64 = 60e6;
/// What trying a task costs beside looking at its links, in looks.
const LOOKS_PER_TRIAL: usize = 10;
/// Bounds of the slowest core that are searched below where the options give none, as a share above
/// what each would take if all took the same.
const BOUNDS: [f64; 4] = [0.03, 0.01, 0.12, 0.5];

fn nuco_plus(request: &Request<'_>) -> Vec<CoreIndex> {
    let began = (request.clock)();
    let model = Model::new(request);
    let best = Best::new(&model, request.present);
    let tasks = movable(request.graph);
    if tasks.is_empty() || request.cluster.cores().len() == 1 {
        return best.mapping;
    }
    let search = Search::new(request, &model, &tasks, began);
    let starts = Starts::find(&search, best);
    Runs::new(&search, starts).all()
}

/// What all parts of the search need to know: the problem, the bounds and the time.
struct Search<'r, 'm> {
    request: &'r Request<'m>,
    model: &'r Model<'m>,
    /// Those that may be moved.
    tasks: &'r [TaskIndex],
    began: Nanos,
    /// What judging a mapping takes: a search that is late sums up and judges once more.
    judging: Nanos,
    /// What may be looked at, and what a sweep looks at.
    looks: f64,
    sweep: f64,
    /// No makespan is below these, with what tasks compute and with their loads.
    least_s: f64,
    least_load_s: f64,
    /// Whether migrations are not bounded, or hardly.
    all_may_move: bool,
    /// Whether imbalance is bounded, and there is too little time to find groups by annealing.
    groups_first: bool,
}

impl<'r, 'm> Search<'r, 'm> {
    /// `began`: when the first judging did.
    fn new(
        request: &'r Request<'m>,
        model: &'r Model<'m>,
        tasks: &'r [TaskIndex],
        began: Nanos,
    ) -> Self {
        let Request { graph, options, clock, .. } = *request;
        let looks = options.time_limit.as_secs_f64() * LOOKS_PER_SECOND;
        let links: usize = tasks.iter().map(|&t| graph.links(t).len()).sum();
        let sweep = (tasks.len() * LOOKS_PER_TRIAL + links * 3 / 2) as f64;
        Self {
            request,
            model,
            tasks,
            began,
            judging: clock() - began,
            looks,
            sweep,
            least_s: model.least_s(|t| model.computes_s[t]),
            least_load_s: model.least_s(|t| graph.tasks()[t].load_s),
            all_may_move: model.max_migrations >= tasks.len() / 2,
            groups_first: options.max_imbalance.is_some()
                && looks < starts::GROUPING_SWEEPS * sweep,
        }
    }

    fn spent(&self) -> Nanos {
        (self.request.clock)() - self.began
    }

    /// Whether there is time to judge so many mappings, and nobody has called it off.
    fn has_time_for(&self, judgings: f64) -> bool {
        let limit = self.request.options.time_limit;
        !(self.request.stop)() && self.spent() + self.judging.scale(judgings) < limit
    }

    fn late(&self) -> bool {
        !self.has_time_for(2.0)
    }

    /// Bounds of the slowest core, over what is least; where imbalance is bounded, one: what that allows.
    fn bounds(&self) -> &'static [f64] {
        if self.is_within() { &[0.0] } else { &BOUNDS }
    }

    fn is_within(&self) -> bool {
        self.request.options.max_imbalance.is_some()
    }

    /// A bound of loads alone.
    fn load_bound_s(&self, bound: f64) -> f64 {
        // A core that nothing is moved to or from may be at the bound, if it is taken from another
        // mapping; rounding must not make it exceed it.
        match self.is_within() {
            true => self.model.floor_s * (1.0 + 1e-12),
            false => self.least_load_s * (1.0 + bound),
        }
    }

    /// What each core would take if all took the same, where communication costs so much.
    fn even_s(&self, communication_s: f64) -> f64 {
        self.least_s.max(self.model.mean_s + communication_s)
    }

    /// What `refine` makes of a mapping below a bound of loads.
    fn refined(&self, from: &[CoreIndex], bound_s: f64, stop: &dyn Fn() -> bool) -> Vec<CoreIndex> {
        refine(&Request { present: from, stop, ..*self.request }, bound_s)
    }
}

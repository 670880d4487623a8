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
//! for them, those of `treematch`, taken below the bound. The slowest core is not searched for
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
mod distances;
mod graph;
mod kway;
mod model;
mod multilevel;
mod search;

use super::nuco::NUCO_AUTO;
use super::refine::refine;
use super::{Effort, MAPPERS, MapperInfo, Request, movable, tree, treematch};
use buckets::Spent;
use evenly_cluster::CoreIndex;
use evenly_model::stats::Random;
use graph::Graph;
use kway::Kway;
use model::Model;
use multilevel::Care;
use search::{Best, Draft};
use std::collections::BTreeMap;

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
/// Sweeps that a second of the time limit stands for at most: small graphs need no more.
const SWEEPS_PER_SECOND: f64 = 10_000.0;
/// The part of the time limit that other mappers may take.
const OTHERS: f64 = 0.5;
/// The part of what may be looked at that halving may take.
const HALVING: f64 = 0.65;
/// The part of what may be looked at that groups within a bound may take: where there is little, they are what counts.
const KWAY: f64 = 0.8;
/// What halving looks at of each task and link, in looks.
const HALVING_LOOKS: f64 = 6.0;
/// What the present mapping communicates over what one by lot would, from where on it is not grouped.
const SCATTERED: f64 = 0.6;
/// Cores whose distances are looked at for that, at most.
const MOST_JUDGED: usize = 128;
/// The part of what may be looked at that a mapper may take which looks at every core for every task, where
/// imbalance is bounded: it makes no groups.
const EVERY_CORE: f64 = 0.05;
/// What `treematch` looks at of each task and link at each level of the machine, in looks.
const TREEMATCH_LOOKS: f64 = 16.0;
/// The part of what may be looked at that taking groups below the bound may take, for each of them.
const SETTLING: f64 = 0.25;
/// In so many sweeps annealing finds groups within a bound on imbalance that are better than those it is given.
const GROUPING_SWEEPS: f64 = 300.0;
/// How often a start is annealed for its bounds alone, as long as they are not kept.
const BOUND_TRIES: usize = 4;
/// Fewer sweeps than these are not worth a start of their own.
const LEAST_SWEEPS: usize = 40;
/// Bounds of the slowest core that are searched below where the options give none, as a share above
/// what each would take if all took the same.
const BOUNDS: [f64; 4] = [0.03, 0.01, 0.12, 0.5];

fn nuco_plus(request: &Request<'_>) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, options, clock, stop } = *request;
    let began = clock();
    let spent = || clock() - began;
    let model = Model::new(request);
    let mut best = Best::new(&model, present);
    let tasks = movable(graph);
    if tasks.is_empty() || cluster.cores().len() == 1 {
        return best.mapping;
    }
    // A search that is late sums up and judges once more.
    let judging = spent();
    let limit = options.time_limit;
    let has_time_for = |judgings: f64| !stop() && spent() + judging.scale(judgings) < limit;
    let late = || !has_time_for(2.0);
    let mut random = Random::new(options.seed);

    // Bounds of the slowest core, of loads alone and with communication.
    let least = model.least_s(|t| model.computes_s[t]);
    let least_load_s = model.least_s(|t| graph.tasks()[t].load_s);
    let bounds = if options.max_imbalance.is_some() { &[0.0][..] } else { &BOUNDS };
    let load_bound_s = |bound: f64| match options.max_imbalance {
        // A core that nothing is moved to or from may be at the bound, if it is taken from another
        // mapping; rounding must not make it exceed it.
        Some(_) => model.floor_s * (1.0 + 1e-12),
        None => least_load_s * (1.0 + bound),
    };
    // What each core would take if all took the same, as far as is known.
    let even_s = |best: &Best| least.max(model.mean_s + best.communication_s);
    let bound_s = |best: &Best, bound: f64| match options.max_imbalance {
        Some(_) => load_bound_s(bound),
        None => even_s(best) * (1.0 + bound),
    };

    // Starts that do not depend on the bound: what others make of it, the quickest first; before all that
    // of `nuco-auto`, which mostly is the best of them.
    let looks = options.time_limit.as_secs_f64() * LOOKS_PER_SECOND;
    let sizes = (graph.len(), cluster.cores().len(), graph.pairs());
    let links: usize = tasks.iter().map(|&t| graph.links(t).len()).sum();
    let sweep = (tasks.len() * LOOKS_PER_TRIAL + links * 3 / 2) as f64;
    // Whether imbalance is bounded, and there is too little time to find groups by annealing.
    let groups_first = options.max_imbalance.is_some() && looks < GROUPING_SWEEPS * sweep;
    let looks_of = |m: &MapperInfo| match m.name == treematch::TREEMATCH.name && groups_first {
        true => treematch_looks(&model),
        false => m.effort.looks(sizes.0, sizes.1, sizes.2),
    };
    let mut others: Vec<(f64, &MapperInfo)> =
        MAPPERS.iter().filter(|m| !m.effort.searches()).map(|m| (looks_of(m), m)).collect();
    let all_may_move = model.max_migrations >= tasks.len() / 2;
    // Groups of all cores at once, where imbalance is bounded and there is time for them.
    let within = options.max_imbalance.filter(|_| all_may_move);
    let care = within.and_then(|_| kway::affordable(&model, KWAY * looks));
    let first = match care {
        None if groups_first => treematch::TREEMATCH.name,
        _ => NUCO_AUTO.name,
    };
    let is_later = |m: &MapperInfo| m.name != first;
    others.sort_by(|a, b| is_later(a.1).cmp(&is_later(b.1)).then(a.0.total_cmp(&b.0)));
    let may_halve = all_may_move && options.max_imbalance.is_none();
    let halving = if may_halve { halving_looks(&model, looks) } else { None };
    let mut looks_of_others = 0.0;
    let mut grouped = Vec::new();
    // The cheapest of all by far, and what there is time for where there are millions of tasks.
    let stop = || late() || spent() >= limit.scale(OTHERS);
    for &bound in bounds {
        if !has_time_for(16.0) || stop() {
            break;
        }
        best.offer(&refine(&Request { stop: &stop, ..*request }, load_bound_s(bound)));
    }
    // Groups by halving. A step of it may take some judgings, and what it made is judged thrice. Lots of its own,
    // so that the rest is the same with it and without.
    let halve = |best: &mut Best| {
        let hurry = || !has_time_for(20.0);
        let mut spent = Spent { looks: 0, limit: (HALVING * looks) as usize, late: &hurry };
        let mut random = Random::new(!options.seed);
        let graph = Graph::of(&model, multilevel::least_load(&model));
        let made = multilevel::groups(&graph, cluster, None, Care::USUAL, &mut random, &mut spent);
        let made = made.map(|to| to.into_iter().map(|c| c as CoreIndex).collect::<Vec<_>>());
        let halves = made.filter(|_| has_time_for(12.0)).map(|mapping| {
            let there = best.offer(&mapping);
            let home = at_home(&model, &mapping);
            let then = best.offer(&home);
            if then < there { (home, then) } else { (mapping, there) }
        });
        (halves, spent.looks as f64)
    };
    // Groups within the bound, made better as long as that gains something; as near home as they can be first.
    let group = |most: f64, care: Care, best: &mut Best| -> (Option<Vec<CoreIndex>>, f64) {
        let hurry = || !has_time_for(20.0);
        let mut spent = Spent { looks: 0, limit: (KWAY * looks) as usize, late: &hurry };
        let mut random = Random::new(!options.seed);
        let mut kway = Kway::new(&model, most, &mut random, &mut spent);
        let groups = kway.groups(care).filter(|_| has_time_for(12.0)).map(|made| {
            let home = at_home(&model, &made);
            let from = if best.offer(&made) <= best.offer(&home) { made } else { home };
            let mut last = from.clone();
            kway.again(&from, |made| {
                last.copy_from_slice(made);
                best.offer_and_judge(made).communication_s
            });
            last
        });
        (groups, spent.looks as f64)
    };
    // Passes by gain of groups that are near the bound, until they are below it.
    let settle = |from: &[CoreIndex], best: &mut Best| -> f64 {
        let limit = (SETTLING * looks) as usize;
        let mut spent = Spent { looks: 0, limit, late: &late };
        let mut random = Random::new(!options.seed);
        let bound_s = load_bound_s(0.0);
        let mut from = from.to_vec();
        for is_last in [false, true] {
            let mut state = Draft::new(&model, &tasks, &from, bound_s);
            let scale_s = state.scale_s(&mut random);
            let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { model.mean_s });
            state.pass_by_gain(&mut scratch, &mut spent);
            state.claim(best);
            if is_last || state.is_below_bound() || spent.all() {
                break;
            }
            // Whatever that communicates: the next passes see to it.
            from = refine(&Request { present: &state.at, stop: &late, ..*request }, bound_s);
            best.offer(&from);
        }
        spent.looks as f64
    };
    let (mut looks_of_halving, mut looks_of_settling) = (0.0, 0.0);
    let mut is_halved = false;
    if let (Some(most), Some(care)) = (within, care)
        && has_time_for(32.0)
    {
        let (groups, took) = group(most, care, &mut best);
        looks_of_halving = took;
        if let Some(groups) = groups {
            if !model.keeps_bounds(&groups) {
                looks_of_settling += settle(&groups, &mut best);
            }
            grouped.clone_from(&best.mapping);
        }
    }
    let is_grouped = !grouped.is_empty();
    let planned = looks_of_halving + looks_of_settling + halving.map_or(0.0, |h| h.looks);
    let most_of_others = OTHERS * (looks - planned).max(0.0);
    for (its_looks, other) in others {
        // Orders and copies of all tasks are made before one can stop.
        if !has_time_for(16.0) || stop() {
            break;
        }
        let most = match groups_first && is_later(other) && other.effort == Effort::EveryCore {
            true => most_of_others.min(EVERY_CORE * looks),
            false => most_of_others,
        };
        if looks_of_others + its_looks > most {
            continue;
        }
        // Those of `nuco-auto` go along the cores in order, and take a fraction of what others do; none of the
        // search is given up for it.
        if is_later(other) || groups_first {
            looks_of_others += its_looks;
        }
        let mapping = (other.map)(&Request { stop: &stop, ..*request });
        let there = best.offer(&mapping);
        if !has_time_for(12.0) {
            break;
        }
        let home = at_home(&model, &mapping);
        let is_better_at_home = best.offer(&home) < there;
        if other.name == treematch::TREEMATCH.name && !is_grouped {
            grouped = if is_better_at_home { home } else { mapping };
        }
    }
    // Those of `treematch` are to be taken below the bound first.
    if groups_first && all_may_move && !is_grouped && !grouped.is_empty() && has_time_for(16.0) {
        looks_of_settling += settle(&grouped, &mut best);
        grouped.clone_from(&best.mapping);
    }
    if has_time_for(32.0)
        && let Some(halving) = halving
        && (!halving.is_dear || grouped.is_empty() || is_scattered(&model, &grouped))
    {
        let (halves, took) = halve(&mut best);
        looks_of_halving = took;
        if let Some((halves, value)) = halves {
            // Where there is time to anneal groups, those of `treematch` do as well.
            let is_better = || !halving.is_cheap && value < model.value(&grouped);
            if grouped.is_empty() || is_better() {
                grouped = halves;
                is_halved = true;
            }
        }
    }
    let best_is_halved = is_halved && best.mapping == grouped;

    let most_sweeps = options.time_limit.as_secs_f64() * SWEEPS_PER_SECOND;
    let left = (looks - looks_of_others - looks_of_halving - looks_of_settling).max(0.0);
    let all_sweeps = (left / sweep).min(most_sweeps);
    // Passes by gain of what is there, and at the end of what was found; the rest is annealed.
    let part = |part: f64| (all_sweeps * part * sweep) as usize;
    let (first, last, sweeps) = if all_sweeps < 3.0 * LEAST_SWEEPS as f64 {
        // No time to anneal anything.
        (part(0.5), part(0.5), 0)
    } else {
        (part(FIRST), part(LAST), (all_sweeps * (1.0 - FIRST - LAST)) as usize)
    };

    let mut runs: Vec<(f64, Start)> = Vec::new();
    for &bound in bounds {
        runs.push((bound, Start::Refined));
        if options.max_imbalance.is_some() {
            runs.push((bound, Start::BoundsFirst));
        }
        if all_may_move {
            runs.push((bound, Start::Grouped));
            runs.push((bound, Start::Molten));
        }
    }
    runs.truncate((sweeps / LEAST_SWEEPS).saturating_sub(1));
    // Where there is no time for others, all of it is for what was found.
    let polish = if runs.is_empty() { sweeps / 2 } else { sweeps / 8 };
    let each = (sweeps - 2 * polish.min(sweeps / 2)) / runs.len().max(1);

    // Passes below nearer and nearer bounds, and then from places near the best. Where what it starts from
    // comes from such passes (halves do), one below no bound gains little and takes long.
    let squeeze = |from: &[CoreIndex],
                   is_passed: bool,
                   looks: usize,
                   best: &mut Best,
                   random: &mut Random| {
        let mut state = Draft::new(&model, &tasks, from, load_bound_s(0.0));
        let mut spent = Spent { looks: 0, limit: looks, late: &late };
        let scale_s = state.scale_s(random);
        let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { model.mean_s });
        let slides = options.max_imbalance.is_none();
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
                let even_s = least.max(model.mean_s + state.sums.communication_s);
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
                state = Draft::new(&model, &tasks, &best.mapping, best.slowest_s);
            }
        }
    };
    let run = |run: Run<'_>, best: &mut Best, random: &mut Random| {
        let mut state = Draft::new(&model, &tasks, run.from, run.bound_s);
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
                state = Draft::new(&model, &tasks, run.from, run.bound_s);
            }
        }
        state.anneal(sweeps, run.heat, random, best, &late);
        if late() {
            return state.claim(best);
        }
        let looks = run.sweeps.saturating_mul(sweep as usize);
        let scale_s = state.scale_s(random);
        let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { model.mean_s });
        state.pass_by_gain(&mut scratch, &mut Spent { looks: 0, limit: looks, late: &late });
        best.offer(&state.at);
    };
    let own_bound_s = |best: &Best| match options.max_imbalance {
        Some(_) => load_bound_s(0.0),
        None => best.slowest_s,
    };
    let polished = |best: &mut Best, random: &mut Random| {
        if has_time_for(8.0) && polish > 0 {
            let (from, bound_s) = (best.mapping.clone(), own_bound_s(best));
            let how = Run { from: &from, bound_s, sweeps: polish, heat: COOL, bounds_first: false };
            run(how, best, random);
        }
    };
    // The best start first: what it gives is there early.
    if first > 0 && has_time_for(8.0) {
        let from = best.mapping.clone();
        // Where imbalance is bounded the best has come from groups already.
        let is_one = best_is_halved || groups_first;
        let its = if is_one { first } else { first / 2 };
        squeeze(&from, best_is_halved, its, &mut best, &mut random);
        if !is_one && all_may_move && !grouped.is_empty() && has_time_for(8.0) {
            squeeze(&grouped, is_halved, first / 2, &mut best, &mut random);
        }
    }
    polished(&mut best, &mut random);
    for (bound, start) in runs {
        if !has_time_for(12.0) {
            break;
        }
        let refined = refine(&Request { stop: &late, ..*request }, load_bound_s(bound));
        best.offer(&refined);
        let (from, heat) = match start {
            Start::Refined | Start::BoundsFirst => (&refined, WARM),
            Start::Grouped => (&grouped, WARM),
            Start::Molten => (&refined, HOT),
        };
        if !from.is_empty() && has_time_for(8.0) {
            let bounds_first = start == Start::BoundsFirst;
            let bound_s = bound_s(&best, bound);
            let how = Run { from, bound_s, sweeps: each, heat, bounds_first };
            run(how, &mut best, &mut random);
        }
    }
    polished(&mut best, &mut random);
    if last > 0 && has_time_for(8.0) {
        let from = best.mapping.clone();
        squeeze(&from, is_halved, last, &mut best, &mut random);
    }
    best.mapping
}

/// What halving the tasks needs to know.
#[derive(Debug, Clone, Copy)]
struct Halving {
    looks: f64,
    /// Hardly anything of what there is.
    is_cheap: bool,
    /// So much of it that it is left out where another mapper has found groups.
    is_dear: bool,
}

/// What `treematch` takes: a level of the machine after the other, whatever the number of cores.
fn treematch_looks(model: &Model<'_>) -> f64 {
    let links = model.graph.len() + 2 * model.graph.pairs();
    TREEMATCH_LOOKS * tree::depth(model.cluster) as f64 * links as f64
}

/// What halving takes, where there is so much: always where it is little; where it is much, as long as the
/// present mapping has not been made with an eye to communication.
fn halving_looks(model: &Model<'_>, looks: f64) -> Option<Halving> {
    let halvings = (model.cluster.cores().len() as f64).log2().ceil();
    let links = model.graph.len() + 2 * model.graph.pairs();
    let takes = HALVING_LOOKS * halvings * links as f64;
    let part = takes / looks;
    let is_cheap = part <= HALVING / 10.0;
    let is_worth = is_cheap || part <= HALVING && is_scattered(model, model.present);
    let is_dear = part > HALVING / 2.0;
    is_worth.then_some(Halving { looks: takes, is_cheap, is_dear })
}

/// Whether a mapping communicates hardly less than one by lot.
fn is_scattered(model: &Model<'_>, mapping: &[CoreIndex]) -> bool {
    let cores = model.cluster.cores().len();
    // Of many cores some, evenly spread, stand for all.
    let some = cores.min(MOST_JUDGED);
    let core = |i: usize| i * cores / some;
    let pairs = (0..some * some).map(|k| model.costs.between(core(k / some), core(k % some)));
    let all_s: f64 = pairs.map(|c| c.of(model.graph.messages(), model.graph.bytes())).sum();
    let by_lot_s = all_s / (some * some) as f64;
    model.receive(mapping, &mut vec![0.0; cores]) > SCATTERED * by_lot_s
}

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

/// The same groups on other cores, so that more tasks are where they are at present: whole nodes
/// change places with nodes of as many cores, and then cores with cores of their node and speed. A
/// core with a task that may not be moved keeps its group, and so does its node.
fn at_home(model: &Model<'_>, mapping: &[CoreIndex]) -> Vec<CoreIndex> {
    let cluster = model.cluster;
    let node = |c: CoreIndex| cluster.cores()[c].node;
    let mut of_node: Vec<Vec<CoreIndex>> = vec![Vec::new(); cluster.nodes().len()];
    for c in 0..cluster.cores().len() {
        of_node[node(c)].push(c);
    }
    let fixed = |keep: &dyn Fn(CoreIndex) -> usize, count: usize| {
        let mut fixed = vec![false; count];
        for (t, _) in model.graph.tasks().iter().enumerate().filter(|(_, t)| !t.movable) {
            fixed[keep(model.present[t])] = true;
        }
        fixed
    };
    // Speeds of a node's cores in order, so that a node is exchanged with its like only.
    let kind = |n: usize| -> Vec<u64> {
        of_node[n].iter().map(|&c| cluster.cores()[c].speed.to_bits()).collect()
    };
    let kinds: Vec<Vec<u64>> = (0..of_node.len()).map(kind).collect();
    let fixed_nodes = fixed(&node, of_node.len());
    let pairs = mapping.iter().zip(model.present).map(|(&c, &p)| (node(c), node(p)));
    let to_node = exchange(pairs, of_node.len(), |a, b| {
        kinds[a] == kinds[b] && !fixed_nodes[a] && !fixed_nodes[b]
    });
    let mut place = vec![0; cluster.cores().len()];
    for cores in &of_node {
        for (i, &c) in cores.iter().enumerate() {
            place[c] = i;
        }
    }
    let nodes_home: Vec<CoreIndex> =
        mapping.iter().map(|&c| of_node[to_node[node(c)]][place[c]]).collect();

    let fixed_cores = fixed(&|c| c, cluster.cores().len());
    let pairs = nodes_home.iter().copied().zip(model.present.iter().copied());
    let to_core = exchange(pairs, cluster.cores().len(), |a, b| {
        let (x, y) = (&cluster.cores()[a], &cluster.cores()[b]);
        x.node == y.node && x.speed == y.speed && !fixed_cores[a] && !fixed_cores[b]
    });
    let movable = model.graph.tasks().iter().map(|t| t.movable);
    let home = nodes_home.iter().zip(movable).zip(model.present);
    home.map(|((&c, movable), &p)| if movable { to_core[c] } else { p }).collect()
}

/// Which of 0..count takes which place, so that many of the pairs (from, to) go from a to the place
/// of a: the most frequent pair first, where `like` allows it. What is left keeps to its like too.
fn exchange(
    pairs: impl Iterator<Item = (usize, usize)>,
    count: usize,
    like: impl Fn(usize, usize) -> bool,
) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for pair in pairs {
        *counts.entry(pair).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().filter(|&((a, b), _)| like(a, b)).collect();
    counts.sort_by_key(|&(pair, n)| (std::cmp::Reverse(n), pair));
    let mut to = vec![NONE; count];
    let mut taken = vec![false; count];
    for ((a, b), _) in counts {
        if to[a] == NONE && !taken[b] {
            (to[a], taken[b]) = (b, true);
        }
    }
    // Likeness is an equivalence, so there is a place left for each; those that are like none, not
    // even themselves, stay.
    for (a, (to, taken)) in to.iter_mut().zip(&mut taken).enumerate() {
        if *to == NONE && !*taken {
            (*to, *taken) = (a, true);
        }
    }
    for (a, to) in to.iter_mut().enumerate().filter(|(_, to)| **to == NONE) {
        if let Some(b) = (0..count).find(|&b| !taken[b] && like(a, b)) {
            (*to, taken[b]) = (b, true);
        }
    }
    to
}

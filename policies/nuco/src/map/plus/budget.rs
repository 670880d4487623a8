//! What making groups takes, and whether it is worth that.

use super::super::tree;
use super::model::Model;
use super::multilevel::halvings;
use evenly_cluster::CoreIndex;

/// The part of what may be looked at that halving may take.
pub(super) const HALVING: f64 = 0.65;
/// What halving looks at of each task and link, in looks.
const HALVING_LOOKS: f64 = 6.0;
/// What the present mapping communicates over what one by lot would, from where on it is not grouped.
const SCATTERED: f64 = 0.6;
/// Cores whose distances are looked at for that, at most.
const MOST_JUDGED: usize = 128;
/// What `treematch` looks at of each task and link at each level of the machine, in looks.
const TREEMATCH_LOOKS: f64 = 16.0;

/// What halving the tasks needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halving {
    pub(super) looks: f64,
    /// Hardly anything of what there is.
    pub(super) is_cheap: bool,
    /// So much of it that it is left out where another mapper has found groups.
    pub(super) is_dear: bool,
}

/// What `treematch` takes: a level of the machine after the other, whatever the number of cores.
pub(super) fn treematch_looks(model: &Model<'_>) -> f64 {
    let links = model.graph.len() + 2 * model.graph.pairs();
    TREEMATCH_LOOKS * tree::depth(model.cluster) as f64 * links as f64
}

/// What halving takes, where there is so much: always where it is little; where it is much, as long as the
/// present mapping has not been made with an eye to communication.
pub(super) fn halving_looks(model: &Model<'_>, looks: f64) -> Option<Halving> {
    let halvings = halvings(model.cluster.cores().len());
    let links = model.graph.len() + 2 * model.graph.pairs();
    let takes = HALVING_LOOKS * halvings * links as f64;
    let part = takes / looks;
    let is_cheap = part <= HALVING / 10.0;
    let is_worth = is_cheap || part <= HALVING && is_scattered(model, model.present);
    let is_dear = part > HALVING / 2.0;
    is_worth.then_some(Halving { looks: takes, is_cheap, is_dear })
}

/// Whether a mapping communicates hardly less than one by lot.
pub(super) fn is_scattered(model: &Model<'_>, mapping: &[CoreIndex]) -> bool {
    let cores = model.cluster.cores().len();
    // Of many cores some, evenly spread, stand for all.
    let some = cores.min(MOST_JUDGED);
    let core = |i: usize| i * cores / some;
    let pairs = (0..some * some).map(|k| model.costs.between(core(k / some), core(k % some)));
    let all_s: f64 = pairs.map(|c| c.of(model.graph.messages(), model.graph.bytes())).sum();
    let by_lot_s = all_s / (some * some) as f64;
    model.receive(mapping, &mut vec![0.0; cores]) > SCATTERED * by_lot_s
}

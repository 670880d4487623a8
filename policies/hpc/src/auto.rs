//! The third heuristic, ours: it tries, measures, and keeps what was best.
//!
//! The paper leaves open which of its heuristics a program wants: uniform is slow after a change,
//! adaptive takes noise for one. This one does not go by a fixed weight of history:
//!
//! - **It takes as many iterations together as it needs** for their mean to be right within
//!   [`EXACT`]: one where they are alike, many where one does not predict the next (SIESTA). How alike
//!   they are is the median of what computing differed by from round to round.
//! - **It decides at once by what was seen since the last change**: a thread that computes (nearly) throughout gets
//!   the highest priority, one that waits a lot the lowest; where that was too much, it goes half way back,
//!   and where nothing of that helps, single steps are tried.
//! - **It knows what it has tried** since the program's behaviour last changed, and what an iteration
//!   took then. It ends with the best of that; where nothing gains [`GAIN`], with the first.
//! - **Noise only adds.** One that computes clearly shorter at the same priorities does another work
//!   now, and that is acted on at once; one that computes longer may have been disturbed, and that is
//!   acted on when it does so again. What was worse is tried twice before it is given up, for the same
//!   reason.
//!
//! Invariant: it compares at most [`MOST_TRIED`] sets of priorities, and settles. It begins anew only when
//! the behaviour changes, or when iterations turn out to differ more than was known.

use super::detector::{NEGLIGIBLE, Round};
use super::heuristics::{Targets, moved};
use super::{Parameter, Parameters, Priority};
use std::collections::{BTreeMap, VecDeque};

/// How exact a mean must be to be compared.
const EXACT: f64 = 0.03;
/// Rounds that are taken together at most.
const MOST_ROUNDS: u32 = 256;
/// A mean of so many times fewer rounds is not compared with one.
const LESS: u32 = 4;
/// What must be gained.
const GAIN: f64 = 0.01;
/// Sets of priorities that are compared at most.
const MOST_TRIED: usize = 8;
/// Rounds by which it is judged how alike they are, and how few of them mean nothing.
const REMEMBERED: usize = 16;
const TOO_FEW: usize = 3;

/// What one did, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usual {
    /// Computing time of an iteration, in seconds.
    computed_s: f64,
    utilisation: f64,
}

impl Usual {
    fn is_idle(&self) -> bool {
        self.utilisation < NEGLIGIBLE
    }
}

/// Rounds that are taken together.
#[derive(Debug, Clone)]
struct Window<T> {
    rounds: u32,
    /// Iterations, and seconds computed and in all.
    sums: BTreeMap<T, (u64, f64, f64)>,
}

impl<T: Copy + Ord> Window<T> {
    fn new() -> Self {
        Self { rounds: 0, sums: BTreeMap::new() }
    }

    fn add(&mut self, round: &Round<T>) {
        self.rounds += 1;
        for (e, v) in round {
            let s = self.sums.entry(*e).or_default();
            s.0 = s.0.saturating_add(v.sum.iterations);
            s.1 += v.sum.computed.as_secs_f64();
            s.2 += v.sum.total_s();
        }
    }

    /// What an iteration took. Over all rounds: in single ones some are ahead of others.
    fn cost_s(&self) -> f64 {
        let one = |s: &(u64, f64, f64)| s.2 / s.0.max(1) as f64;
        self.sums.values().map(one).fold(0.0, f64::max)
    }

    fn usual(&self) -> BTreeMap<T, Usual> {
        let known = self.sums.iter().filter(|(_, s)| s.2 > 0.0);
        let usual = |&(n, computed, total): &(u64, f64, f64)| Usual {
            computed_s: computed / n.max(1) as f64,
            utilisation: computed / total,
        };
        known.map(|(e, s)| (*e, usual(s))).collect()
    }
}

/// A set of priorities that has been tried.
#[derive(Debug, Clone)]
struct Tried<T> {
    priorities: BTreeMap<T, Priority>,
    /// What an iteration took then: on average, or, of single ones, the least, as noise only adds.
    cost_s: f64,
    /// How often it was looked at, and how many rounds were taken together.
    times: u32,
    rounds: u32,
}

#[derive(Debug, Clone)]
enum Mode<T> {
    Searching,
    /// With what was usual then, as soon as that is known.
    Settled(Option<BTreeMap<T, Usual>>),
}

/// What it makes of a round.
pub(super) enum Outcome<T> {
    /// Nothing is to be done; not enough has been seen.
    Gathering,
    /// Nothing is to be done: all is as it was.
    Stable,
    /// These are to be had; and whether that is because the behaviour has changed.
    To(Targets<T>, bool),
}

/// The heuristic `auto`, with what it has tried.
#[derive(Debug, Clone)]
pub(super) struct Auto<T> {
    window: Window<T>,
    /// What each computed in the round before, in an iteration, at the same priorities.
    previous: Option<BTreeMap<T, f64>>,
    /// What that differed by from round to round.
    unrest: VecDeque<f64>,
    tried: Vec<Tried<T>>,
    /// The window before, and the priorities that were had in it.
    last: Option<(BTreeMap<T, Priority>, BTreeMap<T, Usual>)>,
    mode: Mode<T>,
    /// A thread computed longer than usual in the window before.
    doubted: bool,
}

impl<T: Copy + Ord> Auto<T> {
    pub(super) fn new() -> Self {
        Self {
            window: Window::new(),
            previous: None,
            unrest: VecDeque::new(),
            tried: Vec::new(),
            last: None,
            mode: Mode::Searching,
            doubted: false,
        }
    }

    /// A round is over.
    pub(super) fn round(&mut self, round: &Round<T>, p: &Parameters) -> Outcome<T> {
        self.note_unrest(round);
        self.window.add(round);
        if self.window.rounds < self.rounds_needed() {
            return match self.mode {
                Mode::Searching => Outcome::Gathering,
                Mode::Settled(_) => Outcome::Stable,
            };
        }
        let window = std::mem::replace(&mut self.window, Window::new());
        let usual = window.usual();
        if usual.is_empty() {
            return Outcome::Gathering;
        }
        let cost_s = window.cost_s();
        let priorities: BTreeMap<T, Priority> =
            round.iter().map(|(e, v)| (*e, v.priority)).collect();
        let last = self.last.replace((priorities.clone(), usual.clone()));
        let part = p.get(Parameter::Change) / 100.0;

        let mut changed = false;
        match &mut self.mode {
            Mode::Settled(profile @ None) => {
                *profile = Some(usual);
                return Outcome::Stable;
            }
            Mode::Settled(Some(profile)) => {
                let (fell, rose) = differs(profile, &usual, part);
                let are_same = profile.keys().eq(usual.keys());
                if are_same && !fell && !(rose && self.doubted) {
                    self.doubted = rose;
                    return Outcome::Stable;
                }
                changed = true;
            }
            Mode::Searching => {
                if last.is_some_and(|(before, was)| {
                    is_other_work(&before, &was, &priorities, &usual, part)
                }) {
                    changed = true;
                }
            }
        }
        if changed {
            // What the last round differed by was no noise.
            self.unrest.pop_back();
            self.tried.clear();
            self.mode = Mode::Searching;
            self.doubted = false;
        }
        self.record(&priorities, cost_s, window.rounds);
        let next = self.choose(&priorities, usual, window.rounds > 1, p);
        match next {
            None if matches!(self.mode, Mode::Settled(_)) => Outcome::Stable,
            None => Outcome::Gathering,
            Some(to) => {
                self.previous = None;
                Outcome::To(to, changed)
            }
        }
    }

    fn note_unrest(&mut self, round: &Round<T>) {
        let now: BTreeMap<T, f64> = (round.iter())
            .filter(|(_, v)| v.sum.iterations > 0 && v.takes_part())
            .map(|(e, v)| (*e, v.sum.computed.as_secs_f64() / v.sum.iterations as f64))
            .collect();
        if let Some(before) = &self.previous {
            let differ = now.iter().filter_map(|(e, now)| {
                let was = *before.get(e)?;
                let most = was.max(*now);
                (most > 0.0).then(|| (was - now).abs() / most)
            });
            if let Some(mean) = super::detector::mean(differ) {
                if self.unrest.len() == REMEMBERED {
                    self.unrest.pop_front();
                }
                self.unrest.push_back(mean);
            }
        }
        self.previous = Some(now);
    }

    fn rounds_needed(&self) -> u32 {
        if self.unrest.len() < TOO_FEW {
            return 1;
        }
        let mut all: Vec<f64> = self.unrest.iter().copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        // The lower of two in the middle: single disturbances are no unrest.
        let unrest = all[(all.len() - 1) / 2];
        ((unrest / EXACT).powi(2).ceil() as u32).clamp(1, MOST_ROUNDS)
    }

    fn record(&mut self, priorities: &BTreeMap<T, Priority>, cost_s: f64, rounds: u32) {
        // What was seen while it was not known how much iterations differ means nothing.
        self.tried.retain(|t| t.rounds.saturating_mul(LESS) >= rounds);
        let new = || Tried { priorities: priorities.clone(), cost_s, times: 1, rounds };
        match self.tried.iter_mut().find(|t| t.priorities == *priorities) {
            Some(t) if rounds > 1 => *t = Tried { times: t.times + 1, ..new() },
            Some(t) => {
                t.cost_s = t.cost_s.min(cost_s);
                t.times += 1;
            }
            None => self.tried.push(new()),
        }
    }

    /// What is to be tried, or kept, next; none where that is what is.
    fn choose(
        &mut self,
        here: &BTreeMap<T, Priority>,
        usual: BTreeMap<T, Usual>,
        averaged: bool,
        p: &Parameters,
    ) -> Option<Targets<T>> {
        let untried = |to: &Targets<T>| self.tried.iter().all(|t| t.priorities != *to);
        let least = self.tried.iter().map(|t| t.cost_s).fold(f64::INFINITY, f64::min);
        // The first that is as good as the best: what gains nothing is not kept.
        let good = |t: &&Tried<T>| t.cost_s * (1.0 - GAIN) <= least;
        let best = self.tried.iter().find(good).map(|t| t.priorities.clone())?;
        let full = self.tried.len() >= MOST_TRIED;
        let this = self.tried.iter().find(|t| t.priorities == *here)?;
        if best != *here {
            let is_worse = this.cost_s * (1.0 - GAIN) > least;
            if is_worse && this.times < 2 && !averaged {
                return None;
            }
            let half = half_way(&best, here);
            if !full && untried(&half) {
                return Some(half);
            }
        } else if !full && !is_balanced(&usual, p) {
            let candidates = [leap(here, &usual, p), step(here, &usual, p)];
            if let Some(to) = candidates.into_iter().find(untried) {
                return Some(to);
            }
        }
        let stays = best == *here;
        self.mode = Mode::Settled(stays.then_some(usual));
        self.doubted = false;
        (!stays).then_some(best)
    }
}

/// Whether a thread computes clearly shorter, and whether one longer; one that hardly computes does not
/// count.
fn differs<T: Ord>(was: &BTreeMap<T, Usual>, now: &BTreeMap<T, Usual>, part: f64) -> (bool, bool) {
    let pairs = || {
        let pair = |(e, n): (&T, &Usual)| Some((*was.get(e)?, *n));
        let counts = |(was, now): &(Usual, Usual)| !(was.is_idle() && now.is_idle());
        now.iter().filter_map(pair).filter(counts).map(|(w, n)| (w.computed_s, n.computed_s))
    };
    let fell = pairs().any(|(was, now)| now < was * (1.0 - part));
    let rose = pairs().any(|(was, now)| now > was * (1.0 + part));
    (fell, rose)
}

/// Whether what changed cannot come from the priorities: one that has a higher one than before, beside
/// the others, does not compute longer for that, and one with a lower one not shorter.
fn is_other_work<T: Copy + Ord>(
    before: &BTreeMap<T, Priority>,
    was: &BTreeMap<T, Usual>,
    here: &BTreeMap<T, Priority>,
    now: &BTreeMap<T, Usual>,
    part: f64,
) -> bool {
    if before == here {
        return differs(was, now, part).0;
    }
    let shift = |e: &T| Some(i32::from(here.get(e)?.0) - i32::from(before.get(e)?.0));
    let shifts = || here.keys().filter_map(shift);
    let (sum, count) = (shifts().sum::<i32>(), shifts().count() as i32);
    now.iter().any(|(e, n)| {
        let (Some(shift), Some(w)) = (shift(e), was.get(e)) else { return false };
        // Above or below the mean shift, in whole numbers.
        let beside = shift * count - sum;
        if n.is_idle() && w.is_idle() {
            return false;
        }
        beside > 0 && n.computed_s > w.computed_s * (1.0 + part)
            || beside < 0 && n.computed_s < w.computed_s * (1.0 - part)
    })
}

/// Utilisation beside that of the one that waits least; none of one that hardly computes.
fn beside_the_busiest<T: Ord>(usual: &BTreeMap<T, Usual>) -> impl Fn(&T) -> Option<f64> + '_ {
    let most = usual.values().map(|u| u.utilisation).fold(0.0, f64::max);
    move |e| {
        let own = usual.get(e).filter(|u| !u.is_idle())?;
        Some(own.utilisation / most)
    }
}

fn is_balanced<T: Copy + Ord>(usual: &BTreeMap<T, Usual>, p: &Parameters) -> bool {
    let part = beside_the_busiest(usual);
    usual.keys().filter_map(part).all(|u| u >= p.high())
}

/// Each to where its utilisation belongs, at once.
fn leap<T: Copy + Ord>(
    here: &BTreeMap<T, Priority>,
    usual: &BTreeMap<T, Usual>,
    p: &Parameters,
) -> Targets<T> {
    towards(here, usual, p, i32::from(u8::MAX))
}

/// Each one level towards where its utilisation belongs.
fn step<T: Copy + Ord>(
    here: &BTreeMap<T, Priority>,
    usual: &BTreeMap<T, Usual>,
    p: &Parameters,
) -> Targets<T> {
    towards(here, usual, p, 1)
}

fn towards<T: Copy + Ord>(
    here: &BTreeMap<T, Priority>,
    usual: &BTreeMap<T, Usual>,
    p: &Parameters,
    levels: i32,
) -> Targets<T> {
    let part = beside_the_busiest(usual);
    let by = |e: &T| match part(e) {
        Some(u) if u >= p.high() => levels,
        Some(u) if u < p.low() => -levels,
        _ => 0,
    };
    here.iter().map(|(e, from)| (*e, moved(*from, by(e), p))).collect()
}

/// Between two, rounded towards the first.
fn half_way<T: Copy + Ord>(
    best: &BTreeMap<T, Priority>,
    other: &BTreeMap<T, Priority>,
) -> Targets<T> {
    let half = |(e, b): (&T, &Priority)| {
        let o = other.get(e).unwrap_or(b);
        let to = i32::from(b.0) + (i32::from(o.0) - i32::from(b.0)) / 2;
        (*e, Priority(to as u8))
    };
    best.iter().map(half).collect()
}

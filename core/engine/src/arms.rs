//! The arms of a policy: others that take its place where they may be better, and are measured to be.
//!
//! Which may be is known by what can be seen of the program; whether it is, by how often its threads meet per second
//! ([`Trial`]), with the arm and without in turns. Without it the usual policy moves threads, or the kernel does alone where that
//! was found to be no slower ([`crate::lead`], [`crate::guard`]).
//!
//! ```text
//!   usual  --- threads have unequal work and share CPUs --->  compared: arm, usual, usual, arm ...
//!     ^                                                             |
//!     +--------------------- it is not better ----------------------+---> the arm acts, compared again now and then
//! ```
//!
//! An arm that gives threads parts of CPUs is tried where their work is unequal: where all have the same to do, parts gain
//! nothing. It begins, as what can be seen is right in most cases; and it learns for some epochs before it is measured.

use crate::agents::{Epochs, Work};
use crate::guard::Verdict;
use crate::managed::ManagedThread;
use crate::meetings::Meetings;
use crate::promise::{Promise, Seen};
use crate::trial::Trial;
use crate::unequal::Unequal;
use crate::{ApplyError, Untried};
use evenly_model::{CpuId, CpuView, Nanos};
use evenly_policy::{Policy, PolicyInfo};

/// Epochs that a policy needs to know what threads compute, and how long it takes at least; longer where it first has to see that
/// there are no barriers to go by.
const LEARNS: u32 = 6;
const LEARNING: Nanos = Nanos::from_millis(300);
const LEARNING_BY_WAITS: Nanos = Nanos::from_millis(3_000);
/// For how long threads may not have met before an arm is left.
const STANDSTILL: Nanos = Nanos::from_millis(4_000);
/// Where epochs are longer, it takes seconds until it is known what moves within phases gain: arms do not wait for that.
const SHORT_EPOCH: Nanos = Nanos::from_millis(10);

/// A policy, and what is tried in its place.
pub(crate) struct Arms {
    usual: &'static PolicyInfo,
    policy: Box<dyn Policy>,
    others: Vec<Arm>,
    /// Which of the others acts, and which is compared with the usual one.
    acting: Option<usize>,
    compared: Option<usize>,
    unequal: Unequal,
    meetings: Meetings,
    /// Threads or CPUs have changed since epochs were known last.
    disturbed: bool,
    /// CPUs at the last point, and whether threads could leave them.
    place: (Vec<CpuId>, bool),
    /// Threads have been refused their parts of CPUs, so that these cannot be given.
    refused: Option<Untried>,
    /// When the last point was; for how long arms have acted, and of how long.
    at: Option<Nanos>,
    acted: Nanos,
    all: Nanos,
    /// Which one was found to be better the last time, and what it is worth.
    found: Option<(&'static str, Verdict)>,
}

struct Arm {
    info: &'static PolicyInfo,
    policy: Box<dyn Policy>,
    /// None before there was a reason to try it.
    trial: Option<Trial>,
}

impl Arms {
    pub(crate) fn new(usual: &'static PolicyInfo) -> Self {
        let arm = |info: &'static PolicyInfo| Arm { info, policy: (info.make)(), trial: None };
        Self {
            usual,
            policy: (usual.make)(),
            others: usual.arms.iter().map(arm).collect(),
            acting: None,
            compared: None,
            unequal: Unequal::default(),
            meetings: Meetings::default(),
            disturbed: false,
            place: (Vec::new(), false),
            refused: None,
            at: None,
            acted: Nanos::ZERO,
            all: Nanos::ZERO,
            found: None,
        }
    }

    /// The policy that moves threads now.
    pub(crate) fn acting(&self) -> &'static PolicyInfo {
        self.acting.map_or(self.usual, |arm| self.others[arm].info)
    }

    pub(crate) fn policy(&mut self) -> &mut dyn Policy {
        match self.acting {
            Some(arm) => &mut *self.others[arm].policy,
            None => &mut *self.policy,
        }
    }

    /// Whether another than the usual policy acts.
    pub(crate) fn act(&self) -> bool {
        self.acting.is_some()
    }

    /// Whether an arm acts, or is compared.
    pub(crate) fn compares(&self) -> bool {
        self.compared.is_some()
    }

    /// Threads cannot be given parts of CPUs: arms that do only that are not tried any more.
    pub(crate) fn cannot_weigh(&mut self, why: &ApplyError) {
        let policy = self.acting().name;
        self.refused.get_or_insert_with(|| Untried { policy, why: why.to_string() });
    }

    /// The one that could not be tried. One that was chosen was, and a thread that is refused to it later is told apart.
    pub(crate) fn untried(&self) -> Option<Untried> {
        self.refused.clone().filter(|_| self.choice().is_none())
    }

    /// Whether nothing is measured.
    pub(crate) fn is_settled(&self) -> bool {
        let trial = self.compared.and_then(|arm| self.others[arm].trial.as_ref());
        trial.is_none_or(Trial::is_decided)
    }

    /// The time to the next point; see [`crate::Balancer::until_next_point`].
    pub(crate) fn period(&self, usual: Nanos) -> Nanos {
        let trial = self.compared.and_then(|arm| self.others[arm].trial.as_ref());
        trial.map_or(usual, |trial| trial.period(usual))
    }

    /// A balancing point. It is known what the usual policy gains, if it `is_answered`; and threads report that their work is
    /// `equal`, if that says so. Returns whether another acts from now on.
    pub(crate) fn point(
        &mut self,
        now: Nanos,
        threads: &[ManagedThread],
        (cpus, open): (&[CpuView], bool),
        (is_answered, equal): (bool, &dyn Fn() -> bool),
    ) -> bool {
        self.count_time(now);
        self.disturbed |= self.look_at_place(cpus, open);
        let epochs = self.meetings.point(now, threads);
        self.disturbed |= self.unequal.point(now, epochs, threads);
        let before = self.acting;
        let unequal = self.unequal.is_so();
        let seen = Seen { threads: threads.len(), cpus: cpus.len(), unequal, epoch: None };
        // Of threads that still meet, each arm asks how often.
        let possible = seen.promise() == Promise::Unmeasured
            && now - self.meetings.met_at() < STANDSTILL
            && self.refused.is_none();
        (self.acting, self.compared) = (None, None);
        for (i, arm) in self.others.iter_mut().enumerate() {
            if !possible || !arm.info.gives_weights() {
                arm.trial = None;
                continue;
            }
            let Some(trial) = &mut arm.trial else {
                let window = self.unequal.window();
                let begun = window.and_then(|window| begin(seen, window, now, is_answered));
                arm.trial = begun.filter(|_| !equal());
                if arm.trial.is_some() {
                    self.disturbed = false;
                    (self.acting, self.compared) = (Some(i), Some(i));
                    break;
                }
                continue;
            };
            if let Some(epochs) = epochs {
                trial.point(now, epochs, std::mem::take(&mut self.disturbed));
            }
            match trial.answer() {
                Some(true) => self.found = trial.verdict().map(|v| (arm.info.name, v)),
                Some(false) => self.found = None,
                None => {}
            }
            let acts = trial.work() == Work::Move;
            if acts || !trial.is_decided() {
                (self.acting, self.compared) = (acts.then_some(i), Some(i));
                break;
            }
        }
        let changed = self.acting != before;
        if changed {
            // What comes is not of the same kind as what was.
            self.unequal.begin_window_anew();
        }
        changed
    }

    fn count_time(&mut self, now: Nanos) {
        let elapsed = self.at.replace(now).map_or(Nanos::ZERO, |at| now - at);
        self.all += elapsed;
        if self.acting.is_some() {
            self.acted += elapsed;
        }
    }

    /// Whether CPUs are others than at the last point.
    fn look_at_place(&mut self, cpus: &[CpuView], open: bool) -> bool {
        let (known, was_open) = &self.place;
        if known.iter().copied().eq(cpus.iter().map(|c| c.id)) && *was_open == open {
            return false;
        }
        self.place = (cpus.iter().map(|c| c.id).collect(), open);
        true
    }

    /// Which one was found to be better, if it acted for most of the time.
    pub(crate) fn choice(&self) -> Option<(&'static str, Verdict)> {
        self.found.filter(|_| self.acted.0.saturating_mul(2) > self.all.0)
    }
}

/// The comparison of an arm that is tried from now on with a stretch without it; None where epochs are too long for that, or another
/// answer is there soon.
fn begin(seen: Seen, window: [Epochs; 2], now: Nanos, is_answered: bool) -> Option<Trial> {
    let [first, last] = window;
    let epochs = u64::from(last.count.wrapping_sub(first.count)).max(1);
    let epoch = Nanos((last.at - first.at).0 / epochs);
    let promise = Seen { epoch: Some(epoch), ..seen }.promise();
    if promise != Promise::Gain || (epoch < SHORT_EPOCH && !is_answered) {
        return None;
    }
    let learning = if Meetings::are_waits(last) { LEARNING_BY_WAITS } else { LEARNING };
    Some(Trial::of_learner((LEARNS, learning), window, now))
}

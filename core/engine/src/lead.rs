//! Who moves the threads of a domain with agents that work between two barriers: they, while the threads meet often
//! enough, and the policy at other times.

use crate::agents::{Agents, Epochs, Rhythm, Work};
use crate::guard::Verdict;
use crate::trial::Trial;
use evenly_model::Nanos;

/// For how long epochs are counted to see whether threads meet often enough.
const WINDOW: Nanos = Nanos::from_millis(200);
/// Epochs in that time from which on they do, and below which they no longer do: phases of 50 and 100 ms. In longer ones
/// there is time to balance by progress, which needs no prediction.
const OFTEN: u32 = 4;
const STILL_OFTEN: u32 = 2;

/// Whose turn it is where a policy has other arms ([`crate::arms`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// That of those who are asked here, as always where there are no others.
    Usual,
    /// Theirs, to be compared with: they go on as they are.
    Compared,
    /// That of another arm.
    Others,
}

/// Who moves the threads of a domain: its agents or its policy.
#[derive(Debug)]
pub(crate) struct Lead {
    /// Agents move them; else the policy does.
    pub(crate) leads: bool,
    pub(crate) turn: Turn,
    /// It was the turn of others, and what was counted before is of long ago.
    resumes: bool,
    /// CPUs have changed since the last point.
    other_cpus: bool,
    /// Whether it is looked at what they gain.
    guarded: bool,
    /// When it began, and the epochs then.
    window: (Nanos, Epochs),
    /// What their moves are worth; None where they lead without epochs.
    trial: Option<Trial>,
}

impl Lead {
    /// Of a domain with these agents, if any.
    pub(crate) fn new(agents: Option<&dyn Agents>, guarded: bool) -> Self {
        let rhythm = agents.map(Agents::rhythm);
        Self {
            leads: rhythm == Some(Rhythm::NotNeeded),
            turn: Turn::Usual,
            resumes: false,
            other_cpus: false,
            guarded,
            window: (Nanos::ZERO, Epochs::default()),
            trial: rhythm.filter(|r| *r != Rhythm::NotNeeded).map(|_| Trial::new()),
        }
    }

    /// A balancing point. Threads or CPUs have changed since the last one if `disturbed`. Whether the lead has changed.
    pub(crate) fn point(&mut self, now: Nanos, rhythm: Rhythm, disturbed: bool) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        let before = self.leads;
        if std::mem::take(&mut self.resumes) {
            trial.interrupt(now);
            if let Rhythm::Epochs(epochs) = rhythm {
                self.window = (now, epochs);
            }
        }
        match rhythm {
            // Nobody counts.
            _ if before && trial.work() == Work::Rest => {}
            Rhythm::Epochs(epochs) => self.leads = meet(&mut self.window, now, epochs, before),
            Rhythm::Unknown | Rhythm::NotNeeded => self.leads = false,
        }
        let changed = before != self.leads;
        if self.leads && self.guarded {
            let epochs = if let Rhythm::Epochs(e) = rhythm { e } else { Epochs::default() };
            let disturbed = std::mem::take(&mut self.other_cpus) || disturbed || changed;
            trial.point(now, epochs, disturbed);
        }
        changed
    }

    /// CPUs have changed: what moves gained says little of these.
    pub(crate) fn cpus_changed(&mut self) {
        self.other_cpus = true;
    }

    /// Whose turn it is from now on. Whether they go on to look at what they gain, or no longer do.
    pub(crate) fn set_turn(&mut self, turn: Turn) -> bool {
        let before = std::mem::replace(&mut self.turn, turn);
        self.resumes |= before != Turn::Usual;
        (before == Turn::Usual) != (turn == Turn::Usual)
    }

    /// Agents move the threads; else the policy does.
    pub(crate) fn by_agents(&self) -> bool {
        self.leads && self.turn != Turn::Others
    }

    /// What agents are to do, where they lead by epochs.
    pub(crate) fn work(&self) -> Option<Work> {
        let trial = self.trial.as_ref().filter(|_| self.by_agents())?;
        Some(match self.turn {
            _ if !self.guarded => Work::Move,
            Turn::Usual => trial.work(),
            _ if trial.answer() == Some(false) => Work::Rest,
            _ => Work::Move,
        })
    }

    /// The time to the next point; see [`crate::Balancer::until_next_point`].
    pub(crate) fn period(&self, usual: Nanos) -> Nanos {
        let trial = self.trial.as_ref().filter(|_| self.leads && self.guarded);
        trial.map_or(usual, |t| t.period(usual))
    }

    /// What their moves have been found to be worth.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.trial.as_ref()?.verdict()
    }

    /// Whether it is known if their moves gain anything, or they do not lead.
    pub(crate) fn is_answered(&self) -> bool {
        !self.leads || self.trial.as_ref().is_some_and(|t| t.answer().is_some())
    }

    /// Whether they would rest if it were their turn.
    pub(crate) fn would_rest(&self) -> bool {
        self.leads && self.trial.as_ref().is_some_and(|t| t.answer() == Some(false))
    }

    /// Whether they lead, and were found to gain nothing.
    pub(crate) fn rests(&self) -> bool {
        self.by_agents() && self.would_rest()
    }
}

/// Whether threads meet often enough. `window` is when it began, and how often they had met then.
fn meet(window: &mut (Nanos, Epochs), now: Nanos, epochs: Epochs, before: bool) -> bool {
    if epochs.of != window.1.of {
        *window = (now, epochs);
        return before;
    }
    let met = epochs.count.wrapping_sub(window.1.count);
    // What is so before the window is over need not be waited for.
    let begins = !before && met >= OFTEN;
    if now - window.0 < WINDOW && !begins {
        return before;
    }
    *window = (now, epochs);
    // A count of long ago says nothing: the first window only begins.
    if now - epochs.at > WINDOW {
        return false;
    }
    met >= if before { STILL_OFTEN } else { OFTEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(14);

    /// Points while threads meet every `phase`; who leads in the end.
    fn after(
        lead: &mut Lead,
        from: Nanos,
        points: u64,
        phase: Option<Nanos>,
        count: &mut u32,
    ) -> Nanos {
        let (mut now, mut at) = (from, from);
        for _ in 0..points {
            now += PERIOD;
            while let Some(phase) = phase.filter(|phase| at + *phase <= now) {
                at += phase;
                *count = count.wrapping_add(1);
            }
            let epochs = Epochs { count: *count, at, of: 0, worth: 0 };
            lead.point(now, Rhythm::Epochs(epochs), false);
        }
        now
    }

    fn of_phases() -> Lead {
        Lead {
            leads: false,
            turn: Turn::Usual,
            resumes: false,
            other_cpus: false,
            guarded: false,
            window: (Nanos::ZERO, Epochs::default()),
            trial: Some(Trial::new()),
        }
    }

    /// Would catch: moves at moments within phases that are not predicted, and a policy that moves threads beside them.
    #[test]
    fn agents_lead_while_threads_meet_often() {
        let (mut lead, mut count) = (of_phases(), u32::MAX - 3);
        let now =
            after(&mut lead, Nanos::from_millis(5_000), 3, Some(Nanos::from_millis(1)), &mut count);
        assert!(lead.by_agents() && lead.work() == Some(Work::Move));
        let now = after(&mut lead, now, 40, Some(Nanos::from_millis(70)), &mut count);
        assert!(lead.by_agents());
        let now = after(&mut lead, now, 40, Some(Nanos::from_millis(150)), &mut count);
        assert!(!lead.by_agents() && lead.work().is_none());
        // Not back at once.
        let now = after(&mut lead, now, 40, Some(Nanos::from_millis(70)), &mut count);
        assert!(!lead.by_agents());
        let now = after(&mut lead, now, 40, Some(Nanos::from_millis(30)), &mut count);
        assert!(lead.by_agents());
        after(&mut lead, now, 40, None, &mut count);
        assert!(!lead.by_agents());
    }

    #[test]
    fn no_barrier_no_lead() {
        let mut lead = of_phases();
        for i in 0..50 {
            assert!(!lead.point(Nanos(PERIOD.0 * i), Rhythm::Unknown, false));
        }
        assert!(!lead.by_agents());
    }

    /// Would catch: a lead that is lost because nobody counts while what does not pay rests.
    #[test]
    fn who_rests_keeps_the_lead() {
        let (mut lead, mut count) = (Lead { guarded: true, ..of_phases() }, 0);
        let mut now = after(&mut lead, Nanos::ZERO, 3, Some(Nanos::from_micros(100)), &mut count);
        // It is slower with moves.
        while lead.work() != Some(Work::Rest) {
            let phase = if lead.work() == Some(Work::Move) { 120 } else { 100 };
            now = after(&mut lead, now, 1, Some(Nanos::from_micros(phase)), &mut count);
            assert!(now < Nanos::from_millis(1_000));
        }
        after(&mut lead, now, 20, None, &mut count);
        assert!(lead.by_agents() && lead.rests() && lead.verdict().is_some());
    }
}

//! Parts of CPUs that threads are given, by weights.

use crate::actuate::{Action, Outcome, perform};
use crate::machine::Failure;
use crate::managed::ManagedThread;
use crate::notes::Notes;
use crate::{ApplyError, Machine, Observer, Wanted};
use evenly_model::{Nanos, Plan, Snapshot, ThreadId, counted};

/// What was given, and when.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// They are to be given again, because a pause has ended.
    pub(crate) anew: bool,
    /// How often they were given.
    times: u64,
    /// The least and the most that was given last, and how.
    range: Option<(f64, f64)>,
    by: Option<&'static str>,
    /// One that was refused since the last point, for [`crate::verify`].
    pub(crate) refused: Option<Failure>,
    /// When they were given last.
    given_at: Nanos,
}

/// Threads have again what they had when they were admitted.
pub(crate) fn take_back(threads: &mut [ManagedThread], actions: &mut Vec<Action>) {
    for t in threads {
        if t.weight.given.take().is_some() {
            actions.push(Action::Unweigh { process: t.meta.pid, thread: t.meta.id });
        }
    }
}

impl Weights {
    /// How often they were given.
    pub(crate) fn times(&self) -> u64 {
        self.times
    }

    /// For the report, where any were given.
    pub(crate) fn summary(&self) -> Option<String> {
        let (least, most) = self.range?;
        Some(format!(
            "shares of threads that share a CPU were set {} ({}), at the end from {least:.2} to \
             {most:.2} of an even share",
            counted(self.times, "time"),
            self.by.unwrap_or("by weights")
        ))
    }

    /// Gives threads the weights that are planned, or those that they had before a pause. What is planned in
    /// a pause is given when it is over.
    pub(crate) fn give(
        &mut self,
        machine: &mut dyn Machine,
        (now, paused): (Nanos, bool),
        plan: &Plan,
        (threads, snapshot): (&mut [ManagedThread], &Snapshot),
        notes: &mut Notes,
        observers: &mut [Box<dyn Observer>],
    ) {
        for w in &plan.weights {
            if let Some(t) = threads.get_mut(w.thread) {
                t.weight.wanted = Some(w.weight);
            }
        }
        self.anew |= !plan.weights.is_empty();
        let ends = machine.weighs_for().is_some_and(|l| now - self.given_at >= Nanos(l.0 / 2))
            && threads.iter().any(|t| t.weight.given.is_some());
        if paused || !(self.anew || ends) {
            return;
        }
        let are_others = std::mem::take(&mut self.anew);
        self.given_at = now;
        let wanted: Vec<Wanted> = threads
            .iter()
            .enumerate()
            .filter_map(|(i, t)| {
                let (process, thread, weight) = (t.meta.pid, t.meta.id, t.weight.wanted?);
                let view = snapshot.threads.get(i).filter(|v| v.id == thread);
                Some(Wanted { process, thread, weight, turns: view.and_then(|v| v.turns) })
            })
            .collect();
        let Ok(Outcome::Weighed(given)) = perform(machine, &Action::Weigh { wanted }) else {
            return;
        };
        self.by = machine.weighs_by();
        for (t, given) in threads.iter_mut().filter(|t| t.weight.wanted.is_some()).zip(given) {
            match given {
                Ok(weight) => t.weight.given = Some(weight),
                Err(ApplyError::Gone) => {}
                Err(error) => self.refused = Some(Failure { thread: t.meta.id, error }),
            }
        }
        let of = |t: &ManagedThread| Some((t.meta.id, t.weight.given?));
        let weights: Vec<(ThreadId, f64)> = threads.iter().filter_map(of).collect();
        if weights.is_empty() || !are_others {
            return;
        }
        self.times += 1;
        let least = weights.iter().map(|w| w.1).fold(f64::INFINITY, f64::min);
        self.range = Some((least, weights.iter().map(|w| w.1).fold(0.0, f64::max)));
        if observers.is_empty() {
            return;
        }
        let list: Vec<String> =
            weights.iter().map(|(id, weight)| format!("{id} {weight:.2}")).collect();
        notes.tell(now, &format!("shares of CPUs, by thread: {}", list.join(", ")), observers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, id, threads};
    use evenly_model::Weight;

    struct Case {
        machine: Scripted,
        weights: Weights,
        notes: Notes,
        threads: Vec<ManagedThread>,
        snapshot: Snapshot,
    }

    impl Case {
        fn new() -> Self {
            let (members, snapshot) = threads(&[0, 0], 2);
            Self {
                machine: Scripted::default(),
                weights: Weights::default(),
                notes: Notes::new(Nanos::ZERO),
                threads: members.threads,
                snapshot,
            }
        }

        /// What the machine is asked for at a point with these weights in its plan.
        fn give(&mut self, weights: &[f64], paused: bool) -> Vec<String> {
            let each = weights.iter().enumerate();
            let weights = each.map(|(thread, &weight)| Weight { thread, weight }).collect();
            let plan = Plan { weights, ..Plan::default() };
            let of = (&mut self.threads[..], &self.snapshot);
            let when = (Nanos::ZERO, paused);
            self.weights.give(&mut self.machine, when, &plan, of, &mut self.notes, &mut []);
            std::mem::take(&mut self.machine.calls)
        }
    }

    #[test]
    fn what_is_planned_in_a_pause_is_given_when_it_is_over() {
        let mut case = Case::new();
        assert!(case.give(&[1.5, 0.5], true).is_empty());
        assert_eq!(case.give(&[], false), ["0 weighs 1.5", "1 weighs 0.5"]);
        assert!(case.give(&[], false).is_empty());
        let text = case.weights.summary().unwrap();
        assert!(text.contains(" 1 time (") && text.contains("0.50 to 1.50"), "{text}");
        let mut actions = Vec::new();
        take_back(&mut case.threads, &mut actions);
        assert_eq!(actions.len(), 2);
        take_back(&mut case.threads, &mut actions);
        assert_eq!(actions.len(), 2, "they have nothing any more");
    }

    #[test]
    fn a_weight_that_is_refused_is_left_to_verify() {
        let mut case = Case::new();
        let error = ApplyError::Refused(String::from("no"));
        case.machine.fails = vec![(id(1), error.clone())];
        case.give(&[1.4, 0.6], false);
        assert_eq!(case.weights.refused, Some(Failure { thread: id(1), error }));
        assert!(case.notes.kept().is_empty());
        let given: Vec<_> = case.threads.iter().map(|t| t.weight.given).collect();
        assert_eq!(given, [Some(1.4), None]);
    }
}

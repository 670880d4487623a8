//! Carries out what a point has decided: the only place that changes anything of a machine.
//!
//! Whoever wants something changed (membership, pauses, domains, policies, agents) says so with an
//! [`Action`]. Moves are ordered so that every CPU stays in use on the way ([`crate::handover`], promise
//! P2). What fails is not dealt with here: it is handed to the next point ([`crate::verify`]).
//!
//! Invariant: no other module calls an [`Actuator`]; a test reads the sources.

use crate::handover::{Act, Handover};
use crate::machine::Failure;
use crate::managed::ManagedThread;
use crate::membership::Membership;
use crate::{Actuator, ApplyError, MemoryMoved, MoveRecord, Wanted};
use evenly_model::{CpuId, CpuSet, Pid, Plan, Snapshot, ThreadId};
use std::sync::Arc;

/// Something that is to be changed: a mask, shares of CPUs, the place of memory.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "fields are what their names say")]
pub enum Action {
    /// It is pinned to a CPU.
    Pin { thread: ThreadId, cpu: CpuId },
    /// It is put on a CPU, and may leave it right after, within these.
    Nudge { thread: ThreadId, cpu: CpuId, within: Arc<CpuSet> },
    /// It may run on these.
    Confine { thread: ThreadId, within: Arc<CpuSet> },
    /// It has its original mask again.
    Restore { thread: ThreadId },
    /// It has its original mask again, and is the next balancer's.
    Release { thread: ThreadId },
    /// These have other parts of the CPUs that they share: one action, as only ratios between them matter.
    Weigh { wanted: Vec<Wanted> },
    /// It has again the part of a CPU that it had when it was admitted.
    Unweigh { process: Pid, thread: ThreadId },
    /// Memory of a process begins to move between two NUMA nodes, by their numbers on the system.
    MoveMemory { process: Pid, from: u32, to: u32 },
    /// From now on the scheduler looks often who is to run on these CPUs, and on no others.
    Beat { cpus: CpuSet },
}

/// What an action has led to, where it did not fail as a whole.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The machine is as the action wants it.
    Done,
    /// What each thread of an [`Action::Weigh`] has now, in order, relative to what it had when it was
    /// admitted; an error for each that has what it had before.
    Weighed(Vec<Result<f64, ApplyError>>),
}

/// Performs one action.
///
/// # Errors
/// [`ApplyError`], as the call of the [`Actuator`] has it.
pub fn perform(machine: &mut dyn Actuator, action: &Action) -> Result<Outcome, ApplyError> {
    let refused = |what: &str| Err(ApplyError::Refused(String::from(what)));
    match action {
        Action::Pin { thread, cpu } => machine.place(*thread, *cpu, None)?,
        Action::Nudge { thread, cpu, within } => machine.place(*thread, *cpu, Some(within))?,
        Action::Confine { thread, within } => machine.confine(*thread, within)?,
        Action::Restore { thread } => machine.restore(*thread),
        Action::Release { thread } => {
            if !machine.release(*thread) {
                return refused("the thread cannot be given to another balancer");
            }
        }
        Action::Weigh { wanted } => return Ok(Outcome::Weighed(machine.weigh(wanted))),
        Action::Unweigh { process, thread } => machine.unweigh(*process, *thread),
        Action::MoveMemory { process, from, to } => {
            if !machine.move_memory(*process, *from, *to) {
                return refused("this memory cannot be moved");
            }
        }
        Action::Beat { cpus } => machine.beat(cpus),
    }
    Ok(Outcome::Done)
}

/// Does all of these, in order. What cannot be done now is done when the thread is placed, or balancing ends.
pub(crate) fn perform_all(machine: &mut dyn Actuator, actions: &mut Vec<Action>) {
    for action in actions.drain(..) {
        let _ = perform(machine, &action);
    }
}

/// Goes on for a short while with what [`Action::MoveMemory`] began.
pub(crate) fn go_on_moving(machine: &mut dyn Actuator) -> Option<MemoryMoved> {
    machine.go_on_moving()
}

/// How the moves of a plan are carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Threads stay pinned where they are put.
    pub(crate) pins: bool,
    /// They may leave their domain where they are not pinned.
    pub(crate) open: bool,
    /// This is a distribution of all threads: those that are not moved are pinned where they are.
    pub(crate) distributes: bool,
}

/// What became of the moves of a plan.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) moves: Vec<MoveRecord>,
    /// Threads are where a distribution wants them.
    pub(crate) distributed: bool,
    /// One was left free that is to be pinned: the next point distributes anew.
    pub(crate) again: bool,
}

/// Carries out moves, with its work space.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    handover: Handover,
}

impl Mover {
    /// Carries out the moves of a plan for the threads of this snapshot. What fails for the thread's sake,
    /// or for that of its CPU, is added to `failures`.
    pub(crate) fn carry_out(
        &mut self,
        machine: &mut dyn Actuator,
        snapshot: &Snapshot,
        plan: &Plan,
        membership: &mut Membership,
        manner: Manner,
        failures: &mut Vec<Failure>,
    ) -> Done {
        let mut done = Done { moves: Vec::with_capacity(plan.moves.len()), ..Done::default() };
        self.handover.begin(snapshot, plan, manner.pins);
        let (before, mut missed) = (failures.len(), false);
        while let Some(act) = self.handover.next() {
            let Some(m) = plan.moves.get(act.number()) else { continue };
            let to = snapshot.cpus.get(m.to).map(|c| c.id);
            let within = membership.roaming(m.thread, manner.open);
            let (Some(to), Some(within), Some(t)) =
                (to, within, membership.threads.get_mut(m.thread))
            else {
                continue;
            };
            let thread = t.meta.id;
            let from = t.place.cpu.unwrap_or(to);
            let action = match act {
                Act::Move(_) if manner.pins => Action::Pin { thread, cpu: to },
                Act::Move(_) => Action::Nudge { thread, cpu: to, within },
                Act::Free(_) => Action::Confine { thread, within },
                Act::Stay(_) => Action::Pin { thread, cpu: from },
            };
            let mut text = None;
            match perform(machine, &action) {
                Ok(_) => match act {
                    Act::Move(_) => {
                        t.place.cpu = Some(to);
                        t.place.migrations += 1;
                    }
                    // A thread that stays was not tried to be moved: the other one was.
                    Act::Free(_) | Act::Stay(_) => continue,
                },
                Err(ApplyError::Gone) => {
                    missed = true;
                    self.handover.failed(act, true);
                    continue;
                }
                Err(error) => {
                    missed = true;
                    text = Some(match &error {
                        ApplyError::Unusable { .. } => {
                            String::from("the CPU can no longer be used")
                        }
                        error => error.to_string(),
                    });
                    failures.push(Failure { thread, error });
                    // One that was let off its CPU is pinned again with the next distribution.
                    done.again |= self.handover.failed(act, false);
                }
            }
            done.moves.push(MoveRecord { id: thread, from, to, reason: m.reason, error: text });
        }
        if !manner.distributes {
            return done;
        }
        if manner.pins && missed {
            // Pinned where they are, the others might leave a CPU unused that was to be filled.
            let failed = |t: &ManagedThread| {
                failures[before..].iter().any(|f| f.thread == t.meta.id && f.is_final())
            };
            for i in 0..membership.threads.len() {
                let t = &membership.threads[i];
                if t.place.movable
                    && !failed(t)
                    && let Some(within) = membership.roaming(i, manner.open)
                {
                    // One that cannot be released keeps its place until the next try.
                    let _ = perform(machine, &Action::Confine { thread: t.meta.id, within });
                }
            }
            return done;
        }
        done.distributed = true;
        if manner.pins && !snapshot.cpus.is_empty() {
            pin_the_rest(machine, snapshot, plan, membership, failures);
        }
        done
    }
}

/// Threads that need not move are pinned where they are.
fn pin_the_rest(
    machine: &mut dyn Actuator,
    snapshot: &Snapshot,
    plan: &Plan,
    membership: &Membership,
    failures: &mut Vec<Failure>,
) {
    let mut moves = vec![false; membership.threads.len()];
    for m in &plan.moves {
        if let Some(moves) = moves.get_mut(m.thread) {
            *moves = true;
        }
    }
    for (i, t) in membership.threads.iter().enumerate() {
        let is_here = |cpu: &CpuId| snapshot.cpus.binary_search_by_key(cpu, |c| c.id).is_ok();
        let Some(cpu) = t.place.cpu.filter(is_here) else { continue };
        // The kernel puts a thread elsewhere when the CPUs of its mask go offline.
        let may_stay = membership.masks.get(t.place.mask).is_some_and(|m| m.contains(cpu));
        if !t.place.movable || !may_stay || moves[i] {
            continue;
        }
        let thread = t.meta.id;
        if let Err(error) = perform(machine, &Action::Pin { thread, cpu }) {
            let failure = Failure { thread, error };
            if failure.is_final() {
                failures.push(failure);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, cpus, id, threads};
    use evenly_model::Reason;

    /// Carries out moves of threads on these CPUs of two; what was asked of the machine.
    fn carry_out(
        at: &[u32],
        moves: &[(usize, usize)],
        manner: Manner,
        fails: &[(usize, ApplyError)],
    ) -> (Vec<String>, Done, Vec<Failure>, Membership) {
        let (mut membership, snapshot) = threads(at, 2);
        let fails = fails.iter().map(|(t, e)| (id(*t), e.clone())).collect();
        let mut machine = Scripted { fails, ..Scripted::default() };
        let (mut plan, mut failures) = (Plan::default(), Vec::new());
        moves.iter().for_each(|&(thread, to)| plan.push(thread, to, Reason::Behind));
        let done = Mover::default().carry_out(
            &mut machine,
            &snapshot,
            &plan,
            &mut membership,
            manner,
            &mut failures,
        );
        (machine.calls, done, failures, membership)
    }

    const PINS: Manner = Manner { pins: true, open: false, distributes: false };

    fn refused() -> ApplyError {
        ApplyError::Refused(String::from("no"))
    }

    #[test]
    fn two_that_are_alone_change_places_with_every_cpu_in_use() {
        let (calls, done, failures, members) = carry_out(&[0, 1], &[(0, 1), (1, 0)], PINS, &[]);
        assert_eq!(calls, ["1 in 0-1", "0 on 1", "1 on 0"]);
        assert_eq!((done.moves.len(), failures.len(), done.again), (2, 0, false));
        let at = |t: usize| members.threads[t].place.cpu;
        assert_eq!([at(0), at(1)], [Some(CpuId(1)), Some(CpuId(0))]);
        assert!(members.threads.iter().all(|t| t.place.migrations == 1));
    }

    #[test]
    fn threads_that_are_not_pinned_are_released_to_where_they_may_roam() {
        let free = Manner { pins: false, ..PINS };
        assert_eq!(carry_out(&[0, 0], &[(1, 1)], free, &[]).0, ["1 on 1, then 0-1"]);
        let open = Manner { open: true, ..free };
        assert_eq!(carry_out(&[0, 0], &[(1, 1)], open, &[]).0, ["1 on 1, then 0-3"]);
    }

    #[test]
    fn a_distribution_pins_those_that_stay_as_well() {
        let first = Manner { distributes: true, ..PINS };
        let (calls, done, ..) = carry_out(&[0, 0, 1], &[(1, 1)], first, &[]);
        assert_eq!(calls, ["1 on 1", "0 on 0", "2 on 1"]);
        assert!(done.distributed);
        // One of those that stay cannot be pinned; one that has ended is no failure.
        for (error, failed) in [(refused(), 1), (ApplyError::Gone, 0)] {
            let (_, done, failures, _) = carry_out(&[0, 0, 1], &[(1, 1)], first, &[(2, error)]);
            assert_eq!((failures.len(), done.distributed), (failed, true));
        }
    }

    #[test]
    fn where_one_cannot_be_moved_a_distribution_lets_the_others_roam() {
        let first = Manner { distributes: true, ..PINS };
        let (calls, done, failures, _) = carry_out(&[0, 0, 0], &[(1, 1)], first, &[(1, refused())]);
        assert_eq!(calls, ["1 on 1", "0 in 0-1", "2 in 0-1"]);
        assert!(!done.distributed);
        assert_eq!(failures, [Failure { thread: id(1), error: refused() }]);
        assert_eq!(done.moves[0].error.as_deref(), Some("no"));
    }

    #[test]
    fn who_cannot_be_followed_is_pinned_where_it_is() {
        let (calls, done, failures, _) =
            carry_out(&[0, 1], &[(0, 1), (1, 0)], PINS, &[(0, refused())]);
        assert_eq!(calls, ["1 in 0-1", "0 on 1", "1 on 1"]);
        assert_eq!((done.moves.len(), failures.len()), (1, 1));
        // It has ended: nothing is reported, and the other keeps its CPU.
        let (calls, done, failures, _) =
            carry_out(&[0, 1], &[(0, 1), (1, 0)], PINS, &[(0, ApplyError::Gone)]);
        assert_eq!((calls.len(), done.moves.len(), failures.len()), (3, 0, 0));
    }

    /// The kernel has put it there when the CPUs of its mask went offline (promise P1).
    #[test]
    fn a_thread_that_is_outside_its_mask_is_not_pinned_there() {
        let first = Manner { distributes: true, ..PINS };
        let (mut membership, snapshot) = threads(&[0, 1], 2);
        membership.threads[1].place.mask = membership.number_of_mask(cpus("0"));
        let (mut machine, mut failures) = (Scripted::default(), Vec::new());
        let done = Mover::default().carry_out(
            &mut machine,
            &snapshot,
            &Plan::default(),
            &mut membership,
            first,
            &mut failures,
        );
        assert_eq!(machine.calls, ["0 on 0"]);
        assert!(done.distributed);
    }

    #[test]
    fn each_thread_that_is_weighed_has_its_own_result() {
        let mut machine = Scripted { fails: vec![(id(1), refused())], ..Scripted::default() };
        let want = |i, weight| Wanted { process: Pid(1), thread: id(i), weight, turns: None };
        let action = Action::Weigh { wanted: vec![want(0, 2.0), want(1, 0.5)] };
        let outcome = perform(&mut machine, &action);
        assert_eq!(outcome, Ok(Outcome::Weighed(vec![Ok(2.0), Err(refused())])));
        assert_eq!(machine.calls, ["0 weighs 2", "1 weighs 0.5"]);
    }

    #[test]
    fn memory_and_threads_that_have_to_stay_are_refused() {
        let mut machine = Scripted { keeps: vec![id(1)], ..Scripted::default() };
        let release = |i| Action::Release { thread: id(i) };
        assert_eq!(perform(&mut machine, &release(0)), Ok(Outcome::Done));
        assert!(matches!(perform(&mut machine, &release(1)), Err(ApplyError::Refused(_))));
        let memory = Action::MoveMemory { process: Pid(1), from: 0, to: 1 };
        assert!(matches!(perform(&mut machine, &memory), Err(ApplyError::Refused(_))));
        assert_eq!(machine.calls, ["0 restored", "1 restored"]);
    }

    #[test]
    fn what_cannot_be_done_does_not_keep_the_rest_from_being_done() {
        let mut machine = Scripted { fails: vec![(id(0), refused())], ..Scripted::default() };
        let within = Arc::new(cpus("0-1"));
        let mut actions = vec![
            Action::Confine { thread: id(0), within },
            Action::Restore { thread: id(1) },
            Action::Unweigh { process: Pid(1), thread: id(2) },
        ];
        perform_all(&mut machine, &mut actions);
        assert_eq!(machine.calls, ["0 in 0-1", "1 restored", "2 unweighed"]);
        assert!(actions.is_empty());
    }
}

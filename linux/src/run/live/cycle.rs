//! Runs all domains until the end: each in a thread of its own, the first one together with the coordinator.
//!
//! Invariant: whatever ends the cycle, all threads of it end, and no balancer gives masks back while another
//! thread can still narrow one of its domain.

use super::LiveError;
use super::coordinator::Coordinator;
use super::domain::Domain;
use crate::agents::{Runner, lock_unless};
use crate::clock::{now, thread_cpu_time};
use crate::control::Control;
use crate::watcher::Helpers;
use std::thread::{Scope, ScopedJoinHandle};

/// Runs all domains until the end; the first one in this thread, together with the coordinator.
pub(super) fn run_domains(
    domains: Vec<Domain>,
    runners: Vec<Runner>,
    coordinator: &mut Coordinator,
    control: &Control,
) -> Result<Vec<Domain>, LiveError> {
    std::thread::scope(|scope| {
        let mut domains = domains.into_iter();
        let first = domains.next();
        let mut handles = Vec::new();
        for (i, domain) in domains.enumerate() {
            let name = format!("balancer-{}", i + 1);
            handles.push(spawn(scope, name, control, move || domain.run(control))?);
        }
        let (mut at_work, mut helpers) = (Vec::new(), Vec::new());
        for (i, runner) in runners.into_iter().enumerate() {
            match runner {
                Runner::OnItsCpu(helper) => helpers.push(helper),
                Runner::Together(many) => {
                    let name = format!("agents-{i}");
                    at_work.push(spawn(scope, name, control, move || many.run(control))?);
                }
            }
        }
        let helpers = Helpers::start(helpers, control).map_err(|e| {
            control.end();
            LiveError::Thread(e)
        })?;
        let mut done = Vec::new();
        if let Some(mut domain) = first {
            loop {
                let has_points = !domain.balancer.is_empty();
                let due = match coordinator.due(has_points) {
                    _ if coordinator.has_work(now()) => now(),
                    work if has_points => work.min(domain.due),
                    work => work,
                };
                if control.sleep_until(due, || domain.is_called())
                    || coordinator.vanished
                    || !coordinator.is_guarded()
                {
                    control.end();
                    break;
                }
                if domain.is_called() {
                    domain.due = domain.called_at;
                }
                if coordinator.has_work(now()) {
                    let before = thread_cpu_time();
                    let machine = lock_unless(&domain.machine, || control.has_ended());
                    if machine.is_some_and(|mut machine| coordinator.work(&mut machine)) {
                        domain.due = now();
                        control.wake();
                    }
                    coordinator.notes.extend(helpers.notes());
                    for text in std::mem::take(&mut coordinator.notes) {
                        domain.balancer.note(now(), text, &mut domain.observers);
                    }
                    domain.paid += thread_cpu_time() - before;
                }
                if now() >= domain.due {
                    let before = domain.balancer.activations();
                    domain.point(control);
                    if domain.balancer.activations() != before {
                        control.wake();
                    }
                }
            }
            // No thread may narrow a mask any more when masks are given back.
            for runner in at_work {
                // One that panicked has a bug; it does nothing any more.
                let _ = runner.join();
            }
            for text in helpers.notes() {
                domain.balancer.note(now(), text, &mut domain.observers);
            }
            let ended = helpers.end();
            domain.finish();
            if let Err(cpu) = ended {
                return Err(LiveError::Stuck(cpu));
            }
            done.push(domain);
        }
        for handle in handles {
            // A balancer that panicked has a bug; its journal stays, and the guardian restores.
            done.extend(handle.join().ok());
        }
        Ok(done)
    })
}

/// Starts a thread. Where that cannot be, those that have been started are ended.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    control: &Control,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, LiveError> {
    std::thread::Builder::new().name(name).spawn_scoped(scope, work).map_err(|e| {
        control.end();
        LiveError::Thread(e)
    })
}

#[cfg(test)]
mod tests {
    use super::super::set_up::SetUp;
    use super::super::tests::{Scene, join, scene, within_a_minute};
    use super::*;
    use crate::journal::JournalError;
    use crate::machine::tests::Worker;
    use evenly_model::CpuSet;
    use std::path::PathBuf;

    /// Each domain with a thread that it has confined.
    fn at_work(s: &mut Scene) -> (SetUp, [Worker; 2]) {
        let mut set_up = s.set_up();
        let workers = [Worker::new(), Worker::new()];
        for (domain, worker) in set_up.domains.iter_mut().zip(&workers) {
            join(domain, worker, &s.whole);
            domain.point(&Control::default());
        }
        assert_eq!(workers[0].mask(), CpuSet::single(s.a));
        assert_eq!(workers[1].mask(), CpuSet::single(s.b));
        (set_up, workers)
    }

    /// Runs until the end, which `why` has brought about before.
    fn ends(why: impl FnOnce(&mut Coordinator, &Control)) {
        let Some(mut s) = scene() else { return };
        let (mut set_up, workers) = at_work(&mut s);
        let control = Control::default();
        why(&mut set_up.coordinator, &control);
        let SetUp { domains, runners, mut coordinator, .. } = set_up;
        let ended = within_a_minute(&control, || {
            run_domains(domains, runners, &mut coordinator, &control).unwrap()
        });
        assert_eq!(ended.iter().map(|d| d.balancer.domain().0).collect::<Vec<_>>(), [0, 1]);
        assert!(workers.iter().all(|w| w.mask() == s.whole));
    }

    /// Would catch, here and below: a domain that goes on for ever, one whose masks stay, and one that is
    /// missing from the report.
    #[test]
    fn all_domains_end_when_control_says_so() {
        ends(|_, control| control.end());
    }

    #[test]
    fn all_domains_end_when_the_program_has_no_process_any_more() {
        ends(|coordinator, _| coordinator.vanished = true);
    }

    #[test]
    fn all_domains_end_when_nothing_would_restore_masks_any_more() {
        ends(|coordinator, _| {
            let path = PathBuf::from("/gone");
            let source = std::io::Error::other("gone");
            let error = JournalError::Io { path, what: "open it", source };
            coordinator.unguarded = Some(LiveError::NoJournal(error));
        });
    }
}

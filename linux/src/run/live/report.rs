//! What a live run amounted to.
//!
//! Invariant: a report is plain values, which outlive the run.

use super::Live;
use super::coordinator::Coordinator;
use super::domain::Domain;
use crate::clock::process_cpu_time;
use crate::limits::Quota;
use evenly_engine::{Placed, Summary};
use evenly_model::{CpuSet, Nanos, ThreadId};
use std::collections::HashSet;

/// What a live run amounted to.
#[derive(Debug, Clone, Default)]
pub struct LiveReport {
    /// What the cycle did.
    pub summary: Summary,
    /// How long there was something to balance.
    pub balanced_s: f64,
    /// CPU time of evenly as a whole, in seconds.
    pub overhead_s: f64,
    /// Greatest number of threads that the program was seen with.
    pub threads: usize,
    /// Greatest number of processes that it was seen with.
    pub processes: usize,
    /// Threads of a real-time or deadline class, which are left alone.
    pub realtime_threads: usize,
    /// Whether balancing ever began.
    pub started: bool,
    /// The CPU quota of the program, if it has one.
    pub quota: Quota,
    /// The period that was aimed at.
    pub period: Nanos,
    /// Where thread times came from, as `--source` has it; None where balancing never began.
    pub source: Option<&'static str>,
    /// What became of the mapping, where there was one and balancing began.
    pub mapping: Option<Placed>,
    /// The CPUs that the program could use when balancing began: no more than what the masks of the
    /// threads that were balanced allowed to any of them.
    pub cpus: CpuSet,
}

/// What is known before balancing begins, and holds until the end.
pub(super) struct Facts {
    /// The CPUs that the program may use.
    pub(super) usable: CpuSet,
    /// Where thread times come from, as `--source` has it.
    pub(super) source: Option<&'static str>,
    /// The period that is aimed at.
    pub(super) period: Nanos,
}

impl Live {
    /// The report of a run that ended at `end`.
    pub(super) fn report(
        &self,
        domains: &[Domain],
        coordinator: Coordinator,
        facts: Facts,
        end: Nanos,
    ) -> LiveReport {
        let mut report = LiveReport {
            balanced_s: coordinator.started_at.map_or(0.0, |t| (end - t).as_secs_f64()),
            overhead_s: process_cpu_time().as_secs_f64(),
            threads: coordinator.most_threads,
            processes: coordinator.most_processes,
            realtime_threads: coordinator.realtime_threads,
            started: coordinator.started_at.is_some(),
            quota: coordinator.quota,
            period: facts.period,
            source: facts.source,
            mapping: None,
            cpus: facts.usable,
            summary: Summary::default(),
        };
        let online = self.limits.online().unwrap_or_default();
        for d in domains {
            let account = d.balancer.summary(end);
            // A node that has been offline throughout is none to speak of.
            if account.0.threads > 0 || !d.balancer.cpus().and(&online).is_empty() {
                report.summary.add(account);
            }
        }
        // What the threads may use where that is less: a wrapper such as taskset limits them.
        let allowed = report
            .summary
            .domains
            .iter()
            .fold(CpuSet::new(), |all, d| all.or(&d.allowed))
            .and(&report.cpus);
        if !allowed.is_empty() {
            report.cpus = allowed;
        }
        let numbering = coordinator.numbering.filter(|_| report.started);
        let profile = self.options.knowledge.as_ref().and_then(|k| k.profile.as_ref());
        if let (Some(numbering), Some(profile)) = (&numbering, profile) {
            report.summary.notes.push(numbering.note(profile.tasks().iter().map(|t| t.id)));
        }
        if let (Some(mapping), Some(numbering)) = (coordinator.mapping, numbering) {
            report.summary.notes.extend(mapping.notes(&numbering));
            report.mapping = Some(mapping.placed(&numbering));
            // What a mapping narrows is no mask of the thread's own.
            let mapped = domains.iter().flat_map(|d| d.mapped.iter().flatten());
            let mapped: HashSet<ThreadId> = mapped.map(|m| m.id).collect();
            for t in report.summary.threads.iter_mut().filter(|t| mapped.contains(&t.id)) {
                t.own_mask = false;
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{join, scene, selection};
    use super::*;
    use crate::agents::lock;
    use crate::control::Control;
    use crate::machine::tests::Worker;
    use crate::mapping::Mapping;

    const SECOND: Nanos = Nanos::from_millis(1_000);

    /// Would catch: times from the start of evenly instead of that of balancing, and facts of the set-up that
    /// get lost.
    #[test]
    fn a_report_has_what_the_coordinator_saw() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        set_up.coordinator.started_at = Some(SECOND);
        (set_up.coordinator.most_threads, set_up.coordinator.most_processes) = (7, 3);
        set_up.coordinator.realtime_threads = 2;
        let end = SECOND.scale(3.0);
        let report = s.live.report(&set_up.domains, set_up.coordinator, set_up.facts, end);
        assert!(report.started && (report.balanced_s - 2.0).abs() < 1e-9);
        assert_eq!((report.threads, report.processes, report.realtime_threads), (7, 3, 2));
        assert_eq!(report.period, Nanos::from_millis(50));
        assert_eq!((report.source, &report.cpus), (Some("schedstat"), &s.both()));
    }

    /// Would catch: a node without CPUs that is reported as a domain.
    #[test]
    fn a_node_that_has_been_offline_is_not_reported() {
        let Some(mut s) = scene() else { return };
        let set_up = s.set_up();
        s.write("sys/devices/system/cpu/online", &s.a.0.to_string());
        let report = s.live.report(&set_up.domains, set_up.coordinator, set_up.facts, SECOND);
        assert_eq!(report.summary.domains.len(), 1);
    }

    /// Would catch: a limit of n/m that is computed from CPUs which a wrapper such as taskset forbids.
    #[test]
    fn cpus_that_no_thread_may_use_are_not_counted() {
        let Some(s) = scene() else { return };
        let mut s = s.one_domain().watched();
        let mut set_up = s.set_up();
        let worker = Worker::new();
        worker.pin_itself(&CpuSet::single(s.b));
        join(&set_up.domains[0], &worker, &CpuSet::single(s.b));
        set_up.domains[0].point(&Control::default());
        let report = s.live.report(&set_up.domains, set_up.coordinator, set_up.facts, SECOND);
        assert_eq!(report.cpus, CpuSet::single(s.b));
    }

    /// Would catch: threads that count as bound by the program because a mapping narrowed them, and a mapping
    /// that is not applied.
    #[test]
    fn a_mapping_is_reported_and_is_no_mask_of_the_threads_own() {
        let Some(s) = scene() else { return };
        let mut s = s.one_domain().watched();
        let places = [(0, CpuSet::single(s.a)), (1, CpuSet::single(s.b)), (2, s.both())];
        s.live.options.mapping = Some(Mapping::new(places.into()));
        let mut set_up = s.set_up();
        let workers = [Worker::new(), Worker::new()];
        let machine = set_up.domains[0].machine.clone();
        set_up.coordinator.give(&mut lock(&machine), workers.iter().map(selection).collect());
        set_up.coordinator.started_at = Some(SECOND);
        set_up.domains[0].point(&Control::default());
        assert_eq!(workers[0].mask().len() + workers[1].mask().len(), 2);
        assert_ne!(workers[0].mask(), workers[1].mask());
        let report = s.live.report(&set_up.domains, set_up.coordinator, set_up.facts, SECOND);
        let placed = report.mapping.unwrap();
        assert_eq!((placed.named, placed.placed), (3, 2));
        assert_eq!(report.summary.threads.len(), 2);
        assert!(report.summary.threads.iter().all(|t| !t.own_mask));
    }
}

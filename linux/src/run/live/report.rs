//! What a live run amounted to.
//!
//! Invariant: a report is plain values, which outlive the run.

use super::Live;
use super::coordinator::Coordinator;
use super::domain::Domain;
use crate::bpf::SLOTS;
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
        if let Some(left_out) = self.switches.as_ref().map(|s| s.left_out()).filter(|n| *n > 0) {
            report.summary.notes.push(format!(
                "--source bpf: {left_out} times a thread was read from /proc, because accounts are kept \
                 of {SLOTS} threads at once"
            ));
        }
        let told = coordinator.numbering.filter(|_| report.started);
        let profile = self.options.knowledge.as_ref().and_then(|k| k.profile.as_ref());
        if let (Some(numbering), Some(profile)) = (&told, profile) {
            report.summary.notes.push(numbering.note(profile.tasks().iter().map(|t| t.id)));
        }
        if let (Some(mapping), Some(numbering)) = (coordinator.mapping, told) {
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

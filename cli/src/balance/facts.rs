//! The report at the end: what is known beside what the balancer measured.

use super::filter::{Names, filter_as_given};
use crate::flags::BalanceArgs;
use crate::handover::HandingOver;
use crate::messages::Counting;
use crate::metronome::Beating;
use crate::output::{self, expand};
use crate::probe::{Watch, unseen_mpi};
use crate::watching::Watching;
use crate::{tell, tell_lines};
use evenly_engine::ThreadSummary;
use evenly_errors::said;
use evenly_linux::clock::now;
use evenly_linux::live::LiveReport;
use evenly_linux::supervise::{Outcome, Supervisor};
use evenly_model::{CpuSet, Nanos, Pid};
use evenly_policy::PolicyInfo;
use evenly_probe::loops::Told;
use evenly_report::{Ended, LoopsReport, RunReport};
use evenly_trace::Recorder;
use std::path::PathBuf;

/// The part of a recording that what the doctor saw may take: of what is kept free for its end, a quarter.
const EVIDENCE_PART: u64 = 64;

/// What the report says beside what the balancer measured.
pub(super) struct Facts {
    pub(super) command: Vec<String>,
    policy: &'static PolicyInfo,
    budget: f64,
    expected: Option<u32>,
    filter: Vec<String>,
    pub(super) names: Names,
    /// What is to be noted before all else.
    notes: Vec<String>,
    began: Nanos,
    quiet: bool,
    /// Whether the whole report is shown.
    verbose: bool,
    json: Option<PathBuf>,
    /// What its threads say of themselves.
    pub(super) watch: Option<Watch>,
    /// What its ranks count.
    pub(super) counting: Option<Counting>,
    /// Hands over the CPUs of threads that spin.
    pub(super) hands: Option<HandingOver>,
    /// What its loops tell.
    pub(super) loops: Option<Told>,
    /// Sees whether threads spin, and has CPUs change hands often if they do.
    metronome: Option<Beating>,
    beaten: Option<evenly_report::Metronome>,
    /// What is to be noted after all else.
    last_notes: Vec<String>,
    /// Sees for a recording what the doctor will need.
    watching: Option<Watching>,
    /// Bytes that the recording may have.
    record_limit: u64,
}

impl Facts {
    pub(super) fn new(
        args: &BalanceArgs,
        pid: Pid,
        command: Vec<String>,
        notes: Vec<String>,
        began: Nanos,
    ) -> Self {
        Self {
            command,
            policy: args.policy(),
            budget: args.budget,
            expected: args.threads,
            filter: filter_as_given(args),
            names: Names::default(),
            notes,
            began,
            quiet: args.quiet,
            verbose: args.verbose,
            json: args.json.as_deref().map(|p| expand(p, pid)),
            watch: None,
            counting: None,
            hands: None,
            loops: None,
            metronome: None,
            beaten: None,
            last_notes: Vec::new(),
            watching: None,
            record_limit: args.record_limit << 20,
        }
    }

    /// Has the program watched if it is recorded. A failure is not reported here: the doctor says that the
    /// recording has less in it.
    pub(super) fn watch_for_doctor(&mut self, args: &BalanceArgs, supervisor: &Supervisor) {
        let wait_reports = || self.watch.as_ref().and_then(|w| w.wait_reports()());
        let (threads, pid) = (supervisor.threads(), supervisor.pid());
        let sparing = || Watching::sparing(threads, pid, wait_reports()).ok();
        self.watching = args.record.as_ref().and_then(|_| sparing());
    }

    /// Has CPUs change hands often where threads spin.
    pub(super) fn beat(&mut self, supervisor: &Supervisor, cpus: CpuSet) {
        let (threads, pid) = (supervisor.threads(), supervisor.pid());
        self.metronome = Beating::start(threads, pid, cpus, &mut self.last_notes);
    }

    /// They do not any longer.
    pub(super) fn end_beats(&mut self) {
        let metronome = self.metronome.take();
        self.beaten = metronome.and_then(|beating| beating.end(&mut self.last_notes));
    }

    /// What the doctor will need, for the recording. None where there is nothing, or too much of it.
    fn evidence(&mut self, report: &RunReport) -> Option<serde_json::Value> {
        let mut evidence = self.watching.take()?.seen(self.command.clone())?;
        if !self.policy.only_watches() && report.started {
            let own = |t: &ThreadSummary, tid| t.id.tid.0 == tid && t.own_mask;
            let threads = &report.summary.threads;
            evidence
                .beside(self.policy.name, &report.cpus, |tid| threads.iter().any(|t| own(t, tid)));
        }
        if let Some(probe) = &report.probe {
            evidence.add_probe(&probe.ranks(), probe.for_whom());
        }
        if self.watch.as_ref().is_some_and(Watch::misses_mpi) {
            evidence.forget_spinning(&unseen_mpi("run --probe on"));
        }
        let json = evidence.json();
        let most = self.record_limit / EVIDENCE_PART;
        (json.to_string().len() as u64 <= most).then_some(json)
    }

    /// The report at the end: as text, as JSON, and as the last line of the recording.
    pub(super) fn report(
        &mut self,
        outcome: Outcome,
        mut live: LiveReport,
        failure: Option<String>,
        recorder: Option<Recorder>,
    ) {
        live.summary.notes.splice(0..0, self.notes.iter().cloned());
        live.summary.notes.extend(self.watch.as_ref().and_then(Watch::note));
        live.summary.notes.extend(self.hands.as_ref().and_then(HandingOver::note));
        live.summary.notes.append(&mut self.last_notes);
        let report = RunReport {
            schema: evenly_report::SCHEMA,
            evenly: env!("CARGO_PKG_VERSION"),
            command: self.command.clone(),
            policy: self.policy,
            ended: match outcome {
                Outcome::Exited(status) => Ended::Exit(status),
                Outcome::Signaled(signal) => Ended::Signal(signal),
                Outcome::Detached => Ended::RunsOn,
                Outcome::TargetEnded => Ended::Gone,
            },
            seconds: (now() - self.began).as_secs_f64(),
            balanced_s: live.balanced_s,
            cpus: live.cpus,
            quota_cpus: live.quota.cpus,
            period_ms: live.period.as_millis_f64(),
            overhead_s: live.overhead_s,
            budget: self.budget,
            source: live.source.map(String::from),
            failure,
            started: live.started,
            expected_threads: self.expected,
            filtered: !self.filter.is_empty(),
            filter: self.filter.clone(),
            names: self.names.all(),
            mpi_ranks: mpi_ranks(|name| std::env::var(name).ok()),
            all_threads: live.threads,
            realtime_threads: live.realtime_threads,
            mapping: live.mapping,
            processes: live.processes,
            summary: live.summary,
            efficiency: None,
            probe: self.watch.as_ref().map(Watch::report),
            handed_over: self.hands.take().and_then(|hands| hands.report()),
            metronome: self.beaten.take(),
            loops: self.loops.take().and_then(|told| LoopsReport::read(told.lines(), self.began)),
            messages: self.counting.as_ref().map(Counting::report),
            measured: None,
            gain: None,
            verdict: String::new(),
        }
        .judged();
        // A failure was reported when it occurred.
        if !self.quiet && report.failure.is_none() {
            tell_lines(&report.text(self.verbose));
        }
        self.write(&report, recorder);
    }

    fn write(&mut self, report: &RunReport, recorder: Option<Recorder>) {
        let json = match serde_json::to_value(report) {
            Ok(json) => json,
            Err(e) => return tell(&format!("evenly: cannot write the report as JSON: {e}")),
        };
        if let Some(path) = &self.json
            && let Err(e) = output::write_json(path, &json)
        {
            tell(&format!("evenly: {}", said(&e)));
        }
        if let Some(recorder) = recorder {
            let mut summary = json;
            if let (Some(fields), Some(seen)) = (summary.as_object_mut(), self.evidence(report)) {
                fields.insert(String::from("evidence"), seen);
            }
            if let Err(e) = recorder.finish(summary) {
                tell(&format!("evenly: {e}"));
            }
        }
    }
}

/// Number of ranks of the MPI program of which this process is a part, as its launcher says.
fn mpi_ranks(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
        .iter()
        .find_map(|name| variable(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_what_the_launcher_says() {
        let with = |name: &'static str, value: &'static str| {
            mpi_ranks(|n| (n == name).then(|| value.to_owned()))
        };
        assert_eq!(with("OMPI_COMM_WORLD_SIZE", "3"), Some(3));
        assert_eq!(with("PMI_SIZE", "12"), Some(12));
        assert_eq!(with("PMI_SIZE", "many"), None);
        assert_eq!(with("HOME", "3"), None);
    }
}

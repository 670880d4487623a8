//! `evenly doctor`: watches a program, or reads a recording, and says what ails it.
//!
//! Invariant (promise P9): a program that is run runs as without evenly, but for the settings that
//! `--fix-env` says that it makes, and for the probe, which only watches. Nothing else is changed, in the program or anywhere.

use crate::flags::{DoctorArgs, ProbeArg};
use crate::probe::{Prepared, Watch, running_misses_mpi, unseen_mpi, wait_reports_of_running};
use crate::program::{Wait, check_command, host, unix_ms};
use crate::report::warn_if_unfinished;
use crate::restore::leftovers;
use crate::watching::Watching;
use crate::{End, output, tell, tell_lines};
use anyhow::Context;
use evenly_doctor::{Diagnosis, Setting, settings};
use evenly_evidence::Evidence;
use evenly_linux::journal::{StateDir, others};
use evenly_linux::live::check_target;
use evenly_linux::proc::Proc;
use evenly_linux::supervise::{Outcome, Signals, SpawnOptions, Supervisor, Threads};
use evenly_linux::witness::{Witness, before_start};
use evenly_model::{CpuSet, Pid};
use evenly_probe::waiting::Cooperation;
use evenly_trace::{Header, Recorder, RecorderOptions, Recording};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<End> {
    if args.mechanisms {
        return crate::mechanisms::mechanisms(args.json.as_deref());
    }
    match (&args.from, args.pid) {
        (Some(recording), _) => of_recording(recording, args.json.as_deref()),
        (None, Some(pid)) => of_process(Pid(pid), args),
        (None, None) => of_program(args),
    }
}

fn of_recording(path: &Path, json: Option<&Path>) -> anyhow::Result<End> {
    let json = json.map(output::of_this_process);
    if let Some(file) = &json {
        output::check("--json", file)?;
        anyhow::ensure!(
            !output::same_file(path, file),
            "--json would be written over the recording {}; name another file",
            path.display()
        );
    }
    let recording = Recording::read(path).with_context(|| format!("--from {}", path.display()))?;
    warn_if_unfinished(path, &recording);
    let summary = recording.end.as_ref().map(|end| &end.summary);
    // As the doctor recorded it, or beside the report of a balancer.
    let seen =
        summary.and_then(|s| Evidence::of_json(s).or_else(|| Evidence::of_json(&s["evidence"])));
    let watched = seen.transpose().map_err(|what| {
        anyhow::anyhow!("--from {}: what the doctor saw cannot be read: {what}", path.display())
    })?;
    let known = watched.or_else(|| summary.and_then(Evidence::of_run));
    let mut evidence = known.with_context(|| {
        format!(
            "--from {}: evenly's account of the run is not in this recording, which was cut short or \
             made by another program; record again, and let the program end",
            path.display()
        )
    })?;
    let phases = recording.program().and_then(|p| p.phases.ok());
    let phase = phases.map(|phases| (phases.length.as_secs_f64(), phases.total));
    evidence.phase = evidence.phase.or(phase);
    let diagnosis = Diagnosis::of(&evidence, Vec::new());
    output::say(&diagnosis.text(), json.as_deref(), || as_json(&diagnosis))
}

fn of_process(pid: Pid, args: &DoctorArgs) -> anyhow::Result<End> {
    let proc = Proc::default();
    let known = StateDir::look().and_then(|dir| others(&dir, &proc)).unwrap_or_default();
    check_target(&proc, pid, &known)?;
    leftovers(false);
    let json = args.json.as_deref().map(|path| output::expand(path, pid));
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    let record = Record::checked(args, pid)?;
    let signals = Signals::block().context("cannot receive signals")?;
    let supervisor = Supervisor::for_attach(signals, pid)?;
    let command = proc.command_line(pid).iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let until = Some((args.for_, supervisor.waker()));
    let threads = supervisor.threads();
    let witness = move || Witness::new(pid).with_wait_reports(wait_reports_of_running(pid));
    let watching = Watching::start(threads, witness, until)?;
    // After its end it can no longer be asked.
    let missed = running_misses_mpi(pid);
    let outcome = supervisor.run(&mut Wait);
    let mut evidence = watching.end(command, outcome == Outcome::Detached)?;
    if missed || running_misses_mpi(pid) {
        evidence.forget_spinning(&unseen_mpi("run --probe on"));
    }
    let diagnosis = Diagnosis::of(&evidence, Vec::new());
    if let Some(record) = record {
        record.write(threads, &evidence)?;
    }
    output::say(&diagnosis.text(), json.as_deref(), || as_json(&diagnosis))
}

fn of_program(args: &DoctorArgs) -> anyhow::Result<End> {
    check_command("doctor", &args.command)?;
    if let Some(path) = &args.json {
        output::not_stdout("--json", path)?;
        output::check("--json", path)?;
    }
    if let Some(path) = &args.record {
        output::not_stdout("--record", path)?;
        output::check("--record", path)?;
    }
    let applied = if args.fix_env { applied() } else { Vec::new() };
    for s in &applied {
        tell(&format!("evenly: sets {}: {}", s.assignment(), s.why));
    }
    let mut env: Vec<(OsString, OsString)> =
        applied.iter().map(|s| (OsString::from(s.name), OsString::from(&s.value))).collect();
    leftovers(false);
    let mut notes = Vec::new();
    // That it cannot be loaded is reported only if the user asked for it.
    let watch = (args.probe != ProbeArg::Off)
        .then(|| {
            let before = std::env::var_os("LD_PRELOAD");
            Prepared::for_command(
                &args.command,
                before.as_deref(),
                // Nothing is moved, so no mask need be hidden.
                (&CpuSet::default(), Cooperation::Never),
                args.probe == ProbeArg::Auto,
                &mut notes,
            )
        })
        .flatten();
    let prepared = watch.map(|(prepared, variables)| {
        env.extend(variables);
        prepared
    });
    let signals = Signals::block().context("cannot receive signals")?;
    let spawn = SpawnOptions { env, ..SpawnOptions::default() };
    let supervisor = match signals.spawn(&args.command, &spawn) {
        Ok(supervisor) => supervisor,
        Err(e) => {
            tell(&format!("evenly: {e}"));
            return Ok(End::Like(e.outcome()));
        }
    };
    // From here on the program runs: failures are reported, not returned.
    let (pid, threads) = (supervisor.pid(), supervisor.threads());
    let record = args.record.as_deref().map(|path| Record::to(path, pid));
    let watch = prepared.map(|prepared| prepared.start(threads, &mut notes));
    let wait_reports = watch.as_ref().and_then(|w| w.wait_reports()());
    let watching =
        Watching::start(threads, move || Witness::new(pid).with_wait_reports(wait_reports), None);
    let outcome = supervisor.run(&mut Wait);
    let command = args.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    match watching.and_then(|w| w.end(command, false)) {
        Ok(mut evidence) => {
            evidence.gaps.extend(notes.iter().map(|note| {
                let why = note.strip_prefix("--probe: ").unwrap_or(note);
                format!("which threads spin while waiting: {why}")
            }));
            if let Some(watch) = &watch {
                let probe = watch.report();
                evidence.add_probe(&probe.ranks(), probe.for_whom());
            }
            if watch.as_ref().is_some_and(Watch::misses_mpi) {
                evidence.forget_spinning(&unseen_mpi("doctor"));
            }
            let diagnosis = Diagnosis::of(&evidence, applied);
            tell_lines(&diagnosis.text());
            if let Some(Err(e)) = record.map(|record| record.write(threads, &evidence)) {
                tell(&format!("evenly: {}", evenly_errors::said(&e)));
            }
            let json: Option<PathBuf> = args.json.as_deref().map(|p| output::expand(p, pid));
            if let Some(Err(e)) = json.map(|p| output::write_json(&p, &as_json(&diagnosis))) {
                tell(&format!("evenly: {}", evenly_errors::said(&e)));
            }
        }
        Err(e) => tell(&format!("evenly: no diagnosis: {}", evenly_errors::said(&e))),
    }
    Ok(End::Like(outcome))
}

/// The settings that `--fix-env` makes for the program before it starts.
fn applied() -> Vec<Setting> {
    let (environment, cpus, quota) = before_start();
    settings(&environment, cpus, quota)
}

fn as_json(diagnosis: &Diagnosis) -> serde_json::Value {
    serde_json::to_value(diagnosis).unwrap_or_default()
}

/// A recording of what was seen, made when all of it has been.
struct Record {
    path: PathBuf,
    started: SystemTime,
}

impl Record {
    fn to(path: &Path, pid: Pid) -> Self {
        Self { path: output::expand(path, pid), started: SystemTime::now() }
    }

    /// Where it is asked for and can be written.
    fn checked(args: &DoctorArgs, pid: Pid) -> anyhow::Result<Option<Self>> {
        let Some(path) = &args.record else { return Ok(None) };
        output::not_stdout("--record", path)?;
        let record = Self::to(path, pid);
        output::check("--record", &record.path)?;
        Ok(Some(record))
    }

    /// The recorder has a thread of its own.
    fn write(self, _: Threads, evidence: &Evidence) -> anyhow::Result<()> {
        let header = Header {
            command: evidence.command.clone(),
            host: host(),
            settings: BTreeMap::from([(String::from("policy"), String::from("doctor"))]),
            started_unix_ms: unix_ms(self.started),
            ..Header::default()
        };
        let options = RecorderOptions { header, ..RecorderOptions::default() };
        let recorder = Recorder::create(&self.path, options)
            .with_context(|| format!("cannot record to {}", self.path.display()))?;
        recorder.finish(evidence.json())?;
        Ok(())
    }
}

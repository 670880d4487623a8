//! `evenly map --profile`: an MPI program run with the probe, and what its ranks wrote put together.
//!
//! Invariant (promise P9): the program runs as without evenly, and its standard output is its own.
//! Whatever cannot be done is found before it is started, as far as that is possible.

use crate::flags::MapArgs;
use crate::mpi_probe::{built_probe, cache_for_probe};
use crate::probe::sanitizers;
use crate::program::{Wait, check_command};
use crate::{output, tell};
use anyhow::Context;
use evenly_linux::foreign::open_file;
use evenly_linux::supervise::{Outcome, Signals, SpawnOptions};
use evenly_map::{Files, Input, JoinError, Mpi, RankProfile, join, read_profile};
use evenly_probe::loaded;
use evenly_probe::mpi::{Flavour, Used};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What became of the program.
pub(crate) enum Taken {
    /// It could not be started, which has been said.
    NotStarted(Outcome),
    /// It ran to its end, whatever its status.
    Ran(Profiled),
}

/// A program that ran.
pub(crate) struct Profiled {
    pub(crate) outcome: Outcome,
    /// Its ranks as tasks, or why there are none.
    pub(crate) input: anyhow::Result<Input>,
}

/// Runs the program. What was counted is written to `counted`, too.
pub(crate) fn take(args: &MapArgs, counted: Option<&Path>) -> anyhow::Result<Taken> {
    check_command("map", &args.command)?;
    let profiles = cache_for_probe("profiles")?;
    let used = Used::of(&args.command)?;
    let (built, flavour) = built_probe(&used, args.mpicc.as_deref(), args.quiet)?;
    // Not in /tmp: ranks on other hosts write there, too.
    let cannot_make = || format!("cannot make a directory for profiles in {}", profiles.display());
    fs::create_dir_all(&profiles).with_context(cannot_make)?;
    let dir = tempfile::tempdir_in(&profiles).with_context(cannot_make)?;
    let before = std::env::var_os("LD_PRELOAD");
    let mut loaded =
        loaded(&args.command, used.launcher, &built.file, dir.path(), before.as_deref())?;
    loaded.env.push(sanitizers());
    let signals = Signals::block().context("cannot receive signals")?;
    let spawn = SpawnOptions { env: loaded.env, cpus: None };
    let outcome = match signals.spawn(&loaded.command, &spawn) {
        Ok(supervisor) => supervisor.run(&mut Wait),
        Err(e) => {
            tell(&format!("evenly: {e}"));
            return Ok(Taken::NotStarted(e.outcome()));
        }
    };
    let input = collect(args, &used, flavour, dir.path(), counted, outcome);
    Ok(Taken::Ran(Profiled { outcome, input }))
}

/// The name of an MPI in files.
fn named(flavour: Flavour) -> Mpi {
    match flavour {
        Flavour::OpenMpi => Mpi::OpenMpi,
        Flavour::Mpich => Mpi::Mpich,
    }
}

/// What the ranks wrote, as tasks.
fn collect(
    args: &MapArgs,
    used: &Used,
    flavour: Flavour,
    dir: &Path,
    counted: Option<&Path>,
    outcome: Outcome,
) -> anyhow::Result<Input> {
    let cannot_read = || format!("cannot read {}", dir.display());
    // A file server may take root for another user, which then owns the directory, too.
    let user = fs::metadata(dir).with_context(cannot_read)?.uid();
    let mut ranks: Vec<RankProfile> = Vec::new();
    let (mut again, mut other_mpi) = (false, false);
    for entry in fs::read_dir(dir).with_context(cannot_read)? {
        let path = entry.with_context(cannot_read)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        again |= name == "again";
        other_mpi |= name == "other-mpi";
        if name.starts_with("rank-") {
            // The program could have put anything there.
            let file = open_file(&path, user)?;
            ranks.push(read_profile(file, &name)?);
        }
    }
    let profile = join(ranks).map_err(|e| match e {
        JoinError::None => {
            let command = args.command.join(" ".as_ref());
            let command = command.to_string_lossy();
            match outcome {
                _ if other_mpi => anyhow::anyhow!(
                    "{e}: '{command}' uses another MPI than {flavour}, for which the probe was built; \
                     name the compiler of that MPI with --mpicc"
                ),
                Outcome::Exited(0) => anyhow::anyhow!(
                    "{e}: '{command}' is no MPI program, or not linked dynamically, or ended before \
                     MPI_Finalize"
                ),
                _ => anyhow::anyhow!("{e}: '{command}' failed before one had come to MPI_Finalize"),
            }
        }
        e => e.into(),
    })?;
    if !args.quiet {
        tell(&format!("evenly: {}", profile.summary()));
    }
    let kept = dir.join("tasks.json");
    let file = counted.unwrap_or(&kept);
    output::write_json(file, &profile.json(used.flavour().map(named)))?;
    let mut input = Files { tasks: Some(file.to_owned()), ..Files::default() }.read()?;
    input.notes.extend(profile.notes);
    if other_mpi {
        input.notes.push(format!(
            "the command also ran programs of another MPI than {flavour}, which were not counted"
        ));
    }
    if again {
        input.notes.push(String::from(
            "the command ran more than one MPI program; what was counted is of the first",
        ));
    }
    Ok(input)
}

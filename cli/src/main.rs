//! The program `evenly`: flags and wiring.
//!
//! Invariant: the exit status is decided here and nowhere else. 125 is a failure of evenly itself
//! (bad input included); otherwise `run` ends as the program ended.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod balance;
mod compare;
mod doctor;
mod end;
mod figures;
mod flags;
mod generate;
mod handover;
mod looking;
mod map;
mod measure;
mod mechanisms;
mod messages;
mod metronome;
mod mpi_probe;
mod network;
mod output;
mod predict;
mod probe;
mod profile;
mod program;
mod report;
mod restore;
mod simulate;
mod top;
mod topology;
mod tune;
mod watching;

use clap::CommandFactory;
pub(crate) use end::{End, FAILURE};
use evenly_errors::{parse, refused, said};
pub(crate) use evenly_errors::{tell, tell_lines};
use evenly_linux::journal::StateDir;
use evenly_linux::supervise::end_like;
use flags::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything of the environment is read: the process that started this one has chosen it.
    if let Some(why) = evenly_linux::privilege::from_file() {
        tell(&format!("evenly: {why}"));
        return ExitCode::from(FAILURE);
    }
    // Before there are threads, and before anything can change the working directory.
    StateDir::settle();
    let cli = match parse::<Cli, _>(std::env::args_os()) {
        Ok(cli) => cli,
        Err(e) => return refuse(&e),
    };
    let result = match cli.command {
        Command::Run(args) => balance::run(args),
        Command::Attach(args) => balance::attach(args),
        Command::Compare(args) => compare::compare(args),
        Command::Predict(args) => predict::predict(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Map(args) => map::map(&args),
        Command::Figures(args) => figures::figures(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Report(args) => report::report(&args),
        Command::Top(args) => top::top(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Topology(args) => topology::topology(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Manpages { dir } => generate::manpages(&dir),
        Command::Guardian { journal: _, fd } => restore::guardian(fd),
    };
    match result {
        Ok(End::Status(status)) => ExitCode::from(status),
        Ok(End::Like(outcome)) => end_like(outcome),
        Err(e) => {
            tell(&format!("evenly: {}", said(&e)));
            ExitCode::from(FAILURE)
        }
    }
}

/// Help and version are no errors; anything else is one clear line and status 125.
fn refuse(e: &clap::Error) -> ExitCode {
    match refused(e, &Cli::command(), std::env::args_os().nth(1)) {
        Some(line) => {
            tell(&format!("evenly: {line}"));
            ExitCode::from(FAILURE)
        }
        None => {
            // A reader that has gone away is no failure of ours.
            let _ = e.print();
            ExitCode::from(if e.use_stderr() { FAILURE } else { 0 })
        }
    }
}

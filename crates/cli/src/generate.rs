//! Man pages and completions, from the one definition of the command line.

use crate::End;
use crate::flags::Cli;
use anyhow::Context;
use clap::{Command, CommandFactory};
use std::io::{ErrorKind, Write};
use std::path::Path;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<End> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(Cli::command()), "evenly", &mut text);
    match std::io::stdout().write_all(&text) {
        // A reader that has gone away is no failure of ours.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        written => written.context("cannot write the completion script")?,
    }
    Ok(End::Status(0))
}

/// The command line without what is hidden: not every generator leaves that out.
fn visible(all: Command) -> Command {
    let subcommands: Vec<Command> =
        all.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
    let shell = Command::new("evenly").version(env!("CARGO_PKG_VERSION"));
    shell.args(all.get_arguments().cloned()).subcommands(subcommands)
}

pub(crate) fn manpages(dir: &Path) -> anyhow::Result<End> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
    Ok(End::Status(0))
}

//! Man pages and completions, from the one definition of the command line.

use crate::End;
use crate::flags::Cli;
use anyhow::Context;
use clap::CommandFactory;
use std::path::Path;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<End> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "evenly", &mut text);
    use std::io::Write;
    std::io::stdout().write_all(&text).context("cannot write the completion script")?;
    Ok(End::Status(0))
}

pub(crate) fn manpages(dir: &Path) -> anyhow::Result<End> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
    Ok(End::Status(0))
}

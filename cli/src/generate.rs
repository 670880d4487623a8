//! Man pages and completions, from the one definition of the command line.

use crate::End;
use crate::flags::Cli;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
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

/// What holds for every command, after its own page.
const COMMON_SECTIONS: &str = r"
.SH EXIT STATUS
.TP
0
success; \fBrun\fR, \fBcompare\fR and \fBmap \-\-profile\fR: the program's own
.TP
125
evenly failed or was given bad input: one line on standard error says what was found, what was needed and
what mends it; nothing was started, or what was changed is undone
.TP
126, 127
the program cannot be executed, cannot be found
.PP
Where a signal ended the program, evenly ends by the same signal.
.SH ENVIRONMENT
.TP
EVENLY_STATE_DIR
where journals are kept (see FILES)
.TP
XDG_CACHE_HOME
where measured topologies and built probes are kept; \fI~/.cache\fR where it is not set
.TP
NO_COLOR
nothing is coloured
.SH FILES
.TP
\fI/run/evenly\fR
root's journals: the masks that threads had before evenly changed them, from which \fBevenly restore\fR gives
them back. Those of others are in \fI$XDG_STATE_HOME/evenly\fR (\fI~/.local/state/evenly\fR) where that is
on a file system of this host, else in \fI/tmp/evenly\-UID\fR, \fI$XDG_RUNTIME_DIR/evenly\fR or
\fI/run/user/UID/evenly\fR, the first that can be had; at last in a directory \fI/tmp/evenly\-UID\-XXXXXX\fR
.TP
\fI~/.cache/evenly/topology\fR
what \fBevenly topology \-\-measure\fR has measured
.TP
\fI~/.cache/evenly/probe\fR
the probe of \fBevenly map \-\-profile\fR, built for each MPI
";

pub(crate) fn manpages(dir: &Path) -> anyhow::Result<End> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))?;
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let shown = all.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect::<Vec<_>>();
    for command in shown.into_iter().chain([all]) {
        let page = Man::new(command);
        let file = dir.join(page.get_filename());
        let mut text = Vec::new();
        page.render(&mut text)
            .and_then(|()| text.write_all(COMMON_SECTIONS.as_bytes()))
            .and_then(|()| std::fs::write(&file, &text))
            .with_context(|| format!("cannot write the manual page {}", file.display()))?;
    }
    Ok(End::Status(0))
}

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
            .and_then(|()| std::fs::write(&file, with_tables(&String::from_utf8_lossy(&text))))
            .with_context(|| format!("cannot write the manual page {}", file.display()))?;
    }
    Ok(End::Status(0))
}

/// A page in which lines that are indented in the help stay lines: of names with what they mean, and of commands.
/// The formatter would join the words of such lines anew.
fn with_tables(page: &str) -> String {
    let (mut out, mut table) = (String::with_capacity(page.len()), Vec::new());
    for line in page.lines() {
        if let Some(row) = line.strip_prefix("  ") {
            table.push(row.trim());
            continue;
        }
        put_table(&mut out, &std::mem::take(&mut table));
        out.push_str(line);
        out.push('\n');
    }
    put_table(&mut out, &table);
    out
}

fn put_table(out: &mut String, rows: &[&str]) {
    // Names have no blanks, commands have.
    let named: Option<Vec<(&str, &str)>> = rows
        .iter()
        .map(|row| row.split_once("  ").filter(|(name, _)| !name.contains(' ')))
        .collect();
    match named {
        _ if rows.is_empty() => {}
        Some(rows) => {
            out.push_str(".RS\n");
            for (name, about) in rows {
                out.push_str(&format!(".TP\n\\fB{name}\\fR\n{}\n", about.trim()));
            }
            out.push_str(".RE\n");
        }
        None => {
            out.push_str(".RS\n.nf\n");
            for row in rows {
                out.push_str(&format!("{row}\n"));
            }
            out.push_str(".fi\n.RE\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: tables and commands that the formatter fills like text.
    #[test]
    fn tables_stay_tables() {
        let page = "The policy:\n  hybrid      some\n  hpc\\-auto  more\n.TP\nExample:\n  evenly run  # x\nEnd\n";
        assert_eq!(
            with_tables(page),
            "The policy:\n.RS\n.TP\n\\fBhybrid\\fR\nsome\n.TP\n\\fBhpc\\-auto\\fR\nmore\n.RE\n.TP\n\
             Example:\n.RS\n.nf\nevenly run  # x\n.fi\n.RE\nEnd\n"
        );
    }

    /// Would catch: help that sends readers to files that are not installed.
    #[test]
    fn help_names_no_file_of_the_sources() {
        let mut all = Cli::command();
        all.build();
        for command in all.get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(!help.contains("docs/"), "{}: {help}", command.get_name());
        }
    }
}

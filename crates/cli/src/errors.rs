//! Errors in words: one line each, and nothing said twice.

use crate::flags::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;

/// An error with its causes. Many messages quote their cause; it is not repeated.
pub(crate) fn said(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line += ": ";
            line += &cause;
        }
    }
    line
}

/// What is wrong with a command line, and where help is: that of the command, if it is one. None
/// where help or version was asked for, or nothing at all was.
pub(crate) fn refused(e: &clap::Error, command: Option<OsString>) -> Option<String> {
    if matches!(
        e.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return None;
    }
    let command = command.and_then(|c| c.into_string().ok()).unwrap_or_default();
    let known = Cli::command().find_subcommand(&command).is_some();
    let help = if known { format!("evenly {command} --help") } else { "evenly --help".to_owned() };
    Some(format!("{} (see {help})", problem(e)))
}

/// What is wrong with a command line.
pub(crate) fn problem(e: &clap::Error) -> String {
    if let Some(text) = bad_value(e) {
        return text;
    }
    let text = e.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or("bad command line").trim_start_matches("error: ");
    // Where clap lists what is missing, the list belongs to the line.
    let list: Vec<&str> =
        lines.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more")).collect();
    if list.is_empty() { first.to_owned() } else { format!("{first} {}", list.join("; ")) }
}

/// A value that its own parser refused: option, value and reason, the value once.
fn bad_value(e: &clap::Error) -> Option<String> {
    let string = |kind| match e.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let reason = e.source().filter(|_| e.kind() == ErrorKind::ValueValidation)?.to_string();
    let option = string(ContextKind::InvalidArg)?;
    let value = string(ContextKind::InvalidValue)?;
    // "--timeout <TIMEOUT>"; an argument without a name is shown as it is, "<PID>".
    let option = option.split_once(' ').map_or(option, |(name, _)| name);
    let quoted = reason.contains(&format!("'{value}'")) || reason.starts_with(&format!("{value} "));
    Some(if quoted {
        format!("{option}: {reason}")
    } else {
        format!("{option} '{value}': {reason}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use clap::Parser;

    #[test]
    fn a_cause_that_is_quoted_is_not_repeated() {
        let e = anyhow!("no such file").context("cannot read x: no such file; try y");
        assert_eq!(said(&e), "cannot read x: no such file; try y");
        let e = Err::<(), _>(anyhow!("no such file")).context("cannot read x").unwrap_err();
        assert_eq!(said(&e), "cannot read x: no such file");
        assert_eq!(said(&e.context("b")), "b: cannot read x: no such file");
    }

    fn line(args: &[&str]) -> String {
        let e = Cli::try_parse_from(["evenly"].iter().chain(args)).unwrap_err();
        refused(&e, args.first().map(OsString::from)).unwrap()
    }

    #[test]
    fn of_command_lines() {
        assert_eq!(
            line(&["compare", "--timeout", "5", "--", "x"]),
            "--timeout: duration '5' needs a number and a unit: ns, us, ms, s or min (for example \
             20ms) (see evenly compare --help)"
        );
        assert_eq!(
            line(&["run", "--budget", "0", "--", "x"]),
            "--budget '0': it must be more than 0 and at most 100 (see evenly run --help)"
        );
        assert_eq!(
            line(&["attach", "0"]),
            "<PID>: 0 is not in 1..=2147483647 (see evenly attach --help)"
        );
        assert_eq!(line(&["fly"]), "unrecognized subcommand 'fly' (see evenly --help)");
        assert_eq!(
            line(&["attach"]),
            "the following required arguments were not provided: <PID> (see evenly attach --help)"
        );
    }
}

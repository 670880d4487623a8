//! Errors in words: one line each, and nothing said twice. All of evenly's programs use it, so that
//! bad input looks the same everywhere, and what they write to standard error goes through here.
//!
//! Invariant: what is made here from the error of a command line has no line break.

#![forbid(unsafe_code)]

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use evenly_model::{Printable, or_meant, printable};
use std::error::Error;
use std::ffi::OsString;
use std::io::{Write, stderr};
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// Writes one line to standard error; a closed stream is no failure. Line feeds in it are from
/// outside, from the name of a file for instance, and are replaced.
pub fn tell(line: &str) {
    tell_lines(&printable(line));
}

/// As [`tell`], for text of several lines, of which each has been made [`printable`].
pub fn tell_lines(text: &str) {
    let _ = Printable::text(stderr().lock()).write_all(format!("{}\n", text.trim_end()).as_bytes());
}

/// An error with its causes. Many messages quote their cause; it is not repeated.
#[must_use]
pub fn said(error: &anyhow::Error) -> String {
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

/// Reads a command line. A negative number is a value here, for its option to refuse with what it
/// needs; clap would take it for an option that is not known.
///
/// # Errors
/// What is wrong with it, or that help was asked for: for [`refused`].
pub fn parse<P, T>(args: impl IntoIterator<Item = T>) -> Result<P, clap::Error>
where
    P: CommandFactory + FromArgMatches,
    T: Into<OsString> + Clone,
{
    let mut command = with_negative_numbers(P::command());
    let matches = command.try_get_matches_from_mut(args)?;
    P::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let takes = arg.get_action().takes_values();
            if takes { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(with_negative_numbers)
}

/// What is wrong with the command line of a program, whose first argument this is, and where help is:
/// that of the command, if it is one. None where help or version was asked for, or nothing at all was.
#[must_use]
pub fn refused(
    e: &clap::Error,
    program: &clap::Command,
    first: Option<OsString>,
) -> Option<String> {
    if matches!(
        e.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return None;
    }
    let name = program.get_name();
    let command = first.and_then(|c| c.into_string().ok()).unwrap_or_default();
    let known = program.find_subcommand(&command).is_some();
    let help = if known { format!("{name} {command} --help") } else { format!("{name} --help") };
    let mut line = problem(e);
    if e.kind() == ErrorKind::InvalidSubcommand && !line.contains(MEANT) {
        let shown = program.get_subcommands().filter(|c| !c.is_hide_set());
        line += &or_meant(&command, shown.map(Command::get_name));
        let runs = program.find_subcommand(RUN).is_some_and(takes_program);
        if runs && command.contains('/') {
            line += &format!("; {name} {RUN} -- {command} starts a program");
        }
    }
    let of_program = program.find_subcommand(&command).is_some_and(takes_program);
    let unnamed = option_of(e, ContextKind::InvalidArg).is_some_and(|a| a.starts_with('<'));
    if of_program && !line.contains(MEANT) && (e.kind() == ErrorKind::UnknownArgument || unnamed) {
        line += "; a program and its arguments go after --";
    }
    Some(format!("{line} (see {help})"))
}

/// Whether the command line of a program can follow.
fn takes_program(command: &Command) -> bool {
    command.get_arguments().any(Arg::is_last_set)
}

/// What is wrong with a command line.
#[must_use]
pub fn problem(e: &clap::Error) -> String {
    if let Some(text) = bad_value(e) {
        return text;
    }
    let text = e.render().to_string();
    // What was probably meant stands at the end.
    let useful = |l: &&str| !l.is_empty() && !l.starts_with("tip: ");
    let mut lines = text.lines().map(str::trim).filter(useful);
    let first = lines.next().unwrap_or("bad command line").trim_start_matches("error: ");
    // Where clap lists what is missing, the list belongs to the line.
    let list: Vec<&str> =
        lines.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more")).collect();
    let text =
        if list.is_empty() { first.to_owned() } else { format!("{first} {}", list.join("; ")) };
    text + &suggested(e)
}

/// The command that runs a program, where there is one.
const RUN: &str = "run";

/// What stands before a name that was probably meant.
const MEANT: &str = " (did you mean ";

/// An option without its value.
fn word(option: &str) -> &str {
    option.split([' ', '=']).next().unwrap_or_default()
}

/// What clap takes for meant, where that is nearly the same.
fn suggested(e: &clap::Error) -> String {
    let kinds = [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ];
    let pair = kinds.into_iter().find_map(|(invalid, suggested)| {
        let name = match e.get(suggested)? {
            ContextValue::String(name) => name.as_str(),
            ContextValue::Strings(names) => names.last()?.as_str(),
            _ => return None,
        };
        Some((string(e, invalid)?, name))
    });
    pair.map_or_else(String::new, |(given, name)| or_meant(word(given), [word(name)]))
}

/// A value that its own parser refused: option, value and reason, the value once.
fn bad_value(e: &clap::Error) -> Option<String> {
    let option = option_of(e, ContextKind::InvalidArg)?;
    let value = string(e, ContextKind::InvalidValue)?;
    let reason = reason(e.source().filter(|_| e.kind() == ErrorKind::ValueValidation)?, value);
    let quoted = reason.contains(&format!("'{value}'")) || reason.starts_with(&format!("{value} "));
    Some(if quoted {
        format!("{option}: {reason}")
    } else {
        format!("{option} '{value}': {reason}")
    })
}

/// The option that was given twice, where that is what is wrong.
#[must_use]
pub fn given_twice(e: &clap::Error) -> Option<&str> {
    let (now, before) = (ContextKind::InvalidArg, ContextKind::PriorArg);
    let option = option_of(e, now).filter(|_| e.kind() == ErrorKind::ArgumentConflict)?;
    (option_of(e, before) == Some(option)).then_some(option)
}

fn string(e: &clap::Error, kind: ContextKind) -> Option<&str> {
    match e.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// `--timeout <TIMEOUT>` by its name alone; an argument without a name is shown as it is, `<PID>`.
fn option_of(e: &clap::Error, kind: ContextKind) -> Option<&str> {
    string(e, kind).map(|option| option.split_once(' ').map_or(option, |(name, _)| name))
}

/// Why a value is none. Of numbers Rust says what is of use to programmers.
fn reason(why: &(dyn Error + 'static), value: &str) -> String {
    if let Some(e) = why.downcast_ref::<ParseIntError>() {
        // Types without a sign know no negative numbers, but no digits that are wrong in them either.
        let negative = value.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_ok());
        return String::from(match e.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            IntErrorKind::NegOverflow => "the number is too small",
            _ if negative => "a whole number that is not negative is needed",
            _ => "a whole number is needed",
        });
    }
    if why.is::<ParseFloatError>() {
        return String::from("a number is needed");
    }
    let text = why.to_string();
    // Of its ranges clap says the ends of types, too.
    let range = text.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    match range.map(|(least, most)| (least, most, most.parse::<i128>())) {
        Some((_, _, Ok(most))) if value.parse().is_ok_and(|value: i128| value > most) => {
            String::from("the number is too large")
        }
        Some((least, _, Ok(most))) if most >= i32::MAX.into() => {
            format!("it must be at least {least}")
        }
        Some((least, most, _)) => format!("it must be from {least} to {most}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use clap::{ArgAction, value_parser};

    #[test]
    fn a_cause_that_is_quoted_is_not_repeated() {
        let e = anyhow!("no such file").context("cannot read x: no such file; try y");
        assert_eq!(said(&e), "cannot read x: no such file; try y");
        let e = Err::<(), _>(anyhow!("no such file")).context("cannot read x").unwrap_err();
        assert_eq!(said(&e), "cannot read x: no such file");
        assert_eq!(said(&e.context("b")), "b: cannot read x: no such file");
    }

    fn program() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name);
        let count = Arg::new("n").required(true).value_parser(value_parser!(i32).range(1..));
        let run = Command::new("run").arg(Arg::new("command").last(true));
        let map = Command::new("map").arg(Arg::new("command").last(true));
        Command::new("prog").subcommand_required(true).subcommands([map, run]).subcommand(
            Command::new("do")
                .arg(option("part").value_parser(value_parser!(f64)))
                .arg(option("seed").value_parser(value_parser!(u64)))
                .arg(option("quiet").action(ArgAction::SetTrue))
                .arg(count),
        )
    }

    fn error(args: &[&str]) -> clap::Error {
        let program = with_negative_numbers(program());
        program.try_get_matches_from(["prog"].iter().chain(args)).unwrap_err()
    }

    fn line(args: &[&str]) -> Option<String> {
        refused(&error(args), &program(), args.first().map(OsString::from))
    }

    #[test]
    fn of_command_lines() {
        for (args, said) in [
            (&["fly"][..], "unrecognized subcommand 'fly' (see prog --help)"),
            (
                &["./fly"],
                "unrecognized subcommand './fly'; prog run -- ./fly starts a program (see prog --help)",
            ),
            (&["od"], "unrecognized subcommand 'od' (did you mean do?) (see prog --help)"),
            (
                &["do", "1", "--sed", "1"],
                "unexpected argument '--sed' found (did you mean --seed?) (see prog do --help)",
            ),
            (&["do", "abc"], "<n> 'abc': a whole number is needed (see prog do --help)"),
            (&["do", ""], "<n> '': a whole number is needed (see prog do --help)"),
            (
                &["do", "99999999999999999999"],
                "<n> '99999999999999999999': the number is too large (see prog do --help)",
            ),
            (
                &["do", "12345678901"],
                "<n> '12345678901': the number is too large (see prog do --help)",
            ),
            (&["do", "0"], "<n> '0': it must be at least 1 (see prog do --help)"),
            (&["do", "1", "--part", "x"], "--part 'x': a number is needed (see prog do --help)"),
            (&["do", "-1"], "<n> '-1': it must be at least 1 (see prog do --help)"),
            (
                &["do", "1", "--seed", "-1"],
                "--seed '-1': a whole number that is not negative is needed (see prog do --help)",
            ),
            (&["do", "1", "--seed", "-1x"], "unexpected argument '-1' found (see prog do --help)"),
            (
                &["do", "1", "--seed=-x"],
                "--seed '-x': a whole number is needed (see prog do --help)",
            ),
            (
                &["do"],
                "the following required arguments were not provided: <n> (see prog do --help)",
            ),
        ] {
            assert_eq!(line(args).as_deref(), Some(said));
        }
    }

    #[test]
    fn what_is_well_is_read() {
        #[derive(clap::Parser)]
        struct Program {
            #[arg(long)]
            shift: i32,
        }
        assert_eq!(parse::<Program, _>(["p", "--shift", "-7"]).unwrap().shift, -7);
        assert!(parse::<Program, _>(["p", "--shift"]).is_err());
    }

    #[test]
    fn help_is_no_error() {
        assert_eq!(line(&["--help"]), None);
        assert_eq!(line(&["do", "--help"]), None);
    }

    #[test]
    fn of_an_option_that_is_given_twice() {
        let e = error(&["do", "1", "--quiet", "--quiet"]);
        assert_eq!(given_twice(&e), Some("--quiet"));
        let e = error(&["do", "1", "--part", "1", "--part", "2"]);
        assert_eq!(given_twice(&e), Some("--part"));
        assert_eq!(given_twice(&error(&["do", "x"])), None);
    }
}

//! The help of every command, word for word.

use crate::support::{Tool, text};

#[test]
fn of_every_command() {
    let tool = Tool::new();
    let commands = [
        "",
        "run",
        "attach",
        "compare",
        "predict",
        "simulate",
        "map",
        "figures",
        "doctor",
        "restore",
        "report",
        "top",
        "tune",
        "topology",
        "completions",
        "manpages",
    ];
    for command in commands {
        let args = command.split_whitespace().chain(["--help"]);
        let output = tool.evenly(args).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        insta::assert_snapshot!(format!("help-{command}"), text(&output.stdout));
    }
}

#[test]
fn no_command_is_a_question_for_help() {
    let output = Tool::new().evenly([""; 0]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
}

//! A list of commands, one in a line, for programs that their own makefiles build: each is a test, a shell command that
//! runs in the list's folder and passes with status 0. `%arm` stands before the program that evenly is to run.

/// The name of such a list.
pub const FILE: &str = "peers.list";

/// The commands in the text of a list.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with('#') && line.contains("%arm"))
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn comments_and_what_runs_nothing_are_passed_over() {
        let text = "# %arm no\n\n %arm ./a | grep -q good \nmake\nmpirun -n 2 %arm ./b\n";
        assert_eq!(
            lines(text).collect::<Vec<_>>(),
            ["%arm ./a | grep -q good", "mpirun -n 2 %arm ./b"]
        );
    }
}

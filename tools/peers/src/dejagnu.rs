//! DejaGnu: directives in the comments of a test (`{ dg-do run }`), and drivers (`*.exp`) that give each
//! folder its flags. Only tests that run a program are of use; whatever a directive asks for that is not
//! known here leaves the test out.

use crate::expression::holds;
use regex::Regex;
use std::sync::LazyLock;

/// Nested braces of a word: deeper ones are not read.
const DEPTH: usize = 32;

/// What a driver says of the tests in its folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// Flags that all tests are compiled with.
    pub flags: Vec<String>,
    /// Flags of tests that name none.
    pub default: Vec<String>,
    /// Folders beside the driver's own, with the extension of their tests.
    pub also: Vec<(String, String)>,
    /// Whether C sources are compiled as C++.
    pub as_cxx: bool,
}

impl Driver {
    /// Reads the text of a driver. Flags that depend on variables are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        static FLAG: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#""additional_flags=(-f[^"$\[\s]+)""#).ok());
        static DEFAULT: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"set (?:DEFAULT|PARALLEL)_CFLAGS "([^"$\[]*)""#).ok());
        static ALSO: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"find \$srcdir/\$subdir/\.\./([\w.+-]+) \*\.(\w+)").ok());
        let all = |regex: &'static LazyLock<Option<Regex>>| {
            regex.as_ref().into_iter().flat_map(|r| r.captures_iter(text))
        };
        let words = |text: &str| -> Vec<String> {
            text.split_whitespace().filter(|w| *w != "\\").map(str::to_owned).collect()
        };
        Self {
            flags: all(&FLAG).map(|c| c[1].to_owned()).collect(),
            default: all(&DEFAULT).last().map_or_else(|| vec!["-O2".into()], |c| words(&c[1])),
            also: all(&ALSO).map(|c| (c[1].to_owned(), c[2].to_owned())).collect(),
            as_cxx: text.contains("-x c++"),
        }
    }
}

/// What the directives of a test say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Why it is of no use here, if it is not.
    pub left_out: Option<String>,
    /// Flags instead of the driver's default.
    pub options: Option<Vec<String>>,
    /// Compiler flags beside those of the suite.
    pub more: Vec<String>,
    /// More source files, beside the test.
    pub sources: Vec<String>,
    /// Variables that are set where it runs.
    pub environment: Vec<(String, String)>,
    /// Whether an exit status other than 0 is what is wanted.
    pub should_fail: bool,
    /// Regular expressions that the output matches, one after the other.
    pub output: String,
}

impl Header {
    /// Reads the directives in the text of a test. `known` says which words of targets hold.
    #[must_use]
    pub fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Self {
        let mut header = Self::default();
        for (name, words) in text.lines().filter_map(directive) {
            header.add(name, &words, known);
        }
        header
    }

    fn add(&mut self, name: &str, words: &[Word], known: &dyn Fn(&str) -> bool) {
        let mut applies = true;
        let mut expected_to_fail = false;
        let mut values = Vec::new();
        for word in words {
            match word.selector() {
                Some(("target", condition)) => applies = holds(condition, known),
                Some((_, condition)) => expected_to_fail = holds(condition, known),
                None => values.push(word.text.as_str()),
            }
        }
        let first = values.first().copied().unwrap_or_default();
        let flags = || first.split_whitespace().map(str::to_owned);
        match name {
            "dg-do" if first != "run" => self.leave_out(format!("dg-do {first}")),
            "dg-do" if !applies => self.leave_out("for another target".into()),
            "dg-do" if expected_to_fail => self.leave_out("expected to fail".into()),
            "dg-options" if applies => self.options = Some(flags().collect()),
            "dg-additional-options" if applies => self.more.extend(flags()),
            "dg-additional-sources" if applies => self.sources.extend(flags()),
            "dg-set-target-env-var" if applies => {
                let value = values.get(1).copied().unwrap_or_default();
                self.environment.push((first.to_owned(), value.to_owned()));
            }
            "dg-shouldfail" if applies => self.should_fail = true,
            "dg-output" if applies => self.output.push_str(first),
            "dg-require-effective-target" if !holds(first, known) => {
                self.leave_out(format!("needs {first}"));
            }
            "dg-skip-if" | "dg-xfail-if" | "dg-xfail-run-if"
                if values.get(1).is_some_and(|condition| holds(condition, known)) =>
            {
                self.leave_out(name.trim_start_matches("dg-").to_owned());
            }
            "dg-error" if applies && !expected_to_fail => self.leave_out("dg-error".into()),
            _ => {}
        }
    }

    fn leave_out(&mut self, why: String) {
        self.left_out.get_or_insert(why);
    }
}

/// A word of Tcl: without its quotes or braces.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    braced: bool,
}

impl Word {
    /// `{ target CONDITION }` or `{ xfail CONDITION }`.
    fn selector(&self) -> Option<(&str, &str)> {
        let (kind, condition) = self.text.trim().split_once(char::is_whitespace)?;
        (self.braced && matches!(kind, "target" | "xfail")).then_some((kind, condition))
    }
}

/// The directive in a line: its name and words.
fn directive(line: &str) -> Option<(&str, Vec<Word>)> {
    let (start, _) = line.match_indices('{').find(|(at, _)| {
        line.get(at + 1..).is_some_and(|rest| rest.trim_start().starts_with("dg-"))
    })?;
    let rest = line.get(start + 1..)?.trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || c == '}')?;
    let (name, mut rest) = rest.split_at(end);
    let mut words = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.starts_with('}') {
            return Some((name, words));
        }
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// The first word of this text, and what follows it.
fn word(text: &str) -> Option<(Word, &str)> {
    match text.chars().next()? {
        '"' => quoted(text.get(1..)?),
        '{' => {
            let mut depth = 0_usize;
            let end = text.char_indices().find_map(|(at, c)| {
                depth = match c {
                    '{' => depth + 1,
                    '}' => depth - 1,
                    _ => depth,
                };
                (depth == 0 || depth > DEPTH).then_some(at)
            })?;
            let inner = text.get(1..end)?;
            Some((Word { text: inner.to_owned(), braced: true }, text.get(end + 1..)?))
        }
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || c == '}')?;
            let (word, after) = text.split_at(end);
            Some((Word { text: word.to_owned(), braced: false }, after))
        }
    }
}

/// The rest of a word in quotes. A backslash takes the special meaning from what follows; before a letter
/// it is kept, as regular expressions know these, too.
fn quoted(text: &str) -> Option<(Word, &str)> {
    let mut inner = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Word { text: inner, braced: false }, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                letter if letter.is_alphanumeric() => inner.extend(['\\', letter]),
                other => inner.push(other),
            },
            other => inner.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Driver, Header, directive};

    fn header(text: &str) -> Header {
        Header::parse(text, &|word| matches!(word, "c" | "x86_64-*-*" | "lp64" | "tls" | "*-*-*"))
    }

    #[test]
    fn a_test_without_directives_runs() {
        assert_eq!(header("int main(void) { return 0; }"), Header::default());
    }

    #[test]
    fn options_replace_and_are_added() {
        let header = header(
            "/* { dg-do run } */\n/* { dg-options \"-O0 -g\" } */\n\
             // { dg-additional-options \"-std=gnu99\" {target c } }\n\
             /* { dg-additional-options \"-march=i586\" { target { { i?86-*-* x86_64-*-* } && ia32 } } } */",
        );
        assert_eq!(header.left_out, None);
        assert_eq!(header.options, Some(vec!["-O0".to_owned(), "-g".to_owned()]));
        assert_eq!(header.more, ["-std=gnu99"]);
    }

    #[test]
    fn only_programs_that_run_here_are_of_use() {
        assert!(header("/* { dg-do compile } */").left_out.is_some());
        assert!(header("! { dg-do run { target alpha*-*-* } }").left_out.is_some());
        assert!(header("/* { dg-require-effective-target offload_device } */").left_out.is_some());
        assert!(header("/* { dg-skip-if \"\" { *-*-* } } */").left_out.is_some());
        assert!(header("foo (); /* { dg-error \"bad\" } */").left_out.is_some());
        assert_eq!(header("/* { dg-do run { target lp64 } } */").left_out, None);
        assert_eq!(header("/* { dg-require-effective-target tls } */").left_out, None);
        assert_eq!(header("/* { dg-xfail-run-if TODO { offload_any } } */").left_out, None);
    }

    #[test]
    fn environment_status_and_output_are_read() {
        let header = header(
            "/* { dg-set-target-env-var OMP_CANCELLATION \"true\" } */\n\
             /* { dg-additional-sources \"a.c b.c\" } */\n\
             /* { dg-shouldfail \"error directive\" } */\n\
             /* { dg-output \"device \\\\\\[\\[0-9\\]+\" } */\n/* { dg-output \" end(\\n|\\r)\" } */",
        );
        assert_eq!(header.environment, [("OMP_CANCELLATION".to_owned(), "true".to_owned())]);
        assert_eq!(header.sources, ["a.c", "b.c"]);
        assert!(header.should_fail);
        assert_eq!(header.output, r"device \[[0-9]+ end(\n|\r)");
    }

    #[test]
    fn what_is_no_directive_is_passed_over() {
        for line in
            ["{ dg-", "{ dg-do", "{ dg-do run", "{ dg-do {run ", "{ dg-do \"run }", "{", "}"]
        {
            assert_eq!(directive(line), None, "{line}");
        }
        assert_eq!(directive(&format!("{{ dg-do {}", "{".repeat(100_000))), None);
    }

    #[test]
    fn drivers_name_flags_and_folders() {
        let driver = Driver::parse(
            "set DEFAULT_CFLAGS \"-O2 -g\"\nlappend ALWAYS_CFLAGS \"additional_flags=-fopenmp\"\n\
             lappend ALWAYS_CFLAGS \"additional_flags=-B${blddir}/\"\n\
             set GCC_UNDER_TEST \"$GCC_UNDER_TEST -x c++\"\n\
             [find $srcdir/$subdir *.C] [find $srcdir/$subdir/../both.c-c++ *.c]",
        );
        assert_eq!(driver.flags, ["-fopenmp"]);
        assert_eq!(driver.default, ["-O2", "-g"]);
        assert_eq!(driver.also, [("both.c-c++".to_owned(), "c".to_owned())]);
        assert!(driver.as_cxx);
    }
}

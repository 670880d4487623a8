//! The Open POSIX test suite: each `NUMBER-NUMBER.c` is a program, and 0 means that it passed.

use std::path::{Path, PathBuf};

/// What a test calls its entry where `main` is in the suite's `lib`.
pub const ENTRY: &str = "test_main";

/// Whether a file is a test by its name.
#[must_use]
pub fn is_test(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_suffix(".c")
        .and_then(|stem| stem.split_once('-'))
        .is_some_and(|(assertion, test)| number(assertion) && number(test))
}

/// The folder of the suite that a test is in: the nearest with `include/posixtest.h`.
#[must_use]
pub fn root(test: &Path) -> Option<PathBuf> {
    test.ancestors()
        .skip(1)
        .find(|dir| dir.join("include/posixtest.h").is_file())
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::is_test;

    #[test]
    fn tests_have_two_numbers() {
        assert!(is_test("1-1.c"));
        assert!(is_test("12-3.c"));
        for name in ["1-1-buildonly.c", "testfrmw.c", "4-1.sh", "-1.c", "1-.c", "1.c"] {
            assert!(!is_test(name), "{name}");
        }
    }
}

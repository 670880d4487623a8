//! What the compiler of C makes of the headers in `probe/c`, for tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What has to hold for a header.
pub(crate) struct Header {
    source: String,
}

impl Header {
    pub(crate) fn of(header: &str) -> Self {
        Self { source: format!("#include \"{header}\"\n#include <stddef.h>\n") }
    }

    /// A condition of C.
    pub(crate) fn holds(&mut self, what: impl Display) {
        self.source += &format!("_Static_assert({what}, \"\");\n");
    }

    /// Compiles it, with this text, too: an expression of C that has to be `is`.
    pub(crate) fn check(self, text: &str, is: &str) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("header.c");
        fs::write(&file, self.source + &format!("const char *text = {text};\n")).unwrap();
        let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        for strict in ["-std=c11", "-std=gnu11"] {
            let output = Command::new("cc")
                .args([strict, "-Wall", "-Wextra", "-Werror", "-S", "-o", "-", "-I"])
                .args([&probe, &file])
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let assembled = String::from_utf8_lossy(&output.stdout);
            assert!(assembled.contains(&format!("\"{is}\"")), "{assembled}");
        }
    }
}

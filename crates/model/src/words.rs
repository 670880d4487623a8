//! Numbers with their nouns.

use std::fmt::Display;

/// `1 thread`, `3 threads`: for nouns that take an s.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(n: N, what: &str) -> String {
    let s = if n == N::from(1) { "" } else { "s" };
    format!("{n} {what}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        let said = [counted(0_u32, "move"), counted(1_u64, "move"), counted(2_usize, "move")];
        assert_eq!(said, ["0 moves", "1 move", "2 moves"]);
    }
}

//! Words of the shell.

/// For the shell: the folder in which a test is built.
pub const DIR: &str = "\"$EVENLY_PEERS_DIR\"";
/// The variable in it.
pub const DIR_VARIABLE: &str = "EVENLY_PEERS_DIR";

/// A word of the shell.
#[must_use]
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

//! Text from outside, such as names of threads and files, without what would drive a terminal.
//!
//! Invariant: whatever goes through [`Printable`] has no control character but line feed and tab, none
//! that turns the direction of text, and none that is invisible. All else stays as it is.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a character can be shown as it is: no control character (C0, DEL, C1), none that turns the
/// direction of text, no separator of lines, and none without a width of its own that hides in text.
#[must_use]
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A word as a shell takes it: quoted where that is needed.
#[must_use]
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if !word.chars().all(is_printable) {
        // As bash, zsh and ksh read it, so that the line can be shown and pasted.
        let ansi = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if is_printable(c) => c.to_string(),
            c => c.encode_utf8(&mut [0; 4]).bytes().map(|b| format!("\\{b:03o}")).collect(),
        };
        format!("$'{}'", word.chars().map(ansi).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Text from outside as it may stand in a line. What is not printable, line feeds and tabs too, becomes
/// U+FFFD, one for each character.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let shown = |c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER };
    Cow::Owned(text.chars().map(shown).collect())
}

/// What becomes of a character that is not printable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// U+FFFD stands in the place of what is no text.
    Replaced,
    /// `\u` and its code. Outside of strings JSON has no such characters, so it stays the same JSON.
    Escaped,
}

/// A writer that passes on what is printable, and line feeds and tabs. It stands before the standard
/// streams, so that no text gets around it. Bytes that are not UTF-8 become U+FFFD.
#[derive(Debug)]
pub struct Printable<W> {
    out: W,
    shown: Shown,
    /// Control sequences that pass.
    styles: &'static [&'static str],
    /// The beginning of a character whose other bytes have not come yet.
    begun: Vec<u8>,
}

impl<W: Write> Printable<W> {
    /// For text: what is not printable becomes U+FFFD.
    pub fn text(out: W) -> Self {
        Self { out, shown: Shown::Replaced, styles: &[], begun: Vec::new() }
    }

    /// For text in which these control sequences pass, each written as a whole: our own colours.
    pub fn styled(out: W, styles: &'static [&'static str]) -> Self {
        Self { styles, ..Self::text(out) }
    }

    /// For JSON: what is not printable is escaped, so that nothing is lost.
    pub fn json(out: W) -> Self {
        Self { shown: Shown::Escaped, ..Self::text(out) }
    }

    fn clean(&self, text: &str, into: &mut String) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let style = self.styles.iter().find(|s| rest.starts_with(**s));
            let (kept, others) = rest.split_at(style.map_or(c.len_utf8(), |s| s.len()));
            rest = others;
            if style.is_some() || matches!(c, '\n' | '\t') || is_printable(c) {
                into.push_str(kept);
            } else if self.shown == Shown::Replaced {
                into.push(char::REPLACEMENT_CHARACTER);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(into, "\\u{unit:04x}");
                }
            }
        }
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut clean = String::with_capacity(all.len());
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let (valid, after, bad) = match str::from_utf8(rest) {
                Ok(text) => (text, &rest[rest.len()..], None),
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    (str::from_utf8(valid).unwrap_or_default(), after, Some(e.error_len()))
                }
            };
            self.clean(valid, &mut clean);
            rest = match bad {
                None => after,
                Some(Some(n)) => {
                    clean.push(char::REPLACEMENT_CHARACTER);
                    &after[n..]
                }
                Some(None) => {
                    self.begun = after.to_vec();
                    &[]
                }
            };
        }
        self.out.write_all(clean.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can drive a terminal or hide: escape sequences of 7 and 8 bits, DEL, turned text, characters
    /// without a width, tags.
    const HOSTILE: &str =
        "\x1b[2J\x07\r\x7f\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}";

    fn written(mut out: Printable<Vec<u8>>, parts: &[&[u8]]) -> String {
        parts.iter().for_each(|p| out.write_all(p).unwrap());
        String::from_utf8(out.out).unwrap()
    }

    #[test]
    fn letters_of_all_languages_stay() {
        let text = "na\u{ef}ve \u{65e5}\u{672c} \u{5d0}\u{5d1} \u{1f9ea} e\u{301}~";
        assert!(matches!(printable(text), Cow::Borrowed(t) if t == text));
        assert_eq!(written(Printable::text(Vec::new()), &[text.as_bytes()]), text);
    }

    #[test]
    fn what_is_not_printable_is_replaced_one_for_one() {
        let shown = printable(HOSTILE);
        assert!(shown.chars().all(is_printable), "{shown:?}");
        assert_eq!(shown.chars().count(), HOSTILE.chars().count());
        assert_eq!(printable("a\nb\tc"), "a\u{fffd}b\u{fffd}c");
        let text = written(Printable::text(Vec::new()), &[HOSTILE.as_bytes(), b"a\nb\tc\n"]);
        assert_eq!(text, format!("{shown}a\nb\tc\n"));
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({ "name": HOSTILE, "list": [1, "\u{10ffff}"] });
        let text = written(Printable::json(Vec::new()), &[format!("{value:#}\n").as_bytes()]);
        assert!(text.chars().all(|c| c == '\n' || is_printable(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_character_may_come_in_parts() {
        let text = "\u{e4}\u{9b}\u{1f9ea}";
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(written(Printable::text(Vec::new()), &bytes), "\u{e4}\u{fffd}\u{1f9ea}");
        assert_eq!(
            written(Printable::text(Vec::new()), &[b"a\xffb\xc3", b"(\x80"]),
            "a\u{fffd}b\u{fffd}(\u{fffd}"
        );
    }

    #[test]
    fn only_the_styles_named_pass() {
        let out = Printable::styled(Vec::new(), &["\x1b[1m", "\x1b[0m"]);
        let text = written(out, &[b"\x1b[1mbold\x1b[0m \x1b[8mhidden \x1b"]);
        assert_eq!(text, "\x1b[1mbold\x1b[0m \u{fffd}[8mhidden \u{fffd}");
    }
}

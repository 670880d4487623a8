//! Numbers with their nouns, names with letters that stand for something, and names that were probably meant.

use std::fmt::Display;

/// `1 thread`, `3 threads`: for nouns that take an s.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(n: N, what: &str) -> String {
    let s = if n == N::from(1) { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// A number as it is shown in an error: with a power of ten where it would be hundreds of digits.
#[must_use]
pub fn short(x: f64) -> String {
    let plain = x == 0.0 || !x.is_finite() || (1e-6..1e15).contains(&x.abs());
    if plain { x.to_string() } else { format!("{x:e}") }
}

/// ` (did you mean hybrid?)`, where one of these names differs from the word by few letters that are missing, wrong,
/// too many or swapped; else nothing.
#[must_use]
pub fn or_meant<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = |name: &'a str| {
        let wrong = strsim::osa_distance(word, name);
        (wrong <= (name.len() / 3).max(1) && wrong < name.len()).then_some((wrong, name))
    };
    match names.into_iter().filter_map(near).min_by_key(|found| found.0) {
        Some((_, name)) => format!(" (did you mean {name}?)"),
        None => String::new(),
    }
}

/// A name in which `%` and a letter stand for what `value` gives, and `%%` for `%`.
///
/// # Errors
/// The first `%` with a letter for which there is nothing, or with none.
pub fn filled(name: &str, value: &mut dyn FnMut(char) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => out.push('%'),
            Some(letter) => match value(letter) {
                Some(text) => out.push_str(&text),
                None => return Err(format!("%{letter}")),
            },
            None => return Err(String::from("%")),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_what_they_are_given() {
        let fill = |name| filled(name, &mut |c| (c == 'p').then(|| String::from("7%p")));
        assert_eq!(fill("a-%p-100%%.json"), Ok("a-7%p-100%.json".into()));
        assert_eq!((fill("%q"), fill("x%")), (Err("%q".into()), Err("%".into())));
    }

    #[test]
    fn a_name_with_few_wrong_letters_was_meant() {
        let meant = |word| or_meant(word, ["hybrid", "juggle", "hpc-auto", "on", "off"]);
        for (word, name) in
            [("hybird", "hybrid"), ("jugle", "juggle"), ("hpcauto", "hpc-auto"), ("onn", "on")]
        {
            assert_eq!(meant(word), format!(" (did you mean {name}?)"));
        }
        for word in ["", "x", "balance", "kernel"] {
            assert_eq!(meant(word), "", "{word}");
        }
    }

    #[test]
    fn one_is_not_many() {
        let said = [counted(0_u32, "move"), counted(1_u64, "move"), counted(2_usize, "move")];
        assert_eq!(said, ["0 moves", "1 move", "2 moves"]);
    }

    #[test]
    fn numbers_in_errors_are_short() {
        for (x, shown) in [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (4e6, "4000000"),
            (1e308, "1e308"),
            (-2e-300, "-2e-300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(short(x), shown);
        }
    }
}

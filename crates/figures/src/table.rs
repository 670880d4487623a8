//! Numbers as text.
//!
//! Invariant: a number reads the same on every machine: a fixed number of decimals, no exponent.

/// With at most six decimals, and no zeros at the end.
#[must_use]
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { String::from("0") } else { text.to_owned() }
}

/// Without decimals; never -0.
#[must_use]
pub(crate) fn whole(value: f64) -> String {
    number(value.round())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let all = [0.0, -1e-9, 1.0, 10.0, 0.25, 2.0 / 3.0, 1_000_000.0].map(number);
        assert_eq!(all, ["0", "0", "1", "10", "0.25", "0.666667", "1000000"]);
    }
}

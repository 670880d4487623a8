//! Conditions of test suites: words with `!`, `&&`, `||` and brackets. DejaGnu writes brackets as braces and
//! means "or" by mere juxtaposition; lit writes parentheses.

/// Deeper brackets are not read.
const DEPTH: usize = 32;

/// Whether a condition holds, where `known` says which words do. One that cannot be read does not.
pub(crate) fn holds(condition: &str, known: &dyn Fn(&str) -> bool) -> bool {
    let tokens = tokens(condition);
    let mut parser = Parser { tokens: &tokens, at: 0, known };
    let value = parser.any(0);
    value == Some(true) && parser.at == tokens.len()
}

fn tokens(condition: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = condition.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '{' | '}' | '(' | ')' | '!' => 1,
            '&' | '|' => rest.find(|c| c != first).unwrap_or(rest.len()),
            _ => rest
                .find(|c: char| c.is_whitespace() || "{}()!&|".contains(c))
                .unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    at: usize,
    known: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).copied()
    }

    fn any(&mut self, depth: usize) -> Option<bool> {
        let mut value = self.all(depth)?;
        loop {
            match self.peek() {
                Some("||") => self.at += 1,
                None | Some("}" | ")" | "&&") => return Some(value),
                // Two beside each other.
                Some(_) => {}
            }
            value |= self.all(depth)?;
        }
    }

    fn all(&mut self, depth: usize) -> Option<bool> {
        let mut value = self.one(depth)?;
        while self.peek() == Some("&&") {
            self.at += 1;
            value &= self.one(depth)?;
        }
        Some(value)
    }

    fn one(&mut self, depth: usize) -> Option<bool> {
        if depth > DEPTH {
            return None;
        }
        let token = self.peek()?;
        let closing = match token {
            "!" => {
                self.at += 1;
                return self.one(depth + 1).map(|value| !value);
            }
            "{" => "}",
            "(" => ")",
            "}" | ")" | "&&" | "||" => return None,
            word => {
                let value = (self.known)(word);
                self.at += 1;
                return Some(value);
            }
        };
        self.at += 1;
        let value = self.any(depth + 1)?;
        (self.peek() == Some(closing)).then(|| self.at += 1)?;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::holds;

    fn value(condition: &str) -> bool {
        holds(condition, &|word| word.starts_with('x'))
    }

    #[test]
    fn words_are_looked_up() {
        assert!(value("x86_64-*-*"));
        assert!(!value("i?86-*-*"));
    }

    #[test]
    fn braces_mean_or_between_words() {
        assert!(value("{ i?86-*-* x86_64-*-* }"));
        assert!(!value("i?86-*-* alpha*-*-*"));
    }

    #[test]
    fn and_binds_more_than_or() {
        assert!(value("{ { i?86-*-* x86_64-*-* } && x64 }"));
        assert!(!value("{ { i?86-*-* x86_64-*-* } && ia32 }"));
        assert!(value("x || a && b"));
    }

    #[test]
    fn not_negates_what_follows() {
        assert!(value("! run_expensive_tests"));
        assert!(!value("{ ! x }"));
        assert!(value("x && !(a || b)"));
    }

    #[test]
    fn what_cannot_be_read_does_not_hold() {
        for condition in ["", "{ x", "x }", "&& x", "x ||", "!", &"{".repeat(100_000)] {
            assert!(!value(condition), "{condition:.20}");
        }
        assert!(!value(&"!".repeat(100_000)));
    }
}

//! Which arms a list of policies asks for:
//! `kernel,kernel:OMP_WAIT_POLICY=passive,juggle:--period=50ms --cpus=0,1`.
//!
//! Invariant: the parts, put together with commas, are the list again; nothing of it is lost.

/// What is asked for by one part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The part as it stands in the list.
    pub text: &'a str,
    /// What stands before the colon, or all of it.
    pub policy: &'a str,
    /// What stands behind the colon, if there is one.
    pub options: Option<&'a str>,
}

impl<'a> Spec<'a> {
    fn of(text: &'a str) -> Self {
        let (policy, options) = match text.split_once(':') {
            Some((policy, options)) => (policy, Some(options)),
            None => (text, None),
        };
        Self { text, policy, options }
    }

    /// The variables with which the program is started: the first words behind the colon, as a shell has
    /// them before a command.
    pub fn variables(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.split().map_while(variable)
    }

    /// The words behind them.
    pub fn words(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.split().skip_while(|word| variable(word).is_some())
    }

    fn split(&self) -> std::str::SplitWhitespace<'a> {
        self.options.unwrap_or_default().split_whitespace()
    }
}

/// Name and value, where a word is an assignment.
#[must_use]
pub fn variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit());
    is_name.then_some((name, value))
}

/// The parts of a list. Options may have commas of their own (`juggle:--cpus=0,1`): behind a colon only
/// a comma with a name that is known after it begins the next part.
#[must_use]
pub fn specs<'a>(list: &'a str, known: &dyn Fn(&str) -> bool) -> Vec<Spec<'a>> {
    let begins = |text: &str| known(text.split([',', ':']).next().unwrap_or_default());
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, _) in list.match_indices(',') {
        if !list[start..at].contains(':') || begins(&list[at + 1..]) {
            parts.push(Spec::of(&list[start..at]));
            start = at + 1;
        }
    }
    parts.push(Spec::of(&list[start..]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_policies() {
        let known =
            |name: &str| ["kernel", "static", "hybrid", "juggle", "observe"].contains(&name);
        let split = |list| -> Vec<&str> { specs(list, &known).iter().map(|s| s.text).collect() };
        assert_eq!(split("kernel,static,hybrid"), ["kernel", "static", "hybrid"]);
        assert_eq!(
            split("juggle:--cpus=0,1 --period=5ms,hybrid:--cpus=0,2-3,kernel,observe"),
            ["juggle:--cpus=0,1 --period=5ms", "hybrid:--cpus=0,2-3", "kernel", "observe"]
        );
        // A name that is wrong is found to be wrong, and not swallowed.
        assert_eq!(split("kernel,hybird,juggle"), ["kernel", "hybird", "juggle"]);
        assert_eq!(split("kernel,,juggle"), ["kernel", "", "juggle"]);
        assert_eq!(split(""), [""]);
        let spec = Spec::of("juggle: --cpus=0,1  -q");
        assert_eq!(
            (spec.policy, spec.words().collect::<Vec<_>>()),
            ("juggle", vec!["--cpus=0,1", "-q"])
        );
        assert_eq!(Spec::of("juggle").options, None);
    }

    #[test]
    fn variables_stand_before_options() {
        let known = |name: &str| ["kernel", "hybrid"].contains(&name);
        // Commas and colons of values are theirs.
        let list = "kernel,kernel:OMP_NUM_THREADS=4,2 OMP_PLACES={0:2},{2:2},\
                    hybrid:OMP_WAIT_POLICY=passive --set tolerance=5 --cpus=0,1,kernel:A_1= _b=x=y";
        let all = specs(list, &known);
        let parts: Vec<(&str, Vec<_>, Vec<_>)> =
            all.iter().map(|s| (s.policy, s.variables().collect(), s.words().collect())).collect();
        assert_eq!(
            parts,
            [
                ("kernel", vec![], vec![]),
                ("kernel", vec![("OMP_NUM_THREADS", "4,2"), ("OMP_PLACES", "{0:2},{2:2}")], vec![]),
                (
                    "hybrid",
                    vec![("OMP_WAIT_POLICY", "passive")],
                    vec!["--set", "tolerance=5", "--cpus=0,1"]
                ),
                ("kernel", vec![("A_1", ""), ("_b", "x=y")], vec![]),
            ]
        );
        for word in ["--period=5ms", "=x", "1A=x", "weight-step=10", "A", "", "A B=x"] {
            assert_eq!(variable(word), None, "{word}");
        }
    }
}

//! Which arms a list of policies asks for: `kernel,hybrid,juggle:--period=50ms --cpus=0,1`.
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

    /// The words behind the colon.
    pub fn words(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.options.unwrap_or_default().split_whitespace()
    }
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
}

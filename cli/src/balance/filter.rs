//! Which threads are balanced, by their names.

use crate::flags::BalanceArgs;
use evenly_engine::{Candidate, Eligible};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// `--only`, `--skip` and `--idle-thread`.
pub(super) struct Filter {
    only: Option<GlobSet>,
    skip: GlobSet,
    idle: Option<String>,
}

impl Filter {
    pub(super) fn new(args: &BalanceArgs) -> anyhow::Result<Self> {
        let globs = |option: &str, list: &[String]| -> anyhow::Result<GlobSet> {
            let mut set = GlobSetBuilder::new();
            for g in list {
                let glob =
                    Glob::new(g).map_err(|e| anyhow::anyhow!("{option} '{g}': {}", e.kind()));
                set.add(glob?);
            }
            Ok(set.build()?)
        };
        Ok(Self {
            only: (!args.only.is_empty()).then(|| globs("--only", &args.only)).transpose()?,
            skip: globs("--skip", &args.skip)?,
            idle: args.idle_thread.clone(),
        })
    }

    pub(super) fn into_eligible(self, names: Names) -> Option<Eligible> {
        if self.only.is_none() && self.skip.is_empty() && self.idle.is_none() {
            return None;
        }
        Some(Box::new(move |c: &Candidate| {
            let idle = match self.idle.as_deref() {
                Some("first") => c.first,
                Some(name) => c.name == name,
                None => false,
            };
            let left = !idle
                && !self.skip.is_match(&c.name)
                && self.only.as_ref().is_none_or(|o| o.is_match(&c.name));
            names.saw(&c.name, left);
            left
        }))
    }
}

/// Names of threads that the filter left, and of those that it left out, for the report.
#[derive(Clone, Default)]
pub(super) struct Names(Arc<Mutex<[BTreeSet<String>; 2]>>);

/// Of each so many names are kept.
const MOST_NAMES: usize = 8;

impl Names {
    fn saw(&self, name: &str, left: bool) {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let set = &mut sets[usize::from(!left)];
        if set.len() < MOST_NAMES && !set.contains(name) {
            set.insert(name.to_owned());
        }
    }

    pub(super) fn all(&self) -> [Vec<String>; 2] {
        let sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.clone().map(|set| set.into_iter().collect())
    }
}

/// The options that choose threads by name, as they were given.
pub(super) fn filter_as_given(args: &BalanceArgs) -> Vec<String> {
    let only = args.only.iter().map(|g| format!("--only {g}"));
    let skip = args.skip.iter().map(|g| format!("--skip {g}"));
    let idle = args.idle_thread.iter().map(|w| format!("--idle-thread {w}"));
    only.chain(skip).chain(idle).collect()
}

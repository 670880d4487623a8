//! The figures: what each must show, and that those in docs are what the code draws now. One program,
//! so that each figure is made once.
#![allow(missing_docs, clippy::unwrap_used)]

mod claims;
mod committed;
mod others;

use evenly_figures::{Figure, Info, make, select};
use std::sync::OnceLock;

/// The one that takes long: a million runs.
const LONG: &str = "juggle-10";

fn blessing() -> bool {
    std::env::var_os("EVENLY_BLESS").is_some()
}

/// All figures; without optimisation all but [`LONG`]. Made once, by whichever test comes first.
fn figures() -> &'static [Figure] {
    static MADE: OnceLock<Vec<Figure>> = OnceLock::new();
    MADE.get_or_init(|| {
        let short = |f: &&Info| blessing() || !cfg!(debug_assertions) || f.id != LONG;
        let wanted: Vec<_> = select(None, &[]).unwrap().into_iter().filter(short).collect();
        make(&wanted, |_| {}).unwrap()
    })
}

fn figure(id: &str) -> &'static Figure {
    figures().iter().find(|f| f.info.id == id).unwrap()
}

//! Durations as users write them.
#![no_main]

use evenly_model::{Nanos, parse_duration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match parse_duration(text) {
    Ok(d) => assert!(d <= Nanos(1_000_000_000_000_000)),
    Err(e) => assert!(!e.to_string().is_empty()),
});

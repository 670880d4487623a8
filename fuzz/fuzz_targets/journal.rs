//! The journal of changed masks.
#![no_main]

use evenly_linux::journal::JournalView;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match JournalView::parse(bytes) {
    Ok(view) => assert!(view.records.len() <= bytes.len()),
    Err(e) => assert!(!e.to_string().is_empty()),
});

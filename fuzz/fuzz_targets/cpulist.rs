//! Lists of CPUs: what is printed is read as the same set.
#![no_main]

use evenly_model::CpuSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match text.parse::<CpuSet>() {
    Ok(set) => assert_eq!(set.to_string().parse(), Ok(set)),
    Err(e) => assert!(!e.to_string().is_empty()),
});

//! What programs print, searched for a figure: a value is a number of seconds, or it is said why
//! there is none.
#![no_main]

use evenly_compare::Metric;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match Metric::Field("makespan_s".to_owned()).in_output(bytes) {
    Ok(seconds) => assert!(seconds.is_finite() && seconds > 0.0),
    Err(e) => assert!(!e.to_string().is_empty()),
});

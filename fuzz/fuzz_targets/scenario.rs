//! Scenario files of `evenly simulate`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match evenly_sim::parse(text) {
        Ok(d) => {
            assert!(!d.scenario.threads.is_empty() && !d.scenario.cpus.is_empty());
            assert!(d.scenario.threads.iter().all(|t| !t.mask.is_empty()));
        }
        Err(e) => assert_eq!(e.to_string().lines().count(), 1, "{e}"),
    }
});

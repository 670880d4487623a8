//! Lists of CPU speeds as users write them, and what is computed from them.
#![no_main]

use evenly_model::Nanos;
use evenly_model::theory::Speeds;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match text.parse::<Speeds>() {
    Ok(s) => {
        assert!(s.cpus() > 0 && s.cpus() as usize <= Speeds::MOST);
        let e = Nanos::from_millis(1_000);
        let n = s.cpus().min(1_000) + 1;
        assert!(s.continuous_time(n, e) <= s.best_static_time(n, e));
        assert!(s.best_static_time(n, e) <= s.static_time(n, e));
    }
    Err(e) => assert!(!e.to_string().is_empty()),
});

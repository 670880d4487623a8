//! `/proc/<pid>/status`.
#![no_main]

use evenly_linux::proc::{status_field, status_number};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for key in ["Tgid", "SigIgn", "Cpus_allowed_list", "voluntary_ctxt_switches"] {
        let field = status_field(bytes, key);
        assert!(status_number(bytes, key).is_none() || field.is_some());
    }
});

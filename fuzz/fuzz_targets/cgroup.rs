//! `/proc/<pid>/cgroup`.
#![no_main]

use evenly_linux::limits::parse_cgroup;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(parse_cgroup(bytes).iter().all(|line| line.path.is_absolute()));
});

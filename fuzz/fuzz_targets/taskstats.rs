//! Netlink messages of the taskstats family, and the structure in them.
#![no_main]

use evenly_linux::taskstats::{TaskTimes, parse_answer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_answer(bytes);
    let _ = TaskTimes::parse(bytes);
});

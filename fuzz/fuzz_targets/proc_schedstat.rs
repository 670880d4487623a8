//! `schedstat`, which is read by hand for speed: it agrees with the plain way of reading it.
#![no_main]

use evenly_linux::proc::parse_schedstat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(times) = parse_schedstat(bytes) else { return };
    let text: Vec<u64> = bytes
        .split(|b| !b.is_ascii_digit())
        .take(3)
        .map(|n| std::str::from_utf8(n).expect("digits").parse().expect("a number"))
        .collect();
    assert_eq!((times.ran.0, times.waited.0), (text[0], text[1]));
});

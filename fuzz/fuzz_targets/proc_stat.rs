//! `/proc/<pid>/stat`: any bytes, and a line with any name is read as that name.
#![no_main]

use evenly_linux::proc::Stat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(stat) = Stat::parse(bytes) {
        let _ = (stat.name(), stat.is_fair(), stat.run_state());
    }
    let mut line = b"7 (".to_vec();
    line.extend(bytes);
    line.extend(
        b") R 1 7 7 0 -1 0 12 0 34 0 0 0 0 0 20 0 3 0 4242 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 5 0 0",
    );
    let stat = Stat::parse(&line).expect("a line with any name");
    assert_eq!((stat.id, stat.comm.as_slice(), stat.state), (7, bytes, b'R'));
    assert_eq!((stat.minor_faults, stat.major_faults, stat.start), (12, 34, 4242));
});

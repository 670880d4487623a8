//! Caches of CPUs, the `cpuN` lines of `/proc/stat`, and the division into domains.
#![no_main]

use evenly_linux::limits::{Cache, last_cache, parse_stat_cpus, partition};
use evenly_model::CpuSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
    let caches: Vec<Cache> =
        lines.chunks_exact(3).filter_map(|l| Cache::parse(l[0], l[1], l[2])).collect();
    if let Some(cpus) = last_cache(&caches) {
        assert!(!cpus.is_empty());
    }
    let within = parse_stat_cpus(bytes);
    let parts = partition(caches.into_iter().map(|c| c.cpus), &within);
    assert_eq!(parts.iter().map(CpuSet::len).sum::<usize>(), within.len());
    assert_eq!(parts.iter().fold(CpuSet::new(), |all, p| all.or(p)), within);
});

//! `cpu.max`, `cpu.cfs_quota_us` with `cpu.cfs_period_us`, and `cpu.stat`.
#![no_main]

use evenly_linux::limits::{parse_cfs_quota, parse_cpu_max, parse_cpu_stat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let half = bytes.iter().position(|&b| b == b'\n').unwrap_or(bytes.len());
    let (quota, period) = bytes.split_at(half);
    for cpus in
        [parse_cpu_max(bytes), parse_cfs_quota(quota, period)].into_iter().flatten().flatten()
    {
        assert!(cpus > 0.0 && cpus.is_finite());
    }
    let _ = parse_cpu_stat(bytes);
});

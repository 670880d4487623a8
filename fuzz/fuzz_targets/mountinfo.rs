//! `/proc/self/mountinfo`: a group's directory never leaves its mount point.
#![no_main]

use evenly_linux::limits::parse_mountinfo;
use libfuzzer_sys::fuzz_target;
use std::path::{Component, Path};

fuzz_target!(|bytes: &[u8]| {
    let mounts = parse_mountinfo(bytes);
    let groups = mounts.iter().flat_map(|m| [m.point.as_path(), m.root.as_path()]);
    for group in groups.chain([Path::new("/"), Path::new("/../a")]) {
        for mount in &mounts {
            if let Some(below) = mount.relative(group) {
                assert!(
                    below
                        .components()
                        .all(|c| !matches!(c, Component::ParentDir | Component::RootDir))
                );
            }
        }
    }
});

//! All parsers of the lab at once, for fuzzing.

use crate::kernel::{candidates, extract};
use crate::{cgroup, initramfs, qmp, speed};

/// What of the bytes was something to one of the parsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Read {
    /// Mounts and groups: a hierarchy with quotas.
    pub hierarchy: bool,
    /// What the busy program of a guest prints.
    pub speeds: bool,
    /// What the loader lists, with libraries in it.
    pub libraries: bool,
    /// A program that asks for a loader.
    pub loader: bool,
    /// Names of packages with kernels among them.
    pub kernels: bool,
    /// An image of a kernel.
    pub image: bool,
    /// QEMU's answer about its CPUs.
    pub cpus: bool,
}

/// Reads arbitrary bytes as everything that the lab reads: answers of QEMU and of guests, listings,
/// images, programs. Whatever the bytes are, it returns.
#[must_use]
pub fn exercise(bytes: &[u8]) -> Read {
    let text = String::from_utf8_lossy(bytes);
    let speeds = speed::EqualSpeed::parse(&text, 0.05);
    if let Ok(speeds) = &speeds {
        let _ = (speeds.verdict(), speeds.to_string());
    }
    Read {
        hierarchy: cgroup::is_hierarchy(&text),
        speeds: speeds.is_ok(),
        libraries: initramfs::libraries(&text).is_ok_and(|paths| !paths.is_empty()),
        loader: initramfs::interpreter(bytes).is_some(),
        kernels: !candidates(&text, "6").is_empty(),
        image: extract(bytes).is_ok(),
        cpus: serde_json::from_slice(bytes)
            .is_ok_and(|answer| qmp::parse_vcpus(&answer).is_ok_and(|cpus| !cpus.is_empty())),
    }
}

//! Trees of other machines, written out (`tests/captured/README.md` has the format).

use std::collections::BTreeMap;
use std::fs;

/// Writes a tree out, with the links that the kernel makes to settings of CPUs.
pub(crate) fn written(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut files = BTreeMap::<&str, String>::new();
    for (path, line) in text.lines().map(|l| l.split_once(':').unwrap()) {
        *files.entry(path).or_default() += &format!("{line}\n");
    }
    for (path, text) in files {
        let to = dir.path().join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(&to, &text).unwrap();
        if to.ends_with("affected_cpus") {
            let policy = to.parent().unwrap();
            for cpu in text.split_ascii_whitespace() {
                let of = policy.parent().unwrap().with_file_name(format!("cpu{cpu}"));
                fs::create_dir_all(&of).unwrap();
                std::os::unix::fs::symlink(policy, of.join("cpufreq")).unwrap();
            }
        }
    }
    dir
}

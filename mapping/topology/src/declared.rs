//! What the firmware declares of distances, as Linux shows it: the SLIT (relative distances) and the
//! HMAT (latency and bandwidth of the nearest readers), and what Linux says of a node's memory.
//!
//! Invariant: every file is read below a root that is given, and parsing is pure and total: any bytes
//! give a value or nothing.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// Most nodes that a line of distances is read for.
const MOST_NODES: usize = 4096;

/// What a host declares of its memory and devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Declared {
    /// Numbers of the NUMA nodes.
    pub nodes: Vec<u32>,
    /// ACPI SLIT: relative distances from each node (rows) to each, 10 to itself. None where a row is
    /// missing or none.
    pub slit: Option<Vec<Vec<u32>>>,
    /// ACPI HMAT, of the nodes that have it: what the nearest of all initiators get, which may be
    /// devices (`access0`).
    pub hmat: Vec<Access>,
    /// The same of the nearest nodes that have CPUs (`access1`).
    pub hmat_cpus: Vec<Access>,
}

/// What the nearest readers get from a node's memory. Linux shows no others, in two classes
/// (Documentation/admin-guide/mm/numaperf.rst): the best of all initiators, and the best of those with
/// CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The node whose memory it is.
    pub memory: u32,
    /// The nodes that read it.
    pub readers: Vec<u32>,
    /// Latency of a read, in nanoseconds.
    pub read_latency_ns: Option<u64>,
    /// Latency of a write, in nanoseconds.
    pub write_latency_ns: Option<u64>,
    /// Bandwidth of reads, in megabytes a second.
    pub read_mb_per_s: Option<u64>,
    /// Bandwidth of writes, in megabytes a second.
    pub write_mb_per_s: Option<u64>,
}

fn number(word: &[u8]) -> Option<u64> {
    // Digits only: `parse` would take a sign.
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word).ok().filter(|_| digits)?.parse().ok()
}

/// Reads `/sys/devices/system/node/nodeN/distance`: a distance to each node, none of them 0.
#[must_use]
pub fn parse_slit(text: &[u8]) -> Option<Vec<u32>> {
    let words = text.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let row: Vec<u32> = words
        .take(MOST_NODES + 1)
        .map(|w| number(w).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
        .collect::<Option<_>>()?;
    (!row.is_empty() && row.len() <= MOST_NODES).then_some(row)
}

/// Reads a file of `access0/initiators` or `access1/initiators`, such as `read_latency`: one number. The kernel writes 0 where
/// the firmware gives none.
#[must_use]
pub fn parse_hmat(text: &[u8]) -> Option<u64> {
    number(text.trim_ascii()).filter(|n| *n > 0)
}

/// Reads `/sys/devices/system/node/nodeN/meminfo` (or `/proc/meminfo`): free memory in bytes.
#[must_use]
pub fn parse_free(text: &[u8]) -> Option<u64> {
    let line = |line: &[u8]| -> Option<u64> {
        let words: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect();
        let at = words.iter().position(|w| *w == b"MemFree:")?;
        if words.get(at + 2) != Some(&b"kB".as_slice()) {
            return None;
        }
        number(words[at + 1])?.checked_mul(1024)
    };
    text.split(|&b| b == b'\n').find_map(line)
}

/// Reads `/proc/self/smaps`: bytes in huge pages of the mapping that holds an address.
#[must_use]
pub fn parse_huge(text: &[u8], address: u64) -> Option<u64> {
    let mut inside = false;
    for line in text.split(|&b| b == b'\n') {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        let Some(first) = words.next() else { continue };
        if first == b"AnonHugePages:" {
            if inside {
                return number(words.next()?)?.checked_mul(1024);
            }
        } else if let Some((start, end)) = range(first) {
            inside = start <= address && address < end;
        }
    }
    None
}

/// A range of addresses, such as `7f1200000000-7f1240000000`.
fn range(word: &[u8]) -> Option<(u64, u64)> {
    let (start, end) = std::str::from_utf8(word).ok()?.split_once('-')?;
    let hex = |t: &str| {
        let digits = !t.is_empty() && t.bytes().all(|b| b.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(t, 16).ok()).flatten()
    };
    Some((hex(start)?, hex(end)?))
}

/// Directories whose names are a prefix and a number, by number.
fn numbered(dir: &Path, prefix: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let name = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut found: Vec<u32> = entries.filter_map(|e| name(e.ok()?)).collect();
    found.sort_unstable();
    found
}

/// What the firmware declares, below this root (`/`, or a captured tree).
#[must_use]
pub fn declared(root: &Path) -> Declared {
    let dir = root.join("sys/devices/system/node");
    let nodes = numbered(&dir, "node");
    let of = |n: u32| dir.join(format!("node{n}"));
    let row = |&n: &u32| {
        let row = parse_slit(&fs::read(of(n).join("distance")).ok()?)?;
        (row.len() == nodes.len()).then_some(row)
    };
    let slit: Option<Vec<Vec<u32>>> =
        if nodes.is_empty() { None } else { nodes.iter().map(row).collect() };
    let access = |memory: u32, class: &str| {
        let dir = of(memory).join(class).join("initiators");
        let value = |file: &str| parse_hmat(&fs::read(dir.join(file)).ok()?);
        let access = Access {
            memory,
            readers: numbered(&dir, "node"),
            read_latency_ns: value("read_latency"),
            write_latency_ns: value("write_latency"),
            read_mb_per_s: value("read_bandwidth"),
            write_mb_per_s: value("write_bandwidth"),
        };
        let values = [
            access.read_latency_ns,
            access.write_latency_ns,
            access.read_mb_per_s,
            access.write_mb_per_s,
        ];
        values.iter().any(Option::is_some).then_some(access)
    };
    let all = |class: &str| nodes.iter().filter_map(|&memory| access(memory, class)).collect();
    let (hmat, hmat_cpus) = (all("access0"), all("access1"));
    Declared { nodes, slit, hmat, hmat_cpus }
}

/// Free memory of a node, in bytes; None where the system does not say.
pub(crate) fn free_memory(root: &Path, node: u32) -> Option<u64> {
    let own = root.join(format!("sys/devices/system/node/node{node}/meminfo"));
    let text = fs::read(own).or_else(|e| match node {
        // Kernels without NUMA have no such file, and one node.
        0 => fs::read(root.join("proc/meminfo")),
        _ => Err(e),
    });
    parse_free(&text.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_as_the_kernel_writes_them() {
        assert_eq!(parse_slit(b"10\n"), Some(vec![10]));
        assert_eq!(parse_slit(b"10 21 31 255\n"), Some(vec![10, 21, 31, 255]));
        for bad in ["", "\n", "10 x", "10 -1", "10 0", "10,21", "10 99999999999"] {
            assert_eq!(parse_slit(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse_slit("10 ".repeat(MOST_NODES + 1).as_bytes()), None);
        assert_eq!(
            (parse_hmat(b"105\n"), parse_hmat(b"0\n"), parse_hmat(b"+5")),
            (Some(105), None, None)
        );
        let meminfo = b"Node 1 MemTotal:       65999284 kB\nNode 1 MemFree:        61234567 kB\n";
        assert_eq!(parse_free(meminfo), Some(61_234_567 * 1024));
        assert_eq!(parse_free(b"MemTotal: 5 kB\nMemFree:  3 kB\n"), Some(3072));
        assert_eq!(parse_free(b"Node 1 MemFree:\nMemFree: 1\n"), None);
    }

    #[test]
    fn huge_pages_are_those_of_the_mapping() {
        let smaps = b"7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
            Size:  2048 kB\nAnonHugePages:         0 kB\nVmFlags: rd wr\n\
            7f0000200000-7f0040200000 rw-p 00000000 00:00 0 \nAnonHugePages:   1048576 kB\n";
        assert_eq!(parse_huge(smaps, 0x7f00_0020_0000), Some(1 << 30));
        assert_eq!(parse_huge(smaps, 0x7f00_001f_ffff), Some(0));
        assert_eq!(parse_huge(smaps, 0x10), None);
    }

    /// A tree of files as sysfs has them.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join("sys/devices/system/node").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn two_nodes_with_far_memory() {
        let dir = tree(&[
            ("node0/distance", "10 20 40\n"),
            ("node1/distance", "20 10 50\n"),
            ("node2/distance", "40 50 10\n"),
            ("node0/access0/initiators/read_latency", "90\n"),
            ("node0/access0/initiators/read_bandwidth", "100000\n"),
            ("node0/access0/initiators/node0/x", ""),
            ("node2/access0/initiators/read_latency", "250\n"),
            ("node2/access0/initiators/write_latency", "0\n"),
            ("node2/access0/initiators/node0/x", ""),
            ("node2/access0/initiators/node1/x", ""),
            ("node1/meminfo", "Node 1 MemFree: 8 kB\n"),
            ("has_cpu", "0-1\n"),
        ]);
        let d = declared(dir.path());
        assert_eq!(d.nodes, [0, 1, 2]);
        assert_eq!(d.slit.unwrap()[1], [20, 10, 50]);
        assert_eq!(d.hmat.len(), 2);
        let far = &d.hmat[1];
        assert_eq!((far.memory, far.readers.as_slice()), (2, &[0, 1][..]));
        assert_eq!((far.read_latency_ns, far.write_latency_ns), (Some(250), None));
        assert_eq!(d.hmat[0].read_mb_per_s, Some(100_000));
        assert_eq!((free_memory(dir.path(), 1), free_memory(dir.path(), 2)), (Some(8192), None));
    }

    /// As Linux lays it out (drivers/base/node.c): a link to each initiator beside the values of the
    /// class, `targets` on the other side, and `power` and `uevent` as every device has them. Node 0 has
    /// CPUs, node 1 is a device that starts accesses of its own, node 2 is memory next to that.
    #[test]
    fn both_classes_of_access() {
        let class = |node: u32, class: u32, values: [&'static str; 4]| {
            let names = ["read_bandwidth", "read_latency", "write_bandwidth", "write_latency"];
            let path = move |name: &str| format!("node{node}/access{class}/initiators/{name}");
            names.into_iter().zip(values).map(move |(name, value)| (path(name), value))
        };
        let plain = |path: &str, text: &'static str| (path.to_owned(), text);
        let mut files = vec![
            plain("node0/distance", "10 255 20\n"),
            plain("node1/distance", "255 10 255\n"),
            plain("node2/distance", "20 255 10\n"),
            plain("node0/access0/uevent", ""),
            plain("node0/access0/power/runtime_status", "unsupported\n"),
            plain("node0/access0/targets/power", ""),
            plain("node2/access1/power/runtime_status", "unsupported\n"),
        ];
        files.extend(class(0, 0, ["130000\n", "96\n", "110000\n", "96\n"]));
        files.extend(class(0, 1, ["130000\n", "96\n", "110000\n", "96\n"]));
        files.extend(class(2, 0, ["400000\n", "60\n", "400000\n", "60\n"]));
        files.extend(class(2, 1, ["20000\n", "310\n", "0\n", "0\n"]));
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let dir = tree(&files);
        let node = |n: u32| dir.path().join(format!("sys/devices/system/node/node{n}"));
        for (memory, class, initiator) in [(0, 0, 0), (0, 1, 0), (2, 0, 1), (2, 1, 0)] {
            let link = node(memory).join(format!("access{class}/initiators/node{initiator}"));
            std::os::unix::fs::symlink(node(initiator), link).unwrap();
        }
        let d = declared(dir.path());
        let seen = |all: &[Access]| {
            let one =
                |a: &Access| (a.memory, a.readers.clone(), a.read_latency_ns, a.read_mb_per_s);
            all.iter().map(one).collect::<Vec<_>>()
        };
        let near = (0, vec![0], Some(96), Some(130_000));
        assert_eq!(seen(&d.hmat), [near.clone(), (2, vec![1], Some(60), Some(400_000))]);
        assert_eq!(seen(&d.hmat_cpus), [near, (2, vec![0], Some(310), Some(20_000))]);
        let far = &d.hmat_cpus[1];
        assert_eq!((far.write_latency_ns, far.write_mb_per_s), (None, None));
    }

    #[test]
    fn a_table_that_does_not_fit_is_none() {
        let d = declared(tree(&[("node0/distance", "10 20"), ("node1/distance", "20")]).path());
        assert_eq!((d.nodes.len(), d.slit), (2, None));
        assert_eq!(declared(tree(&[]).path()), Declared::default());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in any::<u64>()) {
            let _ = (parse_slit(&bytes), parse_hmat(&bytes), parse_free(&bytes), parse_huge(&bytes, at));
        }
    }
}

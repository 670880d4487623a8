//! XML that is nearly hwloc's: whatever is changed in it, it is a machine or refused in one line.
//!
//! What may crash or hang is done in a process of its own, which is this program again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_topology::{parse_xml, synthetic};
use std::path::Path;
use std::process::Command;

/// Says that this is the process of its own.
const CHILD: &str = "EVENLY_TEST_MALFORMED";
/// Only a hang computes so long.
const CPU_SECONDS: &str = "120";
/// More than any of these takes, in KiB.
const MEMORY: &str = "4000000";

/// Of all that can be changed every seventh is tried, as hwloc takes long to read each; 1 tries all.
const ONE_OF: usize = 7;

/// The places of all between `start` and `end`, without these.
fn between(text: &str, start: &str, end: char) -> Vec<(usize, usize)> {
    let found = text.match_indices(start).map(|(at, _)| at + start.len());
    found.filter_map(|at| Some((at, at + text[at..].find(end)?))).collect()
}

/// The XML with one thing changed: a line or an attribute left out, another value, an end that is
/// missing, another document type.
fn changed(whole: &str) -> Vec<String> {
    let with = |from: usize, to: usize, new: &str| [&whole[..from], new, &whole[to..]].concat();
    let mut all = Vec::new();
    let mut at = 0;
    for line in whole.split_inclusive('\n') {
        all.push(with(at, at + line.len(), ""));
        all.push(with(at, at, line));
        for extra in ["&lol;", "text", "<![CDATA[x]]>", "<?x?>", "<object type=\"Group\"/>"] {
            all.push(with(at, at, extra));
        }
        at += line.len();
    }
    for (from, to) in between(whole, "=\"", '"') {
        let name = whole[..from].rfind(' ').unwrap_or(0);
        all.push(with(name, to + 1, ""));
        for new in ["", "0", "0x0", "-1", "99999999", "4294967295", "0xf...f", "0x2", "PU", "Misc"]
        {
            all.push(with(from, to, new));
        }
    }
    all.extend((0..whole.len()).step_by(150).map(|end| whole[..end].to_owned()));
    let doctype = whole.find("<!DOCTYPE").unwrap();
    let end = doctype + whole[doctype..].find('>').unwrap() + 1;
    let entities = "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\" [<!ENTITY lol \"lol\">]>";
    for new in ["", "<!DOCTYPE topology>", "<!DOCTYPE topology []>", entities] {
        all.push(with(doctype, end, new));
    }
    // All sets of a kind at once.
    for name in ["cpuset", "complete_cpuset", "nodeset", "complete_nodeset", "os_index"] {
        let mut without = whole.to_owned();
        while let Some(from) = without.find(&format!(" {name}=\"")) {
            let value = from + name.len() + 3;
            let to = value + without[value..].find('"').unwrap() + 1;
            without.replace_range(from..to, "");
        }
        all.push(without);
    }
    let deep = "<object type=\"Group\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" \
                complete_nodeset=\"0x1\">";
    let root = deep.replace("Group", "Machine");
    all.push(format!("<topology version=\"2.0\">{root}{}", deep.repeat(10_000)));
    all
}

#[test]
fn what_is_changed_in_xml_is_no_crash() {
    let exe = std::env::current_exe().unwrap();
    let script =
        format!("ulimit -c 0; ulimit -t {CPU_SECONDS}; ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &script])
        .arg(exe)
        .args(["--exact", "in_a_process_of_its_own", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    let last: Vec<&str> = said.lines().rev().take(30).collect();
    assert!(child.status.success(), "{}: {last:#?}", child.status);
    let ours = |line: &&str| line.is_empty() || line.ends_with("were refused");
    // hwloc has nothing to say itself.
    assert!(said.lines().all(|line| ours(&line)) && said.contains("were refused"), "{said}");
}

#[test]
fn in_a_process_of_its_own() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let old = include_str!("captured/vm-v1.xml");
    let here = include_str!("captured/vm.xml");
    let two = synthetic("numa:2 core:2 pu:1").unwrap().to_xml().unwrap();
    let distances = "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" name=\"NUMALatency\" \
                     indexing=\"os\">\n<indexes length=\"4\">0 1 </indexes>\n\
                     <u64values length=\"12\">10 21 21 10 </u64values>\n</distances2>\n\
                     <cpukind cpuset=\"0x00000003\">\n<info name=\"CoreType\" value=\"x\"/>\n\
                     </cpukind>\n</topology>";
    let two = two.replace("</topology>", distances);
    let (mut machines, mut refused) = (0, 0);
    for whole in [&two[..], here, old] {
        parse_xml(whole.as_bytes(), Path::new("whole.xml")).unwrap();
        for xml in changed(whole).into_iter().step_by(ONE_OF) {
            match parse_xml(xml.as_bytes(), Path::new("x.xml")) {
                Ok(machine) => {
                    machines += 1;
                    let _ = (machine.describe(), machine.cluster(None));
                }
                Err(e) => {
                    refused += 1;
                    let e = e.to_string();
                    assert_eq!(e.lines().count(), 1, "{e}");
                }
            }
        }
    }
    eprintln!("{machines} were machines, {refused} were refused");
    assert!(machines > 100 && refused > 300, "{machines} {refused}");
}

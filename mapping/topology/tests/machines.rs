//! Trees of synthetic machines, of XML files and of this machine, and the clusters made of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_model::CpuSet;
use evenly_topology::{
    ASSUMED_CACHE_FACTORS, ASSUMED_NETWORK_FACTOR, Binding, Factors, Host, HostPair, Kind,
    MachineTopology, Measurement, Network, Origin, Pair, Source, Spread, from_xml, join, synthetic,
    this_machine_kept_in,
};
use std::fs;

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A machine from XML that was written by hwloc for a synthetic one and then changed.
fn changed(description: &str, change: impl Fn(String) -> String) -> MachineTopology {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.xml");
    let xml = synthetic(description).unwrap().to_xml().unwrap();
    let new = change(xml.clone());
    assert_ne!(new, xml, "nothing was changed in {xml}");
    fs::write(&file, new).unwrap();
    from_xml(&file).unwrap()
}

/// Elements in front of the end of the XML.
fn with(xml: &str, elements: &str) -> String {
    xml.replace("</topology>", &format!("{elements}</topology>"))
}

#[test]
fn as_many_cores_side_by_side_as_are_accepted() {
    let machine = synthetic("core:1024").unwrap();
    assert_eq!(machine.cluster(None).unwrap().cores().len(), 1_024);
    let said = machine.describe();
    assert!(said.contains("1024 cores, 1024 CPUs"), "{said}");
    assert!(said.contains("1024 x core: CPUs 0-1023"), "{said}");
}

/// Their XML is longer than hwloc reads from memory.
#[test]
fn as_many_cores_of_several_hosts_as_are_accepted() {
    let machine = synthetic("host:16 core:1024").unwrap();
    assert_eq!(machine.cluster(None).unwrap().cores().len(), 16_384);
    assert_eq!(machine.hosts().len(), 16);
    assert!(machine.to_xml().unwrap().len() > 10_000_000);
}

#[test]
fn synthetic_machines_are_numbered_as_hwloc_does() {
    let machine = synthetic("numa:4 core:8 pu:2").unwrap();
    assert_eq!(machine.root().of(Kind::Cpu).len(), 64);
    let cluster = machine.cluster(None).unwrap();
    assert_eq!((cluster.cores().len(), cluster.nodes().len()), (32, 4));
    for (i, core) in cluster.cores().iter().enumerate() {
        assert_eq!((core.id as usize, core.node, core.speed), (i, i / 8, 1.0));
    }
    assert!(cluster.caches().is_empty() && cluster.bandwidth(0, 1).is_none());
    assert!(cluster.factors().iter().all(|f| *f == 1.0));
    assert_eq!(machine.factors().source(), Source::Unknown);
}

#[test]
fn a_description_without_cpus_has_one_for_each() {
    for text in ["numa:2 core:4", "numa:2 core:4 pu:1", "numa:2 pu:4", "2 4 1"] {
        let cluster = synthetic(text).unwrap().cluster(None).unwrap();
        let ids: Vec<u32> = cluster.cores().iter().map(|c| c.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7], "{text}");
    }
}

#[test]
fn what_describes_no_machine_is_refused_in_one_line() {
    for bad in ["", " ", "nonsense", "numa:2 cheese:4", "core:0", "core:-1", "pu:2 core:2"] {
        let error = synthetic(bad).unwrap_err().to_string();
        assert!(error.contains("numa:2 core:4 pu:2") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn caches_that_cores_share_are_in_the_cluster() {
    let machine = synthetic("pack:2 l3:2(size=16MiB) l2:2 core:2 pu:2").unwrap();
    let cluster = machine.cluster(None).unwrap();
    let names: Vec<&str> = cluster.caches().iter().map(|c| c.name.as_str()).collect();
    assert_eq!((names, cluster.cores().len()), (vec!["L2", "L3"], 16));
    assert_eq!([0, 1, 2, 4].map(|k| cluster.shared_cache(0, k)), [Some(0), Some(0), Some(1), None]);
    // For threads, which run on CPUs.
    let known = machine.knowledge();
    let levels: Vec<(&str, usize)> =
        known.caches.iter().map(|(level, sets)| (level.name.as_str(), sets.len())).collect();
    assert_eq!(levels, [("L2", 8), ("L3", 4)]);
    assert_eq!(known.caches[0].1[1].to_string(), "4-7");
    assert_eq!(known.caches[1].0.factor, ASSUMED_CACHE_FACTORS[2]);
    // Of each core alone: no level to share.
    let private = synthetic("l2:4 core:1 pu:1").unwrap().cluster(None).unwrap();
    assert!(private.caches().is_empty());
}

#[test]
fn given_factors_have_to_fit() {
    let machine = synthetic("numa:2 core:2").unwrap();
    let two = Factors::given(vec![1.0, 1.5, 1.6, 1.0]).unwrap();
    let cluster = machine.cluster(Some(&two)).unwrap();
    assert_eq!((cluster.factor(0, 1), cluster.factor(1, 0)), (1.5, 1.6));
    let one = Factors::given(vec![1.0]).unwrap();
    let error = machine.cluster(Some(&one)).unwrap_err().to_string();
    assert!(error.contains("for 2 nodes 2 x 2 are needed"), "{error}");
    // The bandwidth from 0 to 1 is that at which 1 reads from 0.
    let fast = two.with_bandwidths(vec![1e10, 1e9, 2e9, 3e10]).unwrap();
    let cluster = machine.cluster(Some(&fast)).unwrap();
    assert_eq!(cluster.bandwidth(0, 1), Some(2e9));
    assert_eq!(cluster.bandwidth(1, 0), Some(1e9));
}

#[test]
fn the_firmwares_distances_are_taken_as_what_they_are() {
    let slit = r#"<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
        <indexes length="4">0 1 </indexes><u64values length="12">10 21 31 10 </u64values>
        </distances2>"#;
    let machine = changed("numa:2 core:2 pu:1", |xml| with(&xml, slit));
    let factors = machine.factors();
    assert_eq!((factors.values(), factors.source()), (&[1.0, 2.1, 3.1, 1.0][..], Source::Slit));
    assert_eq!(machine.cluster(None).unwrap().factor(1, 0), 3.1);
    // A user's are preferred: kind 6 is a user's.
    let own = slit.replace("kind=\"5\" name=\"NUMALatency\"", "kind=\"6\"").replace("31", "15");
    let machine = changed("numa:2 core:2 pu:1", |xml| with(&xml, &format!("{slit}{own}")));
    let factors = machine.factors();
    assert_eq!((factors.at(1, 0), factors.source()), (1.5, Source::Xml));
}

#[test]
fn kinds_of_cpus_make_speeds() {
    let kinds = r#"<cpukind cpuset="0x0000000f"><info name="FrequencyMaxMHz" value="5000"/>
        <info name="CoreType" value="IntelCore"/></cpukind>
        <cpukind cpuset="0x000000f0"><info name="FrequencyMaxMHz" value="3500"/>
        <info name="CoreType" value="IntelAtom"/></cpukind>"#;
    let machine = changed("core:8 pu:1", |xml| with(&xml, kinds));
    assert_eq!(machine.kinds().len(), 2);
    let cluster = machine.cluster(None).unwrap();
    let speeds: Vec<f64> = cluster.cores().iter().map(|c| c.speed).collect();
    assert_eq!(speeds, [1.0, 1.0, 1.0, 1.0, 0.7, 0.7, 0.7, 0.7]);
    let text = machine.describe();
    assert!(text.contains("IntelAtom") && text.contains("CPUs 4-7"), "{text}");
}

#[test]
fn cpus_outside_of_the_cpuset_run_nothing_and_are_shown() {
    let machine = changed("numa:2 core:4 pu:2", |xml| {
        xml.replace("allowed_cpuset=\"0x0000ffff\"", "allowed_cpuset=\"0x00000fe0\"")
    });
    assert_eq!(machine.allowed(), set("5-11"));
    assert_eq!(machine.disallowed(), set("0-4,12-15"));
    let cluster = machine.cluster(None).unwrap();
    // hwloc's numbers of the cores that have a CPU left.
    let ids: Vec<u32> = cluster.cores().iter().map(|c| c.id).collect();
    assert_eq!(ids, [2, 3, 4, 5]);
    assert!(machine.describe().contains("outside of the cpuset, not used: CPUs 0-4,12-15"));
    let machine = changed("numa:2 core:4 pu:2", |xml| {
        xml.replace("allowed_cpuset=\"0x0000ffff\"", "allowed_cpuset=\"0x0000ff00\"")
    });
    // A node that has no core left is none of the cluster's.
    let cluster = machine.cluster(None).unwrap();
    assert_eq!((cluster.nodes().len(), cluster.nodes()[0].id, cluster.cores().len()), (1, 1, 4));
}

#[test]
fn memory_without_cpus_is_no_place_for_tasks() {
    let machine = synthetic("pack:2 [numa(memory=16GiB)] [numa(memory=4GiB)] core:4 pu:1").unwrap();
    assert_eq!(machine.root().of(Kind::Node).len(), 4);
    assert_eq!(machine.homes().len(), 2);
    assert_eq!(machine.cluster(None).unwrap().nodes().len(), 2);
}

#[test]
fn what_is_written_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.xml");
    for text in ["numa:2 l3:1 core:4 pu:2", "pack:2 numa:2 core:3 pu:1", "pu:1"] {
        let machine = synthetic(text).unwrap();
        fs::write(&file, machine.to_xml().unwrap()).unwrap();
        let again = from_xml(&file).unwrap();
        assert_eq!((again.root(), again.allowed()), (machine.root(), machine.allowed()), "{text}");
        assert_eq!(again.cluster(None).unwrap(), machine.cluster(None).unwrap(), "{text}");
        assert_eq!(again.origin(), &Origin::Xml(file.clone()));
    }
}

/// Captured with hwloc's own tool: what a real machine has that synthetic ones have not.
#[test]
fn a_captured_machine_is_read() {
    let captured = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captured/vm.xml");
    let machine = from_xml(std::path::Path::new(captured)).unwrap();
    assert_eq!(machine.allowed(), set("0-1"));
    assert_eq!(machine.root().of(Kind::Cpu).len(), 2);
    let cluster = machine.cluster(None).unwrap();
    assert_eq!((cluster.cores().len(), cluster.nodes().len()), (2, 1));
    // The level 3 is shared, the others are not.
    let level = cluster.shared_cache(0, 1).unwrap();
    assert_eq!(cluster.caches()[level].name, "L3");
    let text = machine.describe();
    assert!(text.contains("Intel(R) Xeon(R) Processor") && text.contains("260 MiB"), "{text}");
}

/// In the form of hwloc 1, which has NUMA nodes among the levels, and no names of caches.
#[test]
fn a_captured_machine_in_the_old_form_is_read() {
    let captured = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captured/vm-v1.xml");
    let machine = from_xml(std::path::Path::new(captured)).unwrap();
    let cluster = machine.cluster(None).unwrap();
    assert_eq!(machine.allowed(), set("0-1"));
    assert_eq!((cluster.cores().len(), cluster.nodes().len()), (2, 1));
    assert_eq!(cluster.caches()[cluster.shared_cache(0, 1).unwrap()].name, "L3");
    assert!(machine.describe().contains("480 MiB"), "{}", machine.describe());
}

#[test]
fn what_is_no_xml_of_hwloc_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.xml");
    let whole = synthetic("numa:2 core:2").unwrap().to_xml().unwrap();
    let cut = &whole[..whole.len() / 2];
    for bad in ["", "<html/>", "\0<topology>", "<topology version=\"2.0\"/>", "<topology", cut] {
        fs::write(&file, bad).unwrap();
        let error = from_xml(&file).unwrap_err().to_string();
        assert!(
            error.contains("x.xml is no XML of hwloc") && error.lines().count() == 1,
            "{error}"
        );
    }
    let wrong = whole.replacen("</object>", "</objet>", 1);
    let nul = whole.replacen("Machine", "Mach\0ne", 1);
    for (bad, why) in [(cut, "line "), (&wrong, "line "), (&nul, "a character that no XML has")] {
        fs::write(&file, bad).unwrap();
        let error = from_xml(&file).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("hwloc says"), "{error}");
    }
    fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(from_xml(&file).unwrap_err().to_string().contains("UTF-8"));
    let error = from_xml(&dir.path().join("none.xml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read") && error.contains("No such file"), "{error}");
    assert!(from_xml(dir.path()).unwrap_err().to_string().starts_with("cannot read"));
}

/// What was measured on a machine: the latency of each node's memory for each, row by row.
fn measured(latencies: &[f64], bytes_per_s: f64) -> Measurement {
    let n = latencies.len().isqrt() as u32;
    let pair = |(k, ns): (u32, &f64)| Pair {
        reader: k / n,
        memory: k % n,
        latency_ns: Spread::of(vec![*ns, *ns, 1.5 * ns]).unwrap(),
        read_bytes_per_s: Spread::of(vec![bytes_per_s]),
        readers: 1,
        buffer_bytes: 1 << 26,
        huge_share: None,
        binding: Binding::Checked,
    };
    let pairs = (0..).zip(latencies).map(pair).collect();
    Measurement {
        unix_s: 1_700_000_000,
        seconds: 1.0,
        pairs,
        caches: Vec::new(),
        notes: Vec::new(),
        load: None,
    }
}

/// A network with these latencies in microseconds: 0 and 1, 0 and 2, 1 and 2, ...
fn network(hosts: &[&str], us: &[f64]) -> Network {
    let n = hosts.len();
    let all = (0..n).flat_map(|a| (a + 1..n).map(move |b| [a, b]));
    let pair = |(hosts, us): ([usize; 2], &f64)| HostPair {
        hosts,
        latency_ns: Spread::of(vec![1e3 * us]).unwrap(),
        bytes_per_s: Spread::of(vec![1e9]).unwrap(),
    };
    Network {
        unix_s: 1_700_000_000,
        seconds: 0.1,
        mpi: String::from("An MPI"),
        small_bytes: 8,
        large_bytes: 1 << 20,
        hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        pairs: all.zip(us).map(pair).collect(),
    }
}

fn host(name: &str, machine: MachineTopology) -> Host {
    Host { name: name.to_owned(), machine }
}

#[test]
fn several_hosts_are_one_machine() {
    let old = synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
    let old = old.with_measurement(measured(&[100.0, 152.0, 153.0, 100.0], 2e10));
    let new = synthetic("l2:2 core:2 pu:2").unwrap().with_measurement(measured(&[50.0], 4e10));
    let both = [host("new", new), host("old", old)];
    let joined = join(&both, network(&["old", "new"], &[10.0])).unwrap();
    assert_eq!(joined.hosts(), ["old", "new"]);
    let exported = {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("all.xml");
        fs::write(&file, joined.to_xml().unwrap()).unwrap();
        from_xml(&file).unwrap()
    };
    assert_eq!(exported.factors().source(), Source::Xml);
    assert_eq!((joined.memory_ns(), exported.memory_ns()), (Some(75.0), Some(75.0)));
    // As it is and read from its own XML it is the same.
    for machine in [joined, exported] {
        assert_eq!(machine.hosts(), ["old", "new"]);
        let all = machine.cluster(None).unwrap();
        let ids: Vec<(u32, usize)> = all.cores().iter().map(|c| (c.id, c.node)).collect();
        assert_eq!(ids, [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 2)]);
        let nodes: Vec<(u32, u32)> = all.nodes().iter().map(|n| (n.id, n.host)).collect();
        assert_eq!(nodes, [(0, 0), (1, 0), (2, 1)]);
        assert_eq!((all.factor(0, 1), all.factor(1, 0)), (1.52, 1.53));
        // 10 us over 100 ns, and over the 50 ns of the newer host.
        assert_eq!((all.factor(0, 2), all.factor(2, 1)), (100.0, 200.0));
        // What goes from a node to another is what the other reads.
        assert_eq!(all.bandwidth(0, 1), Some(2e10));
        assert_eq!((all.bandwidth(0, 2), all.bandwidth(2, 2)), (Some(1e9), Some(4e10)));
        // Each host has a level that the other has not, and shares none with it.
        let shared = |a, b| all.shared_cache(a, b).map(|l| all.caches()[l].name.clone());
        assert_eq!(shared(0, 1).as_deref(), Some("L3"));
        assert_eq!(shared(4, 5).as_deref(), Some("L2"));
        assert_eq!((shared(1, 2), shared(5, 6), shared(0, 4)), (None, None, None));
        assert_eq!((machine.allowed(), machine.offline().len()), (set("0-11"), 0));
    }
}

#[test]
fn hosts_that_are_alike_are_two_all_the_same() {
    let xml = fs::read_to_string("tests/captured/vm.xml").unwrap();
    let machine = || {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vm.xml");
        fs::write(&file, &xml).unwrap();
        from_xml(&file).unwrap().with_measurement(measured(&[80.0], 2e10))
    };
    let names = ["n1", "n2", "n3"];
    let hosts = names.map(|name| host(name, machine()));
    let all = join(&hosts, network(&names, &[8.0, 16.0, 24.0])).unwrap();
    assert_eq!((all.root().of(Kind::Package).len(), all.root().of(Kind::Cpu).len()), (3, 6));
    // They have one kind of CPUs, which is none.
    assert!(all.kinds().len() <= 1, "{:?}", all.kinds());
    let cluster = all.cluster(None).unwrap();
    assert_eq!(cluster.factors(), [1.0, 100.0, 200.0, 100.0, 1.0, 300.0, 200.0, 300.0, 1.0]);
    assert_eq!(cluster.cores().iter().map(|c| c.node).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
    let text = all.describe();
    assert!(text.starts_with("n1, n2, n3: 3 hosts, 3 packages, 3 NUMA nodes, 6 cores"), "{text}");
    assert!(text.contains("\n  host n2, package 0"), "{text}");
}

#[test]
fn hosts_are_a_level_of_descriptions() {
    let machine = synthetic("host:2 numa:2 l3:1 core:4 pu:2").unwrap();
    assert_eq!(machine.hosts(), ["host0", "host1"]);
    assert_eq!((machine.allowed(), machine.memory_ns()), (set("0-31"), None));
    let cluster = machine.cluster(None).unwrap();
    let of = |c: &evenly_cluster::Core| (c.id, c.cpu, c.node);
    let ids: Vec<_> = cluster.cores().iter().map(of).collect();
    let expected: Vec<_> = (0..16).map(|k: u32| (k, 2 * k, k as usize / 4)).collect();
    assert_eq!(ids, expected);
    let nodes: Vec<(u32, u32)> = cluster.nodes().iter().map(|n| (n.id, n.host)).collect();
    assert_eq!(nodes, [(0, 0), (1, 0), (2, 1), (3, 1)]);
    assert_eq!([1, 4, 8].map(|k| cluster.hops(0, k)), [1, 2, 3]);
    // Nothing is known of the network, and that is said.
    let factors = machine.factors();
    assert_eq!((factors.source(), ASSUMED_NETWORK_FACTOR), (Source::Assumed, 3.4));
    assert!(factors.source().words().contains("3.4 between hosts"));
    assert_eq!(&factors.values()[..4], [1.0, 1.0, 3.4, 3.4]);
    let text = machine.describe();
    assert!(text.contains(": 2 hosts, 4 NUMA nodes, 16 cores, 32 CPUs"), "{text}");
    // As XML it is the same again.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hosts.xml");
    fs::write(&file, machine.to_xml().unwrap()).unwrap();
    let again = from_xml(&file).unwrap();
    assert_eq!((again.root(), again.hosts()), (machine.root(), machine.hosts()));
    assert_eq!((again.factors(), again.cluster(None).unwrap()), (factors, cluster));

    // Factors of the nodes of one host are those of each.
    let own = Factors::given(vec![1.0, 1.5, 1.6, 1.0]).unwrap();
    let all = machine.factors_of_each_host(&own).unwrap();
    assert_eq!(all.values()[4..8], [1.6, 1.0, 3.4, 3.4]);
    assert_eq!(all.values()[12..], [3.4, 3.4, 1.6, 1.0]);
    assert!(machine.factors_of_each_host(&Factors::unknown(3)).is_none());
    let one = synthetic("numa:2 core:2").unwrap();
    assert!(one.factors_of_each_host(&own).is_none());
}

#[test]
fn hosts_can_be_all_that_is_described() {
    for (text, hosts, cpus) in [
        ("host:3", 3, 3),
        (" Host:2 core:2 pu:4", 2, 16),
        ("host:1 core:2", 1, 2),
        ("host:2(memory=1GiB) core:2", 2, 4),
        ("host:2 [numa(memory=2GiB)] [numa(memory=1GiB)] core:2", 2, 4),
    ] {
        let machine = synthetic(text).unwrap();
        let found = machine.hosts().len().max(1);
        assert_eq!((found, machine.allowed().len()), (hosts, cpus), "{text}");
        assert_eq!(machine.cluster(None).unwrap().nodes().len(), hosts, "{text}");
    }
    let one = synthetic("host:1 numa:2 core:2").unwrap();
    assert_eq!((one.factors().source(), one.hosts().len()), (Source::Unknown, 0));
    for (text, why) in [
        ("numa:2 host:2 core:2", "hosts are the first level, as in host:2 numa:2 core:4"),
        ("host:2 host:2 core:2", "hosts are the first level"),
        ("[numa] host:2 core:2", "nothing can stand before the hosts"),
        ("host:0 core:2", "there can be 1 to 256 hosts"),
        ("host:257 core:2", "there can be 1 to 256 hosts"),
        ("host core:2", "'host' has no number of things"),
        ("host:2 cheese:2", "describes no machine"),
        ("host:200 core:200", "more than 16384 CPUs"),
    ] {
        let error = synthetic(text).unwrap_err().to_string();
        assert!(error.contains(why) && error.lines().count() == 1, "{text}: {error}");
    }
}

#[test]
fn hosts_that_do_not_fit_are_named() {
    let machine = || synthetic("core:2").unwrap();
    let measured = || machine().with_measurement(measured(&[80.0], 1e10));
    let said = |hosts: &[Host]| join(hosts, network(&["a", "b"], &[9.0])).unwrap_err().to_string();
    let error = said(&[host("a", measured())]);
    assert!(error.contains("host b, and nothing is known"), "{error}");
    let error = said(&[host("a", measured()), host("b", machine())]);
    assert!(error.contains("the memory of host b was not measured"), "{error}");
}

#[test]
fn this_machine_is_the_one_that_the_kernel_shows() {
    let machine = this_machine_kept_in(None).unwrap();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_eq!(machine.root().cpus, set(&online));
    assert_eq!(machine.root().of(Kind::Cpu).len(), set(&online).len());
    assert_eq!(machine.allowed().or(&machine.disallowed()), set(&online));
    // Every CPU that this process may use is a CPU of the tree that may be used.
    let own = evenly_linux::affinity::get(evenly_model::Tid(0)).unwrap();
    assert!(own.is_subset(&machine.allowed()), "{own:?}");
    let cluster = machine.cluster(None).unwrap();
    assert!(cluster.cores().iter().all(|c| machine.allowed().contains(evenly_model::CpuId(c.id))));
    assert!(cluster.cores().len() <= machine.allowed().len());
    let nodes = fs::read_dir("/sys/devices/system/node")
        .map(|d| {
            d.filter(|e| e.as_ref().unwrap().file_name().to_str().unwrap().starts_with("node"))
        })
        .map_or(1, Iterator::count);
    assert_eq!(machine.root().of(Kind::Node).len(), nodes);
    assert!(machine.describe().starts_with("this machine: "));
}

#[test]
fn texts_are_short_and_say_once_what_is_alike() {
    let text = |t: &str| synthetic(t).unwrap().describe();
    insta::assert_snapshot!(
        [
            text(
                "numa:2(memory=32GiB) l3:2(size=16MiB) core:8 l2:1(size=1MiB) l1:1(size=32KiB) pu:2"
            ),
            text("pack:2 [numa(memory=64GiB)] [numa(memory=16GiB)] l3:1(size=32MiB) core:4 pu:1"),
            text("pack:1 core:4 pu:1"),
            text("pu:3"),
        ]
        .join("\n")
    );
    assert!(text("pack:64 numa:2 core:64 pu:2").lines().count() < 400);
}

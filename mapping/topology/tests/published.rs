//! Machines of hwloc's own tests: what real ones have and synthetic descriptions have not. Where they come
//! from stands in `published/README.md`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_cluster::Cluster;
use evenly_model::CpuSet;
use evenly_topology::{Kind, MachineTopology, Source, from_xml, svg};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/published/{name}.xml"))
}

fn machine(name: &str) -> MachineTopology {
    from_xml(&path(name)).unwrap()
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// The machine in words, and what tasks are mapped onto: of each node its cores, with the first CPU and the
/// speed of each.
fn shown(machine: &MachineTopology) -> String {
    let described = machine.describe();
    let (_, tree) = described.split_once(": ").unwrap();
    let (cluster, factors) = (machine.cluster(None).unwrap(), machine.factors());
    let mut text = format!("{tree}factors {:?}, allowed {}\n", factors.source(), machine.allowed());
    for (at, node) in cluster.nodes().iter().enumerate() {
        let core = |c: &evenly_cluster::Core| format!("{}@{} x{:.2}", c.id, c.cpu, c.speed);
        let cores = cluster.cores().iter().filter(|c| c.node == at);
        let cores: Vec<String> = cores.map(core).collect();
        let _ = writeln!(text, "node {}: {}", node.id, cores.join(", "));
    }
    let levels: Vec<&str> = cluster.caches().iter().map(|l| l.name.as_str()).collect();
    let _ = writeln!(text, "shared caches: {}", levels.join(", "));
    text
}

/// What is written is read again as the same.
fn exported(machine: &MachineTopology) -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("again.xml");
    fs::write(&file, machine.to_xml().unwrap()).unwrap();
    let again = from_xml(&file).unwrap();
    assert_eq!(
        (again.root(), again.allowed(), again.offline(), again.kinds()),
        (machine.root(), machine.allowed(), machine.offline(), machine.kinds())
    );
    assert!(svg(machine).starts_with("<svg"));
    again.cluster(None).unwrap()
}

const MACHINES: [&str; 8] = [
    "16amd64-8n2c-cpusets",
    "16em64t-4s2c2t-offlines",
    "8ia64-2n2s2c+1n.v1tov2",
    "8intel64-fakeKNL-A2A-hybrid.rootattachednumas",
    "fakecpukinds",
    "fakeheterocpunuma",
    "fakeheteromemtiers",
    "offline-cpu0-node0",
];

#[test]
fn each_is_what_hwloc_says() {
    for name in MACHINES {
        let machine = machine(name);
        insta::assert_snapshot!(name.replace(['+', '.'], "-"), shown(&machine));
        assert_eq!(exported(&machine), machine.cluster(None).unwrap(), "{name}");
        // Whatever there is, it is exactly one of the three.
        let (allowed, disallowed) = (machine.allowed(), machine.disallowed());
        assert_eq!(allowed.or(&disallowed), machine.root().cpus, "{name}");
        assert!(allowed.and(&disallowed).is_empty(), "{name}");
        assert!(machine.offline().and(&machine.root().cpus).is_empty(), "{name}");
    }
}

#[test]
fn cpus_that_are_switched_off_are_shown_and_run_nothing() {
    for (name, offline, cores) in [
        ("16em64t-4s2c2t-offlines", "2,5,7-11,13-14", 6),
        ("offline-cpu0-node0", "0-3,21-23", 17),
        ("8ia64-2n2s2c+1n.v1tov2", "4-7,20-23", 8),
        ("16amd64-8n2c-cpusets", "4", 10),
    ] {
        let machine = machine(name);
        assert_eq!(machine.offline(), &set(offline), "{name}");
        let cluster = machine.cluster(None).unwrap();
        assert_eq!(cluster.cores().len(), cores, "{name}");
        let on = |c: &evenly_cluster::Core| machine.allowed().contains(evenly_model::CpuId(c.cpu));
        assert!(cluster.cores().iter().all(on), "{name}");
        let said = format!(
            "there and switched off: CPU{} {offline}\n",
            if offline == "4" { "" } else { "s" }
        );
        assert!(machine.describe().contains(&said), "{}", machine.describe());
        let note = format!("not drawn: CPUs {offline}, switched off");
        assert!(svg(&machine).contains(&note), "{name}");
    }
    // One CPU of a core is off, the other runs tasks.
    let machine = machine("16em64t-4s2c2t-offlines");
    let halved = machine.root().of(Kind::Core).iter().filter(|c| c.cpus.len() == 1).count();
    assert_eq!((halved, machine.root().of(Kind::Core).len()), (5, 6));
}

#[test]
fn cpus_outside_of_the_cpuset_are_distinguished_from_those_that_are_off() {
    let machine = machine("16amd64-8n2c-cpusets");
    assert_eq!((machine.disallowed(), machine.offline()), (set("7-11"), &set("4")));
    // Nodes 4 and 5 have no CPU that may be used, and are none of the cluster's; of node 3 one is left.
    let cluster = machine.cluster(None).unwrap();
    let nodes: Vec<u32> = cluster.nodes().iter().map(|n| n.id).collect();
    assert_eq!(nodes, [0, 1, 2, 3, 6, 7]);
    assert_eq!(cluster.cores().iter().filter(|c| c.node == 3).count(), 1);
    assert_eq!((machine.root().of(Kind::Node).len(), cluster.factors().len()), (8, 36));
}

#[test]
fn tasks_live_on_ordinary_memory_where_there_is_some() {
    let homes = |machine: &MachineTopology| -> Vec<u32> {
        machine.homes().iter().map(|h| h.shown()).collect()
    };
    let tiers = machine("fakeheteromemtiers");
    assert_eq!(tiers.root().of(Kind::Node).len(), 7);
    // DRAM before HBM and NVM, and HBM where there is no DRAM.
    assert_eq!(homes(&tiers), [0, 1, 2]);
    let names: Vec<Option<&str>> = tiers.homes().iter().map(|h| h.name.as_deref()).collect();
    assert_eq!(names, [Some("DRAM"), Some("DRAM"), Some("HBM")]);
    // Cores without memory of their own: the first of their package, not of the machine.
    let without = machine("fakeheterocpunuma").cluster(None).unwrap();
    let node = |cpu: u32| {
        let core = without.cores().iter().find(|c| c.cpu == cpu).unwrap();
        without.nodes()[core.node].id
    };
    assert_eq!([0, 8, 4, 12, 20].map(node), [0, 1, 2, 3, 3]);
    let knl = machine("8intel64-fakeKNL-A2A-hybrid.rootattachednumas");
    assert_eq!((homes(&knl), knl.root().of(Kind::Node).len()), (vec![0], 2));
    // Memory without CPUs has no part in factors; the declared ones differ by direction.
    let without = machine("8ia64-2n2s2c+1n.v1tov2");
    assert_eq!((homes(&without), without.root().of(Kind::Node).len()), (vec![0, 2], 3));
    let factors = without.factors();
    assert_eq!((factors.values(), factors.source()), (&[1.0, 1.7, 1.0, 1.0][..], Source::Slit));
}

#[test]
fn cores_are_as_fast_as_their_kind() {
    // By capacity, which Linux gives, and not by frequency.
    let machine = machine("fakeheterocpunuma");
    assert_eq!(machine.kinds().len(), 3);
    let of_cpus = |list: &str| -> Vec<f64> {
        let cluster = machine.cluster(None).unwrap();
        let inside = |c: &&evenly_cluster::Core| set(list).contains(evenly_model::CpuId(c.cpu));
        cluster.cores().iter().filter(inside).map(|c| c.speed).collect()
    };
    assert_eq!(of_cpus("12-23"), [1.0; 6]);
    assert_eq!(of_cpus("0-11"), [234.0 / 1025.0; 6]);
}

//! `evenly map`: what it says about mappings is what anybody can compute from the same files, what it
//! writes is what it says, and the manual's example works.

use crate::schema::valid;
use crate::support::{Tool, json, stderr, text};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Real load-balancing dumps, and what Charm++ strategies made of them.
fn dumps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/nuco/tests/data/charm")
}

const PROGRAMS: [&str; 2] = ["lb_test_p32", "kneighbor_p32"];
const MACHINE: &str = "numa:4 core:8";
/// Within the range of the paper's NUMA32.
const FACTORS: [[f64; 4]; 4] =
    [[1.0, 1.36, 2.4, 3.6], [1.36, 1.0, 3.6, 2.4], [2.4, 3.6, 1.0, 1.36], [3.6, 2.4, 1.36, 1.0]];

fn factors(tool: &Tool) -> String {
    let line = |row: &[f64; 4]| row.map(|f| f.to_string()).join(",") + "\n";
    let path = tool.path("factors.csv");
    fs::write(&path, FACTORS.iter().map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The columns of these names of a CSV file, read in the plainest way.
fn columns<const N: usize>(file: &Path, names: [&str; N]) -> Vec<[f64; N]> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = names.map(|n| head.iter().position(|h| *h == n).unwrap());
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        at.map(|c| cells[c].parse().unwrap())
    };
    lines.map(row).collect()
}

fn pairs(file: &Path) -> HashMap<u64, usize> {
    columns(file, ["id", "pe"]).into_iter().map(|[id, pe]| (id as u64, pe as usize)).collect()
}

/// Makespan, imbalance, weighted messages, remote share, hop-bytes and migrations of a mapping,
/// straight from the files.
fn computed(program: &str, mapping: &HashMap<u64, usize>) -> [f64; 6] {
    let file = |kind: &str| dumps().join(format!("{program}.{kind}.csv"));
    let mut loads = [0.0; 32];
    let mut moved = 0;
    for [id, load, pe] in columns(&file("objects"), ["id", "load_s", "pe"]) {
        let core = mapping[&(id as u64)];
        loads[core] += load;
        moved += usize::from(core != pe as usize);
    }
    let makespan = loads.iter().copied().fold(0.0, f64::max);
    let imbalance = makespan / (loads.iter().sum::<f64>() / 32.0) - 1.0;
    let (mut weighted, mut remote, mut all, mut hops) = (0.0, 0.0, 0.0, 0.0);
    for [from, to, messages, bytes] in columns(&file("edges"), ["from", "to", "messages", "bytes"])
    {
        let (from, to) = (mapping[&(from as u64)], mapping[&(to as u64)]);
        // Node 3 has the cores 24 to 31.
        let (here, there) = (to / 8, from / 8);
        all += messages;
        if from != to {
            weighted += messages * FACTORS[here][there];
        }
        if here != there {
            remote += messages;
        }
        hops += bytes
            * if from == to {
                0.0
            } else if here == there {
                1.0
            } else {
                2.0
            };
    }
    [makespan, imbalance, weighted, remote / all, hops, moved as f64]
}

#[track_caller]
fn same(said: &Value, computed: [f64; 6], what: &str) {
    let names =
        ["makespan_s", "imbalance", "nuco_messages", "remote_share", "hop_bytes", "migrations"];
    for (name, value) in names.into_iter().zip(computed) {
        let said = said[name].as_f64().unwrap();
        assert!(
            (said - value).abs() <= 1e-9 * value.abs().max(1e-3),
            "{what}: {name} is {said}, not {value}"
        );
    }
}

/// `evenly map` on a dump, with more options; its JSON.
pub(crate) fn mapped(tool: &Tool, program: &str, options: &[&str]) -> (Output, Value) {
    let file =
        |kind: &str| dumps().join(format!("{program}.{kind}.csv")).to_str().unwrap().to_owned();
    let (objects, edges, factors) = (file("objects"), file("edges"), factors(tool));
    let given = [
        "map",
        "--objects",
        &objects,
        "--edges",
        &edges,
        "--topology",
        MACHINE,
        "--factors",
        &factors,
        "--json",
        "-",
    ];
    let output = tool.evenly(given.iter().chain(options)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let value = serde_json::from_slice(&output.stdout).unwrap();
    valid(&value);
    (output, value)
}

#[test]
fn mappings_of_others_are_judged_as_anybody_would() {
    let tool = Tool::new();
    for (program, files) in PROGRAMS.into_iter().zip([8, 6]) {
        let listed = fs::read_dir(dumps()).unwrap().map(|e| e.unwrap().path());
        let begins = |p: &PathBuf| {
            p.file_name().unwrap().to_str().unwrap().starts_with(&format!("{program}.map."))
        };
        let mut maps: Vec<PathBuf> = listed.filter(begins).collect();
        maps.sort();
        assert_eq!(maps.len(), files, "{program}");
        let options: Vec<&str> =
            maps.iter().flat_map(|m| ["--judge", m.to_str().unwrap()]).collect();
        let (output, value) = mapped(&tool, program, &options);
        assert_eq!(value["schema"], "evenly.map-comparison/1");
        let results = value["results"].as_array().unwrap();
        assert_eq!(results.len(), maps.len());
        for (map, result) in maps.iter().zip(results) {
            let name = map.file_name().unwrap().to_str().unwrap();
            assert_eq!((&result["name"], &result["by"]), (&name.into(), &"file".into()));
            assert!(stderr(&output).contains(name));
            same(&result["objectives"], computed(program, &pairs(map)), name);
        }
        let present = pairs(&dumps().join(format!("{program}.objects.csv")));
        same(&value["before"], computed(program, &present), "the present mapping");
    }
}

/// What is known of these dumps from elsewhere: imbalance in percent, and migrations.
#[test]
fn the_dumps_are_those_that_are_known() {
    let known = [
        ("lb_test_p32", "RefineCommLB", 4.2, 17),
        ("lb_test_p32", "ScotchLB", 4.8, 191),
        ("kneighbor_p32", "RefineLB", 5.0, 24),
        ("kneighbor_p32", "ScotchLB", 1.2, 391),
    ];
    let tool = Tool::new();
    for (program, strategy, imbalance, migrations) in known {
        let map = dumps().join(format!("{program}.map.{strategy}.csv"));
        let (_, value) = mapped(&tool, program, &["--judge", map.to_str().unwrap()]);
        let after = &value["results"][0]["objectives"];
        let found = 100.0 * after["imbalance"].as_f64().unwrap();
        assert!((found - imbalance).abs() < 0.05, "{program} {strategy}: {found}");
        assert_eq!(after["migrations"], migrations);
        if program == "lb_test_p32" {
            let before = 100.0 * value["before"]["imbalance"].as_f64().unwrap();
            assert!((before - 52.7).abs() < 0.05, "{before}");
        }
    }
}

/// What Charm++ dumped of its PEs, which had nothing else to do; and what it would be if one had.
#[test]
fn what_cores_have_to_do_besides_stays_there() {
    let tool = Tool::new();
    let dump = dumps().join("lb_test_p32.procs.csv");
    let with = |procs: &Path| {
        let options = ["--algorithm", "nuco", "--procs", procs.to_str().unwrap()];
        mapped(&tool, "lb_test_p32", &options)
    };
    let (_, plain) = mapped(&tool, "lb_test_p32", &["--algorithm", "nuco"]);
    let (_, idle) = with(&dump);
    assert_eq!((&idle["assignment"], &idle["background_s"]), (&plain["assignment"], &0.0.into()));
    assert_eq!(idle["objectives"], plain["objectives"]);
    // One PE that had more to do than all objects take gets none of them.
    let busy = tool.path("busy.csv");
    let text = fs::read_to_string(&dump).unwrap();
    let changed = text.replacen("1.477536233,0.000000000", "1.477536233,1000.0", 1);
    assert_ne!(changed, text);
    fs::write(&busy, changed).unwrap();
    let (output, value) = with(&busy);
    assert_eq!(value["background_s"], 1000.0);
    assert_eq!(value["objectives"]["after"]["makespan_s"], 1000.0);
    let on: Vec<&Value> =
        value["assignment"].as_array().unwrap().iter().map(|a| &a["core"]).collect();
    assert!(on.len() == 200 && !on.contains(&&Value::from(1)), "{on:?}");
    assert!(stderr(&output).contains("1000.00 s of load that is of no task on 1 core"));
}

#[test]
fn every_algorithm_maps_the_dumps_and_says_what_it_did() {
    let tool = Tool::new();
    let out = tool.path("map.csv");
    let limit = ["--time-limit", "50ms"];
    for program in PROGRAMS {
        let (output, all) = mapped(&tool, program, &[&limit[..], &["--compare"]].concat());
        assert_eq!(all["schema"], "evenly.map-comparison/1");
        let results = all["results"].as_array().unwrap();
        assert!(results.len() >= 6, "{all:#}");
        for result in results {
            let algorithm = result["name"].as_str().unwrap();
            assert!(stderr(&output).lines().any(|l| l.starts_with(algorithm)), "{algorithm}");
            let options = ["--algorithm", algorithm, "--out", out.to_str().unwrap()];
            let (_, value) = mapped(&tool, program, &[&limit[..], &options].concat());
            assert_eq!(
                (&value["schema"], &value["algorithm"]),
                (&"evenly.map/1".into(), &algorithm.into())
            );
            let what = format!("{program}, {algorithm}");
            let mapping = pairs(&out);
            same(&value["objectives"]["after"], computed(program, &mapping), &what);
            assert_eq!(value["migrations"], value["objectives"]["after"]["migrations"], "{what}");
            let assignment = value["assignment"].as_array().unwrap();
            assert_eq!(assignment.len(), mapping.len());
            for a in assignment {
                assert_eq!(
                    mapping[&a["id"].as_u64().unwrap()] as u64,
                    a["core"].as_u64().unwrap(),
                    "{what}"
                );
            }
        }
    }
}

/// The list of migrations is what is different between the mappings before and after, and no more.
#[test]
fn a_list_of_migrations_leads_from_the_one_mapping_to_the_other() {
    let tool = Tool::new();
    let [map, list] = ["map.csv", "list.csv"].map(|name| tool.path(name));
    for program in PROGRAMS {
        let run = |format: &str, out: &Path| {
            let options = ["--algorithm", "refine", "--format", format, "--out"];
            mapped(&tool, program, &[&options[..], &[out.to_str().unwrap()]].concat()).1
        };
        run("csv", &map);
        let said = run("migrations", &list)["migrations"].as_u64().unwrap();
        let objects = dumps().join(format!("{program}.objects.csv"));
        let mut places = pairs(&objects);
        let moves = columns(&list, ["id", "from", "to", "bytes"]);
        assert!(said > 0 && moves.len() as u64 == said, "{program}: {moves:?}");
        for [id, from, to, bytes] in moves {
            assert!(from != to && bytes >= 0.0);
            assert_eq!(places.insert(id as u64, to as usize), Some(from as usize), "{program}");
        }
        assert_eq!(places, pairs(&map), "{program}");
    }
}

/// The same tasks in three forms are the same tasks.
#[test]
fn whatever_the_form_of_the_input_is() {
    let tool = Tool::new();
    let file = |name: &str, content: &str| {
        fs::write(tool.path(name), content).unwrap();
        tool.path(name).to_str().unwrap().to_owned()
    };
    let objects = file("o.csv", "id,load_s\n0,1\n1,1\n2,1\n3,1\n");
    let edges = file("e.csv", "from,to,messages,bytes\n0,3,50,5000\n3,0,50,5000\n1,2,7,70\n");
    let tasks = file(
        "t.json",
        r#"{"schema":"evenly.tasks/1","tasks":[{"id":0,"load_s":1},{"id":1,"load_s":1},{"id":2,"load_s":1},
        {"id":3,"load_s":1}],"edges":[{"from":0,"to":3,"messages":50,"bytes":5000},
        {"from":3,"to":0,"messages":50,"bytes":5000},{"from":1,"to":2,"messages":7,"bytes":70}]}"#,
    );
    let head = "%%MatrixMarket matrix coordinate integer general\n4 4 3\n";
    let matrix = file("m.mtx", &format!("{head}1 4 50\n4 1 50\n2 3 7\n"));
    let bytes = file("b.mtx", &format!("{head}1 4 5000\n4 1 5000\n2 3 70\n"));
    let first = file("p.0", "E\t0\t3\t5000 bytes\t50 msgs sent\n");
    let rest = file("p.1", "E\t3\t0\t5000 bytes\t50 msgs sent\nE\t1\t2\t70 bytes\t7 msgs sent\n");
    let forms: [&[&str]; 4] = [
        &["--objects", &objects, "--edges", &edges],
        &["--tasks", &tasks],
        &["--matrix", &matrix, "--bytes-matrix", &bytes],
        &["--monitoring", &first, "--monitoring", &rest],
    ];
    let found = forms.map(|form| {
        let machine = ["--topology", "numa:2 core:2", "--json", "-", "--algorithm", "nuco"];
        let output = tool.evenly(["map"].iter().chain(form).chain(&machine)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        valid(&value);
        (value["objectives"].clone(), value["assignment"].clone())
    });
    assert_eq!(found[0].0["before"]["makespan_s"], 1.0);
    assert_eq!(found[0].0["before"]["remote_messages"], 107.0);
    assert!(found.iter().all(|f| *f == found[0]), "{found:#?}");
}

#[test]
fn a_rank_file_for_ranks_that_were_monitored() {
    let tool = Tool::new();
    let profile = tool.path("ranks.prof");
    fs::write(&profile, "E\t0\t1\t5000 bytes\t50 msgs sent\n").unwrap();
    let map = |options: &[&str]| {
        let given = [
            "map",
            "--monitoring",
            profile.to_str().unwrap(),
            "--topology",
            "core:2",
            "--out",
            "-",
        ];
        tool.evenly(given.iter().chain(options)).output().unwrap()
    };
    let options = ["--algorithm", "compact", "--format", "rankfile", "--hosts", "aa"];
    let output = map(&options);
    assert_eq!(text(&output.stdout), "rank 0=aa slot=0\nrank 1=aa slot=1\n", "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("2 tasks and 1 pair that communicate, on 2 cores of 1 NUMA node"),
        "{said}"
    );
    assert!(said.contains("evenly: note: no loads are given"), "{said}");
    let output = map(&["--algorithm", "compact", "-q", "--format", "mpich"]);
    assert_eq!(
        (text(&output.stdout).as_str(), stderr(&output).as_str()),
        ("-bind-to user:0,1\n", "")
    );
}

/// Two hosts that need not be there yet: planned by a description, in each form that launchers of several
/// hosts take, and by the XML that is made of it.
#[test]
fn hosts_are_planned_beforehand() {
    let tool = Tool::new();
    let (tasks, edges) = (tool.path("t.csv"), tool.path("e.csv"));
    fs::write(&tasks, "id,load_s\n0,1\n1,1\n2,1\n3,1\n").unwrap();
    let talk = "0,3,1e4\n3,0,1e4\n1,2,1e4\n2,1,1e4\n";
    fs::write(&edges, format!("from,to,messages\n{talk}")).unwrap();
    let xml = tool.path("hosts.xml");
    let described = "host:2 numa:1 core:2";
    let mut c = tool.evenly(["topology", "--synthetic", described, "--json", "-", "--export"]);
    let output = c.arg(&xml).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid(&found);
    assert_eq!(found["hosts"], serde_json::json!(["host0", "host1"]));
    assert_eq!(
        (&found["factors"]["source"], &found["factors"]["matrix"]),
        (&"assumed".into(), &serde_json::json!([[1.0, 3.4], [3.4, 1.0]]))
    );
    let map = |topology: &str, options: &[&str]| {
        let given =
            ["map", "--objects", tasks.to_str().unwrap(), "--edges", edges.to_str().unwrap()];
        let more = ["--topology", topology, "--algorithm", "nuco+", "--out", "-"];
        let output = tool.evenly(given.iter().chain(&more).chain(options)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        (text(&output.stdout), stderr(&output))
    };
    // Those that talk are on one host.
    let (file, said) = map(described, &["--format", "hostfile"]);
    let on: Vec<&str> = file.lines().collect();
    assert!(on[0] == on[3] && on[1] == on[2] && on[0] != on[1], "{file}");
    assert!(on.iter().all(|host| ["host0", "host1"].contains(host)), "{file}");
    assert!(said.contains("--hosts gives theirs") && said.contains("3.4 times"), "{said}");
    let xml = xml.to_str().unwrap();
    for format in ["hostfile", "rankfile", "mpich", "csv"] {
        assert_eq!(map(described, &["--format", format]).0, map(xml, &["--format", format]).0);
        if format != "csv" {
            let (file, said) = map(described, &["--format", format, "--hosts", "aa,bb"]);
            assert!(
                file.contains("aa") && file.contains("bb") && !file.contains("host0"),
                "{file}"
            );
            assert!(!said.contains("--hosts gives"), "{said}");
        }
    }
    let file = tool.path("map.json");
    map(described, &["--json", file.to_str().unwrap()]);
    let found = json(&file);
    valid(&found);
    assert!(found["machine"]["factors_from"].as_str().unwrap().starts_with("assumed"));
    assert_eq!(found["objectives"]["after"]["remote_messages"], 0.0);
}

/// What the launchers need to know beside their files: Open MPI counts no ranks where it is given a
/// rank file, and CPUs of a description are not those of the system.
#[test]
fn whoever_starts_ranks_is_told_how() {
    let tool = Tool::new();
    let tasks = tool.path("t.csv");
    fs::write(&tasks, "id,load_s\n0,1\n1,1\n").unwrap();
    let map = |topology: &str, judge: &str, format: &str| {
        let given = ["map", "--objects", tasks.to_str().unwrap(), "--topology", topology];
        let out = ["--out", "-", "--algorithm", judge, "--format", format];
        let output = tool.evenly(given.iter().chain(&out)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        (text(&output.stdout), stderr(&output))
    };
    let spins = "--mca mpi_yield_when_idle 1";
    let (file, said) = map("core:1", "compact", "rankfile");
    assert!(said.contains(spins), "{said}");
    assert_eq!(file, "rank 0=+n0 slot=0\nrank 1=+n0 slot=0\n");
    assert!(!map("core:2", "compact", "rankfile").1.contains(spins));
    // MPICH has no such setting. Of several hosts it is given no cores.
    let many = "more ranks than cores: MPICH's spin";
    assert!(map("core:1", "compact", "mpich").1.contains(many));
    for machine in ["core:2", "host:2 core:1", "host:2 core:2"] {
        let mapping = if machine == "core:2" { "compact" } else { "scatter" };
        assert!(!map(machine, mapping, "mpich").1.contains(many), "{machine}");
    }
    assert!(map("this", "compact", "rankfile").0.starts_with("rank 0=localhost slot="));
    let described = "numbers of the description";
    // Hardware threads as many systems number them: the second of each core after all first ones.
    let machine = "numa:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)";
    let xml = tool.path("machine.xml");
    let mut export =
        tool.evenly(["topology", "--synthetic", machine, "--export", xml.to_str().unwrap()]);
    assert!(export.output().unwrap().status.success());
    for (format, wanted) in [
        ("mpich", "-bind-to user:0,2\n"),
        ("map-cpu", "--cpu-bind=map_cpu:0,2\n"),
        ("masks", "id,mask\n0,0x1\n1,0x4\n"),
        ("csv", "id,pe\n0,0\n1,2\n"),
    ] {
        let (file, said) = map(machine, "scatter", format);
        assert!(file == wanted && said.contains(described) == (format != "csv"), "{file}{said}");
        // Cores have the numbers of the system there.
        let (file, said) = map(xml.to_str().unwrap(), "scatter", format);
        assert!(file == wanted && !said.contains(described), "{file}{said}");
        assert!(!map("this", "compact", format).1.contains(described));
    }
}

/// What was profiled with one MPI is not started by the launcher of the other.
#[test]
fn a_form_for_another_mpi_is_told() {
    let tool = Tool::new();
    let tasks = tool.path("t.json");
    let of = |mpi: &str| {
        format!(
            r#"{{"schema":"evenly.tasks/1","processes":true{mpi},"tasks":[{{"id":0,"load_s":1}},{{"id":1,"load_s":1}}]}}"#
        )
    };
    let other = "what was profiled is of";
    for (mpi, format, said) in [
        (
            r#","mpi":"openmpi""#,
            "mpich",
            Some("the launcher of MPICH, and what was profiled is of Open MPI"),
        ),
        (r#","mpi":"mpich""#, "rankfile", Some("is of MPICH; --format mpich is for that")),
        (r#","mpi":"openmpi""#, "rankfile", None),
        (r#","mpi":"mpich""#, "mpich", None),
        (r#","mpi":"mpich""#, "masks", None),
        ("", "rankfile", None),
    ] {
        fs::write(&tasks, of(mpi)).unwrap();
        let given = ["map", "--tasks", tasks.to_str().unwrap(), "--topology", "core:2", "--format"];
        let output = tool.evenly(given.iter().chain(&[format, "--out", "-"])).output().unwrap();
        let words = stderr(&output);
        assert!(output.status.success(), "{words}");
        assert_eq!(words.contains(other), said.is_some(), "{mpi} {format}: {words}");
        assert!(said.is_none_or(|said| words.contains(said)), "{words}");
    }
}

#[test]
fn what_is_odd_is_said() {
    let tool = Tool::new();
    let write = |name: &str, text: &str| {
        fs::write(tool.path(name), text).unwrap();
        tool.path(name).to_str().unwrap().to_owned()
    };
    let tasks = write("o.csv", "id,load_s\n0,1\n1,1\n");
    let factors = write("f.csv", "1,0.5\n0.5,1\n");
    let matrix = write("m.mtx", "%%MatrixMarket matrix coordinate real symmetric\n3 3 1\n2 1 5\n");
    let given = ["map", "--objects", &tasks, "--topology", "numa:2 core:2"];
    for (option, file, words) in
        [("--factors", factors, "a factor is 0.5"), ("--matrix", matrix, "3 rows for 2 tasks")]
    {
        let output = tool.evenly(given.iter().copied().chain([option, &file])).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.success() && said.contains(words), "{said}");
    }
}

/// Between the two markers of the page stand commands, and what the mapping is that they end with.
#[test]
fn the_example_of_the_manual_works() {
    let tool = Tool::new();
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/map.md")).unwrap();
    let block = |after: &str| {
        let rest = page.split_once(after).unwrap().1.split_once("\n    ").unwrap().1;
        let lines = rest
            .lines()
            .enumerate()
            .take_while(|(k, l)| *k == 0 || l.starts_with("    ") || l.is_empty());
        let lines =
            lines.map(|(k, l)| if k == 0 { l } else { l.strip_prefix("    ").unwrap_or(l) });
        lines.collect::<Vec<_>>().join("\n").trim_end().to_owned() + "\n"
    };
    let path = Path::new(tool.exe()).parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let output = tool
        .by("sh")
        .args(["-e", "-c", &block("<!-- example -->")])
        .env("PATH", path)
        .current_dir(tool.dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let mapping = fs::read_to_string(tool.path("map.csv")).unwrap();
    assert_eq!(mapping, block("<!-- its mapping -->"));
    valid(&json(&tool.path("map.json")));
}

/// `--front` draws what there is to choose from, and how mappings of others compare. How good mappings are that are
/// found in so little time depends on the machine: that is tested with a clock that stands still
/// (`policies/nuco/tests/charm.rs`).
#[test]
fn a_front_is_drawn_beside_the_mappings_of_others() {
    let tool = Tool::new();
    let name = tool.path("front");
    let judged = dumps().join("lb_test_p32.map.GreedyLB.csv");
    let options = ["--front", name.to_str().unwrap(), "--effort", "0.02", "--alpha", "auto"];
    let judge = ["--judge", judged.to_str().unwrap()];
    let (output, value) = mapped(&tool, "lb_test_p32", &[&options[..], &judge].concat());
    assert!(stderr(&output).starts_with("nuco+: 4"), "some 40 runs: {}", stderr(&output));
    let results = value["results"].as_array().unwrap();

    let data = fs::read_to_string(tool.path("front.csv")).unwrap();
    let rows: Vec<Vec<&str>> = data.lines().skip(1).map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), results.len());
    for (row, result) in rows.iter().zip(results) {
        let o = &result["objectives"];
        assert_eq!(row[2], o["migrations"].to_string());
        assert_eq!(row[3], format!("{:.4}", 100.0 * o["imbalance"].as_f64().unwrap()));
    }
    let (_, ours) = results.split_last().unwrap();
    let three = |r: &Value| {
        ["migrations", "imbalance", "nuco_messages"].map(|name| r["objectives"][name].to_string())
    };
    let different: HashSet<[String; 3]> = ours.iter().map(three).collect();
    assert_eq!(different.len(), ours.len(), "each result once: {data}");
    // Where a migration must save all of the makespan none is worth it, and where imbalance is all that counts
    // there is hardly any; between the two there is something for any number of migrations.
    let imbalance = ours.iter().map(|r| r["objectives"]["imbalance"].as_f64().unwrap());
    assert!(imbalance.fold(f64::INFINITY, f64::min) < 0.02, "{data}");
    let mut moves: Vec<u64> = ours.iter().map(|r| r["migrations"].as_u64().unwrap()).collect();
    moves.sort_unstable();
    assert_eq!(moves[0], 0, "{data}");
    let widest = moves.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(widest <= 40, "{widest} of 200 tasks: {data}");
    for picture in ["front-imbalance.svg", "front-messages.svg"] {
        let svg = fs::read_to_string(tool.path(picture)).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("GreedyLB"), "{picture}");
    }
}

/// A program that is not there is named, with the package that has it; a comparison goes on without.
#[test]
fn programs_that_are_not_installed() {
    let tool = Tool::new();
    let tasks = tool.path("t.csv");
    fs::write(&tasks, "id,load_s\n0,1\n1,1\n").unwrap();
    let map = |options: &[&str]| {
        let given = ["map", "--objects", tasks.to_str().unwrap(), "--topology", "core:2"];
        tool.evenly(given.iter().chain(options)).env("PATH", "/nowhere").output().unwrap()
    };
    for (name, executable) in
        [("scotch", "scotch_gmap"), ("metis", "gpmetis"), ("kahip", "python3")]
    {
        let output = map(&["--algorithm", name]);
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(125), 1));
        let said = stderr(&output);
        assert!(said.contains(executable) && said.contains(&format!("install {name}")), "{said}");
    }
    // METIS refuses what has no edges; the others are compared.
    let given = ["map", "--objects", tasks.to_str().unwrap(), "--topology", "core:2"];
    let more = ["--compare", "--time-limit", "1ms"];
    let output = tool.evenly(given.iter().chain(&more)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text(&output.stdout).contains("nuco+"));
    assert!(stderr(&output).contains("left out: metis"), "{}", stderr(&output));
    let output = map(&["--compare", "--time-limit", "1ms"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("left out: scotch, as scotch_gmap is not in PATH"));
    let module = "left out: kahip, as no python3 in PATH has the module kahip (pip install kahip)";
    assert!(stderr(&output).contains(module), "{}", stderr(&output));
    assert!(!text(&output.stdout).contains("metis"));
}

/// A program that never answers is ended when its time is up.
#[test]
fn a_program_that_hangs() {
    let tool = Tool::new();
    let tasks = tool.path("t.csv");
    fs::write(&tasks, "id,load_s\n0,1\n1,1\n").unwrap();
    crate::profile::script_at(&tool.path("scotch_gmap"), "exec sleep 1000");
    let path = format!("{}:/usr/bin:/bin", tool.dir.path().display());
    let given = ["map", "--objects", tasks.to_str().unwrap(), "--topology", "core:2"];
    let more = ["--algorithm", "scotch", "--program-limit", "50ms"];
    let output = tool.evenly(given.iter().chain(&more)).env("PATH", path).output().unwrap();
    let said = stderr(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(
        said.contains("scotch_gmap: it was ended, as it had not answered after 0.05 s"),
        "{said}"
    );
}

/// A million tasks: it is said how long it will take, and then it is done.
#[test]
#[ignore = "takes long: ./dev test --all"]
fn a_million_tasks() {
    let tool = Tool::new();
    let (objects, edges) = (tool.path("o.csv"), tool.path("e.csv"));
    let (mut o, mut e) = (String::from("id,load_s\n"), String::from("from,to,messages\n"));
    for id in 0..1_000_000_u32 {
        o.push_str(&format!("{id},0.{}\n", 1 + id % 9));
        e.push_str(&format!("{id},{},1\n", (id + 1) % 1_000_000));
    }
    fs::write(&objects, o).unwrap();
    fs::write(&edges, e).unwrap();
    let (objects, edges) = (objects.to_str().unwrap(), edges.to_str().unwrap());
    let given = ["map", "--objects", objects, "--edges", edges, "--topology", "numa:10 core:10"];
    let output = tool.evenly(given.iter().chain(&["--algorithm", "nuco"])).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    let foreseen = "evenly: nuco, 1000000 tasks on 100 cores: this may take up to ";
    assert!(said.lines().any(|l| l.starts_with(foreseen)), "{said}");
    let table = text(&output.stdout);
    let row = table.lines().find(|l| l.starts_with("nuco")).unwrap();
    // Loads that are tenths fit together.
    assert_eq!(row.split_ascii_whitespace().nth(2), Some("0.0"), "{table}");
}

/// From 100,000 tasks or pairs on one line says how long it may take, whoever maps.
#[test]
fn it_is_said_how_long_many_tasks_take() {
    let tool = Tool::new();
    let told = |tasks: u32, more: &[&str]| -> Vec<String> {
        let objects = tool.path("o.csv");
        let rows: String = (0..tasks).map(|id| format!("{id},1\n")).collect();
        fs::write(&objects, format!("id,load_s\n{rows}")).unwrap();
        let given = ["map", "--objects", objects.to_str().unwrap(), "--topology", "core:4"];
        let limit = ["--time-limit", "200ms"];
        let output = tool.evenly(given.iter().chain(&limit).chain(more)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let lines = stderr(&output);
        lines.lines().filter(|l| l.contains("may take")).map(str::to_owned).collect()
    };
    let said = told(100_000, &[]);
    let line = "evenly: nuco+, 100000 tasks on 4 cores: this may take up to ";
    assert!(said.len() == 1 && said[0].starts_with(line), "{said:?}");
    assert!(said[0].contains("200.0 ms of it search (--time-limit)"), "{said:?}");
    assert_eq!(told(100_000, &["--algorithm", "compact"]).len(), 1);
    assert!(told(100_000, &["-q"]).is_empty());
    assert!(told(99_999, &[]).is_empty());
}

/// `nuco+` ends where its limit is less than even one algorithm needs for so many tasks, and what it found is not
/// worse than the present mapping.
#[test]
fn a_time_limit_with_many_tasks_leaves_a_mapping_that_is_no_worse() {
    let tool = Tool::new();
    let objects = tool.path("o.csv");
    let mut text = String::from("id,load_s\n");
    for id in 0..200_000_u32 {
        text.push_str(&format!("{id},0.{}\n", 1 + id * 7 % 9));
    }
    fs::write(&objects, text).unwrap();
    let given = ["map", "-q", "--objects", objects.to_str().unwrap(), "--json", "-"];
    let machine = ["--topology", "numa:50 core:10", "--current", "round-robin"];
    let limit = ["--time-limit", "100ms"];
    let output = tool.evenly(given.iter().chain(&machine).chain(&limit)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid(&value);
    let [before, after] = ["before", "after"].map(|j| value["objective_s"][j].as_f64().unwrap());
    assert!(after <= before, "{after} {before}");
}

//! `--json`, the same everywhere: to a file, or to standard output where that is evenly's own; what
//! is written is as the schema that it names says.

use crate::schema::valid;
use crate::support::{Child, Tool, json, stderr, text, workload};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

#[track_caller]
fn parsed(output: &Output, schema: &str) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid(&value);
    assert_eq!(value["schema"], schema);
    value
}

#[test]
fn standard_output_of_run_and_attach_is_not_evenlys() {
    let tool = Tool::new();
    for (command, option) in
        [("run", "--json"), ("run", "--record"), ("attach", "--json"), ("attach", "--record")]
    {
        let mut c = tool.evenly([command, option, "-"]);
        c.current_dir(tool.dir.path());
        let target: &[&str] = if command == "run" { &["--", "touch", "x"] } else { &["1"] };
        let output = c.args(target).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.lines().count() == 1 && said.contains(&format!("{option} -")), "{said}");
    }
    assert!(!tool.path("-").exists() && !tool.path("x").exists());
    // A file of that name can be had.
    let mut c = tool.run("-q --json ./-", &["true"]);
    assert!(c.current_dir(tool.dir.path()).status().unwrap().success());
    valid(&json(&tool.path("-")));
}

#[test]
fn of_a_comparison() {
    let tool = Tool::new();
    let compare = |to: &str| {
        let mut c = tool.evenly(["compare", "--runs", "1", "--policies", "kernel,observe"]);
        c.args(["--json", to, "--", "sleep", "0.2"]).current_dir(tool.dir.path()).output().unwrap()
    };
    let output = compare("-");
    parsed(&output, "evenly.compare/1");
    assert!(stderr(&output).contains("median"), "{}", stderr(&output));
    let output = compare("%r.json");
    assert!(text(&output.stdout).contains("median"), "{}", stderr(&output));
    valid(&json(&tool.path("0.json")));
}

/// Whoever else computes is in the figures, and that is said.
#[test]
fn a_comparison_tells_of_others() {
    let tool = Tool::new();
    let mut hog = Command::new(workload("churn"))
        .args(["--workers", "1", "--duration-s", "600"])
        .spawn()
        .unwrap();
    let mut c = tool.evenly(["compare", "--runs", "1", "--policies", "kernel,observe"]);
    let output = c.args(["--json", "-", "--", "sleep", "1"]).output().unwrap();
    hog.kill().unwrap();
    hog.wait().unwrap();
    let value = parsed(&output, "evenly.compare/1");
    let warnings = value["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|w| w["kind"] == "others"), "{warnings:?}");
    assert!(stderr(&output).contains("others took up to"), "{}", stderr(&output));
}

#[test]
fn of_a_recording() {
    let tool = Tool::new();
    let record = tool.path("run.evenly");
    let name = record.to_str().unwrap();
    let options = format!("--record {name}");
    tool.balanced(&options);
    let report = |args: &[&str]| tool.evenly(["report", name]).args(args).output().unwrap();

    assert_eq!(stderr(&report(&["--json", "-"])), "");
    let figures = parsed(&report(&["--json", "-"]), "evenly.report/1");
    valid(&figures["run"]);
    assert_eq!((&figures["threads"], &figures["truncated"]), (&3.into(), &false.into()));
    let domains = figures["run"]["domains"].as_array().unwrap();
    let moves: u64 = domains.iter().map(|d| d["migrations"].as_u64().unwrap()).sum();
    assert!(moves > 0 && figures["moves"] == moves, "{figures:#}");
    assert_eq!(fs::read_dir(tool.dir.path()).unwrap().count(), 2, "only what was asked for");

    let replayed = |policy: &str| {
        let args = ["simulate", "--replay", name, "--policy", policy, "--json", "-"];
        parsed(&tool.evenly(args).output().unwrap(), "evenly.replay/1")
    };
    let value = replayed("juggle");
    assert!(value["moved"].as_u64().unwrap() > 0 && value["points"].as_u64().unwrap() > 0);
    assert_eq!(replayed("observe")["would_move"], 0);
    assert!(replayed("nuco")["lacks"].as_str().unwrap().contains("messages"));

    let (svg, page) = (tool.path("r.svg"), tool.path("r.html"));
    let figures = tool.path("r.json");
    let files = ["--svg", svg.to_str().unwrap(), "--json", figures.to_str().unwrap()];
    let output = report(&[&files[..], &["--html", "-"]].concat());
    assert!(
        output.status.success() && text(&output.stdout).contains("<svg"),
        "{}",
        stderr(&output)
    );
    assert!(svg.exists() && !page.exists());
    assert_eq!(json(&figures)["wrote"].as_array().unwrap().len(), 3);
    let output = report(&["--svg", "-", "--json", "-"]);
    assert!(stderr(&output).contains("two outputs") && output.stdout.is_empty());

    // Of a recorder that was killed.
    let whole = fs::read_to_string(&record).unwrap();
    let cut = whole.trim_end().rfind('\n').unwrap();
    for (length, within) in [(cut + 1, false), (cut - 1, true)] {
        fs::write(&record, &whole[..length]).unwrap();
        let output = report(&["--json", "-"]);
        let figures = parsed(&output, "evenly.report/1");
        assert_eq!((&figures["run"], &figures["truncated"]), (&Value::Null, &true.into()));
        // Who looks at the page only is told as well, and whoever makes something else of it.
        let replay = ["simulate", "--replay", name, "--policy", "observe"];
        let predict = ["predict", "--from", name, "--phase", "1s"];
        let others = [&replay[..], &predict].map(|args| tool.evenly(args).output().unwrap());
        for output in [output].iter().chain(&others) {
            let said = stderr(output);
            assert!(said.lines().count() == 1 && output.status.success(), "{said}");
            assert!(said.starts_with(&format!("evenly: warning: {name}: it is not fin")), "{said}");
            assert_eq!(said.contains("within a line"), within, "{said}");
        }
    }
}

#[test]
fn of_the_live_view() {
    let tool = Tool::new();
    let program = Child::spawn(
        tool.by(&workload("churn"))
            .args(["--threads", "1", "--workers", "3", "--rate", "0", "--duration-s", "300"])
            .stdout(Stdio::null()),
    );
    let file = tool.path("top.json");
    let id = program.id();
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    let has_three = |text: &str| {
        let last = text.lines().last().map(serde_json::from_str::<Value>);
        last.is_some_and(|l| l.is_ok_and(|l| l["threads"].as_array().is_some_and(|t| t.len() == 3)))
    };
    let alone = text(&tool.top(&[&id, "--json", "-"], has_three).stdout);
    let beside = tool.top(&[&id, "--plain", "--json", file.to_str().unwrap()], |shown| {
        !shown.is_empty() && fs::read_to_string(&file).is_ok_and(|text| has_three(&text))
    });
    assert!(text(&beside.stdout).contains("threads on"), "{}", stderr(&beside));
    for lines in [lines(&alone), lines(&fs::read_to_string(&file).unwrap())] {
        lines.iter().for_each(valid);
        let last = lines.last().unwrap();
        assert_eq!(last["schema"], "evenly.top/1");
        assert_eq!(last["threads"].as_array().unwrap().len(), 3, "{last:#}");
    }
}

#[test]
fn of_a_simulation() {
    let tool = Tool::new();
    let simulate = |options: &str| {
        let args = "simulate --threads 8 --cpus 7 --phase 1s --period 100ms --phases 1 --json -";
        tool.evenly(args.split_whitespace().chain(options.split_whitespace())).output().unwrap()
    };
    for policy in ["ideal", "juggle", "hybrid", "static", "observe"] {
        let output = simulate(&format!("--policy {policy}"));
        let value = parsed(&output, "evenly.simulate/1");
        assert_eq!((&value["policy"], &value["static_s"]), (&policy.into(), &2.0.into()));
        assert!(stderr(&output).contains("relative speedup"));
        assert_eq!(output.stdout, simulate(&format!("--policy {policy}")).stdout, "repeatable");
    }
    // By hand: 11 periods of 100 ms, and half a period more for the last two.
    let value = parsed(&simulate("--policy ideal"), "evenly.simulate/1");
    assert_eq!(value["makespan_s"], 1.15);
}

#[test]
fn of_a_simulated_power5() {
    let tool = Tool::new();
    let run = |options: &str| {
        let all = format!("simulate --power5 metbench-var --json - {options}");
        tool.evenly(all.split_whitespace()).output().unwrap()
    };
    let output = run("");
    let value = parsed(&output, "evenly.power5/1");
    assert_eq!(value["arms"].as_array().unwrap().len(), 5);
    assert!(stderr(&output).contains("hpc-adaptive") && stderr(&output).contains("(326.41)"));
    assert_eq!(output.stdout, run("").stdout, "repeatable");
    let options = "--policy hpc-adaptive --set global-weight=1 --set max-prio=5 --latency 1ms";
    let tuned = parsed(&run(options), "evenly.power5/1");
    assert_eq!(tuned["arms"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&tuned["latency_s"], &tuned["parameters"]["max-prio"]),
        (&1e-3.into(), &5.0.into())
    );
    let time = |v: &Value, arm: usize| v["arms"][arm]["time_s"].as_f64().unwrap();
    assert!(time(&tuned, 1) > time(&value, 3), "only history, and less priority");
}

#[test]
fn of_simulated_loops() {
    let tool = Tool::new();
    let run = |options: &str| {
        let all = format!("simulate --json - --loops {options}");
        tool.evenly(all.split_whitespace()).output().unwrap()
    };
    let output = run("matrix");
    let value = parsed(&output, "evenly.simulate-loops/1");
    let arms = value["arms"].as_array().unwrap();
    let of = |name: &str| arms.iter().find(|arm| arm["divides"] == name).unwrap();
    assert_eq!(
        (arms.len(), &value["gains"], &value["main"]),
        (10, &true.into(), &"product".into())
    );
    assert!(of("rp")["of_plain"].as_f64().unwrap() < 0.8, "{value:#}");
    assert_eq!(output.stdout, run("matrix").stdout, "repeatable");
    // A line for each, of 100 columns at most.
    let said = stderr(&output);
    assert!(said.lines().count() <= 16 && said.lines().all(|l| l.len() <= 100), "{said}");
    assert!(said.contains("others use 50 % of CPUs 0-1,4-5,8-9,12-13"), "{said}");

    let both = parsed(&run("gauss --cooperate"), "evenly.simulate-loops/1");
    let arms = both["arms"].as_array().unwrap();
    let named = |name: &str| arms.iter().find(|arm| arm["divides"] == name).unwrap();
    assert_eq!((arms.len(), &both["best"]), (19, &"rp-steal+sch".into()));
    assert!(named("rp-steal+sch")["others_take"].as_f64().unwrap() < 2.02, "{both:#}");
    assert_eq!(named("free-cpus")["others_take"], 1.0);

    let loads = |options: &str| {
        let value = parsed(&run(options), "evenly.simulate-loops/1");
        let nodes = value["nodes"].as_array().unwrap().last().unwrap().as_u64().unwrap();
        (nodes + 1, value["loads"].to_string(), value["gains"].as_bool().unwrap())
    };
    let (zero, quarter) = (String::from("[0.0,0.0,0.0,0.0]"), String::from("[0.0,0.25,0.0,0.25]"));
    assert_eq!(loads("matrix --nodes 2 --cpus 4 --load 0"), (2, zero, false));
    assert_eq!(loads("matrix --nodes 1 --cpus 4 --loaded 1,3 --load 25%"), (1, quarter, true));

    let file = tool.path("l.toml");
    let text = "steps = 2\n[machine]\nnodes = 2\nprocessors = 6\n[[loop]]\nname = \"l\"\nwork = \"1s\"\n\
        iterations = 60\n";
    fs::write(&file, text).unwrap();
    let value = parsed(&run(file.to_str().unwrap()), "evenly.simulate-loops/1");
    assert_eq!(value["loads"].to_string(), "[0.5,0.0,0.0,0.5,0.0,0.0]");
    assert_eq!(
        (&value["program"], &value["limit_ns"]),
        (&file.to_str().into(), &24_000_000_000_u64.into())
    );
}

#[test]
fn of_figures() {
    let tool = Tool::new();
    let out = tool.path("made/here");
    let dir = out.to_str().unwrap();
    let only = ["--only", "oslb-2", "--only", "juggle-16"];
    let output = tool.evenly(["figures", "--out", dir, "--json", "-"]).args(only).output().unwrap();
    let value = parsed(&output, "evenly.figures/1");
    let figures = value["figures"].as_array().unwrap();
    let ids: Vec<&str> = figures.iter().map(|f| f["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["juggle-16", "oslb-2"]);
    for file in figures.iter().flat_map(|f| f["files"].as_array().unwrap()) {
        let text = fs::read_to_string(out.join(file.as_str().unwrap())).unwrap();
        assert!(text.starts_with("<svg") || text.starts_with("series,"), "{file}");
    }
    // These, and the page.
    let files = figures.iter().map(|f| f["files"].as_array().unwrap().len()).sum::<usize>();
    assert_eq!(fs::read_dir(&out).unwrap().count(), files + 1);
    let page = fs::read_to_string(out.join("figures.md")).unwrap();
    assert!(page.contains("(juggle-16.svg)") && stderr(&output).contains("as in the paper"));
}

#[test]
fn of_a_topology() {
    let tool = Tool::new();
    let topology = |args: &[&str]| {
        let mut c = tool.evenly(["topology"]);
        c.env("XDG_CACHE_HOME", tool.path("cache")).args(args).output().unwrap()
    };
    let value = parsed(&topology(&["--json", "-"]), "evenly.topology/1");
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_eq!((&value["source"], &value["measured"]), (&"here".into(), &Value::Null));
    assert_eq!(value["tree"]["cpus"], online.trim());
    let (xml, svg) = (tool.path("m.xml"), tool.path("m-%p.svg"));
    let (xml, svg) = (xml.to_str().unwrap(), svg.to_str().unwrap());
    let output = topology(&["--synthetic", "numa:2 core:4 pu:2", "--export", xml, "--svg", svg]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    let said = text(&output.stdout);
    assert!(said.contains("2 NUMA nodes, 8 cores, 16 CPUs") && said.contains("unknown"), "{said}");
    let names: Vec<String> = fs::read_dir(tool.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".svg"))
        .collect();
    assert!(names.len() == 1 && !names[0].contains('%'), "{names:?}");
    let value = parsed(&topology(&["--xml", xml, "--json", "-"]), "evenly.topology/1");
    assert_eq!((&value["source"], &value["cores"]), (&"xml".into(), &8.into()));
    assert_eq!(value["factors"]["matrix"], serde_json::json!([[1.0, 1.0], [1.0, 1.0]]));
    // What was measured earlier is kept, and shown as measured; it is as the schema says.
    let output = topology(&["--measure", "--json", "-"]);
    let value = parsed(&output, "evenly.topology/1");
    if value["measured"].is_null() {
        // Where it cannot be measured that is said, and nothing is called measured.
        assert!(value["notes"].to_string().contains("not measured"), "{value:#}");
        assert_ne!(value["factors"]["source"], "measured");
        evenly_testing::skip("mbind", &value["notes"]);
    } else {
        assert_eq!(value["factors"]["source"], "measured");
        let again = parsed(&topology(&["--measure", "--json", "-"]), "evenly.topology/1");
        assert_eq!(again["measured"]["unix_s"], value["measured"]["unix_s"]);
        assert!(text(&topology(&[]).stdout).contains("(measured 2"));
    }
}

#[test]
fn of_nothing_to_restore() {
    let tool = Tool::new();
    let output = tool.evenly(["restore", "--json", "-"]).output().unwrap();
    let value = parsed(&output, "evenly.restore/1");
    assert_eq!(value["journals"].as_array().unwrap().len(), 0);
    assert_eq!(stderr(&output), "evenly: nothing to restore\n");
}

/// Whatever this machine has: each mechanism is told, those that are missing with a reason.
#[test]
fn of_mechanisms() {
    let tool = Tool::new();
    let output = tool.evenly(["doctor", "--mechanisms", "--json", "-"]).output().unwrap();
    let value = parsed(&output, "evenly.mechanisms/1");
    let all = value["mechanisms"].as_array().unwrap();
    assert_eq!(all.len(), 5, "{value:#}");
    for m in all {
        assert_eq!(m["available"].as_bool().unwrap(), m["why_not"].is_null(), "{m:#}");
        assert!(stderr(&output).contains(m["name"].as_str().unwrap()), "{m:#}");
    }
    let sources = value["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 2, "{value:#}");
    for s in sources {
        assert_eq!(s["available"].as_bool().unwrap(), s["why_not"].is_null(), "{s:#}");
    }
    let placement = all.iter().find(|m| m["name"] == "placement").unwrap();
    assert_eq!(placement["available"], true);
    // It is for itself, and starts no program.
    let both = tool.evenly(["doctor", "--mechanisms", "--", "true"]).output().unwrap();
    assert_ne!(both.status.code(), Some(0));
}

//! Bad input: one line that names it, status 125, and nothing was started.

use crate::schema::valid;
use crate::support::{Child, Tool, stderr, wait_until, workload};
use std::fs;
use std::process::{Command, Output, Stdio};

#[track_caller]
fn refused(output: &Output, words: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("evenly: "), "{said}");
    assert!(words.split('|').all(|w| said.contains(w)), "{said} should have {words}");
    for twice in
        ["os error", "cannot", "see evenly", "duration '", "glob", "EVENLY_STATE_DIR", "errno"]
    {
        assert!(said.matches(twice).count() <= 1, "{said} has '{twice}' twice");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn options_of_figures() {
    let tool = Tool::new();
    let (file, out) = (tool.path("file"), tool.path("out"));
    fs::write(&file, "kept").unwrap();
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    let json = tool.path("no/x.json");
    let cases: [(&[&str], &str); 5] = [
        (&["--only", "juggle-99"], "--only|juggle-99|juggle-9, "),
        (&["--paper", "numa"], "--paper|juggle|oslb|nuco"),
        (&["--paper", "oslb", "--only", "juggle-9"], "--only|--paper"),
        (&["--only", "oslb-2", "--out", file], "--out|file"),
        (&["--only", "oslb-2", "--out", out, "--json", json.to_str().unwrap()], "--json|no/x.json"),
    ];
    for (args, words) in cases {
        let output = tool.evenly(["figures"]).args(args).current_dir(tool.dir.path()).output();
        refused(&output.unwrap(), words);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

#[test]
fn options_of_topology() {
    let tool = Tool::new();
    let (file, out) = (tool.path("file"), tool.path("out"));
    fs::write(&file, "kept").unwrap();
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    let missing = tool.path("no/x.json");
    let missing = missing.to_str().unwrap();
    let tag = tool.path("tag");
    fs::write(&tag, "<topology version=\"2.0\"/>").unwrap();
    let tag = tag.to_str().unwrap();
    let cases: [(&[&str], &str); 14] = [
        (&["--synthetic", "numa:2 host:2"], "--synthetic|hosts are the first level"),
        (&["--synthetic", "host:999 core:2"], "--synthetic|1 to 256 hosts"),
        (&["--synthetic", "cheese:2"], "--synthetic|cheese:2|numa:2 core:4 pu:2"),
        (&["--synthetic", ""], "--synthetic|it is empty"),
        (&["--xml", tag], "--xml|is no XML of hwloc|it has no machine"),
        (&["--synthetic", "core:99999 pu:9"], "--synthetic|more than 16384 CPUs"),
        (&["--synthetic", "pu:2", "--xml", file], "--synthetic|--xml"),
        (&["--synthetic", "pu:2", "--measure"], "--synthetic|--measure"),
        (&["--again"], "--measure"),
        (&["--xml", missing], "--xml|no/x.json|No such file"),
        (&["--xml", file], "--xml|is no XML of hwloc|topology"),
        (&["--xml", file, "--export", file], "--export|over the input"),
        (&["--json", out, "--svg", out], "out|two outputs"),
        (&["--json", missing], "--json|no/x.json"),
    ];
    for (args, words) in cases {
        let output = tool.evenly(["topology"]).args(args).current_dir(tool.dir.path()).output();
        refused(&output.unwrap(), words);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

/// The XML of a real machine, cut short and with values changed: a machine, or refused in one line, by both
/// commands that read it. `mapping/topology/tests/malformed.rs` tries hundreds, of this one and of others.
#[test]
fn xml_of_hwloc_that_is_broken() {
    let tool = Tool::new();
    let (xml, tasks) = (tool.path("broken.xml"), tool.path("t.csv"));
    fs::write(&tasks, "id,load_s\n0,1\n").unwrap();
    let whole = include_str!("../../../mapping/topology/tests/captured/vm.xml");
    let quotes: Vec<usize> = whole.match_indices("=\"").map(|(at, _)| at + 2).collect();
    let cut = (0..12).map(|k| whole[..whole.len() * k / 12].to_owned());
    let changed =
        quotes.iter().step_by(quotes.len() / 12).zip(["", "99999999", "-1"].iter().cycle());
    let changed = changed.map(|(&at, value)| {
        let end = at + whole[at..].find('"').unwrap();
        [&whole[..at], value, &whole[end..]].concat()
    });
    let mut bad = 0;
    for text in cut.chain(changed) {
        fs::write(&xml, text).unwrap();
        let xml = xml.to_str().unwrap();
        let topology = tool.evenly(["topology", "--xml", xml]).output().unwrap();
        let tasks = tasks.to_str().unwrap();
        let map = tool.evenly(["map", "--objects", tasks, "--topology", xml]).output().unwrap();
        for (output, option) in [(topology, "--xml"), (map, "--topology")] {
            if output.status.code() != Some(0) {
                refused(&output, &format!("{option}|broken.xml"));
                bad += 1;
            }
        }
    }
    assert!(bad >= 24, "{bad} of 48");
}

#[test]
fn options_of_run() {
    let tool = Tool::new();
    let marker = tool.path("started");
    let missing = format!("--json {}", tool.path("no/x.json").display());
    let record = format!("--record {}", tool.path("no/x.rec").display());
    let directory = format!("--json {}", tool.dir.path().display());
    let cases = [
        ("--policy nope", "--policy|nope|hybrid, juggle"),
        ("--period 20", "--period|20ms"),
        ("--period 0ms", "--period"),
        ("--period x", "--period|auto"),
        ("--threads 0", "--threads"),
        ("--threads many", "--threads"),
        ("--cpus=", "--cpus"),
        ("--cpus 3-1", "--cpus"),
        ("--cpus 1,,2", "--cpus"),
        ("--cpus 8000-8191", "--cpus 8000-8191|may use"),
        ("--domain socket", "--domain|numa"),
        ("--source ptrace", "--source|schedstat"),
        ("--budget 0", "--budget"),
        ("--budget 101", "--budget"),
        ("--seed x", "--seed"),
        ("--only [", "--only"),
        ("--skip {", "--skip"),
        ("--record-limit 0", "--record-limit"),
        ("-q -v", "cannot be used with"),
        ("--polcy juggle", "no option --polcy|--help"),
        (&missing, "--json|no/x.json|No such file"),
        (&record, "--record|no/x.rec|No such file"),
        (&directory, "--json|directory"),
    ];
    for (options, words) in cases {
        refused(&tool.run(options, &["touch", marker.to_str().unwrap()]).output().unwrap(), words);
        assert!(!marker.exists(), "{options}: the program was started");
    }
    refused(&tool.evenly(["run"]).output().unwrap(), "CMD|evenly run --help");
    refused(&tool.evenly(["fly"]).output().unwrap(), "fly");
}

#[test]
fn processes_that_cannot_be_attached_to() {
    let tool = Tool::new();
    let attach = |pid: &str| tool.evenly(["attach", pid]).output().unwrap();
    refused(&attach("0"), "0");
    refused(&attach("-1"), "-1");
    refused(&attach("self"), "'self': a whole number is needed");
    refused(&attach("999999999"), "no|process|999999999");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|c| c.trim() == "kthreadd") {
        refused(&attach("2"), "kernel");
    } else {
        evenly_testing::skip("kernel-threads", "no kernel thread can be seen here");
    }
    let own = format!("exec {} attach $$", tool.exe());
    refused(&tool.by("sh").args(["-c", &own]).output().unwrap(), "itself");

    let program = Child::spawn(
        tool.by(&workload("churn"))
            .args(["--threads", "2", "--workers", "0", "--rate", "0", "--duration-s", "300"])
            .stdout(Stdio::null()),
    );
    let tasks = format!("/proc/{}/task", program.id());
    let mut thread = None;
    wait_until("the program has a second thread", || {
        let names = fs::read_dir(&tasks).unwrap().map(|e| e.unwrap().file_name());
        thread = names.filter_map(|n| n.into_string().ok()).find(|n| *n != program.id());
        thread.is_some()
    });
    refused(&attach(&thread.unwrap()), &format!("thread|{}", program.id()));

    // The first evenly has its journal by the time that the second can find it.
    let first = Child::spawn(tool.evenly(["attach", &program.id()]).stderr(Stdio::null()));
    wait_until("the first evenly is at work", || {
        let journals = fs::read_dir(tool.path("state")).map(|d| d.count()).unwrap_or(0);
        let second =
            tool.evenly(["attach", "-q", &program.id(), "--cpus", "8000"]).output().unwrap();
        journals > 0 && stderr(&second).contains("balanced by another evenly")
    });
    refused(&attach(&program.id()), &format!("another evenly|{}", first.id()));
    refused(&attach(&first.id()), "is an evenly");
}

#[test]
fn recordings_and_the_rest() {
    let tool = Tool::new();
    let file = |name: &str, content: &str| {
        let path = tool.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let scenario = |policy: &str| {
        let rest = "[machine]\ncpus = 1\n[[program]]\nthreads = 1\nphase = \"1s\"\n";
        file(&format!("{policy}.toml"), &format!("{rest}[balancing]\npolicy = \"{policy}\"\n"))
    };
    let loops = file("loops.toml", "steps = 1\n[[loop]]\nname = \"l\"\nwork = \"0s\"\n");
    let missing = tool.path("missing").to_str().unwrap().to_owned();
    let predict = |options: &'static str| {
        let words: Vec<&str> =
            std::iter::once("predict").chain(options.split_whitespace()).collect();
        words
    };
    let simulate = |options: &'static str| {
        let words = "simulate --threads 8 --cpus 7 --phase 1s".split_whitespace();
        words.chain(options.split_whitespace()).collect::<Vec<&str>>()
    };
    let cases: [(&[&str], &str); 68] = [
        (&["report", &missing], "missing|No such file"),
        (&["report", &file("empty", "")], "empty"),
        (&["report", &file("text", "no recording\n")], "text"),
        (
            &["report", &file("other", "{\"schema\":\"evenly.record/9\",\"evenly\":\"9\"}\n")],
            "other",
        ),
        (&["report", tool.dir.path().to_str().unwrap()], "directory"),
        (&["top", "999999999"], "999999999"),
        (&["top"], "evenly top PID"),
        (&["top", "--period", "1h"], "--period"),
        (&predict(""), "--phase|--threads|--cpus"),
        (&predict("--threads 0 --cpus 7 --phase 1s"), "--threads"),
        (&predict("--threads 8 --cpus 0 --phase 1s"), "--cpus"),
        (&predict("--threads 8 --cpus 99999999999 --phase 1s"), "--cpus"),
        (&predict("--threads 8 --cpus 7 --phase 0s"), "--phase"),
        (&predict("--threads 8 --cpus 7 --phase 1s --period 0ms"), "--period"),
        (&predict("--threads 8 --cpus 7 --phase 1s --speeds 2x1,x"), "--speeds|4x0.5"),
        (&predict("--threads 8 --cpus 7 --phase 1s --json /no/such/x"), "--json|/no/such/x"),
        (&["simulate"], "--threads|--cpus|--phase"),
        (&simulate("--policy nope"), "--policy|nope|ideal, auto"),
        (&simulate("--phases 0"), "--phases"),
        (&simulate("--period 1ns"), "balancing points|at most|longer period (at least "),
        (
            &["simulate", "--threads", "3", "--cpus", "2", "--phase", "1s", "--period", "1ns"],
            "about 2000000000 balancing points with 5|at most 40000000 points|at least 51 ns",
        ),
        (&simulate("--policy ideal --barrier spin"), "ideal|barriers that block"),
        (&simulate("--barrier wait"), "--barrier|block"),
        (&simulate("--json /no/such/x"), "--json|/no/such/x"),
        (&["simulate", "--scenario", &scenario("nope")], "scenario|policy 'nope'|ideal, auto"),
        (
            &["simulate", "--scenario", &scenario("nope"), "--policy", "juggle"],
            "scenario|balancing.policy|policy 'nope'|ideal, auto",
        ),
        (
            &["simulate", "--threads", "2000", "--cpus", "1000000", "--phase", "1s"],
            "2000 threads on 1000000 CPUs|at most 1638 threads|--policy ideal",
        ),
        (&["simulate", "--scenario", &scenario("ideal")], "scenario|policy ideal|try juggle"),
        (&["simulate", "--sweep", "--out", "/no/such/x"], "--out|/no/such/x"),
        (&["simulate", "--replay", &missing], "missing|No such file"),
        (&["simulate", "--replay", &file("short", "")], "--replay|short|no complete first line"),
        (&["simulate", "--replay", &file("words", "no recording\n")], "--replay|words|line 1"),
        (&["simulate", "--replay", &missing, "--policy", "ideal"], "--replay|ideal"),
        (&["simulate", "--sweep", "--threads", "8"], "--threads|--sweep"),
        (&["simulate", "--power5", "metbench", "--threads", "8"], "--threads|--power5"),
        (&["simulate", "--power5", "nope"], "--power5|nope|metbench-var"),
        (&["simulate", "--power5", "siesta", "--policy", "static"], "static|siesta|baseline, hpc-"),
        (&["simulate", "--power5", "bt-mz", "--set", "high=1"], "--set|'high'|low-util, high-util"),
        (&["simulate", "--power5", "bt-mz", "--set", "high-util=x"], "--set|'x' is no number"),
        (
            &["simulate", "--power5", "bt-mz", "--set", "high-util=60"],
            "--set|high-util cannot be 60|low-util (65)",
        ),
        (&simulate("--policy baseline"), "--policy baseline|add --power5"),
        (&["simulate", "--replay", &missing, "--policy", "hpc-auto"], "missing|No such file"),
        (&["simulate", "--loops", "jacoby"], "--loops|(did you mean jacobi?)|matrix, |./jacoby"),
        (&["simulate", "--loops", &missing], "loops|missing|No such file"),
        (&["simulate", "--loops", &loops], "loops.toml|loop[0].work|longer than 0"),
        (&["simulate", "--loops", "sor", "--phase", "1s"], "--loops|--phase"),
        (&["simulate", "--loops", "sor", "--policy", "static"], "--loops|--policy"),
        (&["simulate", "--loops", "sor", "--nodes", "3"], "--cpus|16 is no multiple of 3 nodes"),
        (&["simulate", "--loops", "sor", "--loaded", "15-16"], "--loaded|no CPU 16|last is 15"),
        (&["simulate", "--loops", "sor", "--load", "100%"], "--load|50% or 0.5"),
        (&["simulate", "--loops", "gauss", "--cpus", "2000"], "processors|from 1 to 1024"),
        (&simulate("--nodes 2"), "--nodes|--threads"),
        (&["predict", "--from", &missing], "--from|missing|No such file"),
        (&["restore", "999999"], "999999"),
        (&["compare", "--runs", "0", "--", "true"], "--runs"),
        (&["compare", "--run", "3", "--", "true"], "no option --run (did you mean --runs?)"),
        (&["rnu", "true"], "'rnu' (did you mean run?)"),
        (&["topology", "--metric", "true"], "'--metric' found;"),
        (&["run", "--polcy", "hybrid", "true"], "no option --polcy (did you mean --policy?)"),
        (&["run", "--policy", "hybird", "true"], "no such policy (did you mean hybrid?)"),
        (&["run", "--probe", "onn", "true"], "'onn'|(did you mean on?)"),
        (&["run", "--set", "most-rato=4", "true"], "'most-rato' (did you mean most-ratio?)"),
        (&["map", "--tasks", "x", "--algorithm", "ncuo"], "algorithm (did you mean nuco?)"),
        (&["compare", "--metric", "", "--", "true"], "--metric"),
        (&["compare", "--policies", "kernel,nope", "--", "true"], "--policies|nope|kernel"),
        (&["compare", "--json", "/no/such/x", "--", "true"], "--json|/no/such/x"),
        (&["compare", "--timeout", "5", "--", "true"], "--timeout|20ms|evenly compare --help"),
        (&["compare", "--", "/nonexist"], "/nonexist|No such file"),
    ];
    for (args, words) in cases {
        refused(&tool.evenly(args).output().unwrap(), words);
    }
}

#[test]
fn what_cannot_be_mapped() {
    let room = tempfile::tempdir().unwrap();
    let out = room.path().join("x").display().to_string();
    let tool = Tool::new();
    let file = |name: &str, content: &str| {
        let path = tool.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let objects = file("o.csv", "id,load_s,pe\n0,1,0\n1,1,40\n");
    let good = file("good.csv", "id,load_s,pe\n0,1,0\n1,1,1\n");
    let nowhere = file("placeless.csv", "id,load_s\n0,1\n1,1\n");
    let unequal = file("m.mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n");
    let dangling = file("e.csv", "from,to,messages,bytes\n0,7,1,1\n");
    let negative = file("n.csv", "id,load_s,pe\n0,-1,0\n");
    let huge = file("huge.csv", "id,load_s\n0,1\n1,1e308\n");
    let heavy = file("heavy.json", r#"{"tasks":[{"id":0,"load_s":1e19}],"edges":[]}"#);
    let nan = file("nan.csv", "id,load_s,pe\n0,1,0\n1,nan,0\n");
    let empty = file("empty", "");
    let square = file("f.csv", "1,2,3\n2,1,3\n2,3,1\n");
    let outside = file("outside.csv", "id,pe\n0,0\n1,9\n");
    let on = ["--topology", "numa:2 core:2"];
    let missing = tool.path("none").to_str().unwrap().to_owned();
    let list = file("list.json", "[]");
    let rows = file("rows.json", r#"{"schema":"evenly.tasks/1","tasks":[[0, 1.0]]}"#);
    let twice = file("twice.csv", "id,load_s\n4,1\n4,1\n");
    let infinite = file("inf.csv", "id,load_s\n0,inf\n");
    let names = file("names.csv", "id,load_s\n");
    let fewer = file("fewer.csv", "from,to,messages\n0,1,-3\n");
    let unknown = file("unknown.csv", "from,to,messages\n0,1,1\n1,0,NaN\n");
    let head = "%%MatrixMarket matrix coordinate real general\n";
    let oblong = file("oblong.mtx", &format!("{head}2 3 1\n1 1 1\n"));
    let many = file("many.mtx", &format!("{head}9000000 9000000 0\n"));
    let below = file("below.mtx", &format!("{head}2 2 1\n1 2 -1\n"));
    let factors = file("factors.csv", "1,nan\n2,1\n");
    let own = file("own.csv", "2,1\n2,1\n");
    let part = file("part.csv", "id,pe\n0,0\n");
    let edge = |to: u8, messages: &str| {
        format!(
            r#"{{"schema":"evenly.tasks/1","tasks":[{{"id":0,"load_s":1}}],"edges":[{{"from":0,"to":{to},"messages":{messages}}}]}}"#
        )
    };
    let leads_nowhere = file("nowhere.json", &edge(3, "1"));
    let no_number = file("number.json", &edge(0, "NaN"));
    let far = file("far.csv", "1,1e308\n1e308,1\n");
    let many_messages = file("messages.csv", "from,to,messages,bytes\n0,1,1e308,1\n");
    let many_bytes = file("bytes.csv", "from,to,messages,bytes\n0,1,1,1e300\n");
    let big = file("big.csv", "id,load_s,size_bytes\n0,1,1e19\n1,1,0\n");
    let dense = file("dense.mtx", &format!("{head}2 2 1\n1 2 1e200\n"));
    let told = file("told.prof", "E\t0\t1\t1e300 bytes\t1 msgs sent\n");
    let cases: [(&[&str], &str); 65] = [
        // Each a number, and no more where they are added up and multiplied.
        (&["--objects", &good, "--factors", &far], "far.csv, line 1|'1e308'|from 1e-9 to 1e9"),
        (&["--objects", &good, "--edges", &many_messages], "messages.csv, line 2|at most 1e18"),
        (&["--objects", &good, "--edges", &many_bytes], "bytes.csv, line 2|at most 1e18"),
        (&["--objects", &big], "big.csv, line 2|size_bytes|at most 1e18"),
        (&["--matrix", &dense], "dense.mtx, line 3|at most 1e18"),
        (&["--monitoring", &told], "told.prof, line 1|1e300"),
        (&["--objects", &good, "--alpha", "1e308"], "--alpha|at most 1e18"),
        (&["--objects", &good, "--windows", "1e-308"], "--windows|from 1e-9 to 1e9"),
        (&["--objects", &twice], "twice.csv, line 3|task 4 is there twice"),
        (&["--objects", &infinite], "inf.csv, line 2|load_s|'inf'"),
        (&["--objects", &names], "names.csv|no tasks"),
        (&["--objects", &good, "--edges", &fewer], "fewer.csv, line 2|messages is '-3'"),
        (&["--objects", &good, "--edges", &unknown], "unknown.csv, line 3|messages is 'NaN'"),
        (&["--objects", &good, "--edges", &empty], "empty: it is empty"),
        (&["--matrix", &oblong], "oblong.mtx, line 2|2 rows and 3 columns"),
        (&["--matrix", &many], "many.mtx, line 2|9000000 rows|4000000"),
        (&["--matrix", &below], "below.mtx, line 3|'-1'"),
        (&["--matrix", &empty], "empty: it is empty"),
        (&["--monitoring", &empty], "empty"),
        (&["--objects", &good, "--factors", &factors], "factors.csv, line 1|'nan'"),
        (&["--objects", &good, "--factors", &own], "own.csv, line 1|itself is '2'"),
        (&["--objects", &good, "--judge", &part], "part.csv|task 1 is not there"),
        (&["--tasks", &leads_nowhere], "nowhere.json|there is no task 3"),
        (&["--tasks", &no_number], "number.json, line 1"),
        (&["--objects", &objects], "o.csv|task 1 is on core 40|the machine has 4 cores: 0-3"),
        (&["--objects", &missing], "none|No such file"),
        (&["--objects", &empty], "empty: it is empty"),
        (&["--objects", &negative], "n.csv, line 2|load_s|'-1'"),
        (&["--objects", &huge], "huge.csv, line 3|load_s|'1e308'|at most 1e18"),
        (&["--tasks", &heavy], "heavy.json, line 1|1e19|at most 1e18"),
        (&["--objects", &nan], "nan.csv, line 3|load_s|'nan'"),
        (&["--objects", &good, "--edges", &dangling], "e.csv, line 2|there is no task 7"),
        (&["--objects", &dangling], "e.csv, line 1|no column id"),
        (&["--objects", &good, "--edges", &good], "good.csv, line 1|no column from"),
        (&["--matrix", &unequal], "m.mtx, line 3|above the diagonal|symmetric"),
        (&["--monitoring", &good], "good.csv|Open MPI's monitoring|pml_monitoring_enable"),
        (&["--tasks", &good], "good.csv, line 1"),
        (&["--tasks", &list], "list.json, line 1|sequence|an object with schema, tasks and edges"),
        (&["--tasks", &rows], "rows.json, line 1|sequence|a task: an object with id and load_s"),
        (&["--tasks", &empty], "empty: it is empty"),
        (&["--objects", &good, "--factors", &square], "f.csv|3 x 3|2 NUMA nodes"),
        (&["--objects", &good, "--factors", &good], "good.csv, line 1|'id'"),
        (&["--objects", &good, "--judge", &outside], "outside.csv, line 3|core 9|0-3"),
        (&["--objects", &good, "--current", &missing], "none|No such file"),
        (&["--objects", &good, "--out", &good], "--out|good.csv|another file"),
        (&["--objects", &good, "--out", "/no/such/x"], "--out|/no/such/x"),
        (&["--objects", &good, "--out", "-", "--json", "-"], "--out|--json|two files"),
        (&["--objects", &good, "--algorithm", "best"], "--algorithm|best|nuco"),
        (&["--objects", &good, "--out", "x", "--hosts", "a,,b"], "--hosts"),
        (&["--objects", &good, "--alpha=-1"], "--alpha|auto"),
        (
            &["--objects", &good, "--algorithm", "greedy", "--max-migrations", "3"],
            "--max-migrations|greedy|nuco+",
        ),
        (
            &["--objects", &good, "--tolerance", "3"],
            "--tolerance|nuco+|refine, scotch, metis, kahip",
        ),
        (&["--objects", &good, "--out", "x", "--format", "xml"], "--format|rankfile"),
        (
            &["--objects", &good, "--out", "-", "--format", "rankfile", "--hosts", "a,b"],
            "rankfile|2 names",
        ),
        (
            &["--objects", &good, "--out", "-", "--format", "rankfile", "--hosts", "a,a"],
            "--hosts|two hosts have the name 'a'",
        ),
        (
            &["--objects", &nowhere, "--out", "-", "--format", "migrations"],
            "migrations|where the tasks are now|--current",
        ),
        (
            &["--profile", "--out", &out, "--format", "migrations", "--", "true"],
            "migrations|where the tasks are now|--current",
        ),
        (&["--objects", &good, "--loads", "all"], "--loads|all|computing|with-receiving"),
        (&["--profile", "--loads", "computing", "--", "true"], "--loads|--profile"),
        (&["--objects", &good, "--effort", "0"], "--effort|above 0"),
        (&["--objects", &good, "--effort", "1", "--time-limit", "1s"], "--effort|--time-limit"),
        (&["--objects", &good, "--effort", "1", "--algorithm", "nuco"], "--effort|nuco+"),
        (&[], "--objects|--edges|--tasks|--matrix|--monitoring|--profile|evenly map --help"),
        (&["--compare"], "--objects|--tasks|--matrix|--monitoring|--profile"),
        (&["--edges", &good], "--objects"),
    ];
    for (args, words) in cases {
        let output = tool.evenly(["map"].iter().chain(&on).chain(args)).output().unwrap();
        refused(&output, words);
    }
    let output = tool.evenly(["map", "--objects", &good, "--topology", "numa:x"]).output();
    refused(&output.unwrap(), "--topology|numa:x");
    // The most that is accepted is mapped, and what is written has numbers only.
    let most = file("most.csv", "id,load_s,size_bytes,pe\n0,1e18,1e18,0\n1,1e18,1e18,0\n");
    let much = file("much.csv", "from,to,messages,bytes\n0,1,1e18,1e18\n1,0,1e18,1e18\n");
    let farthest = file("farthest.csv", "1,1e9\n1e-9,1\n");
    let args = ["map", "--topology", "numa:2 core:2", "--json", "-", "--time-limit", "10ms"];
    let files = ["--objects", &most, "--edges", &much, "--factors", &farthest];
    for more in [&["--algorithm", "nuco"][..], &["--alpha", "1e18"], &["--compare"]] {
        let output = tool.evenly(args.iter().chain(&files).chain(more)).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        valid(&serde_json::from_slice(&output.stdout).unwrap());
        let said = stderr(&output);
        assert!(!said.contains("inf ") && !said.contains("NaN"), "{said}");
    }
}

#[test]
fn options_of_a_policy_are_refused_before_the_first_run() {
    let tool = Tool::new();
    let marker = tool.path("started");
    for (spec, words) in [
        ("juggle:--perod=5ms", "no option --perod=5ms"),
        ("juggle:--period=zzz", "--period|zzz"),
        ("juggle:--period=5ms,hybird", "--period|5ms,hybird"),
        ("juggle:--cpus=8000,8001", "--cpus 8000-8001|may use"),
        ("juggle:--only=[", "--only '['"),
        ("juggle:--json=x", "compare gives each run a --json of its own"),
        ("juggle:--policy=static", "compare gives each run a --policy of its own"),
        ("juggle:-q", "compare gives each run a --quiet of its own"),
        ("juggle:--period=5ms --period=6ms", "--period|multiple times"),
        ("juggle:-v", "--verbose|--quiet"),
        ("juggle:--help", "help"),
        ("hybird", "no policy 'hybird' (did you mean hybrid?)"),
        ("juggle:--perod=5ms", "no option --perod=5ms (did you mean --period?)"),
        ("phase:--probe=off", "--probe off|--policy phase needs the probe"),
        ("juggle:other program", "no option other"),
        ("kernel:--period=5ms", "kernel is the program without evenly"),
        ("kernel:", "kernel is the program without evenly"),
        ("kernel:A=1 --period=5ms", "has no options, but variables"),
        ("juggle:--period=5ms A=1", "A=1 has to stand before the options"),
        ("juggle:1A=1", "no option 1A=1"),
        ("", "no policy ''"),
    ] {
        let list = format!("static,{spec}");
        let mut c = tool.evenly(["compare", "--policies", &list, "--", "touch"]);
        refused(&c.arg(&marker).output().unwrap(), &format!("--policies|{words}"));
        assert!(!marker.exists(), "{spec}: a run was made");
    }
}

/// What is asked for is not ignored because of something else that is asked for.
#[test]
fn no_probe_and_what_needs_it() {
    let tool = Tool::new();
    let marker = tool.path("started");
    for options in ["--policy phase", "--policy hpc-auto"] {
        let mut c = tool.run(&format!("{options} --probe off"), &["touch"]);
        let output = c.arg(&marker).output().unwrap();
        refused(&output, &format!("--probe off|{options} needs the probe|leave one"));
        assert!(!marker.exists(), "{options}: the program was run");
    }
    for options in ["--probe off", "--policy observe --probe auto"] {
        assert!(tool.run(options, &["true"]).output().unwrap().status.success(), "{options}");
    }
}

#[test]
fn options_of_a_policy_may_have_commas() {
    let tool = Tool::new();
    let two = ["--policies", "observe:--cpus=0,0 --period=20ms,kernel", "--policies", "static"];
    let mut c = tool.evenly(["compare", "--runs", "1", "--json", "-"]);
    let output = c.args(two).args(["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = json["results"].as_array().unwrap().iter().map(|r| r["policy"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["observe:--cpus=0,0 --period=20ms", "kernel", "static"]);
    assert!(
        stderr(&output).contains("too few runs to say anything (1 where 3"),
        "{}",
        stderr(&output)
    );
}

/// Where nothing is named, the policy that needs the probe is compared where the program can take that.
#[test]
fn what_is_compared_by_default() {
    let tool = Tool::new();
    let (source, fixed) = (tool.path("x.c"), tool.path("fixed"));
    fs::write(&source, "int main(void){return 0;}").unwrap();
    let built = Command::new("cc").arg("-static").arg(&source).arg("-o").arg(&fixed).status();
    assert!(built.unwrap().success());
    let usual = ["kernel", "static", "hybrid", "auto"];
    for (program, arms) in [("true", &usual[..]), (fixed.to_str().unwrap(), &usual[..3])] {
        let mut c = tool.evenly(["compare", "-q", "--runs", "1", "--json", "-", "--", program]);
        let output = c.output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let names =
            json["results"].as_array().unwrap().iter().map(|r| r["policy"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), arms, "{program}");
    }
}

/// The program is started with them, under each policy.
#[test]
fn arms_may_have_variables() {
    let tool = Tool::new();
    let list = "kernel,kernel:SECONDS=2 OMP_NUM_THREADS=4,2,observe:SECONDS=3 --period=20ms";
    let mut c = tool.evenly(["compare", "--runs", "1", "--json", "-", "--metric", "s"]);
    let script = r#"echo "{\"s\": ${SECONDS:-1}.${OMP_NUM_THREADS%,*}5}""#;
    c.args(["--policies", list, "--", "sh", "-c", script]).env_remove("SECONDS");
    let output = c.env("OMP_NUM_THREADS", "1").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let arms: Vec<(&str, f64)> = (json["results"].as_array().unwrap().iter())
        .map(|r| (r["policy"].as_str().unwrap(), r["median_s"].as_f64().unwrap()))
        .collect();
    let [_, second, third] =
        ["kernel", "kernel:SECONDS=2 OMP_NUM_THREADS=4,2", "observe:SECONDS=3 --period=20ms"];
    assert_eq!(arms, [("kernel", 1.15), (second, 2.45), (third, 3.15)]);
}

#[test]
fn a_state_directory_that_cannot_be() {
    let tool = Tool::new();
    for (dir, words) in [("/proc/x", "/proc/x|No such file"), ("/dev/null", "not a directory")] {
        let output = tool.evenly(["restore"]).env("EVENLY_STATE_DIR", dir).output().unwrap();
        refused(&output, &format!("{words}|EVENLY_STATE_DIR"));
    }
}

/// The program and all in it see the same directory, wherever they go.
#[test]
fn a_relative_state_directory_is_that_of_the_start() {
    let tool = Tool::new();
    let mut c = tool.run("-q", &["sh", "-c", "cd /; echo $EVENLY_STATE_DIR"]);
    let output = c.env("EVENLY_STATE_DIR", "here").current_dir(tool.dir.path()).output().unwrap();
    let here = tool.path("here");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), here.to_str().unwrap());
    assert!(here.is_dir(), "{}", stderr(&output));
}

/// A comparison of runs that are not alike is none.
#[test]
fn runs_that_cannot_be_compared() {
    let tool = Tool::new();
    let compare = |words: &[&str]| {
        let mut c = tool.evenly(["compare", "-q", "--runs", "3", "--policies", "kernel,observe"]);
        c.args(words).output().unwrap()
    };
    refused(&compare(&["--", "false"]), "kernel, run 1|status 1");
    refused(&compare(&["--same-output", "--", "date", "+%N"]), "output|differ");
    let json = tool.path("c.json");
    let to = ["--json", json.to_str().unwrap(), "--same-output", "--", "echo", "alike"];
    assert_eq!(compare(&to).status.code(), Some(0));
    assert!(json.exists());
}

/// Would catch: minutes without a word.
#[test]
fn a_simulation_that_takes_long_says_so() {
    let tool = Tool::new();
    let said = tool.path("said");
    let words = "simulate --threads 50000 --cpus 7000 --phase 1s";
    let told = fs::File::create(&said).unwrap();
    let mut c = tool.evenly(words.split_whitespace());
    let mut running = c.stdout(Stdio::null()).stderr(told).spawn().unwrap();
    wait_until("it says so", || {
        fs::read_to_string(&said).unwrap().contains("evenly: still simulating")
    });
    running.kill().unwrap();
    running.wait().unwrap();
}

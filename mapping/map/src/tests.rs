//! Readers and writers on small inputs, with what they say about bad ones.

use super::*;
use evenly_cluster::{Cluster, Core, Node};
use evenly_model::{Edge, Task, TaskGraph};
use std::fs;
use std::path::PathBuf;

/// Messages and bytes from one task to another.
fn sent(graph: &TaskGraph, from: u64, to: u64) -> (f64, f64) {
    let (from, to) = (graph.find(from).unwrap(), graph.find(to).unwrap());
    let link = graph.links(from).iter().find(|l| l.with == to);
    link.map_or((0.0, 0.0), |l| (l.sent, l.sent_bytes))
}

/// A directory, and files in it.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Without the directory's name.
    fn said(&self, e: &InputError) -> String {
        e.to_string().replace(&format!("{}/", self.0.path().display()), "")
    }
}

const OBJECTS: &str = "id,load_s,pe,migratable,charm_objid\n5,0.5,1,1,13\n7,0.25,0,0,14\n";
const EDGES: &str =
    "from,to,messages,bytes,kind\n5,7,20,2000,p2p\n7,7,3,30,p2p\n7,5,10,100,p2p\n5,7,1,1,p2p\n";

#[test]
fn dumps_as_csv() {
    let room = Room::new();
    let files = Files {
        objects: Some(room.file("o.csv", OBJECTS)),
        edges: Some(room.file("e.csv", EDGES)),
        ..Files::default()
    };
    let input = files.read().unwrap();
    let task =
        |id, load_s, core, movable| Task { id, load_s, size_bytes: 0.0, core: Some(core), movable };
    assert_eq!(input.graph.tasks(), [task(5, 0.5, 1, true), task(7, 0.25, 0, false)]);
    assert_eq!(sent(&input.graph, 5, 7), (21.0, 2001.0));
    assert_eq!(sent(&input.graph, 7, 5), (10.0, 100.0));
    assert_eq!(
        input.notes,
        ["an edge from a task to itself left out: it costs the same everywhere"]
    );
}

#[test]
fn columns_stand_in_any_order_and_some_may_be_missing() {
    let read = |text: &str| read_objects(text.as_bytes(), "o").unwrap();
    let tasks = read("load_s, size ,id\r\n 1e-3 ,4096, 9 \r\n");
    let task = Task { id: 9, load_s: 0.001, size_bytes: 4096.0, core: None, movable: true };
    assert_eq!(tasks, [task]);
    let tasks =
        read("\u{feff}id,load_s,size,size_bytes,pe,migratable\n1,0,1,2,,false\n\n2,0,1,3,4,true");
    assert_eq!(tasks[0], Task { id: 1, load_s: 0.0, size_bytes: 2.0, core: None, movable: false });
    assert_eq!((tasks[1].size_bytes, tasks[1].core, tasks[1].movable), (3.0, Some(4), true));
    let edges = read_edges(&b"messages,to,from\n2,1,0\n"[..], "e", &|_| true).unwrap();
    assert_eq!(edges.list, [Edge { from: 0, to: 1, messages: 2.0, bytes: 0.0 }]);
}

#[test]
fn bad_tasks_are_named() {
    for (text, said) in [
        ("", "o: it is empty; a first line with the names of columns is needed"),
        ("id,load_s\n", "o: it has no tasks, only names of columns; at least one is needed"),
        (
            "id,load\n1,2\n",
            "o, line 1: there is no column load_s, which is needed; there are 'id', 'load'",
        ),
        ("id,id,load_s\n1,1,2\n", "o, line 1: the column id is there twice; one is needed"),
        ("id,load_s\n1,-2\n", "o, line 2: load_s is '-2'; a number that is not negative is needed"),
        (
            "id,load_s\r\n\r\n1,NaN\r\n",
            "o, line 3: load_s is 'NaN'; a number that is not negative is needed",
        ),
        ("id,load_s\n1,\n", "o, line 2: load_s is ''; a number that is not negative is needed"),
        (
            "id,load_s\n-1,2\n",
            "o, line 2: id is '-1'; a whole number that is not negative is needed",
        ),
        (
            "id,load_s\n1,1\n2,2\n1,2\n",
            "o, line 4: task 1 is there twice; every task needs a number of its own",
        ),
        (
            "id,load_s\n1,1\n\n2\n",
            "o, line 4: there are 1 values; as many as in the first line, 2, are needed",
        ),
        ("id,load_s,pe\n1,1,x\n", "o, line 2: pe is 'x'; the number of a core is needed"),
        ("id,load_s,migratable\n1,1,2", "o, line 2: migratable is '2'; 1 or 0 is needed"),
        (
            "id,load_s,size\n1,1,inf",
            "o, line 2: size is 'inf'; a number that is not negative is needed",
        ),
    ] {
        assert_eq!(read_objects(text.as_bytes(), "o").unwrap_err().to_string(), said);
    }
    let said = read_objects(&b"id,load_s\n1,\xff\n"[..], "o").unwrap_err().to_string();
    assert_eq!(said, "o, line 2: this is no text in UTF-8");
}

#[test]
fn bad_edges_are_named() {
    let known = |id: u64| id < 3;
    for (text, said) in [
        (
            "from,to,messages,bytes\n0,1,2,3\n0,3,2,3\n",
            "e, line 3: edge from 0 to 3: there is no task 3",
        ),
        (
            "from,to,messages,bytes\n0,1,-2,3\n",
            "e, line 2: messages is '-2'; a number that is not negative is needed",
        ),
        (
            "from,to,bytes\n0,1,-2\n",
            "e, line 1: there is no column messages, which is needed; there are 'from', 'to', 'bytes'",
        ),
        ("", "e: it is empty; a first line with the names of columns is needed"),
    ] {
        assert_eq!(read_edges(text.as_bytes(), "e", &known).unwrap_err().to_string(), said);
    }
}

#[test]
fn tasks_as_json() {
    let text = r#"{"schema": "evenly.tasks/1",
        "tasks": [{"id": 0, "load_s": 1.5, "core": 3}, {"id": 1, "load_s": 2, "size_bytes": 10, "movable": false}],
        "edges": [{"from": 0, "to": 1, "messages": 4, "bytes": 400}, {"from": 1, "to": 1, "messages": 9}]}"#;
    let (tasks, edges, nature) = read_tasks(text.as_bytes(), "t").unwrap();
    // What the format says of files that do not say it.
    assert_eq!(nature, Nature { received_in_loads: true, ..Nature::default() });
    let first = Task { id: 0, load_s: 1.5, size_bytes: 0.0, core: Some(3), movable: true };
    assert_eq!(
        tasks,
        [first, Task { id: 1, load_s: 2.0, size_bytes: 10.0, core: None, movable: false }]
    );
    assert_eq!(edges.list, [Edge { from: 0, to: 1, messages: 4.0, bytes: 400.0 }]);
    assert_eq!(edges.to_itself, 1);
    // What is read is what the schema says.
    let schema = include_str!("../../../docs/schemas/evenly.tasks-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let value = serde_json::from_str(text).unwrap();
    assert!(validator.is_valid(&value));
    let of_ranks = text.replacen(
        "\"tasks\"",
        "\"received_in_loads\": false, \"processes\": true, \"mpi\": \"openmpi\", \"tasks\"",
        1,
    );
    let (same, _, nature) = read_tasks(of_ranks.as_bytes(), "t").unwrap();
    assert_eq!(same, tasks);
    assert!(!nature.received_in_loads && nature.loads_are_said);
    assert!(nature.processes && nature.mpi == Some(Mpi::OpenMpi));
    let value = serde_json::from_str(&of_ranks).unwrap();
    assert!(validator.is_valid(&value));
}

#[test]
fn bad_json_is_named() {
    let file = |tasks: &str, edges: &str| {
        format!("{{\"schema\": \"evenly.tasks/1\",\n\"tasks\": [{tasks}],\n\"edges\": [{edges}]}}")
    };
    let one = "{\"id\": 1, \"load_s\": 1}";
    for (text, said) in [
        (String::new(), "t: it is empty; a JSON object with schema evenly.tasks/1 is needed"),
        (
            "{\"schema\": \"evenly.tasks/2\", \"tasks\": []}".into(),
            "t: its schema is 'evenly.tasks/2'; evenly.tasks/1 is needed",
        ),
        (
            file("{\"id\": 1, \"load_s\": -1}", ""),
            "t, line 2: -1 was found; a number that is not negative is needed",
        ),
        (file("{\"id\": 1, \"load_s\": NaN}", ""), "t, line 2: expected value"),
        (
            file("{\"id\": 1, \"load\": 1}", ""),
            "t, line 2: unknown field `load`, expected one of `id`, `load_s`, `size_bytes`, `core`, `movable`",
        ),
        (
            file(one, "{\"from\": 1, \"to\": 2, \"messages\": 1}"),
            "t: edge from 1 to 2: there is no task 2",
        ),
        (file(one, "{\"from\": 1, \"to\": 1}"), "t, line 3: missing field `messages`"),
    ] {
        assert_eq!(read_tasks(text.as_bytes(), "t").unwrap_err().to_string(), said, "{text}");
    }
    let room = Room::new();
    let twice = Files {
        tasks: Some(room.file("t", &file(&format!("{one}, {one}"), ""))),
        ..Files::default()
    };
    let said = room.said(&twice.read().unwrap_err());
    assert_eq!(said, "t: task 1 is there twice; every task needs a number of its own");
    let none = Files { tasks: Some(room.file("t", &file("", ""))), ..Files::default() };
    assert_eq!(room.said(&none.read().unwrap_err()), "t: there is no task; at least one is needed");
}

/// The graph of a matrix.
fn of_matrix(text: &str) -> Result<(usize, TaskGraph), InputError> {
    let m = read_matrix(text.as_bytes(), "m", &|_| true)?;
    let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
    let graph = TaskGraph::new((0..m.tasks as u64).map(task).collect(), &m.edges.list).unwrap();
    Ok((m.tasks, graph))
}

#[test]
fn matrices() {
    let general = "%%MatrixMarket matrix coordinate real general\n% made by hand\n\n3 3 4\n1 2 5\n2 1 1e1\n\n3 3 7\n1 3 0.5\n";
    let (tasks, g) = of_matrix(general).unwrap();
    assert_eq!(tasks, 3);
    assert_eq!(
        [sent(&g, 0, 1).0, sent(&g, 1, 0).0, sent(&g, 0, 2).0, sent(&g, 2, 0).0],
        [5.0, 10.0, 0.5, 0.0]
    );
    let symmetric =
        "%%matrixmarket MATRIX Coordinate Integer Symmetric\r\n2 2 2\r\n2 1 5\r\n1 1 3\r\n";
    let (_, g) = of_matrix(symmetric).unwrap();
    assert_eq!([sent(&g, 0, 1).0, sent(&g, 1, 0).0, g.messages()], [5.0, 5.0, 10.0]);
    let pattern = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n3 1\n";
    let (_, g) = of_matrix(pattern).unwrap();
    assert_eq!([sent(&g, 2, 0).0, sent(&g, 0, 2).0, g.messages()], [1.0, 1.0, 2.0]);
}

/// The format knows no such thing; they may be a mistake, or parts of a sum.
#[test]
fn entries_that_are_there_again_are_added_up_and_noted() {
    let room = Room::new();
    let head = "%%MatrixMarket matrix coordinate real";
    let read = |text: &str| {
        let matrix = Some(room.file("m", &format!("{head} {text}")));
        let input = Files { matrix, ..Files::default() }.read().unwrap();
        let noted = input
            .notes
            .iter()
            .find(|n| n.contains("m: "))
            .map(|n| n.replace(&format!("{}/", room.0.path().display()), ""));
        (sent(&input.graph, 1, 0).0, noted)
    };
    let added = "in a row and column that had one before: all are added up";
    assert_eq!(
        read("symmetric\n2 2 2\n2 1 5\n2 1 3\n"),
        (8.0, Some(format!("m: an entry stands {added}")))
    );
    assert_eq!(
        read("general\n2 2 4\n2 1 5\n1 2 1\n2 1 3\n2 1 2\n"),
        (10.0, Some(format!("m: 2 entries stand {added}")))
    );
    assert_eq!(read("general\n2 2 2\n2 1 5\n1 2 5\n"), (5.0, None));
}

#[test]
fn bad_matrices_are_named() {
    const REAL: &str = "%%MatrixMarket matrix coordinate real";
    let needed =
        "%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric is needed";
    for (text, said) in [
        (String::new(), "m: it is empty; a first line such as %%MatrixMarket matrix coordinate real general is needed".to_owned()),
        ("1 2 3\n".into(), format!("m, line 1: the first line is '1 2 3'; {needed}")),
        ("%%MatrixMarket matrix array real general\n".into(), format!("m, line 1: this is a file of kind 'matrix array'; {needed}")),
        ("%%MatrixMarket matrix coordinate complex general\n".into(), format!("m, line 1: its entries are 'complex'; {needed}")),
        (format!("{REAL} hermitian\n"), format!("m, line 1: its symmetry is 'hermitian'; {needed}")),
        (format!("{REAL} general\n% c\n"), "m, line 2: it ends before the line with rows, columns and entries".into()),
        (format!("{REAL} general\n3 3\n"), "m, line 2: '3 3' was found; rows, columns and entries are needed".into()),
        (format!("{REAL} general\n3 x 3\n"), "m, line 2: '3 x 3' was found; rows, columns and entries are needed".into()),
        (format!("{REAL} general\n3 4 3\n"), "m, line 2: there are 3 rows and 4 columns; as many of both are needed, one for each task".into()),
        (format!("{REAL} general\n0 0 0\n"), "m, line 2: there are no rows; at least one task is needed".into()),
        (format!("{REAL} general\n9000000 9000000 3\n"), "m, line 2: there are 9000000 rows; the most that are read are 4000000".into()),
        (format!("{REAL} general\n3 3 90000000\n"), "m, line 2: there are 90000000 entries; the most that are read are 20000000".into()),
        (format!("{REAL} general\n2 2 1\n1 3 1\n"), "m, line 3: the column is '3'; a number from 1 to 2 is needed".into()),
        (format!("{REAL} general\n2 2 1\n0 1 1\n"), "m, line 3: the row is '0'; a number from 1 to 2 is needed".into()),
        (format!("{REAL} general\n2 2 1\n1 2\n"), "m, line 3: there is no value; row, column and value are needed".into()),
        (format!("{REAL} general\n2 2 1\n1 2 -1\n"), "m, line 3: the value is '-1'; a number that is not negative is needed".into()),
        (format!("{REAL} general\n2 2 1\n1 2 nan\n"), "m, line 3: the value is 'nan'; a number that is not negative is needed".into()),
        (format!("{REAL} general\n2 2 1\n1 2 1 1\n"), "m, line 3: '1' follows the value; row, column and value are needed".into()),
        ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2 1\n".into(), "m, line 3: '1' follows row and column; a pattern has no values".into()),
        (
            format!("{REAL} symmetric\n2 2 1\n1 2 1\n"),
            "m, line 3: the entry in row 1, column 2 is above the diagonal; the first line says symmetric, where \
             entries stand on or below it".into(),
        ),
        (format!("{REAL} general\n2 2 2\n1 2 1\n"), "m: there are 1 entries; 2 are announced".into()),
        (format!("{REAL} general\n2 2 1\n1 2 1\n2 1 1\n"), "m, line 4: there are more entries than the 1 that are announced".into()),
    ] {
        assert_eq!(of_matrix(&text).unwrap_err().to_string(), said);
    }
}

/// The example in Open MPI's `ompi/mca/common/monitoring/README.md`, "Output format":
/// `pml_monitoring_enable 2`, which distinguishes messages of collectives (I) from others (E).
const DISTINGUISHED: &str = "I\t0\t1\t108 bytes\t27 msgs sent\nE\t0\t1\t1012 bytes\t30 msgs sent\n\
    E\t0\t2\t23052 bytes\t61 msgs sent\nI\t1\t2\t104 bytes\t26 msgs sent\nI\t1\t3\t208 bytes\t52 msgs sent\n\
    E\t1\t0\t860 bytes\t24 msgs sent\nE\t1\t3\t2552 bytes\t56 msgs sent\nI\t2\t3\t104 bytes\t26 msgs sent\n\
    E\t2\t0\t22804 bytes\t49 msgs sent\nE\t2\t3\t860 bytes\t24 msgs sent\nI\t3\t0\t104 bytes\t26 msgs sent\n\
    I\t3\t1\t204 bytes\t51 msgs sent\nE\t3\t1\t2304 bytes\t44 msgs sent\nE\t3\t2\t860 bytes\t24 msgs sent\n";

/// The same run with `pml_monitoring_enable 1`, from there: all in one.
const IN_ONE: &str = "I\t0\t1\t1120 bytes\t57 msgs sent\nI\t0\t2\t23052 bytes\t61 msgs sent\n\
    I\t1\t0\t860 bytes\t24 msgs sent\nI\t1\t2\t104 bytes\t26 msgs sent\nI\t1\t3\t2760 bytes\t108 msgs sent\n\
    I\t2\t0\t22804 bytes\t49 msgs sent\nI\t2\t3\t964 bytes\t50 msgs sent\nI\t3\t0\t104 bytes\t26 msgs sent\n\
    I\t3\t1\t2508 bytes\t95 msgs sent\nI\t3\t2\t860 bytes\t24 msgs sent\n";

#[test]
fn monitoring_of_open_mpi() {
    let room = Room::new();
    let read = |texts: &[&str]| {
        let write = |(k, text): (usize, &&str)| room.file(&format!("r.{k}.prof"), text);
        let monitoring = texts.iter().enumerate().map(write).collect();
        Files { monitoring, ..Files::default() }.read().unwrap()
    };
    let (apart, one) = (read(&[DISTINGUISHED]), read(&[IN_ONE]));
    assert_eq!((apart.graph.len(), one.graph.len()), (4, 4));
    for (from, to) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        assert_eq!(sent(&apart.graph, from, to), sent(&one.graph, from, to), "{from} {to}");
    }
    assert_eq!(sent(&one.graph, 3, 1), (95.0, 2508.0));
    assert_eq!(one.notes, ["no loads are given: every task counts as 1 s (--objects)"]);

    // A file of each rank, as version 3 and later write it (`mca_common_monitoring_output`): a
    // histogram of sizes, one-sided communication, collectives as called; and what others print.
    let first = "# POINT TO POINT\nE\t0\t1\t1012 bytes\t30 msgs sent\t0,0,30,0\nI\t0\t1\t108 bytes\t27 msgs sent\n\
        # OSC\nS\t0\t1\t64 bytes\t2 msgs sent\nR\t0\t1\t32 bytes\t1 msgs sent\n\
        # COLLECTIVES\nC\t0\t1\t500 bytes\t5 msgs sent\nD\tMPI_COMM_WORLD\tprocs: 0,1\n\
        O2A\t500 bytes\t5 msgs sent\t1.0,2.0\nA2O\t0 bytes\t0 msgs sent\nA2A\t0 bytes\t0 msgs sent\n";
    let second = "hello from the program\n# POINT TO POINT\n# OSC\n# COLLECTIVES\n";
    let both = read(&[first, second]);
    assert_eq!(sent(&both.graph, 0, 1), (59.0, 1184.0));
    assert_eq!(sent(&both.graph, 1, 0), (1.0, 32.0));
    insta::assert_debug_snapshot!(both.notes, @r#"
    [
        "1 lines about collectives (C) left out: the messages that they were made into are counted (I)",
        "1 lines that are not of the monitoring left out",
        "no loads are given: every task counts as 1 s (--objects)",
    ]
    "#);
    let collectives =
        read(&["# POINT TO POINT\n# OSC\n# COLLECTIVES\nC\t0\t1\t500 bytes\t5 msgs sent\n"]);
    assert_eq!(sent(&collectives.graph, 0, 1), (5.0, 500.0));
}

/// Each rank writes a file, also one that sends nothing: one that is missing is no rank that is silent.
#[test]
fn ranks_of_which_no_file_was_given_are_named() {
    let room = Room::new();
    let one = |rank: u32, peer: u32| {
        let lines = format!("# POINT TO POINT\nE\t{rank}\t{peer}\t8 bytes\t1 msgs sent\n# OSC\n");
        room.file(&format!("p.{rank}.prof"), &lines)
    };
    let silent = |name: &str| room.file(name, "# POINT TO POINT\n# OSC\n# COLLECTIVES\n");
    let read = |monitoring: &[PathBuf]| {
        Files { monitoring: monitoring.to_vec(), ..Files::default() }.read()
    };
    let said = |files: &[PathBuf]| room.said(&read(files).unwrap_err());
    let (zero, one_of_four) = (one(0, 1), one(1, 3));
    assert_eq!(
        said(&[zero.clone(), one_of_four.clone()]),
        "--monitoring: the 2 files have nothing by ranks 2, 3, and each rank writes its own; give them \
         all, each with --monitoring"
    );
    let named = silent("p.2.prof");
    assert!(said(&[zero.clone(), one_of_four.clone(), named.clone()]).contains("by rank 3, and"));
    // One that sent nothing may have any name.
    let any = silent("fourth");
    let all = [zero.clone(), one_of_four.clone(), named.clone(), any];
    assert_eq!(read(&all).unwrap().graph.len(), 4);
    let many = one(0, 20);
    let text = said(&[many, one_of_four]);
    assert!(text.contains("by ranks 2, 3, 4, 5, 6, 7, 8, 9 and 11 more, and"), "{text}");
    // With loads it is known which ranks there are.
    let objects = Some(room.file("o.csv", "id,load_s\n0,1\n1,1\n2,1\n"));
    let monitoring = vec![one(0, 1), one(1, 0)];
    let files = Files { objects, monitoring, ..Files::default() };
    assert!(room.said(&files.read().unwrap_err()).contains("by rank 2, and"));
    // All in one, as a launcher's output is.
    let output = "E\t0\t3\t8 bytes\t1 msgs sent\nE\t1\t3\t8 bytes\t1 msgs sent\n";
    assert_eq!(read(&[room.file("out", output)]).unwrap().graph.len(), 4);
}

#[test]
fn bad_monitoring_is_named() {
    let said = |text: &str| {
        let known = |id: u64| id < 4;
        read_monitoring(text.as_bytes(), "p", &known, &mut Monitoring::default())
            .unwrap_err()
            .to_string()
    };
    for nothing in ["", "hello\n", "# comment\n"] {
        assert!(
            said(nothing)
                .starts_with("p: no line of Open MPI's monitoring was found, such as 'E 0 1 ")
        );
    }
    for (text, what) in [
        (
            "E\t0\t1\t-5 bytes\t1 msgs sent\n",
            "p, line 1: the number of bytes is '-5'; a number that is not negative is needed",
        ),
        (
            "\nE\t0\tx\t5 bytes\t1 msgs sent\n",
            "p, line 2: the peer is 'x'; a number below 4000000 is needed",
        ),
        ("E\t0\t9\t5 bytes\t1 msgs sent\n", "p, line 1: edge from 0 to 9: there is no task 9"),
        (
            "E\t0\t1\t5 bytes\t1\n",
            "p, line 1: this is no line such as 'E 0 1 1012 bytes 30 msgs sent', which is needed",
        ),
        ("E 0 1", "p, line 1: the number of bytes is ''; a number that is not negative is needed"),
    ] {
        assert_eq!(said(text), what);
    }
}

#[test]
fn matrices_of_messages_and_of_bytes_with_loads() {
    let room = Room::new();
    let matrix = |rows: u32, entry: &str| {
        format!("%%MatrixMarket matrix coordinate real general\n{rows} {rows} 1\n{entry}\n")
    };
    let mut files = Files {
        objects: Some(room.file("o.csv", "id,load_s\n0,3\n1,4\n")),
        matrix: Some(room.file("m.mtx", &matrix(2, "1 2 7"))),
        bytes_matrix: Some(room.file("b.mtx", &matrix(2, "1 2 700"))),
        ..Files::default()
    };
    let input = files.read().unwrap();
    assert_eq!((sent(&input.graph, 0, 1), input.graph.load_s()), ((7.0, 700.0), 7.0));
    assert!(input.notes.is_empty(), "{:?}", input.notes);
    files.bytes_matrix = Some(room.file("b.mtx", &matrix(3, "1 2 700")));
    let said = room.said(&files.read().unwrap_err());
    assert!(
        said.starts_with("b.mtx: it has 3 rows; as many as in")
            && said.ends_with(", 2, are needed"),
        "{said}"
    );
    files.matrix = Some(room.file("m.mtx", &matrix(3, "1 3 7")));
    assert_eq!(
        room.said(&files.read().unwrap_err()),
        "m.mtx, line 3: edge from 0 to 2: there is no task 2"
    );
    files.matrix = Some(room.0.path().join("none"));
    assert_eq!(
        room.said(&files.read().unwrap_err()),
        "none: cannot be read: No such file or directory (os error 2)"
    );
    files.objects = Some(room.0.path().to_owned());
    assert!(
        files
            .read()
            .unwrap_err()
            .to_string()
            .ends_with("cannot be read: Is a directory (os error 21)")
    );
}

#[test]
fn factors_are_a_square_with_ones() {
    let read = |text: &str| read_factors(text.as_bytes(), "f");
    assert_eq!(read("1,1.5\n# far\n2, 1\n").unwrap(), [1.0, 1.5, 2.0, 1.0]);
    for (text, said) in [
        ("", "f: it is empty; a line of numbers for each node is needed"),
        (
            "1,2\n2,1\n2,1\n",
            "f, line 3: there are more lines than the 2 numbers in each; a square is needed",
        ),
        ("1,2\n", "f: there are 1 lines of 2 numbers; a square is needed"),
        ("1,2\n2\n", "f, line 2: there are 1 numbers; as many as in the first line, 2, are needed"),
        ("1,2\n2,1.1\n", "f, line 2: the factor of node 1 to itself is '1.1'; 1 is needed"),
        (
            "1,0\n2,1\n",
            "f, line 1: the factor of node 0 to node 1 is '0'; a number above 0, from 1e-9 to 1e9, is needed",
        ),
        (
            "1,NaN\n2,1\n",
            "f, line 1: the factor of node 0 to node 1 is 'NaN'; a number above 0, from 1e-9 to 1e9, is needed",
        ),
        (
            "1,1e308\n2,1\n",
            "f, line 1: the factor of node 0 to node 1 is '1e308'; a number above 0, from 1e-9 to 1e9, is needed",
        ),
        ("a,b\n1,2\n", "f, line 1: the factor of node 0 to itself is 'a'; 1 is needed"),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), said);
    }
}

#[test]
fn a_machine_with_factors_of_its_own() {
    let room = Room::new();
    let file = room.file("f.csv", "1,2\n3,1\n");
    let m = machine("numa:2 core:2", Some(&file)).unwrap().cluster;
    assert_eq!((m.factors(), m.cost(0, 2), m.cost(2, 0)), (&[1.0, 2.0, 3.0, 1.0][..], 2.0, 3.0));
    let said = machine("numa:4 core:2", Some(&file)).unwrap_err().to_string();
    assert!(
        said.ends_with(
            "f.csv: there are 2 x 2 factors; the machine has 4 NUMA nodes, so 4 x 4 are needed"
        ),
        "{said}"
    );
    let said = machine("nonsense", None).unwrap_err().to_string();
    assert!(said.starts_with("--topology: 'nonsense'") && said.lines().count() == 1, "{said}");
}

/// The paper's cluster, with the factors of one of its hosts.
#[test]
fn several_hosts_can_be_described() {
    let room = Room::new();
    let file = room.file("f.csv", "1,1.52\n1.52,1\n");
    let m = machine("host:20 numa:2 core:2", Some(&file)).unwrap();
    let paper = evenly_nuco::map::machines::numa4x20().unwrap();
    assert_eq!(m.cluster.factors(), paper.factors());
    let places = |c: &Cluster| -> Vec<(usize, u32)> {
        c.cores().iter().map(|core| (core.node, c.nodes()[core.node].host)).collect()
    };
    assert_eq!(places(&m.cluster), places(&paper));
    assert_eq!((m.hosts.len(), m.hosts[19].as_str(), m.memory_s), (20, "host19", None));
    assert_eq!(m.factors_from, "given within a host, assumed between hosts: 3.4");
    assert!(m.notes[0].starts_with("what messages between hosts cost is assumed, 3.4 times"));
    // All factors are theirs, or none is.
    let all = room.file("all.csv", "1,50\n60,1\n");
    let m = machine("host:2 core:2", Some(&all)).unwrap();
    assert_eq!((m.cluster.factors(), m.factors_from), (&[1.0, 50.0, 60.0, 1.0][..], "given"));
    assert!(m.notes.is_empty());
    let m = machine("host:2 core:2", None).unwrap();
    assert!(m.factors_from.starts_with("assumed") && m.notes.len() == 1);
    let said = machine("host:2 numa:4 core:2", Some(&file)).unwrap_err().to_string();
    assert!(said.ends_with("the machine has 8 NUMA nodes, so 8 x 8 are needed"), "{said}");
}

fn graph(ids: &[u64], core: Option<u32>) -> TaskGraph {
    let task = |id: &u64| Task { id: *id, load_s: 1.0, size_bytes: 0.0, core, movable: true };
    TaskGraph::new(ids.iter().map(task).collect(), &[]).unwrap()
}

fn input(ids: &[u64], core: Option<u32>) -> Input {
    Input {
        graph: graph(ids, core),
        nature: Nature::default(),
        tasks_file: "o.csv".into(),
        notes: Vec::new(),
    }
}

#[test]
fn where_tasks_are() {
    let room = Room::new();
    let machine = Cluster::even(2, 2, 2.0).unwrap();
    let ids = [3, 1, 4, 5, 9, 2];
    let (on, nowhere) = (input(&ids, Some(2)), input(&ids, None));
    assert_eq!(present(&on, &machine, None).unwrap(), (vec![2; 6], PresentFrom::Tasks));
    let compact = vec![0, 0, 1, 2, 2, 3];
    assert_eq!(present(&nowhere, &machine, None).unwrap(), (compact.clone(), PresentFrom::Assumed));
    for (current, cores) in
        [(Current::Compact, compact), (Current::RoundRobin, vec![0, 1, 2, 3, 0, 1])]
    {
        assert_eq!(present(&on, &machine, Some(&current)).unwrap().0, cores);
    }
    let file = |text: &str| {
        let current = Current::File(room.file("m.csv", text));
        present(&on, &machine, Some(&current)).map(|p| p.0).map_err(|e| room.said(&e))
    };
    assert_eq!(file("id,pe\n1,0\n2,1\n3,2\n4,3\n5,0\n9,1\n"), Ok(vec![2, 0, 3, 0, 1, 1]));
    for (text, said) in [
        (
            "id,pe\n1,0\n2,1\n3,2\n4,3\n5,0\n",
            "m.csv: task 9 is not there; a mapping needs every task",
        ),
        ("id,pe\n1,0\n1,0\n", "m.csv, line 3: task 1 is there twice; once is needed"),
        ("id,pe\n7,0\n", "m.csv, line 2: there is no task 7"),
        ("id,pe\n1,4\n", "m.csv, line 2: task 1 is on core 4; the machine has 4 cores: 0-3"),
        ("id,pe\n1,\n", "m.csv, line 2: task 1 has no pe; a mapping needs one for every task"),
        ("id\n1\n", "m.csv, line 1: there is no column pe, which is needed; there are 'id'"),
    ] {
        assert_eq!(file(text), Err(said.to_owned()));
    }
    let said = present(&input(&ids, Some(40)), &machine, None).unwrap_err().to_string();
    assert_eq!(said, "o.csv: task 3 is on core 40; the machine has 4 cores: 0-3");
    let mut some = input(&ids, None);
    let mut tasks = some.graph.tasks().to_vec();
    tasks[0].core = Some(0);
    some.graph = TaskGraph::new(tasks, &[]).unwrap();
    let said = present(&some, &machine, None).unwrap_err().to_string();
    assert_eq!(
        said,
        "o.csv: task 1 is on no core, others are on one; all are needed, or --current"
    );
}

/// Four ranks on one host, given in another order than that of their numbers.
fn written(name: &str) -> String {
    let machine = Cluster::even(2, 4, 2.0).unwrap();
    let tasks = graph(&[2, 0, 3, 1], None);
    write(format(name).unwrap(), &tasks, &machine, &[3, 1, 2, 7], &[3, 7, 0, 7], &[]).unwrap()
}

#[test]
fn forms_for_one_host() {
    insta::assert_snapshot!(written("csv"), @r"
    id,pe
    2,3
    0,7
    3,0
    1,7
    ");
    insta::assert_snapshot!(written("rankfile"), @r"
    rank 0=+n0 slot=7
    rank 1=+n0 slot=7
    rank 2=+n0 slot=3
    rank 3=+n0 slot=0
    ");
    insta::assert_snapshot!(written("map-cpu"), @"--cpu-bind=map_cpu:7,7,3,0");
    insta::assert_snapshot!(written("mpich"), @"-bind-to user:7,7,3,0");
    insta::assert_snapshot!(written("hostfile"), @r"
    localhost
    localhost
    localhost
    localhost
    ");
    insta::assert_snapshot!(written("masks"), @r"
    id,mask
    2,0x8
    0,0x80
    3,0x1
    1,0x80
    ");
    insta::assert_snapshot!(written("migrations"), @r"
    id,from,to,bytes
    0,1,7,0
    3,2,0,0
    ");
    for f in FORMATS {
        assert!(written(f.name).ends_with('\n') && format(f.name) == Some(f.format), "{}", f.name);
    }
    assert_eq!(format("json"), None);
}

#[test]
fn forms_for_two_hosts() {
    let core = |id, node| Core { id, cpu: id, node, speed: 1.0, caches: vec![] };
    let nodes = vec![Node { id: 0, host: 0 }, Node { id: 0, host: 1 }];
    let cores = vec![core(0, 0), core(2, 0), core(4, 1), core(5, 1)];
    let machine = Cluster::new(cores, nodes, vec![], vec![1.0, 3.4, 3.4, 1.0]).unwrap();
    let tasks = graph(&[0, 1, 2], None);
    let names = ["aa".to_owned(), "bb".to_owned()];
    let write = |name: &str, hosts: &[String]| {
        write(format(name).unwrap(), &tasks, &machine, &[0; 3], &[1, 3, 2], hosts)
            .map_err(|e| e.to_string())
    };
    // A slot is the place of the core on its host, whatever its number is.
    insta::assert_snapshot!(write("rankfile", &names).unwrap(), @r"
    rank 0=aa slot=1
    rank 1=bb slot=1
    rank 2=bb slot=0
    ");
    insta::assert_snapshot!(write("rankfile", &[]).unwrap(), @r"
    rank 0=+n0 slot=1
    rank 1=+n1 slot=1
    rank 2=+n1 slot=0
    ");
    insta::assert_snapshot!(write("hostfile", &names).unwrap(), @r"
    aa
    bb
    bb
    ");
    insta::assert_snapshot!(write("mpich", &names).unwrap(), @"-hosts aa:1,bb:2");
    assert!(write("mpich", &[]).unwrap_err().contains("a name for each is needed"));
    for name in ["map-cpu", "masks"] {
        let said = write(name, &names).unwrap_err();
        assert_eq!(
            said,
            "this format holds for one host, the machine has 2; take the format rankfile"
        );
    }
    let said = write("hostfile", &names[..1]).unwrap_err();
    assert_eq!(
        said,
        "there are 1 names of hosts; the machine has 2, and a name for each is needed"
    );
    assert!(write("hostfile", &[]).is_err());
    let said = write("rankfile", &["aa".to_owned(), "aa".to_owned()]).unwrap_err();
    assert_eq!(said, "two hosts have the name 'aa'; each host needs a name of its own");
}

#[test]
fn masks_of_high_cpus_and_tasks_that_are_no_ranks() {
    let core = |id| Core { id, cpu: id, node: 0, speed: 1.0, caches: vec![] };
    let machine = |id| {
        Cluster::new(vec![core(id)], vec![Node { id: 0, host: 0 }], vec![], vec![1.0]).unwrap()
    };
    let mask = |id| write(Format::Masks, &graph(&[0], None), &machine(id), &[0], &[0], &[]);
    assert_eq!(mask(70).unwrap(), format!("id,mask\n0,0x4{}\n", "0".repeat(17)));
    assert!(mask(1 << 16).unwrap_err().to_string().starts_with("CPU 65536 is beyond 65535"));
    for name in ["rankfile", "map-cpu", "mpich", "hostfile"] {
        let said =
            write(format(name).unwrap(), &graph(&[0, 5], None), &machine(0), &[0; 2], &[0; 2], &[]);
        assert!(
            said.unwrap_err()
                .to_string()
                .starts_with("task 5 is no rank: 2 tasks must be numbered 0 to 1")
        );
    }
}

#[test]
fn cores_that_have_other_work_and_speeds_of_their_own() {
    let machine = || Cluster::even(1, 2, 1.0).unwrap();
    let read = |text: &str| read_procs(text.as_bytes(), "p", &machine());
    let procs =
        read("pe,total_s,idle_s,background_s,speed,n_objs\n1,9,1,3,2,4\n0,9,1,0,4,4\n").unwrap();
    let proc = |core, speed, background_s| Proc { core, speed: Some(speed), background_s };
    assert_eq!(procs, [proc(0, 4.0, 0.0), proc(1, 2.0, 3.0)]);
    let cluster = with_speeds(machine(), &procs).unwrap();
    assert_eq!(cluster.cores().iter().map(|c| c.speed).collect::<Vec<_>>(), [1.0, 0.5]);
    let input = input(&[1, 0, 2, 3], Some(0));
    let background = Background::of(&input.graph, &cluster, &procs).unwrap();
    let case = Case {
        present: vec![0; 4],
        from: PresentFrom::Tasks,
        topology: "core:2".into(),
        factors_from: "unknown",
        caches_from: None,
        input,
        cluster,
        background,
        by_work: false,
    };
    // What the slow core has to do takes it three seconds: the four tasks of a second stay where they are.
    let before = case.before();
    assert_eq!((before.mapping.len(), before.objectives.makespan_s), (4, 4.0));
    assert_eq!(before.objectives.mean_load_s, (4.0 + 1.5) / 1.5);
    for mapper in evenly_nuco::map::MAPPERS {
        let mapped = case.map(mapper, &evenly_nuco::map::Options::default());
        assert_eq!(mapped.mapping.len(), 4, "{}", mapper.name);
        if ["refine", "nuco+"].contains(&mapper.name) {
            assert_eq!(mapped.objectives.makespan_s, 4.0, "{}", mapper.name);
        }
    }
    let judged = case.judge("j".into(), vec![0, 0, 0, 1]);
    assert_eq!((judged.objectives.makespan_s, judged.objectives.migrations), (5.0, 1));
    let notes = case.notes(std::slice::from_ref(&judged));
    let said =
        "1.50 s of load that is of no task on 1 core (--procs): it stays, and is in all figures";
    assert_eq!(notes, [said]);
    let json = case.json(&judged, &evenly_nuco::map::Options::default());
    assert_eq!((&json["tasks"], &json["load_s"]), (&4.into(), &4.0.into()));
    assert_eq!(json["background_s"], 1.5);
    assert_eq!(json["assignment"].as_array().unwrap().len(), 4);

    // Without speeds those of the machine stay, and without other work there is nothing to add.
    let some = read("pe,background_s\n1,0\n").unwrap();
    assert_eq!(some, [Proc { core: 1, speed: None, background_s: 0.0 }]);
    assert_eq!(with_speeds(machine(), &some).unwrap(), machine());
    assert!(Background::of(&graph(&[0], None), &machine(), &some).unwrap().is_none());
    for (text, said) in [
        ("", "p: it is empty; a first line with the names of columns is needed"),
        ("core\n1\n", "p, line 1: there is no column pe, which is needed; there are 'core'"),
        ("pe\n2\n", "p, line 2: pe is 2; the machine has 2 cores: 0-1"),
        ("pe,speed\n,1\n", "p, line 2: pe is empty; the number of a core is needed"),
        ("pe\n1\n1\n", "p, line 3: core 1 is there twice; once is needed"),
        ("pe,speed\n1,1\n", "p: core 0 is not there; the speed of every core is needed"),
        (
            "pe,speed\n1,0\n",
            "p, line 2: speed is '0'; a number above 0, from 1e-9 to 1e9, is needed",
        ),
        (
            "pe,background_s\n1,-1\n",
            "p, line 2: background_s is '-1'; a number that is not negative is needed",
        ),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), said);
    }
    let apart = read("pe,speed\n0,1e-9\n1,1e9\n").unwrap();
    let said = with_speeds(machine(), &apart).unwrap_err();
    assert!(
        said.starts_with("core 0 is ") && said.contains("times as fast as the fastest"),
        "{said}"
    );
}

#[test]
fn long_work_is_foreseen() {
    let expected = |name, n, m, p| expected_s(evenly_nuco::map::mapper(name).unwrap(), n, m, p);
    assert!(expected("nuco+", 400, 32, 3_000) < 0.1);
    assert!(expected("nuco", 1_000_000, 1_000, 3_000_000) > 20.0);
    // It keeps its time limit, and judges mappings before and after.
    assert!((0.5..2.0).contains(&expected("nuco+", 1_000_000, 1_000, 3_000_000)));
    // What only looks at every task once is done at once.
    assert!(expected("greedy", 1_000_000, 1_000, 3_000_000) < 5.0);
}

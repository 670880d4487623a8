//! Tests of the module above.

use super::*;
use evenly_model::CpuSet;
use std::collections::BTreeSet;
use std::path::Path;

fn bench(args: &UnevenArgs) -> Bench<'_> {
    let tools = Tools::at("/e", "/w");
    Bench { args, tools, iterations_per_ms: 1_000, room: Path::new("/r").to_owned() }
}

fn args() -> UnevenArgs {
    UnevenArgs {
        cases: Cases {
            programs: crate::Programs { evenly: None, workloads: "/w".into() },
            only: Vec::new(),
            list: false,
            runs: 5,
            cpus: None,
            seed: 1,
        },
        policy: Vec::new(),
        longer: 1.0,
        json: None,
    }
}

#[test]
fn names_are_unique_and_policies_exist() {
    let all = cases(1.0);
    let names: BTreeSet<&str> = all.iter().map(|c| c.name.as_str()).collect();
    assert_eq!((names.len(), all.len()), (26, 26));
    assert!(POLICIES.iter().all(|p| evenly_policies::by_name(p).is_some()));
}

#[test]
fn the_limit_is_a_part_of_what_its_arm_takes() {
    let of = |name: &str| cases(1.0).into_iter().find(|c| c.name == name).unwrap();
    // 80 of 240 rows, of which the last 80 are 16040 of 28920 units.
    let part = of("triangle-gomp-3-passive").part();
    assert!((part - 16_040.0 / 28_920.0).abs() < 1e-12);
    assert!((of("triangle-omp-4-active").part() - 0.5).abs() < 1e-12);
    let case = of("metbench-4-1-mpich-spin");
    let args = args();
    let [command, reference] = case.commands(&bench(&args));
    assert_eq!(
        words(&command).join(" "),
        "mpirun.mpich -n 4 /r/metbench.mpich --iterations 60 --iters 10000 --loads 1,4 --reverse 0 \
         --sync barrier"
    );
    let [command, reference_of_two] = of("metbench-2-on-2-mpich-spin").commands(&bench(&args));
    assert!(words(&command).join(" ").contains("-n 2 "));
    assert_eq!(words(&command).join(" ").replace("4,4", "4"), words(&reference_of_two).join(" "));
    let [command, _] = of("metbench-var-mpich-spin").commands(&bench(&args));
    assert!(words(&command).join(" ").ends_with("--reverse 15 --sync barrier --parts"));
    let [command, _] = of("metbench-neighbours-mpich-spin").commands(&bench(&args));
    assert!(words(&command).join(" ").ends_with("--sync neighbours"));
    assert!(words(&reference).join(" ").contains("-n 2 "));
    assert!(words(&reference).join(" ").contains("--loads 5 "));
}

#[test]
fn what_waiting_is_made_of() {
    let of = |name: &str| {
        let case = cases(1.0).into_iter().find(|c| c.name == name).unwrap();
        let set = case.environment().into_iter();
        set.map(|(n, v)| format!("{}={}", n.display(), v.display())).collect::<Vec<_>>()
    };
    let has = |name: &str, what: &str| of(name).iter().any(|set| set == what);
    assert!(has("metbench-4-1-openmpi-yield", "OMPI_MCA_mpi_yield_when_idle=1"));
    assert!(has("metbench-4-1-openmpi-spin", "OMPI_MCA_mpi_yield_when_idle=0"));
    assert!(has("triangle-omp-3-active", "KMP_USE_YIELD=0"));
    assert_eq!(of("triangle-gomp-3-passive"), ["OMP_WAIT_POLICY=passive"]);
}

#[test]
fn checksums_are_read() {
    assert_eq!(checksum("{\"checksum\":\"ab\"}\n").as_deref(), Some("ab"));
    assert_eq!(checksum("{\"makespan_s\":1}"), None);
}

#[test]
fn where_the_time_went() {
    // Two ranks with a CPU each, four on two CPUs.
    let text = "{\"makespan_s\":2.0,\"cpu_s\":[1.98,1.96],\"computing_cpu_s\":[1.9,1.8],\
        \"elapsed_s\":[2.0,2.0],\"longest_s\":1.97,\"longest_cpu_s\":1.95,\"held_s\":0.01}\n";
    assert_eq!((held(text), held("{\"makespan_s\":2.0}")), (Some(0.005), None));
    let (not_computing, not_had) = lost(text, 2).unwrap();
    assert!((not_computing - 0.025).abs() < 1e-12 && (not_had - 0.015).abs() < 1e-12);
    let four = "{\"makespan_s\":2.0,\"cpu_s\":[0.99,0.98,0.99,0.98],\
        \"computing_cpu_s\":[0.8,0.8,0.8,0.8],\"elapsed_s\":[2.0,2.0,2.0,2.0],\"longest_cpu_s\":1.0}\n";
    let (not_computing, not_had) = lost(four, 4).unwrap();
    assert!((not_computing - 0.2).abs() < 1e-12 && (not_had - 0.015).abs() < 1e-12);
    assert_eq!((lost("{\"makespan_s\":2.0}", 2), lost("", 2)), (None, None));
}

#[test]
fn what_runs_print_stands_beside_the_kernel_of_the_same_round() {
    let run = |lost: f64| Printed {
        lost: Some(lost),
        held: Some(lost / 4.0),
        taken: Some(lost / 2.0),
        seen: None,
    };
    let (kernel, auto) = ([0.01, 0.03, 0.02].map(run), [0.012, 0.032, 0.022].map(run));
    let (kernel, auto): (Vec<&Printed>, Vec<&Printed>) =
        (kernel.iter().collect(), auto.iter().collect());
    let report = serde_json::json!({"overhead_s": 0.04, "seconds": 4.0});
    let b = Balanced::new(&auto, &kernel, &[report], 1);
    let value = |m: Option<Measured>| m.unwrap().value;
    assert!((value(b.lost_percent) - 2.2).abs() < 1e-9);
    assert!((value(b.lost_more) - 0.2).abs() < 1e-9);
    assert!((value(b.held_more) - 0.05).abs() < 1e-9);
    assert!((value(b.taken_more) - 0.1).abs() < 1e-9);
    assert!((value(b.own_percent) - 0.5).abs() < 1e-9);
    let k = Balanced::new(&kernel, &kernel, &[], 1);
    assert_eq!((k.lost_more, k.taken_more, k.own_percent), (None, None, None));
}

#[test]
fn a_case_in_words() {
    let arm = |name: &str, seconds: &[f64]| ArmFigures {
        name: name.to_owned(),
        seconds: seconds.to_vec(),
        makespan_s: Measured::median(seconds, 1),
        speedup_vs_kernel: Measured::median(&[1.25], 1),
        limit_percent: Measured::median(&[80.0], 1),
        others: Some(0.01),
        own: None,
        balanced: None,
        turning: None,
        reports: Vec::new(),
    };
    let case = cases(1.0).swap_remove(3);
    let cases = vec![Measurement {
        case,
        limit_s: Measured::median(&[2.0], 1),
        arms: vec![arm("limit", &[2.0]), arm("kernel", &[2.5]), arm("hpc-auto", &[])],
    }];
    let text = cases[0].text();
    assert!(text.starts_with(
        "metbench-var-mpich-spin: MetBench, MPICH, 4 ranks on 2 CPUs that spin, 45 iterations \
         with loads 1 and 4 that turn round every 15\n  limit 2.000 s\n"
    ));
    assert!(text.contains("hpc-auto") && text.contains("1.250"), "{text}");
    let machine = HostRecord::this(&CpuSet::default());
    let report =
        Report { schema: SCHEMA, machine, runs: 1, longer: 1.0, seed: 1, cases, incomplete: false };
    assert!(report.text().contains("metbench-var-mpich-spin"), "{}", report.text());
}

/// Four iterations after each reversal, of which one was begun with the old parts.
fn turned() -> Turning {
    let high = |i: usize| i <= 4 || i > 8;
    let weight = |rank: usize| (0..12).map(move |i| if high(i) == (rank == 1) { 1.5 } else { 0.5 });
    let seen = Seen {
        took_s: vec![0.1; 12],
        weights: vec![weight(0).collect(), weight(1).collect()],
        cpus: vec![vec![0.0; 12]; 2],
    };
    Turning::of(vec![reversals(&seen, &[1.0, 4.0], 4)]).unwrap()
}

#[test]
fn what_is_only_seen_by_ranks_is_in_table_and_json() {
    let runs = [0.01, 0.02, 0.03].map(|p| Printed {
        lost: Some(p),
        held: None,
        taken: Some(-p),
        seen: None,
    });
    let runs: Vec<&Printed> = runs.iter().collect();
    let report = serde_json::json!({"overhead_s": 0.04, "seconds": 4.0});
    let arm = |name: &str, balanced, turning| ArmFigures {
        name: name.to_owned(),
        seconds: vec![2.0; 3],
        makespan_s: Measured::median(&[2.0; 3], 1),
        speedup_vs_kernel: None,
        limit_percent: Measured::median(&[90.0; 3], 1),
        others: Some(0.01),
        own: None,
        balanced,
        turning,
        reports: Vec::new(),
    };
    let of = |name: &str| cases(1.0).into_iter().find(|c| c.name == name).unwrap();
    let even = Balanced::new(&runs, &runs, &[report], 1);
    let limit_s = Measured::median(&[2.0; 3], 1);
    let cases = vec![
        Measurement {
            case: of("metbench-2-on-2-mpich-spin"),
            limit_s,
            arms: vec![arm("limit", None, None), arm("hpc-auto", Some(even), None)],
        },
        Measurement {
            case: of("metbench-var-openmpi-yield"),
            limit_s,
            arms: vec![arm("hpc-auto", None, Some(turned()))],
        },
    ];
    let text = cases[0].text();
    assert!(
        text.contains("2.00 [1.00, 3.00]  0.00 [0.00, 0.00]        -     -  -2.00 [-3.00, -1.00]"),
        "{text}"
    );
    assert!(!text.contains("reversals") && text.contains("0.50"), "{text}");
    let text = cases[1].text();
    assert!(text.contains("hpc-auto (2)") && text.contains("1 (at most 1)"), "{text}");
    assert!(!text.contains("not computing"), "{text}");
    let machine = HostRecord::this(&"0-1".parse().unwrap());
    let report =
        Report { schema: SCHEMA, machine, runs: 3, longer: 1.0, seed: 1, cases, incomplete: false };
    let value = serde_json::to_value(&report).unwrap();
    let schema = include_str!("../../../../docs/schemas/evenly.bench-uneven-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let errors = |value: &serde_json::Value| -> Vec<String> {
        validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect()
    };
    assert_eq!(errors(&value), Vec::<String>::new());
    for path in ["/cases/0/arms/1/balanced/lost_more/value", "/cases/1/arms/0/turning/each/0/0"] {
        let mut broken = value.clone();
        *broken.pointer_mut(path).unwrap() = "no number".into();
        assert!(!errors(&broken).is_empty(), "{path}");
    }
}

//! What the probe has reported of threads, and what ranks have counted.

use super::*;

#[test]
fn what_the_probe_has_reported() {
    let thread = |tid: i32, waited_s: f64, outside_s: f64| ProbeThread {
        pid: Pid(100),
        tid: Tid(tid),
        rank: None,
        waited_s,
        outside_s,
        phases: 40,
        waits: 41,
        seen_waiting: 10,
        waited_for: vec![],
    };
    let with = |processes, threads| {
        let probe = Some(ProbeReport { processes, left_out: 0, threads, replaced: 0 });
        let report = RunReport { probe, ..balanced() }.judged();
        let text = report.text(true);
        let line = text.lines().find_map(|l| l.trim().strip_prefix("probe")).unwrap();
        line.trim().to_owned()
    };
    assert_eq!(with(0, vec![]), "it was loaded into no process");
    assert_eq!(with(1, vec![]), "it saw no thread wait for another");
    assert_eq!(
        with(1, vec![thread(1, 0.25, 0.0), thread(2, 3.5, 0.0)]),
        "2 threads waited 3.75 s in all for others (0.25 to 3.50 s each)"
    );
    assert_eq!(
        with(1, vec![thread(1, 0.25, 0.75)]),
        "1 thread waited 0.25 s in all for others (0.25 to 0.25 s each), and 0.75 s outside of parallel \
         regions"
    );
    assert!(!balanced().judged().text(true).contains("probe "));
    let threads = vec![thread(1, 0.25, 0.0)];
    let probe = Some(ProbeReport { processes: 1, left_out: 0, threads, replaced: 12 });
    let text = RunReport { probe, ..balanced() }.judged().text(true);
    assert!(text.contains("\n  barriers    of 12 parallel regions were evenly's own\n"), "{text}");
    // Ranks and their launcher, which waits for their end.
    let waits = |call: &str, rank, world, seen| {
        let (call, tid) = (call.to_owned(), None);
        WaitedFor { call, rank, world, tid, seen }
    };
    let rank = |n: u32, waited_s, waited_for: &[WaitedFor]| ProbeThread {
        rank: Some(n),
        waited_for: waited_for.to_vec(),
        ..thread(n as i32, waited_s, 0.0)
    };
    let both = |processes, threads: Vec<ProbeThread>| {
        let probe = ProbeReport { processes, left_out: 0, threads, replaced: 0 };
        let whom = probe.for_whom();
        let text = RunReport { probe: Some(probe), ..balanced() }.judged().text(true);
        assert!(text.lines().skip(2).all(|l| l.len() <= 120), "{text}");
        assert!(whom.as_ref().is_none_or(|w| text.contains(&format!("\n  for whom    {w}\n"))));
        whom
    };
    let recv = waits("MPI_Recv", Some(0), true, 6);
    let launcher = thread(99, 20.0, 0.0);
    let few = vec![launcher.clone(), rank(0, 0.1, &[]), rank(1, 3.0, std::slice::from_ref(&recv))];
    assert_eq!(
        with(4, few.clone()),
        "2 threads of 2 ranks waited 3.10 s in all for others (0.10 to 3.00 s each)"
    );
    assert_eq!(both(4, few).unwrap(), "rank 1 waited mostly for rank 0 (MPI_Recv)");
    let probe = waits("MPI_Probe", Some(0), true, 2);
    let mut all: Vec<ProbeThread> =
        (1..=6).map(|n| rank(n, 2.0, &[recv.clone(), probe.clone()])).collect();
    all.extend([launcher, rank(0, 1.0, &[waits("MPI_Ssend", Some(5), true, 9)])]);
    assert_eq!(
        both(8, all.clone()).unwrap(),
        "ranks 1, 2, 3, 4 and 2 more waited mostly for rank 0 (MPI_Probe, MPI_Recv); rank 0 for rank 5 \
         (MPI_Ssend)"
    );
    let chain = |n| rank(n, 2.0, &[waits("MPI_Sendrecv_replace", Some(n + 1), true, 9)]);
    let text = both(9, (100_000..100_009).map(chain).collect()).unwrap();
    assert!(text.starts_with("rank 100000 waited mostly for rank 100001 (MPI_Send"), "{text}");
    // Threads of one process: for the one that was late most often, of those that were.
    let late = |tid, seen| {
        let call = String::from("barrier");
        WaitedFor { call, rank: None, world: false, tid: Some(Tid(tid)), seen }
    };
    let waits_at = |tid: i32, waited_for: &[WaitedFor]| ProbeThread {
        waited_for: waited_for.to_vec(),
        ..thread(tid, 2.0, 0.0)
    };
    let team = vec![
        thread(11, 0.1, 0.0),
        waits_at(12, &[late(11, 9), late(13, 7)]),
        waits_at(13, &[late(12, 1), late(11, 8)]),
    ];
    assert_eq!(
        both(1, team.clone()).unwrap(),
        "threads 12 and 13 waited mostly for thread 11 (barrier)"
    );
    // They are not reported beside ranks.
    let mut mixed = vec![rank(0, 2.0, &[late(5, 9)])];
    mixed.extend(team);
    assert_eq!(both(2, mixed), None);
    // In half of the looks; for anyone; for one of another communicator; hardly waiting; hardly seen.
    let seldom =
        ProbeThread { seen_waiting: 3, ..rank(6, 2.0, &[waits("MPI_Recv", Some(0), true, 3)]) };
    let text = both(
        6,
        vec![
            rank(1, 2.0, &[waits("MPI_Recv", Some(0), true, 5)]),
            rank(2, 2.0, &[waits("MPI_Recv", None, true, 9)]),
            rank(3, 2.0, &[waits("MPI_Recv", Some(0), false, 9)]),
            rank(4, 0.1, &[recv]),
            seldom,
        ],
    );
    assert_eq!(text, None);
}

#[test]
fn what_ranks_have_counted() {
    let rank = |rank: u32, computed_s, mpi_s| RankReport {
        pid: Pid(100 + rank as i32),
        tid: Tid(100 + rank as i32),
        rank,
        computed_s,
        mpi_s,
    };
    let line = |ranks: Vec<RankReport>, seconds: f64, decided: bool| {
        let edges = vec![EdgeReport { from: 0, to: 1, messages: 3_000, bytes: 2_000_000 }];
        let messages = Some(MessagesReport {
            decided,
            seconds,
            messages: 3_000,
            bytes: 2_000_000,
            outside: 0,
            uncounted: 0,
            left_out: 0,
            ranks,
            edges,
        });
        let report = RunReport { messages, ..balanced() }.judged();
        assert!(validator().is_valid(&serde_json::to_value(&report).unwrap()));
        let text = report.text(true);
        text.lines().find_map(|l| l.trim().strip_prefix("messages ")).unwrap().trim().to_owned()
    };
    assert!(
        line(vec![], 0.0, true).starts_with("no rank has counted any: none has initialised MPI")
    );
    let two = vec![rank(0, 3.0, 1.0), rank(1, 1.0, 3.0)];
    assert_eq!(
        line(two, 2.0, true),
        "2 ranks sent 1500 messages/s (1.00 MB/s) and computed for 25 to 75 % of their CPU time"
    );
    assert_eq!(
        line(vec![rank(0, 0.0, 0.0)], 0.0, false),
        "1 rank sent 3000 messages; the messages of --profile or --edges counted instead"
    );
    assert!(!balanced().judged().text(true).contains("messages "));
}

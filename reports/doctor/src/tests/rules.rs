//! Each rule, with evidence for which it must report its cause and evidence for which it must not.

use super::*;

#[test]
fn healthy_programs_have_no_finding() {
    let healthy = [
        ("a CPU each", balanced()),
        ("one thread", evidence(vec![thread(0, 9.9, 0.1, 0.0)])),
        (
            "asleep most of the time",
            evidence(vec![thread(0, 0.1, 0.0, 9.9), thread(1, 0.1, 0.0, 9.9)]),
        ),
        ("four on two", evidence((0..4).map(|i| thread(i, 4.8, 4.8, 0.4)).collect())),
        ("three on two, busy", three()),
        ("a helper that sleeps", {
            let mut e = balanced();
            e.threads.push(thread(2, 0.05, 0.0, 9.95));
            e
        }),
    ];
    for (name, e) in healthy {
        let d = Diagnosis::of(&e, Vec::new());
        assert!(d.findings.is_empty(), "{name}: {}", d.text());
        assert_eq!(d.prospect.gain_at_most == Some(1.0), name != "three on two, busy", "{name}");
    }
    // Without a probe it is unknown whether these spin.
    assert!(Diagnosis::of(&three(), Vec::new()).unknown[0].contains("spin"));
}

/// Spinning looks like computing, and can take many times as long as the work: nothing is called impossible.
#[test]
fn four_on_two_of_which_none_ever_sleeps() {
    let mut e = evidence((0..4).map(|i| thread(i, 4.99, 5.0, 0.01)).collect());
    let d = Diagnosis::of(&e, Vec::new());
    assert!(d.findings.is_empty() && d.prospect.gain_at_most.is_none(), "{}", d.text());
    assert!(
        d.text().contains("if they spin while they wait, 2 threads take less time"),
        "{}",
        d.text()
    );
    assert!(d.text().contains("\n  measure     evenly compare -- ./app"), "{}", d.text());
    assert!(!d.text().contains("no benefit"), "{}", d.text());
    e.runtimes.insert(Runtime::Gomp);
    let measured = "evenly compare --policies kernel,kernel:OMP_NUM_THREADS=2,auto -- ./app '-n 3'";
    assert_eq!(Diagnosis::of(&e, Vec::new()).compare.as_deref(), Some(measured));
    // They are known to compute.
    for t in &mut e.threads {
        t.stay.spun_s = Some(0.0);
    }
    assert_eq!(Diagnosis::of(&e, Vec::new()).prospect.gain_at_most, Some(1.0));
    // They are known to spin for most of their time: 2 s of work on two CPUs.
    for t in &mut e.threads {
        t.stay.spun_s = Some(4.49);
    }
    let remedy = of(&e).1.remedy;
    assert!(
        remedy.contains("computed for 2.00 s in all, 1.00 s for each of 2 threads, in 10.00 s"),
        "{remedy}"
    );
}

#[test]
fn a_quota_that_ran_out() {
    let mut e = evidence((0..8).map(|i| thread(i, 1.2, 8.8, 0.0)).collect());
    let quota = |times, held_s| {
        Some(QuotaUse { cpus: 1.0, times, held_s, lift: Some("echo -1 > q".into()) })
    };
    e.quota = quota(97, 10.0);
    let (d, f) = of(&e);
    assert_eq!((d.findings.len(), f.kind), (1, Kind::Quota), "{}", d.text());
    assert!((f.cost.unwrap() - 10.0 / 19.6).abs() < 1e-9);
    assert_eq!(f.paste.as_deref(), Some("echo -1 > q"));
    assert_eq!(d.prospect.gain_at_most, Some(1.0));
    e.runtimes.insert(Runtime::Gomp);
    assert_eq!(of(&e).1.paste.as_deref(), Some("OMP_NUM_THREADS=1 ./app '-n 3'"));
    // One that is never reached.
    e.quota = quota(0, 0.0);
    assert!(!kinds(&e).contains(&Kind::Quota));
}

/// Two threads that may use one CPU of two and spin there: with the whole cpuset each has a CPU, and spinning
/// costs nothing.
#[test]
fn spinning_that_a_narrow_mask_makes_is_not_reported_beside_it() {
    let spinning = |mask: &str| {
        let mut e = evidence((0..2).map(|i| thread(i, 4.9, 5.0, 0.1)).collect());
        for t in &mut e.threads {
            (t.mask, t.cpu) = (cpus(mask), Some(CpuId(0)));
            t.stay.spun_s = Some(1.0);
        }
        e
    };
    let kinds = |e: &Evidence| of(e).0.findings.iter().map(|f| f.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&spinning("0")), [Kind::NarrowMask]);
    let mut three = spinning("0");
    three.threads.push(three.threads[0].clone());
    assert_eq!(kinds(&three), [Kind::NarrowMask, Kind::Spinning]);
}

#[test]
fn a_mask_narrower_than_the_threads() {
    let narrow = |mask: &str| {
        let mut e = evidence((0..4).map(|i| thread(i, 2.4, 7.5, 0.0)).collect());
        for t in &mut e.threads {
            (t.mask, t.cpu) = (cpus(mask), Some(CpuId(0)));
        }
        e.cpus[0].program_s = 9.6;
        e.cpus[0].busy_s = 9.6;
        (e.cpus[1].program_s, e.cpus[1].busy_s) = (0.0, 0.0);
        e
    };
    let (d, f) = of(&narrow("0"));
    assert_eq!((d.findings.len(), f.kind), (1, Kind::NarrowMask), "{}", d.text());
    assert_eq!(f.paste.as_deref(), Some("taskset -c 0-1 ./app '-n 3'"));
    assert!((f.cost.unwrap() - 0.5).abs() < 1e-9);
    assert_eq!(
        of(&Evidence { pid: Some(7), ..narrow("0") }).1.paste.unwrap(),
        "taskset -apc 0-1 100"
    );
    // The process that the user named may be their launcher.
    let mut ranks = Evidence { pid: Some(7), ..narrow("0") };
    ranks.threads[3].pid = 90;
    assert_eq!(of(&ranks).1.paste.unwrap(), "for p in 90 100; do taskset -apc 0-1 $p; done");
    ranks.pid = None;
    ranks.runtimes.insert(Runtime::OpenMpi);
    let (_, f) = of(&ranks);
    let none = "OMPI_MCA_hwloc_base_binding_policy=none ./app '-n 3'";
    assert_eq!(f.paste.as_deref(), Some(none));
    assert!(f.remedy.contains("mpirun --bind-to none"), "{}", f.remedy);
    let mut bound = narrow("0");
    bound.runtimes.insert(Runtime::Gomp);
    bound.environment = env(&[("OMP_PLACES", "{0}")]);
    let (_, f) = of(&bound);
    assert!(f.sentence.contains("OMP_PLACES={0}"), "{}", f.sentence);
    assert!(f.paste.unwrap().starts_with("env -u OMP_PLACES OMP_PROC_BIND=false ./app"));
    // A cpuset allows no more CPUs, and one thread needs no more.
    assert!(kinds(&Evidence { cpuset: cpus("0"), ..narrow("0") }).is_empty());
    let mut one = narrow("0");
    one.threads.truncate(1);
    (one.cpus[0].program_s, one.cpus[0].busy_s) = (2.4, 2.4);
    assert!(kinds(&one).is_empty());
}

#[test]
fn threads_pinned_to_one_cpu() {
    let (d, f) = of(&pinned(&["0", "0"]));
    assert_eq!((d.findings.len(), f.kind), (1, Kind::PinnedTogether), "{}", d.text());
    assert_eq!((f.threads.as_slice(), &f.cpus), ([101, 102].as_slice(), &cpus("0")));
    assert!(f.sentence.contains("worker-0 (101), worker-1 (102)"), "{}", f.sentence);
    assert_eq!(f.paste.as_deref(), Some("for p in $(pgrep -x app); do taskset -apc 0-1 $p; done"));
    // By a setting, or by a launcher of ranks.
    let mut bound = pinned(&["0", "0"]);
    bound.runtimes.insert(Runtime::Gomp);
    bound.environment = env(&[("GOMP_CPU_AFFINITY", "0")]);
    let (d, f) = of(&bound);
    assert!(f.sentence.contains("pinned to CPU 0 by GOMP_CPU_AFFINITY=0 and"), "{}", f.sentence);
    let free = "env -u GOMP_CPU_AFFINITY OMP_PROC_BIND=false ./app '-n 3'";
    assert_eq!(f.paste.as_deref(), Some(free));
    assert!(d.prospect.reason.contains("bound by GOMP_CPU_AFFINITY=0"), "{}", d.prospect.reason);
    let mut ranks = pinned(&["0", "0"]);
    ranks.threads[1].pid = 99;
    ranks.runtimes.insert(Runtime::OpenMpi);
    let (_, f) = of(&ranks);
    let none = "OMPI_MCA_hwloc_base_binding_policy=none ./app '-n 3'";
    assert_eq!(f.paste.as_deref(), Some(none));
    assert!(f.remedy.contains("mpirun --bind-to none"), "{}", f.remedy);
    // Three of which two share: the other CPU is idle while its thread waits.
    assert_eq!(kinds(&pinned(&["0", "1", "1"])), [Kind::PinnedTogether]);
    assert!(kinds(&pinned(&["0", "1"])).is_empty());
    assert!(kinds(&pinned(&["0", "1", "0", "1"])).is_empty());
}

#[test]
fn another_program_on_a_cpu() {
    let mut e = evidence(vec![thread(0, 9.8, 0.2, 0.0), thread(1, 4.9, 5.1, 0.0)]);
    e.cpus[1].busy_s += 4.9;
    assert_eq!(kinds(&e), [Kind::Neighbour]);
    e.others = vec![Other { pid: 7, name: "noise".into(), cpu_s: 4.9, cpu: CpuId(1), user: None }];
    let (d, f) = of(&e);
    assert!(f.sentence.starts_with("noise (pid 7) uses CPU 1"), "{}", f.sentence);
    assert_eq!((f.threads.as_slice(), &f.cpus), ([102].as_slice(), &cpus("1")));
    assert_eq!(f.paste.as_deref(), Some("evenly run -- ./app '-n 3'"));
    assert_eq!(
        f.evidence.last().unwrap(),
        "worker-1 (102) on CPU 1 waited longest: 51 % of its time"
    );
    // Three threads on CPUs of which one has half of its time for them: two and one are even, and CPUs are not.
    let mut three = evidence((0..3).map(|i| thread(i, 5.0, 5.0, 0.0)).collect());
    for (u, (ours, busy)) in three.cpus.iter_mut().zip([(10.0, 10.0), (5.0, 10.0)]) {
        (u.program_s, u.busy_s) = (ours, busy);
    }
    let reason = Diagnosis::of(&three, Vec::new()).prospect.reason;
    assert!(
        reason.starts_with("no benefit here: 3 threads can share 2 CPUs as unequal"),
        "{reason}"
    );
    // Busy time that was not counted, as on a virtual CPU that its host stops: the time of the other process is
    // known nevertheless, and the rest belongs to none.
    let mut lost = e.clone();
    (lost.cpus[0].busy_s, lost.cpus[0].uncounted_s) = (3.0, 6.8);
    (lost.cpus[1].busy_s, lost.cpus[1].uncounted_s) = (3.0, 6.8);
    assert_eq!(of(&lost).1.cpus, cpus("1"));
    assert!((of(&lost).1.cost.unwrap() - 0.245).abs() < 0.01, "{:?}", of(&lost).1);
    lost.others.clear();
    assert!(!kinds(&lost).contains(&Kind::Neighbour), "{:?}", kinds(&lost));
    // Bound threads have to be unbound first: evenly does not move them.
    let mut bound = e.clone();
    for (t, mask) in bound.threads.iter_mut().zip(["0", "1"]) {
        t.mask = cpus(mask);
    }
    let (healthy, f) = of(&bound);
    let reniced = Some("renice -n 19 -p 7".to_owned());
    assert_eq!((f.paste, healthy.prospect.gain_at_most), (reniced, Some(1.0)));
    // Of another user only root may.
    bound.others[0].user = Some(33);
    let by_root = "sudo renice -n 19 -p 7";
    assert_eq!(of(&bound).1.paste.as_deref(), Some(by_root));
    bound.runtimes.insert(Runtime::Gomp);
    bound.environment = env(&[("OMP_PROC_BIND", "true")]);
    let (_, f) = of(&bound);
    let free = "OMP_PROC_BIND=false evenly run -- ./app '-n 3'";
    assert_eq!(f.paste.as_deref(), Some(free));
    // CPUs of 1 and 0.51: 2 threads take 2/1.51 instead of 1/0.51.
    let gain = d.prospect.gain_at_most.unwrap();
    assert!((gain - 1.51 / 2.0 / 0.51).abs() < 0.01, "{gain}");
    // Little of the threads' time, but one of four is late because of it.
    let mut one = evidence(vec![
        thread(0, 7.0, 0.0, 3.0),
        thread(1, 7.0, 1.5, 1.5),
        thread(2, 0.9, 0.0, 9.0),
        thread(3, 0.9, 0.0, 9.0),
    ]);
    one.cpus[1].busy_s = 9.9;
    assert!(kinds(&one).contains(&Kind::Neighbour), "{:?}", kinds(&one));
    // Short-lived programs cannot be named, but it can be shown when they ran.
    let mut alone = evidence(vec![thread(0, 4.9, 5.1, 0.0)]);
    alone.cpus[0].busy_s = 9.9;
    let (_, f) = of(&alone);
    let shown =
        "evenly run --policy observe --record run.evenly -- ./app '-n 3'; evenly report run.evenly";
    assert_eq!(f.paste.as_deref(), Some(shown), "{f:?}");
    assert!(f.sentence.starts_with("Short-lived programs use CPU 0"), "{}", f.sentence);
    alone.pid = Some(100);
    assert_eq!(of(&alone).1.paste.as_deref(), Some("evenly top 100"));
    // On a CPU that the program does not use, or too short for threads to wait.
    let mut beside = balanced();
    beside.others = e.others;
    assert!(kinds(&beside).is_empty());
    beside.cpus[0].busy_s += 0.2;
    assert!(kinds(&beside).is_empty());
}

#[test]
fn a_slow_cpu() {
    let mut e = balanced();
    e.cpus[1].capacity = 512;
    let (d, f) = of(&e);
    assert_eq!(
        (f.kind, &f.cpus, f.threads.as_slice()),
        (Kind::SlowCpu, &cpus("1"), [102].as_slice())
    );
    assert!(d.prospect.gain_at_most.unwrap() > 1.3, "{:?}", d.prospect);
    // No thread runs on it.
    e.threads.truncate(1);
    (e.cpus[1].program_s, e.cpus[1].busy_s) = (0.0, 0.0);
    assert!(kinds(&e).is_empty());
    // The kernel reports equal capacities, but measurements differ.
    let mut e = balanced();
    (e.cpus[0].work_ns, e.cpus[1].work_ns) = (Some((100_000.0, 500.0)), Some((160_000.0, 9_000.0)));
    let (d, f) = of(&e);
    assert_eq!((f.kind, &f.cpus), (Kind::SlowCpu, &cpus("1")), "{}", d.text());
    assert!(f.sentence.starts_with("CPU 1 computes at 62 % of the speed"), "{}", f.sentence);
    assert_eq!(
        f.evidence,
        ["the same short work takes 160 us on CPU 1, 100 us on CPU 0 (measured meanwhile)"]
    );
    assert!(d.prospect.gain_at_most.unwrap() > 1.2, "{:?}", d.prospect);
    // Both compute all the time, which a probe saw: nobody waits for the one on the fast CPU.
    e.threads.iter_mut().for_each(|t| t.stay.spun_s = Some(0.0));
    assert_eq!(kinds(&e), [Kind::SlowCpu]);
    // The thread on it takes longer for the same work, and the others wait for it: that is no uneven work.
    let mut late = evidence(vec![thread(0, 6.0, 0.0, 4.0), thread(1, 9.6, 0.1, 0.2)]);
    for (u, from) in late.cpus.iter_mut().zip(&e.cpus) {
        u.work_ns = from.work_ns;
    }
    assert_eq!(kinds(&late), [Kind::SlowCpu]);
    // With too few measurements, neither cause is reported.
    late.cpus[1].work_ns = Some((160_000.0, 20_000.0));
    let d = Diagnosis::of(&late, Vec::new());
    assert!(d.findings.is_empty(), "{}", d.text());
    let doubt = "whether CPU 1 is slow or worker-1 (102) has more work than others: the same short work \
                 took 160 us there and 100 us on the fastest CPU";
    assert!(d.unknown[0].starts_with(doubt), "{:?}", d.unknown);
    // The difference of speeds explains only a part, or nothing.
    for slow in [(130_000.0, 10_000.0), (110_000.0, 20_000.0)] {
        late.cpus[1].work_ns = Some(slow);
        assert_eq!(kinds(&late), [Kind::UnevenWork], "{slow:?}");
    }
    // A CPU that is not idle is busy, also where its time was not counted.
    let mut uncounted = balanced();
    for (u, from) in uncounted.cpus.iter_mut().zip(&e.cpus) {
        (u.work_ns, u.busy_s, u.uncounted_s) = (from.work_ns, 3.0, 6.5);
    }
    assert_eq!(kinds(&uncounted), [Kind::SlowCpu]);
    // Not where it varies too much, differs too little, or a CPU idles.
    for (work_ns, busy_s) in
        [((160_000.0, 20_000.0), 9.9), ((108_000.0, 100.0), 9.9), ((160_000.0, 100.0), 4.0)]
    {
        (e.cpus[1].work_ns, e.cpus[1].busy_s) = (Some(work_ns), busy_s);
        assert!(!kinds(&e).contains(&Kind::SlowCpu), "{work_ns:?}");
    }
    let mut e = balanced();
    e.cpus[0].stolen_s = 3.0;
    assert_eq!(kinds(&e), [Kind::SlowCpu]);
    e.cpus[0].stolen_s = 0.3;
    assert!(kinds(&e).is_empty());
}

#[test]
fn uneven_work() {
    let e = evidence(vec![thread(0, 9.5, 0.1, 0.1), thread(1, 3.2, 0.1, 6.4)]);
    let (d, f) = of(&e);
    assert_eq!(
        (d.findings.len(), f.kind, f.threads.as_slice()),
        (1, Kind::UnevenWork, [101].as_slice())
    );
    assert!(
        f.sentence.starts_with("worker-0 (101) on CPU 0 has 3.0 times as much work"),
        "{}",
        f.sentence
    );
    // Balancing does not help, so the line shows which thread works when.
    let shown =
        "evenly run --policy observe --record run.evenly -- ./app '-n 3'; evenly report run.evenly";
    assert_eq!((f.paste.as_deref(), d.prospect.gain_at_most), (Some(shown), Some(1.0)));
    let live = Evidence { pid: Some(100), ..e.clone() };
    assert_eq!(of(&live).1.paste.as_deref(), Some("evenly top 100"));
    let openmp = Evidence { runtimes: [Runtime::Gomp].into(), ..e };
    assert_eq!(of(&openmp).1.paste.as_deref(), Some("OMP_SCHEDULE=dynamic ./app '-n 3'"));
    // A probe reports the waiting.
    let mut spun = evidence(vec![thread(0, 9.5, 0.1, 0.0), thread(1, 9.5, 0.1, 0.0)]);
    assert!(kinds(&spun).is_empty());
    spun.threads[0].stay.spun_s = Some(0.0);
    spun.threads[1].stay.spun_s = Some(6.0);
    assert_eq!(kinds(&spun), [Kind::UnevenWork]);
    assert!(of(&spun).1.paste.unwrap().contains(" --probe on --record "), "{:?}", of(&spun).1);
    // Ranks that mostly poll: the difference is not work that others wait for.
    let mut polling = evidence((0..4).map(|i| thread(i, 4.9, 5.1, 0.0)).collect());
    for (t, computed) in polling.threads.iter_mut().zip([0.4, 0.1, 0.1, 0.1]) {
        t.stay.spun_s = Some(4.9 - computed);
    }
    assert_eq!(kinds(&polling), [Kind::Spinning]);
    // All sleep much: they do not wait for one of them.
    let served = evidence(vec![thread(0, 4.0, 0.1, 6.0), thread(1, 1.0, 0.1, 9.0)]);
    assert!(kinds(&served).is_empty());
}

#[test]
fn uneven_work_that_balancing_helps() {
    let measured = "evenly compare --policies kernel,auto,hpc-auto -- ./app '-n 3'";
    let threads =
        vec![thread(0, 7.4, 1.8, 0.8), thread(1, 3.7, 2.5, 3.8), thread(2, 3.6, 2.6, 3.8)];
    let e = evidence(threads);
    let (d, f) = of(&e);
    assert_eq!(f.kind, Kind::UnevenWork, "{}", d.text());
    assert!(d.prospect.gain_at_most.unwrap() > 1.2, "{:?}", d.prospect);
    assert_eq!(f.paste.as_deref(), Some("evenly run --policy hpc-auto -- ./app '-n 3'"));
    assert_eq!(d.compare.as_deref(), Some(measured));
    assert!(d.text().contains(&format!("measure     {measured}\n")), "{}", d.text());
    // Bound threads have to be unbound first.
    let mut bound = e.clone();
    for (t, mask) in bound.threads.iter_mut().zip(["0", "1", "0-1"]) {
        t.mask = cpus(mask);
    }
    bound.runtimes.insert(Runtime::Gomp);
    bound.environment = env(&[("OMP_PROC_BIND", "true")]);
    let free = "OMP_PROC_BIND=false evenly run -- ./app '-n 3'";
    assert_eq!(of(&bound).1.paste.as_deref(), Some(free));

    // Ranks that spin, as a probe reports: work of 4 and 1, two ranks of each.
    let ranks = (0..4).map(|i| {
        let (ran, waited, spun) = if i % 2 == 0 { (7.0, 3.0, 0.0) } else { (3.0, 7.0, 1.25) };
        let mut t = ThreadUse { pid: 101 + i, ..thread(i, ran, waited, 0.0) };
        t.stay.spun_s = Some(spun);
        t.cpu = Some(CpuId(i as u32 / 2));
        t
    });
    let mut e = evidence(ranks.collect());
    for (mpi, arms) in [
        (Runtime::Mpich, "kernel,auto,hpc-auto"),
        (Runtime::OpenMpi, "kernel,kernel:OMPI_MCA_mpi_yield_when_idle=1,auto,hpc-auto"),
    ] {
        e.runtimes = [mpi].into();
        let d = Diagnosis::of(&e, Vec::new());
        assert!(d.has(Kind::UnevenWork), "{}", d.text());
        let many = d.findings.iter().find(|f| f.kind == Kind::MpiOversubscribed).unwrap();
        let paste = many.paste.as_deref();
        assert_eq!(paste, Some("evenly run -- ./app '-n 3'"), "{}", d.text());
        let measured = format!("evenly compare --policies {arms} -- ./app '-n 3'");
        assert_eq!(d.compare.as_ref(), Some(&measured));
        assert!(d.text().contains(&format!("measure     {measured}\n")), "{}", d.text());
    }
}

/// Would catch: a policy that is recommended though `auto` tries it by itself, or though it promises nothing.
#[test]
fn a_policy_is_recommended_by_what_auto_would_try() {
    let e = evidence(vec![
        thread(0, 7.4, 1.8, 0.8),
        thread(1, 3.7, 2.5, 3.8),
        thread(2, 3.6, 2.6, 3.8),
    ]);
    let chosen = |e: &Evidence| {
        let d = Diagnosis::of(e, Vec::new());
        let paste = d.findings.first().and_then(|f| f.paste.clone()).unwrap_or_default();
        let (policy, reason) =
            d.recommended.clone().map_or(("", String::new()), |r| (r.policy, r.reason));
        assert_eq!(paste.contains("--policy hpc-auto"), policy == "hpc-auto", "{}", d.text());
        assert!(
            d.text().contains(&format!("policy      {policy}: {reason}\n")) || policy.is_empty()
        );
        (policy, reason)
    };
    let (policy, reason) = chosen(&e);
    assert!(policy == "hpc-auto" && reason.contains("tries it only where it sees"), "{reason}");
    for (phases, known, words) in
        [(2_000, "auto", "compares hpc-auto"), (2, "hpc-auto", "so seldom")]
    {
        let (policy, reason) = chosen(&Evidence { phase: Some((0.003, phases)), ..e.clone() });
        assert!(policy == known && reason.contains(words), "{phases}: {policy}: {reason}");
    }
    // By less than a fifth of the mean.
    let mut little = e.clone();
    for (t, ran) in little.threads.iter_mut().zip([7.4, 6.0, 5.9]) {
        (t.stay.ran_s, t.stay.blocked_s) = (ran, 10.0 - ran - t.stay.waited_s);
    }
    let (policy, reason) = chosen(&little);
    assert!(policy == "auto" && reason.contains("no unequal work"), "{policy} {reason}");
    let each_has_a_cpu = evidence(vec![thread(0, 9.0, 0.1, 0.9), thread(1, 4.0, 0.1, 5.9)]);
    assert_eq!(chosen(&each_has_a_cpu).0, "");
}

#[test]
fn threads_that_do_not_divide_evenly() {
    let mut e = evidence((0..3).map(|i| thread(i, 5.0, 3.0, 2.0)).collect());
    let (d, f) = of(&e);
    assert_eq!((d.findings.len(), f.kind), (1, Kind::UnevenDivision), "{}", d.text());
    assert!((f.cost.unwrap() - 0.25).abs() < 1e-9);
    // Not more than the idle CPUs could do: 1 / 0.75, which here is UB as well.
    assert!((d.prospect.gain_at_most.unwrap() - 4.0 / 3.0).abs() < 1e-9);
    e = evidence((0..3).map(|i| thread(i, 6.5, 3.2, 0.3)).collect());
    for u in &mut e.cpus {
        (u.program_s, u.busy_s) = (9.75, 9.75);
    }
    assert!(kinds(&e).is_empty());
}

/// Barriers that a probe reports too often for periods: the proposed policy is the one that is made for them.
#[test]
fn barriers_that_are_met_often() {
    let with = |phases, length| {
        let mut e = evidence((0..3).map(|i| thread(i, 5.0, 3.0, 2.0)).collect());
        e.threads.iter_mut().for_each(|t| t.stay.spun_s = Some(0.1));
        e.phase = Some((length, phases));
        e
    };
    let often = with(5_000, 1e-3);
    let (d, f) = of(&often);
    assert_eq!(f.kind, Kind::UnevenDivision, "{}", d.text());
    assert_eq!(f.paste.as_deref(), Some("evenly run -- ./app '-n 3'"));
    assert!(d.prospect.reason.ends_with("they meet every 2.0 ms"), "{}", d.prospect.reason);
    let paste = |e: &Evidence| of(e).1.paste.unwrap();
    // Periods are short enough, or a move costs more than it gains, or ranks meet.
    for mut e in [with(100, 0.05), with(50_000, 1e-4), often.clone()] {
        if e.phase == often.phase {
            e.runtimes.insert(Runtime::Mpich);
            e.threads.iter_mut().for_each(|t| t.stay.spun_s = Some(0.0));
        }
        assert_eq!(paste(&e), "evenly run -- ./app '-n 3'", "{:?}", e.phase);
    }
    // A neighbour on one CPU, however often they meet.
    let mut e = evidence(vec![thread(0, 4.8, 0.2, 5.0), thread(1, 4.8, 5.1, 0.1)]);
    e.threads.iter_mut().for_each(|t| t.stay.spun_s = Some(0.0));
    e.cpus[1].busy_s += 4.9;
    e.phase = Some((50e-6, 96_000));
    assert_eq!((of(&e).1.kind, paste(&e)), (Kind::Neighbour, "evenly run -- ./app '-n 3'".into()));
    // Their number is what a variable asks for.
    let mut e = often.clone();
    e.runtimes.insert(Runtime::Gomp);
    e.environment = env(&[("OMP_NUM_THREADS", "3")]);
    let (d, f) = of(&e);
    assert_eq!(f.remedy, "2 threads; if there have to be 3: evenly run");
    let measured = "evenly compare --policies kernel,kernel:OMP_NUM_THREADS=2,auto -- ./app '-n 3'";
    assert!(d.text().contains(measured), "{}", d.text());
}

#[test]
fn spinning() {
    // Yielding: a CPU given up tens of thousands of times.
    let mut e = three();
    for t in &mut e.threads[1..] {
        (t.preempted, t.system_s) = (2_000_000, 3.0);
    }
    let (d, f) = of(&e);
    assert_eq!(
        (d.findings.len(), f.kind, f.threads.as_slice()),
        (1, Kind::Spinning, [102, 103].as_slice())
    );
    assert_eq!(f.cost, None);
    assert!(
        f.sentence.starts_with("worker-1 (102) on CPU 1, worker-2 (103) on CPU 0 spin"),
        "{}",
        f.sentence
    );
    assert_eq!(f.paste.as_deref(), Some("evenly run -- ./app '-n 3'"));
    // Where balancing promises no gain, the line measures it.
    let mut four = evidence((0..4).map(|i| thread(i, 4.9, 5.1, 0.0)).collect());
    four.threads[1].preempted = 2_000_000;
    let (d, f) = of(&four);
    assert_eq!(f.paste.as_deref(), Some("evenly compare -- ./app '-n 3'"));
    assert!(d.text().contains("measure     evenly compare -- ./app"), "{}", d.text());
    e.runtimes.insert(Runtime::Omp);
    let (d, f) = of(&e);
    assert_eq!(f.paste.as_deref(), Some("KMP_BLOCKTIME=0 ./app '-n 3'"));
    let measured = "evenly compare --policies kernel,kernel:KMP_BLOCKTIME=0,auto -- ./app '-n 3'";
    assert!(d.text().contains(&format!("measure     {measured}\n")), "{}", d.text());
    // By a setting; and the line that measures whether it is the cause.
    let by = |runtime, pairs: &[(&str, &str)]| {
        let e = Evidence { runtimes: [runtime].into(), environment: env(pairs), ..three() };
        let (d, f) = of(&e);
        assert_eq!((f.kind, f.at_most), (Kind::Spinning, true), "{pairs:?}: {}", d.text());
        let set: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert!(f.sentence.contains(&format!("({})", set.join(", "))), "{}", f.sentence);
        let words = |line: Option<String>| line.unwrap().replace(" ./app '-n 3'", "");
        (words(f.paste), words(d.compare))
    };
    for (runtime, pairs, paste, arm) in [
        (
            Runtime::Omp,
            &[("KMP_BLOCKTIME", "infinite")][..],
            "env -u KMP_BLOCKTIME OMP_WAIT_POLICY=passive",
            "kernel:KMP_BLOCKTIME=0",
        ),
        (
            Runtime::Gomp,
            &[("GOMP_SPINCOUNT", "30000000000")],
            "env -u GOMP_SPINCOUNT OMP_WAIT_POLICY=passive",
            "kernel:GOMP_SPINCOUNT=1000",
        ),
        (
            Runtime::Omp,
            &[("KMP_LIBRARY", "turnaround")],
            "env -u KMP_LIBRARY OMP_WAIT_POLICY=passive",
            "kernel:KMP_LIBRARY=throughput",
        ),
        (
            Runtime::Gomp,
            &[("OMP_WAIT_POLICY", "active")],
            "OMP_WAIT_POLICY=passive",
            "kernel:OMP_WAIT_POLICY=passive",
        ),
        (
            Runtime::Gomp,
            &[("GOMP_SPINCOUNT", "infinity"), ("OMP_WAIT_POLICY", "active")],
            "env -u GOMP_SPINCOUNT OMP_WAIT_POLICY=passive",
            "'kernel:GOMP_SPINCOUNT=1000 OMP_WAIT_POLICY=passive",
        ),
    ] {
        let measured = match arm.strip_prefix('\'') {
            Some(arm) => format!("evenly compare --policies 'kernel,{arm},auto' --"),
            None => format!("evenly compare --policies kernel,{arm},auto --"),
        };
        assert_eq!(by(runtime, pairs), (paste.to_owned(), measured));
    }
    // Of a runtime that is not loaded a setting says nothing, and a limit is no lack of one.
    for (runtime, pairs) in [
        (Runtime::Mpich, ("GOMP_SPINCOUNT", "infinity")),
        (Runtime::Gomp, ("GOMP_SPINCOUNT", "300000")),
        (Runtime::Omp, ("KMP_BLOCKTIME", "200")),
        (Runtime::Omp, ("KMP_LIBRARY", "throughput")),
        (Runtime::Gomp, ("OMP_WAIT_POLICY", "passive")),
    ] {
        let e = Evidence { runtimes: [runtime].into(), environment: env(&[pairs]), ..three() };
        assert!(kinds(&e).is_empty(), "{pairs:?}");
    }
    // By the probe.
    let mut e = three();
    for t in &mut e.threads {
        t.stay.spun_s = Some(2.0);
    }
    assert_eq!(kinds(&e), [Kind::Spinning]);
    for t in &mut e.threads {
        t.stay.spun_s = Some(0.1);
    }
    assert!(kinds(&e).is_empty());
    // Threads with a CPU each may spin.
    let mut e = balanced();
    e.runtimes.insert(Runtime::Omp);
    e.environment = env(&[("OMP_WAIT_POLICY", "active")]);
    e.threads[0].preempted = 2_000_000;
    assert!(kinds(&e).is_empty());
}

/// Threads whose samples are in loops of the program itself.
#[test]
fn loops_in_which_threads_spin_are_named() {
    let mut e = three();
    e.threads.iter_mut().for_each(|t| t.stay.spun_s = Some(0.9 * t.stay.ran_s));
    let ran_s: f64 = e.threads.iter().map(|t| t.stay.ran_s).sum();
    // A loop that takes next to nothing is not worth a line.
    e.spins = [("barrier (app.c:12)", 0.6), ("lock (app.c:40)", 0.3), ("once (app.c:7)", 0.001)]
        .map(|(place, share)| spin(place, share * ran_s, share))
        .into();
    let (d, f) = of(&e);
    assert_eq!(kinds(&e), [Kind::Spinning]);
    assert_eq!(
        f.sentence,
        "3 threads spin in barrier (app.c:12) for 60 % of their CPU time, while those that they wait for \
         have no CPU: there are 3 threads on 2 CPUs."
    );
    assert!(f.evidence[0].contains("(by samples)"), "{:?}", f.evidence);
    assert_eq!(f.evidence[1], "3 threads spin in lock (app.c:40) for 30 % of their CPU time");
    assert_eq!(f.evidence.len(), 2, "{:?}", f.evidence);
    assert!(f.remedy.contains("hand over their CPU meanwhile, as evenly run does"), "{}", f.remedy);
    // What is left is their work, a tenth of what they ran for.
    let least = 0.1 * ran_s / 2.0;
    let gain = d.prospect.gain_at_most.unwrap();
    assert!((gain - 10.0 / least).abs() < 1e-6, "{gain}: {}", d.text());
    assert!(
        d.text().contains("if no thread spins on a CPU that another one needs"),
        "{}",
        d.text()
    );
    // A runtime that spins on its own has a setting for it.
    e.runtimes.insert(Runtime::Gomp);
    let f = of(&e).1;
    assert!(f.sentence.contains("barrier (app.c:12)"), "{}", f.sentence);
    assert!(f.remedy.starts_with("let them sleep"), "{}", f.remedy);
    // Threads with a CPU each may spin.
    let mut two = balanced();
    two.threads.iter_mut().for_each(|t| t.stay.spun_s = Some(0.9 * t.stay.ran_s));
    two.spins = vec![spin("barrier (app.c:12)", 16.0, 0.9)];
    assert!(!kinds(&two).contains(&Kind::Spinning), "{:?}", kinds(&two));
}

#[test]
fn ranks_and_threads_beyond_the_cpus() {
    let mut e =
        evidence((0..4).map(|i| ThreadUse { pid: 100 + i, ..thread(i, 4.9, 5.1, 0.0) }).collect());
    assert!(kinds(&e).is_empty());
    e.runtimes.insert(Runtime::OpenMpi);
    let (d, f) = of(&e);
    assert_eq!((d.findings.len(), f.kind), (1, Kind::MpiOversubscribed), "{}", d.text());
    assert!(f.paste.unwrap().starts_with("OMPI_MCA_mpi_yield_when_idle=1 ./app"));
    let arms = |d: &Diagnosis| {
        let line = d.compare.clone().unwrap();
        assert!(d.text().contains(&format!("measure     {line}")), "{}", d.text());
        line.split(' ').nth(3).unwrap().to_owned()
    };
    assert_eq!(arms(&d), "kernel,kernel:OMPI_MCA_mpi_yield_when_idle=1,auto");
    // Ranks that yield and hardly wait lose nothing.
    for t in &mut e.threads {
        (t.preempted, t.system_s) = (2_000_000, 0.3);
    }
    assert!(kinds(&e).is_empty());
    let mut probed = e.clone();
    for t in &mut probed.threads {
        t.stay.spun_s = Some(1.5);
    }
    assert!(kinds(&probed).is_empty());
    // With a probe the time of polling is known: it is not the cause of all waiting for CPUs.
    for (lost, found) in [(0.1, false), (0.4, false), (0.5, true), (2.0, true)] {
        for t in &mut probed.threads {
            (t.preempted, t.stay.spun_s) = (300, Some(lost));
        }
        let d = Diagnosis::of(&probed, Vec::new());
        let costs: Vec<_> = d.findings.iter().map(|f| (f.kind, f.cost, f.at_most)).collect();
        let all = [(Kind::MpiOversubscribed, Some(lost / 10.0), false)];
        assert_eq!(costs, if found { &all[..] } else { &[] }, "{}", d.text());
    }
    // Other programs leave them little CPU time, and much of that is lost.
    for t in &mut probed.threads {
        (t.stay.ran_s, t.stay.waited_s, t.stay.spun_s) = (1.0, 9.0, Some(0.2));
    }
    assert!(kinds(&probed).contains(&Kind::MpiOversubscribed), "{:?}", kinds(&probed));
    // A rank that yields to a thread which keeps the CPU does so rarely: one that is seen to yield is enough,
    // or the setting; the launcher's setting is the weaker.
    probed.threads[0].preempted = 2_000_000;
    for t in &mut probed.threads {
        (t.system_s, t.stay.spun_s) = (0.05, Some(0.2));
    }
    assert!(!kinds(&probed).contains(&Kind::MpiOversubscribed), "{:?}", kinds(&probed));
    probed.threads[0].preempted = 300;
    let (yields, many) = ("OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mpi_oversubscribe");
    for (pairs, found) in [
        (&[][..], true),
        (&[(yields, "0")], true),
        (&[(yields, "1")], false),
        (&[(many, "1")], false),
        (&[(many, "1"), (yields, "0")], true),
    ] {
        probed.environment = env(pairs);
        assert_eq!(kinds(&probed).contains(&Kind::MpiOversubscribed), found, "{pairs:?}");
    }
    // They yield to ranks that wait as well and return the CPU at once, which takes none from those that
    // compute.
    for t in &mut e.threads {
        (t.preempted, t.system_s) = (1_000_000, 2.0);
    }
    assert!(kinds(&e).is_empty());
    // Ranks that yield already and lose by it, because most calls are in vain, may do better without yielding;
    // balancing promises no gain here.
    for t in &mut e.threads {
        (t.preempted, t.system_s) = (20_000, 1.0);
    }
    let d = Diagnosis::of(&e, Vec::new());
    assert_eq!(arms(&d), "kernel,kernel:OMPI_MCA_mpi_yield_when_idle=0,auto");
    let many = d.findings.iter().find(|f| f.kind == Kind::MpiOversubscribed).unwrap();
    assert_eq!(many.paste, d.compare);
    // Ranks that sleep while they wait lose nothing.
    for t in &mut e.threads {
        (t.stay.waited_s, t.stay.blocked_s, t.preempted) = (1.0, 4.1, 300);
    }
    assert!(kinds(&e).is_empty());

    let mut e = evidence((0..4).map(|i| thread(i, 4.9, 5.0, 0.1)).collect());
    e.runtimes.insert(Runtime::Gomp);
    e.environment = env(&[("OMP_NUM_THREADS", "4,2")]);
    let (_, f) = of(&e);
    assert_eq!((f.kind, f.at_most), (Kind::TooManyThreads, true));
    assert_eq!(f.paste.as_deref(), Some("OMP_NUM_THREADS=2 ./app '-n 3'"));
    let mut e = evidence(vec![thread(0, 9.8, 0.1, 0.1)]);
    e.runtimes.insert(Runtime::Gomp);
    assert!(kinds(&e).is_empty());
    e.environment = env(&[("OMP_NUM_THREADS", "1")]);
    assert_eq!(kinds(&e), [Kind::TooFewThreads]);
    // Another program needs the other CPU.
    e.cpus[1].busy_s = 9.0;
    assert!(kinds(&e).is_empty());
}

#[test]
fn a_disk() {
    let mut t = thread(0, 2.0, 0.1, 7.9);
    (t.disk_s, t.file) = (7.0, Some("/data/out".into()));
    let (d, f) = of(&evidence(vec![t]));
    assert_eq!((f.kind, f.threads.as_slice()), (Kind::BlockedIo, [101].as_slice()));
    assert!(
        f.sentence.contains("worker-0 (101) waits for a disk (mostly /data/out)"),
        "{}",
        f.sentence
    );
    assert_eq!(f.paste.as_deref(), Some("strace -f -c -w ./app '-n 3'"));
    assert_eq!(f.cpus, cpus("0"));
    assert!(d.prospect.reason.contains("two threads"), "{}", d.prospect.reason);
    let asleep = evidence(vec![ThreadUse { disk_s: 0.1, ..thread(0, 2.0, 0.1, 7.9) }]);
    assert!(kinds(&asleep).is_empty());
}

#[test]
fn memory_of_another_node() {
    let node = |node, list: &str, pages| NodeUse { node, cpus: cpus(list), pages };
    let mut e = balanced();
    e.nodes = vec![node(0, "0", 100_000), node(1, "1", 1_000)];
    let (_, f) = of(&e);
    assert_eq!((f.kind, f.cost), (Kind::RemoteMemory, None));
    assert!(
        f.sentence.contains("99 % of the program's memory is on NUMA node 0"),
        "{}",
        f.sentence
    );
    assert!(f.sentence.ends_with("other nodes: worker-1 (102) on CPU 1."), "{}", f.sentence);
    assert_eq!(f.threads, [102]);
    // Spread as the threads are, or where they are.
    e.nodes = vec![node(0, "0", 50_000), node(1, "1", 51_000)];
    assert!(kinds(&e).is_empty());
    e.nodes = vec![node(0, "0-1", 100_000), node(1, "2-3", 1_000)];
    assert!(kinds(&e).is_empty());
    // So little that it fits into caches.
    e.nodes = vec![node(0, "0", 2_000), node(1, "1", 10)];
    assert!(kinds(&e).is_empty());
}

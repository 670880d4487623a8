//! What the report says where nothing was moved, and of work that is or is not unequal.

use super::*;

/// Where nothing was moved, the report says why, and what may help.
#[test]
fn what_to_try_where_nothing_was_moved() {
    let of = |threads: Vec<ThreadSummary>, f: fn(&mut RunReport)| {
        let mut r = report(threads);
        f(&mut r);
        r.judged().verdict
    };
    let four = || (1..=4).map(|i| thread(i, 5.0, 5.0, 0.0)).collect::<Vec<_>>();
    let spins = of(four(), |_| ());
    assert!(!spins.contains("possible"), "{spins}");
    assert!(
        spins.contains("none ever slept: if they spin") && spins.contains("2 threads take less"),
        "{spins}"
    );
    let known = of(four(), |r| r.summary.threads.iter_mut().for_each(|t| t.spun_s = Some(4.5)));
    assert!(
        known.contains("for 45 % of their time")
            && known.contains("about 1.30 s instead of 10.30 s"),
        "{known}"
    );
    let sees = |phases| {
        let mut r = RunReport { probe: Some(probe(phases)), ..report(four()) };
        r.summary.threads.iter_mut().for_each(|t| t.spun_s = Some(0.0));
        r.judged().verdict
    };
    // They wait elsewhere than where the probe would see it.
    assert!(sees(3).contains("none ever slept: if they spin"), "{}", sees(3));
    // Where they hand over their CPU it costs them nothing.
    let handed = |r: &mut RunReport| {
        let place = Some(String::from("wait (a.c:7)"));
        let (cpus_without, cpus_with) = (Some(1.7), Some(1.8));
        r.handed_over = Some(HandedOver {
            asked: 70_000,
            given_s: 4.2,
            slept_s: 0.31,
            place,
            cpus_without,
            cpus_with,
        });
    };
    assert!(!of(four(), handed).contains("none ever slept"));
    let mut r = report(four());
    handed(&mut r);
    let line = "hand-over   threads that spun in wait (a.c:7) let others run for 4.20 s, and slept for 0.31 s, all together\n";
    let text = r.judged().text(false);
    let cost =
        "not in it: 0.07 to 0.21 s in which waiting threads were asked 70000 times to hand over\n";
    assert!(text.contains(line) && text.contains(cost), "{text}");
    assert!(of(four(), handed).contains("no clear difference: threads computed on 1.80 CPUs"));
    // Until that was compared.
    let mut unmeasured = report(four());
    handed(&mut unmeasured);
    let of_it = unmeasured.handed_over.as_mut().unwrap();
    (of_it.cpus_without, of_it.cpus_with) = (None, None);
    let said = unmeasured.judged().verdict;
    assert!(said.starts_with("Threads that spin handed over their CPUs; evenly compare"), "{said}");
    let mut lost = report(four());
    handed(&mut lost);
    lost.handed_over.as_mut().unwrap().cpus_with = Some(0.9);
    let lost = lost.judged().verdict;
    assert!(lost.contains("lost, and ended: threads computed on 0.90 CPUs"), "{lost}");
    // Nor where CPUs change hands often.
    let beaten = |r: &mut RunReport| {
        r.metronome = Some(Metronome {
            seconds: 9.2,
            interval_us: 200,
            cpu_s: 0.41,
            place: None,
            cpus_without: 0.044,
            cpus_with: 1.59,
        });
    };
    assert!(!of(four(), beaten).contains("none ever slept"));
    let mut r = report(four());
    beaten(&mut r);
    let line = "metronome   threads spun, so CPUs changed hands every 0.2 ms for 9.20 s, which took 0.41 s of CPU time\n";
    let r = r.judged();
    assert!(r.text(false).contains(line), "{}", r.text(false));
    let paid = "Handing over CPUs of threads that spin paid: threads computed on 1.59 CPUs on average, and on 0.04 without. ";
    assert!(r.verdict.starts_with(paid), "{}", r.verdict);
    for computes in [sees(10_300), of((1..=4).map(|i| thread(i, 4.5, 4.5, 1.0)).collect(), |_| ())]
    {
        assert!(computes.starts_with("No benefit possible: 4 threads on 2 CPUs"), "{computes}");
    }
    let three = || (1..=3).map(|i| thread(i, 6.3, 3.2, 0.5)).collect::<Vec<_>>();
    let phase = of(three(), |_| ());
    assert!(
        phase.contains("no thread fell behind in a period; if they meet at barriers of OpenMP"),
        "{phase}"
    );
    assert!(phase.ends_with("try --policy phase."), "{phase}");
    let met = |phases| RunReport { probe: Some(probe(phases)), ..report(three()) };
    let often = met(10_300).judged().verdict;
    assert!(often.ends_with("they meet at a barrier every 1.0 ms: try --policy phase."), "{often}");
    let rarely = met(10).judged().verdict;
    assert!(rarely.ends_with("evenly doctor says what they wait for."), "{rarely}");
    let by_phase = |r: RunReport| {
        let mut r = RunReport { policy: policy("phase"), ..r };
        // What acts within phases has no points of its own where it does nothing.
        r.summary.domains[0].points = 0;
        r.judged()
    };
    let already = by_phase(met(10_300));
    assert!(
        already.verdict.ends_with("a move have gained more than it costs."),
        "{}",
        already.verdict
    );
    assert!(!already.text(true).contains("per balancing point"), "{}", already.text(true));
    let own = by_phase(met(0)).verdict;
    assert!(
        own.ends_with(
            "at which threads spin cannot be seen; evenly doctor says what they wait for."
        ),
        "{own}"
    );
    // The doctor, too, would see none of them.
    let blind = by_phase(report(three())).verdict;
    assert!(blind.ends_with("as the program ran without the probe."), "{blind}");
    // It has moved threads once a period.
    let moved = RunReport { policy: policy("phase"), ..three_on_two() }.judged().verdict;
    assert_eq!(moved, three_on_two().judged().verdict);
    let mut sleepless = RunReport { policy: policy("phase"), ..three_on_two() };
    sleepless.summary.domains[0].verdict = report(Vec::new()).summary.domains[0].verdict;
    let sleepless = sleepless.judged().verdict;
    assert!(
        sleepless.ends_with("2 threads take less time than 3, otherwise about as long."),
        "{sleepless}"
    );
    let spins = by_phase(report(four())).verdict;
    assert!(
        spins.contains("barriers cannot be seen") && spins.contains("2 threads take less time"),
        "{spins}"
    );
}

/// Would catch: a policy that found nothing to move said to have stood down from it.
#[test]
fn what_moved_nothing_has_not_stood_down() {
    let mut r = RunReport { policy: policy("phase"), ..three_on_two() };
    r.summary.domains[0].migrations = 0;
    r.summary.domains[0].stood_down = true;
    r.summary.threads.iter_mut().for_each(|t| t.own_mask = true);
    let bound = r.judged().verdict;
    assert!(bound.contains("3 of 3 threads have affinity masks of their own"), "{bound}");
}

/// CPU time that differs is not said to be unequal work where it is not known what of it was work, nor where it
/// hardly differs.
#[test]
fn equal_work_is_not_called_unequal() {
    let with = |ran: [f64; 3], spun: Option<f64>| {
        let mut r = report((1..).zip(ran).map(|(i, ran)| thread(i, ran, 1.0, 9.0 - ran)).collect());
        r.summary.threads.iter_mut().for_each(|t| t.spun_s = spun);
        r.judged().verdict
    };
    let unknown = with([6.0, 5.0, 5.0], None);
    assert!(unknown.contains("or spin, which --probe on would show"), "{unknown}");
    let about = with([5.6, 5.0, 5.0], Some(0.0));
    assert!(about.contains("no sign of unequal work"), "{about}");
    let unequal = with([8.0, 4.0, 4.0], Some(0.0));
    assert!(
        unequal.contains("computed for unequal times") && unequal.contains("unequal work"),
        "{unequal}"
    );
}

/// Would catch: threads of equal work that others keep from the CPUs, and that are said to have unequal work.
#[test]
fn who_is_starved_has_no_unequal_work() {
    let with = |wait: f64| {
        let threads = [0.2, 0.15, 0.1].into_iter().enumerate();
        let all = threads.map(|(i, ran)| thread(i as i32 + 1, ran, wait, 10.0 - wait - ran));
        let mut r = report(all.collect());
        r.summary.domains[0].wait_share = wait / 10.0;
        r.judged().verdict
    };
    let starved = with(9.5);
    assert!(
        starved.contains("as other programs used these") && !starved.contains("unequal"),
        "{starved}"
    );
    assert!(with(3.0).contains("unequal work"), "{}", with(3.0));
}

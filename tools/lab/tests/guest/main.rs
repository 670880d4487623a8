//! evenly, and the lab itself, on machines with more CPUs than one has at hand.
//!
//! These are tests of right and wrong, not of speed: which CPUs the threads may use and use, that
//! all of them take turns, that changes of the machine are followed, and that every mask is in the
//! end what it was. Nothing here depends on how fast the guest is: what has to have happened is
//! waited for, and shares of CPU time are compared among threads of the same run.
//!
//! All tests of a kind of machine share a guest, one after the other, which is why they have a harness of
//! their own. They run with `--include-ignored` only (`./dev test --all`). `EVENLY_BIN_DIR` names a
//! directory that holds an optimized build of evenly; without it one is built.

mod builds;
mod changes;
mod doctor;
mod domains;
mod guests;
mod machine;
mod memory;
mod run;
mod shared;

use std::process::ExitCode;

use evenly_lab::Lab;
use guests::{GuestKind, Outcome};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, trials());
    if let Err(error) = guests::end() {
        eprintln!("the last guest did not end well: {error}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// A test by the path of its function.
macro_rules! in_guest {
    ($machine:ident: $($test:path),* $(,)?) => {
        vec![$(in_guest(GuestKind::$machine, stringify!($test), $test)),*]
    };
}

fn in_guest(machine: GuestKind, name: &str, test: impl FnOnce(&mut Lab) + Send + 'static) -> Trial {
    Trial::ignorable_test(name.replace(' ', ""), move || guests::with(machine, test))
        .with_ignored_flag(true)
}

fn on_host(name: &str, test: fn() -> Outcome) -> Trial {
    Trial::ignorable_test(name, test).with_ignored_flag(true)
}

/// Those of a machine beside each other, so that it is booted once.
fn trials() -> Vec<Trial> {
    let mut trials = vec![
        on_host("machine::caps_hold_a_busy_thread", machine::caps_hold_a_busy_thread),
        on_host("machine::a_killed_lab_leaves_nothing", machine::a_killed_lab_leaves_nothing),
    ];
    trials.extend(in_guest![Eight:
        machine::it_is_the_machine_that_was_asked_for,
        machine::cpusets_and_partitions_work,
        machine::quotas_throttle,
        machine::the_labs_own_caps_hold_in_control_groups_of_version_two,
        machine::exit_statuses_and_signals_pass,
        machine::output_passes_byte_for_byte,
        machine::what_hangs_is_ended_and_nothing_of_it_is_left,
        machine::files_are_pushed,
        machine::equal_speed_is_checked_on_every_cpu,
        machine::a_cpu_goes_offline_and_comes_back,
        domains::domains_are_nodes,
        domains::hybrid_leaves_eight_threads_in_their_nodes,
        domains::hybrid_lets_ten_threads_take_turns_within_nodes,
        domains::domains_are_caches,
        domains::one_domain_on_request,
        domains::pinned_threads_do_not_take_turns,
        domains::juggle_lets_eight_threads_take_turns_on_seven_cpus,
        domains::hybrid_lets_eight_threads_take_turns_on_seven_cpus,
        domains::a_program_confined_by_its_mask,
        domains::a_program_from_start_to_end,
        changes::a_cpu_goes_and_comes_back,
        changes::a_cpu_is_offline_at_the_start,
        changes::a_mask_holds_a_cpu_that_is_offline,
        changes::cpuset_and_quota_change,
        changes::the_guardian_restores,
    ]);
    trials.push(on_host(
        "machine::a_guest_that_ends_leaves_no_groups",
        machine::a_guest_that_ends_leaves_no_groups,
    ));
    trials.extend(in_guest![Twelve:
        domains::juggle_lets_sixteen_threads_take_turns_on_twelve_cpus,
        domains::hybrid_lets_sixteen_threads_take_turns_in_two_nodes,
    ]);
    trials.extend(in_guest![Two:
        memory::it_follows_ranks_to_the_node_of_their_cpu,
        memory::every_pair_of_nodes_is_measured,
        memory::it_stays_where_nodes_are_equally_far,
    ]);
    trials.extend(
        shared::tests()
            .into_iter()
            .map(|(name, test)| in_guest(GuestKind::EightWithTests, &name, test)),
    );
    trials.extend(
        doctor::patients()
            .into_iter()
            .map(|p| in_guest(GuestKind::Four, p.name, move |lab| p.see(lab))),
    );
    trials
}

//! Sets a run up: divides the CPUs into domains, chooses where times and progress come from, and makes the
//! balancers and the coordinator.
//!
//! Invariant: nothing of the program is changed here, so a run that cannot be set up leaves nothing to undo.

use super::coordinator::{Coordinator, GUARDIAN_LOOKS, Home, QUOTA_LOOKS, numbering};
use super::domain::{Domain, UNBOUND_LOOKS};
use super::mailbox::Together;
use super::report::Facts;
use super::schedule::{Allowance, JOBS, Job, paid_to_begin};
use super::sources::{has_schedstat, open_source};
use super::{Live, LiveError, ProgressKind};
use crate::agents::{Runner, runners, threads};
use crate::clock::{now, process_cpu_time, thread_cpu_time};
use crate::counters::{Counted, Counters, several_kinds_of_cpus};
use crate::limits::{DomainKind, slice};
use crate::machine::LinuxMachine;
use crate::proc::Proc;
use crate::scan::Scanner;
use crate::share::Shares;
use crate::threads::ThreadReader;
use crate::tuning::Tuning;
use evenly_engine::{
    BalancerOptions, DomainSpread, GuardOptions, Observer, Period, PeriodControl, PeriodOptions,
    Tracker, TrackerOptions,
};
use evenly_model::hpc::Parts;
use evenly_model::{CpuSet, DomainId, Environment, Nanos};
use evenly_phase::{HELPERS_SHARE, Openings};
use evenly_policies::{Setting, balancer};
use std::sync::{Arc, Mutex};

/// The part of the overhead budget that scanning may use.
const SCAN_SHARE: f64 = 0.4;
/// How long the threads must stand still before balancing begins.
const SETTLE: Nanos = Nanos::from_millis(60);

/// A run that has not begun yet.
pub(super) struct SetUp {
    pub(super) domains: Vec<Domain>,
    /// What runs the agents of the domains, where there are such.
    pub(super) runners: Vec<Runner>,
    pub(super) coordinator: Coordinator,
    pub(super) facts: Facts,
}

impl Live {
    /// The domains, as sets of CPUs, what the program may use now, and CPUs of no domain: those that
    /// may come online, but are not there yet, so that it is unknown where they will be.
    fn domains(&self) -> Result<(Vec<CpuSet>, CpuSet, CpuSet), LiveError> {
        let online = self.limits.online()?;
        let allowed = self.limits.cpuset(self.root).unwrap_or_else(|_| online.clone());
        let cpus = match &self.options.cpus {
            Some(asked) => asked.clone(),
            None => online,
        };
        let usable = cpus.and(&allowed);
        if usable.is_empty() {
            return Err(LiveError::NoCpus { asked: cpus, usable: allowed });
        }
        // Domains are made of all CPUs that may ever be used, so that a CPU or cpuset that comes
        // back finds its domain.
        let possible = match &self.options.cpus {
            Some(asked) => asked.clone(),
            None => self.limits.possible()?,
        };
        let kind = self.domain_kind();
        let mut domains = self.limits.domains(kind, &possible)?;
        domains.retain(|d| !d.is_empty());
        if domains.len() <= 1 {
            domains = vec![possible.clone()];
        }
        let homeless = domains.iter().fold(possible, |left, d| left.minus(d));
        Ok((domains, usable, homeless))
    }

    fn domain_kind(&self) -> DomainKind {
        self.options.domain.unwrap_or(DomainKind::Numa)
    }

    /// The barriers of the program, where the policy asks for them.
    fn openings(&self) -> Option<Arc<dyn Openings>> {
        self.options.openings.clone().filter(|_| self.options.policy.moves_within_phases())
    }

    /// Whether the CPUs are of unequal speed, as far as the system shows it.
    fn cpus_differ(&self, cpus: &CpuSet) -> bool {
        let mut capacities = cpus.iter().map(|c| self.limits.capacity(c));
        let first = capacities.next();
        capacities.any(|c| Some(c) != first) || several_kinds_of_cpus()
    }

    /// Counters for one domain, if progress is counted, with at most so many descriptors; and a note
    /// about it. Which it is may depend on whether CPUs differ in speed.
    fn counters(
        &self,
        cpus_differ: bool,
        most: usize,
    ) -> Result<(Option<Counters>, Option<String>), LiveError> {
        const COUNTS: &str = "progress is counted in retired instructions";
        let counters = || Counters::new(Counted::Instructions, most);
        match self.options.progress {
            ProgressKind::CpuTime => Ok((None, None)),
            // Balancers of CPUs read threads one at a time, where they search.
            _ if self.options.policy.is_on_each_cpu() => {
                let name = self.options.policy.name;
                let note = (self.options.progress == ProgressKind::Instructions)
                    .then(|| format!("{name} takes CPU time for progress, not instructions"));
                Ok((None, note))
            }
            ProgressKind::Instructions => Ok((Some(counters()?), Some(COUNTS.to_owned()))),
            ProgressKind::Auto if !cpus_differ => Ok((None, None)),
            ProgressKind::Auto => Ok(match counters() {
                Ok(counters) => (Some(counters), Some(COUNTS.to_owned())),
                Err(why) => {
                    let note = format!(
                        "the CPUs differ in speed, and progress is CPU time by the capacity that the \
                         kernel reports, because instructions are not counted: {why}"
                    );
                    (None, Some(note))
                }
            }),
        }
    }

    /// Makes all parts of a run. `observers` makes the observers of one domain.
    pub(super) fn set_up(
        &mut self,
        observers: &mut dyn FnMut(DomainId) -> Vec<Box<dyn Observer>>,
    ) -> Result<SetUp, LiveError> {
        if !has_schedstat(&Proc::default()) {
            return Err(LiveError::NoSchedstat);
        }
        let (mut sets, usable, mut homeless) = self.domains()?;
        let kind = self.domain_kind();
        let decentral = self.options.policy.is_on_each_cpu();
        // What are domains elsewhere are the nodes of one.
        let nodes = if decentral { sets.clone() } else { Vec::new() };
        if decentral || self.options.policy.places_load() {
            // Those that are not there yet are in it, of no node.
            sets = vec![sets.iter().fold(std::mem::take(&mut homeless), |all, d| all.or(d))];
        }
        let mut notes = Vec::new();
        // A team meets across domains, and no domain alone can plan for it.
        let openings = self.openings().filter(|_| sets.len() == 1);
        if self.openings().is_some() && openings.is_none() {
            notes.push(format!(
                "{}: as hybrid, because the threads are balanced in {} domains; moves within phases need one \
                 (--domain machine)",
                self.options.policy.name,
                sets.len()
            ));
        }
        let threads = if decentral || openings.is_some() {
            1 + threads(usable.len(), openings.is_some())
        } else {
            sets.len()
        };
        let began = now();
        // Half of the descriptors for the coordinator, half for the balancers.
        let files_each = self.most_files / 2 / threads.max(1);
        // A quota might count beats.
        let may_beat =
            self.options.beats && self.limits.whole_cpus(self.root, &usable) >= usable.len() as f64;
        let cpus_differ = self.options.progress == ProgressKind::Auto && self.cpus_differ(&usable);
        let mut all_runners = Vec::new();
        let mut source_name = None;
        let together = Arc::new(Together::default());
        let mut domains = Vec::new();
        let alone = sets.len() == 1;
        for (i, cpus) in sets.into_iter().enumerate() {
            let id = DomainId(i as u32);
            // Of these a third is for counters: a thread has two files and one or two counters.
            let (counters, note) = self.counters(cpus_differ, files_each / 3)?;
            let files = files_each - if counters.is_some() { files_each / 3 } else { 0 };
            let source = open_source(self.options.source)?;
            source_name = Some(source.name());
            let threads = ThreadReader::new(source, files);
            let machine =
                LinuxMachine::new(self.root, self.masks.clone(), threads)
                    .counting(counters)
                    .moving_often(openings.is_some())
                    .beating(may_beat)
                    .with_wait_reports(self.options.wait_reports.as_ref().and_then(|make| make()))
                    .counted_by(self.options.counted_by.take())
                    .sharing(self.options.policy.may_give_weights().then(|| {
                        Shares::new(self.options.shares, self.journal.clone(), self.root)
                    }));
            if i == 0 {
                notes.extend(note);
            }
            let machine = Arc::new(Mutex::new(machine));
            let s = slice();
            let seed = self.options.seed.wrapping_add(i as u64);
            let budget = self.options.budget * (1.0 - SCAN_SHARE);
            let of_helpers = if openings.is_some() { budget * HELPERS_SHARE } else { 0.0 };
            let period = PeriodControl::new(PeriodOptions {
                period: self.options.period,
                budget: budget - of_helpers,
                slice: s.tick.max(s.slice),
                seed,
            });
            let options = BalancerOptions {
                domain: id,
                cpus,
                wanted: self.options.cpus.clone(),
                policy: self.options.policy,
                environment: Environment {
                    knowledge: self.options.knowledge.clone().filter(|_| !decentral),
                    levels: self.options.levels.clone(),
                    parts: Parts::Time,
                    tuning: self.options.parameters.clone(),
                },
                guard: GuardOptions { arms: alone, ..self.options.guard },
            };
            let setting = Setting {
                usable: &usable,
                nodes: &nodes,
                period: period.current(),
                jitter: true,
                seed,
                budget: self.options.budget,
                of_agents: of_helpers,
                openings: openings.clone(),
                now: began,
            };
            let (balancer, agents) = balancer(options, &setting);
            let eyes = || {
                let source = open_source(self.options.source)?;
                Ok::<_, LiveError>(ThreadReader::new(source, files_each))
            };
            all_runners.extend(runners(agents, usable.len(), &machine, eyes)?);
            domains.push(Domain {
                together: together.clone(),
                balancer,
                machine,
                called_at: began,
                measured: None,
                paid: Nanos::ZERO,
                period,
                observers: observers(id),
                mailbox: Arc::default(),
                journal: self.journal.clone(),
                due: began,
                generation: 0,
                may_rest: self.options.period == Period::Auto
                    && !self.options.policy.only_watches(),
                mapped: self.options.mapping.is_some().then(Vec::new),
                whole: self.options.whole.clone(),
                next_unbound: began + UNBOUND_LOOKS,
                unbound_noted: false,
                tuning: self.options.tuning.as_ref().map(Tuning::reader),
                notes_tuning: i == 0,
            });
        }
        let coordinator = Coordinator {
            together,
            tracker: Tracker::new(TrackerOptions {
                expected: self.options.expected,
                settle: SETTLE,
                eligible: self.options.eligible.take(),
            }),
            scanner: Scanner::new(Proc::default(), self.root, self.most_files / 2),
            homes: domains
                .iter()
                .map(|d| Home { cpus: d.balancer.cpus().clone(), mailbox: d.mailbox.clone() })
                .collect(),
            // All of it until there is something to balance.
            allowance: Allowance::new(self.options.budget, began),
            others: paid_to_begin(process_cpu_time() - thread_cpu_time()),
            scan_share: self.options.budget * SCAN_SHARE,
            jobs: JOBS.map(|kind| Job::new(kind, began)),
            there: (0, 0),
            changed_at: Nanos::ZERO,
            found_processes: false,
            started_at: None,
            members: Vec::new(),
            replaced: Vec::new(),
            masks: Vec::new(),
            // What is only watched is not moved.
            spread: (!self.options.policy.only_watches())
                .then(|| DomainSpread::new(self.options.policy.is_reference())),
            vanished: false,
            homeless,
            kind,
            most_threads: 0,
            most_processes: 0,
            realtime_threads: 0,
            numbering: numbering(
                self.options.numbered_by,
                self.options.mapping.as_ref(),
                self.options.knowledge.as_deref(),
            ),
            mapping: self.options.mapping.take(),
            limits: self.limits.clone(),
            root: self.root,
            quota: self.limits.quota(self.root).unwrap_or_default(),
            next_quota: began + QUOTA_LOOKS,
            guardian: self.guardian.clone(),
            next_guardian: began + GUARDIAN_LOOKS,
            unguarded: None,
            journal_noted: false,
            notes,
        };
        let period = domains.first().map(|d| d.period.wanted()).unwrap_or_default();
        let facts = Facts { usable, source: source_name, period };
        Ok(SetUp { domains, runners: all_runners, coordinator, facts })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cpus, scene};
    use super::*;

    fn sets(set_up: &SetUp) -> Vec<CpuSet> {
        set_up.domains.iter().map(|d| d.balancer.cpus().clone()).collect()
    }

    /// Would catch: a run that begins on no CPU, and an error that does not name what was asked for.
    #[test]
    fn cpus_that_cannot_be_used_are_an_error_that_names_them() {
        let Some(mut s) = scene() else { return };
        let asked = cpus(&(s.whole.iter().map(|c| c.0).max().unwrap() + 1).to_string());
        s.live.options.cpus = Some(asked.clone());
        let Err(error) = s.live.set_up(&mut |_| Vec::new()) else { panic!("{asked}") };
        let text = error.to_string();
        assert!(matches!(error, LiveError::NoCpus { .. }), "{text}");
        assert!(text.contains(&format!("--cpus {asked}:")), "{text}");
        assert!(text.contains(&s.both().to_string()), "{text}");
    }

    /// Would catch: one domain over several nodes, and domains with CPUs that were not asked for.
    #[test]
    fn a_node_is_a_domain_as_far_as_its_cpus_were_asked_for() {
        let Some(mut s) = scene() else { return };
        let (a, b) = (CpuSet::single(s.a), CpuSet::single(s.b));
        assert_eq!(sets(&s.set_up()), [a.clone(), b]);
        s.live.options.cpus = Some(a.clone());
        assert_eq!(sets(&s.set_up()), [a]);
    }

    /// Would catch: a policy that places threads by load, and sees only a part of the machine.
    #[test]
    fn a_policy_that_places_by_load_has_all_cpus_in_one_domain() {
        let Some(mut s) = scene() else { return };
        s.live.options.policy = evenly_policies::by_name("nuco").unwrap();
        let set_up = s.set_up();
        assert_eq!(sets(&set_up), [s.both()]);
        assert!(set_up.coordinator.homeless.is_empty());
    }

    /// Would catch: counters that were not asked for, and a choice that is passed over in silence.
    #[test]
    fn progress_is_cpu_time_unless_cpus_differ_or_it_is_asked_for() {
        let Some(mut s) = scene() else { return };
        let chosen = |s: &super::super::tests::Scene, differ| {
            let (counters, note) = s.live.counters(differ, 64).unwrap();
            (counters.is_some(), note)
        };
        assert_eq!(chosen(&s, true), (false, None));
        s.live.options.progress = ProgressKind::Auto;
        assert_eq!(chosen(&s, false), (false, None));
        // Either it is counted, or the note gives the reason.
        let (counted, note) = chosen(&s, true);
        let note = note.unwrap();
        assert_eq!(counted, !note.contains("instructions are not counted"), "{note}");
        s.live.options.progress = ProgressKind::Instructions;
        let decentral = evenly_policies::POLICIES.iter().find(|p| p.is_on_each_cpu());
        s.live.options.policy = decentral.unwrap();
        let (counted, note) = chosen(&s, true);
        assert!(!counted && note.unwrap().contains("takes CPU time"));
    }

    /// Would catch: a machine whose cores differ and that is taken for one whose cores are alike.
    #[test]
    fn capacities_show_whether_cpus_differ() {
        let Some(s) = scene() else { return };
        let of = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        s.write(&of(s.a.0), "1024");
        s.write(&of(s.b.0), "512");
        assert!(s.live.cpus_differ(&s.both()));
        s.write(&of(s.b.0), "1024");
        assert_eq!(s.live.cpus_differ(&s.both()), several_kinds_of_cpus());
    }
}

//! Faster or slower CPUs: the limits of their frequency and their preference of performance or energy
//! (cpufreq).
//!
//! Invariant: a setting is in the journal before it is written (promise P4), and is written back only
//! where it has a value of ours still. Settings belong to the machine, not to a program: all that
//! runs on the CPU has them. CPUs that change frequency together have one setting, which is
//! journalled for the first of them ([`CpuSettings::first_of`]): for another one ours would be taken for
//! the original.
//!
//! What this acts upon is described in the kernel's Documentation/admin-guide/pm (cpufreq.rst,
//! intel_pstate.rst, amd-pstate.rst).

use super::Missing;
use super::weights::{Bounds, ShareError, ShareMechanism, Steps, Target};
use crate::journal::{Journal, JournalView, PREFERENCES, SettingRecord, Slot, State};
use crate::proc::read_all;
use crate::real::Real;
use evenly_model::CpuId;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;

pub use crate::journal::Setting;

#[derive(Debug)]
struct Managed {
    slot: Slot,
    original: u64,
    set: u64,
    left_alone: bool,
}

/// Speeds of CPUs by one of their settings.
#[derive(Debug)]
pub struct CpuSettings {
    setting: Setting,
    journal: Arc<Journal>,
    real: Real,
    managed: HashMap<CpuId, Managed>,
}

impl CpuSettings {
    /// A mechanism that writes to this journal, below the root of a file system.
    #[must_use]
    pub fn new(setting: Setting, journal: Arc<Journal>, real: Real) -> Self {
        Self { setting, journal, real, managed: HashMap::new() }
    }

    /// The first of the CPUs that have this setting together with that one.
    #[must_use]
    pub fn first_of(&self, cpu: CpuId) -> CpuId {
        let path = self.setting.path(self.real.root(), cpu).with_file_name("affected_cpus");
        let text = read_all(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all = text.split_ascii_whitespace().filter_map(|c| c.parse().ok());
        // Those that are offline are not among them, and it is always one itself.
        CpuId(all.min().unwrap_or(cpu.0).min(cpu.0))
    }

    fn cpu(&self, target: Target) -> Result<CpuId, ShareError> {
        match target {
            Target::Cpu(cpu) => Ok(self.first_of(cpu)),
            _ => Err(ShareError::Unfit { mechanism: self.name(), target: target.to_string() }),
        }
    }

    fn read(&self, cpu: CpuId) -> Result<u64, ShareError> {
        let path = self.setting.path(self.real.root(), cpu);
        let text = read_all(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => ShareError::Gone,
            _ => ShareError::Refused(format!("{}: {e}", path.display())),
        })?;
        self.setting.parse(&text).ok_or_else(|| {
            ShareError::Refused(format!(
                "{} holds '{}', which is no value that is known",
                path.display(),
                String::from_utf8_lossy(&text[..text.len().min(40)]).trim()
            ))
        })
    }

    /// Another evenly of this user that has changed the setting: what it set would be taken for what was
    /// there before. One that is dead has a guardian, or evenly restore, that is about to undo it.
    fn taken(&self, cpu: CpuId) -> Option<evenly_model::Pid> {
        let own = self.journal.path();
        let others = self.journal.dir().journals().ok()?.into_iter().filter(|path| *path != own);
        others
            .filter_map(|path| JournalView::open(&path).ok())
            .filter(|view| !view.header.clean && view.header.is_of_this_boot())
            .find(|view| {
                let same = |s: &SettingRecord| {
                    (s.setting, s.cpu, s.state) == (self.setting, cpu, State::Live)
                };
                view.settings.iter().any(same)
            })
            .map(|view| view.header.writer.pid)
    }

    fn number(&self, cpu: CpuId, file: &str) -> Option<f64> {
        let path = self.setting.path(self.real.root(), cpu).with_file_name(file);
        std::str::from_utf8(&read_all(&path).ok()?).ok()?.trim().parse().ok()
    }

    fn change(&mut self, cpu: CpuId, to: u64) -> Result<(), ShareError> {
        let found = self.read(cpu)?;
        if !self.managed.contains_key(&cpu) {
            if found == to {
                return Ok(());
            }
            if let Some(other) = self.taken(cpu) {
                return Err(ShareError::Refused(format!(
                    "{} of CPU {cpu} is set by another evenly (pid {other}); end that one first",
                    self.setting.file()
                )));
            }
            let slot = self
                .journal
                .register_setting(self.setting, cpu, found)
                .map_err(|e| ShareError::Refused(e.to_string()))?;
            let m = Managed { slot, original: found, set: found, left_alone: false };
            self.managed.insert(cpu, m);
        }
        let (setting, root) = (self.setting, self.real.root().to_owned());
        let m = self.managed.get_mut(&cpu).ok_or(ShareError::Gone)?;
        if m.left_alone || (found != m.set && found != m.original) {
            m.left_alone = true;
            self.journal.leave_alone(&mut m.slot);
            let found = setting.text(found);
            return Err(ShareError::Foreign { what: setting.file(), found });
        }
        if found != to {
            self.journal.about_to_write(&mut m.slot, to);
            let path = setting.path(&root, cpu);
            if let Err(e) = fs::write(&path, setting.text(to)) {
                self.journal.not_set(&mut m.slot);
                return Err(ShareError::Refused(format!(
                    "{}: cannot write {}: {e}",
                    path.display(),
                    setting.text(to)
                )));
            }
            m.set = to;
        }
        Ok(())
    }
}

impl ShareMechanism for CpuSettings {
    fn name(&self) -> &'static str {
        match self.setting {
            Setting::HighestFrequency => "frequency",
            Setting::EnergyPreference => "energy-preference",
        }
    }

    fn steps(&self) -> Steps {
        match self.setting {
            Setting::HighestFrequency => Steps::Whole(1.0, 1e9),
            // Which speed a preference gives is the hardware's secret: only their order is known.
            Setting::EnergyPreference => Steps::Table(vec![1.0, 2.0, 3.0, 4.0]),
        }
    }

    /// Frequencies: from the least of the hardware to the limit that was found, for above that is
    /// forbidden.
    fn bounds(&mut self, target: Target) -> Result<Bounds, ShareError> {
        let cpu = self.cpu(target)?;
        let found = self.read(cpu)?;
        let original = self.managed.get(&cpu).map_or(found, |m| m.original);
        match self.setting {
            Setting::HighestFrequency => {
                let highest = original as f64;
                let least = self
                    .number(cpu, "scaling_min_freq")
                    .or_else(|| self.number(cpu, "cpuinfo_min_freq"))
                    .unwrap_or(highest);
                Ok(Bounds { original: highest, least: least.min(highest), most: highest })
            }
            Setting::EnergyPreference if original < 4 => {
                Ok(Bounds { original: (original + 1) as f64, least: 1.0, most: 4.0 })
            }
            Setting::EnergyPreference => Err(ShareError::Refused(format!(
                "the preference of CPU {cpu} is '{}', which has no place among {}",
                self.setting.text(original),
                PREFERENCES[..4].join(", ")
            ))),
        }
    }

    fn give(&mut self, target: Target, units: f64) -> Result<f64, ShareError> {
        let cpu = self.cpu(target)?;
        let to = match self.setting {
            Setting::HighestFrequency => units.round().max(1.0) as u64,
            Setting::EnergyPreference => units.round().clamp(1.0, 4.0) as u64 - 1,
        };
        self.change(cpu, to)?;
        // The kernel takes the nearest that the hardware has.
        let found = self.read(cpu)?;
        if let Some(m) = self.managed.get_mut(&cpu)
            && found != m.set
        {
            self.journal.about_to_write(&mut m.slot, found);
            m.set = found;
        }
        Ok(match self.setting {
            Setting::HighestFrequency => found as f64,
            Setting::EnergyPreference => (found + 1) as f64,
        })
    }

    fn restore(&mut self, target: Target) -> Result<(), ShareError> {
        let cpu = self.cpu(target)?;
        let Some((original, left_alone)) =
            self.managed.get(&cpu).map(|m| (m.original, m.left_alone))
        else {
            return Ok(());
        };
        if !left_alone {
            match self.change(cpu, original) {
                Ok(()) | Err(ShareError::Gone | ShareError::Foreign { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        if let Some(m) = self.managed.remove(&cpu) {
            self.journal.forget(m.slot);
        }
        Ok(())
    }
}

/// Whether any CPU has the setting, and it may be written.
///
/// # Errors
/// What is missing.
pub(crate) fn offered(real: &Real, setting: Setting) -> Result<(), Missing> {
    let dir = real.root().join("sys/devices/system/cpu");
    let cpus = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok().map(CpuId));
    let Some(path) = cpus.map(|c| setting.path(real.root(), c)).find(|p| p.exists()) else {
        return Err(Missing::of(
            &format!("no CPU has cpufreq/{} in {}", setting.file(), dir.display()),
            Some(String::from(
                "none in a virtual machine; else a cpufreq driver of the kernel (and EPP of the hardware)",
            )),
        ));
    };
    rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).map_err(|e| {
        Missing::of(
            &format!("{} may not be written: {}", path.display(), super::words(e)),
            Some(String::from("run as root")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::StateDir;
    use crate::proc::Proc;
    use crate::share_undo::{self, ShareReport};
    use std::path::PathBuf;

    /// Two CPUs as the kernel's documentation describes them (cpufreq.rst, intel_pstate.rst): written for
    /// this test; trees of machines are in [`captured_cpus_are_slowed_down_and_set_back`].
    struct Scene {
        tmp: tempfile::TempDir,
        journal: Arc<Journal>,
    }

    impl Scene {
        fn new() -> Self {
            let tmp = tempfile::tempdir().unwrap();
            let dir = StateDir::at(&tmp.path().join("state")).unwrap();
            let scene = Self { journal: Arc::new(Journal::create(&dir, None).unwrap()), tmp };
            for cpu in [0, 1] {
                for (file, text) in [
                    ("scaling_max_freq", "3600000\n"),
                    ("scaling_min_freq", "800000\n"),
                    ("cpuinfo_min_freq", "800000\n"),
                    ("cpuinfo_max_freq", "4200000\n"),
                    ("energy_performance_preference", "balance_performance\n"),
                    (
                        "energy_performance_available_preferences",
                        "default performance balance_performance balance_power power \n",
                    ),
                ] {
                    let path = scene.path(cpu, file);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
            }
            scene
        }

        fn path(&self, cpu: u32, file: &str) -> PathBuf {
            self.tmp.path().join(format!("root/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}"))
        }

        fn real(&self) -> Real {
            Real::at(&self.tmp.path().join("root"))
        }

        fn of(&self, setting: Setting) -> CpuSettings {
            CpuSettings::new(setting, self.journal.clone(), self.real())
        }

        fn has(&self, cpu: u32, file: &str) -> String {
            fs::read_to_string(self.path(cpu, file)).unwrap().trim().to_owned()
        }

        fn undo(&self) -> ShareReport {
            let view = JournalView::open(&self.journal.path()).unwrap();
            share_undo::undo(&view, &Proc::default(), &self.real())
        }
    }

    const FIRST: Target = Target::Cpu(CpuId(0));
    const SECOND: Target = Target::Cpu(CpuId(1));

    #[test]
    fn the_slower_cpu_gets_a_lower_limit_and_the_faster_keeps_what_it_was_met_with() {
        let scene = Scene::new();
        offered(&scene.real(), Setting::HighestFrequency).unwrap();
        let mut frequency = scene.of(Setting::HighestFrequency);
        let given = frequency.set_all(&[(FIRST, 2.0), (SECOND, 1.0)]);
        let given: Vec<f64> = given.into_iter().map(Result::unwrap).collect();
        assert!(given[0] == 1.0 && (given[1] - 0.5).abs() < 0.002, "{given:?}");
        let max = "scaling_max_freq";
        assert_eq!(scene.has(0, max), "3600000");
        assert_eq!(scene.has(1, max), format!("{:.0}", given[1] * 3.6e6));
        // No lower than the hardware goes.
        let far = frequency.set_all(&[(FIRST, 9.0), (SECOND, 1.0)]).pop().unwrap().unwrap();
        assert!((far - 2.0 / 9.0).abs() < 1e-6, "{far}");
        assert_eq!(scene.has(1, max), "800000");
        frequency.restore(SECOND).unwrap();
        assert_eq!(scene.has(1, max), "3600000");
        assert_eq!(scene.undo(), ShareReport::default());
    }

    /// Of an EPYC 7451 (acpi-cpufreq), a Core i7-1165G7 (intel_pstate) and a telephone (qcom-cpufreq-hw), whose
    /// CPUs 0 to 2 and 3 to 6 have a setting together.
    #[test]
    fn captured_cpus_are_slowed_down_and_set_back() {
        for (name, cpus, found, least) in [
            ("cpufreq-epyc.txt", [0, 1], [2_300_000, 2_300_000], 1_200_000),
            ("cpufreq-pstate.txt", [0, 1], [4_700_000, 4_700_000], 400_000),
            ("cpufreq-arm.txt", [2, 4], [1_017_600, 1_056_000], 556_800),
        ] {
            let tree = super::super::tests::captured(name);
            let real = Real::at(tree.path());
            offered(&real, Setting::HighestFrequency).unwrap();
            let prefers = name == "cpufreq-pstate.txt";
            assert_eq!(offered(&real, Setting::EnergyPreference).is_ok(), prefers, "{name}");
            let state = tempfile::tempdir().unwrap();
            let dir = StateDir::at(state.path()).unwrap();
            let journal = Arc::new(Journal::create(&dir, None).unwrap());
            let has = |cpu: u32, setting: Setting| {
                let text = read_all(&setting.path(tree.path(), CpuId(cpu))).unwrap();
                setting.parse(&text).unwrap()
            };
            let frequency = |cpu| has(cpu, Setting::HighestFrequency);
            assert_eq!(cpus.map(frequency), found, "{name}");
            let of = |setting| CpuSettings::new(setting, journal.clone(), real.clone());
            let mut limits = of(Setting::HighestFrequency);
            let [slow, fast] = cpus.map(|c| Target::Cpu(CpuId(c)));
            let given = limits.set_all(&[(slow, 1.0), (fast, 1.25)]);
            assert!((given[0].clone().unwrap() - 0.8).abs() < 0.01, "{name}: {given:?}");
            assert_eq!(frequency(cpus[1]), found[1], "{name}");
            limits.set_all(&[(slow, 1.0), (fast, 1e3)]);
            assert_eq!(frequency(cpus[0]), least, "{name}");
            // Another CPU with the same setting finds the original, and not what is ours.
            let again = limits.bounds(Target::Cpu(limits.first_of(CpuId(cpus[0])))).unwrap();
            assert!((again.original - found[0] as f64).abs() < 1.0, "{name}: {again:?}");
            let mut preferences = of(Setting::EnergyPreference);
            if prefers {
                assert_eq!(preferences.set_all(&[(slow, 1.0), (fast, 2.0)]), [Ok(1.0), Ok(2.0)]);
                assert_eq!(
                    Setting::EnergyPreference.text(has(cpus[1], Setting::EnergyPreference)),
                    "performance"
                );
            } else {
                assert_eq!(preferences.set(fast, 2.0), Err(ShareError::Gone));
            }
            let view = JournalView::open(&journal.path()).unwrap();
            let undone = share_undo::undo(&view, &Proc::default(), &real);
            assert_eq!(
                (undone.settings, undone.failed.len()),
                (1 + usize::from(prefers), 0),
                "{name}"
            );
            assert_eq!(cpus.map(frequency), found, "{name}");
        }
    }

    #[test]
    fn the_journal_alone_undoes_what_is_still_ours() {
        let scene = Scene::new();
        let mut preference = scene.of(Setting::EnergyPreference);
        let file = "energy_performance_preference";
        assert!(preference.set(FIRST, 2.0).unwrap() > 1.0);
        assert_eq!(scene.has(0, file), "performance");
        preference.set(SECOND, 0.3).unwrap();
        assert_eq!(scene.has(1, file), "power");
        // Another program has changed it since.
        fs::write(scene.path(1, file), "balance_power\n").unwrap();
        let report = scene.undo();
        assert_eq!((report.settings, report.failed.len()), (1, 0));
        assert_eq!(scene.has(0, file), "balance_performance");
        assert_eq!(scene.has(1, file), "balance_power");
        let refused = preference.set(SECOND, 0.3).unwrap_err();
        assert!(matches!(refused, ShareError::Foreign { .. }), "{refused}");
    }

    #[test]
    fn what_another_evenly_has_set_is_left_to_it() {
        let scene = Scene::new();
        let mut first = scene.of(Setting::HighestFrequency);
        first.set(FIRST, 0.5).unwrap();
        // The journal of another process, as it looks.
        let other = scene.tmp.path().join("state/1-1.journal");
        fs::copy(scene.journal.path(), &other).unwrap();
        let mut second = scene.of(Setting::HighestFrequency);
        let refused = second.set(FIRST, 0.7).unwrap_err().to_string();
        assert!(refused.contains("is set by another evenly"), "{refused}");
        second.set(SECOND, 0.7).unwrap();
        fs::remove_file(other).unwrap();
        second.set(FIRST, 0.7).unwrap();
    }

    #[test]
    fn what_is_not_known_is_refused_and_a_cpu_that_is_gone_is_gone() {
        let scene = Scene::new();
        let mut preference = scene.of(Setting::EnergyPreference);
        for (text, why) in [("default", "no place among"), ("128", "no place"), ("odd", "no value")]
        {
            fs::write(scene.path(0, "energy_performance_preference"), text).unwrap();
            let refused = preference.set(FIRST, 0.5).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let mut frequency = scene.of(Setting::HighestFrequency);
        assert_eq!(frequency.set(Target::Cpu(CpuId(7)), 0.5), Err(ShareError::Gone));
        let thread = Target::Process { process: evenly_model::Pid(1), start: 1 };
        assert!(matches!(frequency.set(thread, 0.5), Err(ShareError::Unfit { .. })));
        // A CPU that has gone offline since has nothing to be written back.
        frequency.set(FIRST, 0.5).unwrap();
        fs::remove_dir_all(scene.path(0, "").parent().unwrap()).unwrap();
        assert_eq!(scene.undo(), ShareReport::default());
    }
}

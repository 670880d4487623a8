//! The report as text.

use crate::{Measured, RunReport};
use evenly_engine::{ADVANCE, DomainSummary};
use evenly_model::{Nanos, counted};
use std::fmt::Write;

/// How many domains and notes are shown one by one.
const SHOWN: usize = 3;
/// An interval whose ends are further apart than this factor says nothing, and is not shown.
const WIDE: f64 = 2.0;

impl RunReport {
    /// The report as text: one line that names what was balanced, at most a dozen lines of
    /// figures and notes, and the verdict. Ends with a newline.
    #[must_use]
    pub fn text(&self) -> String {
        let mut t = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut t);
        t
    }

    fn write(&self, t: &mut String) -> std::fmt::Result {
        if !self.started || self.failure.is_some() {
            writeln!(t, "evenly: {:.2} s, policy {}", self.seconds, self.policy.name)?;
            self.write_notes(t)?;
            return writeln!(t, "  {}", self.verdict);
        }
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        write!(t, "evenly: {}", counted(n, "thread"))?;
        if self.all_threads > n {
            write!(t, " (of {})", self.all_threads)?;
        }
        write!(t, " on {} ({})", counted(m, "CPU"), self.cpus)?;
        let domains = self.summary.domains.len();
        if domains > 1 {
            write!(t, " in {domains} domains")?;
        }
        writeln!(t, ", policy {}, {:.2} s", self.policy.name, self.seconds)?;
        if let Some(quota) = self.quota_cpus {
            writeln!(t, "  quota       {quota:.2} CPUs (cgroup)")?;
        }
        self.write_figures(t)?;
        self.write_notes(t)?;
        writeln!(t, "  {}", self.verdict)
    }

    fn write_notes(&self, t: &mut String) -> std::fmt::Result {
        for note in self.summary.notes.iter().take(SHOWN) {
            writeln!(t, "  note        {note}")?;
        }
        if self.summary.notes.len() > SHOWN {
            let more = self.summary.notes.len() - SHOWN;
            writeln!(t, "  note        and {more} more (-v shows all)")?;
        }
        Ok(())
    }

    fn write_figures(&self, t: &mut String) -> std::fmt::Result {
        if let Some(l) = self.summary.progress_level() {
            writeln!(
                t,
                "  progress    min {:.1}  mean {:.1}  max {:.1} % of a CPU per thread, imbalance \
                 {:.1} %",
                l.min * 100.0,
                l.mean * 100.0,
                l.max * 100.0,
                // Rounding can make it a hair less than 0.
                l.imbalance().abs() * 100.0
            )?;
        }
        let part = |f: fn(&DomainSummary) -> f64| {
            100.0 * self.total(f) / self.summary.domains.len().max(1) as f64
        };
        write!(
            t,
            "  waiting     {:.1} % for a CPU, {:.1} % blocked",
            part(|d| d.wait_share),
            part(|d| d.blocked_share)
        )?;
        if let Some(share) = self.spun_share() {
            write!(t, ", {:.1} % spinning", 100.0 * share)?;
        }
        writeln!(t)?;
        if let Some(efficiency) = &self.efficiency {
            writeln!(t, "  efficiency  {}", efficiency.words())?;
        }
        if let Some(probe) = &self.probe {
            writeln!(t, "  probe       {}", probe.words())?;
            if let Some(whom) = self.whom() {
                writeln!(t, "  for whom    {whom}")?;
            }
        }
        if let Some(messages) = &self.messages {
            writeln!(t, "  messages    {}", messages.words())?;
        }
        self.write_domains(t)?;
        let points: u64 = self.total(|d| d.points);
        let per_domain = points as f64 / self.summary.domains.len().max(1) as f64;
        let mean_ms = if per_domain > 0.0 { self.balanced_s * 1e3 / per_domain } else { 0.0 };
        let migrations = self.migrations();
        write!(t, "  migrations  {migrations}")?;
        if self.balanced_s > 0.0 && migrations > 0 {
            write!(t, " ({:.1} per second)", migrations as f64 / self.balanced_s)?;
        }
        let failed: u64 = self.total(|d| d.failed);
        if failed > 0 {
            write!(t, ", {failed} could not be made")?;
        }
        write!(t, "; {}", counted(points, "balancing point"))?;
        if points > 1 {
            write!(t, ", every {mean_ms:.1} ms")?;
        }
        writeln!(t)?;
        self.write_cost(t, points)?;
        if let Some(gain) = self.gain {
            writeln!(
                t,
                "  gain        at most {gain:.2} against threads left where they are (estimate)"
            )?;
        }
        let says_something = |m: &Measured| match m.ci95 {
            Some([low, high]) => low > 0.0 && high <= WIDE * low,
            None => false,
        };
        if let Some(m) = self.measured.filter(says_something) {
            write!(t, "  measured    {:.2} by pausing {}", m.ratio, counted(m.pairs, "time"))?;
            if let Some([low, high]) = m.ci95 {
                write!(t, " (95 % interval {low:.2} to {high:.2})")?;
            }
            writeln!(t)?;
        }
        Ok(())
    }

    fn write_domains(&self, t: &mut String) -> std::fmt::Result {
        let all = &self.summary.domains;
        if all.len() < 2 {
            return Ok(());
        }
        for d in all.iter().take(SHOWN) {
            let (n, id) = (d.threads as usize, d.id.to_string());
            writeln!(
                t,
                "  domain {id:<4} {} on CPUs {}, {}",
                counted(n, "thread"),
                d.cpus,
                counted(d.migrations, "migration")
            )?;
        }
        if all.len() > SHOWN {
            writeln!(t, "  domains     and {} more (--json has all)", all.len() - SHOWN)?;
        }
        Ok(())
    }

    fn write_cost(&self, t: &mut String, points: u64) -> std::fmt::Result {
        let cost = Nanos::from_secs_f64(self.total(|d| d.cpu_s) / (points.max(1) as f64));
        let each = |f: fn(&DomainSummary) -> Nanos| {
            Nanos(self.total(|d| f(d).0) / points.max(1)).to_string()
        };
        // The one that everybody has goes without saying.
        if let Some(source) = self.source.as_deref().filter(|s| *s != "schedstat") {
            writeln!(t, "  source      thread times by {source}")?;
        }
        let (used, part) = (self.overhead_s, self.overhead_s / self.seconds.max(1e-9));
        let advance = ADVANCE.as_secs_f64();
        write!(t, "  overhead    {:.2} % of one CPU ({used:.3} s", 100.0 * part)?;
        // In a short run that is much, and no more than was said that it takes.
        if part > self.budget && used <= self.budget * self.seconds + advance {
            return writeln!(t, "; {advance:.1} s in advance are allowed); a point {cost}");
        }
        writeln!(
            t,
            "); a point {cost} (elapsed: read {}, decide {}, apply {})",
            each(|d| d.cost.read),
            each(|d| d.cost.decide),
            each(|d| d.cost.apply),
        )
    }
}

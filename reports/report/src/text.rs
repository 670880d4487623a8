//! The report as text.

use crate::{Measured, MessagesReport, RunReport};
use evenly_engine::{ADVANCE, DomainSummary};
use evenly_model::{Nanos, counted};

/// Lines of the report where the whole of it was not asked for.
pub const MOST_LINES: usize = 8;
/// How many lines the result and the verdict have.
const HEAD: usize = 2;
/// Loops that are shown, all but the first where there is room; and where all is asked for.
const LOOPS: usize = 2;
const MOST_LOOPS: usize = 16;
/// An interval whose ends are further apart than this factor says nothing, and is not shown.
pub(crate) const WIDE: f64 = 2.0;

/// When a figure is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// A line that is in every report.
    Always,
    /// Where lines are left.
    WithRoom,
    /// In the whole report.
    WhenAsked,
}

/// A line of figures.
struct Figure {
    shown: Shown,
    name: String,
    text: String,
}

impl Figure {
    fn new(shown: Shown, name: &str, text: String) -> Self {
        Self { shown, name: name.to_owned(), text }
    }
}

impl RunReport {
    /// The report as text: the result, the verdict, the notes, then figures. At most [`MOST_LINES`]
    /// lines, or all of it where it is to be `whole`. Ends with a newline.
    #[must_use]
    pub fn text(&self, whole: bool) -> String {
        let figures = self.figures();
        let always = figures.iter().filter(|f| f.shown == Shown::Always).count();
        let room = if whole { usize::MAX } else { MOST_LINES - HEAD - always };
        let notes = self.notes(room);
        let mut left = room - notes.len();
        let mut lines = self.head();
        lines.extend(notes);
        for f in figures {
            let fits = match f.shown {
                Shown::Always => true,
                Shown::WithRoom => {
                    let fits = left > 0;
                    left -= usize::from(fits);
                    fits
                }
                Shown::WhenAsked => whole,
            };
            if fits {
                lines.push(format!("  {:<11} {}", f.name, f.text));
            }
        }
        // Errors that are quoted may have several lines.
        lines.iter().map(|line| line.replace('\n', " ") + "\n").collect()
    }

    /// Whether there are figures of balancing.
    fn has_figures(&self) -> bool {
        self.started && self.failure.is_none()
    }

    /// The result and the verdict; in one line where nothing was balanced.
    fn head(&self) -> Vec<String> {
        match self.verdict.strip_prefix("Nothing was balanced: ") {
            Some(why) => {
                vec![format!("evenly: nothing was balanced in {:.2} s: {why}", self.seconds)]
            }
            None => vec![self.result(), format!("  {}", self.verdict)],
        }
    }

    /// The first line: what was balanced, and for how long.
    fn result(&self) -> String {
        if !self.has_figures() {
            return format!(
                "evenly: nothing was balanced in {:.2} s, policy {}",
                self.seconds, self.policy.name
            );
        }
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        let verb =
            if self.changed_nothing() && self.mapping.is_none() { "observed" } else { "balanced" };
        let mut line = format!("evenly: {verb} {}", counted(n, "thread"));
        if self.all_threads > n {
            line += &format!(" (of {})", self.all_threads);
        }
        line += &format!(" on {} ({})", counted(m, "CPU"), self.cpus);
        let domains = self.summary.domains.len();
        if domains > 1 {
            line += &format!(" in {domains} domains");
        }
        line + &format!(
            " for {:.2} s of {:.2} s, policy {}",
            self.balanced_s, self.seconds, self.policy.name
        )
    }

    /// The notes in at most so many lines. Where there are more, the last one has their number.
    fn notes(&self, room: usize) -> Vec<String> {
        let all = &self.summary.notes;
        let shown = if all.len() > room { room.saturating_sub(1) } else { all.len() };
        let mut lines: Vec<String> =
            all.iter().take(shown).map(|note| format!("  note        {note}")).collect();
        if shown < all.len() {
            let more = counted((all.len() - shown) as u64, "note");
            let more = if shown > 0 { more.replacen(' ', " more ", 1) } else { more };
            lines.push(format!("  note        {more}; -v shows all"));
        }
        lines
    }

    fn figures(&self) -> Vec<Figure> {
        // Counted whether or not there was anything to balance.
        let words = self.messages.as_ref().map(MessagesReport::words);
        let messages = words.map(|text| Figure::new(Shown::WithRoom, "messages", text));
        let loops = self.loop_figures();
        if !self.has_figures() {
            return loops.into_iter().chain(messages).collect();
        }
        let mut all = Vec::new();
        let mut add = |shown, name: &str, text| all.push(Figure::new(shown, name, text));
        // Until the second point nothing is known of them.
        let known = self.summary.threads.iter().any(|t| t.ran_s > 0.0);
        if let Some(s) = self.summary.progress_spread().filter(|_| known) {
            let text = format!(
                "min {:.1}  mean {:.1}  max {:.1} % of a CPU per thread, imbalance {:.1} %",
                s.min * 100.0,
                s.mean * 100.0,
                s.max * 100.0,
                // Rounding can make it a hair less than 0.
                s.imbalance().abs() * 100.0
            );
            add(Shown::Always, "progress", text);
        }
        if known {
            // What a loop did is asked for by whoever has declared it, and there are lines for one of both.
            let shown = if loops.is_empty() { Shown::Always } else { Shown::WithRoom };
            add(shown, "waiting", self.waiting());
        }
        all.extend(loops);
        let mut add = |shown, name: &str, text| all.push(Figure::new(shown, name, text));
        if let Some(probe) = &self.probe {
            // Threads that spin in code of their own are seen otherwise.
            if !self.hands_over() || probe.waits() > 0 || probe.phases() > 0 {
                add(Shown::WithRoom, "probe", probe.words());
            }
            if let Some(whom) = self.whom() {
                add(Shown::WithRoom, "for whom", whom);
            }
            if probe.replaced > 0 {
                let regions = counted(probe.replaced, "parallel region");
                add(Shown::WithRoom, "barriers", format!("of {regions} were evenly's own"));
            }
        }
        if let Some(handed) = &self.handed_over {
            add(Shown::Always, "hand-over", handed.words());
        }
        if let Some(metronome) = &self.metronome {
            add(Shown::Always, "metronome", metronome.words());
        }
        all.extend(messages);
        let mut add = |shown, name: &str, text| all.push(Figure::new(shown, name, text));
        if let Some(quota) = self.quota_cpus {
            add(Shown::WithRoom, "quota", format!("{quota:.2} CPUs (cgroup)"));
        }
        if let Some(efficiency) = &self.efficiency {
            let known = efficiency.factors.is_some();
            let shown = if known { Shown::WithRoom } else { Shown::WhenAsked };
            add(shown, "efficiency", efficiency.words());
        }
        add(Shown::Always, "migrations", self.moves());
        add(Shown::Always, "overhead", self.overhead());
        all.extend(self.figures_when_asked());
        all
    }

    fn figures_when_asked(&self) -> Vec<Figure> {
        let mut all = Vec::new();
        let mut add = |name: &str, text| all.push(Figure::new(Shown::WhenAsked, name, text));
        add("point", self.cost_of_a_point());
        // That is the usual one.
        if let Some(source) = self.source.as_deref().filter(|s| *s != "schedstat") {
            add("source", format!("thread times by {source}"));
        }
        if self.summary.domains.len() > 1 {
            for d in &self.summary.domains {
                let text = format!(
                    "{} on CPUs {}, {}",
                    counted(d.threads, "thread"),
                    d.cpus,
                    counted(d.migrations, "migration")
                );
                add(&format!("domain {}", d.id), text);
            }
        }
        if let Some(gain) = self.gain {
            let text = format!(
                "at most {gain:.2} times the progress of threads that stay where they are (estimate)"
            );
            add("gain", text);
        }
        if let Some(Measured { pairs, ratio, ci95: Some([low, high]) }) = self.measured
            && low > 0.0
            && high <= WIDE * low
        {
            let text = format!(
                "{ratio:.2} times the progress in {} (95 % interval {low:.2} to {high:.2})",
                counted(pairs, "pause")
            );
            add("measured", text);
        }
        all
    }

    /// Parallel loops that tell of themselves: a line for each of the first, of which one is in every report.
    fn loop_figures(&self) -> Vec<Figure> {
        let Some(loops) = &self.loops else { return Vec::new() };
        let figure = |shown| move |text| Figure::new(shown, "loop", text);
        let mut first = loops.words(LOOPS).into_iter();
        let always = first.next().map(figure(Shown::Always));
        let with_room = first.map(figure(Shown::WithRoom));
        let others = loops.words(MOST_LOOPS).into_iter().skip(LOOPS);
        always.into_iter().chain(with_room).chain(others.map(figure(Shown::WhenAsked))).collect()
    }

    fn waiting(&self) -> String {
        let part = |f: fn(&DomainSummary) -> f64| {
            100.0 * self.total(f) / self.summary.domains.len().max(1) as f64
        };
        let (wait, blocked) = (part(|d| d.wait_share), part(|d| d.blocked_share));
        let spun = self.spun_share().map(|s| format!(", {:.1} % spinning", 100.0 * s));
        format!("{wait:.1} % for a CPU, {blocked:.1} % blocked{}", spun.unwrap_or_default())
    }

    fn moves(&self) -> String {
        let points: u64 = self.total(|d| d.points);
        let migrations = self.migrations();
        let mut text = migrations.to_string();
        if self.balanced_s > 0.0 && migrations > 0 {
            text += &format!(" ({:.1} per second)", migrations as f64 / self.balanced_s);
        }
        let failed: u64 = self.total(|d| d.failed);
        if failed > 0 {
            text += &format!(", {failed} failed");
        }
        text += &format!("; {}", counted(points, "balancing point"));
        if points > 1 {
            let per_domain = points as f64 / self.summary.domains.len().max(1) as f64;
            text += &format!(", every {:.1} ms", self.balanced_s * 1e3 / per_domain);
        }
        text
    }

    fn overhead(&self) -> String {
        let (used, part) = (self.overhead_s, self.overhead_s / self.seconds.max(1e-9));
        let advance = ADVANCE.as_secs_f64();
        // In a short run that is much, and no more than was said that it takes.
        let allowed = if part > self.budget && used <= self.budget * self.seconds + advance {
            format!("; the first {advance:.1} s are always allowed")
        } else if part > self.budget && self.policy.moves_within_phases() {
            String::from("; moves within phases may cost what they gain")
        } else {
            String::new()
        };
        let mut text = format!("{:.2} % of one CPU ({used:.3} s{allowed})", 100.0 * part);
        if let points @ 1.. = self.total(|d| d.points) {
            let cost = Nanos::from_secs_f64(self.total(|d| d.cpu_s) / points as f64);
            text += &format!(", {cost} per balancing point");
        }
        if let Some(handed) = &self.handed_over {
            text += &format!("; not in it: {}", handed.cost());
        }
        text
    }

    /// What a balancing point took, on average.
    fn cost_of_a_point(&self) -> String {
        let points = self.total(|d| d.points).max(1);
        let each =
            |f: fn(&DomainSummary) -> Nanos| Nanos(self.total(|d| f(d).0) / points).to_string();
        format!(
            "read {}, decide {}, apply {} elapsed",
            each(|d| d.cost.read),
            each(|d| d.cost.decide),
            each(|d| d.cost.apply),
        )
    }
}

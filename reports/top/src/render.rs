//! The screen, drawn purely from a [`View`], the user's choices and an area of any size.
//!
//! Invariants: colour carries nothing that a word or a sign does not show as well; columns are
//! left out, never squeezed until they cannot be read; no size of the area makes it panic.

use crate::{
    Happened, Header, Look, OtherEvenly, OtherState, Pace, Rates, Recent, Row, Shares, Sort,
    Standing, Ui, View,
};
use evenly_model::efficiency::Efficiency;
use evenly_model::{Nanos, counted, printable};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

/// Signs, in Unicode or in what every terminal has.
struct Signs {
    behind: &'static str,
    even: &'static str,
    ahead: &'static str,
    to: &'static str,
    bar: [char; 3],
    more: &'static str,
    scroll: &'static str,
    descending: &'static str,
    ascending: &'static str,
}

const UNICODE: Signs = Signs {
    behind: "▼",
    even: "=",
    ahead: "▲",
    to: "→",
    bar: ['█', '▒', '·'],
    more: "…",
    scroll: "↑↓",
    descending: "↓",
    ascending: "↑",
};

const ASCII: Signs = Signs {
    behind: "v",
    even: "=",
    ahead: "^",
    to: "->",
    bar: ['#', '-', '.'],
    more: "~",
    scroll: "arrows",
    descending: "-",
    ascending: "+",
};

/// The colours and signs that are used.
struct Pen {
    signs: &'static Signs,
    color: bool,
}

impl Pen {
    fn tint(&self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    fn standing(&self, s: Standing) -> (Style, &'static str) {
        match s {
            Standing::Behind => {
                (self.tint(Color::Yellow).add_modifier(Modifier::BOLD), self.signs.behind)
            }
            Standing::Even => (Style::new(), self.signs.even),
            Standing::Ahead => (self.tint(Color::Cyan), self.signs.ahead),
        }
    }

    fn pace(&self, p: Pace) -> (Style, &'static str) {
        match p {
            Pace::Slow => (self.tint(Color::Yellow), self.signs.behind),
            Pace::Fast => (self.tint(Color::Cyan), self.signs.ahead),
            Pace::Even => (Style::new(), self.signs.even),
            Pace::Free | Pace::Idle => (Style::new(), " "),
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const BAND: Style = Style::new().add_modifier(Modifier::REVERSED);

fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Made printable, and cut to a width in columns, with a sign where something was cut. All that is
/// drawn goes through it.
fn cut(text: &str, to: usize, signs: &Signs) -> String {
    let text = printable(text);
    if width(&text) <= to {
        return text.into_owned();
    }
    let mut out = String::new();
    let mut used = width(signs.more);
    if used > to {
        return out;
    }
    for c in text.chars() {
        let w = width(c.encode_utf8(&mut [0; 4]));
        if used + w > to {
            break;
        }
        used += w;
        out.push(c);
    }
    out + signs.more
}

fn left(text: &str, to: usize, signs: &Signs) -> String {
    let t = cut(text, to, signs);
    let pad = to.saturating_sub(width(&t));
    t + &" ".repeat(pad)
}

fn right(text: &str, to: usize, signs: &Signs) -> String {
    let t = cut(text, to, signs);
    " ".repeat(to.saturating_sub(width(&t))) + &t
}

/// A span of CPU time in at most eight columns: `120 ms`, `4.51 s`, `3 m 20 s`, `7 h 05 m`.
fn span(nanos: f64) -> String {
    let ms = (nanos / 1e6).abs();
    let s = (ms / 1e3).round() as u64;
    match ms {
        ..999.5 => format!("{ms:.0} ms"),
        ..99_995.0 => format!("{:.2} s", ms / 1e3),
        ..599_500.0 => format!("{:.1} s", ms / 1e3),
        ..3_599_500.0 => format!("{} m {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} m", s / 3_600, s % 3_600 / 60),
    }
}

/// A rate in four columns.
fn rate(r: f64) -> String {
    if r < 99.95 { format!("{r:.1}") } else { format!("{r:.0}") }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Running, waiting and blocked as one bar. Rounded so that the parts fill it.
fn bar(s: Shares, cells: usize, signs: &Signs) -> String {
    if s.running + s.waiting + s.blocked <= 0.0 {
        return " ".repeat(cells);
    }
    let to = |share: f64| ((share * cells as f64).round() as usize).min(cells);
    let (a, b) = (to(s.running), to(s.running + s.waiting));
    (0..cells).map(|i| signs.bar[if i < a { 0 } else { usize::from(i >= b) + 1 }]).collect()
}

/// Draws everything. Returns the first line that is shown of what scrolls, which is less than
/// `ui.scroll` where that goes past the end.
pub fn render(
    view: &View,
    header: &Header,
    ui: &Ui,
    look: Look,
    area: Rect,
    buf: &mut Buffer,
) -> usize {
    let area = area.intersection(buf.area);
    let pen = Pen { signs: if look.ascii { &ASCII } else { &UNICODE }, color: look.color };
    if area.is_empty() {
        return ui.scroll;
    }
    let (w, h) = (usize::from(area.width), usize::from(area.height));
    let mut lines: Vec<Line<'_>> = Vec::with_capacity(h);
    lines.push(title(view, header, ui, w, &pen));
    let first = if ui.help {
        let body = h.saturating_sub(2);
        let all = help(w, &pen);
        let first = ui.scroll.min(all.len().saturating_sub(body));
        lines.extend(all.into_iter().skip(first).take(body));
        first
    } else {
        body(view, header, ui, w, h, &pen, &mut lines)
    };
    lines.truncate(h.saturating_sub(1).max(1));
    for (i, line) in lines.iter().enumerate() {
        line.render(Rect { y: area.y + i as u16, height: 1, ..area }, buf);
    }
    if h > 1 {
        footer(view, ui, w, &pen).render(Rect { y: area.bottom() - 1, height: 1, ..area }, buf);
    }
    first
}

/// Line 1: what is watched, and for how long.
fn title(view: &View, header: &Header, ui: &Ui, w: usize, pen: &Pen) -> Line<'static> {
    let state = if ui.frozen.is_some() {
        "DISPLAY PAUSED  "
    } else if view.ended {
        "ENDED  "
    } else {
        ""
    };
    let end = format!("  {state}{} ", span(view.now.0 as f64));
    let start = format!(" evenly top  pid {}  {}", header.pid, header.command);
    let room = w.saturating_sub(width(&end));
    let text = left(&start, room, pen.signs) + &end;
    Line::styled(cut(&text, w, pen.signs), BAND)
}

/// How evenly the threads progress, in one sentence: the first thing to be read.
fn headline(rows: &[Row<'_>], view: &View, ui: &Ui, w: usize, pen: &Pen) -> Line<'static> {
    // Reversed, as the last of equal rows would win: this way it is the first in the table.
    let worst = rows.iter().rev().filter(|r| r.standing != Standing::Even).max_by(|a, b| {
        // Threads behind come before threads ahead: the program waits for them.
        (a.standing == Standing::Behind)
            .cmp(&(b.standing == Standing::Behind))
            .then(a.lead.abs().total_cmp(&b.lead.abs()))
    });
    let domain = match ui.only {
        Some(d) if view.domains.len() > 1 => format!("Domain {d}: "),
        _ => String::new(),
    };
    let (style, text) = match worst {
        None if rows.is_empty() && view.ended => {
            (Style::new(), String::from("The program has ended"))
        }
        _ if !view.is_measured(ui.only) => (Style::new(), measuring(rows.len())),
        None if rows.is_empty() => (Style::new(), String::from("No compute threads now")),
        None if rows.len() == 1 => {
            (Style::new(), String::from("One compute thread: there is nothing to balance"))
        }
        None => (
            pen.tint(Color::Green),
            format!(
                "EVEN: all {} threads progress equally (within {})",
                rows.len(),
                span(rows.iter().map(|r| r.lead.abs()).fold(1e6, f64::max))
            ),
        ),
        Some(r) => {
            let count = rows.iter().filter(|o| o.standing == r.standing).count();
            let mean = r.thread.progress as f64 - r.lead;
            let part = if mean > 0.0 {
                format!(" ({})", percent(r.lead.abs() / mean))
            } else {
                String::new()
            };
            let (name, lead, word) = (&r.thread.name, span(r.lead), r.standing.word());
            let of = if r.standing == Standing::Ahead { " of" } else { "" };
            let all = rows.len();
            let long = format!(
                "UNEVEN: {name} is {lead}{part} {word}{of} the mean; {count} of {all} threads {word}"
            );
            let short = format!("UNEVEN: {name} is {lead} {word}{part}");
            (pen.tint(Color::Yellow), if width(&domain) + width(&long) < w { long } else { short })
        }
    };
    let text = format!(" {domain}{text}");
    Line::styled(cut(&text, w, pen.signs), style.add_modifier(Modifier::BOLD))
}

/// Shown in place of figures before the first period is over.
fn measuring(threads: usize) -> String {
    match threads {
        0 => String::from("MEASURING: no thread has been seen computing yet"),
        n => format!("MEASURING: {} found, the first period is not over", counted(n, "thread")),
    }
}

/// That the program is no longer balanced, where it was.
pub(crate) fn trouble(view: &View) -> Option<String> {
    let OtherEvenly { pid, state, .. } = view.balancer?;
    match state {
        OtherState::Working => None,
        OtherState::Stopped => {
            Some(format!("evenly (pid {pid}) is STOPPED: the program is not balanced"))
        }
        OtherState::Gone => {
            Some(format!("evenly (pid {pid}) has ENDED: the program is not balanced"))
        }
    }
}

/// What the program has handed over, if it has.
fn account(given: Nanos) -> String {
    if given == Nanos::ZERO {
        return String::new();
    }
    format!("; it has handed over {:.1} s of CPU time", given.as_secs_f64())
}

/// What evenly does at the moment.
pub(crate) fn doing(view: &View, header: &Header, ui: &Ui) -> String {
    if header.observes() {
        match view.balancer {
            Some(OtherEvenly { pid, state: OtherState::Working, given }) => {
                format!("watching; evenly (pid {pid}) balances it{}", account(given))
            }
            _ => trouble(view).unwrap_or_else(|| String::from("watching, moves nothing")),
        }
    } else if view.stood_down(ui.only) {
        String::from("stood down: balancing did not pay")
    } else if view.paused(ui.only) {
        String::from("paused: it measures its effect, or rests as it gained nothing")
    } else {
        format!("balancing ({})", header.policy)
    }
}

/// The share of the threads' time in run queues, and the efficiencies where they are known.
fn efficiency(e: &Efficiency) -> impl Iterator<Item = String> {
    let share = format!("in run queues {}", percent(e.run_queue_share));
    let factors = e.factors.map(|f| {
        format!(
            "parallel efficiency {} = load balance {} x communication {}",
            percent(f.parallel),
            percent(f.load_balance),
            percent(f.communication)
        )
    });
    std::iter::once(share).chain(factors)
}

fn balancing(view: &View, header: &Header, ui: &Ui, w: usize, pen: &Pen) -> Vec<Line<'static>> {
    let Rates { own, other, overhead, cost, period } = view.rates(ui.only);
    let migrations = if header.observes() {
        format!("migrations {}/s", rate(other))
    } else {
        format!("migrations {}/s by evenly, {}/s by others", rate(own), rate(other))
    };
    let whose = if view.balancer.is_some() { "this view: " } else { "" };
    let mut parts = vec![doing(view, header, ui)];
    if view.is_measured(ui.only) {
        parts.extend([
            migrations,
            // Otherwise these would be taken for figures of the balancer.
            format!("{whose}period {period}"),
            format!("{whose}overhead {:.2}% of a CPU, {cost} a point", overhead * 100.0),
        ]);
    }
    if let Some(e) = view.efficiency(ui.only) {
        parts.extend(efficiency(&e));
    }
    if view.missed > 0 {
        parts.push(format!("{} events not shown", view.missed));
    }
    // Whole parts only; those that do not fit go to a second line.
    let mut lines = vec![String::new()];
    for part in parts {
        let fits = |l: &String| l.is_empty() || width(l) + width(&part) + 4 <= w;
        if let Some(last) = lines.last_mut().filter(|l| fits(l)) {
            *last = if last.is_empty() { format!(" {part}") } else { format!("{last}   {part}") };
        } else if lines.len() < 2 {
            lines.push(format!(" {part}"));
        }
    }
    let alarm = pen.tint(Color::Yellow).add_modifier(Modifier::BOLD);
    let first = if trouble(view).is_some() { alarm } else { Style::new() };
    let styles = std::iter::once(first).chain(std::iter::repeat(Style::new()));
    lines.into_iter().zip(styles).map(|(l, s)| Line::styled(cut(&l, w, pen.signs), s)).collect()
}

/// The CPUs, several on a line, on at most `most` lines.
fn cpus(view: &View, ui: &Ui, w: usize, most: usize, pen: &Pen) -> Vec<Line<'static>> {
    const CELL: usize = 36;
    let mut cells: Vec<Vec<Span<'static>>> = Vec::new();
    let mut paces = Vec::new();
    for (_, d) in view.shown(ui.only).filter(|(_, d)| d.is_measured()) {
        for (id, c, pace) in d.paces() {
            paces.push(pace);
            let (style, sign) = pen.pace(pace);
            let speed = c.speed().map_or_else(|| String::from("   -"), |s| format!("{s:.2}"));
            cells.push(vec![
                Span::raw(format!(" CPU {:>3}  ", id.0)),
                Span::styled(format!("{speed} {sign} {}", pace.word()), style),
                Span::raw(format!("  {:<11}", counted(c.threads as usize, "thread"))),
            ]);
        }
    }
    if cells.is_empty() || most == 0 {
        return Vec::new();
    }
    let per_line = (w / CELL).max(1);
    let room = per_line * most;
    if cells.len() > room {
        // The last line sums up those for which there is no room.
        cells.truncate(room - per_line);
        let rest = paces.split_off(cells.len());
        let kinds = [Pace::Slow, Pace::Fast, Pace::Even, Pace::Free, Pace::Idle];
        let counts: Vec<String> = kinds
            .iter()
            .map(|k| (k.word(), rest.iter().filter(|p| *p == k).count()))
            .filter(|(_, n)| *n > 0)
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        let more = if cells.is_empty() { "" } else { "more " };
        let text = format!(" {} {more}CPUs: {}", rest.len(), counts.join(", "));
        let mut lines: Vec<Line<'static>> =
            cells.chunks(per_line).map(|cells| Line::from(cells.concat())).collect();
        lines.push(Line::raw(cut(&text, w, pen.signs)));
        return lines;
    }
    cells.chunks(per_line).map(|cells| Line::from(cells.concat())).collect()
}

/// Columns of the threads' table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Tid,
    Domain,
    Cpu,
    Progress,
    Mean,
    Bar,
    Running,
    Spinning,
    Waiting,
    Blocked,
    Migrations,
}

impl Column {
    /// Heading, width, whether text stands on the left, and the order that sorts by it.
    fn about(self) -> (&'static str, usize, bool, Option<Sort>) {
        match self {
            Self::Name => ("THREAD", 10, true, Some(Sort::Name)),
            Self::Tid => ("TID", 7, false, Some(Sort::Tid)),
            Self::Domain => ("DOM", 3, false, None),
            Self::Cpu => ("CPU", 4, false, Some(Sort::Cpu)),
            Self::Progress => ("PROGRESS", 9, false, Some(Sort::Progress)),
            Self::Mean => ("VS MEAN", 17, true, Some(Sort::Mean)),
            Self::Bar => ("RUN/WAIT/BLOCK", 14, true, None),
            Self::Running => ("RUN", 5, false, Some(Sort::Running)),
            Self::Spinning => ("SPIN", 5, false, Some(Sort::Spinning)),
            Self::Waiting => ("WAIT", 5, false, Some(Sort::Waiting)),
            Self::Blocked => ("BLOCK", 6, false, Some(Sort::Blocked)),
            Self::Migrations => ("MIGR", 6, false, Some(Sort::Migrations)),
        }
    }
}

/// The columns that fit, with their widths; the name gets what remains, up to a limit.
fn columns(w: usize, domains: bool, spinning: bool) -> Vec<(Column, usize)> {
    use Column::*;
    // In the order in which they are left out, the least necessary first.
    let expendable =
        [Bar, Domain, Migrations, Progress, Blocked, Tid, Running, Waiting, Spinning, Cpu, Mean];
    let mut shown = vec![
        Name, Tid, Domain, Cpu, Progress, Mean, Running, Spinning, Waiting, Blocked, Migrations,
        Bar,
    ];
    shown.retain(|c| (domains || *c != Domain) && (spinning || *c != Spinning));
    let need = |shown: &[Column]| shown.iter().map(|c| c.about().1 + 1).sum::<usize>();
    for gone in expendable {
        if need(&shown) <= w {
            break;
        }
        shown.retain(|c| *c != gone);
    }
    let spare = w.saturating_sub(need(&shown));
    shown
        .into_iter()
        .map(|c| (c, c.about().1 + if c == Name { spare.min(16) } else { 0 }))
        .collect()
}

fn heading(columns: &[(Column, usize)], ui: &Ui, w: usize, pen: &Pen) -> Line<'static> {
    let mut spans = Vec::new();
    for &(c, size) in columns {
        let (name, _, on_left, sort) = c.about();
        let sorted = sort == Some(ui.sort);
        let sign = if ui.reverse { pen.signs.ascending } else { pen.signs.descending };
        let name = if sorted { format!("{name}{sign}") } else { name.to_owned() };
        let text =
            if on_left { left(&name, size, pen.signs) } else { right(&name, size, pen.signs) };
        let style = if sorted { BOLD.add_modifier(Modifier::REVERSED) } else { BOLD };
        spans.push(Span::styled(" ", BOLD));
        spans.push(Span::styled(text, style.add_modifier(Modifier::UNDERLINED)));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::raw(" ".repeat(w.saturating_sub(used))));
    Line::from(spans)
}

fn thread(row: &Row<'_>, columns: &[(Column, usize)], pen: &Pen) -> Line<'static> {
    let t = row.thread;
    let (style, sign) = pen.standing(row.standing);
    let mut spans = Vec::with_capacity(2 * columns.len());
    for &(c, size) in columns {
        let known = |text: String| Span::raw(right(&text, size, pen.signs));
        // A zero would look like a measured value.
        let number = |text: String| known(if t.is_measured() { text } else { String::from("-") });
        spans.push(Span::raw(" "));
        spans.push(match c {
            Column::Name => Span::raw(left(&t.name, size, pen.signs)),
            Column::Tid => known(t.id.to_string()),
            Column::Domain => known(t.domain.to_string()),
            Column::Cpu => known(t.cpu.map_or_else(|| String::from("?"), |c| c.to_string())),
            Column::Progress => number(span(t.progress as f64)),
            Column::Mean if !t.is_measured() => Span::raw(left("measuring", size, pen.signs)),
            Column::Mean => {
                let text = if row.standing == Standing::Even {
                    format!("{sign} even")
                } else {
                    format!("{sign} {:>8} {}", span(row.lead), row.standing.word())
                };
                Span::styled(left(&text, size, pen.signs), style)
            }
            Column::Bar => Span::raw(bar(row.shares, size, pen.signs)),
            Column::Running => number(percent(row.shares.running)),
            // A thread without a probe may spin or not.
            Column::Spinning => {
                known(row.shares.spinning.map_or_else(|| String::from("-"), percent))
            }
            Column::Waiting => number(percent(row.shares.waiting)),
            Column::Blocked => number(percent(row.shares.blocked)),
            Column::Migrations => number(t.migrations().to_string()),
        });
    }
    Line::from(spans)
}

fn recent(r: &Recent, w: usize, pen: &Pen) -> Line<'static> {
    let at = format!(" {:>9}  ", format!("{:.2} s", r.at.as_secs_f64()));
    let text = match &r.what {
        Happened::Note(text) => text.clone(),
        Happened::Migration { name, id, from, to, reason, error } => {
            let why = reason.map_or("seen", |r| r.text());
            let name = left(name, 14, pen.signs);
            let mut text = format!("{name} {id:>7}  CPU {from} {} {to}  {why}", pen.signs.to);
            if let Some(e) = error {
                text += &format!("; NOT DONE: {e}");
            }
            text
        }
    };
    Line::raw(cut(&(at + &text), w, pen.signs))
}

fn body<'a>(
    view: &'a View,
    header: &Header,
    ui: &Ui,
    w: usize,
    h: usize,
    pen: &Pen,
    lines: &mut Vec<Line<'a>>,
) -> usize {
    let rows = view.rows(ui.only, ui.sort, ui.reverse);
    lines.push(headline(&rows, view, ui, w, pen));
    let mut state = balancing(view, header, ui, w, pen);
    state.truncate(if h >= 16 { 2 } else { 1 });
    lines.extend(state);
    if h >= 20 {
        lines.push(Line::default());
    }
    let speeds = cpus(view, ui, w, if h < 12 { 1.min(h / 9) } else { h / 5 }, pen);
    let apart = h >= 20 && !speeds.is_empty();
    lines.extend(speeds);
    if apart {
        lines.push(Line::default());
    }
    // What is left: heading, threads, recent decisions, footer.
    let left_over = h.saturating_sub(lines.len() + 1);
    let mine = |r: &&Recent| ui.only.is_none() || r.domain.is_none() || r.domain == ui.only;
    let history = view.recent.iter().rev().filter(mine).count();
    let for_recent = if left_over >= 12 && history > 0 {
        let most = left_over / 3;
        // The history gets the room that threads do not need.
        most.max(left_over.saturating_sub(rows.len() + 1)).min(history + 2).min(left_over / 2 + 2)
    } else {
        0
    };
    let for_threads = left_over.saturating_sub(for_recent + 1);
    let spinning = rows.iter().any(|r| r.shares.spinning.is_some());
    let columns = columns(w, view.domains.len() > 1 && ui.only.is_none(), spinning);
    lines.push(heading(&columns, ui, w, pen));
    let hidden = rows.len() > for_threads;
    // One line shows the position in the list.
    let room = for_threads - usize::from(hidden && for_threads > 1);
    let first = ui.scroll.min(rows.len().saturating_sub(room));
    lines.extend(rows.iter().skip(first).take(room).map(|r| thread(r, &columns, pen)));
    if hidden && for_threads > 1 {
        let last = (first + room).min(rows.len());
        let text = format!(" threads {} to {last} of {}", first + 1, rows.len());
        lines
            .push(Line::styled(cut(&text, w, pen.signs), Style::new().add_modifier(Modifier::DIM)));
    }
    if for_recent >= 3 {
        lines.push(Line::default());
        let name = if header.observes() { "RECENT MIGRATIONS" } else { "RECENT DECISIONS" };
        lines.push(Line::styled(
            left(&format!(" {name}"), w, pen.signs),
            BOLD.add_modifier(Modifier::UNDERLINED),
        ));
        let newest = view.recent.iter().rev().filter(mine).take(for_recent - 2);
        lines.extend(newest.map(|r| recent(r, w, pen)));
    }
    first
}

fn footer(view: &View, ui: &Ui, w: usize, pen: &Pen) -> Line<'static> {
    let mut keys = vec![(String::from("q"), String::from("quit"))];
    let mut key = |k: &str, what: &str| keys.push((k.to_owned(), what.to_owned()));
    if ui.help {
        key("?", "back");
        key(pen.signs.scroll, "scroll");
    } else {
        key("?", "help");
        key("s", &format!("sort: {}", ui.sort.word()));
        key("r", "reverse");
        key("p", if ui.frozen.is_some() { "go on" } else { "pause display" });
        if view.domains.len() > 1 {
            let shown =
                ui.only.map_or_else(|| String::from("domains: all"), |d| format!("domain: {d}"));
            key("d", &shown);
        }
        key(pen.signs.scroll, "scroll");
    }
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, what) in keys {
        let need = width(&key) + width(&what) + 4;
        if used + need > w {
            break;
        }
        used += need;
        spans.push(Span::styled(format!(" {key} "), BAND));
        spans.push(Span::raw(format!("{what}  ")));
        used += 1;
    }
    Line::from(spans)
}

fn help(w: usize, pen: &Pen) -> Vec<Line<'static>> {
    let s = pen.signs;
    let entries: Vec<(String, &str)> = vec![
        ("KEYS".into(), ""),
        ("q, Esc, Ctrl-C".into(), "quit; the program runs on"),
        ("s / r".into(), "sort by the next column / the other way round"),
        ("p".into(), "pause and go on with the display; evenly itself goes on"),
        ("d".into(), "show one domain after the other, then all"),
        (format!("{}, PgUp, PgDn", s.scroll), "scroll"),
        ("Ctrl-L / Ctrl-Z".into(), "redraw / suspend, continue with fg"),
        (String::new(), ""),
        ("WORDS".into(), ""),
        ("progress".into(), "CPU time that the thread received since evenly began"),
        (
            format!("{} behind, {} ahead", s.behind, s.ahead),
            "of the mean progress of the domain's threads",
        ),
        (format!("{} even", s.even), "within one period of the mean, the best possible"),
        ("speed".into(), "of a CPU: what its threads got of what they wanted, 0 to 1"),
        ("slow, fast".into(), "below or above the mean speed of the domain's CPUs"),
        ("free, idle".into(), "a CPU without threads, or with threads that all block"),
        (format!("RUN {}", s.bar[0]), "share of the last 2 s on a CPU"),
        ("SPIN".into(), "of RUN, share spinning for others; needs the probe"),
        (format!("WAIT {}", s.bar[1]), "share waiting for a CPU"),
        (format!("BLOCK {}", s.bar[2]), "share blocked: sleeping, or at a barrier"),
        ("MIGR".into(), "observed changes of CPU, by evenly or the kernel"),
        ("period".into(), "time between two balancing points"),
        ("overhead".into(), "CPU time that the balancing points take"),
        ("domain (DOM)".into(), "CPUs that are balanced separately, such as a NUMA node"),
    ];
    let mut lines = Vec::new();
    for (term, text) in entries {
        if text.is_empty() {
            lines.push(Line::styled(format!(" {term}"), BOLD));
        } else if w >= 60 {
            lines.push(Line::raw(cut(&format!("  {} {text}", left(&term, 18, s)), w, s)));
        } else {
            // Narrow: the term on a line of its own, the words wrapped below it.
            lines.push(Line::raw(cut(&format!("  {term}"), w, s)));
            let mut line = String::from("   ");
            for word in text.split(' ') {
                if width(&line) + width(word) + 1 > w && !line.trim().is_empty() {
                    lines.push(Line::raw(std::mem::replace(&mut line, String::from("   "))));
                }
                line = format!("{line} {word}");
            }
            lines.push(Line::raw(line));
        }
    }
    lines
}

/// One line about one domain, for plain output.
pub(crate) fn plain(view: &View, id: evenly_model::DomainId, header: &Header) -> String {
    let ui = Ui { only: Some(id), ..Ui::default() };
    let at = format!("{:>8.1} s", view.now.as_secs_f64());
    let cpus = view.domains.get(&id).map_or(0, |d| d.cpus.len());
    let rows = view.rows(Some(id), Sort::Mean, false);
    let name = format!("{at}  domain {id}: ");
    let (Some(d), Some(last), Some(first)) = (
        view.domains.get(&id),
        rows.iter().min_by(|a, b| a.lead.total_cmp(&b.lead)),
        rows.iter().max_by(|a, b| a.lead.total_cmp(&b.lead)),
    ) else {
        let trouble = trouble(view).map(|t| format!("; {t}")).unwrap_or_default();
        return format!("{name}no compute threads on {}{trouble}", counted(cpus, "CPU"));
    };
    let Some(spread) = d.spread.filter(|_| d.is_measured()) else {
        let trouble = trouble(view).map(|t| format!("; {t}")).unwrap_or_default();
        return format!("{name}{}{trouble}", measuring(rows.len()));
    };
    let rates = view.rates(Some(id));
    let one = |r: &Row<'_>| {
        let sign = if r.lead < 0.0 { '-' } else { '+' };
        format!("{} (tid {}) {sign}{}", r.thread.name, r.thread.id, span(r.lead))
    };
    let efficiency: String = (view.efficiency(Some(id)).iter())
        .flat_map(efficiency)
        .map(|part| format!("{part}; "))
        .collect();
    let extremes = if rows.len() > 1 {
        format!("worst {}; best {}; ", one(last), one(first))
    } else {
        String::new()
    };
    let line = format!(
        "{name}{} on {}; progress min {} mean {} max {}; {efficiency}migrations {}/s; \
         {extremes}{}",
        counted(rows.len(), "thread"),
        counted(cpus, "CPU"),
        span(spread.min),
        span(spread.mean),
        span(spread.max),
        rate(rates.own + rates.other),
        doing(view, header, &ui)
    );
    printable(&line).into_owned()
}

#[cfg(test)]
mod tests;

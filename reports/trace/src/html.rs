//! One page about a recording: who ran where, progress, speeds, decisions, summary.
//!
//! The page itself is in `templates/`, where all text is escaped; the code here computes what goes
//! into it and draws.
//!
//! Invariant: the page is complete in itself. It loads nothing, runs no script, and its size does
//! not grow with the length of the recording past a few megabytes.

use crate::lanes::{self, LEFT, TimeAxis};
use crate::reader::Recording;
use crate::summary::Summary;
use crate::timeline::{Cast, Timeline};
use askama::Template;
use evenly_draw::{Anchor, Canvas, Paint, Path, escape, step, ticks};
use evenly_engine::{Event, PointRecord};
use evenly_model::{CpuId, DomainId, Nanos, counted};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Width of the drawings.
const WIDTH: f64 = 1_100.0;
/// Most spans per row, and in all.
const MAX_SPANS_PER_ROW: usize = 4_000;
const MAX_SPANS: usize = 24_000;
/// Rows of the decision log.
const MAX_DECISIONS: usize = 2_000;
/// How many notes the page shows at most.
const MAX_NOTES: usize = 500;
/// Curves drawn one by one; of more, the range is drawn.
const MAX_CURVES: usize = 32;
/// Stretches into which a curve is summed up, each with its least and greatest value.
const CURVE_SLOTS: usize = 500;

/// How text gets into a template (named in `askama.toml`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsInPictures;

impl askama::filters::Escaper for AsInPictures {
    fn write_escaped_str<W: Write>(&self, mut to: W, text: &str) -> fmt::Result {
        to.write_str(&escape(text))
    }
}

/// The page about a recording.
#[derive(Debug, Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    drawing_style: String,
    facts: String,
    warnings: Vec<String>,
    summary: Summary,
    /// None where no thread ran.
    places: Option<Places>,
    progress: Chart,
    speeds: Chart,
    decisions: Decisions,
    notes: Notes,
}

/// A picture in the page.
#[derive(Debug, Template)]
#[template(path = "drawing.html")]
struct Drawing {
    label: &'static str,
    height: f64,
    body: Canvas,
}

/// Which thread ran on which CPU when.
#[derive(Debug)]
struct Places {
    drawing: Drawing,
    paused: bool,
    /// Where a row has too many spans: how many are too many, and the time that is one instead.
    summed_up: Option<(usize, Nanos)>,
    cpus_left_out: usize,
}

/// Quantities over time.
#[derive(Debug, Template)]
#[template(path = "chart.html")]
struct Chart {
    /// None where there are no values.
    drawing: Option<Drawing>,
    /// The number of curves, where only their range is drawn.
    too_many: Option<usize>,
}

/// All moves, for the table.
#[derive(Debug)]
struct Decisions {
    count: String,
    failed: usize,
    rows: Vec<Decision>,
    left_out: usize,
}

/// One row of the table of moves.
#[derive(Debug)]
struct Decision {
    at: String,
    domain: DomainId,
    point: u64,
    thread: String,
    from: CpuId,
    to: CpuId,
    why: String,
}

/// When something was said, and what.
#[derive(Debug)]
struct Notes {
    rows: Vec<(String, String)>,
    left_out: usize,
}

/// Makes the page of a recording.
#[must_use]
pub fn export(recording: &Recording) -> String {
    let cast = Cast::of(recording);
    let timeline = Timeline::of(recording, &cast);
    let command = recording.header.command.join(" ");
    let page = Page {
        title: if command.is_empty() { "evenly report".to_owned() } else { command },
        drawing_style: evenly_draw::style(),
        facts: facts(recording, &timeline),
        warnings: warnings(recording),
        summary: Summary::of(recording, &cast),
        places: who_ran_where(&timeline, &cast),
        progress: progress(recording, &cast, timeline.end),
        speeds: speeds(recording, timeline.end),
        decisions: decisions(recording, &cast),
        notes: notes(recording),
    };
    let mut out = String::new();
    // Writing to a string does not fail. A template comes without its last end of line.
    let _ = page.render_into(&mut out);
    out.push('\n');
    out
}

fn facts(recording: &Recording, timeline: &Timeline) -> String {
    let h = &recording.header;
    let mut parts = Vec::new();
    if h.started_unix_ms > 0 && h.started_unix_ms < 253_402_300_800_000 {
        let started =
            std::time::UNIX_EPOCH + std::time::Duration::from_secs(h.started_unix_ms / 1000);
        let shown = humantime::format_rfc3339_seconds(started).to_string();
        parts.push(shown.replace('T', " ").replace('Z', " UTC"));
    }
    parts.push(format!("{} of balancing", Nanos(timeline.end)));
    parts.push(format!("{} recorded", counted(recording.full_points(), "balancing point")));
    let tables = h.settings.iter().chain(&h.host).map(|(k, v)| format!("{k} {v}"));
    parts.extend(tables);
    parts.push(format!("evenly {}", h.evenly));
    parts.join(" \u{b7} ")
}

fn warnings(recording: &Recording) -> Vec<String> {
    let mut said = Vec::new();
    if recording.end.is_none() {
        said.push(
            "The recording has no end record: evenly was stopped before the program ended, and the \
             last moments are missing."
                .to_owned(),
        );
    }
    if let Some(t) = recording.thinning.last() {
        said.push(format!(
            "The recording came near its size limit. From {} on only some points were kept, in the \
             end every {}th; each stands for those left out before it. A greater limit keeps all.",
            lanes::seconds(recording.thinning[0].at.0),
            t.keep_every
        ));
    }
    if let Some(end) = recording.end.as_ref().filter(|e| e.dropped > 0) {
        said.push(format!("{} events were lost while recording.", end.dropped));
    }
    if recording.unknown_lines > 0 {
        said.push(format!(
            "{} lines were passed over: a later version of evenly wrote them.",
            recording.unknown_lines
        ));
    }
    said
}

fn who_ran_where(timeline: &Timeline, cast: &Cast) -> Option<Places> {
    if timeline.rows.values().all(Vec::is_empty) {
        return None;
    }
    let axis = TimeAxis { end: timeline.end, width: WIDTH };
    let rows = timeline.rows.len().clamp(1, lanes::MAX_ROWS);
    let most = MAX_SPANS_PER_ROW.min(MAX_SPANS / rows);
    let (mut grid, mut body) = (Canvas::default(), Canvas::default());
    let panel = lanes::panel(&mut body, timeline, cast, axis, 10.0, most);
    axis.draw(&mut grid, 6.0, 10.0 + panel.height);
    let names: Vec<String> = cast.actors.iter().map(|a| a.label()).collect();
    let bottom = 10.0 + panel.height + 38.0;
    let legend = lanes::legend(&mut body, &names, WIDTH, bottom);
    grid.add(&body);
    Some(Places {
        drawing: Drawing {
            label: "which thread ran on which CPU over time",
            height: bottom + legend,
            body: grid,
        },
        paused: !timeline.paused.is_empty(),
        summed_up: panel.summed.then(|| (most, Nanos(timeline.end / most.max(1) as u64))),
        cpus_left_out: panel.rows_left_out,
    })
}

/// A curve: its name, its colour, its values over time with gaps.
struct Curve {
    name: String,
    colour: usize,
    values: Vec<(u64, f64)>,
}

/// The points of which more than the moves were kept.
fn points(recording: &Recording) -> impl Iterator<Item = &PointRecord> {
    recording.events.iter().filter_map(|e| match e {
        Event::Point(p) if !(p.threads.is_empty() && p.cpus.is_empty()) => Some(p),
        _ => None,
    })
}

fn progress(recording: &Recording, cast: &Cast, end: u64) -> Chart {
    let mut curves: BTreeMap<usize, Curve> = BTreeMap::new();
    for p in points(recording) {
        let mean = p.threads.iter().map(|t| t.progress as f64).sum::<f64>()
            / p.threads.len().max(1) as f64;
        for t in &p.threads {
            let Some(i) = cast.index_of(t.id) else { continue };
            let curve = curves.entry(i).or_insert_with(|| Curve {
                name: cast.actors[i].label(),
                colour: i,
                values: Vec::new(),
            });
            curve.values.push((p.at.0, (t.progress as f64 - mean) / 1e6));
        }
    }
    let curves: Vec<Curve> = curves.into_values().collect();
    chart(&curves, end, "ms", None, "progress of the threads relative to their mean")
}

fn speeds(recording: &Recording, end: u64) -> Chart {
    let mut curves: BTreeMap<u32, Curve> = BTreeMap::new();
    for p in points(recording) {
        for c in &p.cpus {
            let Some(speed) = c.speed else { continue };
            let curve = curves.entry(c.id.0).or_insert_with(|| Curve {
                name: format!("CPU {}", c.id),
                colour: 0,
                values: Vec::new(),
            });
            curve.values.push((p.at.0, speed));
        }
    }
    let mut curves: Vec<Curve> = curves.into_values().collect();
    for (i, curve) in curves.iter_mut().enumerate() {
        curve.colour = i;
    }
    chart(&curves, end, "", Some((0.0, 1.0)), "speed of the CPUs over time")
}

/// Draws curves, or where there are too many to tell apart the range in which they lie.
fn chart(
    curves: &[Curve],
    end: u64,
    unit: &str,
    range: Option<(f64, f64)>,
    label: &'static str,
) -> Chart {
    const TOP: f64 = 10.0;
    const HEIGHT: f64 = 190.0;
    let finite = || curves.iter().flat_map(|c| &c.values).map(|v| v.1).filter(|v| v.is_finite());
    if finite().next().is_none() {
        return Chart { drawing: None, too_many: None };
    }
    let (mut low, mut high) = range.unwrap_or((0.0, 0.0));
    for v in finite() {
        low = low.min(v);
        high = high.max(v);
    }
    if high - low < 1e-6 {
        (low, high) = (low - 0.5, high + 0.5);
    }
    let axis = TimeAxis { end, width: WIDTH };
    let y = |v: f64| TOP + (high - v) / (high - low) * HEIGHT;
    let mut body = Canvas::default();
    axis.draw(&mut body, TOP, TOP + HEIGHT);
    for (value, text) in ticks(low, high, step(high - low, 5.0), 1.0, unit) {
        body.line("grid", (LEFT, y(value)), (axis.x(end), y(value)));
        body.text("dim", Anchor::End, (LEFT - 6.0, y(value) + 4.0), &text);
    }
    let mut bottom = TOP + HEIGHT + 38.0;
    let too_many = (curves.len() > MAX_CURVES).then_some(curves.len());
    if too_many.is_some() {
        draw_range(&mut body, curves, axis, y);
    } else {
        for curve in curves {
            draw_curve(&mut body, curve, axis, y);
        }
        let names: Vec<String> = curves.iter().map(|c| c.name.clone()).collect();
        bottom += lanes::legend(&mut body, &names, WIDTH, bottom);
    }
    Chart { drawing: Some(Drawing { label, height: bottom, body }), too_many }
}

fn draw_curve(body: &mut Canvas, curve: &Curve, axis: TimeAxis, y: impl Fn(f64) -> f64) {
    let mut path = Path::default();
    let points = slimmed(&curve.values, axis.end).into_iter();
    path.line(points.map(|(at, value)| (axis.x(at), y(value))));
    body.path(Paint::line(curve.colour).titled(&*curve.name), &path);
}

fn draw_range(body: &mut Canvas, curves: &[Curve], axis: TimeAxis, y: impl Fn(f64) -> f64) {
    let mut ranges: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (at, v) in curves.iter().flat_map(|c| &c.values).filter(|v| v.1.is_finite()) {
        let range = ranges.entry(slot(*at, axis.end)).or_insert((*v, *v));
        *range = (range.0.min(*v), range.1.max(*v));
    }
    let x = |slot: u64| axis.x((axis.end as f64 / CURVE_SLOTS as f64 * slot as f64) as u64);
    let above = ranges.iter().map(|(slot, range)| (x(*slot), y(range.1)));
    let below = ranges.iter().rev().map(|(slot, range)| (x(*slot), y(range.0)));
    let mut path = Path::default();
    path.line(above.chain(below));
    body.path("band", &path);
}

fn slot(at: u64, end: u64) -> u64 {
    (u128::from(at) * CURVE_SLOTS as u128 / u128::from(end.max(1))) as u64
}

/// The least and the greatest value of each slot, in their order: keeps every peak.
fn slimmed(values: &[(u64, f64)], end: u64) -> Vec<(u64, f64)> {
    let mut out = Vec::new();
    let finite: Vec<(u64, f64)> = values.iter().copied().filter(|v| v.1.is_finite()).collect();
    if finite.len() <= 2 * CURVE_SLOTS {
        return finite;
    }
    for chunk in finite.chunk_by(|a, b| slot(a.0, end) == slot(b.0, end)) {
        let least = chunk.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let greatest = chunk.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut both: Vec<(u64, f64)> = least.into_iter().chain(greatest).copied().collect();
        both.sort_by_key(|v| v.0);
        both.dedup();
        out.extend(both);
    }
    out
}

fn decisions(recording: &Recording, cast: &Cast) -> Decisions {
    let all = || {
        recording.events.iter().flat_map(|e| match e {
            Event::Point(p) => p.moves.iter().map(|m| (p, m)).collect(),
            _ => Vec::new(),
        })
    };
    let count = all().count();
    let rows = all().take(MAX_DECISIONS).map(|(p, m)| {
        let mut why = m.reason.text().to_owned();
        if let Some(error) = &m.error {
            let _ = write!(why, "; not carried out: {error}");
        }
        Decision {
            at: lanes::seconds(p.at.0),
            domain: p.domain,
            point: p.point,
            thread: cast.index_of(m.id).map(|i| cast.actors[i].label()).unwrap_or_default(),
            from: m.from,
            to: m.to,
            why,
        }
    });
    Decisions {
        count: counted(count, "move"),
        failed: all().filter(|(_, m)| m.error.is_some()).count(),
        rows: rows.collect(),
        left_out: count.saturating_sub(MAX_DECISIONS),
    }
}

fn notes(recording: &Recording) -> Notes {
    let mut all: Vec<(u64, String)> = recording
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Note { at, text } => Some((at.0, text.clone())),
            Event::Domain { at, domain, cpus } => {
                Some((at.0, format!("domain {domain} has CPUs {cpus}")))
            }
            _ => None,
        })
        .chain(recording.thinning.iter().map(|t| (t.at.0, t.text.clone())))
        .collect();
    all.sort_by_key(|n| n.0);
    let left_out = all.len().saturating_sub(MAX_NOTES);
    let rows = all.into_iter().take(MAX_NOTES).map(|(at, text)| (lanes::seconds(at), text));
    Notes { rows: rows.collect(), left_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;
    use serde_json::Value;

    /// Without the style sheet, which would drown what matters.
    fn body(page: &str) -> String {
        page.split("</head>").nth(1).unwrap().replace("><", ">\n<")
    }

    #[test]
    fn a_small_page() {
        insta::assert_snapshot!(body(&export(&testdata::small())));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = export(&testdata::small());
        for outside in ["http://", "https://", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn hostile_text_stays_text() {
        let mut events = testdata::events(3, true);
        let bad = "</title><script>alert(1)</script>\u{0}\"'";
        events.push(Event::Note { at: Nanos(1), text: bad.to_owned() });
        for e in &mut events {
            match e {
                Event::Joined { thread, .. } => thread.name = bad.to_owned(),
                Event::Point(p) => {
                    p.moves.iter_mut().for_each(|m| m.error = Some(bad.to_owned()));
                }
                _ => {}
            }
        }
        let mut header = testdata::header();
        header.command = vec![bad.to_owned()];
        header.host.insert(bad.to_owned(), bad.to_owned());
        let summary = serde_json::json!({bad: bad, "deep": {"a": [bad]}});
        let bytes = testdata::bytes(&header, &events, &summary);
        let page = export(&Recording::parse(&bytes).unwrap());
        assert!(!page.contains("<script") && !page.contains('\0'));
    }

    #[test]
    fn long_recordings_make_small_pages_that_say_what_is_missing() {
        let events = testdata::events(30_000, true);
        let bytes = testdata::bytes(&testdata::header(), &events, &Value::Null);
        let page = export(&Recording::parse(&bytes).unwrap());
        assert!(page.len() < 4_000_000, "{}", page.len());
        assert!(page.contains("summed up in slots of 75.0 ms"));
        assert!(page.contains("Shown are the first 2000;"));
    }

    #[test]
    fn many_threads_are_a_range() {
        let mut text = String::from("{\"schema\":\"evenly.record/1\",\"evenly\":\"0\"}\n");
        let mut rows = Vec::new();
        for i in 0..100 {
            let _ = writeln!(text, r#"{{"event":"thread","thread":{i},"tid":{i},"start":1}}"#);
            rows.push(format!("[{i},0,{},10,0,0,0,0]", i * 1000));
        }
        let rows = rows.join(",");
        for at in 1..10 {
            let _ = writeln!(
                text,
                r#"{{"event":"point","domain":0,"point":{at},"at":{},"elapsed":1000,"cost":0,"threads":[{rows}]}}"#,
                at * 1000
            );
        }
        let page = export(&Recording::parse(text.as_bytes()).unwrap());
        assert!(page.contains("100 curves are too many") && page.contains("and 76 more"));
        assert!(page.contains("has no end record"));
    }

    #[test]
    fn nothing_recorded_is_a_page_as_well() {
        let r = Recording::parse(b"{\"schema\":\"evenly.record/1\",\"evenly\":\"0\"}\n").unwrap();
        let page = export(&r);
        assert!(page.contains("No thread was seen running.") && page.ends_with("</html>\n"));
    }
}

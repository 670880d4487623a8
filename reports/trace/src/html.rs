//! One page about a recording: who ran where, progress, speeds, decisions, summary.
//!
//! Invariant: the page is complete in itself. It loads nothing, runs no script, and its size does
//! not grow with the length of the recording past a few megabytes.

use crate::lanes::{self, LEFT, TimeAxis};
use crate::reader::Recording;
use crate::summary;
use crate::timeline::{Cast, Timeline};
use evenly_draw::{COLOURS, escape};
use evenly_engine::{Event, PointRecord};
use evenly_model::{Nanos, counted};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Width of the drawings.
const WIDTH: f64 = 1_100.0;
/// Most spans per row, and in all.
const MAX_SPANS_PER_ROW: usize = 4_000;
const MAX_SPANS: usize = 24_000;
/// Rows of the decision log.
const MAX_DECISIONS: usize = 2_000;
/// Notes shown.
const MAX_NOTES: usize = 500;
/// Curves drawn one by one; of more, the range is drawn.
const MAX_CURVES: usize = 32;
/// Stretches into which a curve is summed up, each with its least and greatest value.
const CURVE_SLOTS: usize = 500;

/// Makes the page.
#[must_use]
pub fn export(recording: &Recording) -> String {
    let cast = Cast::of(recording);
    let timeline = Timeline::of(recording, &cast);
    let command = recording.header.command.join(" ");
    let title = if command.is_empty() { "evenly report".to_owned() } else { command };
    let mut page = format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark"><title>{} - evenly</title><style>{}{}</style></head><body>
<h1>{}</h1>
"#,
        escape(&title),
        PAGE_STYLE,
        evenly_draw::style(),
        escape(&title),
    );
    facts(&mut page, recording, &timeline);
    warnings(&mut page, recording);
    summary::summary(&mut page, recording, &cast);
    who_ran_where(&mut page, &timeline, &cast);
    progress(&mut page, recording, &cast, timeline.end);
    speeds(&mut page, recording, timeline.end);
    decisions(&mut page, recording, &cast);
    notes(&mut page, recording);
    page.push_str("</body></html>\n");
    page
}

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.45 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;max-width:1140px;\
margin:1.5rem auto;padding:0 1rem;color:#222;background:#fff}\
h1{font-size:1.35rem;margin:0 0 .3rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.6rem 0 .3rem}\
p{margin:.3rem 0}.quiet{color:#666;font-size:.87rem}\
.warn{border-left:4px solid #d55e00;padding:.2rem .7rem;margin:.6rem 0}\
svg{width:100%;height:auto;display:block}\
table{border-collapse:collapse;font-size:.87rem;font-variant-numeric:tabular-nums}\
th,td{text-align:left;padding:.15rem .9rem .15rem 0;vertical-align:top;border-bottom:1px solid #e2e5e8}\
td.n,th.n{text-align:right}.verdict{font-size:1.05rem;font-weight:600;margin:.4rem 0 .5rem}\
.facts th{font-weight:400;color:#666;white-space:nowrap}td{overflow-wrap:anywhere}\
.scroll{max-height:30rem;overflow:auto}.scroll th{position:sticky;top:0;background:#fff}\
pre{font-size:.82rem;overflow:auto;margin:.2rem 0}summary{cursor:pointer}\
@media(prefers-color-scheme:dark){body,.scroll th{color:#e4e6e8;background:#15181b}\
.quiet,.facts th{color:#9aa0a6}\
th,td{border-color:#343a40}}";

fn facts(page: &mut String, recording: &Recording, timeline: &Timeline) {
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
    let _ = writeln!(page, r#"<p class="quiet">{}</p>"#, escape(&parts.join(" \u{b7} ")));
}

fn warnings(page: &mut String, recording: &Recording) {
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
    for text in said {
        let _ = writeln!(page, r#"<p class="warn">{}</p>"#, escape(&text));
    }
}

fn svg(page: &mut String, height: f64, label: &str, body: &str) {
    let _ = writeln!(
        page,
        r#"<svg role="img" aria-label="{}" viewBox="0 0 {WIDTH:.0} {height:.0}">{body}</svg>"#,
        escape(label)
    );
}

fn who_ran_where(page: &mut String, timeline: &Timeline, cast: &Cast) {
    page.push_str("<h2>Who ran where</h2>\n");
    if timeline.rows.values().all(Vec::is_empty) {
        page.push_str("<p class=\"quiet\">No thread was seen running.</p>\n");
        return;
    }
    page.push_str(
        "<p class=\"quiet\">One row a CPU. The height of a colour is the thread's share of the CPU \
         time; what stays empty the program did not use. A thread is shown on the CPU where it was \
         found at the end of each period. Point at a colour for its thread.</p>\n",
    );
    let axis = TimeAxis { end: timeline.end, width: WIDTH };
    let rows = timeline.rows.len().clamp(1, lanes::MAX_ROWS);
    let most = MAX_SPANS_PER_ROW.min(MAX_SPANS / rows);
    let (mut grid, mut body) = (String::new(), String::new());
    let panel = lanes::panel(&mut body, timeline, cast, axis, 10.0, most, true);
    axis.draw(&mut grid, 6.0, 10.0 + panel.height, true);
    let names: Vec<String> = cast.actors.iter().map(|a| a.label()).collect();
    let bottom = 10.0 + panel.height + 38.0;
    let legend = lanes::legend(&mut body, &names, WIDTH, bottom);
    svg(page, bottom + legend, "which thread ran on which CPU over time", &(grid + &body));
    if !timeline.paused.is_empty() {
        page.push_str(
            "<p class=\"quiet\">Red bars above: balancing was paused, to measure its effect.</p>\n",
        );
    }
    if panel.summed {
        let _ = writeln!(
            page,
            "<p class=\"quiet\">There is more than can be drawn: rows with more than {most} spans \
             are summed up in slots of {}.</p>",
            Nanos(timeline.end / most.max(1) as u64)
        );
    }
    if panel.rows_left_out > 0 {
        let _ = writeln!(page, "<p class=\"quiet\">{} CPUs more.</p>", panel.rows_left_out);
    }
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

fn progress(page: &mut String, recording: &Recording, cast: &Cast, end: u64) {
    let mut curves: BTreeMap<usize, Curve> = BTreeMap::new();
    for p in points(recording) {
        let mean = p.threads.iter().map(|t| t.progress as f64).sum::<f64>()
            / p.threads.len().max(1) as f64;
        for t in &p.threads {
            let Some(i) = cast.index_of(t.id) else { continue };
            let curve = curves.entry(i).or_insert_with(|| Curve {
                name: cast.actors[i].label(),
                colour: i % COLOURS,
                values: Vec::new(),
            });
            curve.values.push((p.at.0, (t.progress as f64 - mean) / 1e6));
        }
    }
    page.push_str("<h2>Progress relative to the mean</h2>\n");
    page.push_str(
        "<p class=\"quiet\">CPU time received, in milliseconds ahead of (above 0) or behind (below \
         0) the mean of the threads balanced together. The closer the curves, the more equal the \
         progress.</p>\n",
    );
    let curves: Vec<Curve> = curves.into_values().collect();
    chart(page, &curves, end, "ms", None, "progress of the threads relative to their mean");
}

fn speeds(page: &mut String, recording: &Recording, end: u64) {
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
    page.push_str("<h2>Speed of the CPUs</h2>\n");
    page.push_str(
        "<p class=\"quiet\">Share of the time in which its threads wanted the CPU that they got it: \
         1 is a thread that has its CPU for itself.</p>\n",
    );
    let mut curves: Vec<Curve> = curves.into_values().collect();
    for (i, curve) in curves.iter_mut().enumerate() {
        curve.colour = i % COLOURS;
    }
    chart(page, &curves, end, "", Some((0.0, 1.0)), "speed of the CPUs over time");
}

/// Draws curves, or where there are too many to tell apart the range in which they lie.
fn chart(
    page: &mut String,
    curves: &[Curve],
    end: u64,
    unit: &str,
    range: Option<(f64, f64)>,
    label: &str,
) {
    const TOP: f64 = 10.0;
    const HEIGHT: f64 = 190.0;
    let finite = || curves.iter().flat_map(|c| &c.values).map(|v| v.1).filter(|v| v.is_finite());
    if finite().next().is_none() {
        page.push_str("<p class=\"quiet\">Nothing was recorded of it.</p>\n");
        return;
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
    let mut body = String::new();
    axis.draw(&mut body, TOP, TOP + HEIGHT, true);
    let step = evenly_draw::step(high - low, 5.0);
    let decimals = (-(step * 1.001).log10().floor()).clamp(0.0, 6.0) as usize;
    let mut tick = (low / step).ceil() * step;
    for _ in 0..20 {
        if tick > high + step * 1e-6 {
            break;
        }
        // Adding zero makes a negative zero positive.
        let shown = (tick / step).round() * step + 0.0;
        let _ = write!(
            body,
            r#"<line class="grid" x1="{LEFT:.1}" x2="{:.1}" y1="{:.1}" y2="{:.1}"/><text class="dim" text-anchor="end" x="{:.1}" y="{:.1}">{shown:.decimals$}{}{unit}</text>"#,
            axis.x(end),
            y(tick),
            y(tick),
            LEFT - 6.0,
            y(tick) + 4.0,
            if unit.is_empty() { "" } else { " " },
        );
        tick += step;
    }
    let mut bottom = TOP + HEIGHT + 38.0;
    if curves.len() <= MAX_CURVES {
        for curve in curves {
            draw_curve(&mut body, curve, axis, y);
        }
        let names: Vec<String> = curves.iter().map(|c| c.name.clone()).collect();
        bottom += lanes::legend(&mut body, &names, WIDTH, bottom);
    } else {
        draw_range(&mut body, curves, axis, y);
    }
    svg(page, bottom, label, &body);
    if curves.len() > MAX_CURVES {
        let _ = writeln!(
            page,
            "<p class=\"quiet\">{} curves are too many to tell apart: drawn is the range from the \
             lowest to the highest.</p>",
            curves.len()
        );
    }
}

fn draw_curve(body: &mut String, curve: &Curve, axis: TimeAxis, y: impl Fn(f64) -> f64) {
    let _ = write!(body, r#"<path class="line l{}" d=""#, curve.colour);
    let mut command = 'M';
    for (at, value) in slimmed(&curve.values, axis.end) {
        let _ = write!(body, "{command}{:.1} {:.1}", axis.x(at), y(value));
        command = 'L';
    }
    let _ = write!(body, r#""><title>{}</title></path>"#, escape(&curve.name));
}

fn draw_range(body: &mut String, curves: &[Curve], axis: TimeAxis, y: impl Fn(f64) -> f64) {
    let mut ranges: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (at, v) in curves.iter().flat_map(|c| &c.values).filter(|v| v.1.is_finite()) {
        let range = ranges.entry(slot(*at, axis.end)).or_insert((*v, *v));
        *range = (range.0.min(*v), range.1.max(*v));
    }
    let x = |slot: u64| axis.x((axis.end as f64 / CURVE_SLOTS as f64 * slot as f64) as u64);
    body.push_str(r#"<polygon class="band" points=""#);
    for (slot, range) in &ranges {
        let _ = write!(body, "{:.1},{:.1} ", x(*slot), y(range.1));
    }
    for (slot, range) in ranges.iter().rev() {
        let _ = write!(body, "{:.1},{:.1} ", x(*slot), y(range.0));
    }
    body.push_str("\"/>");
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

fn decisions(page: &mut String, recording: &Recording, cast: &Cast) {
    let all = || {
        recording.events.iter().flat_map(|e| match e {
            Event::Point(p) => p.moves.iter().map(|m| (p, m)).collect(),
            _ => Vec::new(),
        })
    };
    let count = all().count();
    let _ = writeln!(page, "<h2>Decisions</h2>");
    if count == 0 {
        page.push_str("<p class=\"quiet\">No thread was moved.</p>\n");
        return;
    }
    let failed = all().filter(|(_, m)| m.error.is_some()).count();
    let _ = writeln!(
        page,
        "<p class=\"quiet\">{} recorded{}.{}</p>",
        counted(count, "move"),
        if failed > 0 {
            format!(", {failed} of them could not be carried out")
        } else {
            String::new()
        },
        if count > MAX_DECISIONS {
            format!(
                " Shown are the first {MAX_DECISIONS}; {} more are in the recording.",
                count - MAX_DECISIONS
            )
        } else {
            String::new()
        }
    );
    page.push_str(
        "<div class=\"scroll\"><table><tr><th class=\"n\">time</th><th class=\"n\">domain</th>\
         <th class=\"n\">point</th><th>thread</th><th>CPU</th><th>why</th></tr>\n",
    );
    for (p, m) in all().take(MAX_DECISIONS) {
        let name = cast.index_of(m.id).map(|i| cast.actors[i].label()).unwrap_or_default();
        let mut why = m.reason.text().to_owned();
        if let Some(error) = &m.error {
            let _ = write!(why, "; not carried out: {error}");
        }
        let _ = writeln!(
            page,
            r#"<tr><td class="n">{}</td><td class="n">{}</td><td class="n">{}</td><td>{}</td><td>{} &#8594; {}</td><td>{}</td></tr>"#,
            lanes::seconds(p.at.0),
            p.domain,
            p.point,
            escape(&name),
            m.from,
            m.to,
            escape(&why)
        );
    }
    page.push_str("</table></div>\n");
}

fn notes(page: &mut String, recording: &Recording) {
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
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|n| n.0);
    page.push_str("<h2>Notes</h2>\n<table>");
    for (at, text) in all.iter().take(MAX_NOTES) {
        let _ = writeln!(
            page,
            r#"<tr><td class="n">{}</td><td>{}</td></tr>"#,
            lanes::seconds(*at),
            escape(text)
        );
    }
    page.push_str("</table>\n");
    if all.len() > MAX_NOTES {
        let _ = writeln!(page, "<p class=\"quiet\">{} more.</p>", all.len() - MAX_NOTES);
    }
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

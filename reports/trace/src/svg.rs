//! A picture of who ran where, in one SVG file: several recordings below each other on one time
//! axis, so that one sees which was done first.

use crate::lanes::{self, TimeAxis};
use crate::reader::Recording;
use crate::timeline::{Actor, Cast, Timeline};
use evenly_draw::{Anchor, Canvas};
use evenly_model::Nanos;

/// How the picture is made.
#[derive(Debug, Clone)]
pub struct TimelineOptions {
    /// Its title; none where empty.
    pub title: String,
    /// Its width in pixels; 400 to 4,000.
    pub width: u32,
    /// Most spans drawn per CPU; above it, spans are summed up in slots of equal length.
    pub max_spans_per_row: usize,
}

impl Default for TimelineOptions {
    fn default() -> Self {
        Self { title: String::new(), width: 1_000, max_spans_per_row: 1_500 }
    }
}

/// Draws the recordings, each with its label, below each other.
///
/// In each row (a CPU) the height of a colour is the share of the CPU time that the thread got; what
/// stays empty was not used by the program. Threads have colours in the order in which they were
/// first seen, so that recordings of the same program can be compared.
#[must_use]
pub fn timeline(recordings: &[(&str, &Recording)], options: &TimelineOptions) -> String {
    let width = f64::from(options.width.clamp(400, 4_000));
    let drawn: Vec<(&str, Cast, Timeline)> = recordings
        .iter()
        .map(|(label, recording)| {
            let cast = Cast::of(recording);
            let timeline = Timeline::of(recording, &cast);
            (*label, cast, timeline)
        })
        .collect();
    let end = drawn.iter().map(|(_, _, t)| t.end).max().unwrap_or(0);
    let axis = TimeAxis { end, width };
    let mut body = Canvas::default();
    let mut y = 8.0;
    if !options.title.is_empty() {
        y += 18.0;
        body.text("title", Anchor::Start, (16.0, y), &options.title);
        y += 10.0;
    }
    let first_panel = y;
    let mut panels = Canvas::default();
    let mut notes = Vec::new();
    for (label, cast, timeline) in &drawn {
        y += 18.0;
        let end = Nanos(timeline.end).to_string();
        panels.two_texts((16.0, y), ("head", label), ("dim", &end));
        y += 11.0;
        let most = options.max_spans_per_row;
        let panel = lanes::panel(&mut panels, timeline, cast, axis, y, most);
        let x = axis.x(timeline.end);
        panels.line("mark", (x, y - 2.0), (x, y + panel.height));
        if panel.rows_left_out > 0 {
            notes.push(format!("{label}: {} CPUs more", panel.rows_left_out));
        }
        if panel.summed {
            let slot = Nanos(timeline.end / most.max(1) as u64);
            notes.push(format!("{label}: summed up in slots of {slot}"));
        }
        y += panel.height + 8.0;
    }
    axis.draw(&mut body, first_panel + 20.0, y - 4.0);
    body.add(&panels);
    y += 34.0;
    y += lanes::legend(&mut body, &names(&drawn), width, y);
    notes.insert(0, key(&drawn));
    for note in notes {
        body.text("dim", Anchor::Start, (16.0, y), &note);
        y += 16.0;
    }
    body.document(width, y, "")
}

/// What is to be seen, in words.
fn key(drawn: &[(&str, Cast, Timeline)]) -> String {
    let mut text = String::from(
        "height of a colour: the thread's share of the CPU's time; empty: not used by the program; \
         vertical line: end",
    );
    if drawn.iter().any(|(_, _, t)| !t.paused.is_empty()) {
        text.push_str("; red bar above: balancing paused, to measure its effect");
    }
    text
}

/// What the legend says: thread ids where there is one recording, else what the recordings share.
fn names(drawn: &[(&str, Cast, Timeline)]) -> Vec<String> {
    if let [(_, cast, _)] = drawn {
        return cast.actors.iter().map(Actor::label).collect();
    }
    let most = drawn.iter().map(|(_, cast, _)| cast.actors.len()).max().unwrap_or(0);
    (1..=most).map(|i| format!("thread {i}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;
    use evenly_engine::Event;

    #[test]
    fn a_small_picture() {
        let svg = timeline(&[("evenly", &testdata::small())], &TimelineOptions::default());
        let body = svg.split("</style>").nth(1).unwrap();
        insta::assert_snapshot!(body.replace("><", ">\n<"));
    }

    #[test]
    fn several_share_an_axis_and_labels_are_escaped() {
        let small = testdata::small();
        let options = TimelineOptions { title: "a & b".to_owned(), ..TimelineOptions::default() };
        let svg = timeline(&[("<static>", &small), ("kernel", &small)], &options);
        assert!(svg.contains("&lt;static&gt;") && svg.contains("a &amp; b"));
        assert!(!svg.contains("<static>") && svg.contains("thread 3"));
        assert_eq!(svg.matches(r#"class="mark""#).count(), 2);
        assert_eq!(svg.matches("height of a colour").count(), 1);
        let paused = small.events.iter().any(|e| matches!(e, Event::Point(p) if p.paused));
        assert_eq!(svg.contains("red bar above"), paused);
    }

    #[test]
    fn long_recordings_stay_small() {
        let bytes = testdata::bytes(
            &testdata::header(),
            &testdata::events(20_000, true),
            &serde_json::Value::Null,
        );
        let long = Recording::parse(&bytes).unwrap();
        let svg = timeline(&[("long", &long)], &TimelineOptions::default());
        assert!(svg.len() < 1_500_000, "{}", svg.len());
        assert!(svg.contains("summed up in slots of 133.3 ms"));
    }

    #[test]
    fn nothing_recorded_is_a_picture_as_well() {
        let r = Recording::parse(b"{\"schema\":\"evenly.record/1\",\"evenly\":\"0\"}\n").unwrap();
        assert!(timeline(&[("x", &r)], &TimelineOptions::default()).ends_with("</svg>\n"));
        assert!(timeline(&[], &TimelineOptions::default()).ends_with("</svg>\n"));
    }
}

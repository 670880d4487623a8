//! Pictures of made-up programs, of any size, and the parts that they are drawn from.

use super::*;
use crate::synthetic;
use evenly_engine::Event;
use evenly_model::{DomainId, Pid};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn header(policy: &str) -> Header {
    Header {
        pid: Pid(41_000),
        command: "./spmd --threads 3 --phases 100 --work 20ms".into(),
        policy: policy.into(),
    }
}

fn beside(state: OtherState) -> Option<OtherEvenly> {
    Some(OtherEvenly { pid: Pid(7), state, given: Nanos::ZERO })
}

fn view(threads: u32, cpus: u32, domains: u32, balances: bool) -> View {
    let mut v = View::new(!balances);
    for e in synthetic::run(threads, cpus, domains, 300, balances) {
        v.apply(&e);
    }
    v
}

fn draw(v: &View, h: &Header, ui: &Ui, size: (u16, u16)) -> TestBackend {
    let look = Look { color: false, ascii: false };
    let mut t = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    t.draw(|f| {
        render(v, h, ui, look, f.area(), f.buffer_mut());
    })
    .unwrap();
    t.backend().clone()
}

#[test]
fn balanced_80x24() {
    let v = view(3, 2, 1, true);
    insta::assert_snapshot!(draw(&v, &header("hybrid"), &Ui::default(), (80, 24)));
}

#[test]
fn observed_uneven_120x40() {
    let v = view(9, 8, 2, false);
    insta::assert_snapshot!(draw(&v, &header("observe"), &Ui::default(), (120, 40)));
}

/// A probe reports how much two of three threads spin.
#[test]
fn spinning_is_a_column_where_a_probe_reports_it() {
    let mut v = View::new(true);
    for mut e in synthetic::run(3, 2, 1, 300, false) {
        if let Event::Point(p) = &mut e {
            for (i, t) in p.threads.iter_mut().enumerate().take(2) {
                t.spinning = Some(Nanos((t.ran + t.waited).0 * i as u64 / 4));
            }
        }
        v.apply(&e);
    }
    let h = header("observe");
    let ui = Ui { sort: Sort::Spinning, ..Ui::default() };
    insta::assert_snapshot!(draw(&v, &h, &ui, (80, 24)));
    assert!(draw(&v, &h, &ui, (120, 24)).to_string().contains("RUN/WAIT/BLOCK"));
    // The column goes where there is no room, before those that say where a thread stands.
    assert!(!draw(&v, &h, &ui, (34, 10)).to_string().contains("SPIN"));
    let silent = draw(&view(3, 2, 1, false), &h, &Ui::default(), (120, 24)).to_string();
    assert!(!silent.contains("SPIN"), "{silent}");
}

/// Three threads that stay where they are on two CPUs and sleep while they wait: half of their time
/// is computing, a third goes to run queues.
#[test]
fn efficiencies_stand_below_what_evenly_does() {
    let mut v = View::new(true);
    for mut e in synthetic::run(3, 2, 1, 300, false) {
        if let Event::Point(p) = &mut e {
            // The one that has a CPU to itself is done in half of the time.
            for t in p.threads.iter_mut().filter(|t| t.waited == Nanos::ZERO) {
                t.blocked = Nanos(t.ran.0 / 2);
                t.ran = t.ran - t.blocked;
                t.progress /= 2;
            }
        }
        v.apply(&e);
    }
    let h = header("observe");
    insta::assert_snapshot!(draw(&v, &h, &Ui::default(), (120, 20)));
    let words =
        "in run queues 33%; parallel efficiency 50% = load balance 100% x communication 50%;";
    let line = plain(&v, DomainId(0), &h);
    assert!(line.contains(words), "{line}");
}

#[test]
fn beside_a_balancer_figures_are_marked_as_those_of_the_view() {
    let (mut v, alone) = (view(3, 2, 1, false), header("observe"));
    let shown = draw(&v, &alone, &Ui::default(), (120, 24)).to_string();
    assert!(!shown.contains("this view"));
    v.balanced_by(beside(OtherState::Working));
    let shown = draw(&v, &alone, &Ui::default(), (120, 24)).to_string();
    assert!(shown.contains("this view: period") && shown.contains("this view: overhead"));
    assert!(shown.contains("watching; evenly (pid 7) balances it"), "{shown}");
}

#[test]
fn a_balancer_that_is_stopped_or_gone_is_shown_on_every_screen() {
    for (state, word) in [(OtherState::Stopped, "STOPPED"), (OtherState::Gone, "ENDED")] {
        for threads in [0, 3] {
            let mut v = view(threads, 2, 1, false);
            v.balanced_by(beside(OtherState::Working));
            v.balanced_by(beside(state));
            let h = header("observe");
            for size in [(40, 10), (80, 24), (120, 40)] {
                let seen = draw(&v, &h, &Ui::default(), size).to_string();
                assert!(seen.contains("evenly (pid 7)") && seen.contains(word), "{seen}");
                assert!(!seen.contains("balances it"), "{seen}");
            }
            let line = plain(&v, DomainId(0), &h);
            assert!(line.contains(word) && line.contains("is not balanced"), "{line}");
            // It stands out where there is colour.
            let area = Rect::new(0, 0, 80, 24);
            let look = Look { color: true, ascii: false };
            let mut buf = Buffer::empty(area);
            render(&v, &h, &Ui::default(), look, area, &mut buf);
            let row = buf
                .content
                .chunks(80)
                .find(|row| row.iter().map(|c| c.symbol()).collect::<String>().contains("(pid 7)"));
            assert_eq!(row.unwrap()[1].fg, Color::Yellow);
        }
    }
}

#[test]
fn small_40x10() {
    let v = view(3, 2, 1, false);
    insta::assert_snapshot!(draw(&v, &header("observe"), &Ui::default(), (40, 10)));
}

/// Before the first period is over nothing is known, and no zero stands for that.
#[test]
fn the_first_screen_says_that_it_is_measuring() {
    let h = header("observe");
    let screen = |v: &View| draw(v, &h, &Ui::default(), (80, 24)).to_string();
    let none = View::new(true);
    let seen = screen(&none);
    assert!(seen.contains("MEASURING: no thread has been seen computing yet"), "{seen}");
    assert!(!seen.contains("0.00") && !seen.contains("LEVEL"), "{seen}");
    // Found, and at their first point, which has no period before it.
    let mut v = View::new(true);
    let events = synthetic::run(3, 2, 1, 2, false);
    let (second, first) = events.split_last().unwrap();
    for e in first {
        v.apply(e);
    }
    insta::assert_snapshot!("the_first_screen_80x24", draw(&v, &h, &Ui::default(), (80, 24)));
    assert!(plain(&v, DomainId(0), &h).contains("MEASURING: 3 threads found"));
    v.apply(second);
    let seen = screen(&v);
    assert!(!seen.to_lowercase().contains("measuring") && seen.contains("CPU   0"), "{seen}");
    // An end before that is an end.
    let mut ended = none;
    ended.ended = true;
    assert!(screen(&ended).contains("The program has ended"));
}

#[test]
fn no_threads_80x24() {
    let v = view(0, 2, 1, false);
    insta::assert_snapshot!(draw(&v, &header("observe"), &Ui::default(), (80, 24)));
}

#[test]
fn three_hundred_threads_scrolled_80x24() {
    let v = view(300, 128, 1, false);
    let ui = Ui { scroll: 100, sort: Sort::Tid, ..Ui::default() };
    insta::assert_snapshot!(draw(&v, &header("observe"), &ui, (80, 24)));
    let end = Ui { scroll: usize::MAX, ..ui };
    let seen = draw(&v, &header("observe"), &end, (80, 24)).to_string();
    assert!(seen.contains("to 300 of 300"), "{seen}");
    // A scroll past the end is returned as it is shown, so that the next key up moves at once.
    let area = Rect::new(0, 0, 80, 24);
    let look = Look::default();
    let first = render(&v, &header("observe"), &end, look, area, &mut Buffer::empty(area));
    assert!(seen.contains(&format!("threads {} to", first + 1)), "{first}: {seen}");
}

#[test]
fn help_80x24_and_40x10() {
    let v = view(3, 2, 1, false);
    let ui = Ui { help: true, ..Ui::default() };
    insta::assert_snapshot!(draw(&v, &header("observe"), &ui, (80, 24)));
    insta::assert_snapshot!(draw(&v, &header("observe"), &ui, (40, 10)));
}

#[test]
fn one_domain_of_two_and_a_paused_display() {
    let v = view(9, 8, 2, true);
    let only = Some(DomainId(1));
    let ui = Ui { only, frozen: Some(Box::new(v.clone())), ..Ui::default() };
    insta::assert_snapshot!(draw(&v, &header("juggle"), &ui, (100, 30)));
}

#[test]
fn no_size_panics_and_no_line_is_split() {
    for v in [view(0, 1, 1, false), view(3, 2, 1, true), view(300, 128, 2, false)] {
        for help in [false, true] {
            let ui = Ui { help, scroll: 7, ..Ui::default() };
            for w in (1..50).step_by(3).chain([79, 200]) {
                for h in (1..30).step_by(2).chain([2, 70]) {
                    draw(&v, &header("observe"), &ui, (w, h));
                }
            }
        }
    }
}

#[test]
fn colour_changes_no_text_and_no_color_has_none() {
    let v = view(9, 8, 1, false);
    let area = Rect::new(0, 0, 80, 24);
    let drawn = |color| {
        let mut buf = Buffer::empty(area);
        let look = Look { color, ascii: false };
        render(&v, &header("observe"), &Ui::default(), look, area, &mut buf);
        buf
    };
    let (plain, coloured) = (drawn(false), drawn(true));
    let text = |b: &Buffer| b.content.iter().map(|c| c.symbol().to_owned()).collect::<String>();
    assert_eq!(text(&plain), text(&coloured));
    assert!(plain.content.iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
    assert!(coloured.content.iter().any(|c| c.fg == Color::Yellow));
}

#[test]
fn ascii_look_is_ascii() {
    let v = view(9, 8, 2, true);
    let area = Rect::new(0, 0, 120, 40);
    for help in [false, true] {
        let mut buf = Buffer::empty(area);
        let look = Look { color: true, ascii: true };
        let ui = Ui { help, ..Ui::default() };
        render(&v, &header("hybrid"), &ui, look, area, &mut buf);
        assert!(buf.content.iter().all(|c| c.symbol().is_ascii()));
    }
}

#[test]
fn spans_keep_to_eight_columns() {
    let shown: Vec<String> = [0.0, 1e6, 999e6, 1e9, 99.99e9, 100e9, 599e9, 3e12, 3599.9e9, 9e15]
        .iter()
        .map(|&n| span(n))
        .collect();
    assert_eq!(
        shown,
        [
            "0 ms",
            "1 ms",
            "999 ms",
            "1.00 s",
            "99.99 s",
            "100.0 s",
            "599.0 s",
            "50 m 00 s",
            "1 h 00 m",
            "2500 h 00 m"
        ]
    );
}

#[test]
fn wide_names_are_cut_by_columns() {
    assert_eq!(cut("計算スレッド", 7, &UNICODE), "計算ス…");
    assert_eq!(width(&left("計算スレッド", 8, &UNICODE)), 8);
    assert_eq!(cut("abc", 0, &UNICODE), "");
}

#[test]
fn bars_are_filled_by_their_parts() {
    let s = Shares { running: 0.5, waiting: 0.25, blocked: 0.25, spinning: None };
    assert_eq!(bar(s, 8, &ASCII), "####--..");
    let s = Shares { running: 1.0 / 3.0, waiting: 1.0 / 3.0, blocked: 1.0 / 3.0, spinning: None };
    assert_eq!(bar(s, 10, &ASCII), "###----...");
    assert_eq!(bar(Shares::default(), 3, &ASCII), "   ");
}

#[test]
fn names_and_notes_from_outside_cannot_drive_the_terminal() {
    let hostile = "a) (\n\u{1b}[2J\u{9b}1m\u{202e}\u{e4}";
    let shown = "a) (\u{fffd}\u{fffd}[2J\u{fffd}1m\u{fffd}\u{e4}";
    let mut v = view(3, 2, 1, true);
    for thread in v.threads.values_mut() {
        thread.name = hostile.into();
    }
    v.apply(&Event::Note { at: v.now, text: format!("about {hostile}") });
    let header = Header { command: hostile.into(), ..header("hybrid") };
    let drawn = draw(&v, &header, &Ui::default(), (100, 30)).to_string();
    let domain = *v.domains.keys().next().unwrap();
    for text in [drawn, plain(&v, domain, &header)] {
        assert!(text.chars().all(|c| c == '\n' || evenly_model::is_printable(c)), "{text:?}");
        assert!(text.contains(shown), "{text}");
    }
}

#[test]
fn notes_stand_in_the_history() {
    let mut v = view(3, 2, 1, true);
    let text = String::from("balancing stands down: with it the program was slower");
    v.apply(&Event::Note { at: v.now, text });
    let seen = draw(&v, &header("hybrid"), &Ui::default(), (80, 24)).to_string();
    assert!(seen.contains("balancing stands down: with it"), "{seen}");
}

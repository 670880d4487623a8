//! What the user has chosen on the screen, and what keys do to it; pure.
//!
//! Invariant: keys change only what is shown, never the balancing.

use crate::{Sort, View};
use evenly_model::DomainId;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks of the terminal's loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing is different.
    None,
    /// The view is to be drawn again.
    Redraw,
    /// Draw again from nothing: the screen may hold the output of others.
    Repaint,
    /// The user wants to quit.
    Quit,
    /// Stop, as Ctrl-Z does elsewhere.
    Suspend,
}

/// What the user has chosen to see.
#[derive(Debug, Clone, Default)]
pub struct Ui {
    /// The column by which threads are sorted.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub reverse: bool,
    /// The only domain that is shown; none for all.
    pub only: Option<DomainId>,
    /// First line shown: of the help if that is open, else of the threads.
    pub scroll: usize,
    /// Whether the help is open.
    pub help: bool,
    /// What was on the screen when the display was paused.
    pub frozen: Option<Box<View>>,
}

/// Lines that a page key scrolls.
const PAGE: usize = 10;

impl Ui {
    /// Takes one key. `live` is the view as it is now.
    pub fn key(&mut self, key: KeyEvent, live: &View) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd' | '\\') => Action::Quit,
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('l') => Action::Repaint,
                _ => Action::None,
            };
        }
        // Capital letters are the same commands.
        let code = match key.code {
            KeyCode::Char(c) => KeyCode::Char(c.to_ascii_lowercase()),
            other => other,
        };
        match code {
            KeyCode::Esc if self.help => self.toggle_help(),
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.toggle_help(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => {
                self.scroll = self.scroll.saturating_add(PAGE);
            }
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = usize::MAX,
            _ if self.help => return Action::None,
            KeyCode::Char('s') => {
                (self.sort, self.reverse, self.scroll) = (self.sort.next(), false, 0);
            }
            KeyCode::Char('r') => (self.reverse, self.scroll) = (!self.reverse, 0),
            KeyCode::Char('p') => {
                self.frozen = match self.frozen {
                    Some(_) => None,
                    None => Some(Box::new(live.clone())),
                }
            }
            KeyCode::Char('d') => {
                self.only = next_domain(live, self.only);
                self.scroll = 0;
            }
            _ => return Action::None,
        }
        Action::Redraw
    }

    fn toggle_help(&mut self) {
        self.help = !self.help;
        self.scroll = 0;
    }
}

/// All, then each domain, then all again. With one domain there is nothing to choose.
fn next_domain(view: &View, only: Option<DomainId>) -> Option<DomainId> {
    if view.domains.len() < 2 {
        return None;
    }
    match only {
        None => view.domains.keys().next().copied(),
        Some(d) => view.domains.range(d..).map(|(&id, _)| id).find(|&id| id > d),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn view(domains: u32) -> View {
        let mut v = View::new(false);
        for e in synthetic::run(4, 4, domains, 2, false) {
            v.apply(&e);
        }
        v
    }

    fn press(ui: &mut Ui, v: &View, keys: &str) -> Action {
        let mut last = Action::None;
        for c in keys.chars() {
            last = ui.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), v);
        }
        last
    }

    #[test]
    fn sort_goes_round_and_starts_unreversed() {
        let (mut ui, v) = (Ui::default(), view(1));
        press(&mut ui, &v, "rs");
        assert_eq!((ui.sort, ui.reverse), (Sort::Name, false));
        press(&mut ui, &v, "sssssssss");
        assert_eq!(ui.sort, Sort::Mean);
    }

    #[test]
    fn domains_go_round() {
        let (mut ui, v) = (Ui::default(), view(2));
        let mut seen = Vec::new();
        for _ in 0..3 {
            press(&mut ui, &v, "d");
            seen.push(ui.only.map(|d| d.0));
        }
        assert_eq!(seen, [Some(0), Some(1), None]);
        let one = view(1);
        press(&mut ui, &one, "d");
        assert_eq!(ui.only, None);
    }

    #[test]
    fn pausing_keeps_what_was_there() {
        let (mut ui, mut v) = (Ui::default(), view(1));
        press(&mut ui, &v, "p");
        let then = v.now;
        for e in synthetic::run(4, 4, 1, 9, false) {
            v.apply(&e);
        }
        assert_eq!(ui.frozen.as_ref().unwrap().now, then);
        assert!(v.now > then);
        press(&mut ui, &v, "p");
        assert!(ui.frozen.is_none());
    }

    #[test]
    fn control_keys_do_what_they_do_elsewhere() {
        let (mut ui, v) = (Ui::default(), view(1));
        for (c, action) in [('c', Action::Quit), ('z', Action::Suspend), ('l', Action::Repaint)] {
            assert_eq!(ui.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL), &v), action);
        }
        assert_eq!(press(&mut ui, &v, "q"), Action::Quit);
        // In the help, escape closes the help.
        press(&mut ui, &v, "?");
        let esc = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
        assert_eq!(ui.key(esc, &v), Action::Redraw);
        assert_eq!(ui.key(esc, &v), Action::Quit);
    }
}

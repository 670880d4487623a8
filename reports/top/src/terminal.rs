//! The terminal: alternate screen, keys, signals.
//!
//! Invariant: however this ends (a key, a signal, an error, a panic here or in any other thread),
//! the terminal is as it was.

use crate::{Action, Exit, Feed, Header, Look, Ui, View, World, render};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event as Input};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use std::io::{self, BufWriter, Stdout, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// How often it is checked which evenly balances the program.
const ASK: Duration = Duration::from_millis(500);

/// Whether the terminal is ours at the moment. A static, because a panic hook outlives any borrow.
static OURS: AtomicBool = AtomicBool::new(false);

/// Takes the waiting events into the view.
pub(crate) fn drain(feed: &Feed, view: &mut View) -> bool {
    let (events, dropped) = feed.take();
    view.missed += dropped;
    for e in &events {
        view.apply(e);
    }
    !events.is_empty()
}

/// Catches the signals that end a program, until it is dropped.
pub(crate) struct Signals {
    arrived: Arc<AtomicUsize>,
    ids: Vec<SigId>,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let mut this = Self { arrived: Arc::default(), ids: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = Arc::clone(&this.arrived);
            this.ids.push(signal_hook::flag::register_usize(signal, flag, signal as usize)?);
        }
        Ok(this)
    }

    pub(crate) fn arrived(&self) -> Option<i32> {
        // Nothing else is read because of it, so no ordering is needed.
        match self.arrived.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    OURS.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Gives the terminal back, once. Returns whether it was ours.
fn leave() -> io::Result<bool> {
    if !OURS.swap(false, Ordering::SeqCst) {
        return Ok(false);
    }
    // Both are tried, whatever becomes of the first.
    let screen = execute!(io::stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, cursor::Show);
    disable_raw_mode()?;
    screen.map(|()| true)
}

type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send + 'static>;

/// The terminal while it is ours, with a panic hook that restores it before the message of the
/// panic is printed, which would be lost with the alternate screen.
struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    previous: Arc<Hook>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        let previous: Arc<Hook> = Arc::new(panic::take_hook());
        let chained = Arc::clone(&previous);
        panic::set_hook(Box::new(move |info| {
            // There is no way to report a failure here.
            let _ = leave();
            chained(info);
        }));
        let open = || {
            enter()?;
            Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout())))
        };
        match open() {
            Ok(terminal) => Ok(Self { terminal, previous }),
            Err(e) => {
                let _ = leave();
                unhook(&previous);
                Err(e)
            }
        }
    }

    fn draw(&mut self, view: &View, header: &Header, ui: &mut Ui, look: Look) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        let mut first = 0;
        self.terminal.draw(|frame| {
            let area = frame.area();
            let shown = ui.frozen.as_deref().unwrap_or(view);
            first = render(shown, header, ui, look, area, frame.buffer_mut());
        })?;
        // Past the end there is nothing to scroll back through.
        ui.scroll = ui.scroll.min(first);
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        self.terminal.backend_mut().flush()
    }

    /// Stops this program as Ctrl-Z does, and comes back with `fg`.
    fn suspend(&mut self) -> io::Result<()> {
        leave()?;
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        enter()?;
        self.terminal.clear()
    }
}

fn unhook(previous: &Arc<Hook>) {
    // While it panics a thread may not change the hook; the one in place does no harm then.
    if !std::thread::panicking() {
        drop(panic::take_hook());
        let previous = Arc::clone(previous);
        panic::set_hook(Box::new(move |info| previous(info)));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = leave();
        unhook(&self.previous);
    }
}

/// Shows the live view on the terminal at standard output until the user quits or SIGINT, SIGTERM
/// or SIGHUP arrives (which is returned, not acted upon). Once no more events will come, the last
/// state stays on the screen until the user quits.
///
/// # Errors
/// Errors of the terminal, in particular where standard output is none
/// ([`has_terminal`](crate::has_terminal) checks that). The terminal is restored first.
pub fn run_terminal(feed: &Feed, header: &Header, world: World<'_>) -> io::Result<Exit> {
    let look = Look::from_env();
    let signals = Signals::catch()?;
    let mut view = View::new(header.observes());
    let mut ui = Ui::default();
    let mut screen = Screen::open()?;
    let mut drawn: Option<Instant> = None;
    let mut asked: Option<Instant> = None;
    let mut dirty = true;
    loop {
        if let Some(signal) = signals.arrived() {
            return Ok(Exit::Signal(signal));
        }
        if !OURS.load(Ordering::SeqCst) {
            // A thread panicked, and the hook restored the terminal, which shows the message now.
            return Err(io::Error::other("a thread of evenly panicked; the view is closed"));
        }
        // Checked before the events are taken: those before the end are then among them.
        let over = (world.ended)();
        dirty |= drain(feed, &mut view) && ui.frozen.is_none();
        if over && !view.ended {
            (view.ended, dirty) = (true, true);
        }
        // The balancer ends with the program, which needs no mention.
        if !view.ended && asked.is_none_or(|t| t.elapsed() >= ASK) {
            asked = Some(Instant::now());
            dirty |= view.balanced_by((world.balancer)());
        }
        if dirty && drawn.is_none_or(|t| t.elapsed() >= FRAME) {
            screen.draw(&view, header, &mut ui, look)?;
            (drawn, dirty) = (Some(Instant::now()), false);
        }
        let wait = drawn.map_or(Duration::ZERO, |t| FRAME.saturating_sub(t.elapsed()));
        let wait = if dirty { wait } else { FRAME };
        let some = match event::poll(wait) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => false,
            other => other?,
        };
        if !some {
            continue;
        }
        match event::read()? {
            Input::Key(key) => match ui.key(key, &view) {
                Action::None => {}
                Action::Redraw => dirty = true,
                Action::Repaint => {
                    screen.terminal.clear()?;
                    dirty = true;
                }
                Action::Suspend => {
                    screen.suspend()?;
                    dirty = true;
                }
                Action::Quit => return Ok(if view.ended { Exit::Ended } else { Exit::Quit }),
            },
            Input::Resize(..) => dirty = true,
            _ => {}
        }
    }
}

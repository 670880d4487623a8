//! What is said in words, for the report and the observers.

use crate::machine::Failure;
use crate::{Event, Observer};
use evenly_model::Nanos;

/// What has been said.
#[derive(Debug)]
pub(crate) struct Notes {
    began: Nanos,
    kept: Vec<String>,
    /// A thread that is left alone has been reported; the report names one.
    named_one: bool,
    noted_weight: bool,
}

impl Notes {
    pub(crate) fn new(began: Nanos) -> Self {
        Self { began, kept: Vec::new(), named_one: false, noted_weight: false }
    }

    /// The notes that the report shows, each once.
    pub(crate) fn kept(&self) -> &[String] {
        &self.kept
    }

    /// Informs the observers, and keeps it for the report.
    pub(crate) fn note(&mut self, now: Nanos, text: String, observers: &mut [Box<dyn Observer>]) {
        self.tell(now, &text, observers);
        self.kept.push(text);
    }

    /// Passes a note on to the observers, and keeps nothing.
    pub(crate) fn tell(&self, now: Nanos, text: &str, observers: &mut [Box<dyn Observer>]) {
        for o in observers {
            o.event(&Event::Note { at: now - self.began, text: text.to_owned() });
        }
    }

    /// A thread is left alone.
    pub(crate) fn left_alone(
        &mut self,
        now: Nanos,
        failure: &Failure,
        observers: &mut [Box<dyn Observer>],
    ) {
        let text = format!("thread {} is left alone: {}", failure.thread, failure.error);
        if std::mem::replace(&mut self.named_one, true) {
            self.tell(now, &text, observers);
        } else {
            self.note(now, text, observers);
        }
    }

    /// A thread does not get a weight: said once.
    pub(crate) fn not_weighed(
        &mut self,
        now: Nanos,
        failure: &Failure,
        observers: &mut [Box<dyn Observer>],
    ) {
        if !std::mem::replace(&mut self.noted_weight, true) {
            self.note(now, failure.keeps_its_share(), observers);
        }
    }
}

//! Checks for JavaScript: progress and report.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diskwright::Format;
use diskwright::check::{Collector, Finding, Limits, Observer, Phase, Summary};
use serde_json::{Map, Value};

/// Maximum number of findings kept per kind. All are counted.
const KEPT_MAX: usize = 100;
/// Number of progress steps per phase.
const STEPS: u64 = 100;

/// Progress callback: name of the phase, done and total. It returns false to cancel.
pub(crate) type Tell<'a> = &'a (dyn Fn(&str, u64, u64) -> bool + Sync);

/// Observer that collects findings and reports progress.
pub(crate) struct Watcher<'a> {
    collector: Collector,
    tell: Tell<'a>,
    told: AtomicU64,
    is_cancelled: AtomicBool,
}

impl<'a> Watcher<'a> {
    /// Creates an observer with a progress callback.
    pub(crate) fn new(tell: Tell<'a>) -> Self {
        let limits = Limits { findings_max: KEPT_MAX, ..Limits::default() };
        let (collector, told) = (Collector::new(limits), AtomicU64::new(u64::MAX));
        Self { collector, tell, told, is_cancelled: AtomicBool::new(false) }
    }

    /// Returns the report of `diskwright check --json` without the image name, with JavaScript keys.
    pub(crate) fn report(self, format: Format, summary: Summary) -> Value {
        let mut report = self.collector.report_on(Path::new(""), format, summary);
        report.is_interrupted = self.is_cancelled.into_inner();
        let mut report = serde_json::from_str(&report.json_line()).unwrap_or_default();
        if let Value::Object(fields) = &mut report {
            fields.remove("image");
        }
        in_camel_case(report)
    }
}

impl Observer for Watcher<'_> {
    fn found(&self, finding: Finding) {
        self.collector.found(finding);
    }

    /// Reports only complete steps of a phase, because calls are more expensive than the work.
    fn progress(&self, phase: Phase, done: u64, total: u64) {
        let step = phase as u64 * (STEPS + 1) + done.saturating_mul(STEPS) / total.max(1);
        if self.told.swap(step, Ordering::Relaxed) != step
            && !(self.tell)(phase.word(), done, total)
        {
            self.is_cancelled.store(true, Ordering::Relaxed);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// Converts `snake_case` keys to `camelCase`, to the depth of a report.
fn in_camel_case(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(in_camel_case).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (camel(&key), in_camel_case(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other,
    }
}

fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
        text + &String::from_iter(initial) + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_get_capitals_and_values_stay() {
        let value = serde_json::json!({
            "left_out": 1, "kinds": [{ "at-risk": 2, "is_it_so": "not_this" }], "a_": 3, "": 4
        });
        let expected = serde_json::json!({
            "leftOut": 1, "kinds": [{ "at-risk": 2, "isItSo": "not_this" }], "a": 3, "": 4
        });
        assert_eq!(in_camel_case(value), expected);
    }
}

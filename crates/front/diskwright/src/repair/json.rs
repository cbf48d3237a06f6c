//! Plans as JSON. `docs/check.md` describes the format.

use operations::repair::{Action, PAGE_BYTES, Plan, Step, pages_of};
use serde::Serialize;

use super::{Done, Repair, Standing};
use crate::check::json::{ImageName, KindRecord};
use crate::text::{lossy, not_utf8};

#[derive(Serialize)]
struct ActionRecord<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    what: &'p str,
}

impl<'p> ActionRecord<'p> {
    fn new(action: &'p Action) -> Self {
        let place = &action.place;
        Self {
            code: action.code.map(|code| code.name),
            group: place.group,
            block: place.block,
            inode: place.inode,
            path: action.path.as_deref().map(lossy),
            path_bytes: action.path.as_deref().and_then(not_utf8),
            what: &action.what,
        }
    }
}

#[derive(Serialize)]
struct StepRecord<'p> {
    actions: Vec<ActionRecord<'p>>,
    bytes: u64,
}

impl<'p> StepRecord<'p> {
    fn new(step: &'p Step) -> Self {
        let bytes = step.pages.len() as u64 * PAGE_BYTES;
        Self { actions: step.actions.iter().map(ActionRecord::new).collect(), bytes }
    }
}

#[derive(Serialize)]
struct PathRecord {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

/// Plan and its result.
#[derive(Serialize)]
struct PlanRecord<'p> {
    #[serde(flatten)]
    image: ImageName,
    format: &'static str,
    /// `clean`, `repaired`, `planned`, `damaged` or `incomplete`.
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_error: Option<&'p str>,
    kinds: Vec<KindRecord<'p>>,
    steps: Vec<StepRecord<'p>>,
    paths: Vec<PathRecord>,
    bytes: u64,
    left: Vec<KindRecord<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    through_log: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
}

impl Repair {
    /// Returns a plan and its result as one line of JSON.
    pub fn json_line(&self, plan: &Plan, standing: Standing, done: Option<&Done>) -> String {
        let (found, left) = (self.report_of(plan), self.report_of_rest(plan));
        let undo = done.and_then(|done| done.undo.as_deref());
        let record = PlanRecord {
            image: ImageName::new(self.path()),
            format: self.format().name(),
            verdict: standing.word(),
            device_error: self.device_error().filter(|_| standing == Standing::Incomplete),
            kinds: found.kinds.iter().map(|kind| KindRecord::new(kind, true)).collect(),
            steps: plan.steps.iter().map(StepRecord::new).collect(),
            paths: super::text::paths_of(&plan.steps)
                .into_iter()
                .map(|path| PathRecord { path: lossy(path), path_bytes: not_utf8(path) })
                .collect(),
            bytes: pages_of(&plan.steps).len() as u64 * PAGE_BYTES,
            left: left.kinds.iter().map(|kind| KindRecord::new(kind, true)).collect(),
            through_log: done.map(|done| done.through_log),
            undo: undo.map(|path| lossy(path.as_os_str().as_encoded_bytes())),
        };
        crate::check::json::line(&record)
    }
}

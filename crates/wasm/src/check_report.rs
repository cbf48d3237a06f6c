//! What a checker found, by kind: how often, and the first of each.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use check::{Code, Finding, Observer, Phase, Summary};
use serde::Serialize;

use crate::entry::lossy;

/// How many findings of a kind are kept. All are counted.
const KEPT_MAX: usize = 100;
/// Told steps of a phase.
const STEPS: u64 = 100;

/// Who is told how far a check is: the word of the phase, and done of total. False ends the check.
pub(crate) type Tell<'a> = &'a (dyn Fn(&str, u64, u64) -> bool + Sync);

/// Collects findings.
pub(crate) struct Collector<'a> {
    kinds: Mutex<BTreeMap<&'static str, Kind>>,
    tell: Tell<'a>,
    told: AtomicU64,
    is_cancelled: AtomicBool,
}

#[derive(Serialize)]
struct Kind {
    code: &'static str,
    severity: &'static str,
    structure: &'static str,
    meaning: &'static str,
    repair: &'static str,
    count: u64,
    findings: Vec<Record>,
    #[serde(skip)]
    code_of: &'static Code,
}

#[derive(Serialize)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The end of a check.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// `clean`, `damaged` or `incomplete`.
    verdict: &'static str,
    is_complete: bool,
    count: u64,
    inodes: u64,
    directories: u64,
    blocks: u64,
    blocks_used: u64,
    transactions_replayed: u64,
    /// The worst first.
    kinds: Vec<Kind>,
}

impl<'a> Collector<'a> {
    /// One that says how far it is.
    pub(crate) fn new(tell: Tell<'a>) -> Self {
        let (kinds, told) = (Mutex::default(), AtomicU64::new(u64::MAX));
        Self { kinds, tell, told, is_cancelled: AtomicBool::new(false) }
    }

    /// What was found, with what the check said at its end.
    pub(crate) fn report(self, summary: &Summary) -> Report {
        let kinds = self.kinds.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut kinds: Vec<_> = kinds.into_values().collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.code_of.severity));
        Report {
            verdict: match (kinds.is_empty(), summary.is_complete) {
                (false, _) => "damaged",
                (true, true) => "clean",
                (true, false) => "incomplete",
            },
            is_complete: summary.is_complete,
            count: kinds.iter().map(|kind| kind.count).sum(),
            inodes: summary.inodes,
            directories: summary.directories,
            blocks: summary.blocks,
            blocks_used: summary.blocks_used,
            transactions_replayed: summary.transactions_replayed,
            kinds,
        }
    }
}

impl Observer for Collector<'_> {
    fn found(&self, finding: Finding) {
        let code = finding.code;
        let mut kinds = self.kinds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let kind = kinds.entry(code.name).or_insert_with(|| Kind {
            code: code.name,
            severity: code.severity.word(),
            structure: code.structure,
            meaning: code.meaning,
            repair: code.repair,
            count: 0,
            findings: Vec::new(),
            code_of: code,
        });
        kind.count += 1;
        if kind.findings.len() < KEPT_MAX {
            kind.findings.push(Record::from(finding));
        }
    }

    /// Speaks only when a step of the phase is done: telling costs more than the work.
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

impl From<Finding> for Record {
    fn from(finding: Finding) -> Self {
        let Finding { code: _, place, detail, expected, found, path } = finding;
        Self {
            group: place.group,
            block: place.block,
            inode: place.inode,
            field: place.field,
            name: place.name.as_deref().map(lossy),
            path: path.as_deref().map(lossy),
            expected,
            found,
            detail,
        }
    }
}

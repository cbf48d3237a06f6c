//! State of an image after a repair.

use std::collections::BTreeMap;

use operations::repair::{PAGE_BYTES, Page, Plan};

use super::Repair;
use crate::Result;
use crate::check::{FindingCounter, Options};
use crate::dispatch::repair as dispatch;

/// State of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No findings and nothing to do.
    Clean,
    /// The plan has not been written.
    Planned,
    /// The plan was written, and a check finds nothing.
    Repaired,
    /// The plan was written, but some findings remain.
    Damaged,
    /// The device failed to read. If this happened during planning, nothing is written.
    Incomplete,
}

impl Standing {
    /// Returns the name in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Planned => "planned",
            Self::Repaired => "repaired",
            Self::Damaged => "damaged",
            Self::Incomplete => "incomplete",
        }
    }

    /// Returns the description for users.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Clean => "clean: nothing to repair",
            Self::Planned => "nothing was changed",
            Self::Repaired => "repaired: the check finds no damage",
            Self::Damaged => "repaired as far as possible: damage remains",
            Self::Incomplete => {
                "incomplete: the device failed to read; retry, or copy the image to a healthy \
                 device first"
            }
        }
    }
}

impl Repair {
    /// Returns the state of the image after `plan` was executed. If the image contains what the last check of the plan
    /// saw, that check decides. Otherwise the image is checked.
    ///
    /// # Errors
    /// If the image cannot be checked at all.
    pub fn standing_after(&self, plan: &Plan, options: &Options) -> Result<Standing> {
        let (counter, failed) = (FindingCounter::default(), self.reads_failed());
        if self.is_as_checked(plan) {
            return Ok(Standing::Repaired);
        }
        let summary = self.check(options, &counter)?;
        Ok(match (self.reads_failed() > failed, counter.count()) {
            (true, _) => Standing::Incomplete,
            (false, 0) if summary.is_complete => Standing::Repaired,
            (false, _) => Standing::Damaged,
        })
    }

    /// Returns whether the image contains the pages of a plan whose last check found nothing. The steps do not contain
    /// the log that they were written through, so the log must also be empty.
    fn is_as_checked(&self, plan: &Plan) -> bool {
        let finds_nothing = plan.left.is_empty() && plan.summary.is_complete;
        let mut last: BTreeMap<u64, &Page> = BTreeMap::new();
        for step in &plan.steps {
            last.extend(step.pages.iter().map(|(number, page)| (*number, page)));
        }
        finds_nothing
            && plan.is_result_checked
            && last.into_iter().all(|(number, page)| self.has_page(number, page))
            && matches!(dispatch::needs_recovery(self.format, &*self.device), Ok(false))
    }

    fn has_page(&self, number: u64, page: &Page) -> bool {
        let start = number * PAGE_BYTES;
        let count = self.device.len().saturating_sub(start).min(PAGE_BYTES) as usize;
        let mut bytes = vec![0; count];
        self.device.read_at(start, &mut bytes).is_ok() && bytes == page[..count]
    }
}

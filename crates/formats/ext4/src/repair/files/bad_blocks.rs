//! Repairs the bad block list: it keeps all readable entries outside the file system's own structures.

use std::collections::BTreeMap;

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::draft::Draft;
use super::inode_draft::{BAD_BLOCKS_INO, InodeDraft};
use super::inodes::{InodeRepair, OF_MAP, set_blocks};
use super::map::{self, Map};
use super::repair_context::RepairContext;
use crate::check::codes::BLOCK_METADATA;

impl InodeRepair<'_, '_, '_> {
    /// Keeps the readable entries of the bad block list.
    pub(super) fn repair_bad_blocks(&mut self) {
        if !self.has(OF_MAP) {
            return;
        }
        let mut map = Map::read(&self.context.checked, &self.subject);
        if map.is_unreadable {
            return;
        }
        let is_stubborn = self.is_beyond_help();
        let (context, draft) = (&mut *self.context, &mut self.draft);
        let is_kept = !is_stubborn
            && !map.runs.is_empty()
            && keep(context, &mut self.subject, &mut map, draft);
        if !is_kept {
            self.draft = Draft::default();
            self.cleared = Some("The bad block list is invalid and is emptied.");
            self.subject.clear();
        }
    }
}

/// Removes blocks of the file system itself from the bad block list.
pub(super) fn part(context: &mut RepairContext<'_>, findings: &[&Finding]) -> Result<()> {
    let Some(mut subject) = context.subject(BAD_BLOCKS_INO) else { return Ok(()) };
    let mut draft = Draft::default();
    let mut map = Map::read(&context.checked, &subject);
    if map.is_unreadable || !keep(context, &mut subject, &mut map, &mut draft) {
        return Ok(());
    }
    subject.store(&mut draft);
    let what = "Metadata blocks are removed from the bad block list.";
    let concerned = findings.iter().filter(|finding| finding.code == BLOCK_METADATA);
    context.end(draft, concerned.map(|finding| Action::about(finding, what)).collect())?;
    Ok(())
}

/// Writes the bad block list without blocks of the file system itself. Returns `false`, with an unusable draft, if the map
/// does not fit.
fn keep(
    context: &mut RepairContext<'_>,
    subject: &mut InodeDraft,
    map: &mut Map,
    draft: &mut Draft,
) -> bool {
    let mut changes = BTreeMap::new();
    map::take_system(context, map, &mut changes);
    map.replace(&changes);
    let is_written = map::write(context, subject, map, draft);
    if is_written {
        let clusters = map.clusters(&context.checked);
        set_blocks(context, subject, clusters, true);
    }
    is_written
}

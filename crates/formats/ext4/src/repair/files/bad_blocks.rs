//! Repairs the bad block list: it keeps all readable entries outside the file system's own structures.

use std::collections::BTreeMap;

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::draft::Draft;
use super::inodes::{Case, OF_MAP, set_blocks};
use super::map::{self, Map};
use super::patient::{BAD_BLOCKS_INO, Patient};
use super::ward::Ward;
use crate::check::codes::BLOCK_METADATA;

impl Case<'_, '_, '_> {
    /// Keeps the readable entries of the bad block list.
    pub(super) fn mend_bad_blocks(&mut self) {
        if !self.has(OF_MAP) {
            return;
        }
        let mut map = Map::read(&self.ward.scene, &self.patient);
        if map.is_unreadable {
            return;
        }
        let is_stubborn = self.is_beyond_help();
        let (ward, draft) = (&mut *self.ward, &mut self.draft);
        let is_kept =
            !is_stubborn && !map.runs.is_empty() && keep(ward, &mut self.patient, &mut map, draft);
        if !is_kept {
            self.draft = Draft::default();
            self.cleared = Some("The bad block list is invalid and is emptied.");
            self.patient.clear();
        }
    }
}

/// Removes blocks of the file system itself from the bad block list.
pub(super) fn part(ward: &mut Ward<'_>, findings: &[&Finding]) -> Result<()> {
    let Some(mut patient) = ward.patient(BAD_BLOCKS_INO) else { return Ok(()) };
    let mut draft = Draft::default();
    let mut map = Map::read(&ward.scene, &patient);
    if map.is_unreadable || !keep(ward, &mut patient, &mut map, &mut draft) {
        return Ok(());
    }
    patient.store(&mut draft);
    let what = "Metadata blocks are removed from the bad block list.";
    let concerned = findings.iter().filter(|finding| finding.code == BLOCK_METADATA);
    ward.end(draft, concerned.map(|finding| Action::about(finding, what)).collect())?;
    Ok(())
}

/// Writes the bad block list without blocks of the file system itself. Returns `false`, with an unusable draft, if the map
/// does not fit.
fn keep(ward: &mut Ward<'_>, patient: &mut Patient, map: &mut Map, draft: &mut Draft) -> bool {
    let mut changes = BTreeMap::new();
    map::take_system(ward, map, &mut changes);
    map.replace(&changes);
    let is_written = map::write(ward, patient, map, draft);
    if is_written {
        let clusters = map.clusters(&ward.scene);
        set_blocks(ward, patient, clusters, true);
    }
    is_written
}

//! Changes that need more than the superblock, tried in a staging before anything is written.
//!
//! The check must find nothing in the result. While it is written, the superblock is marked as not clean, so that
//! e2fsck checks the whole image after a crash. A superblock with fewer features than the old one is written first, one
//! with more features last. So the superblock on the device never names a missing structure.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, end_at};
use operations::repair::{PAGE_BYTES, Page, Staging, Step};
use vfs::check::{Code, FindingCounter, Options};
use vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::request::{FeatureChange, Request};
use crate::check::codes;
use crate::format::checksum::file_system_seed;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{
    RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use crate::mkfs::journal::NewJournal;
use crate::params::read_superblock;
use crate::repair::changes::Changes;

/// Maximum length of one write in bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Codes of findings that follow from each change: bitmaps, counts and copies.
const FOLLOWING: [&Code; 14] = [
    codes::BLOCK_BITMAP_FREE,
    codes::BLOCK_BITMAP_USED,
    codes::BLOCK_BITMAP_CHECKSUM,
    codes::INODE_BITMAP_FREE,
    codes::INODE_BITMAP_USED,
    codes::INODE_BITMAP_CHECKSUM,
    codes::GROUP_FREE_BLOCKS,
    codes::GROUP_FREE_INODES,
    codes::GROUP_DIRECTORIES,
    codes::SUPERBLOCK_FREE_BLOCKS,
    codes::SUPERBLOCK_FREE_INODES,
    codes::SUPERBLOCK_BACKUP,
    codes::GROUP_BACKUP,
    codes::QUOTA_USAGE,
];

/// Returns whether a request needs more than the superblock.
pub(super) fn is_needed(sb: &Superblock, request: &Request, target: &FeatureChange) -> bool {
    let (old, new) = (&target.old, &target.new);
    let compat =
        Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT | Compat::RESIZE_INODE;
    let incompat = Incompat::MMP | Incompat::FILETYPE;
    let ro_compat = RoCompat::QUOTA
        | RoCompat::PROJECT
        | RoCompat::METADATA_CSUM
        | RoCompat::GDT_CSUM
        | RoCompat::SPARSE_SUPER;
    let goes = |was: bool, is: bool| was && !is;
    // Structures in the image may need these features.
    let is_given_up = goes(old.incompat(Incompat::CASEFOLD), new.incompat(Incompat::CASEFOLD))
        || [RoCompat::LARGE_FILE, RoCompat::HUGE_FILE, RoCompat::DIR_NLINK, RoCompat::EXTRA_ISIZE]
            .iter()
            .any(|feature| goes(old.ro_compat(*feature), new.ro_compat(*feature)));
    (old.compat & compat) != (new.compat & compat)
        || (old.incompat & incompat) != (new.incompat & incompat)
        || (old.ro_compat & ro_compat) != (new.ro_compat & ro_compat)
        || target.quotas.iter().any(|(had, has)| had != has)
        || is_given_up
        || request.clears_mmp
        || request.uuid.is_some() && sb.has_external_journal()
        || request.orphan_blocks.is_some() && new.compat(Compat::ORPHAN_FILE)
        || changes_checksums(sb, request, target)
}

/// Returns whether metadata checksums are added or removed, or get another seed.
fn changes_checksums(sb: &Superblock, request: &Request, target: &FeatureChange) -> bool {
    let (had, has) = (target.old.metadata_csum(), target.new.metadata_csum());
    had != has || has && changes_seed(sb, request, target)
}

/// Returns whether the checksum seed changes.
fn changes_seed(sb: &Superblock, request: &Request, target: &FeatureChange) -> bool {
    let mut raw = sb.raw.clone();
    target.apply(request, &mut raw);
    let has_field = target.new.incompat(Incompat::CSUM_SEED);
    let of_uuid = || file_system_seed(&raw.uuid);
    let seed = if has_field { raw.checksum_seed.get() } else { of_uuid() };
    seed != sb.checksum_seed
}

/// Rejects another seed if attribute values in separate inodes have hashes that depend on it.
///
/// # Errors
/// `Unsupported` in that case.
pub(super) fn check_seed(sb: &Superblock, request: &Request, target: &FeatureChange) -> Result<()> {
    if target.old.incompat(Incompat::EA_INODE) && changes_seed(sb, request, target) {
        return Err(Error::unsupported(
            "a new UUID with ea_inode, whose hashes depend on the UUID",
            "with metadata_csum, add -O metadata_csum_seed to keep the checksum seed",
        ));
    }
    Ok(())
}

/// Implements [`super::tune`] for such changes.
///
/// # Errors
/// Like [`super::tune`].
pub(super) fn change(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    request: &Request,
    target: &FeatureChange,
    fields: &mut dyn FnMut(&mut RawSuperblock) -> Result<()>,
) -> Result<()> {
    let staging = Arc::new(Staging::new(Arc::clone(device)));
    let prepared = prepare(&staging, sb, request, target, fields);
    // After a failed read, damage that was found may not exist, and space that seems free may be in use.
    staging.check_reads().map_err(Error::Device)?;
    let changes = prepared?;
    let new = read_superblock(&*staging)?;
    let is_less = target.new.compat.difference(target.old.compat).is_empty()
        && target.new.incompat.difference(target.old.incompat).is_empty()
        && target.new.ro_compat.difference(target.old.ro_compat).is_empty();
    let first = if is_less { &new.raw } else { &sb.raw };
    write_out(&**device, &staging.steps(), &changes.zeros, (first, &new.raw))
}

/// Makes all changes in the staging.
fn prepare(
    staging: &Arc<Staging>,
    sb: &Superblock,
    request: &Request,
    target: &FeatureChange,
    fields: &mut dyn FnMut(&mut RawSuperblock) -> Result<()>,
) -> Result<Changes> {
    check_sound(staging, request)?;
    check_possible(sb, request, target)?;
    let mut changes = Changes::new(Arc::clone(staging));
    take_away(&mut changes, request, target)?;
    set_features(&mut changes, sb, request, target)?;
    add(&mut changes, sb, request, target)?;
    changes.settle(&expected(target))?;
    let mut result = Ok(());
    changes.edit_superblock(|raw| result = fields(raw))?;
    result?;
    changes.write_copies()?;
    staging.end_step(Vec::new()).map_err(Error::Device)?;
    Ok(changes)
}

/// Rejects a damaged image.
fn check_sound(staging: &Arc<Staging>, request: &Request) -> Result<()> {
    // Copies are rewritten, and so is the MMP block on request.
    let mut except = vec![codes::SUPERBLOCK_BACKUP, codes::GROUP_BACKUP];
    except.extend(request.clears_mmp.then_some(codes::MMP));
    let counter = FindingCounter::except(&except);
    let options = Options::default().with_norecovery(request.forgets_journal);
    let summary = crate::check::check(Arc::clone(staging) as _, &options, &counter)?;
    match counter.count() {
        0 if summary.is_complete => Ok(()),
        found => Err(Error::unsupported(
            format!("changing features of an image with {found} findings of the check"),
            "run e2fsck -f first",
        )),
    }
}

fn check_possible(sb: &Superblock, request: &Request, target: &FeatureChange) -> Result<()> {
    let has_orphans =
        sb.features.ro_compat(RoCompat::ORPHAN_PRESENT) || sb.raw.last_orphan.get() != 0;
    if has_orphans {
        return Err(Error::Invalid("the image has orphans; run e2fsck first"));
    }
    let is_new = target.turns(Compat::FAST_COMMIT, true) || request.journal_device.is_some();
    let uses_fast_commits = target.new.compat(Compat::FAST_COMMIT) && is_new;
    let is_external = request.journal_device.is_some() || sb.has_external_journal();
    if uses_fast_commits && is_external && target.new.compat(Compat::HAS_JOURNAL) {
        return Err(Error::Invalid("fast_commit needs a journal in the image"));
    }
    Ok(())
}

/// Removes files of disabled features, and descriptor state that requires checksums.
fn take_away(changes: &mut Changes, request: &Request, target: &FeatureChange) -> Result<()> {
    if request.clears_mmp && target.new.incompat(Incompat::MMP) {
        changes.clear_mmp()?;
    }
    if target.turns(Compat::HAS_JOURNAL, false) {
        changes.remove_journal()?;
    }
    if target.turns(Compat::ORPHAN_FILE, false) {
        changes.remove_orphan_file()?;
    }
    for (kind, (had, has)) in target.quotas.into_iter().enumerate() {
        if had && !has {
            changes.remove_quota_file(kind)?;
        }
    }
    if target.turns(Compat::RESIZE_INODE, false) {
        changes.remove_resize_inode()?;
    }
    if target.old.group_csum() && !target.new.group_csum() {
        changes.initialise_groups()?;
    }
    Ok(())
}

fn set_features(
    changes: &mut Changes,
    sb: &Superblock,
    request: &Request,
    target: &FeatureChange,
) -> Result<()> {
    let set = |raw: &mut RawSuperblock| target.apply(request, raw);
    if changes_checksums(sb, request, target) {
        changes.change_checksums(set)?;
    } else {
        changes.edit_superblock(set)?;
        changes.reseal_groups()?;
    }
    Ok(())
}

/// Returns the journal to create, without an area for fast commits if the feature is off.
fn new_journal(request: &Request, target: &FeatureChange) -> NewJournal {
    let is_new = target.turns(Compat::HAS_JOURNAL, true);
    let is_used = is_new && target.new.compat(Compat::FAST_COMMIT);
    let fast_commit_bytes = request.journal.fast_commit_bytes.filter(|_| is_used);
    NewJournal { fast_commit_bytes, ..request.journal }
}

/// Creates the files of enabled features.
fn add(
    changes: &mut Changes,
    sb: &Superblock,
    request: &Request,
    target: &FeatureChange,
) -> Result<()> {
    let has_journal = target.new.compat(Compat::HAS_JOURNAL);
    if target.turns(Compat::HAS_JOURNAL, true) {
        match request.journal_device {
            Some(number) => changes.attach_journal(number)?,
            None => changes.make_journal(&new_journal(request, target))?,
        }
    } else if request.uuid.is_some() && sb.has_external_journal() && has_journal {
        changes.name_journal_user()?;
    }
    let fast = Compat::FAST_COMMIT;
    let is_new = target.turns(Compat::HAS_JOURNAL, true) && target.new.compat(fast);
    if has_journal && (is_new || target.turns(fast, true) || target.turns(fast, false)) {
        let bytes = new_journal(request, target).fast_commit_bytes;
        changes.set_fast_commits(target.new.compat(fast), bytes)?;
    }
    let has_orphan_file = target.new.compat(Compat::ORPHAN_FILE);
    let is_new = target.turns(Compat::ORPHAN_FILE, true);
    if is_new || has_orphan_file && request.orphan_blocks.is_some() {
        changes.make_orphan_file(request.orphan_blocks)?;
    }
    for (kind, (had, has)) in target.quotas.into_iter().enumerate() {
        if has && !had {
            changes.make_quota_file(kind, request.time)?;
        }
    }
    Ok(())
}

/// Returns the codes that may be repaired after the changes.
fn expected(target: &FeatureChange) -> Vec<&'static Code> {
    let mut expected = FOLLOWING.to_vec();
    if target.turns_incompat(Incompat::MMP, true) {
        expected.push(codes::MMP);
    }
    if target.turns_incompat(Incompat::FILETYPE, true) {
        expected.push(codes::DIR_TYPE);
    }
    if target.turns_ro(RoCompat::SPARSE_SUPER, true) {
        expected.push(codes::RESIZE_INODE);
    }
    expected
}

/// Writes the result. `first` is the superblock marked as not clean, which is on disk while everything else is written.
fn write_out(
    device: &dyn BlockDevice,
    steps: &[Step],
    zeros: &[Range<u64>],
    (first, last): (&RawSuperblock, &RawSuperblock),
) -> Result<()> {
    let mut pages: BTreeMap<u64, &Page> = BTreeMap::new();
    for step in steps {
        pages.extend(step.pages.iter().map(|(number, page)| (*number, page)));
    }
    if pages.is_empty() {
        return Ok(());
    }
    for range in zeros {
        // Zeroed before the pages are written: the journal's superblock is in such a range and among the pages.
        device.zero_range(range.start, range.end - range.start).map_err(Error::Device)?;
    }
    let mut marked = first.clone();
    marked.state = (marked.state.get() & !STATE_VALID).into();
    write_superblock(device, &marked)?;
    let mut run: Option<(u64, Vec<u8>)> = None;
    for (number, page) in pages {
        let start = number * PAGE_BYTES;
        let count = PAGE_BYTES.min(end_at(device, start).saturating_sub(start)) as usize;
        let mut bytes = page[..count].to_vec();
        if number == SUPERBLOCK_OFFSET / PAGE_BYTES {
            let mut sealed = marked.clone();
            sealed.seal();
            let at = (SUPERBLOCK_OFFSET % PAGE_BYTES) as usize;
            bytes[at..at + SUPERBLOCK_SIZE].copy_from_slice(sealed.as_bytes());
        }
        let adjoins = |(at, run): &(u64, Vec<u8>)| {
            at + run.len() as u64 == start && run.len() < WRITE_BYTES_MAX
        };
        if !run.as_ref().is_some_and(adjoins) {
            write_run(device, run.take())?;
        }
        run.get_or_insert_with(|| (start, Vec::new())).1.extend_from_slice(&bytes);
    }
    write_run(device, run)?;
    device.flush().map_err(Error::Device)?;
    write_superblock(device, last)
}

fn write_run(device: &dyn BlockDevice, run: Option<(u64, Vec<u8>)>) -> Result<()> {
    run.map_or(Ok(()), |(at, bytes)| device.write_at(at, &bytes).map_err(Error::Device))
}

fn write_superblock(device: &dyn BlockDevice, raw: &RawSuperblock) -> Result<()> {
    let mut raw = raw.clone();
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)
}

//! The directory lost+found.

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Ino, Result, Timestamp};

use super::directories::DirectoryDraft;
use super::inode_draft::InodeDraft;
use super::inodes::ROOT;
use super::map;
use super::names_in::{FoundName, directory_code, other_name};
use super::repair_context::RepairContext;
use crate::check::codes::DIR_LOST_FOUND;
use crate::format::inode::{Inode, Time};
use crate::repair::image::now;

/// Its name.
pub(super) const NAME: &[u8] = b"lost+found";

/// Returns the inode of the directory, if there is one.
pub(super) fn find(context: &RepairContext<'_>) -> Option<u32> {
    let root = DirectoryDraft::read(context, ROOT)?;
    let entry = root.entries().iter().find(|entry| entry.name == NAME)?;
    context.checked.known(entry.ino).filter(|known| known.is_dir).map(|_| entry.ino)
}

/// Creates the directory. An inode of another type with its name is renamed. Returns whether it could be created.
pub(super) fn make(context: &mut RepairContext<'_>, findings: &[&Finding]) -> Result<bool> {
    let Some(mut root) = DirectoryDraft::read(context, ROOT).filter(|root| !root.is_encrypted())
    else {
        return Ok(false);
    };
    let code = directory_code(&context.checked);
    let lost = context.checked.params().sb.first_ino;
    let is_lost = context.checked.directory(lost).is_some_and(|ways| {
        ways.parent == 0 && ways.dot_dot == ROOT && !context.checked.is_hidden(lost)
    });
    // mke2fs gives the directory the first free inode. If that is a directory without a name, it is lost+found.
    let made = if is_lost { None } else { new_inode(context) };
    if !is_lost && made.is_none() {
        return Ok(false);
    }
    let ino = made.as_ref().map_or(lost, |subject| subject.ino);
    let names: Vec<Vec<u8>> = root.entries().iter().map(|entry| entry.name.clone()).collect();
    if let Some(entry) = root.entries_mut().iter_mut().find(|entry| entry.name == NAME) {
        entry.name = other_name(NAME, &mut 1, |name| !names.iter().any(|other| other == name));
    }
    root.entries_mut().push(FoundName::new(NAME.to_vec(), ino, code));
    if let Some(subject) = made {
        let Some(draft) = DirectoryDraft::new(subject, ROOT).write(context) else {
            return Ok(false);
        };
        if !draft.apply(context.staging())? {
            return Ok(false);
        }
        make_read(context, ino)?;
    }
    let Some(draft) = root.write(context) else { return Ok(false) };
    let what = format!("The directory lost+found is created as inode {ino}.");
    let finding = findings.iter().find(|finding| finding.code == DIR_LOST_FOUND);
    let action =
        finding.map_or_else(|| Action::new(&*what), |finding| Action::about(finding, &*what));
    context.end(draft, vec![action])
}

/// Returns a free inode, turned into a directory without blocks.
fn new_inode(context: &RepairContext<'_>) -> Option<InodeDraft> {
    let checked = &context.checked;
    let ino = free_inode(context)?;
    let mut subject = checked.slot(ino).and_then(|_| InodeDraft::read(checked, ino))?;
    let size = usize::from(checked.geometry().inode_size);
    let mut inode = Inode::zeroed(size);
    let time = Timestamp { sec: now().into(), nsec: 0 };
    for which in [Time::Access, Time::Change, Time::Modify] {
        inode.set_time(which, time);
    }
    inode.set_crtime(time);
    inode.set_mode(0o04_0700);
    inode.set_links_count(2);
    subject.clear();
    subject.inode = inode;
    map::write_empty(checked, &mut subject);
    Some(subject)
}

/// Returns a free inode, preferably in the part of a table that the check reads.
fn free_inode(context: &RepairContext<'_>) -> Option<u32> {
    let checked = &context.checked;
    let geometry = checked.geometry();
    let first = checked.params().sb.first_ino;
    let mut beyond = None;
    for group in geometry.groups() {
        if checked.descriptor(group).is_none() || checked.is_inode_uninit(group) {
            continue;
        }
        let read = checked.inodes_read(group);
        for index in 0..read {
            let ino = geometry.ino_of(group, index).0 as u32;
            let is_free = ino >= first && checked.known(ino).is_none() && !checked.is_orphan(ino);
            if is_free && !checked.is_hidden(ino) {
                return Some(ino);
            }
        }
        let next = geometry.ino_of(group, read).0 as u32;
        if beyond.is_none() && read < geometry.inodes_per_group && next >= first {
            beyond = Some(next);
        }
    }
    beyond
}

/// Ensures that the used part of the group's inode table includes the inode.
fn make_read(context: &RepairContext<'_>, ino: u32) -> Result<()> {
    let checked = &context.checked;
    let geometry = checked.geometry();
    let Some((group, index)) = geometry.place_of(Ino(ino.into())) else { return Ok(()) };
    let Some(mut desc) = checked.descriptor(group).filter(|_| checked.inodes_read(group) <= index)
    else {
        return Ok(());
    };
    desc.itable_unused = geometry.inodes_per_group - index - 1;
    let (block, offset) = geometry.descriptor_position(group);
    let Some(mut bytes) = checked.block(block) else { return Ok(()) };
    let size = usize::from(geometry.desc_size);
    desc.write(&mut bytes[offset..offset + size], &checked.params().sb, group);
    let at = geometry.byte_of(block) + offset as u64;
    let bytes = &bytes[offset..offset + size];
    disk::BlockDevice::write_at(context.staging(), at, bytes).map_err(vfs::Error::Device)
}

//! Repairs the metadata directory: flags and types of its files, and names that join it with the ordinary tree.
//!
//! A file that belongs nowhere in it becomes an ordinary one, and goes to lost+found as such.

use std::collections::BTreeMap;

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{FileType, Ino, Result};

use super::RepairJob;
use super::attributes::by_inode;
use super::engine::{Session, change};
use super::forms::empty_tree;
use super::map;
use crate::XfsCore;
use crate::check::view::{Link, View, view};
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::metafile::{
    FILE_FLAGS, MetafileType, group_of_path, group_path, path_in, quota_path,
};
use crate::format::quota::QuotaKind;

/// The planned change of an inode.
#[derive(Debug)]
enum InodeChange {
    /// It becomes a metadata file of this type, of a realtime group or of none.
    Mark(MetafileType, Option<u32>),
    /// It becomes an ordinary one.
    Unmark,
    /// These names are removed.
    Unlink(Vec<Link>),
}

struct MetadirPlan {
    ino: Ino,
    change: InodeChange,
}

/// Repairs inodes with wrong flags or types.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let all = by_inode(findings);
    let plans = view(job.staging.clone(), |view| {
        // The first path of each file.
        let paths: BTreeMap<Ino, Vec<u8>> =
            view.metafiles().into_iter().rev().map(|(path, ino)| (ino, path)).collect();
        let plan = |number: &u64| {
            let ino = Ino(*number);
            let inode = view.inode(ino)?;
            let links = job.names(view).get(number).cloned().unwrap_or_default();
            let change = plan(view, ino, &inode, links, &paths)?;
            Some(MetadirPlan { ino, change })
        };
        all.keys().filter_map(plan).collect::<Vec<_>>()
    });
    let Ok(plans) = plans else { return Ok(()) };
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let actions = |plan: &MetadirPlan| {
        let finding = all.get(&plan.ino.0).and_then(|findings| findings.first());
        finding.map(|finding| Action::about(finding, what(&plan.change))).into_iter().collect()
    };
    session.steps(&plans, actions, carry_out);
    Ok(())
}

const fn what(change: &InodeChange) -> &'static str {
    match change {
        InodeChange::Mark(..) => {
            "The inode gets the flag and the type of its place in the metadata directory."
        }
        InodeChange::Unmark => "The inode becomes an ordinary one.",
        InodeChange::Unlink(_) => {
            "The names are removed, because they lead to the other directory tree."
        }
    }
}

/// Returns the type of a file at a path; `None` if it must not be there.
fn type_at(view: &View<'_>, path: Option<&[u8]>, is_dir: bool) -> Option<MetafileType> {
    let groups = view.superblock().raw.rgcount.get();
    let found = MetafileType::of_path_with_groups(path?, groups)?;
    ((found == MetafileType::Directory) == is_dir).then_some(found)
}

fn plan(
    view: &View<'_>,
    ino: Ino,
    inode: &Inode,
    links: Vec<Link>,
    paths: &BTreeMap<Ino, Vec<u8>>,
) -> Option<InodeChange> {
    let path = paths.get(&ino).map(Vec::as_slice);
    let is_inside = |link: &Link| view.inode(Ino(link.0)).is_some_and(|dir| dir.is_metadata());
    let (inside, outside): (Vec<Link>, Vec<Link>) = links.into_iter().partition(is_inside);
    let fitting = type_at(view, path, inode.is_dir());
    let group = path.and_then(group_of_path);
    if !inode.is_metadata() {
        let may_mark = outside.is_empty() && ino != view.root();
        return match fitting {
            Some(fitting) if may_mark => Some(InodeChange::Mark(fitting, group)),
            _ if !inside.is_empty() => Some(InodeChange::Unlink(inside)),
            _ => None,
        };
    }
    if view.is_metadir_root(ino) {
        return (!outside.is_empty()).then_some(InodeChange::Unlink(outside));
    }
    if ino == view.root() || inside.is_empty() {
        return Some(InodeChange::Unmark);
    }
    // If one of several names fits the file, the others are mistakes.
    let fits = |(dir, _, name): &Link| {
        let path = paths.get(&Ino(*dir)).map(|dir| path_in(dir, name));
        type_at(view, path.as_deref(), inode.is_dir()) == Some(inode.metafile_type())
            && path.and_then(|path| group_of_path(&path)).is_none_or(|it| it == inode.projid())
    };
    let (right, mistaken): (Vec<Link>, Vec<Link>) = inside.iter().cloned().partition(fits);
    if outside.is_empty() && !right.is_empty() && !mistaken.is_empty() {
        return Some(InodeChange::Unlink(mistaken));
    }
    match fitting {
        _ if !outside.is_empty() => Some(InodeChange::Unlink(outside)),
        Some(fitting) => Some(InodeChange::Mark(fitting, group)),
        None => Some(InodeChange::Unlink(inside)),
    }
}

fn carry_out(fs: &XfsCore, plan: &MetadirPlan) -> Result<()> {
    match &plan.change {
        InodeChange::Mark(fitting, group) => change(fs, plan.ino, |_, handle| {
            handle.inode.set_metadata(*fitting);
            handle.inode.set_projid(group.unwrap_or(0));
            let is_tree = handle.inode.format() == ForkFormat::MetaBtree;
            match fitting.shape() {
                Some(_) if !is_tree => empty_tree(&mut handle.inode),
                None if is_tree => empty(&mut handle.inode),
                _ => {}
            }
            Ok(())
        }),
        InodeChange::Unmark => unmark(fs, plan.ino),
        InodeChange::Unlink(links) => links.iter().try_for_each(|(dir, _, name)| {
            change(fs, Ino(*dir), |op, handle| op.remove_entry(handle, name, None).map(drop))
        }),
    }
}

/// Makes a file with a tree an empty one. The blocks of the tree become lost space.
fn empty(inode: &mut Inode) {
    inode.fork_mut(Fork::Data).fill(0);
    inode.set_format(Fork::Data, ForkFormat::Extents);
    inode.set_nblocks(0);
}

/// Makes an inode an ordinary one that its owner can read.
pub(super) fn unmark(fs: &XfsCore, ino: Ino) -> Result<()> {
    change(fs, ino, |_, handle| {
        let inode = &mut handle.inode;
        inode.clear_metadata();
        if inode.format() == ForkFormat::MetaBtree {
            empty(inode);
        }
        // All of them together are hardly the flags of a file.
        if inode.flags() & FILE_FLAGS == FILE_FLAGS {
            inode.set_flags(inode.flags() & !FILE_FLAGS);
        }
        if inode.mode() & 0o777 == 0 {
            inode.set_permissions(if inode.is_dir() { 0o700 } else { 0o600 });
        }
        Ok(())
    })
}

/// The place of a metadata file.
pub(super) struct MetafilePlace {
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
    /// The file there, if it is of another type and its name is a mistake.
    pub(super) mistaken: Option<Ino>,
}

/// Returns the place of a metadata file without a name, if it has one and no file of its type is there.
pub(super) fn home(view: &View<'_>, inode: &Inode, said: &[Link]) -> Option<MetafilePlace> {
    let files = view.metafiles();
    let at = |path: &[u8]| files.iter().find(|(other, _)| other == path).map(|(_, ino)| *ino);
    let own = inode.metafile_type();
    let is_of_type = |ino: &Ino| view.inode(*ino).is_some_and(|there| there.metafile_type() == own);
    // One file may have several names.
    let named = |dir: Ino, inode: &Inode, wanted: &[u8]| {
        let extents = map::read(view, dir, inode, Fork::Data).extents;
        let mut found = None;
        view.entries(dir, inode, &extents, |name, ino| {
            if name == wanted {
                found = Some(ino);
            }
            found.is_none()
        });
        found
    };
    let place = |path: &[u8]| {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (dir, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        let dir = at(dir)?;
        let mistaken = named(dir, &view.inode(dir).filter(Inode::is_dir)?, name);
        let is_free = !mistaken.as_ref().is_some_and(is_of_type);
        is_free.then(|| MetafilePlace { dir, name: name.to_vec(), mistaken })
    };
    let is_dir = inode.file_type() == Some(FileType::Directory);
    // The places that its parent pointers name come first.
    for (dir, _, name) in said {
        let Some((path, _)) = files.iter().find(|(_, ino)| ino.0 == *dir) else { continue };
        let path = path_in(path, name);
        if type_at(view, Some(&path), is_dir) == Some(own)
            && let Some(found) = place(&path)
        {
            return Some(found);
        }
    }
    if own >= MetafileType::RtBitmap {
        return place(group_path(inode.projid(), own).as_bytes());
    }
    // There is one quota file of each kind.
    let kind = QuotaKind::ALL.into_iter().find(|kind| MetafileType::of_quota(*kind) == own)?;
    place(quota_path(kind).as_bytes())
}

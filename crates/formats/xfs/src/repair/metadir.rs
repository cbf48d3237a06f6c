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
use crate::XfsCore;
use crate::check::view::{Link, View, view};
use crate::format::inode::Inode;
use crate::format::metafile::{FILE_FLAGS, MetafileType, quota_path};
use crate::format::quota::QuotaKind;

/// The planned change of an inode.
#[derive(Debug)]
enum InodeChange {
    /// It becomes a metadata file of this type.
    Mark(MetafileType),
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
        let paths: BTreeMap<Ino, Vec<u8>> =
            view.metafiles().into_iter().map(|(path, ino)| (ino, path)).collect();
        let plan = |number: &u64| {
            let ino = Ino(*number);
            let inode = view.inode(ino)?;
            let links = job.names(view).get(number).cloned().unwrap_or_default();
            let change = plan(view, ino, &inode, links, paths.get(&ino).map(Vec::as_slice))?;
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
        InodeChange::Mark(_) => {
            "The inode gets the flag and the type of its place in the metadata directory."
        }
        InodeChange::Unmark => "The inode becomes an ordinary one.",
        InodeChange::Unlink(_) => {
            "The names are removed, because they lead to the other directory tree."
        }
    }
}

/// Returns the type of a file at a path; `None` if it must not be there.
fn type_at(path: Option<&[u8]>, is_dir: bool) -> Option<MetafileType> {
    let found = path.and_then(MetafileType::of_path)?;
    ((found == MetafileType::Directory) == is_dir).then_some(found)
}

fn plan(
    view: &View<'_>,
    ino: Ino,
    inode: &Inode,
    links: Vec<Link>,
    path: Option<&[u8]>,
) -> Option<InodeChange> {
    let is_inside = |link: &Link| view.inode(Ino(link.0)).is_some_and(|dir| dir.is_metadata());
    let (inside, outside): (Vec<Link>, Vec<Link>) = links.into_iter().partition(is_inside);
    let fitting = type_at(path, inode.is_dir());
    if !inode.is_metadata() {
        let may_mark = outside.is_empty() && ino != view.root();
        return match fitting {
            Some(fitting) if may_mark => Some(InodeChange::Mark(fitting)),
            _ if !inside.is_empty() => Some(InodeChange::Unlink(inside)),
            _ => None,
        };
    }
    if ino == view.root() || inside.is_empty() {
        return Some(InodeChange::Unmark);
    }
    match fitting {
        _ if !outside.is_empty() => Some(InodeChange::Unlink(outside)),
        Some(fitting) => Some(InodeChange::Mark(fitting)),
        None => Some(InodeChange::Unlink(inside)),
    }
}

fn carry_out(fs: &XfsCore, plan: &MetadirPlan) -> Result<()> {
    match &plan.change {
        InodeChange::Mark(fitting) => change(fs, plan.ino, |_, handle| {
            handle.inode.set_metadata(*fitting);
            Ok(())
        }),
        InodeChange::Unmark => unmark(fs, plan.ino),
        InodeChange::Unlink(links) => links.iter().try_for_each(|(dir, _, name)| {
            change(fs, Ino(*dir), |op, handle| op.remove_entry(handle, name, None).map(drop))
        }),
    }
}

/// Makes an inode an ordinary one that its owner can read.
pub(super) fn unmark(fs: &XfsCore, ino: Ino) -> Result<()> {
    change(fs, ino, |_, handle| {
        let inode = &mut handle.inode;
        inode.clear_metadata();
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

/// Returns the place of a metadata file without a name, if it has one and nothing else is there.
pub(super) fn home(view: &View<'_>, inode: &Inode, said: &[Link]) -> Option<(Ino, Vec<u8>)> {
    let files = view.metafiles();
    let is_free = |path: &[u8]| files.iter().all(|(other, _)| other != path);
    let at = |path: &[u8]| files.iter().find(|(other, _)| other == path).map(|(_, ino)| *ino);
    let place = |path: &[u8]| {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (dir, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        let dir = at(dir).filter(|dir| view.inode(*dir).is_some_and(|inode| inode.is_dir()))?;
        is_free(path).then(|| (dir, name.to_vec()))
    };
    let own = inode.metafile_type();
    let is_dir = inode.file_type() == Some(FileType::Directory);
    // The places that its parent pointers name come first.
    for (dir, _, name) in said {
        let Some((path, _)) = files.iter().find(|(_, ino)| ino.0 == *dir) else { continue };
        let mut path = path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if type_at(Some(&path), is_dir) == Some(own)
            && let Some(found) = place(&path)
        {
            return Some(found);
        }
    }
    // There is one quota file of each kind.
    let kind = QuotaKind::ALL.into_iter().find(|kind| MetafileType::of_quota(*kind) == own)?;
    place(quota_path(kind).as_bytes())
}

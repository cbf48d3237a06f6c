//! Repairs names: lost inodes return to their directories, and parent pointers and link counts are set according to the
//! names.

use std::collections::{BTreeMap, HashMap, HashSet};

use operations::names::mkdir;
use operations::repair::Action;
use parking_lot::Mutex;
use vfs::check::{Code, Finding};
use vfs::{Error, FileType, Ino, NewInode, Result};

use super::RepairJob;
use super::attributes::{self, Attribute, by_inode};
use super::directory::{self, numbered, possible_name};
use super::engine::{Session, change, change_two};
use super::map;
use super::metadir::{self, MetafilePlace};
use crate::XfsCore;
use crate::check::codes;
use crate::check::view::{Link, View, view};
use crate::dir::{self, Entry};
use crate::format::attr::flags;
use crate::format::attr::leaf::parent_value;
use crate::format::inode::{Fork, Inode, flags as inode_flags};
use crate::xattr::parent::NamedLink as ParentLink;

/// Directory for inodes with an unknown place.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Flags of directories that must not get new entries.
const FIXED: u16 = inode_flags::IMMUTABLE | inode_flags::APPEND;
/// Maximum number appended to a name.
const NUMBERS_MAX: u64 = 1000;
/// Maximum number of levels followed upwards.
const DEPTH_MAX: usize = 1 << 12;

/// Names of some inodes.
pub(super) type Names = HashMap<u64, Vec<Link>>;

/// Collects the names of some inodes. Directories without links count if they have a name themselves: then their link
/// count is damaged.
pub(super) fn gather(view: &View<'_>, wanted: &HashSet<u64>) -> Names {
    let unlinked = Mutex::new(HashSet::new());
    let by_directory = view.each_used(|dir, inode| {
        if !inode.is_dir() {
            return None;
        }
        if inode.nlink() == 0 {
            unlinked.lock().insert(dir.0);
        }
        let extents = map::read(view, dir, inode, Fork::Data).extents;
        let mut links = Vec::new();
        view.entries(dir, inode, &extents, |name, child| {
            if wanted.contains(&child.0) {
                links.push((child.0, (dir.0, inode.generation(), name.to_vec())));
            }
            true
        });
        (!links.is_empty()).then_some(links)
    });
    let mut names = Names::new();
    for (child, link) in by_directory.flatten() {
        names.entry(child).or_default().push(link);
    }
    let mut unlinked = unlinked.into_inner();
    unlinked.retain(|dir| !names.contains_key(dir));
    names.retain(|_, links| {
        links.retain(|(dir, ..)| !unlinked.contains(dir));
        !links.is_empty()
    });
    names
}

/// Returns the link count of an inode according to the check, if it differs from the stored one.
fn counted(findings: &[&Finding]) -> Option<u32> {
    let is_count = |finding: &&&Finding| finding.code == codes::INODE_LINKS;
    findings.iter().find(is_count)?.expected.as_deref()?.parse().ok()
}

fn parents_of(view: &View<'_>, ino: Ino, inode: &Inode) -> Vec<Link> {
    let extents = map::read(view, ino, inode, Fork::Attr).extents;
    view.parents(ino, inode, &extents)
}

/// Directories that were examined.
struct ExaminedDirectories<'k, 's> {
    view: &'k View<'s>,
    /// The inode of `..`.
    parents: HashMap<Ino, Option<Ino>>,
    entries: HashMap<Ino, HashMap<Vec<u8>, Ino>>,
}

impl ExaminedDirectories<'_, '_> {
    fn dot_dot(&mut self, dir: Ino) -> Option<Ino> {
        let view = self.view;
        *self.parents.entry(dir).or_insert_with(|| {
            let inode = view.inode(dir).filter(Inode::is_dir)?;
            directory::parent(view, dir, &inode)
        })
    }

    /// Returns whether `dir` is `ino`, below it, or not connected to the root.
    fn is_below(&mut self, dir: Ino, ino: Ino) -> bool {
        let (mut at, mut met) = (dir, HashSet::new());
        while met.insert(at) && met.len() < DEPTH_MAX {
            if at == ino {
                return true;
            }
            match self.dot_dot(at) {
                Some(parent) if at != self.view.root() => at = parent,
                _ => return false,
            }
        }
        at != self.view.root()
    }

    /// Returns the lowest inode number of the loop that contains a directory.
    fn loop_of(&mut self, dir: Ino) -> Ino {
        let (mut at, mut met) = (dir, HashSet::new());
        while met.insert(at) && met.len() < DEPTH_MAX {
            match self.dot_dot(at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        met.into_iter().min().unwrap_or(dir)
    }

    /// Returns the inode of an existing entry at the place of a link, if that inode has no such parent pointer.
    fn mistaken(&mut self, link: &Link) -> Option<Ino> {
        let (view, dir) = (self.view, Ino(link.0));
        let inode = view.inode(dir)?;
        let entries = self.entries.entry(dir).or_insert_with(|| {
            let found = directory::read(view, dir, &inode).entries;
            found.into_iter().map(|entry| (entry.name, entry.ino)).collect()
        });
        let other = *entries.get(&link.2)?;
        let Some(inode) = view.inode(other) else { return Some(other) };
        let is_mistaken = !inode.is_dir() && !parents_of(view, other, &inode).contains(link);
        is_mistaken.then_some(other)
    }

    /// Returns the previous place of an inode according to its parent pointers.
    fn home(&mut self, ino: Ino, inode: &Inode) -> Move {
        let said = parents_of(self.view, ino, inode);
        self.home_of(ino, inode, said)
    }

    fn home_of(&mut self, ino: Ino, inode: &Inode, said: Vec<Link>) -> Move {
        let view = self.view;
        let can_be = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
        let mut homes = Vec::new();
        for link in &said {
            let (dir, generation, name) = link;
            let parent = view.inode(Ino(*dir)).filter(|dir| dir.is_dir() && dir.nlink() > 0);
            // An ordinary inode must not return to the metadata directory.
            let is_there = parent
                .is_some_and(|dir| dir.generation() == *generation && !dir.is_metadata())
                && can_be(name)
                && !(inode.is_dir() && (!homes.is_empty() || self.is_below(Ino(*dir), ino)));
            if is_there {
                let mistaken = self.mistaken(link);
                homes.push(Name { dir: Ino(*dir), name: name.clone(), mistaken });
            }
        }
        if !homes.is_empty() {
            return Move::Home(homes);
        }
        let is_gone = |dir: u64| !view.inode(Ino(dir)).is_some_and(|inode| inode.is_dir());
        match said.into_iter().find(|(dir, _, name)| is_gone(*dir) && can_be(name)) {
            Some((dir, _, name)) => Move::Gone(dir, name),
            None => Move::Lost,
        }
    }
}

/// The planned move of an inode.
enum Move {
    /// It gets names.
    Home(Vec<Name>),
    /// It is moved under this name to a directory in lost+found that represents a deleted one.
    Gone(u64, Vec<u8>),
    /// It is moved to lost+found.
    Lost,
    /// Its `..` is set to the directory with its name.
    DotDot(Ino),
    /// It needs no names, because the superblock contains its number.
    Special,
    /// A metadata file without a place becomes an ordinary one.
    Unmark,
}

/// A planned name of an inode.
struct Name {
    dir: Ino,
    name: Vec<u8>,
    /// Inode to which the existing entry leads by mistake.
    mistaken: Option<Ino>,
}

struct LinkPlan {
    ino: Ino,
    file_type: FileType,
    /// Names to be removed.
    from: Vec<Link>,
    to: Move,
}

/// Connects lost inodes, breaks loops, and repairs `..`.
pub(super) fn repair_lost(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let all = by_inode(findings);
    let plans = view(job.staging.clone(), |view| plan(job, view, &all));
    let Ok(plans) = plans else { return Ok(()) };
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let actions = |plan: &LinkPlan| about(&all, plan.ino, what(plan));
    let failed: Vec<LinkPlan> = (session.steps(&plans, actions, carry_out).into_iter())
        .filter(|plan| matches!(plan.to, Move::Home(_) | Move::Gone(..)))
        .map(|plan| LinkPlan { to: Move::Lost, from: plan.from.clone(), ..*plan })
        .collect();
    session.steps(&failed, actions, carry_out);
    Ok(())
}

/// Returns the action for an inode, about its first finding.
fn about(all: &BTreeMap<u64, Vec<&Finding>>, ino: Ino, what: &str) -> Vec<Action> {
    let finding = all.get(&ino.0).and_then(|findings| findings.first());
    finding.map(|finding| Action::about(finding, what)).into_iter().collect()
}

fn what(plan: &LinkPlan) -> &'static str {
    match &plan.to {
        Move::Home(_) => "The inode is reattached where its parent pointers say.",
        Move::Gone(..) => {
            "The inode goes to lost+found, into a directory that replaces its lost parent."
        }
        Move::Lost => "The inode goes to lost+found.",
        Move::DotDot(_) => "The entry `..` is set to the directory that contains this one.",
        Move::Special => "The link count is set to 1.",
        Move::Unmark => "The metadata file becomes an ordinary one.",
    }
}

/// Returns whether an inode needs no name, because only its link count is wrong. A count that equals the number of
/// parent pointers is right: some of its names were lost. The check compares a directory's name with its `..`, and
/// would report a second name.
fn is_only_miscounted(view: &View<'_>, ino: Ino, inode: &Inode, findings: &[&Finding]) -> bool {
    let Some(counted) = counted(findings) else { return false };
    findings.iter().all(|finding| finding.code == codes::INODE_LINKS)
        && !view.is_special(ino)
        && (inode.nlink() <= counted
            || parents_of(view, ino, inode).len() as u64 != u64::from(inode.nlink()))
}

fn plan(job: &RepairJob, view: &View<'_>, all: &BTreeMap<u64, Vec<&Finding>>) -> Vec<LinkPlan> {
    let mut known = ExaminedDirectories { view, parents: HashMap::new(), entries: HashMap::new() };
    let mut loops = HashSet::new();
    let mut plans = Vec::new();
    for (number, findings) in all {
        let ino = Ino(*number);
        let Some(inode) = view.inode(ino) else { continue };
        if is_only_miscounted(view, ino, &inode, findings) {
            continue;
        }
        let links = job.names(view).get(number).cloned().unwrap_or_default();
        let has = |codes: &[&Code]| findings.iter().any(|finding| codes.contains(&finding.code));
        let is_lost = has(&[codes::INODE_LOST, codes::DIR_LOOP, codes::DIR_DOT_DOT]);
        let is_loop = has(&[codes::DIR_LOOP]);
        let planned = match inode.file_type() {
            None => None,
            Some(_) if view.is_special(ino) => Some((Vec::new(), Move::Special)),
            Some(_) if view.is_root(ino) => is_lost.then_some((links, Move::DotDot(ino))),
            // One name of each loop is removed.
            Some(_) if is_loop && !links.is_empty() => {
                loops.insert(known.loop_of(ino)).then(|| (links, known.home(ino, &inode)))
            }
            Some(_) if links.is_empty() => {
                let home = |known: &mut ExaminedDirectories<'_, '_>| match inode.is_metadata() {
                    true => metadata_home(view, ino, &inode),
                    false => known.home(ino, &inode),
                };
                is_lost.then(|| (Vec::new(), home(&mut known)))
            }
            Some(FileType::Directory) if is_lost || links.len() > 1 => {
                Some(plan_of_directory(&mut known, ino, &inode, links))
            }
            Some(FileType::Directory) => None,
            Some(_) => lost_names(&mut known, ino, &inode, &links).map(|to| (Vec::new(), to)),
        };
        if let (Some(file_type), Some((from, to))) = (inode.file_type(), planned) {
            plans.push(LinkPlan { ino, file_type, from, to });
        }
    }
    plans
}

/// Returns the places of lost names of a file: its link count equals its number of parent pointers, and some of those
/// are not names.
fn lost_names(
    known: &mut ExaminedDirectories<'_, '_>,
    ino: Ino,
    inode: &Inode,
    links: &[Link],
) -> Option<Move> {
    let mut said = parents_of(known.view, ino, inode);
    if said.len() as u64 != u64::from(inode.nlink()) || said.len() <= links.len() {
        return None;
    }
    said.retain(|link| !links.contains(link));
    let to = known.home_of(ino, inode, said);
    matches!(to, Move::Home(_)).then_some(to)
}

/// Returns the names to remove from a directory with names, and its new parent.
fn plan_of_directory(
    known: &mut ExaminedDirectories<'_, '_>,
    ino: Ino,
    inode: &Inode,
    links: Vec<Link>,
) -> (Vec<Link>, Move) {
    let said = parents_of(known.view, ino, inode);
    let right = right_name(known, ino, &links, &said);
    let to = known.home(ino, inode);
    // `..` and parent pointers agree with each other, or the name would create a loop.
    let is_home = match &to {
        Move::Home(homes) => known.dot_dot(ino) == homes.first().map(|home| home.dir),
        _ => false,
    };
    if !said.contains(right) && (is_home || known.is_below(Ino(right.0), ino)) {
        return (links, to);
    }
    let from = links.iter().filter(|link| *link != right).cloned().collect();
    (from, Move::DotDot(Ino(right.0)))
}

/// Returns the right name of a directory: one in its parent pointers, or one in the directory of its `..`. An inode that
/// was overwritten with a directory names the same children.
fn right_name<'l>(
    known: &mut ExaminedDirectories<'_, '_>,
    ino: Ino,
    links: &'l [Link],
    said: &[Link],
) -> &'l Link {
    if let Some(link) = links.iter().find(|link| said.contains(link)) {
        return link;
    }
    let parent = known.dot_dot(ino).filter(|parent| !known.is_below(*parent, ino));
    let by_parent = parent.and_then(|parent| links.iter().find(|link| link.0 == parent.0));
    by_parent.unwrap_or(&links[0])
}

/// Returns the move of a metadata file without a name.
fn metadata_home(view: &View<'_>, ino: Ino, inode: &Inode) -> Move {
    let said = parents_of(view, ino, inode);
    match metadir::home(view, inode, &said) {
        Some(MetafilePlace { dir, name, mistaken }) => {
            Move::Home(vec![Name { dir, name, mistaken }])
        }
        None => Move::Unmark,
    }
}

fn carry_out(fs: &XfsCore, plan: &LinkPlan) -> Result<()> {
    for (dir, _, name) in &plan.from {
        change(fs, Ino(*dir), |op, handle| op.remove_entry(handle, name, None).map(drop))?;
    }
    match &plan.to {
        Move::DotDot(parent) => set_parent(fs, plan.ino, *parent),
        Move::Unmark => metadir::unmark(fs, plan.ino),
        Move::Special => change(fs, plan.ino, |op, handle| {
            if op.fs.is_unlinked(plan.ino) {
                op.remove_unlinked(handle);
            }
            handle.inode.set_nlink(1);
            Ok(())
        }),
        Move::Home(homes) => homes.iter().try_for_each(|home| {
            let found = dir::lookup(&mut &*fs, &fs.load(home.dir)?, &home.name)?;
            if home.mistaken.is_some() && found.map(|found| found.ino) == home.mistaken {
                change(fs, home.dir, |op, dir| op.remove_entry(dir, &home.name, None).map(drop))?;
            }
            let name = free_name_in(fs, home.dir, &home.name)?;
            add_name(fs, home.dir, &name, plan)
        }),
        Move::Gone(gone, name) => {
            let lost = make_dir(fs, fs.root_ino(), LOST_AND_FOUND)?;
            let dir = make_dir(fs, lost, gone.to_string().as_bytes())?;
            let name = free_name_in(fs, dir, name)?;
            add_name(fs, dir, &name, plan)
        }
        Move::Lost => {
            let dir = make_dir(fs, fs.root_ino(), LOST_AND_FOUND)?;
            let name = free_name_in(fs, dir, plan.ino.to_string().as_bytes())?;
            add_name(fs, dir, &name, plan)
        }
    }
}

fn set_parent(fs: &XfsCore, ino: Ino, parent: Ino) -> Result<()> {
    change(fs, ino, |op, handle| {
        let entry = Entry { name: b"..", ino: parent, file_type: FileType::Directory };
        op.replace_entry(handle, entry).map(drop)
    })
}

/// Adds a name for an inode. Its parent pointers and its link count are repaired later.
fn add_name(fs: &XfsCore, dir: Ino, name: &[u8], plan: &LinkPlan) -> Result<()> {
    change_two(fs, (dir, plan.ino), |op, dir, child| {
        op.add_entry(dir, Entry { name, ino: child.ino(), file_type: plan.file_type })?;
        if plan.file_type == FileType::Directory {
            let entry = Entry { name: b"..", ino: dir.ino(), file_type: FileType::Directory };
            op.replace_entry(child, entry)?;
        }
        if child.inode.nlink() == 0 {
            if op.fs.is_unlinked(child.ino()) {
                op.remove_unlinked(child);
            }
            child.inode.set_nlink(if plan.file_type == FileType::Directory { 2 } else { 1 });
        }
        Ok(())
    })
}

/// Returns the directory with this name, and creates it if needed.
fn make_dir(fs: &XfsCore, parent: Ino, name: &[u8]) -> Result<Ino> {
    let handle = fs.load(parent)?;
    if let Some(found) = dir::lookup(&mut &*fs, &handle, name)?
        && fs.load(found.ino)?.inode.is_dir()
    {
        return Ok(found.ino);
    }
    let name = free_name_in(fs, parent, name)?;
    let time = handle.inode.time(crate::format::inode::Time::Modify).unwrap_or_default();
    let new = NewInode { permissions: 0o700, time, ..NewInode::default() };
    let flags = handle.inode.flags();
    let is_fixed = flags & FIXED != 0;
    let set_flags = |flags: u16| {
        change(fs, parent, |_, handle| {
            handle.inode.set_flags(flags);
            Ok(())
        })
    };
    // Only a repair may change such a directory.
    if is_fixed {
        set_flags(flags & !FIXED)?;
    }
    let made = mkdir(fs, parent, &name, &new)?;
    if is_fixed {
        set_flags(flags)?;
    }
    Ok(made)
}

/// Returns the name, or a similar one that is not in use in the directory.
fn free_name_in(fs: &XfsCore, parent: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let handle = fs.load(parent)?;
    let name = possible_name(name);
    let mut other = name.clone();
    for number in 1..NUMBERS_MAX {
        if dir::lookup(&mut &*fs, &handle, &other)?.is_none() {
            return Ok(other);
        }
        other = numbered(&name, number);
    }
    Err(Error::Exists)
}

/// Sets parent pointers according to the names.
pub(super) fn repair_parents(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let all = by_inode(findings);
    let plans = view(job.staging.clone(), |view| {
        let names = job.names(view);
        let plan = |ino: &u64| {
            let inode = view.inode(Ino(*ino))?;
            let said = parents_of(view, Ino(*ino), &inode);
            // A lost inode keeps its parent pointers. The root and the inodes in the superblock are never lost.
            let is_named_elsewhere = view.is_root(Ino(*ino)) || view.is_special(Ino(*ino));
            let links = match names.get(ino) {
                Some(links) => links.clone(),
                None if is_named_elsewhere => Vec::new(),
                None => return None,
            };
            let mut whole = attributes::read(view, Ino(*ino), &inode);
            whole.retain(|attribute| attribute.namespace != flags::PARENT);
            whole.extend(links.iter().map(|(dir, generation, name)| Attribute {
                namespace: flags::PARENT,
                name: name.clone(),
                value: parent_value(*dir, *generation).to_vec(),
            }));
            Some(Parents { ino: Ino(*ino), links, said, whole })
        };
        all.keys().filter_map(plan).collect::<Vec<_>>()
    });
    let Ok(plans) = plans else { return Ok(()) };
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let what = "The parent pointers are recreated from the directory entries.";
    let actions = |plan: &Parents| about(&all, plan.ino, what);
    let failed = session.steps(&plans, actions, |fs, plan| {
        change(fs, plan.ino, |op, handle| {
            for link in plan.said.iter().filter(|link| !plan.links.contains(link)) {
                op.remove_parent(handle, as_parent(link))?;
            }
            for link in plan.links.iter().filter(|link| !plan.said.contains(link)) {
                op.add_parent(handle, as_parent(link))?;
            }
            Ok(())
        })
    });
    for plan in failed {
        session.step(actions(plan), |fs| attributes::make(fs, plan.ino, &plan.whole));
    }
    Ok(())
}

/// Current and planned parent pointers of an inode.
struct Parents {
    ino: Ino,
    links: Vec<Link>,
    said: Vec<Link>,
    /// All its planned attributes.
    whole: Vec<Attribute>,
}

fn as_parent(link: &Link) -> ParentLink<'_> {
    ParentLink { dir: Ino(link.0), generation: link.1, name: &link.2 }
}

/// Sets link counts to the numbers that the check has counted in the same state of the image.
pub(super) fn repair_counts(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let all = by_inode(findings);
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let count = |(ino, findings): (&u64, &Vec<&Finding>)| Some((Ino(*ino), counted(findings)?));
    let counts: Vec<(Ino, u32)> =
        all.iter().filter_map(count).filter(|(_, count)| *count > 0).collect();
    let actions = |(ino, count): &(Ino, u32)| {
        about(&all, *ino, &format!("The link count is set to {count}."))
    };
    session.steps(&counts, actions, |fs, (ino, count)| {
        change(fs, *ino, |op, handle| {
            if op.fs.is_unlinked(*ino) {
                op.remove_unlinked(handle);
            }
            handle.inode.set_nlink(*count);
            Ok(())
        })
    });
    Ok(())
}

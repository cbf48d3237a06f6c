//! Gives a name to everything without one, and leaves one path to each directory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::directories::DirectoryDraft;
use super::draft::Draft;
use super::inodes::ROOT;
use super::lost_found;
use super::names_in::{FoundName, old_name, other_name};
use super::repair_context::RepairContext;
use crate::check::checked_image::InodeFacts;
use crate::check::codes::*;
use crate::format::features::RoCompat;
use crate::repair::RepairJob;
use crate::repair::image::StagedImage;

/// Maximum number of directories above a directory.
const DEPTH_MAX: usize = 1000;
/// Maximum number of inodes without names whose former names are searched for.
const OLD_NAMES_MAX: usize = 1000;

/// Changes of a directory.
#[derive(Default)]
struct DirectoryEdit {
    /// Inodes to add, with their names if known.
    add: Vec<(u32, Option<Vec<u8>>)>,
    /// Names to remove, with their inodes.
    remove: HashSet<(Vec<u8>, u32)>,
    /// New target of `..`.
    dot_dot: Option<u32>,
    actions: Vec<Action>,
}

/// Repairs findings about names. All directories must be valid.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut context) = RepairContext::surveyed(job)? else { return Ok(()) };
    context.checked.read_names();
    let has_root = context.checked.known(ROOT).is_some_and(|known| known.is_dir);
    if !has_root {
        return Ok(());
    }
    let is_needed =
        |finding: &&&Finding| finding.code == DIR_LOST_FOUND || finding.code == INODE_UNATTACHED;
    let lost_found = match lost_found::find(&context) {
        Some(ino) => Some(ino),
        // All findings are found again in the next round, when lost+found exists.
        None if findings.iter().any(|finding| is_needed(&finding)) => {
            if lost_found::make(&mut context, findings)? {
                return Ok(());
            }
            None
        }
        None => None,
    };
    let moved = HashSet::new();
    let mut plan = ConnectPlan { context: &context, lost_found, changes: BTreeMap::new(), moved };
    plan.drop_names(findings);
    plan.attach(findings);
    plan.set_parents(findings);
    let changes = plan.changes;
    for (ino, change) in changes {
        apply(&mut context, ino, change)?;
    }
    Ok(())
}

struct ConnectPlan<'p, 'j> {
    context: &'p RepairContext<'j>,
    lost_found: Option<u32>,
    changes: BTreeMap<u32, DirectoryEdit>,
    /// Directories whose names change.
    moved: HashSet<u32>,
}

impl ConnectPlan<'_, '_> {
    fn change(&mut self, directory: u32) -> &mut DirectoryEdit {
        self.changes.entry(directory).or_default()
    }

    /// If a directory has several names, keeps the one in the directory that `..` refers to, else the first.
    fn drop_names(&mut self, findings: &[&Finding]) {
        let found: Vec<_> = findings.iter().filter(|f| f.code == DIR_NAMES).collect();
        if found.is_empty() {
            return;
        }
        let checked = &self.context.checked;
        let mut all: HashMap<u32, Vec<(u32, Vec<u8>)>> = HashMap::new();
        checked.for_each_name(&mut |directory, name, ino| {
            if checked.known(ino).is_some_and(|known| known.is_dir) {
                all.entry(ino).or_default().push((directory, name.to_vec()));
            }
        });
        all.retain(|_, names| names.len() > 1);
        for (ino, names) in all {
            let dot_dot = checked.directory(ino).map_or(0, |ways| ways.dot_dot);
            let kept = names.iter().position(|(directory, _)| *directory == dot_dot).unwrap_or(0);
            for (at, (directory, name)) in names.into_iter().enumerate() {
                if at != kept {
                    let is_of = |finding: &&&&Finding| {
                        finding.place.inode == Some(directory.into())
                            && finding.place.name.as_ref() == Some(&name)
                    };
                    let finding = found.iter().find(is_of).unwrap_or(&found[0]);
                    let what = format!("An additional entry of directory {ino} is removed.");
                    let action = Action::about(finding, what);
                    let change = self.change(directory);
                    change.actions.push(action);
                    change.remove.insert((name, ino));
                    self.moved.insert(ino);
                }
            }
        }
    }

    fn attach(&mut self, findings: &[&Finding]) {
        let mut unattached: BTreeMap<u32, &Finding> = BTreeMap::new();
        for finding in findings.iter().filter(|finding| finding.code == INODE_UNATTACHED) {
            if let Some(ino) = finding.place.inode.and_then(|ino| u32::try_from(ino).ok()) {
                unattached.insert(ino, finding);
            }
        }
        let directories: BTreeSet<u32> = unattached.keys().copied().collect();
        for (ino, finding) in unattached {
            let Some(known) = self.context.checked.known(ino) else { continue };
            if known.is_dir {
                self.attach_directory(ino, finding, &directories);
            } else if let Some(lost_found) = self.lost_found {
                self.add(lost_found, ino, None, finding);
            }
        }
    }

    fn attach_directory(&mut self, ino: u32, finding: &Finding, lost: &BTreeSet<u32>) {
        let Some(ways) = self.context.checked.directory(ino) else { return };
        if ways.parent != 0 {
            // It is in a cycle, so the name that it has there is removed.
            self.remove_all(ways.parent, ino, finding);
        }
        let home = if ways.parent == 0 { ways.dot_dot } else { 0 };
        let is_home = match self.way(home) {
            PathEnd::ToRoot => true,
            // It will be reconnected together with that directory.
            PathEnd::To(other) if lost.contains(&other) && other != ino && other < ino => return,
            _ => false,
        };
        if is_home {
            let subject = self.context.subject(home).filter(|home| home.inode.is_dir());
            let is_plain = subject
                .as_ref()
                .is_some_and(|subject| !subject.has(crate::format::inode::flags::ENCRYPT));
            if let (true, Some(subject)) = (is_plain, subject) {
                let is_lost_found =
                    home == ROOT && ino == self.context.checked.params().sb.first_ino;
                let name = match is_lost_found && self.lost_found.is_none() {
                    true => Some(lost_found::NAME.to_vec()),
                    // Each search reads the whole directory.
                    false if lost.len() > OLD_NAMES_MAX => None,
                    false => old_name(self.context, &subject, ino),
                };
                return self.add(home, ino, name, finding);
            }
        }
        if let Some(lost_found) = self.lost_found {
            self.add(lost_found, ino, None, finding);
            self.change(ino).dot_dot = Some(lost_found);
        }
    }

    fn add(&mut self, home: u32, ino: u32, name: Option<Vec<u8>>, finding: &Finding) {
        let place = match home {
            ROOT => "the root directory".to_owned(),
            home if Some(home) == self.lost_found => "lost+found".to_owned(),
            home => format!("directory {home}"),
        };
        let shown = name
            .as_ref()
            .map_or_else(|| format!("#{ino}"), |name| String::from_utf8_lossy(name).into_owned());
        let what = format!("Inode {ino} is attached as \"{shown}\" in {place}.");
        self.moved.insert(ino);
        let change = self.change(home);
        change.add.push((ino, name));
        change.actions.push(Action::about(finding, what));
    }

    /// Removes all names of a directory from another one.
    fn remove_all(&mut self, from: u32, ino: u32, finding: &Finding) {
        let Some(directory) = DirectoryDraft::read(self.context, from) else { return };
        let names: Vec<_> = directory
            .entries()
            .iter()
            .filter(|entry| entry.ino == ino)
            .map(|entry| (entry.name.clone(), ino))
            .collect();
        self.moved.insert(ino);
        let what = format!("The entry of directory {ino} below itself is removed.");
        let change = self.change(from);
        change.remove.extend(names);
        change.actions.push(Action::about(finding, what));
    }

    /// Returns the end of the path upwards from a directory.
    fn way(&self, from: u32) -> PathEnd {
        let mut met = HashSet::new();
        let mut at = from;
        while at != ROOT {
            if met.len() >= DEPTH_MAX || !met.insert(at) {
                return PathEnd::Nowhere;
            }
            match self.context.checked.directory(at) {
                Some(ways) if ways.parent != 0 => at = ways.parent,
                Some(_) => return PathEnd::To(at),
                None => return PathEnd::Nowhere,
            }
        }
        PathEnd::ToRoot
    }

    fn set_parents(&mut self, findings: &[&Finding]) {
        for finding in findings.iter().filter(|finding| finding.code == DIR_PARENT) {
            let Some(ino) = finding.place.inode.and_then(|ino| u32::try_from(ino).ok()) else {
                continue;
            };
            let parent = match ino {
                ROOT => ROOT,
                ino => self.context.checked.directory(ino).map_or(0, |ways| ways.parent),
            };
            if parent != 0 && !self.moved.contains(&ino) {
                let what = format!("The entry \"..\" is set to inode {parent}.");
                let change = self.change(ino);
                change.dot_dot = Some(parent);
                change.actions.push(Action::about(finding, what));
            }
        }
    }
}

/// End of a path upwards.
enum PathEnd {
    ToRoot,
    /// A directory without a name.
    To(u32),
    Nowhere,
}

fn apply(context: &mut RepairContext<'_>, ino: u32, change: DirectoryEdit) -> Result<()> {
    let Some(mut directory) = DirectoryDraft::read(context, ino) else { return Ok(()) };
    if let Some(parent) = change.dot_dot {
        directory.set_dot_dot(parent);
    }
    directory
        .entries_mut()
        .retain(|entry| !change.remove.contains(&(entry.name.clone(), entry.ino)));
    let mut names: HashSet<Vec<u8>> =
        directory.entries().iter().map(|entry| entry.name.clone()).collect();
    let has_types = context.checked.params().filetype;
    for (child, name) in change.add {
        let code = context.checked.known(child).map_or(0, |known: InodeFacts| known.type_code);
        let name = name.unwrap_or_else(|| format!("#{child}").into_bytes());
        let name = if names.insert(name.clone()) {
            name
        } else {
            other_name(&name, &mut 1, |other| names.insert(other.to_vec()))
        };
        let file_type = if has_types { code } else { 0 };
        directory.entries_mut().push(FoundName::new(name, child, file_type));
    }
    let Some(draft) = directory.write(context) else { return Ok(()) };
    let mut actions = change.actions;
    if actions.is_empty() {
        actions.push(Action::new(format!("The entry \"..\" of directory {ino} is corrected.")));
    }
    context.end(draft, actions)?;
    Ok(())
}

/// Enables the feature for directories with more subdirectories than link counts can represent.
fn allow_uncounted(job: &RepairJob) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    image
        .edit_superblock(|raw| {
            let mut features = raw.features();
            features.ro_compat.insert(RoCompat::DIR_NLINK);
            raw.set_features(&features);
        })
        .map_err(vfs::Error::Device)
}

/// Sets the link counts.
pub(super) fn repair_links(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    /// Maximum link count of a directory. A directory with more links has a count of 1.
    const LINKS_MAX: u64 = 65_000;
    let Some(context) = RepairContext::new(job)? else { return Ok(()) };
    for finding in findings {
        let ino = finding.place.inode.and_then(|ino| u32::try_from(ino).ok());
        let count = finding.expected.as_ref().and_then(|text| text.parse::<u64>().ok());
        let (Some(mut subject), Some(count)) = (ino.and_then(|ino| context.subject(ino)), count)
        else {
            continue;
        };
        let is_uncounted = subject.inode.is_dir() && count > LINKS_MAX;
        if is_uncounted && !context.checked.params().dir_nlink() {
            allow_uncounted(job)?;
        }
        let count = if is_uncounted { 1 } else { count.min(u16::MAX.into()) };
        subject.inode.set_links_count(count as u16);
        let mut draft = Draft::default();
        subject.store(&mut draft);
        let what = format!("The link count is set to {count}.");
        context.end(draft, vec![Action::about(finding, what)])?;
    }
    Ok(())
}

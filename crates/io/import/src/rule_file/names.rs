//! User and group names according to the source's own `/etc/passwd` and `/etc/group`.

use std::collections::HashMap;
use std::path::Path;

use super::fault::{RuleFault, text};
use super::lines::{RuleFile, id, lines_of};
use crate::SourceError;

/// IDs of the names of a source. Without its files only `root` is known, because the names of this host may have other
/// IDs.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdNames {
    users: HashMap<Vec<u8>, u32>,
    groups: HashMap<Vec<u8>, u32>,
}

impl IdNames {
    /// Reads the names of a tree on the host.
    pub(crate) fn of_root(root: Option<&Path>) -> Result<Self, SourceError> {
        let Some(root) = root else { return Ok(Self::default()) };
        Ok(Self { users: read(root, "passwd")?, groups: read(root, "group")? })
    }

    /// Returns the ID of a user.
    pub(crate) fn user(&self, name: &[u8]) -> Result<u32, RuleFault> {
        known(&self.users, name, "user")
    }

    /// Returns the ID of a group.
    pub(crate) fn group(&self, name: &[u8]) -> Result<u32, RuleFault> {
        known(&self.groups, name, "group")
    }
}

fn known(ids: &HashMap<Vec<u8>, u32>, name: &[u8], what: &'static str) -> Result<u32, RuleFault> {
    match ids.get(name) {
        Some(id) => Ok(*id),
        None if name == b"root" => Ok(0),
        None => Err(RuleFault::UnknownName { what, name: text(name) }),
    }
}

fn read(root: &Path, file: &str) -> Result<HashMap<Vec<u8>, u32>, SourceError> {
    let mut ids = HashMap::new();
    let etc = root.join("etc");
    let path = etc.join(file);
    // A symbolic link may lead to a file of the host with other names.
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if is_link(&etc) || is_link(&path) {
        return Ok(ids);
    }
    let Some(file) = RuleFile::read_if_there(&path)? else { return Ok(ids) };
    for (_, line) in lines_of(&file.bytes) {
        let mut fields = line.split(|&byte| byte == b':');
        // name:password:id:…; the first line of a name applies.
        let (Some(name), Some(number)) = (fields.next(), fields.nth(1)) else { continue };
        if let Ok(id) = id(number, "number") {
            ids.entry(name.to_vec()).or_insert(id);
        }
    }
    Ok(ids)
}

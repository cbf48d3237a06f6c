//! Quotas of users, groups and projects: usage, limits and grace times, in the units of callers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Kind of owner whose usage is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// Usage by user.
    User,
    /// Usage by group.
    Group,
    /// Usage by project.
    Project,
}

impl OwnerKind {
    /// All kinds, in the order of their numbers in both formats.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Returns its name for one owner.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["user", "group", "project"][self as usize]
    }

    /// Returns its name for all owners.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        ["users", "groups", "projects"][self as usize]
    }
}

/// Usage and limits of one resource: bytes, or a number of inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Usage.
    pub used: u64,
    /// Limit that may be exceeded for the grace time, or 0 for none.
    pub soft: u64,
    /// Limit that is never exceeded, or 0 for none.
    pub hard: u64,
    /// End of the grace time in seconds since the epoch, or 0 if it does not run.
    pub grace_end: u64,
}

/// Usage and limits of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerUsage {
    /// Number of the user, group or project.
    pub id: u32,
    /// Bytes in blocks. XFS: outside of the realtime section.
    pub space: ResourceUsage,
    /// Inodes.
    pub inodes: ResourceUsage,
    /// Bytes in the realtime section of XFS.
    pub realtime: ResourceUsage,
}

impl OwnerUsage {
    /// Returns whether there is neither usage nor a limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = |of: &ResourceUsage| of.used == 0 && of.soft == 0 && of.hard == 0;
        [&self.space, &self.inodes, &self.realtime].into_iter().all(is_empty)
    }
}

/// State of the quotas of one kind of owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaState {
    /// True if usage is counted.
    pub is_counted: bool,
    /// True if the image requests that limits are enforced. ext4 leaves this to mount options.
    pub is_enforced: bool,
    /// Grace times in seconds, of space, inodes and the realtime section.
    pub grace: [u64; 3],
}

/// New limits of one resource. `None` keeps the limit, and 0 removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Limit that may be exceeded for the grace time.
    pub soft: Option<u64>,
    /// Limit that is never exceeded.
    pub hard: Option<u64>,
}

impl NewLimits {
    /// Returns the limits after the change, in units of 2^`unit_log` bytes or inodes, rounded up. `old` has this unit.
    ///
    /// # Errors
    /// `Invalid` if the soft limit exceeds the hard limit.
    pub fn applied(self, (soft, hard): (u64, u64), unit_log: u32) -> crate::Result<(u64, u64)> {
        let in_units = |limit: u64| limit.div_ceil(1 << unit_log);
        let soft = self.soft.map_or(soft, in_units);
        let hard = self.hard.map_or(hard, in_units);
        if hard != 0 && soft > hard {
            return Err(crate::Error::Invalid("a soft limit must not exceed its hard limit"));
        }
        Ok((soft, hard))
    }

    /// Changes the limits of a resource, in bytes or inodes.
    fn apply(self, resource: &mut ResourceUsage, unit_log: u32) -> crate::Result<()> {
        let old = (resource.soft >> unit_log, resource.hard >> unit_log);
        let (soft, hard) = self.applied(old, unit_log)?;
        let unit = 1 << unit_log;
        (resource.soft, resource.hard) = (soft.saturating_mul(unit), hard.saturating_mul(unit));
        Ok(())
    }
}

/// New limits of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Kind of the owner.
    pub kind: OwnerKind,
    /// Number of the owner. The limits of number 0 are the default limits of XFS.
    pub id: u32,
    /// Limits of bytes in blocks.
    pub space: NewLimits,
    /// Limits of inodes.
    pub inodes: NewLimits,
    /// Limits of bytes in the realtime section of XFS.
    pub realtime: NewLimits,
}

impl OwnerLimits {
    /// Returns a change of nothing.
    #[must_use]
    pub fn of(kind: OwnerKind, id: u32) -> Self {
        let keep = NewLimits::default();
        Self { kind, id, space: keep, inodes: keep, realtime: keep }
    }
}

/// New grace times of a kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewGrace {
    /// The kind.
    pub kind: OwnerKind,
    /// Seconds for space, inodes and the realtime section. `None` keeps the time.
    pub seconds: [Option<u32>; 3],
}

/// Changes of limits and grace times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitChanges {
    /// Grace times. They are changed before the limits.
    pub grace: Vec<NewGrace>,
    /// Limits.
    pub limits: Vec<OwnerLimits>,
}

impl LimitChanges {
    /// Returns whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grace.is_empty() && self.limits.is_empty()
    }

    /// Checks that no soft limit exceeds its hard limit after the changes. `current` returns the limits of an owner, and
    /// limits of space are stored in units of 2^`unit_log` bytes.
    ///
    /// # Errors
    /// `Invalid` if one would exceed it, and those of `current`.
    pub fn check(
        &self,
        unit_log: u32,
        mut current: impl FnMut(OwnerKind, u32) -> crate::Result<OwnerUsage>,
    ) -> crate::Result<()> {
        let mut owners = BTreeMap::new();
        for of in &self.limits {
            let owner = match owners.entry((of.kind, of.id)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(current(of.kind, of.id)?),
            };
            of.space.apply(&mut owner.space, unit_log)?;
            of.inodes.apply(&mut owner.inodes, 0)?;
            of.realtime.apply(&mut owner.realtime, unit_log)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rounded_up_and_kept() {
        let change = NewLimits { soft: Some(4097), hard: None };
        assert_eq!(change.applied((9, 7), 12).unwrap(), (2, 7));
        assert_eq!(change.applied((9, 0), 0).unwrap(), (4097, 0));
        assert!(change.applied((0, 4096), 0).is_err());
        let none = NewLimits { soft: Some(0), hard: Some(0) };
        assert_eq!(none.applied((5, 6), 10).unwrap(), (0, 0));
    }

    #[test]
    fn changes_are_checked_in_their_order() {
        let stored = OwnerUsage {
            id: 7,
            inodes: ResourceUsage { hard: 5, ..ResourceUsage::default() },
            ..OwnerUsage::default()
        };
        let check = |limits: &[NewLimits]| {
            let of = OwnerLimits::of(OwnerKind::Group, 7);
            let limits = limits.iter().map(|&inodes| OwnerLimits { inodes, ..of }).collect();
            let changes = LimitChanges { grace: Vec::new(), limits };
            changes.check(12, |kind, id| {
                assert_eq!((kind, id), (OwnerKind::Group, 7));
                Ok(stored)
            })
        };
        let soft = |soft| NewLimits { soft: Some(soft), hard: None };
        let hard = |hard| NewLimits { soft: None, hard: Some(hard) };
        check(&[soft(5)]).unwrap();
        assert!(check(&[soft(6)]).is_err());
        check(&[hard(6), soft(6)]).unwrap();
        assert!(check(&[soft(3), hard(2)]).is_err());
        check(&[hard(0), soft(6)]).unwrap();
    }
}

//! Quota files. Usage is not counted while a file system is filled, so the files are created afterwards: their inode
//! numbers are stored in the superblock, and a repair counts the usage and writes them, as it does for lost files.

use std::path::Path;

use diskwright::ImageOptions;
use diskwright::build::{BuildOptions, FeatureChange, Tuning};
use diskwright::check::{Collector, Limits, Options};
use diskwright::repair::Repair;
use diskwright::tune::change_superblock;
use ext4::format::features::RoCompat;
use ext4::format::quota::QuotaKind;
use ext4::format::superblock::RawSuperblock;

use super::args::Args;
use super::profile::Profile;
use super::values::has;
use crate::failure::{Failure, STATUSES};

/// Name of the feature.
const FEATURE: &str = "quota";
/// Inodes of the quota files of users and groups.
const USER_INO: u32 = 3;
const GROUP_INO: u32 = 4;

/// The quota files to make.
#[derive(Debug)]
pub(super) struct Quotas(Vec<QuotaKind>);

impl Quotas {
    /// Returns the quota types selected by arguments and features.
    pub(super) fn of(args: &Args, profile: &Profile) -> Result<Self, Failure> {
        if !has(&profile.features, FEATURE) {
            return Ok(Self(Vec::new()));
        }
        let has_projects = has(&profile.features, "project");
        let extended = &args.extended;
        if extended.is_android_sparse {
            let why = "usage can be counted only in a raw image";
            return Err(STATUSES.refused("-O quota with -E android_sparse", why));
        }
        let mut kinds = extended.quotas.clone();
        if kinds.is_empty() {
            kinds = vec![QuotaKind::User, QuotaKind::Group];
            kinds.extend(has_projects.then_some(QuotaKind::Project));
        }
        if kinds.contains(&QuotaKind::Project) && !has_projects {
            return Err(STATUSES.usage("-E quotatype=prjquota needs the feature project"));
        }
        Ok(Self(kinds))
    }

    /// Returns the features for filling.
    pub(super) fn without(&self, features: &[FeatureChange]) -> Vec<FeatureChange> {
        features.iter().filter(|change| change.name != FEATURE).cloned().collect()
    }

    /// Returns the settings for filling.
    pub(super) fn with_inode(&self, tuning: &Tuning) -> Tuning {
        let has_project_quota = self.0.contains(&QuotaKind::Project);
        Tuning { has_project_quota, ..tuning.clone() }
    }

    /// Creates the files in a finished image.
    pub(super) fn make(&self, options: &BuildOptions) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut open = ImageOptions::default().offset(options.offset);
        open.devices.log.clone_from(&options.log_device);
        self.write(&options.image, &open).map_err(|e| STATUSES.of(&e))
    }

    fn write(&self, image: &Path, open: &ImageOptions) -> diskwright::Result<()> {
        let number = |kind, ino: u32| if self.0.contains(&kind) { ino } else { 0 };
        change_superblock(image, open, &mut |raw: &mut RawSuperblock| {
            let mut features = raw.features();
            features.ro_compat.insert(RoCompat::QUOTA);
            raw.set_features(&features);
            raw.usr_quota_inum = number(QuotaKind::User, USER_INO).into();
            raw.grp_quota_inum = number(QuotaKind::Group, GROUP_INO).into();
            Ok(())
        })?;
        let repair = Repair::open(image, open)?;
        let plan = repair.plan(&Options::default(), &Collector::new(Limits::default()))?;
        let done = repair.prepare(&plan, None)?.carry_out(&mut |_, _| true)?;
        if let Some(undo) = done.undo {
            // There is no earlier file system to restore.
            let _ = std::fs::remove_file(undo);
        }
        Ok(())
    }
}

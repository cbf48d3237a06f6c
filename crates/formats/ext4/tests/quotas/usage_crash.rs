//! Usage is right after a crash and recovery by this crate or by e2fsck.

use testkit::crash::{Judge, Options};
use testkit::require;

use super::QuotaImage;
use super::usage::KINDS;
use crate::changing::ImageParameters;
use crate::changing::crashing::Ext4Target;
use crate::changing::judges::{CheckRecovers, check_recovered};

#[test]
fn usage_survives_a_crash_anywhere() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (kind, block_size, states) in [(1, 1024, 250), (2, 4096, 250), (5, 1024, 100)] {
        let layout = ImageParameters { block_size, ..ImageParameters::DEFAULT };
        let target = Ext4Target::with_image(layout, QuotaImage::new(KINDS[kind]).in_memory());
        let (ours, theirs) = (check_recovered(1), CheckRecovers::new(1));
        let judges: [&dyn Judge; 2] = [&ours, &theirs];
        testkit::assert_survives(&target, &judges, Options::default(), states);
    }
}

//! The check finds nothing in valid images, regardless of who made or interrupted them. Images filled by other programs
//! are checked in `foreign` and `foreign_changed`.

use crate::{changing, checking, common};

use std::process::Command;
use std::sync::Arc;

use changing::target::XfsTarget;
use changing::{SYNCING, TargetLayout};
use checking::{Sound, assert_sound, findings, share};
use common::image::{GOLDEN, device, unpack};
use testkit::crash::Options;
use testkit::operation::Mix;
use testkit::stress::Stress;
use testkit::{KernelMount, MkfsXfs, MountOptions, require};

const MIB: u64 = 1 << 20;

#[test]
fn golden_images() {
    for (name, packed) in GOLDEN {
        let found = findings(Arc::new(device(&unpack(packed)))).unwrap();
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// Quotas, shared blocks, and a load like fsstress.
#[test]
fn images_used_by_the_kernel() {
    require!(Mount("xfs"), Tool("mkfs.xfs"));
    for (options, mount) in [
        ("", "nodev"),
        ("", "nodev,uquota,gquota,pquota"),
        ("-b size=1024 -n size=8192", "nodev"),
        ("-i size=2048 -d agcount=9", "nodev"),
        ("-m rmapbt=0 -i sparse=0,nrext64=0 -n parent=0", "nodev,usrquota"),
    ] {
        let home = testkit::scratch();
        let image = home.path().join("image");
        MkfsXfs::default().options(options).create(&image, 400 * MIB);
        let how = MountOptions { extra: mount, ..MountOptions::read_write("xfs") };
        let mounted = match KernelMount::attempt(&image, &how) {
            Ok(mounted) => mounted,
            Err(_) if mount.contains("quota") => {
                eprintln!("this kernel has no quotas");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        share(mounted.path());
        for id in 1..20 {
            let file = mounted.path().join(format!("of {id}"));
            std::fs::write(&file, vec![1; id * 1000]).unwrap();
            let owner = format!("{}:{}", id * 1000, id);
            assert!(Command::new("chown").arg(owner).arg(&file).status().unwrap().success());
        }
        let stress = Stress::start(mounted.path(), 3, 7);
        std::thread::sleep(std::time::Duration::from_secs(testkit::effort(2, 5, 60)));
        stress.stop();
        mounted.unmount();
        eprintln!("{options:?} {mount:?}");
        assert_sound(&image);
    }
}

#[test]
fn images_after_crashes() {
    for layout in [
        TargetLayout::DEFAULT,
        TargetLayout::SMALL_BLOCKS,
        TargetLayout::PLAIN,
        TargetLayout::LARGE_DIR_BLOCKS,
    ] {
        let options =
            Options { mixes: vec![Mix::METADATA, Mix::ALL, SYNCING], ..Options::default() };
        testkit::assert_survives(&XfsTarget::worn(layout), &[&Sound], options, 100);
    }
}

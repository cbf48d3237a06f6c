//! Logs as the kernel left them.

use oracle::{require, scratch};

use crate::support::{Load, MIB, Stop, assert_replayed_alike, dirty, sync};

/// Changes with all of them in the log at the end, some of them in their places, too.
fn assert_all_replayed(options: &str, size: u64, seed: u64) {
    let home = scratch();
    let image = dirty(home.path(), options, size, Stop::Flushed, |root| {
        let mut load = Load::new(seed);
        for _ in 0..3 {
            load.run(root, 300);
            sync(root);
        }
        load.run(root, 200);
    });
    let report = assert_replayed_alike(&image, options);
    assert!(report.transactions > 0 && report.items_replayed > 0, "{options}: {report:?}");
}

#[test]
fn images_of_all_kinds_are_replayed_as_the_kernel_does() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    let options = [
        "",
        "-m rmapbt=0,reflink=0",
        "-i nrext64=0 -m bigtime=0,finobt=0",
        "-b size=1024 -n size=8192",
        "-s size=4096",
        "-i size=1024 -n parent=0",
    ];
    for (seed, options) in (0..).zip(options) {
        assert_all_replayed(options, 300 * MIB, seed);
    }
}

#[test]
fn logs_of_all_shapes_are_replayed_as_the_kernel_does() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    for (seed, options) in (20..).zip(["-l su=32k", "-l su=256k", "-l su=4096 -n size=65536"]) {
        assert_all_replayed(options, 300 * MIB, seed);
    }
}

#[test]
fn a_kernel_that_stops_in_the_middle_of_its_work_is_followed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    for (seed, options) in (40..).zip(["-l size=2500b", "-l size=3000b,su=32k"]) {
        let home = scratch();
        let image = dirty(home.path(), options, 128 * MIB, Stop::AtOnce, |root| {
            let mut load = Load::new(seed);
            // Small logs come round.
            for _ in 0..6 {
                load.run(root, 500);
                sync(root);
            }
            load.run(root, 700);
        });
        assert_replayed_alike(&image, options);
    }
}

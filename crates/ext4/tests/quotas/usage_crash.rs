//! Usage is right after a crash and recovery, ours or that of e2fsck.

use std::ops::ControlFlow;
use std::time::Duration;

use oracle::require;
use workload::crash::{Explorer, Judge, Options};
use workload::operation::Mix;

use super::Image;
use super::usage::KINDS;
use crate::changing::Layout;
use crate::changing::crashing::Ext4Target;
use crate::changing::judges::{CheckRecovers, check_recovered};
use workload::trial::Watchdog;

#[test]
fn usage_survives_a_crash_anywhere() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (kind, block_size, states) in [(1, 1024, 250), (2, 4096, 250), (5, 1024, 100)] {
        let _watchdog = Watchdog::new(Duration::from_secs(1800), "crashes with quotas".into());
        let layout = Layout { block_size, ..Layout::DEFAULT };
        let target = Ext4Target::with_image(layout, Image::new(KINDS[kind]).in_memory());
        let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
        let mixes = vec![Mix::METADATA, Mix::ALL];
        let options = Options { mixes, ..Options::default() };
        let judges: [&dyn Judge; 2] = [&ours, &theirs];
        let explorer = Explorer::new(&target, &judges, options);
        let report = explorer.explore(1, states, 2, &|_, failures| {
            if failures < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        for failure in &report.failures {
            eprintln!("seed {}, {:?}: {}", failure.seed, failure.state, failure.what);
        }
        assert!(report.failures.is_empty() && report.states >= states && report.recrashed > 0);
    }
}

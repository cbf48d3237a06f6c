//! Common test scenarios for file systems: direct mixed with cached I/O, asynchronous I/O, full
//! file systems, unaligned ranges, tiny logs, and shutdowns. Each is a short script that runs on
//! our mount and on the kernel's own. Errors and contents must be equal. Exceptions are explained
//! in `docs/mount.md` and listed in [`KNOWN`].

mod direct;
mod files;
mod full;
mod logs;
mod mixed;
mod names;
mod privileges;
mod ranges;
mod trace;

use std::thread;

use testkit::{Need, satisfied};
use trace::Trace;

use crate::place::{Driver, Place, Wanted, prove_on_both};

/// A script: performs the same operations on each mount, and records their results.
type Script = fn(&mut Place, &mut Trace);

/// A known difference of our mounts.
struct KnownDifference {
    script: &'static str,
    /// Start of the operation's line.
    operation: &'static str,
    /// Results on our mount and on the kernel's, if they are always the same.
    outcomes: Option<(&'static str, &'static str)>,
    /// A sentence of `docs/mount.md`.
    documented: &'static str,
}

const KNOWN: [KnownDifference; 4] = [
    KnownDifference {
        script: "direct_requests",
        operation: "unaligned ",
        outcomes: None,
        documented: "Direct requests need no alignment",
    },
    KnownDifference {
        script: "fallocate_ranges",
        operation: "collapse ",
        outcomes: None,
        documented: "`FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE` are EOPNOTSUPP",
    },
    KnownDifference {
        script: "fallocate_ranges",
        operation: "insert ",
        outcomes: None,
        documented: "`FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE` are EOPNOTSUPP",
    },
    KnownDifference {
        script: "rename_and_link",
        operation: "rename ",
        outcomes: Some(("ENOTEMPTY", "EEXIST")),
        documented: "Renaming onto a directory that is not empty is ENOTEMPTY on XFS, too",
    },
];

impl KnownDifference {
    fn is(&self, script: &str, (operation, ours, kernel): &(String, String, String)) -> bool {
        self.script == script
            && operation.starts_with(self.operation)
            && self.outcomes.is_none_or(|outcomes| outcomes == (ours.as_str(), kernel.as_str()))
    }
}

/// Runs a script on both mounts in parallel and compares the traces. The last part of `name` is the
/// script's name.
fn compare(name: &str, wanted: Wanted, script: Script) {
    let tools = ["mke2fs", "mkfs.xfs", "xfs_io", "cc", wanted.format.checker()];
    let mut needs = vec![Need::Root, Need::Fuse, Need::Mount(wanted.format.kernel_name())];
    needs.extend(tools.map(Need::Tool));
    if !satisfied(&format!("{name}::{:?}", wanted.format), &needs) {
        return;
    }
    let name = name.rsplit("::").next().expect("there is always one");
    let run = |driver| {
        let mut place = Place::new(Wanted { driver, ..wanted });
        let mut trace = Trace::default();
        script(&mut place, &mut trace);
        place.finish();
        trace
    };
    let (ours, kernel) = thread::scope(|scope| {
        let kernel = scope.spawn(|| run(Driver::Kernel));
        let ours = run(wanted.driver);
        (ours, kernel.join().unwrap())
    });
    assert!(kernel.len() > 10, "{name}: only {} operations", kernel.len());
    let (known, new): (Vec<_>, Vec<_>) = ours
        .differences(&kernel)
        .into_iter()
        .partition(|found| KNOWN.iter().any(|known| known.is(name, found)));
    println!(
        "{name} on {:?}: {} operations, {} known differences",
        wanted.format,
        ours.len(),
        known.len()
    );
    let lines: Vec<_> = new
        .iter()
        .map(|(operation, ours, kernel)| {
            format!("{operation}: {ours}, but on the kernel's mount {kernel}")
        })
        .collect();
    assert!(lines.is_empty(), "{name}: {} new differences\n{}", lines.len(), lines.join("\n"));
}

prove_on_both!(
    with super::compare;
    fallocate_ranges = super::ranges::all: 400 << 20,
    mixed_requests = super::mixed::all: 400 << 20,
    direct_requests = super::direct::all: 400 << 20,
    full_file_systems = super::full::all: 310 << 20,
    rename_and_link = super::names::all: 310 << 20,
    set_id_bits = super::privileges::all: 310 << 20,
    durable_operations = super::logs::all: 310 << 20,
);

/// Known differences are documented for users.
#[test]
fn known_differences_are_documented() {
    let text = include_str!("../../../../../../docs/mount.md");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(text);
    for known in &KNOWN {
        assert!(
            text.contains(&words(known.documented)),
            "docs/mount.md lacks: {}",
            known.documented
        );
    }
}

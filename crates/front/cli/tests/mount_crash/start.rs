//! Servers killed soon after their start. At that time a server limits the dirty pages of its mount
//! and has the kernel write them back, and must answer the kernel's requests itself.

use std::thread;
use std::time::Duration;

use super::mount_after_crash;
use crate::place::{Format, Place, Wanted, prove};

/// Maximum time in milliseconds between the mount and the end of its server.
const LIFE_MAX: u64 = 40;

fn a_killed_server_ends(place: &mut Place) {
    for life in (0..LIFE_MAX).step_by(testkit::effort(4, 2, 1)) {
        thread::sleep(Duration::from_millis(life));
        place.crash();
        // This waits for the end of the process.
        mount_after_crash(place, false);
    }
}

#[test]
fn a_killed_server_ends_at_any_time() {
    let wanted = Wanted { bytes: 16 << 20, ..Wanted::new(Format::Ext) };
    prove(
        concat!(module_path!(), "::a_killed_server_ends_at_any_time"),
        wanted,
        a_killed_server_ends,
    );
}

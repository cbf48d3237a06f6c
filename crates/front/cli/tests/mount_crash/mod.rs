//! Crashes of mounts: durable data is present afterwards, and the image is sound. The server is
//! killed, or its disk loses power. For comparison, the same tests run on kernel mounts, whose
//! driver is stopped.

mod device;
mod files;
mod lossy;
mod sqlite;
mod start;

use crate::place::{self, Driver, Format, Place, Wanted};

/// Kind of crash, which determines the device of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The server is killed. Its writes are kept.
    Killed,
    /// The disk loses all unflushed writes.
    PowerLost,
}

impl Crash {
    fn wanted(self, format: Format) -> Wanted {
        let wanted = Wanted { bytes: 310 << 20, ..Wanted::new(format) };
        Wanted { volatile: self == Self::PowerLost, ..wanted }
    }
}

/// Number of crashes per test.
fn rounds() -> usize {
    testkit::effort(3, 6, 100)
}

/// Mounts after a crash by our driver, optionally after a mount by the kernel, which replays our
/// log.
fn mount_after_crash(place: &mut Place, by_kernel: bool) {
    place.clear_away();
    if by_kernel && place.driver() == Driver::Own {
        testkit::populate_with_kernel(place.image(), place.format().kernel_name(), |_| {});
        place::judge(place.image());
    }
    place.mount_with("");
}

/// Defines tests for each format and each kind of crash. A test function takes its name and both.
macro_rules! prove_through_crashes {
    ($($proof:ident),+ $(,)?) => {$(
        mod $proof {
            use crate::mount_crash::Crash;
            use crate::place::Format;

            fn on(format: Format, crash: Crash) {
                super::$proof(concat!(module_path!(), "::", stringify!($proof)), format, crash);
            }

            #[test]
            fn ext4_the_server_killed() {
                on(Format::Ext, Crash::Killed);
            }

            #[test]
            fn ext4_power_lost() {
                on(Format::Ext, Crash::PowerLost);
            }

            #[test]
            fn xfs_the_server_killed() {
                on(Format::Xfs, Crash::Killed);
            }

            #[test]
            fn xfs_power_lost() {
                on(Format::Xfs, Crash::PowerLost);
            }
        }
    )+};
}
pub(crate) use prove_through_crashes;

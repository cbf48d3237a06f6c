//! Crashes of mounts: what was said to be durable is there afterwards, and the image is sound. The server is
//! killed, or the power of the disk beneath it goes. Of the kernel's mounts, which these proofs are held
//! against, the driver is stopped where it is.

mod device;
mod files;
mod lossy;
mod sqlite;
mod start;

use crate::place::{self, Driver, Format, Place, Wanted};

/// What happens to the mount, and so what a proof runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The server is killed. What it has written stays.
    Killed,
    /// The disk forgets what was not flushed.
    PowerLost,
}

impl Crash {
    fn wanted(self, format: Format) -> Wanted {
        let wanted = Wanted { bytes: 310 << 20, ..Wanted::new(format) };
        Wanted { volatile: self == Self::PowerLost, ..wanted }
    }
}

/// Crashes of each proof.
fn rounds() -> usize {
    oracle::effort(3, 6, 100)
}

/// Mounts after a crash: by our driver, or in between by the kernel, which replays what we have written.
fn mount_after_crash(place: &mut Place, by_kernel: bool) {
    place.clear_away();
    if by_kernel && place.driver() == Driver::Own {
        oracle::populate_with_kernel(place.image(), place.format().kernel_name(), |_| {});
        place::judge(place.image());
    }
    place.mount_with("");
}

/// Makes tests for each format and each crash of a proof, which is a function of both and of its name.
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

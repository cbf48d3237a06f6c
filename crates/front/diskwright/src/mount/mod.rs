//! Mounts of images (`diskwright mount` and `unmount`).
//!
//! `Image::mount` converts an open image to a `Mount` on Linux. It answers the kernel's FUSE requests in this process until
//! it is unmounted, and then closes the image:
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::mount::MountOptions;
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = ImageOptions::new().write(true).open_to_mount("root.img")?;
//! let mount = image.mount("/mnt", MountOptions::default())?;
//! let unmounter = mount.unmounter();
//! let server = std::thread::spawn(|| mount.serve(|| println!("it can be used")));
//! // ... any program can work in /mnt ...
//! unmounter.unmount().expect("it is mounted");
//! server.join().expect("it does not panic")
//! # }
//! ```
//!
//! [`mount_by_nfs`] does the same with a server for the kernel's NFS client, on Linux and macOS.
//!
//! A thread that answers requests must not wait for one. A program must not use its own mount on the serving thread, or
//! hold a lock there that the server needs.

#[cfg(feature = "serve")]
mod nfs;
#[cfg(feature = "serve")]
mod nfs_client;
#[cfg(feature = "serve")]
mod nfs_options;
mod opening;
#[cfg(target_os = "linux")]
mod options;
mod served;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod signals;
#[cfg_attr(not(target_os = "linux"), path = "take_away_portable.rs")]
mod take_away;
mod unmount;

#[cfg(target_os = "linux")]
pub use fuse::{AccessTimes, OnDamage};
#[cfg(target_os = "linux")]
pub use linux::Unmounter;
#[cfg(feature = "serve")]
pub use nfs::mount_by_nfs;
#[cfg(feature = "serve")]
pub use nfs_client::check_nfs_client;
#[cfg(feature = "serve")]
pub use nfs_options::NfsMountOptions;
#[cfg(target_os = "linux")]
pub use options::MountOptions;
#[cfg(target_os = "linux")]
pub use session::Mount;
#[cfg(target_os = "linux")]
pub use signals::unmount_on_signals;
pub use unmount::{Released, UnmountOptions, unmount};

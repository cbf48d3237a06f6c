//! Images that are not local files. With the feature `objects`: images in object storage, behind addresses and in
//! virtual disks (`place`), images published as chunks (`publish`), their metadata in one object (`bundle`), and block
//! devices in a bucket (`volume`).
//! Without it: network block devices ([`nbd`]), and with the feature `vhost-user` on Linux, disks of virtual machines
//! (`vhost_user`).
#![forbid(unsafe_code)]

#[cfg(feature = "bundle")]
pub mod bundle;
#[cfg(feature = "bundle")]
mod digest;
#[cfg(feature = "bundle")]
mod frame;
#[cfg(feature = "objects")]
mod holes;
pub mod nbd;
#[cfg(feature = "objects")]
pub mod opening;
#[cfg(feature = "objects")]
pub mod place;
#[cfg(feature = "objects")]
pub mod publish;
mod socket;
#[cfg(all(feature = "vhost-user", target_os = "linux"))]
pub mod vhost_user;
#[cfg(feature = "objects")]
pub mod volume;

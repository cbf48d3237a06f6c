//! Tests of images that are not local files.

extern crate diskwright_remote as remote;
#[macro_use]
extern crate testkit;

#[cfg(feature = "objects")]
mod bundle;
mod nbd;
#[cfg(feature = "objects")]
mod place;
#[cfg(feature = "objects")]
mod publish;
#[cfg(all(feature = "vhost-user", target_os = "linux"))]
mod vhost_user;
#[cfg(feature = "objects")]
mod volume;

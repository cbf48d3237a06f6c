//! JavaScript interface.

mod device;
mod disk;
mod failure;
mod image;

pub use device::JsDevice;
pub use disk::Disk;
pub use image::{Image, TarStream};

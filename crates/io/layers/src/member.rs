//! Members of layers.

use std::sync::Arc;

use disk::BlockDevice;

/// A device that may be a member of a layer, with its name for messages.
#[derive(Clone)]
pub struct Member {
    /// Name for messages.
    pub name: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

impl Member {
    /// Creates a member.
    pub fn new(name: impl Into<String>, device: Arc<dyn BlockDevice>) -> Self {
        Self { name: name.into(), device }
    }
}

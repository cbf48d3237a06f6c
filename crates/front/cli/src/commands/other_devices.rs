//! Arguments for the other devices of an image.

use std::path::PathBuf;

use clap::Args;
use diskwright::OtherDevices;

use super::keys::KeyArgs;
use super::layers::LayerArgs;

/// Other devices of an image.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Use FILE as the log (XFS) or journal (ext4) of an image that does not contain it
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    log_device: Option<PathBuf>,

    /// Use FILE as the realtime device of an XFS image
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    rt_device: Option<PathBuf>,

    #[command(flatten)]
    layers: LayerArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

impl DeviceArgs {
    /// Returns the devices of another image: none, but the keys are the same.
    pub(crate) fn of_another(&self) -> OtherDevices {
        let mut devices = OtherDevices::default();
        devices.layers = Some(self.layers.layers().without_members());
        devices.encryption_keys = self.keys.keys();
        devices
    }

    /// Returns the devices.
    pub(crate) fn devices(&self) -> OtherDevices {
        let mut devices = OtherDevices::default();
        devices.log.clone_from(&self.log_device);
        devices.realtime.clone_from(&self.rt_device);
        devices.layers = Some(self.layers.layers());
        devices.encryption_keys = self.keys.keys();
        devices
    }
}

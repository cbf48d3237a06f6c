//! Arguments for layers between an image and its file system.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use clap::Args;
use diskwright::{ImageLayers, LayerOptions, Passphrase};

use crate::passphrase;

/// Layers that contain an image.
#[derive(Clone, Debug, Args)]
pub(crate) struct LayerArgs {
    /// Use the logical volume LV of the LVM2 volume group VG
    #[arg(long, value_name = "VG/LV", help_heading = "Volumes, arrays and encryption")]
    volume: Option<String>,

    /// Use FILE as a further member of the image's volume group or md array (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Volumes, arrays and encryption")]
    member: Vec<PathBuf>,

    /// Open LUKS volumes with the contents of FILE, a key file or a file with the passphrase and no newline
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "passphrase_fd",
        help_heading = "Volumes, arrays and encryption"
    )]
    key_file: Option<PathBuf>,

    /// Read the passphrase of LUKS volumes from file descriptor N, up to a newline. Without this option and without
    /// --key-file, it is read from the terminal
    #[arg(long, value_name = "N", help_heading = "Volumes, arrays and encryption")]
    passphrase_fd: Option<u32>,

    /// The layers, which share their keys.
    #[arg(skip)]
    shared: Arc<OnceLock<ImageLayers>>,
}

impl LayerArgs {
    /// Returns the layers. All calls return the same ones, so a passphrase is read once.
    pub(crate) fn layers(&self) -> ImageLayers {
        self.shared.get_or_init(|| self.make()).clone()
    }

    fn make(&self) -> ImageLayers {
        let (key_file, descriptor) = (self.key_file.clone(), self.passphrase_fd);
        let ask = move |volume: &str| -> io::Result<Option<Passphrase>> {
            match (&key_file, descriptor) {
                (Some(path), _) => passphrase::of_file(path).map(Some),
                (None, Some(number)) => passphrase::of_descriptor(number).map(Some),
                (None, None) => passphrase::of_terminal(volume),
            }
        };
        let mut options = LayerOptions::new().ask(Arc::new(ask));
        options.volume.clone_from(&self.volume);
        ImageLayers::new(options, self.member.clone())
    }
}

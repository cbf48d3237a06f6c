//! Options for remote images in a build without the feature `anywhere`: there are none.

use clap::Args;
use diskwright::Result;

/// No options.
#[derive(Debug, Args)]
pub struct PlacesArgs {}

impl PlacesArgs {
    /// Does nothing.
    ///
    /// # Errors
    /// None.
    pub fn set(&self) -> Result<()> {
        Ok(())
    }
}

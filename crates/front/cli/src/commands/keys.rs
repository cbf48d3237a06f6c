//! Arguments for the keys of encrypted files and directories.

use std::ffi::OsStr;

use clap::Args;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use diskwright::EncryptionKeys;

use crate::passphrase;

/// Keys of encrypted files and directories.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyArgs {
    /// Read encrypted files and directories (fscrypt) of ext4 with the raw key in FILE, of 16 to 64 bytes without a
    /// newline (repeatable)
    #[arg(
        long,
        value_name = "FILE",
        value_parser = KeyFile,
        help_heading = "Volumes, arrays and encryption"
    )]
    fscrypt_key_file: Vec<EncryptionKeys>,
}

impl KeyArgs {
    /// Returns all keys.
    pub(crate) fn keys(&self) -> EncryptionKeys {
        self.fscrypt_key_file.iter().fold(EncryptionKeys::new(), |mut all, keys| {
            all.extend(keys);
            all
        })
    }
}

/// Reads the key of a file when the arguments are parsed, so that a wrong file is reported first.
#[derive(Clone)]
struct KeyFile;

impl TypedValueParser for KeyFile {
    type Value = EncryptionKeys;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _arg: Option<&clap::Arg>,
        path: &OsStr,
    ) -> Result<EncryptionKeys, clap::Error> {
        let fail = |text: String| {
            let text = format!("--fscrypt-key-file {}: {text}\n", path.display());
            clap::Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
        };
        let raw = passphrase::raw_key(path.as_ref()).map_err(|error| fail(error.to_string()))?;
        let mut keys = EncryptionKeys::new();
        keys.add(raw).map_err(|error| fail(error.to_string()))?;
        Ok(keys)
    }
}

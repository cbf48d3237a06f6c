//! Arguments of `diskwright build` for the output format of the finished file system.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use diskwright::output::{OutputFormat, OutputOptions, OutputReport, Verity};
use diskwright::text::{escaped, size};
use diskwright::{Error, Result};

use crate::terminal;

/// Help heading of output options.
const OUTPUT: &str = "Output options";

#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct OutputArgs {
    /// Select the container format of IMAGE: raw bytes, qcow2 for virtual machines, an Android sparse image for flashing, or
    /// seekable zstd for downloads
    #[arg(long, value_enum, default_value = "raw")]
    output: OutputArg,

    /// Create a dm-verity hash tree, after the file system or in FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    verity: Option<Option<PathBuf>>,

    /// Set the salt of the hash tree, at most 256 bytes, or "-" for none [default: derived from the image]
    #[arg(long, value_name = "HEX", value_parser = salt, requires = "verity")]
    verity_salt: Option<Salt>,

    /// Set the UUID of the hash tree [default: derived from the root hash]
    #[arg(long, value_name = "UUID", value_parser = super::arguments::uuid, requires = "verity")]
    verity_uuid: Option<[u8; 16]>,

    /// Write the root hash of the hash tree to FILE, in hexadecimal
    #[arg(long, value_name = "FILE", requires = "verity")]
    root_hash_file: Option<PathBuf>,

    /// Enable fs-verity for regular files whose paths match GLOB, such as /usr/bin/* or **/*.so (ext4 only, repeatable)
    #[arg(long, value_name = "GLOB")]
    fs_verity: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputArg {
    Raw,
    Qcow2,
    #[value(alias = "sparse")]
    AndroidSparse,
    #[value(alias = "zst")]
    Zstd,
}

#[derive(Clone, Debug)]
struct Salt(Vec<u8>);

fn salt(text: &str) -> Result<Salt, String> {
    if text == "-" {
        return Ok(Salt(Vec::new()));
    }
    let digit = |byte: u8| (byte as char).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    let bytes: Option<Vec<u8>> = bytes.collect();
    let problem = "write an even number of hexadecimal digits, or - for no salt";
    bytes
        .filter(|bytes| rest.is_empty() && !bytes.is_empty())
        .map(Salt)
        .ok_or_else(|| problem.into())
}

impl OutputArgs {
    pub(crate) fn options(&self) -> Result<OutputOptions> {
        let verity = self.verity.clone().map(|file| Verity {
            file,
            salt: self.verity_salt.clone().map(|salt| salt.0),
            uuid: self.verity_uuid,
        });
        if let Some(verity) = &verity {
            verity.check().map_err(|problem| Error::Usage(format!("--verity-salt: {problem}")))?;
        }
        let format = match self.output {
            OutputArg::Raw => OutputFormat::Raw,
            OutputArg::Qcow2 => OutputFormat::Qcow2,
            OutputArg::AndroidSparse => OutputFormat::Sparse,
            OutputArg::Zstd => OutputFormat::Zstd,
        };
        let mut options = OutputOptions::default().format(format).fs_verity(self.fs_verity.clone());
        (options.verity, options.root_hash_file) = (verity, self.root_hash_file.clone());
        Ok(options)
    }
}

/// Prints the outputs other than the file system itself.
pub(crate) fn report(report: &OutputReport) {
    if let (Some(format), Some(bytes)) = (report.output, report.output_bytes) {
        terminal::message(&format_args!("written as {format}: {}", size(bytes)));
    }
    if let Some(verity) = &report.verity {
        terminal::message(&format_args!(
            "dm-verity: root hash {}, {} data blocks, hash offset {}, salt {}",
            verity.root_hash,
            verity.data_blocks,
            verity.hash_offset,
            if verity.salt.is_empty() { "-" } else { &verity.salt },
        ));
    }
    for file in &report.fs_verity {
        let path = escaped(file.path.as_bytes());
        terminal::message(&format_args!("fs-verity: {} {path}", file.digest));
    }
}

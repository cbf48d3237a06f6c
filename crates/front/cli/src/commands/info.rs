//! `diskwright info`.

use std::io::{self, Write};

use clap::Args;
use diskwright::{Error, ImageInfo, Outcome, Result, text};

use crate::commands::arguments::ImageArgs;
use crate::terminal;

/// Show the format, size, features and state of an image
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &InfoArgs) -> Result<Outcome> {
    let info = args.image.open_rootless()?.info()?;
    let layers: Vec<String> = args.image.layers().into_iter().map(|layer| layer.text).collect();
    terminal::with_output(|out| {
        let written = if args.json {
            terminal::write_json_pretty(&mut *out, &WithLayers { info: &info, layers: &layers })
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        } else {
            write_text(&info, &layers, out)
        };
        written.map_err(Error::Output)
    })?;
    Ok(Outcome::Done)
}

/// Properties of an image with its layers, for JSON.
#[derive(serde::Serialize)]
struct WithLayers<'a> {
    #[serde(flatten)]
    info: &'a ImageInfo,
    /// Left out for images without layers.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    layers: &'a [String],
}

fn write_text(info: &ImageInfo, layers: &[String], out: &mut dyn Write) -> io::Result<()> {
    let mut line = |name: &str, value: &str| {
        let value = text::escaped(value.as_bytes()).to_string();
        writeln!(out, "{:<32}{value}", format!("{name}:"))
    };
    let share = |free, all| format!("{free} free of {all}");
    for layer in layers {
        line("layer", layer)?;
    }
    line("format", info.format_name())?;
    let label = info.label_text();
    line("label", if label.is_empty() { "(none)" } else { &label })?;
    line("uuid", &info.uuid_text())?;
    line("state", info.state.text())?;
    if info.needs_recovery {
        line("needs recovery", "yes")?;
    }
    let size = text::size(info.blocks.saturating_mul(info.block_size.into()));
    line("size", &size)?;
    line("block size", &text::size(info.block_size.into()))?;
    line("blocks", &share(info.blocks_free, info.blocks))?;
    line("inodes", &share(info.inodes_free, info.inodes))?;
    line("inode size", &text::size(info.inode_size.into()))?;
    for group in info.features() {
        line(&format!("{} features", group.kind), &group.names.join(" "))?;
    }
    for section in info.sections() {
        writeln!(out, "\n{}", section.title)?;
        for (name, value) in &section.values {
            let value = text::escaped(value.as_bytes()).to_string();
            writeln!(out, "  {:<30}{value}", format!("{name}:"))?;
        }
    }
    Ok(())
}

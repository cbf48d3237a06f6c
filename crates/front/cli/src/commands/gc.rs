//! `diskwright gc`.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use diskwright::publish::{self, SweepOptions, Swept};
use diskwright::{Error, Outcome, Result, text};

use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright gc s3://images/fleet --dry-run
  diskwright gc s3://images/fleet --older-than 7d

Removes manifests without a name, and chunks that no manifest references. To remove a published image, delete its \
object URL/names/NAME and then run gc. gc waits for running publications below URL, and new publications wait for gc. \
Ages are measured by the clock of the store.

Exit status:
  0  success
  3  a manifest cannot be read; nothing is removed
  4  read or write error, or another publication below URL ran for more than ten minutes";

/// Remove chunks that no published image uses
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct GcArgs {
    /// Prefix of published images, such as s3://bucket/images
    #[arg(value_name = "URL")]
    url: String,

    /// Keep unused objects younger than AGE, which an interrupted publication can still use. AGE is a number with s, m, h or
    /// d
    #[arg(long, value_name = "AGE", value_parser = parse_age, default_value = "1d")]
    older_than: Duration,

    /// Show the result without changing anything
    #[arg(long)]
    dry_run: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GcArgs) -> Result<Outcome> {
    let (older_than, dry_run) = (args.older_than, args.dry_run);
    let options = SweepOptions { older_than, dry_run, ..SweepOptions::default() };
    let swept = publish::gc(&args.url, &options)?;
    terminal::with_output(|out| {
        let written = if args.json {
            let line = serde_json::to_string(&swept).map_err(|e| Error::Output(e.into()))?;
            writeln!(out, "{}", disk::address::safe_json(line))
        } else {
            write_text(&swept, dry_run, out)
        };
        written.map_err(Error::Output)
    })?;
    Ok(Outcome::Done)
}

fn write_text(swept: &Swept, dry_run: bool, out: &mut dyn Write) -> std::io::Result<()> {
    let would = if dry_run { "would be removed" } else { "removed" };
    writeln!(
        out,
        "{} chunks and {} manifests {would}, {}; {} chunks are kept, {} of them only because of \
         their age",
        swept.chunks_removed,
        swept.manifests_removed,
        text::size(swept.bytes_removed),
        swept.chunks_kept,
        swept.chunks_young,
    )
}

/// Parses an age such as `90m`, `12h` or `7d`. A plain number is in seconds.
fn parse_age(text: &str) -> std::result::Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wrong = || {
        format!("{text:?} is not a duration: write a number followed by s, m, h or d, such as 12h")
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3600));
        assert_eq!(parse_age("36h"), hours(36));
        assert_eq!(parse_age("2d"), hours(48));
        assert_eq!(parse_age("60m"), hours(1));
        assert_eq!(parse_age("0"), hours(0));
        for bad in ["", "d", "1w", "-1h", "1.5h", "99999999999999999999d", "213503982334602d"] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }
}

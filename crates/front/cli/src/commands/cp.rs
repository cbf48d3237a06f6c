//! `diskwright cp`.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, ValueEnum};
use diskwright::build::Owner;
use diskwright::copy::{
    self, CopyOptions, CopyReport, MadeNames, Reflink, Side, into_image_after, out_of_image,
};
use diskwright::edit::Editor;
use diskwright::{Error, Outcome, Result};

use super::session;
use crate::commands::arguments::{ImageToEdit, PlaceArgs, open_to_read};
use crate::commands::build::owner;
use crate::commands::host_names::NameArgs;
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Examples:
  diskwright cp app.conf root.img:/etc/app.conf
  diskwright cp -r site/ root.img:/srv/www
  diskwright cp -a root.img:/etc ./etc-backup
  diskwright cp root.img:/etc/hosts root.img:/etc/hosts.old
  diskwright cp --reflink root.img:/var/db root.img:/var/db.bak
  diskwright cp --partition 2 kernel disk.img:/boot/

In IMAGE:PATH, the part before the colon must be an existing file. Any other argument is a path on this host. Holes \
are kept, and so are hard links within one SRC. Within an XFS image with reflink, a copy shares blocks with SRC.

Without --preserve, a new file in an image belongs to 0:0 or the owner of --owner, and has the permissions of SRC \
without the set-user-id, set-group-id and sticky bits. A replaced file passes its permissions, owner and extended \
attributes on to the new one.

After a crash, every file in the image is the complete old or the complete new one.";

/// Copy files into, out of or within an image
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CpArgs {
    /// Files to copy, then the new name or the target directory. IMAGE:PATH names a file in an image
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    sides: Vec<OsString>,

    /// Copy directories with everything in them, symbolic links as links, and special files
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,

    /// Preserve owners, all permissions, times and extended attributes
    #[arg(short, long)]
    preserve: bool,

    /// Copy with --recursive and --preserve
    #[arg(short, long)]
    archive: bool,

    /// Share blocks with the source, within an XFS image with reflink: if possible (auto), or fail otherwise (always)
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    reflink: ReflinkWhen,

    /// Set the owner of new files, as numbers [default: 0:0]
    #[arg(
        long,
        value_name = "UID:GID",
        value_parser = owner,
        conflicts_with_all = ["preserve", "archive"]
    )]
    owner: Option<Owner>,

    /// Do not replay the journal or log, and read even while another program changes the image. Files may be outdated or
    /// inconsistent
    #[arg(long, alias = "stale", help_heading = "Image")]
    norecovery: bool,

    #[command(flatten)]
    names: NameArgs,

    #[command(flatten)]
    place: PlaceArgs,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReflinkWhen {
    Auto,
    Always,
    Never,
}

impl From<ReflinkWhen> for Reflink {
    fn from(when: ReflinkWhen) -> Self {
        match when {
            ReflinkWhen::Auto => Self::Auto,
            ReflinkWhen::Always => Self::Always,
            ReflinkWhen::Never => Self::Never,
        }
    }
}

pub(crate) fn run(args: &CpArgs) -> Result<Outcome> {
    let sides: Vec<Side> = args.sides.iter().map(|side| Side::parse(side)).collect();
    if !sides.iter().any(|side| matches!(side, Side::Image { .. })) {
        let problem = "neither SRC nor DST is in an image: write IMAGE:PATH, where IMAGE is an \
                       existing file";
        return Err(Error::Usage(problem.into()));
    }
    let Some((to, from)) = sides.split_last() else { return Ok(Outcome::Usage) };
    if matches!((args.reflink, to), (ReflinkWhen::Always, Side::Host(_))) {
        let problem = "--reflink shares blocks within an image: write IMAGE:PATH for DST";
        return Err(Error::Usage(problem.into()));
    }
    let options = CopyOptions::default()
        .recursive(args.recursive || args.archive)
        .preserve(args.preserve || args.archive)
        .into_directory(from.len() > 1)
        .reflink(args.reflink.into())
        .map_names(args.names.map_names);
    let mut report = CopyReport::default();
    let outcome = match to {
        Side::Host(to) => out(args, from, to, options, &mut report),
        Side::Image { image, path } => {
            let target = ImageToEdit { image: image.clone(), place: args.place.clone() };
            session::edit(&target, args.owner, |editor| {
                let inside = |from: &Path| diskwright::is_same_file(from, image);
                into(args, from, editor, path, options, &inside, &mut report)
            })?
        }
    };
    if args.json {
        terminal::json_line(&report)?;
    }
    Ok(if report.left_out > 0 { outcome.max(Outcome::No) } else { outcome })
}

/// Copies each source. Continues after a failure unless the image or a device caused it.
fn each(from: &[Side], mut copy: impl FnMut(&Side) -> Result<CopyReport>) -> (CopyReport, Outcome) {
    let (mut report, mut worst) = (CopyReport::default(), Outcome::Done);
    for side in from {
        match copy(side) {
            Ok(copied) => report += copied,
            Err(error) => worst = worst.max(session::told(&error)),
        }
        if worst >= Outcome::Image {
            break;
        }
    }
    (report, worst)
}

fn out(
    args: &CpArgs,
    from: &[Side],
    to: &Path,
    options: CopyOptions,
    report: &mut CopyReport,
) -> Outcome {
    let (copied, outcome) = each(from, |side| match side {
        Side::Host(path) => {
            let shown = diskwright::text::shown(path).to_string();
            Err(Error::Usage(format!("neither {shown} nor DST is in an image")))
        }
        Side::Image { image, path } => {
            let image = open_to_read(image, &args.place.options(args.norecovery))?;
            out_of_image(
                image.file_system()?.paths(),
                path,
                to,
                options,
                &mut CopyProgress::new("copying:"),
            )
        }
    });
    *report = copied;
    outcome
}

fn into(
    args: &CpArgs,
    from: &[Side],
    editor: Editor<'_>,
    to: &[u8],
    options: CopyOptions,
    is_inside: &dyn Fn(&Path) -> bool,
    report: &mut CopyReport,
) -> Result<Outcome> {
    let mut names = MadeNames::default();
    let (copied, outcome) = each(from, |side| {
        let mut import = |from: copy::From<'_>| {
            let mut progress = CopyProgress::new("copying:");
            into_image_after(editor, from, to, options, &mut names, &mut progress)
        };
        match side {
            Side::Host(path) => import(copy::From::Host(path)),
            Side::Image { image, path } if is_inside(image) => {
                import(copy::From::Image(editor.paths(), path))
            }
            Side::Image { image, path } => {
                let image = open_to_read(image, &args.place.options(args.norecovery))?;
                import(copy::From::Image(image.file_system()?.paths(), path))
            }
        }
    });
    *report = copied;
    Ok(outcome)
}

//! `blkid`: detection of image contents, for scripts that check before they create a file system.
//!
//! Status 2 means that nothing was found, so a caller may overwrite the image. It is returned only if the image is
//! empty in all locations of known magic numbers. Unknown contents, and queries about the machine's devices, are passed
//! to the next `blkid` in `PATH`. If there is none, the status for unknown contents is returned.

mod args;
mod probe;
mod quote;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use crate::failure::{Ended, Failure, Statuses};
use crate::handover;
use crate::invoked::{Invoked, say, write_out};
use args::{Args, Form};
use probe::{ProbeResult, Tag};

/// Exit statuses of blkid(8).
const NOTHING: u8 = 2;
const AMBIVALENT: u8 = 8;
const STATUSES: Statuses = Statuses { usage: 4, failed: NOTHING };

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let args = match args::read(arguments.clone()) {
        Ok(args) => args,
        Err(failure) => return handover::run(invoked.name, &arguments).ok_or(failure),
    };
    if args.only_version {
        return Ok(invoked.version());
    }
    let (mut found, mut failure) = (0, None);
    for image in &args.images {
        match probe::probe(image, args.offset) {
            Ok(ProbeResult::Tags(tags)) if args.wants(&tags) => {
                if found > 0 && matches!(args.form, Form::Export | Form::Udev) {
                    say(format_args!(""));
                }
                show(&args, &image.display().to_string(), &args.chosen(tags));
                found += 1;
            }
            // The original ignores further images then.
            Ok(ProbeResult::Tags(_) | ProbeResult::Nothing) if args.is_low_level => {
                return Ok(NOTHING);
            }
            Ok(ProbeResult::Tags(_) | ProbeResult::Nothing) => {}
            Ok(ProbeResult::Ambivalent(names)) => return Err(ambivalent(image, &names)),
            // The other program would repeat the lines of earlier images.
            Ok(ProbeResult::Unknown) if found == 0 => {
                return handover::run(invoked.name, &arguments).ok_or_else(|| unknown(image));
            }
            Ok(ProbeResult::Unknown) => return Err(unknown(image)),
            Err(e) => failure = failure.or_else(|| Some(STATUSES.failed(e))),
        }
    }
    match failure {
        Some(failure) if found == 0 => Err(failure),
        _ => Ok(if found == 0 { NOTHING } else { 0 }),
    }
}

/// Creates the error for magic numbers of several formats.
fn ambivalent(image: &Path, names: &[&str]) -> Failure {
    let (image, names) = (image.display(), names.join(", "));
    let message = format!(
        "{image}: ambivalent result: it has signatures of several formats ({names}); wipefs shows \
         and removes them"
    );
    Failure { message, status: AMBIVALENT }
}

/// Creates the error for unknown contents, which may be valuable.
fn unknown(image: &Path) -> Failure {
    let image = image.display();
    let message = format!(
        "{image} has an unknown format, and PATH has no other blkid; use the blkid of the system"
    );
    Failure { message, status: AMBIVALENT }
}

fn show(args: &Args, image: &str, tags: &[Tag]) {
    if tags.is_empty() {
        return;
    }
    match args.form {
        Form::Full => {
            let mut line = format!("{image}:").into_bytes();
            for tag in tags {
                line.extend_from_slice(format!(" {}=\"", tag.name).as_bytes());
                line.extend_from_slice(&quote::in_quotes(&tag.value));
                line.push(b'"');
            }
            say_bytes(line);
        }
        Form::Value => tags.iter().for_each(|tag| say_bytes(tag.value.clone())),
        Form::Export => {
            say(format_args!("DEVNAME={image}"));
            tags.iter().for_each(|tag| say_pair(tag.name, &quote::in_shell(&tag.value)));
        }
        Form::Udev => tags.iter().for_each(show_for_udev),
        Form::Device => say(format_args!("{image}")),
    }
}

fn show_for_udev(tag: &Tag) {
    match tag.name {
        "PTTYPE" => say_pair("ID_PART_TABLE_TYPE", &tag.value),
        "PTUUID" => say_pair("ID_PART_TABLE_UUID", &tag.value),
        "LABEL" | "LABEL_FATBOOT" | "UUID" | "UUID_SUB" => {
            let name = format!("ID_FS_{}", tag.name);
            say_pair(&name, &quote::plain(&tag.value));
            say_pair(&format!("{name}_ENC"), &quote::encoded(&tag.value));
        }
        name => say_pair(&format!("ID_FS_{name}"), &quote::encoded(&tag.value)),
    }
}

fn say_pair(name: &str, value: &[u8]) {
    say_bytes([name.as_bytes(), b"=", value].concat());
}

/// Prints a line of arbitrary bytes.
fn say_bytes(mut line: Vec<u8>) {
    line.push(b'\n');
    write_out(|out| out.write_all(&line));
}

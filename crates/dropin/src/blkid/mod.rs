//! `blkid`: what is in images, for scripts that ask before they make a file system.
//!
//! Status 2 means that nothing is there, and who asks may overwrite it. So it is said only of what is empty where any
//! format would have something: everything else that is neither ext nor XFS ends with the status for what cannot be
//! told.

mod probe;
mod wish;

use std::ffi::OsString;
use std::path::Path;

use crate::failure::{Ended, Failure, Statuses};
use crate::invoked::{Invoked, say};
use probe::{Found, Tag};
use wish::{Form, Wish};

/// Statuses of blkid(8).
const NOTHING: u8 = 2;
const AMBIVALENT: u8 = 8;
const STATUSES: Statuses = Statuses { usage: 4, failed: NOTHING };

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let wish = wish::read(arguments)?;
    if wish.only_version {
        return Ok(invoked.version());
    }
    let (mut found, mut failure) = (0, None);
    for image in &wish.images {
        match probe::probe(image, wish.offset) {
            Ok(Found::Tags(tags)) if wish.wants(&tags) => {
                if found > 0 && matches!(wish.form, Form::Export | Form::Udev) {
                    say(format_args!(""));
                }
                show(&wish, &image.display().to_string(), &wish.chosen(tags));
                found += 1;
            }
            // The namesake looks no further then.
            Ok(Found::Tags(_) | Found::Nothing) if wish.is_low_level => return Ok(NOTHING),
            Ok(Found::Tags(_) | Found::Nothing) => {}
            Ok(Found::Unknown) => return Err(unknown(image)),
            Err(e) => failure = failure.or_else(|| Some(STATUSES.failed(e))),
        }
    }
    match failure {
        Some(failure) if found == 0 => Err(failure),
        _ => Ok(if found == 0 { NOTHING } else { 0 }),
    }
}

/// Something is there, and may be worth keeping.
fn unknown(image: &Path) -> Failure {
    let image = image.display();
    let message = format!(
        "{image} holds something that is neither ext2, ext3, ext4 nor XFS, which is all that is known here: ask the \
         system's own blkid"
    );
    Failure { message, status: AMBIVALENT }
}

fn show(wish: &Wish, image: &str, tags: &[Tag]) {
    if tags.is_empty() {
        return;
    }
    match wish.form {
        Form::Full => {
            let tags: Vec<_> =
                tags.iter().map(|tag| format!("{}=\"{}\"", tag.name, tag.value)).collect();
            say(format_args!("{image}: {}", tags.join(" ")));
        }
        Form::Value => tags.iter().for_each(|tag| say(format_args!("{}", tag.value))),
        Form::Export => {
            say(format_args!("DEVNAME={image}"));
            tags.iter().for_each(|tag| say(format_args!("{}={}", tag.name, escaped(&tag.value))));
        }
        Form::Udev => tags.iter().for_each(show_for_udev),
        Form::Device => say(format_args!("{image}")),
    }
}

fn show_for_udev(tag: &Tag) {
    let name = if tag.name == "VERSION"
        || tag.name == "TYPE"
        || tag.name == "USAGE"
        || tag.name.starts_with("BLOCK")
    {
        format!("ID_FS_{}", tag.name)
    } else {
        let name = format!("ID_FS_{}", tag.name);
        say(format_args!("{name}={}", tag.value.replace(|c: char| !is_plain(c), "_")));
        format!("{name}_ENC")
    };
    say(format_args!("{name}={}", encoded(&tag.value)));
}

/// Characters that names of udev may have.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c)
}

/// The others as their bytes in hexadecimal.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        if is_plain(c) || !c.is_ascii() {
            text.push(c);
        } else {
            text.push_str(&format!("\\x{:02x}", c as u32));
        }
    }
    text
}

/// What a shell takes for one word.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        if "\"\\`$ '<>&|;()*?[]~#{}".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

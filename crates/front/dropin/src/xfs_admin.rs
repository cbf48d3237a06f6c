//! `xfs_admin`.

use std::ffi::OsString;
use std::path::Path;

use diskwright::tune::{NewFeature, NewUuid, add_xfs_features, change_xfs_uuid};
use diskwright::{Format, ImageInfo, ImageOptions, OtherDevices};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::making;
use crate::supported;
use crate::words::{Word, Words};

/// Argument for an empty label.
const NO_LABEL: &[u8] = b"--";

/// Maximum length of an XFS label in bytes.
const LABEL_BYTES_MAX: usize = 12;

#[derive(Default)]
struct Args {
    label: Option<Vec<u8>>,
    uuid: Option<NewUuid>,
    features: Vec<NewFeature>,
    shows_label: bool,
    shows_uuid: bool,
    devices: OtherDevices,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut words = Words::new(arguments, STATUSES, &supported::XFS_ADMIN);
    let mut args = Args::default();
    let (mut image, mut log) = (None, None);
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) if image.is_some() => words.only(&mut log, path)?,
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option(letter) => args.option(letter, &mut words)?,
        }
    }
    let image = words.named(image)?;
    let changes = args.label.is_some() || args.uuid.is_some() || !args.features.is_empty();
    if !(changes || args.shows_label || args.shows_uuid) {
        return Err(STATUSES.usage("no action given: use -l, -u, -L, -U or -O"));
    }
    let devices = &mut args.devices;
    devices.log = log;
    args.follow(&image)?;
    Ok(0)
}

impl Args {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        match letter {
            'l' => self.shows_label = true,
            'u' => self.shows_uuid = true,
            'L' => {
                let label = words.bytes()?;
                if label.len() > LABEL_BYTES_MAX {
                    return Err(words.wrong(format_args!("has at most {LABEL_BYTES_MAX} bytes")));
                }
                self.label = Some(label);
            }
            // The target is always treated as a file.
            'f' => {}
            'U' => self.uuid = Some(words.by(uuid)?),
            'j' | 'p' | 'e' => return Err(words.refused("version 5 has it")),
            'O' => self.features.extend(words.by(features)?),
            'c' => return Err(words.refused("version 5 has lazy counters")),
            'r' => self.devices.realtime = Some(words.path()?),
            _ => return Err(words.unknown()),
        }
        Ok(())
    }

    /// Applies the changes, then prints the requested values.
    fn follow(&self, path: &Path) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        if let Some(mount) = crate::online::xfs_mount(path)? {
            return self.follow_mounted(&mount);
        }
        let info = looked_at(path)?;
        if info.format() != Format::Xfs {
            return Err(STATUSES.failed(format_args!(
                "{} contains {}, not XFS",
                path.display(),
                info.format_name()
            )));
        }
        let mut label = info.label_text();
        if let Some(new) = &self.label {
            let new = if new == NO_LABEL { b"" } else { &**new };
            self.set_label(path, new)?;
            label = String::from_utf8_lossy(new).into_owned();
        }
        let mut uuid = info.uuid_text();
        if let Some(new) = self.uuid {
            let open = ImageOptions::default().devices(self.devices.clone());
            change_xfs_uuid(path, &open, new).map_err(|e| STATUSES.of(&e))?;
            uuid = looked_at(path)?.uuid_text();
        }
        if !self.features.is_empty() {
            let open = ImageOptions::default().devices(self.devices.clone());
            let added = add_xfs_features(path, &open, &self.features);
            added.map_err(|e| STATUSES.of(&e))?;
        }
        self.show(&label, &uuid);
        Ok(())
    }

    /// Same as [`Self::follow`], for a mounted file system.
    #[cfg(target_os = "linux")]
    fn follow_mounted(&self, mount: &linux::mounted::MountedDevice) -> Result<(), Failure> {
        let point = mount.point.display();
        if self.uuid.is_some() || !self.features.is_empty() {
            let message = format!("{point} is mounted; unmount it to change the UUID or features");
            return Err(STATUSES.failed(message));
        }
        if let Some(new) = &self.label {
            let new = if new == NO_LABEL { b"" } else { &**new };
            crate::online::set_label(mount, new).map_err(crate::online::Refused::into_failure)?;
        }
        let ask = || {
            let root = mount.open()?;
            Ok((linux::mounted::label(&root)?, linux::mounted::xfs_geometry(&root)?))
        };
        let found: std::io::Result<_> = ask();
        let (label, geometry) = found.map_err(|e| STATUSES.failed(format_args!("{point}: {e}")))?;
        let uuid = uuid::Uuid::from_bytes(geometry.uuid).to_string();
        self.show(&String::from_utf8_lossy(&label), &uuid);
        Ok(())
    }

    fn set_label(&self, path: &Path, label: &[u8]) -> Result<(), Failure> {
        let failed = |e: diskwright::Error| STATUSES.of(&e);
        let options = ImageOptions::new().write(true).devices(self.devices.clone());
        let image = options.open(path).map_err(failed)?;
        image.set_label(label).map_err(failed)?;
        image.close().map_err(failed)
    }

    fn show(&self, label: &str, uuid: &str) {
        if self.shows_label || self.label.is_some() {
            say(format_args!(
                "{} = \"{label}\"",
                if self.label.is_some() { "new label" } else { "label" }
            ));
        }
        if self.shows_uuid || self.uuid.is_some() {
            let which = if self.uuid.is_some() { "new UUID" } else { "UUID" };
            say(format_args!("{which} = {uuid}"));
        }
    }
}

fn looked_at(path: &Path) -> Result<ImageInfo, Failure> {
    ImageOptions::default().norecovery(true).info(path).map_err(|e| STATUSES.of(&e))
}

/// Parses a UUID, `nil`, `generate` (random), or `restore` (the original UUID).
fn uuid(text: &str) -> Result<NewUuid, String> {
    match text {
        "generate" => Ok(NewUuid::Given(making::random_uuid())),
        "nil" => Ok(NewUuid::Given([0; 16])),
        "restore" => Ok(NewUuid::First),
        _ => {
            let parsed = uuid::Uuid::try_parse(text);
            let given = parsed.map(|uuid| NewUuid::Given(uuid.into_bytes()));
            given.map_err(|_| "write a UUID, generate, restore or nil".into())
        }
    }
}

/// Parses a list of features to add, such as `bigtime=1,nrext64=1`.
fn features(text: &str) -> Result<Vec<NewFeature>, String> {
    text.split(',').map(feature).collect()
}

fn feature(word: &str) -> Result<NewFeature, String> {
    let (name, value) = word.split_once('=').unwrap_or((word, "1"));
    let feature = NewFeature::ALL.into_iter().find(|feature| feature.name() == name);
    match (feature, value) {
        (Some(feature), "1") => Ok(feature),
        (Some(_), _) => Err(format!("{name} can only be added, with {name}=1")),
        (None, _) => Err(format!(
            "{name} cannot be added in place; diskwright convert --features makes a copy with other features"
        )),
    }
}

//! Arguments of `diskwright build` that change entries of the source.

use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use diskwright::build::correct::{
    AttributeChange, Choice, CorrectionOptions, FileCapabilities, Glob, PermissionChange, Rule,
};
use diskwright::edit::{ModeChange, parse_owner_change, parse_xattr_value};
use vfs::FileType;

/// Help heading of these options.
const CORRECTIONS: &str = "Changes to the sources";

/// Changes to the files of the sources. A GLOB with a slash matches whole paths, any other a name in any directory.
#[derive(Debug, Args)]
pub(crate) struct CorrectionArgs {
    #[command(flatten)]
    choices: ChoiceArgs,

    /// Map owners with the rules in FILE, such as "uid 100000-165535 0", "gid 5 7" or "0 100000 65536"
    #[arg(long, value_name = "FILE", help_heading = CORRECTIONS)]
    owner_map: Option<PathBuf>,

    /// Apply a device table of genext2fs or makedevs: add nodes, set owners and modes
    #[arg(long, value_name = "TABLE", help_heading = CORRECTIONS)]
    devices: Vec<PathBuf>,

    /// Apply the owners, modes, times and extended attributes of an mtree manifest
    #[arg(long, value_name = "FILE", help_heading = CORRECTIONS)]
    manifest: Vec<PathBuf>,

    /// Set SELinux labels from this file_contexts file and its .local, .homedirs and .subs files
    #[arg(long, value_name = "FILE", help_heading = CORRECTIONS)]
    file_contexts: Option<PathBuf>,

    /// Change permissions of matching files, in octal or as in u+x
    #[arg(long, value_name = "GLOB=MODE", value_parser = chmod, help_heading = CORRECTIONS)]
    chmod: Vec<Rule>,

    /// Change owners of matching files, as numbers
    #[arg(long, value_name = "GLOB=UID:GID", value_parser = chown, help_heading = CORRECTIONS)]
    chown: Vec<Rule>,

    /// Set an extended attribute of matching files. VALUE is text, 0x and hexadecimal digits, or 0s and base64
    #[arg(long, value_name = "GLOB=NAME=VALUE", value_parser = xattr, help_heading = CORRECTIONS)]
    xattr: Vec<Rule>,

    /// Set capabilities of matching regular files, such as cap_net_raw+ep
    #[arg(long, value_name = "GLOB=TEXT", value_parser = capability, help_heading = CORRECTIONS)]
    capability: Vec<Rule>,
}

impl CorrectionArgs {
    /// Returns the corrections for these arguments. Owners come before permissions, and attributes
    /// last.
    pub(crate) fn options(&self) -> CorrectionOptions {
        let rules = [&self.chown, &self.chmod, &self.xattr, &self.capability];
        CorrectionOptions {
            choices: self.choices.0.clone(),
            owner_map: self.owner_map.clone(),
            devices: self.devices.clone(),
            manifests: self.manifest.clone(),
            file_contexts: self.file_contexts.clone(),
            rules: rules.into_iter().flatten().cloned().collect(),
            ..CorrectionOptions::default()
        }
    }
}

/// `--exclude` and `--include` in command-line order.
#[derive(Clone, Debug, Default)]
struct ChoiceArgs(Vec<Choice>);

const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";

impl FromArgMatches for ChoiceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut choices = Vec::new();
        for (id, is_included) in [(EXCLUDE, false), (INCLUDE, true)] {
            let globs = matches.get_many::<Glob>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            choices.extend(
                places
                    .zip(globs)
                    .map(|(place, glob)| (place, Choice { glob: glob.clone(), is_included })),
            );
        }
        choices.sort_by_key(|(place, _)| *place);
        Ok(Self(choices.into_iter().map(|(_, choice)| choice).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ChoiceArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let choice = |id, help| {
            clap::Arg::new(id)
                .long(id)
                .value_name("GLOB")
                .value_parser(Glob::parse)
                .action(ArgAction::Append)
                .help_heading(CORRECTIONS)
                .help(help)
        };
        let exclude = "Exclude files and directories with their contents. If several patterns match a path, the last \
                       one applies";
        command
            .arg(choice(EXCLUDE, exclude))
            .arg(choice(INCLUDE, "Include files that an earlier --exclude excludes"))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Splits `GLOB=REST`. An equals sign in a pattern must be written as `[=]`.
fn parts<'a>(text: &'a str, form: &str) -> Result<(Glob, &'a str), String> {
    let mut in_class = false;
    let at = text.char_indices().find_map(|(at, char)| {
        in_class = (in_class || char == '[') && char != ']';
        (char == '=' && !in_class).then_some(at)
    });
    let at = at.ok_or_else(|| format!("write {form}"))?;
    Ok((Glob::parse(&text[..at])?, &text[at + 1..]))
}

fn chmod(text: &str) -> Result<Rule, String> {
    let (glob, mode) = parts(text, "GLOB=MODE, such as /usr/bin/app=u+s")?;
    let mode = ModeChange::parse(mode)?;
    let change = PermissionChange::new(move |permissions, is_directory| {
        let file_type = if is_directory { FileType::Directory } else { FileType::Regular };
        mode.apply(permissions, file_type)
    });
    Ok(Rule { glob, change: AttributeChange::Permissions(change) })
}

fn chown(text: &str) -> Result<Rule, String> {
    let (glob, owner) = parts(text, "GLOB=UID:GID, such as /srv/**=33:33")?;
    let owner = parse_owner_change(owner)?;
    Ok(Rule { glob, change: AttributeChange::Owner { uid: owner.uid, gid: owner.gid } })
}

fn xattr(text: &str) -> Result<Rule, String> {
    let form = "GLOB=NAME=VALUE, such as *.html=user.mime_type=text/html";
    let (glob, rest) = parts(text, form)?;
    let (name, value) = rest.split_once('=').ok_or_else(|| format!("write {form}"))?;
    if !name.split_once('.').is_some_and(|(space, name)| !space.is_empty() && !name.is_empty()) {
        return Err(format!("{name:?} is not an attribute name: write it like user.name"));
    }
    let (name, value) = (name.as_bytes().to_vec(), parse_xattr_value(value.as_bytes())?);
    Ok(Rule { glob, change: AttributeChange::Xattr(import::Xattr { name, value }) })
}

fn capability(text: &str) -> Result<Rule, String> {
    let (glob, capabilities) = parts(text, "GLOB=TEXT, such as /usr/bin/ping=cap_net_raw+ep")?;
    let capabilities = FileCapabilities::parse(capabilities)?;
    Ok(Rule { glob, change: AttributeChange::Capabilities(capabilities) })
}

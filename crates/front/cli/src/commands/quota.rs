//! `diskwright quota`.

use std::io::{self, Write};

use clap::Args;
use diskwright::quota::{
    LimitChanges, NewGrace, NewLimits, OwnerKind, OwnerLimits, OwnerUsage, QuotaRequest,
    QuotaState, ResourceUsage, change_quotas,
};
use diskwright::text::{minute, parse_size, size};
use diskwright::{Error, Image, Outcome, Result};
use serde_json::json;
use vfs::Timestamp;

use super::making::source_date_epoch;
use crate::commands::arguments::{ImageToEdit, open_to_read};
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright quota root.img
  diskwright quota root.img --on users,projects
  diskwright quota root.img --user 1000 --space 900M:1G --inodes :10000
  diskwright quota root.img --project 42 --space 0:0
  diskwright quota root.img --grace users=3d:12h
  diskwright quota root.img --off groups

Without changes, usage, limits and grace times are shown, with --user, --group and --project only those of these owners. \
A limit of 0 means none. A soft limit may be exceeded for the grace time, a hard limit never. In XFS, the limits of number \
0 are the default limits. ext4 images have no setting to enforce limits: kernels enforce them with the mount options \
usrquota, grpquota and prjquota.";

/// Show and change quotas of users, groups and projects
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct QuotaArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Count the usage of users, groups or projects from now on. In XFS, limits are enforced
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    on: Vec<OwnerKind>,

    /// Stop counting. ext4 also loses the limits
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    off: Vec<OwnerKind>,

    /// Enforce the limits of an XFS image
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    enforce: Vec<OwnerKind>,

    /// Count usage in an XFS image, but do not enforce limits
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    no_enforce: Vec<OwnerKind>,

    /// Show or limit this user (repeatable)
    #[arg(long, value_name = "ID", help_heading = "Limits")]
    user: Vec<u32>,

    /// Show or limit this group (repeatable)
    #[arg(long, value_name = "ID", help_heading = "Limits")]
    group: Vec<u32>,

    /// Show or limit this project (repeatable)
    #[arg(long, value_name = "ID", help_heading = "Limits")]
    project: Vec<u32>,

    /// Set the limits of space. An empty SOFT or HARD keeps the limit
    #[arg(long, value_name = "SOFT:HARD", value_parser = space, help_heading = "Limits")]
    space: Option<NewLimits>,

    /// Set the limits of the number of inodes
    #[arg(long, value_name = "SOFT:HARD", value_parser = inodes, help_heading = "Limits")]
    inodes: Option<NewLimits>,

    /// Set the limits of space in the realtime section of an XFS image
    #[arg(long, value_name = "SOFT:HARD", value_parser = space, help_heading = "Limits")]
    realtime: Option<NewLimits>,

    /// Set the grace times of users, groups or projects, in seconds or with m, h or d. Empty times stay
    #[arg(
        long, value_name = "KINDS=SPACE[:INODES[:REALTIME]]", value_parser = grace,
        help_heading = "Limits"
    )]
    grace: Vec<NewGrace>,

    /// Write one JSON object for each kind and owner to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &QuotaArgs) -> Result<Outcome> {
    let request = args.request()?;
    let is_changed = request != QuotaRequest { time: request.time, ..QuotaRequest::default() };
    if is_changed {
        if args.json {
            return Err(Error::Usage("--json: only without changes".into()));
        }
        let options = args.image.place.options(false);
        change_quotas(&args.image.image, &options, &request).map_err(|error| match error {
            Error::Image { source: vfs::Error::Invalid(why), .. } => Error::Usage(why.into()),
            other => other,
        })?;
        return Ok(Outcome::Done);
    }
    let image = open_to_read(&args.image.image, &args.image.place.options(false))?;
    terminal::with_output(|out| args.show(&image, out))?;
    Ok(Outcome::Done)
}

impl QuotaArgs {
    /// Returns the owners of the arguments.
    fn owners(&self) -> impl Iterator<Item = (OwnerKind, u32)> {
        let all = OwnerKind::ALL.into_iter().zip([&self.user, &self.group, &self.project]);
        all.flat_map(|(kind, ids)| ids.iter().map(move |id| (kind, *id)))
    }

    fn request(&self) -> Result<QuotaRequest> {
        let has = |kinds: &[OwnerKind]| OwnerKind::ALL.map(|kind| kinds.contains(&kind));
        let (starts, stops) = (has(&self.on), has(&self.off));
        let (enforce, leave) = (has(&self.enforce), has(&self.no_enforce));
        for at in 0..3 {
            if starts[at] && stops[at] || enforce[at] && leave[at] {
                let kind = OwnerKind::ALL[at].plural();
                return Err(Error::Usage(format!("{kind} cannot be both on and off")));
            }
        }
        let enforces = std::array::from_fn(|at| (enforce[at] || leave[at]).then_some(enforce[at]));
        let new = [self.space, self.inodes, self.realtime];
        let has_limits = new.iter().any(Option::is_some);
        if has_limits && self.owners().next().is_none() {
            let needed = "limits need an owner: --user, --group or --project";
            return Err(Error::Usage(needed.into()));
        }
        let [space, inodes, realtime] = new.map(Option::unwrap_or_default);
        let of = |(kind, id)| OwnerLimits { kind, id, space, inodes, realtime };
        let limits = if has_limits { self.owners().map(of).collect() } else { Vec::new() };
        let time = source_date_epoch()?.map(|sec| Timestamp { sec, nsec: 0 });
        let limits = LimitChanges { grace: self.grace.clone(), limits };
        Ok(QuotaRequest { starts, stops, enforces, limits, time })
    }

    /// Writes the report.
    fn show(&self, image: &Image, out: &mut dyn Write) -> Result<()> {
        let fs = image.file_system()?;
        let wanted: Vec<(OwnerKind, u32)> = self.owners().collect();
        for kind in OwnerKind::ALL {
            if !wanted.is_empty() && !wanted.iter().any(|(of, _)| *of == kind) {
                continue;
            }
            let state = fs.quota_state(kind)?;
            let mut written = if self.json {
                json_state(kind, &state, out)
            } else {
                text_state(kind, &state, out)
            };
            let mut is_first = true;
            fs.for_each_owner(kind, &mut |owner| {
                let is_wanted = wanted.is_empty() || wanted.contains(&(kind, owner.id));
                if written.is_err() || !is_wanted {
                    return;
                }
                written = match self.json {
                    true => json_owner(kind, owner, out),
                    false => text_owner(owner, std::mem::take(&mut is_first), out),
                };
            })?;
            written.map_err(Error::Output)?;
        }
        Ok(())
    }
}

fn json_state(kind: OwnerKind, state: &QuotaState, out: &mut dyn Write) -> io::Result<()> {
    let [space, inodes, realtime] = state.grace;
    let line = json!({
        "kind": kind.name(),
        "counted": state.is_counted,
        "enforced": state.is_enforced,
        "grace": { "space": space, "inodes": inodes, "realtime": realtime },
    });
    writeln!(out, "{line}")
}

fn json_owner(kind: OwnerKind, owner: &OwnerUsage, out: &mut dyn Write) -> io::Result<()> {
    let part = |of: &ResourceUsage| {
        let end = (of.grace_end != 0).then_some(of.grace_end);
        json!({ "used": of.used, "soft": of.soft, "hard": of.hard, "grace_end": end })
    };
    let line = json!({
        "kind": kind.name(),
        "id": owner.id,
        "space": part(&owner.space),
        "inodes": part(&owner.inodes),
        "realtime": part(&owner.realtime),
    });
    writeln!(out, "{line}")
}

fn text_state(kind: OwnerKind, state: &QuotaState, out: &mut dyn Write) -> io::Result<()> {
    let counted = if state.is_counted { "counted" } else { "not counted" };
    let enforced = if state.is_enforced { ", limits enforced" } else { "" };
    let [space, inodes, _] = state.grace.map(duration);
    let grace = format!("; grace time {space} for space, {inodes} for inodes");
    writeln!(
        out,
        "{}: {counted}{enforced}{}",
        kind.plural(),
        if state.is_counted { &grace } else { "" }
    )
}

fn text_owner(owner: &OwnerUsage, is_first: bool, out: &mut dyn Write) -> io::Result<()> {
    if is_first {
        let title = |name: &str| format!("{name:>12}{:>12}{:>12}", "soft", "hard");
        writeln!(out, "{:>10}{}{}", "id", title("space"), title("inodes"))?;
    }
    let limit = |limit: u64, shown: String| if limit == 0 { "-".to_owned() } else { shown };
    let (space, inodes) = (&owner.space, &owner.inodes);
    let bytes = |of: u64| limit(of, size(of));
    let count = |of: u64| limit(of, of.to_string());
    let space_shown =
        format!("{:>12}{:>12}{:>12}", size(space.used), bytes(space.soft), bytes(space.hard));
    let inodes_shown =
        format!("{:>12}{:>12}{:>12}", inodes.used, count(inodes.soft), count(inodes.hard));
    write!(out, "{:>10}{space_shown}{inodes_shown}", owner.id)?;
    let realtime = &owner.realtime;
    if realtime.used != 0 || realtime.soft != 0 || realtime.hard != 0 {
        let (used, soft, hard) = (size(realtime.used), bytes(realtime.soft), bytes(realtime.hard));
        write!(out, "  realtime {used}, soft {soft}, hard {hard}")?;
    }
    let ends = [("space", space), ("inodes", inodes), ("realtime", realtime)];
    for (name, of) in ends.into_iter().filter(|(_, of)| of.grace_end != 0) {
        let sec = i64::try_from(of.grace_end).unwrap_or(i64::MAX);
        write!(out, "  {name} over its limit until {}", minute(Timestamp { sec, nsec: 0 }))?;
    }
    writeln!(out)
}

/// Formats seconds.
fn duration(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86400, "d"), (3600, "h"), (60, "m")];
    let unit = UNITS.into_iter().find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

fn kind(text: &str) -> std::result::Result<OwnerKind, String> {
    let found = OwnerKind::ALL.into_iter().find(|kind| kind.plural() == text);
    found.ok_or_else(|| "write users, groups or projects".into())
}

fn space(text: &str) -> std::result::Result<NewLimits, String> {
    limits(text, parse_size)
}

fn inodes(text: &str) -> std::result::Result<NewLimits, String> {
    limits(text, |part| part.parse().map_err(|_| format!("{part:?} is not a number of inodes")))
}

/// Parses `SOFT:HARD`.
fn limits(
    text: &str,
    number: impl Fn(&str) -> std::result::Result<u64, String>,
) -> std::result::Result<NewLimits, String> {
    let (soft, hard) = text.split_once(':').ok_or("write SOFT:HARD, such as 900M:1G or :1G")?;
    let part = |text: &str| (!text.is_empty()).then(|| number(text)).transpose();
    Ok(NewLimits { soft: part(soft)?, hard: part(hard)? })
}

/// Parses `KIND=SPACE[:INODES[:REALTIME]]`.
fn grace(text: &str) -> std::result::Result<NewGrace, String> {
    let problem = || "write KIND=SPACE:INODES, such as users=3d:12h".to_owned();
    let (name, times) = text.split_once('=').ok_or_else(problem)?;
    let mut seconds = [None; 3];
    let mut parts = times.split(':');
    for (place, part) in seconds.iter_mut().zip(&mut parts) {
        *place = (!part.is_empty()).then(|| time(part)).transpose()?;
    }
    match parts.next() {
        None => Ok(NewGrace { kind: kind(name)?, seconds }),
        Some(_) => Err(problem()),
    }
}

/// Parses a time in seconds, or with a unit.
fn time(text: &str) -> std::result::Result<u32, String> {
    let problem = || format!("{text:?} is not a time: write seconds, or a number with m, h or d");
    let (number, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86400),
        _ => (text, 1_u32),
    };
    let number: u32 = number.parse().map_err(|_| problem())?;
    // A stored time of 0 means the default.
    number.checked_mul(unit).filter(|seconds| *seconds != 0).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_times_are_parsed() {
        let expected = NewLimits { soft: Some(900 << 20), hard: Some(1 << 30) };
        assert_eq!(space("900M:1G"), Ok(expected));
        assert_eq!(inodes(":7"), Ok(NewLimits { soft: None, hard: Some(7) }));
        assert!(inodes("7").is_err() && inodes("1K:").is_err() && space("x:").is_err());
        let expected = NewGrace { kind: OwnerKind::User, seconds: [Some(259_200), None, Some(5)] };
        assert_eq!(grace("users=3d::5"), Ok(expected));
        for wrong in ["users", "users=0", "owners=1d", "users=1:2:3:4", "users=9999999d"] {
            assert!(grace(wrong).is_err(), "{wrong}");
        }
        assert_eq!([604_800, 43_200, 90].map(duration), ["7d", "12h", "90s"]);
    }
}

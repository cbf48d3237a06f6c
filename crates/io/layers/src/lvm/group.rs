//! Volume groups, as their text describes them.

use super::text::{self, Section, Value};

/// Size of a sector of the metadata in bytes.
const SECTOR: u64 = 512;

/// A volume group.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeGroup {
    /// Name.
    pub name: String,
    /// UUID.
    pub id: String,
    /// Number of the description. Each change has a higher one.
    pub seqno: u64,
    /// Size of an extent in bytes.
    pub extent_bytes: u64,
    /// Physical volumes.
    pub physical: Vec<Physical>,
    /// Logical volumes, also those that only others use.
    pub logical: Vec<Logical>,
}

/// A physical volume in a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Physical {
    /// Name in the text.
    pub name: String,
    /// UUID.
    pub id: String,
    /// Last known path.
    pub device: String,
    /// Start of its extents in bytes.
    pub start_bytes: u64,
    /// Number of its extents.
    pub extents: u64,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Logical {
    /// Name.
    pub name: String,
    /// True for volumes of users, false for parts of others.
    pub is_visible: bool,
    /// True if its status permits writes.
    pub is_writable: bool,
    /// Segments in order, without gaps.
    pub segments: Vec<Segment>,
}

/// A segment of a logical volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Number of its extents.
    pub extents: u64,
    /// Its mapping.
    pub kind: SegmentKind,
}

/// Mapping of a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentKind {
    /// One area, or several in turn.
    Striped {
        /// Bytes of a stripe; 0 for one area.
        stripe_bytes: u64,
        /// The areas.
        areas: Vec<Area>,
    },
    /// Areas with the same contents.
    Mirror(Vec<Area>),
    /// Any other type.
    Other(String),
}

/// A start in extents on a physical or logical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The volume.
    pub on: Volume,
    /// The first extent.
    pub extent: u64,
}

/// A volume by its index in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// A physical volume.
    Physical(usize),
    /// A logical volume.
    Logical(usize),
}

/// Parses the text of a metadata area.
///
/// # Errors
/// A description of the first problem.
pub fn parse(bytes: &[u8]) -> Result<VolumeGroup, String> {
    let root = text::parse(bytes)?;
    let [(name, section)] = &root.sections[..] else {
        return Err(format!("{} volume groups, expected one", root.sections.len()));
    };
    let extent_bytes = bytes_of(section, "extent_size")?;
    if extent_bytes == 0 {
        return Err("extent_size is 0".into());
    }
    let physical = children(section, "physical_volumes");
    let physical = physical.iter().map(parse_physical).collect::<Result<Vec<_>, _>>()?;
    let volumes = children(section, "logical_volumes");
    let names = Names { physical: &physical, logical: volumes };
    let logical = volumes.iter().map(|(name, volume)| parse_logical(name, volume, &names));
    let logical = logical.collect::<Result<_, _>>()?;
    let (id, seqno) = (section.text("id")?.to_owned(), section.number("seqno")?);
    Ok(VolumeGroup { name: name.clone(), id, seqno, extent_bytes, physical, logical })
}

fn children<'a>(section: &'a Section, name: &str) -> &'a [(String, Section)] {
    section.section(name).map_or(&[], |section| &section.sections)
}

/// Returns a number of sectors in bytes.
fn bytes_of(section: &Section, name: &str) -> Result<u64, String> {
    let sectors = section.number(name)?;
    sectors.checked_mul(SECTOR).ok_or_else(|| format!("{name} is {sectors} sectors"))
}

fn parse_physical((name, section): &(String, Section)) -> Result<Physical, String> {
    Ok(Physical {
        name: name.clone(),
        id: section.text("id")?.to_owned(),
        device: section.text("device").unwrap_or_default().to_owned(),
        start_bytes: bytes_of(section, "pe_start")?,
        extents: section.number("pe_count")?,
    })
}

/// Names of volumes in a group.
struct Names<'a> {
    physical: &'a [Physical],
    logical: &'a [(String, Section)],
}

impl Names<'_> {
    fn find(&self, name: &str) -> Result<Volume, String> {
        let physical = self.physical.iter().position(|volume| volume.name == name);
        let logical = || self.logical.iter().position(|(found, _)| found == name);
        let found = physical.map(Volume::Physical).or_else(|| logical().map(Volume::Logical));
        found.ok_or_else(|| format!("there is no volume {name:?}"))
    }
}

fn parse_logical(name: &str, section: &Section, names: &Names<'_>) -> Result<Logical, String> {
    let at = |problem: String| format!("logical volume {name:?}: {problem}");
    let (mut segments, mut next): (Vec<(u64, Segment)>, u64) = (Vec::new(), 0);
    for (key, segment) in &section.sections {
        if key.starts_with("segment") {
            segments.push(parse_segment(segment, names).map_err(at)?);
        }
    }
    segments.sort_by_key(|(start, _)| *start);
    for (start, segment) in &segments {
        if *start != next {
            return Err(at(format!("a segment starts at extent {start}, expected {next}")));
        }
        next = start.checked_add(segment.extents).ok_or_else(|| at("it is too long".into()))?;
    }
    Ok(Logical {
        name: name.to_owned(),
        is_visible: section.lists("status", "VISIBLE"),
        is_writable: section.lists("status", "WRITE"),
        segments: segments.into_iter().map(|(_, segment)| segment).collect(),
    })
}

/// Parses a segment. Returns it with its first extent.
fn parse_segment(section: &Section, names: &Names<'_>) -> Result<(u64, Segment), String> {
    let kind = match section.text("type")? {
        "striped" | "linear" => {
            let areas = pairs(section.list("stripes")?, names)?;
            let stripe_bytes = if areas.len() > 1 { bytes_of(section, "stripe_size")? } else { 0 };
            SegmentKind::Striped { stripe_bytes, areas }
        }
        "mirror" => SegmentKind::Mirror(pairs(section.list("mirrors")?, names)?),
        "raid1" => SegmentKind::Mirror(images(section.list("raids")?, names)?),
        other => SegmentKind::Other(other.to_owned()),
    };
    let segment = Segment { extents: section.number("extent_count")?, kind };
    Ok((section.number("start_extent")?, segment))
}

/// Parses a list of names and extents in turn.
fn pairs(list: &[Value], names: &Names<'_>) -> Result<Vec<Area>, String> {
    let (pairs, []) = list.as_chunks::<2>() else {
        return Err(format!("{} values, expected pairs", list.len()));
    };
    if pairs.is_empty() {
        return Err("a segment without areas".into());
    }
    let area = |pair: &[Value; 2]| match pair {
        [Value::Text(name), Value::Number(extent)] if *extent >= 0 => {
            Ok(Area { on: names.find(name)?, extent: extent.unsigned_abs() })
        }
        found => Err(format!("{found:?}, expected a name and an extent")),
    };
    pairs.iter().map(area).collect()
}

/// Parses the members of a raid1 segment: names of metadata and data in turn.
fn images(list: &[Value], names: &Names<'_>) -> Result<Vec<Area>, String> {
    let (pairs, []) = list.as_chunks::<2>() else {
        return Err(format!("{} members, expected pairs", list.len()));
    };
    let area = |pair: &[Value; 2]| match pair {
        [_, Value::Text(name)] => Ok(Area { on: names.find(name)?, extent: 0 }),
        found => Err(format!("{found:?}, expected two names")),
    };
    pairs.iter().map(area).collect()
}

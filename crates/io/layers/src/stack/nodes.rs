//! Devices on the way to the file system.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use disk::partition::{self, Partition, Signature};
use disk::{BlockDevice, WindowDevice};

use super::Layer;
use crate::luks::Volume;
use crate::lvm::{self, OpenGroup, PhysicalVolume};
use crate::md::{self, superblock::Superblock};
use crate::{LayerError, LayerOptions, Member, Result};

/// Maximum number of layers in front of a device.
const DEPTH_MAX: usize = 8;
/// Maximum number of devices.
const NODES_MAX: usize = 1024;

/// A device, and the layers in front of it.
pub(super) struct Node {
    pub(super) member: Member,
    pub(super) layers: Vec<Layer>,
    /// True if one of them is more than a partition.
    pub(super) is_layered: bool,
    /// True if it depends on the image, and not only on other members.
    pub(super) of_image: bool,
    /// Name of the logical volume.
    pub(super) volume: Option<String>,
}

impl Node {
    pub(super) fn root(member: Member, of_image: bool) -> Self {
        Self { member, layers: Vec::new(), is_layered: false, of_image, volume: None }
    }

    /// Returns a node behind one more layer.
    fn behind(
        &self,
        device: Arc<dyn BlockDevice>,
        text: String,
        read_only: Option<&'static str>,
    ) -> Self {
        let mut layers = self.layers.clone();
        layers.push(Layer { text, read_only });
        let member = Member { name: self.member.name.clone(), device };
        let (of_image, volume) = (self.of_image, self.volume.clone());
        Self { member, layers, is_layered: true, of_image, volume }
    }

    /// Returns the text that selects it: the volume, or its last layer.
    pub(super) fn selector(&self) -> String {
        let last = || self.layers.last().map(|layer| layer.text.clone());
        self.volume.clone().or_else(last).unwrap_or_else(|| self.member.name.clone())
    }
}

/// A device that may be meant.
pub(super) enum Candidate {
    Found(Node),
    /// A volume that cannot be opened.
    Failed(String, LayerError),
}

/// State of the search.
pub(super) struct Resolver<'a> {
    options: &'a LayerOptions,
    /// True if a file system may be a leg of a mirror whose superblock is at the end.
    seeks_arrays: bool,
    new: VecDeque<Node>,
    count: usize,
    /// Members of arrays that are not assembled.
    members: Vec<(Node, Superblock)>,
    volumes: Vec<(Node, PhysicalVolume)>,
    /// UUIDs of groups that are open.
    open_groups: Vec<String>,
    pub(super) candidates: Vec<Candidate>,
    /// Devices of the image with other contents.
    pub(super) leaves: Vec<Node>,
    /// The first failure.
    pub(super) problem: Option<LayerError>,
    /// Partition within a layer, until it is found.
    pub(super) unused_partition: Option<u32>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(
        options: &'a LayerOptions,
        partition: Option<u32>,
        seeks_arrays: bool,
    ) -> Self {
        Self {
            options,
            seeks_arrays,
            new: VecDeque::new(),
            count: 0,
            members: Vec::new(),
            volumes: Vec::new(),
            open_groups: Vec::new(),
            candidates: Vec::new(),
            leaves: Vec::new(),
            problem: None,
            unused_partition: partition,
        }
    }

    pub(super) fn add(&mut self, node: Node) {
        self.new.push_back(node);
    }

    /// Examines all devices.
    pub(super) fn run(&mut self) -> Result<()> {
        loop {
            while let Some(node) = self.new.pop_front() {
                self.count += 1;
                if self.count > NODES_MAX || node.layers.len() > DEPTH_MAX {
                    let problem = format!("more than {DEPTH_MAX} layers or {NODES_MAX} devices");
                    return Err(LayerError::Usage(problem));
                }
                let of_image = node.of_image;
                let volume = node.volume.clone();
                if let Err(error) = self.examine(node) {
                    match volume {
                        Some(name) if of_image => {
                            self.candidates.push(Candidate::Failed(name, error));
                        }
                        _ if of_image || self.problem.is_none() => {
                            self.problem.get_or_insert(error);
                        }
                        _ => {}
                    }
                }
            }
            self.assemble_arrays();
            if self.new.is_empty() {
                self.open_groups()?;
            }
            if self.new.is_empty() {
                return Ok(());
            }
        }
    }

    fn examine(&mut self, node: Node) -> Result<()> {
        let device = &*node.member.device;
        let signature = Signature::of(device).map_err(LayerError::reading("a layer", 0))?;
        let name = match &signature {
            Signature::Ext | Signature::Xfs if self.seeks_arrays && is_array_member(device) => {
                "linux_raid_member"
            }
            Signature::Ext | Signature::Xfs => {
                if node.of_image {
                    self.candidates.push(Candidate::Found(node));
                }
                return Ok(());
            }
            Signature::Other(found) => found.name,
            _ => "",
        };
        match name {
            "crypto_LUKS" => self.unlock(&node),
            "linux_raid_member" => {
                let found = md::find_superblock(device)?;
                let found = found.ok_or_else(|| {
                    LayerError::damaged("md superblock", 0, "it is not where its device ends")
                })?;
                self.members.push((node, found));
                Ok(())
            }
            "LVM2_member" => {
                let volume = PhysicalVolume::read(node.member.clone())?;
                self.volumes.push((node, volume));
                Ok(())
            }
            _ => self.partitions(node),
        }
    }

    fn unlock(&mut self, node: &Node) -> Result<()> {
        let volume = Volume::read(&*node.member.device)?;
        let key = volume.unlock(&*node.member.device, self.options)?;
        let device = volume.open(Arc::clone(&node.member.device), &key)?;
        let text = format!("LUKS{} volume {}", volume.version, volume.uuid);
        self.add(node.behind(Arc::new(device), text, None));
        Ok(())
    }

    /// Adds the partitions of a disk, or keeps a device without a table as a leaf.
    fn partitions(&mut self, node: Node) -> Result<()> {
        let device = Arc::clone(&node.member.device);
        let table = partition::read(&*device).ok().flatten().filter(|table| !table.is_empty());
        let Some(table) = table else {
            if node.of_image {
                self.leaves.push(node);
            }
            return Ok(());
        };
        let chosen = if node.of_image { self.unused_partition.take() } else { None };
        let mut count = 0;
        for found in table.iter().filter(|found| chosen.is_none_or(|number| number == found.number))
        {
            if let Some(window) = part_of(&device, found) {
                count += 1;
                let text = format!("partition {}", found.number);
                let behind = node.behind(Arc::new(window), text, None);
                self.add(Node { is_layered: node.is_layered, ..behind });
            }
        }
        match chosen {
            Some(number) if count == 0 => {
                let error = partition::PartitionError::NoPartition { number, partitions: table };
                Err(LayerError::Usage(error.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn assemble_arrays(&mut self) {
        let members = std::mem::take(&mut self.members);
        let found =
            members.iter().map(|(node, found)| (node.member.clone(), found.clone())).collect();
        for array in md::arrays(found) {
            let of_array = || members.iter().filter(|(_, found)| found.array == array.id);
            let is_of_image = of_array().any(|(node, _)| node.of_image);
            let Some((first, _)) = of_array().find(|(node, _)| node.of_image == is_of_image) else {
                continue;
            };
            match array.open() {
                Ok(opened) => self.add(first.behind(opened.device, opened.what, opened.read_only)),
                Err(error) if is_of_image => self.problem = self.problem.take().or(Some(error)),
                Err(_) => {}
            }
        }
    }

    /// Opens the logical volumes of groups of the image, or the selected one.
    fn open_groups(&mut self) -> Result<()> {
        let volumes = std::mem::take(&mut self.volumes);
        let (nodes, volumes): (Vec<_>, Vec<_>) = volumes.into_iter().unzip();
        let groups = lvm::groups(&volumes);
        let mut names = Vec::new();
        let mut selected = false;
        for group in &groups {
            let owns = |volume: &PhysicalVolume| {
                group.group.physical.iter().any(|it| it.id == volume.header.id)
            };
            let node =
                nodes.iter().zip(&volumes).find(|(node, volume)| node.of_image && owns(volume));
            let Some((node, _)) = node else { continue };
            if self.open_groups.contains(&group.group.id) {
                continue;
            }
            self.open_groups.push(group.group.id.clone());
            for volume in group.group.logical.iter().filter(|volume| volume.is_visible) {
                let name = group.full_name(volume);
                let is_meant =
                    self.options.volume.as_ref().is_none_or(|it| *it == name || *it == volume.name);
                if is_meant {
                    selected = true;
                    self.open_volume(node, group, volume, name.clone());
                }
                names.push(name);
            }
        }
        if groups.is_empty() && nodes.iter().any(|node| node.of_image) {
            let missing = "the member with its metadata".into();
            return Err(LayerError::Missing { what: "the LVM2 physical volume".into(), missing });
        }
        match &self.options.volume {
            Some(volume) if !selected && !groups.is_empty() => Err(LayerError::Choose {
                problem: format!("there is no volume {volume}"),
                list: format!("there are: {}", names.join(", ")),
            }),
            _ => Ok(()),
        }
    }

    fn open_volume(
        &mut self,
        node: &Node,
        group: &OpenGroup,
        volume: &lvm::group::Logical,
        name: String,
    ) {
        match group.open(volume) {
            Ok(opened) => {
                let text = format!("LVM2 volume {name}");
                let node = node.behind(opened.device, text, opened.read_only);
                self.add(Node { volume: Some(name), ..node });
            }
            Err(error) => self.candidates.push(Candidate::Failed(name, error)),
        }
    }
}

/// Returns whether a device with a file system has an array's superblock at its end.
pub(super) fn is_array_member(device: &dyn BlockDevice) -> bool {
    matches!(md::find_superblock(device), Ok(Some(found)) if found.members > 1)
}

/// Returns a window onto a partition, if it is within its device.
fn part_of(device: &Arc<dyn BlockDevice>, found: &Partition) -> Option<WindowDevice> {
    WindowDevice::new(Arc::clone(device), found.offset, found.len).ok()
}

/// A window onto a borrowed device, for looking at it.
pub(super) struct Probe<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    len: u64,
}

/// Returns a window for looking at a part of a device, if the part is within it.
pub(super) fn window(device: &dyn BlockDevice, start: u64, len: u64) -> Option<Probe<'_>> {
    let end = start.checked_add(len)?;
    (end <= device.len()).then_some(Probe { device, start, len })
}

impl BlockDevice for Probe<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.device.read_at(self.start + offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Describes the contents of a device in a list.
pub(super) fn contents(device: &dyn BlockDevice) -> &'static str {
    match Signature::of(device) {
        Ok(Signature::Ext) => "ext2/3/4",
        Ok(Signature::Xfs) => "XFS",
        Ok(Signature::Other(found)) => found.what,
        _ => "unknown contents",
    }
}

//! Finds the file system behind layers.
//!
//! The image and its further members are nodes. Each round examines new nodes: an unlocked LUKS volume and a partition are new
//! nodes, members of arrays and physical volumes wait. Then arrays and volume groups are assembled, which makes new
//! nodes again. Nodes with ext or XFS that depend on the image are candidates.
//!
//! The number of nodes and their depth are limited, so headers that refer to each other end in an error.

mod nodes;

use std::sync::Arc;

use disk::BlockDevice;
use disk::partition::{self, Signature};
use vfs::text;

use crate::{LayerError, LayerOptions, Member, Result, containers};
use nodes::{Candidate, Node, Resolver};

/// Purpose of opening an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// A layer, from the outermost one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Description, such as `LVM2 volume vg/root`.
    pub text: String,
    /// The reason why it can only be read.
    pub read_only: Option<&'static str>,
}

/// A device behind layers.
pub struct Stack {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Layers between the image and the device.
    pub layers: Vec<Layer>,
}

/// Returns whether an image may be in a layer: whether it does not begin with ext or XFS.
///
/// # Errors
/// If it cannot be read.
pub fn has_layer(device: &dyn BlockDevice) -> Result<bool> {
    let signature = Signature::of(device).map_err(LayerError::reading("the image", 0))?;
    Ok(!matches!(signature, Signature::Ext | Signature::Xfs))
}

/// Opens the container in a file. Returns the device as it is if there is none.
///
/// # Errors
/// If the container is damaged or not supported, or is to be written.
pub fn unpack(device: Arc<dyn BlockDevice>, access: Access) -> Result<Stack> {
    let Some(found) = containers::open(&device)? else {
        return Ok(Stack { device, layers: Vec::new() });
    };
    let why = "changes of this format are not supported; convert it with: qemu-img convert -O raw IMAGE RAW";
    if access == Access::Write {
        return Err(LayerError::ReadOnly { what: format!("a {} image", found.format), why });
    }
    let layer = Layer { text: format!("{} image", found.format), read_only: Some(why) };
    Ok(Stack { device: found.device, layers: vec![layer] })
}

/// Finds the file system behind the layers of an image. `members` are further members of its arrays and volume groups.
/// `partition` selects a partition within a layer. An image without layers is returned as it is.
///
/// # Errors
/// If layers are damaged, locked, incomplete or unsupported, several file systems may be meant, or the image is to be
/// written and a layer can only be read.
pub fn resolve(
    image: Member,
    members: Vec<Member>,
    options: &LayerOptions,
    partition: Option<u32>,
    access: Access,
) -> Result<Stack> {
    let seeks_arrays = access == Access::Write || !members.is_empty();
    let is_member = || seeks_arrays && nodes::is_array_member(&*image.device);
    if !has_layer(&*image.device)? && !is_member() {
        return plain(image, &members, options);
    }
    let unchanged = Arc::clone(&image.device);
    let main_table = options.volume.is_none() && members.is_empty() && partition.is_none();
    if main_table && has_plain_partition(&*image.device) {
        return Ok(Stack { device: unchanged, layers: Vec::new() });
    }
    let mut resolver = Resolver::new(options, partition, seeks_arrays);
    resolver.add(Node::root(image, true));
    for member in members {
        let Stack { device, layers } = unpack(member.device, access)?;
        resolver.add(Node { layers, ..Node::root(Member { device, ..member }, false) });
    }
    resolver.run()?;
    let Some(found) = choose(resolver)? else {
        return Ok(Stack { device: unchanged, layers: Vec::new() });
    };
    let locked = found.layers.iter().find_map(|layer| layer.read_only.map(|why| (layer, why)));
    match (access, locked) {
        (Access::Write, Some((layer, why))) => {
            Err(LayerError::ReadOnly { what: layer.text.clone(), why })
        }
        _ => Ok(Stack { device: found.member.device, layers: found.layers }),
    }
}

/// Returns an image without layers.
fn plain(image: Member, members: &[Member], options: &LayerOptions) -> Result<Stack> {
    if let Some(volume) = &options.volume {
        let problem =
            format!("there is no volume {volume}: the image contains a file system without layers");
        return Err(LayerError::Usage(problem));
    }
    if let Some(member) = members.first() {
        let problem = format!("{}: the image needs no other members", member.name);
        return Err(LayerError::Usage(problem));
    }
    Ok(Stack { device: image.device, layers: Vec::new() })
}

/// Returns whether a partition of a disk contains ext or XFS directly. The user then chooses a partition.
fn has_plain_partition(device: &dyn BlockDevice) -> bool {
    let Ok(Some(partitions)) = partition::read(device) else { return false };
    let is_plain = |found: &partition::Partition| {
        nodes::window(device, found.offset, found.len).is_some_and(|probe| {
            matches!(Signature::of(&probe), Ok(Signature::Ext | Signature::Xfs))
        })
    };
    partitions.iter().any(is_plain)
}

/// Chooses the only candidate. Returns `None` if the image has no layers.
fn choose(resolver: Resolver<'_>) -> Result<Option<Node>> {
    let Resolver { mut candidates, mut leaves, problem, unused_partition, .. } = resolver;
    if let (Some(number), None) = (unused_partition, &problem) {
        if leaves.iter().chain(found(&candidates)).all(|node| node.layers.is_empty()) {
            return Ok(None);
        }
        let problem = format!("no layer has a partition table with partition {number}");
        return Err(LayerError::Usage(problem));
    }
    match (candidates.len(), problem) {
        (1, _) => match candidates.remove(0) {
            Candidate::Found(node) => Ok(Some(node)),
            Candidate::Failed(_, error) => Err(error),
        },
        (0, Some(error)) => Err(error),
        (0, None) => {
            leaves.retain(|leaf| leaf.is_layered);
            match leaves.len() {
                0 => Ok(None),
                // The caller describes its contents.
                1 => Ok(Some(leaves.remove(0))),
                _ => Err(listed(
                    "no volume contains ext2/3/4 or XFS",
                    &leaves.into_iter().map(Candidate::Found).collect::<Vec<_>>(),
                )),
            }
        }
        _ => Err(listed("several volumes may be meant", &candidates)),
    }
}

/// Returns the candidates that can be opened.
fn found(candidates: &[Candidate]) -> impl Iterator<Item = &Node> {
    candidates.iter().filter_map(|candidate| match candidate {
        Candidate::Found(node) => Some(node),
        Candidate::Failed(..) => None,
    })
}

/// Creates an error that lists what there is.
fn listed(problem: &str, candidates: &[Candidate]) -> LayerError {
    let one = |candidate: &Candidate| match candidate {
        Candidate::Found(node) => {
            let size = text::size(node.member.device.len());
            format!("{} ({}, {size})", node.selector(), nodes::contents(&*node.member.device))
        }
        Candidate::Failed(name, error) => format!("{name} ({error})"),
    };
    let list = candidates.iter().map(one).collect::<Vec<_>>().join(", ");
    let by_partition =
        candidates.iter().all(|it| matches!(it, Candidate::Found(node) if node.volume.is_none()));
    let (problem, list) = (problem.to_owned(), format!("there are: {list}"));
    if by_partition {
        LayerError::ChoosePartition { problem, list }
    } else {
        LayerError::Choose { problem, list }
    }
}

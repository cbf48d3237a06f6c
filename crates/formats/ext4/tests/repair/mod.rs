//! Tests of the repair: neither the check nor e2fsck finds anything in a repaired image, and undamaged parts are
//! unchanged.

mod against;
mod bases;
mod conditions;
mod connections;
mod damage;
mod devices;
mod entries;
mod features;
mod fields;
mod files;
mod grain;
mod log;
mod many;
mod once;
mod tree;

use std::num::NonZero;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::repair::{PAGE_BYTES, Plan, Repairer, Staging, Step, make_plan};
use vfs::check::{Finding, Options, Silent};

/// Returns the repair plan of an image.
pub(crate) fn plan(image: &[u8]) -> vfs::Result<Plan> {
    plan_with(&repairer(), image)
}

fn repairer() -> ext4::repair::Repair {
    let options = Options::default().with_threads(NonZero::new(2).expect("two is not zero"));
    ext4::repair::Repair { options }
}

fn plan_with(repairer: &dyn Repairer, image: &[u8]) -> vfs::Result<Plan> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(image));
    make_plan(repairer, &Arc::new(Staging::new(device)), &Silent)
}

/// Applies steps to a copy of the image.
pub(crate) fn apply(image: &[u8], steps: &[Step]) -> Vec<u8> {
    let mut image = image.to_vec();
    for (&number, page) in steps.iter().flat_map(|step| &step.pages) {
        let start = (number * PAGE_BYTES) as usize;
        let count = image.len().saturating_sub(start).min(PAGE_BYTES as usize);
        image[start..start + count].copy_from_slice(&page[..count]);
    }
    image
}

/// Describes findings and repairs for a message.
pub(crate) fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |title: &str, what: String| text.push_str(&format!("  {title} {what}\n"));
    plan.findings.iter().take(8).for_each(|finding| line("found", short(finding)));
    for action in plan.steps.iter().flat_map(|step| &step.actions).take(16) {
        line("done", format!("{} {:?}", action.what, action.code.map(|code| code.name)));
    }
    plan.left.iter().take(8).for_each(|finding| line("left", short(finding)));
    text
}

/// Formats a finding as one short line.
fn short(finding: &Finding) -> String {
    let place = &finding.place;
    let numbers = format!("{:?}/{:?}/{:?}", place.group, place.block, place.inode);
    let text = [&finding.detail, &finding.expected, &finding.found]
        .map(|text| text.as_deref().map_or(String::new(), |text| text.chars().take(60).collect()));
    format!("{} {numbers} {} {}", finding.code.name, place.field.unwrap_or(""), text.join(" | "))
}

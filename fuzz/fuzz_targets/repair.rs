//! Plans the repair of a damaged image of either format. Errors are fine; panics, hangs and unbounded memory are bugs. An
//! image that was repaired needs no further repair.
#![no_main]

use std::num::NonZero;
use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use libfuzzer_sys::fuzz_target;
use operations::repair::{Repairer, Staging, make_plan, write_in_place};
use vfs::check::{Finding, Observer, Options};

struct Nobody;

impl Observer for Nobody {
    fn found(&self, _: Finding) {}
}

// The first byte chooses the format; the others are as for the targets that read images.
fuzz_target!(|input: &[u8]| {
    let [choice, input @ ..] = input else { return };
    let options = Options::default().with_threads(NonZero::<usize>::MIN);
    let (device, repairer): (Arc<dyn BlockDevice>, Box<dyn Repairer>) = if choice & 1 == 0 {
        let Some((device, _)) = diskwright_fuzz::damaged(input) else { return };
        (device, Box::new(ext4::repair::Repair { options }))
    } else {
        let Some((device, _)) = diskwright_fuzz::xfs::damaged(input) else { return };
        (device, Box::new(xfs::repair::Repair { options }))
    };
    let image = Arc::new(OverlayDevice::new(device));
    let staging = Arc::new(Staging::new(image.clone()));
    let Ok(plan) = make_plan(&*repairer, &staging, &Nobody) else { return };
    if !plan.left.is_empty() || !plan.summary.is_complete {
        return;
    }
    write_in_place(&*image, &plan.steps, &mut |_, _| true)
        .expect("memory takes whatever is written");
    let staging = Arc::new(Staging::new(image));
    let again = make_plan(&*repairer, &staging, &Nobody).expect("a plan for what was repaired");
    let what: Vec<_> = again.steps.iter().flat_map(|step| &step.actions).collect();
    assert!(again.findings.is_empty() && what.is_empty(), "{:?} {what:?}", again.findings);
});

//! Opens arbitrary bytes as each layer, and reads what opens. Errors are fine; panics, hangs and unbounded memory are
//! bugs.
#![no_main]

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use layers::md::superblock;
use layers::{Access, LayerOptions, Member, containers, luks, lvm, md};
use libfuzzer_sys::fuzz_target;

/// Size of the device, whose rest is zeros.
const DEVICE_BYTES: u64 = 1 << 20;

fn read(device: &dyn BlockDevice) {
    let mut part = [0; 4096];
    for offset in [0, 12_345, device.len() / 2, device.len().saturating_sub(4096)] {
        let _ = device.read_at(offset, &mut part);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    if bytes.len() as u64 > DEVICE_BYTES {
        return;
    }
    match kind % 8 {
        0 => drop(lvm::text::parse(bytes)),
        1 => {
            if let Ok(group) = lvm::group::parse(bytes) {
                let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
                let devices = group.physical.iter().map(|_| Some(Arc::clone(&device))).collect();
                let group = lvm::OpenGroup { group, devices };
                for volume in &group.group.logical {
                    group.open(volume).iter().for_each(|opened| read(&*opened.device));
                }
            }
        }
        2 => {
            let _ = lvm::label::parse(bytes);
            let _ = lvm::label::parse_area(bytes, lvm::label::Area { offset: 4096, size: 1 << 20 });
        }
        3 => {
            let _ = superblock::parse_new(bytes, 4096, DEVICE_BYTES);
            let _ = superblock::parse_old(bytes, 4096);
        }
        4 => {
            let _ = luks::header1::parse(bytes);
            let _ = luks::header2::parse(bytes);
        }
        5 => {
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
            device.write_at(0, bytes).expect("room for the input");
            if let Ok(Some(found)) = containers::open(&device) {
                read(&*found.device);
            }
        }
        6 => {
            let device = MemoryDevice::new(DEVICE_BYTES);
            device.write_at(0, bytes).expect("room for the input");
            let _ = md::find_superblock(&device);
        }
        _ => {
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
            device.write_at(0, bytes).expect("room for the input");
            let image = Member::new("image", device);
            let options = LayerOptions::new();
            if let Ok(stack) = layers::resolve(image, Vec::new(), &options, None, Access::Read) {
                read(&*stack.device);
            }
        }
    }
});

//! Writes through layers that map one place to one place, and refusals of all others.

use diskwright_layers::{Access, LayerError, LayerOptions, Member, resolve};

use crate::common::{bytes, device, digest, member, with_passphrase};

fn open_to_write(
    names: &[&str],
    options: &LayerOptions,
) -> Result<diskwright_layers::Stack, LayerError> {
    let mut members: Vec<Member> = names.iter().map(|name| member(name)).collect();
    let image = members.remove(0);
    resolve(image, members, options, None, Access::Write)
}

#[test]
fn mirrors_and_parity_are_never_written() {
    for (names, volume, why) in [
        (&["md-one-0", "md-one-1"][..], None, "a mirror needs writes to all of its legs"),
        (&["md-one-0"], None, "a mirror needs writes to all of its legs"),
        (&["md-end-0"], None, "run: mdadm --zero-superblock"),
        (&["md-old-1"], None, "run: mdadm --zero-superblock"),
        (&["md-five-0", "md-five-1", "md-five-2"], None, "writing would need new parity"),
        (&["lvm-pv1", "lvm-pv2", "lvm-pv3"], Some("vg/rone"), "a mirror needs writes"),
    ] {
        let mut options = LayerOptions::new();
        options.volume = volume.map(str::to_owned);
        let said = open_to_write(names, &options).err().unwrap().to_string();
        assert!(said.contains("can only be read") && said.contains(why), "{names:?}: {said}");
    }
}

#[test]
fn writes_of_any_size_are_read_back_and_nothing_else_changes() {
    let mut random = fastrand::Rng::with_seed(3);
    for (names, volume) in [
        (&["luks-sectors"][..], None),
        (&["luks-one"], None),
        (&["md-zero-0", "md-zero-1"], None),
        (&["lvm-pv1", "lvm-pv2", "lvm-pv3"], Some("vg/str")),
        (&["lvm-pv1"], Some("vg/lin")),
        (&["nested"], None),
    ] {
        let mut options = with_passphrase();
        options.volume = volume.map(str::to_owned);
        let stack = open_to_write(names, &options).unwrap();
        let device = &*stack.device;
        let mut model = vec![0; device.len() as usize];
        device.read_at(0, &mut model).unwrap();
        for _ in 0..60 {
            let at = random.usize(0..model.len());
            let len = random.usize(0..200_000).min(model.len() - at);
            if random.u8(..4) == 0 {
                device.zero_range(at as u64, len as u64).unwrap();
                model[at..at + len].fill(0);
            } else {
                let data: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                device.write_at(at as u64, &data).unwrap();
                model[at..at + len].copy_from_slice(&data);
            }
        }
        device.flush().unwrap();
        device.barrier().unwrap();
        let mut found = vec![1; model.len()];
        device.read_at(0, &mut found).unwrap();
        assert!(found == model, "{names:?}");
        assert!(device.write_at(device.len() - 1, &[1, 2]).is_err());
    }
}

#[test]
fn a_written_header_is_never_changed() {
    let image = device(&bytes("luks-one"));
    let before = digest(&*image);
    let stack = resolve(
        Member::new("image", image.clone()),
        Vec::new(),
        &with_passphrase(),
        None,
        Access::Write,
    );
    let mut first = [0; 100];
    let stack = stack.unwrap();
    stack.device.read_at(0, &mut first).unwrap();
    stack.device.write_at(0, &[7; 100]).unwrap();
    assert_ne!(digest(&*image), before);
    stack.device.write_at(0, &first).unwrap();
    assert_eq!(digest(&*image), before, "encryption of the same contents is the same");
}

//! Volumes and arrays that lvm2, mdadm and cryptsetup made, compared with their devices in the kernel.

use diskwright_layers::{LayerOptions, Stack};

use crate::common::{self, bytes, device, digest, open, open_bytes, refused, with_passphrase};

/// A line of `volumes.txt`.
struct Volume {
    name: Option<&'static str>,
    digest: &'static str,
    len: u64,
    images: Vec<&'static str>,
}

fn volumes() -> Vec<Volume> {
    let parse = |line: &'static str| {
        let words: Vec<_> = line.split(' ').collect();
        let name = Some(words[0]).filter(|name| *name != "-");
        Volume {
            name,
            digest: words[1],
            len: words[2].parse().unwrap(),
            images: words[3..].to_vec(),
        }
    };
    include_str!("images/volumes.txt").lines().map(parse).collect()
}

fn options(volume: &Volume) -> LayerOptions {
    let options = with_passphrase();
    match volume.name {
        Some(name) => options.volume(name),
        None => options,
    }
}

#[test]
fn devices_are_those_of_the_kernel() {
    let volumes = volumes();
    assert_eq!(volumes.len(), 20);
    for volume in &volumes {
        let Stack { device, layers } = open(&volume.images, &options(volume))
            .unwrap_or_else(|error| panic!("{:?} {:?}: {error}", volume.name, volume.images));
        assert_eq!(device.len(), volume.len, "{:?}", volume.images);
        assert_eq!(digest(&*device), volume.digest, "{:?} {:?}", volume.name, volume.images);
        // One large read.
        let mut whole = vec![0; volume.len as usize];
        device.read_at(0, &mut whole).unwrap();
        assert_eq!(digest(&*common::device(&whole)), volume.digest, "{:?}", volume.images);
        assert!(!layers.is_empty(), "{:?}", volume.images);
        assert!(device.read_at(volume.len - 1, &mut [0; 2]).is_err());
        assert!(device.read_at(u64::MAX, &mut [0; 2]).is_err());
    }
}

#[test]
fn members_may_be_in_any_order() {
    for volume in volumes().iter().filter(|volume| volume.images.len() > 1) {
        let mut images = volume.images.clone();
        images.rotate_left(1);
        let stack = open(&images, &options(volume)).unwrap();
        assert_eq!(digest(&*stack.device), volume.digest, "{images:?}");
    }
}

#[test]
fn one_leg_of_a_mirror_suffices() {
    for (leg, image) in [("md-one", "md-one-1"), ("md-end", "md-end-0"), ("md-old", "md-old-1")] {
        // The file system of versions 0.90 and 1.0 is at the start of the leg.
        let stack = open(&[image], &LayerOptions::new()).unwrap();
        let whole =
            open(&[&format!("{leg}-0"), &format!("{leg}-1")], &LayerOptions::new()).unwrap();
        let mut both = [vec![0; 1 << 20], vec![0; 1 << 20]];
        stack.device.read_at(0, &mut both[0]).unwrap();
        whole.device.read_at(0, &mut both[1]).unwrap();
        assert!(both[0] == both[1], "{leg}");
    }
    // The first leg of vg/rone is on the first image, the second leg on the second one.
    for image in ["lvm-pv1", "lvm-pv2"] {
        let stack = open(&[image], &LayerOptions::new().volume("vg/rone")).unwrap();
        let volumes = volumes();
        let expected = volumes.iter().find(|volume| volume.name == Some("vg/rone")).unwrap();
        assert_eq!(digest(&*stack.device), expected.digest, "{image}");
    }
}

#[test]
fn layers_are_described_from_the_outermost_one() {
    let stack = open(&["nested"], &with_passphrase()).unwrap();
    let texts: Vec<_> = stack.layers.iter().map(|layer| layer.text.as_str()).collect();
    let [partition, luks, lvm] = texts[..] else { panic!("{texts:?}") };
    assert_eq!((partition, lvm), ("partition 1", "LVM2 volume inner/root"));
    assert!(luks.starts_with("LUKS2 volume ") && luks.len() == 49, "{luks}");
    let stack = open(&["md-five-0", "md-five-1", "md-five-2"], &LayerOptions::new()).unwrap();
    assert_eq!(stack.layers[0].text, "md RAID 5 array any:five (3 of 3 members)");
}

#[test]
fn several_volumes_are_listed_with_their_contents() {
    let images = ["lvm-pv1", "lvm-pv2", "lvm-pv3"];
    let said = refused(open(&images, &LayerOptions::new()));
    for part in [
        "several volumes",
        "vg/lin (ext2/3/4, 4.0 MiB)",
        "vg/str (ext2/3/4, 3.0 MiB)",
        "vg/rone (ext2/3/4, 1.5 MiB)",
        "vg/thin (vg/thin: a logical volume of type thin is not supported",
        "choose one with --volume VG/LV",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = refused(open(&images, &LayerOptions::new().volume("vg/none")));
    assert!(said.starts_with("there is no volume vg/none; there are: vg/"), "{said}");
    let said = refused(open(&images, &LayerOptions::new().volume("vg/thin")));
    assert!(said.contains("type thin is not supported; activate it with"), "{said}");
    // A name without its group suffices.
    assert!(open(&images, &LayerOptions::new().volume("str")).is_ok());
}

#[test]
fn missing_members_are_named() {
    let said = refused(open(&["lvm-pv1", "lvm-pv3"], &LayerOptions::new().volume("vg/str")));
    assert!(
        said.contains("vg/str needs the physical volume ") && said.contains("--member"),
        "{said}"
    );
    let said = refused(open(&["md-five-0", "md-five-2"], &LayerOptions::new()));
    assert!(
        said.contains("needs its members number 1; name its other images with --member"),
        "{said}"
    );
    let said = refused(open(&["md-zero-1"], &LayerOptions::new()));
    assert!(
        said.contains("RAID 0 array any:zero (1 of 2 members) needs its members number 0"),
        "{said}"
    );
}

#[test]
fn wrong_passphrases_and_missing_ones_are_told_apart() {
    use diskwright_layers::Passphrase;
    for image in ["luks-one", "luks-two", "luks-sectors", "nested"] {
        let said = refused(open(&[image], &LayerOptions::new()));
        assert!(said.contains("is encrypted") && said.contains("--key-file FILE"), "{said}");
        let wrong = LayerOptions::new().passphrase(Passphrase::new(b"correct horse\n".to_vec()));
        let said = refused(open(&[image], &wrong));
        assert!(said.contains("no key slot accepts this passphrase"), "{said}");
        assert!(!said.contains("horse") && !format!("{wrong:?}").contains("horse"), "{said}");
    }
}

#[test]
fn images_without_layers_stay_as_they_are() {
    let mut plain = vec![0; 1 << 20];
    plain[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let stack = open_bytes(&plain, &LayerOptions::new()).unwrap();
    assert!(stack.layers.is_empty() && stack.device.len() == 1 << 20);
    let said = refused(open_bytes(&plain, &LayerOptions::new().volume("vg/lv")));
    assert!(said.contains("there is no volume vg/lv"), "{said}");
    // Unknown contents are for the caller.
    assert!(open_bytes(&[7; 4096], &LayerOptions::new()).unwrap().layers.is_empty());
    assert!(open_bytes(&[], &LayerOptions::new()).unwrap().layers.is_empty());
    assert!(device(&bytes("nested")).len() == 12 << 20);
}

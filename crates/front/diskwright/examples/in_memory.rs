//! Makes an image in memory, fills it, and writes it to a file: `cargo run --example in_memory -- disk.img`

use std::error::Error;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use diskwright::fs::{Ext4Options, File, Image, MemoryDevice, SpecialFile};

/// Size of the image in bytes. In memory and on the host it takes space only where it is not empty.
const SIZE: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args_os().nth(1) else {
        return Err("usage: in_memory IMAGE".into());
    };
    let device = make()?;
    let mut file = fs::File::create_new(path)?;
    file.set_len(SIZE)?;
    device.for_each_part(|offset, bytes| {
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    })?;
    Ok(())
}

/// Makes the image.
pub(crate) fn make() -> Result<Arc<MemoryDevice>, Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let image = Image::format(device.clone(), Ext4Options::new().label("appliance"))?;
    for directory in ["/etc", "/bin", "/dev", "/run", "/var/log"] {
        image.create_dir_all(directory)?;
    }
    image.write("/etc/hostname", "appliance\n")?;
    image.write("/bin/start", "#!/bin/sh\nexec /bin/app\n")?;
    image.set_permissions("/bin/start", 0o755)?;
    image.symlink("../run/app.pid", "/var/app.pid")?;
    image.create_special("/run/control", SpecialFile::Fifo, 0o600)?;
    image.set_xattr("/bin/start", "user.origin", "generated")?;
    image.chown("/var/log", Some(1000), Some(1000))?;

    let mut log = File::options().append(true).create(true).open(&image, "/var/log/build")?;
    for part in ["kernel", "shell", "app"] {
        writeln!(log, "{part} added")?;
    }
    drop(log);
    image.close()?;
    Ok(device)
}

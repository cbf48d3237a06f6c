"""Makes the files of one guest. Called by install-guest.

    guest_image.py kernel PACKAGES ROOT FOLDER      kernel, configuration and modules
    guest_image.py finish NAME ROOT FOLDER          initramfs, and the arguments of QEMU

PACKAGES is where the kernel's packages are unpacked, ROOT has the guest's programs, FOLDER is the guest.
"""

import fnmatch
import gzip
import lzma
import os
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path

# Modules that jobs may load, as patterns of paths below kernel/. Their dependencies come with them.
WANTED = [
    "fs/xfs/*", "fs/ext4/*", "fs/9p/*", "fs/nfs/*", "fs/nfs/*/*", "fs/fuse/*", "fs/overlayfs/*", "fs/squashfs/*",
    "fs/erofs/*", "fs/fat/*", "fs/exfat/*", "fs/btrfs/*", "fs/nls/*", "fs/quota/*", "fs/unicode/*",
    "drivers/block/loop.*", "drivers/block/nbd.*", "drivers/block/ublk_drv.*", "drivers/block/virtio_blk.*",
    "drivers/block/brd.*", "drivers/block/null_blk/*", "drivers/scsi/virtio_scsi.*", "drivers/scsi/sd_mod.*",
    "drivers/net/virtio_net.*", "net/9p/9pnet_virtio.*", "net/packet/*", "crypto/*", "arch/x86/crypto/*",
    "lib/crypto/*", "lib/crc/*", "drivers/virtio/*",
    "drivers/md/dm-mod.*", "drivers/md/dm-crypt.*", "drivers/md/dm-flakey.*", "drivers/md/dm-log-writes.*",
    "drivers/md/dm-snapshot.*", "drivers/md/dm-delay.*", "drivers/md/dm-zero.*", "drivers/md/dm-verity.*",
    "drivers/md/dm-integrity.*", "drivers/md/dm-zoned.*", "drivers/md/dm-thin-pool.*", "drivers/md/md-mod.*",
    "drivers/md/raid*", "security/keys/*",
]
# Modules that the initramfs loads to reach the shares of the host.
BOOT = ["virtio", "virtio_ring", "virtio_pci", "virtio_mmio", "virtio_console", "9pnet_virtio", "9p"]


def vmlinux(image: bytes) -> bytes:
    """Returns the uncompressed kernel in a bzImage (Documentation/arch/x86/boot.rst)."""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        # The size follows the compressed kernel.
        return subprocess.run(["zstd", "-dcq"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return gzip.decompress(payload[:-4])
    if payload.startswith(b"\x7fELF"):
        return payload
    raise SystemExit(f"install-guest: unknown compression of the kernel: {payload[:6].hex()}")


def decompressed(path: Path) -> bytes:
    """Returns the bytes of a module."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return data


def module_name(path: str) -> str:
    """Returns a module's name: without folder and endings, with underscores."""
    return path.rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_")


def depmod(root: Path, base: Path, release: str) -> None:
    """Writes the indexes of the modules in `base`/lib/modules with the guest's own depmod."""
    loader = next(root.glob("usr/lib*/ld-linux*.so.*"))
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    command = [loader, "--library-path", libraries, "--argv0", "depmod", root / "usr/bin/kmod", "-b", base, release]
    subprocess.run([str(word) for word in command], check=True)


def dependencies(index: Path) -> dict[str, list[str]]:
    """Returns the modules that each module needs, all by path, as modules.dep lists them."""
    needs = {}
    for line in index.read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    return needs


def strip(modules: list[Path]) -> None:
    """Removes debugging data, signatures, and the tables of ftrace.

    Loading XFS takes 17 s with them on a busy machine, and 1.5 s without.
    """
    sections = [".BTF", ".BTF.base", "__mcount_loc", "__patchable_function_entries", "_ftrace_eval_map", "_ftrace_events"]
    remove = [f"--remove-section={name}" for name in sections]
    subprocess.run(["strip", "--strip-debug", *remove, *map(str, modules)], check=True)


def install_modules(source: Path, root: Path, folder: Path, release: str) -> None:
    """Copies the wanted modules and all that they need, decompressed."""
    tree = folder / "tree/lib/modules"
    tree.mkdir(parents=True)
    (tree / release).symlink_to(source)
    depmod(root, folder / "tree", release)
    needs = dependencies(source / "modules.dep")
    wanted = {
        path for path in needs
        if any(fnmatch.fnmatch(path, f"kernel/{pattern}") for pattern in WANTED)
        or module_name(path) in BOOT
    }
    for path in list(wanted):
        wanted.update(needs[path])
    (tree / release).unlink()
    target = tree / release
    for path in sorted(wanted):
        copy = target / (path.split(".ko")[0] + ".ko")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(decompressed(source / path))
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    strip(list(target.rglob("*.ko")))
    depmod(root, folder / "tree", release)
    (folder / "tree/lib/modules").rename(folder / "modules")
    shutil.rmtree(folder / "tree")


class Archive:
    """A cpio archive in the format "newc"."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.number = 0

    def add(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        """Appends one entry."""
        self.number += 1
        fields = [self.number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
        self.data += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.pad()
        self.data += content
        self.pad()

    def pad(self) -> None:
        """Pads to a multiple of four bytes."""
        self.data += bytes(-len(self.data) % 4)

    def finish(self) -> bytes:
        """Appends the trailer and returns all of it."""
        self.add("TRAILER!!!", 0)
        return bytes(self.data)


def initramfs(name: str, root: Path, modules: Path, needs: dict[str, list[str]]) -> bytes:
    """Returns the archive that the guest starts from: busybox, init, and the modules that reach the shares."""
    load: list[str] = []
    for wanted in BOOT:
        for path in (path for path in needs if module_name(path) == wanted):
            # modules.dep lists first the module that has to be loaded last.
            for part in [*reversed(needs[path]), path]:
                if part not in load:
                    load.append(part)
    archive = Archive()
    for folder in ("bin", "sbin", "boot", "dev"):
        archive.add(folder, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", stat.S_IFREG | 0o755, (root / "usr/bin/busybox").read_bytes())
    archive.add("bin/sh", stat.S_IFLNK | 0o777, b"busybox")
    archive.add("sbin/modprobe", stat.S_IFLNK | 0o777, b"/usr/sbin/modprobe")
    archive.add("init", stat.S_IFREG | 0o755, (Path(__file__).parent / "guest-files/init").read_bytes())
    archive.add("sbin/network", stat.S_IFREG | 0o755, (Path(__file__).parent / "guest-files/network").read_bytes())
    archive.add("guest-name", stat.S_IFREG | 0o644, name.encode())
    for path in load:
        archive.add(f"boot/{os.path.basename(path)}", stat.S_IFREG | 0o644, (modules / path).read_bytes())
    archive.add("boot-modules", stat.S_IFREG | 0o644, "\n".join(os.path.basename(path) for path in load).encode())
    return archive.finish()


# Quick under emulation: no five-level page tables, no guards of user memory, no self-tests. A busy host stops the guest
# for any time, so the kernel does not watch for stalls: their messages would look like complaints about an image.
CPU = "max,-la57,-smap,-smep"
APPEND = (
    "console=ttyS0 quiet panic=1 mitigations=off nokaslr no5lvl rodata=off init_on_alloc=0 lsm= audit=0 "
    "cryptomgr.notests tsc=unstable no_timer_check random.trust_cpu=on "
    "nowatchdog rcupdate.rcu_cpu_stall_suppress=1 sysctl.kernel.hung_task_timeout_secs=0"
)


def arguments(name: str, root: Path) -> list[str]:
    """Returns the command that starts the guest. @GUEST@ stands for the folder of all guests.

    The caller adds the memory (-m), the console (-serial), the port "jobs" (a chardev of that name), the share
    "jobs" (an fsdev of that name), and images.
    """
    [loader, *_] = root.glob("usr/lib*/ld-linux*.so.*")
    [libraries, *_] = root.glob("usr/lib/*-linux-gnu")
    here = "@GUEST@/root"
    return [
        f"{here}/{loader.relative_to(root)}",
        "--library-path", f"{here}/{libraries.relative_to(root)}",
        f"{here}/usr/bin/qemu-system-x86_64",
        "-L", f"{here}/usr/share/qemu", "-L", f"{here}/usr/share/seabios",
        "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
        "-machine", "q35", "-accel", "tcg", "-cpu", CPU, "-smp", "1",
        "-kernel", f"@GUEST@/{name}/vmlinux", "-initrd", f"@GUEST@/{name}/initramfs", "-append", APPEND,
        "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=jobs,name=jobs",
        "-fsdev", "local,id=guest,path=@GUEST@,readonly=on,security_model=none",
        "-device", "virtio-9p-pci,fsdev=guest,mount_tag=guest",
        "-device", "virtio-9p-pci,fsdev=jobs,mount_tag=jobs",
        "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
    ]


def make_kernel(packages: Path, root: Path, folder: Path) -> None:
    """Makes a folder with kernel, configuration and modules."""
    [source, *_] = [*packages.glob("usr/lib/modules/*"), *packages.glob("lib/modules/*")]
    release = source.name
    [image, *_] = [*source.glob("vmlinuz*"), *packages.glob("boot/vmlinuz*")]
    [config, *_] = [*source.glob("config*"), *packages.glob("boot/config*")]
    folder.mkdir(parents=True)
    (folder / "vmlinux").write_bytes(vmlinux(image.read_bytes()))
    shutil.copy(config, folder / "config")
    (folder / "release").write_text(release + "\n")
    install_modules(source.resolve(), root.resolve(), folder, release)


def finish(name: str, root: Path, folder: Path) -> None:
    """Adds initramfs and arguments to a guest."""
    modules = folder / "modules" / (folder / "release").read_text().strip()
    needs = dependencies(modules / "modules.dep")
    for file, content in [
        ("initramfs", initramfs(name, root, modules, needs)),
        ("arguments", "".join(f"{line}\n" for line in arguments(name, root)).encode()),
    ]:
        # Replaced in one step: a test may start the guest during the change.
        part = folder / f"{file}.part"
        part.write_bytes(content)
        part.rename(folder / file)


if sys.argv[1] == "kernel":
    make_kernel(*map(Path, sys.argv[2:5]))
else:
    finish(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))

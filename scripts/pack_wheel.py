"""pack_wheel.py LIBRARY DIRECTORY: packs a wheel of the Python package with an extension that cargo has built.

For tests that are to be quick: what is released is built by maturin, which scripts/build-wheels runs. Prints its path.
"""

import base64
import hashlib
import pathlib
import sys
import tomllib
import zipfile

library, into = map(pathlib.Path, sys.argv[1:])
root = pathlib.Path(__file__).parents[1]
project = tomllib.loads((root / "python/pyproject.toml").read_text())["project"]
version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
name = project["name"]
info = f"{name}-{version}.dist-info"

files = {
    f"{name}/{path.name}": path.read_bytes()
    for path in (root / "python/src" / name).iterdir()
    if path.suffix in (".py", ".pyi") or path.name == "py.typed"
}
files[f"{name}/_diskwright.abi3.so"] = library.read_bytes()
metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {project['requires-python']}\n"
files[f"{info}/METADATA"] = metadata.encode()
tag = "cp311-abi3-linux_x86_64"
files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: pack_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
groups = (
    f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
    for group, entries in project["entry-points"].items()
)
files[f"{info}/entry_points.txt"] = "\n".join(groups).encode()


def digest(contents: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()


record = "".join(f"{path},sha256={digest(contents)},{len(contents)}\n" for path, contents in files.items())
files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
into.mkdir(parents=True, exist_ok=True)
wheel = into / f"{name}-{version}-{tag}.whl"
with zipfile.ZipFile(wheel, "w") as archive:
    for path, contents in files.items():
        archive.writestr(path, contents)
print(wheel)

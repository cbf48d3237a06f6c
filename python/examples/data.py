"""Reads from and writes to an image with pandas, pyarrow and zarr through fsspec URLs.

    python data.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import fsspec.implementations.asyn_wrapper
import numpy
import pandas
import pyarrow.dataset
import pyarrow.fs
import zarr.storage

import diskwright


def data(where: Path) -> None:
    path = where / "data.img"
    diskwright.create(path, 256 << 20, label="data").close()

    # pandas accepts URLs.
    table = pandas.DataFrame({"city": ["Bern", "Wien", "Ulm"], "people": [134_000, 1_980_000, 126_000]})
    table.to_csv(f"ext4://tables/cities.csv::{path}", index=False)
    table.to_parquet(f"ext4://tables/cities.parquet::{path}")
    assert pandas.read_csv(f"ext4://tables/cities.csv::{path}").equals(table)
    assert pandas.read_parquet(f"ext4://tables/cities.parquet::{path}").equals(table)

    # pyarrow accepts a file system.
    fs = fsspec.filesystem("ext4", fo=str(path))
    dataset = pyarrow.dataset.dataset(
        "tables/cities.parquet", format="parquet", filesystem=pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    )
    assert dataset.to_table().num_rows == 3

    # zarr accepts a store. The image is open for changes until the store is closed.
    writable = fsspec.filesystem("ext4", fo=str(path), writable=True)
    fs.close()
    store = zarr.storage.FsspecStore(
        fsspec.implementations.asyn_wrapper.AsyncFileSystemWrapper(writable, asynchronous=True), path="cube.zarr"
    )
    cube = zarr.create_array(store, shape=(100, 100), chunks=(10, 10), dtype="f4")
    values = numpy.arange(10_000, dtype="f4").reshape(100, 100)
    cube[:] = values
    assert numpy.array_equal(numpy.asarray(zarr.open_array(store, mode="r")[:]), values)
    writable.close()

    assert diskwright.check(path)
    print("pandas, pyarrow and zarr read what they wrote")


if __name__ == "__main__":
    data(Path(sys.argv[1]))

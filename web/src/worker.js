// The engine in a worker, where it can block on reads.

import { Disk, Image, initSync } from 'engine';
import { addressDevice, fileDevice } from './devices.js';

let disk = null;
let image = null;
let place = '{}';
let device = null;
/** Archives that are being written, by number. */
const archives = new Map();
/** Milliseconds of work so far, without the time of reading. */
const spent = { total: 0, reading: 0 };

async function unpack(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

function closeAll() {
  for (const archive of archives.values()) archive.free();
  archives.clear();
  image?.free();
  disk?.free();
  [image, disk, device] = [null, null, null];
}

/** Measures the time of reading separately from that of the engine. */
function timed(inner) {
  return {
    size: inner.size,
    readAt(offset, buffer) {
      const start = performance.now();
      try {
        return inner.readAt(offset, buffer);
      } finally {
        spent.reading += performance.now() - start;
      }
    },
  };
}

const methods = {
  async start({ wasm }) {
    const start = performance.now();
    initSync({ module: new WebAssembly.Module(await unpack(wasm)) });
    return { ms: performance.now() - start, hasMap: 'map' in Image.prototype };
  },

  async openFile({ file }) {
    closeAll();
    device = fileDevice(file);
    disk = new Disk(timed(device));
    return JSON.parse(disk.layout());
  },

  async openAddress({ url }) {
    closeAll();
    device = await addressDevice(url);
    disk = new Disk(timed(device));
    return JSON.parse(disk.layout());
  },

  /** Opens a file system of the disk. */
  openImage({ partition, norecovery }) {
    image?.free();
    image = null;
    place = JSON.stringify({ partition });
    image = disk.open(JSON.stringify({ partition, norecovery }));
    return JSON.parse(image.info());
  },

  list: ({ path }) => JSON.parse(image.list(path)),
  details: ({ path }) => JSON.parse(image.details(path)),
  stat: ({ path }) => JSON.parse(image.stat(path, true)),
  read: ({ path, offset, length }) => image.read(path, offset, length),
  check: (_, progress) => JSON.parse(disk.check(place, (phase, done, total) => progress({ phase, done, total }))),
  map: ({ title, cells }) => image.map(title, cells),

  tarOpen({ id, path }) {
    archives.set(id, image.tar(path));
  },
  tarNext({ id }) {
    const archive = archives.get(id);
    const bytes = archive.next();
    if (bytes.length > 0) return { bytes, files: archive.files };
    const remarks = JSON.parse(archive.remarks());
    methods.tarEnd({ id });
    return { bytes, files: 0, remarks };
  },
  tarEnd({ id }) {
    archives.get(id)?.free();
    archives.delete(id);
  },

  figures: () => ({ ...spent, requests: device?.requests, bytes: device?.bytes }),
};

/** Converts an exception to an object that can be posted. */
function plain(error) {
  const { code, structure, group, block, inode, expected, found } = error;
  const isFault = error instanceof WebAssembly.RuntimeError || code === 'EFAULT';
  const message = isFault ? `${error.message}. Nothing more can be asked: open the image again` : error.message;
  const cause = error.cause instanceof Error ? error.cause.message : undefined;
  return { message, code, structure, group, block, inode, expected, found, cause };
}

self.onmessage = async ({ data: { id, method, args } }) => {
  const start = performance.now();
  try {
    const progress = (told) => { self.postMessage({ id, progress: told }); };
    const answer = await methods[method](args, progress);
    const bytes = answer instanceof Uint8Array ? answer : answer?.bytes;
    spent.total += performance.now() - start;
    self.postMessage({ id, answer }, bytes instanceof Uint8Array ? [bytes.buffer] : []);
  } catch (error) {
    spent.total += performance.now() - start;
    self.postMessage({ id, error: plain(error) });
  }
};

// The interface of the package, over the module that wasm-bindgen generates (engine/).
'use strict';

const { Disk: EngineDisk } = require('./engine/diskwright_wasm.js');
const { FsNames } = require('./fs.cjs');
const { randomUUID } = require('node:crypto');
const fs = require('node:fs');

const utf8 = new TextEncoder();

/** Read size for files of an image or of the host, in bytes. */
const CHUNK_BYTES = 1 << 20;

/** Maximum size of a write: the data is copied into the module, which has at most 4 GiB of memory. */
const WRITE_BYTES_MAX = 1 << 30;

/** Paths are text, or bytes where names are not UTF-8. */
function bytesOf(path, what = 'path') {
  if (typeof path === 'string') return utf8.encode(path);
  if (path instanceof Uint8Array) return path;
  throw failure('EINVAL', `the ${what} must be a string or a Uint8Array`);
}

function failure(code, message) {
  return Object.assign(new Error(message), { code });
}

/** After a trap the module cannot be used any more. All later calls fail with this error. */
let broken = null;

function call(work) {
  if (broken) throw broken;
  try {
    return work();
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError) && error?.code !== 'EFAULT') throw error;
    broken = failure('EFAULT', `${error.message}. This process must not use diskwright any more; please report it, with ` +
      'the image if you can');
    broken.cause = error;
    throw broken;
  }
}

/** A buffer in memory as a device. */
class MemoryDevice {
  constructor(bytes) {
    this.bytes = bytes;
    this.size = bytes.length;
  }
  readAt(offset, buffer) {
    buffer.set(this.bytes.subarray(offset, offset + buffer.length));
    return buffer.length;
  }
  writeAt(offset, bytes) {
    this.bytes.set(bytes, offset);
    return bytes.length;
  }
  flush() {}
}

/** A file or block device of the host as a device. The caller must close it. */
class FileDevice {
  constructor(path, { writable = false } = {}) {
    this.file = fs.openSync(path, writable ? 'r+' : 'r');
    const stat = fs.fstatSync(this.file);
    this.size = stat.isFile() ? stat.size : sizeByReading(this.file);
    if (!writable) this.writeAt = undefined;
  }
  readAt(offset, buffer) {
    let done = 0;
    while (done < buffer.length) {
      const count = fs.readSync(this.file, buffer, done, buffer.length - done, offset + done);
      if (count === 0) break;
      done += count;
    }
    return done;
  }
  writeAt(offset, bytes) {
    let done = 0;
    while (done < bytes.length) {
      done += fs.writeSync(this.file, bytes, done, bytes.length - done, offset + done);
    }
    return done;
  }
  flush() {
    if (this.writeAt) fs.fsyncSync(this.file);
  }
  close() {
    if (this.file === null) return;
    fs.closeSync(this.file);
    this.file = null;
  }
}

/** Returns the size of a block device, which stat does not report: searches for the last readable byte. */
function sizeByReading(file) {
  const byte = Buffer.alloc(1);
  const isThere = (at) => fs.readSync(file, byte, 0, 1, at) === 1;
  if (!isThere(0)) return 0;
  let low = 0;
  let high = 1;
  while (isThere(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (isThere(middle)) low = middle;
    else high = middle;
  }
  return high;
}

function deviceOf(source) {
  if (source instanceof Uint8Array) return new MemoryDevice(source);
  if (source instanceof ArrayBuffer) return new MemoryDevice(new Uint8Array(source));
  return source;
}

// Some formats do not store every time, and an unreadable inode has no times.
const toDate = (time) => time && new Date(time[0] * 1000 + Math.floor(time[1] / 1e6));
const toNs = (time) => time && BigInt(time[0]) * 1_000_000_000n + BigInt(time[1]);

/** The attributes of a file. `Date` objects are created on access, because most are never used. */
class Stat {
  #times;

  constructor(raw) {
    this.type = raw.type;
    this.ino = raw.ino;
    this.mode = raw.mode;
    this.modeText = raw.modeText;
    this.nlink = raw.nlink;
    this.uid = raw.uid;
    this.gid = raw.gid;
    this.size = raw.size;
    this.blocks = raw.blocks;
    if (raw.rdev) this.rdev = { major: raw.rdev[0], minor: raw.rdev[1] };
    this.#times = raw;
  }
  get atime() {
    return toDate(this.#times.atime);
  }
  get mtime() {
    return toDate(this.#times.mtime);
  }
  get ctime() {
    return toDate(this.#times.ctime);
  }
  get birthtime() {
    return toDate(this.#times.birthtime);
  }
  get atimeNs() {
    return toNs(this.#times.atime);
  }
  get mtimeNs() {
    return toNs(this.#times.mtime);
  }
  get ctimeNs() {
    return toNs(this.#times.ctime);
  }
  get birthtimeNs() {
    return toNs(this.#times.birthtime);
  }
  isFile() {
    return this.type === 'file';
  }
  isDirectory() {
    return this.type === 'directory';
  }
  isSymbolicLink() {
    return this.type === 'symlink';
  }
}

const fromHex = (hex) => new Uint8Array(Buffer.from(hex, 'hex'));

function errorOf(raw) {
  const { message, ...rest } = raw;
  return Object.assign(new Error(message), rest);
}

/** A file in a directory. */
class Entry extends Stat {
  #hex;

  constructor(raw) {
    super(raw);
    this.name = raw.name;
    this.#hex = raw.nameHex;
    if (raw.error) this.error = errorOf(raw.error);
  }
  get nameBytes() {
    return this.#hex ? fromHex(this.#hex) : utf8.encode(this.name);
  }
}

function join(dir, name) {
  const slash = dir.length > 0 && dir[dir.length - 1] === 0x2f ? 0 : 1;
  const path = new Uint8Array(dir.length + slash + name.length);
  path.set(dir);
  if (slash) path[dir.length] = 0x2f;
  path.set(name, dir.length + slash);
  return path;
}

function timePair(time) {
  if (typeof time === 'bigint') {
    const nsec = ((time % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
    return [Number((time - nsec) / 1_000_000_000n), Number(nsec)];
  }
  const ms = time instanceof Date ? time.getTime() : time;
  if (!Number.isFinite(ms)) throw failure('EINVAL', 'a time must be a Date, milliseconds or nanoseconds as a bigint');
  const sec = Math.floor(ms / 1000);
  return [sec, Math.round((ms - sec * 1000) * 1e6) % 1_000_000_000];
}

const newFile = ({ mode, uid = 0, gid = 0 } = {}) => JSON.stringify({ mode, uid, gid });

/** An open image. */
class Image extends FsNames {
  #engine;
  #device;
  #ownsDevice;

  constructor(engine, device, ownsDevice) {
    super();
    this.#engine = engine;
    this.#device = device;
    this.#ownsDevice = ownsDevice;
  }

  get isWritable() {
    return this.#engine.isWritable;
  }

  get bytes() {
    return this.#device instanceof MemoryDevice ? this.#device.bytes : undefined;
  }

  info() {
    return JSON.parse(call(() => this.#engine.info()));
  }

  map({ title = '', cells = 4096 } = {}) {
    return call(() => this.#engine.map(title, cells));
  }

  list(path = '/') {
    const raw = JSON.parse(call(() => this.#engine.list(bytesOf(path))));
    const entries = raw.entries.map((entry) => new Entry(entry));
    if (raw.error) throw Object.assign(errorOf(raw.error), { entries });
    return entries;
  }

  stat(path) {
    return new Stat(JSON.parse(call(() => this.#engine.stat(bytesOf(path), true))));
  }

  lstat(path) {
    return new Stat(JSON.parse(call(() => this.#engine.stat(bytesOf(path), false))));
  }

  exists(path) {
    try {
      this.stat(path);
      return true;
    } catch (error) {
      if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(error.code)) return false;
      throw error;
    }
  }

  readlink(path) {
    return this.readlinkBytes(path).toString();
  }

  readlinkBytes(path) {
    return Buffer.from(call(() => this.#engine.readlink(bytesOf(path))));
  }

  read(path, { offset = 0, length = Infinity } = {}) {
    const name = bytesOf(path);
    const rest = this.stat(name).size - offset;
    const wanted = Math.max(0, Math.min(length, rest));
    if (wanted <= CHUNK_BYTES * 16) return Buffer.from(call(() => this.#engine.read(name, offset, wanted)).buffer);
    const whole = Buffer.alloc(wanted);
    let done = 0;
    while (done < wanted) {
      const piece = call(() => this.#engine.read(name, offset + done, Math.min(wanted - done, CHUNK_BYTES * 4)));
      if (piece.length === 0) break;
      whole.set(piece, done);
      done += piece.length;
    }
    return whole.subarray(0, done);
  }

  readText(path) {
    return this.read(path).toString('utf8');
  }

  *chunks(path, { chunkSize = CHUNK_BYTES } = {}) {
    const name = bytesOf(path);
    for (let offset = 0; ; ) {
      const piece = call(() => this.#engine.read(name, offset, chunkSize));
      if (piece.length > 0) yield Buffer.from(piece.buffer);
      if (piece.length < chunkSize) return;
      offset += piece.length;
    }
  }

  *walk(path = '/') {
    const top = bytesOf(path);
    const seen = new Set([this.stat(top).ino]);
    const levels = [this.#level(top)];
    while (levels.length > 0) {
      const level = levels[levels.length - 1];
      const entry = level.entries[level.next++];
      if (entry === undefined) {
        levels.pop();
        if (level.error) throw level.error;
        continue;
      }
      const pathBytes = join(level.path, entry.nameBytes);
      const walked = { path: Buffer.from(pathBytes).toString(), pathBytes, entry, skip: false };
      yield walked;
      // Only a damaged image contains a directory twice. A directory that contains itself would never end.
      if (!entry.isDirectory() || walked.skip || seen.has(entry.ino)) continue;
      seen.add(entry.ino);
      levels.push(this.#level(pathBytes));
    }
  }

  #level(path) {
    const raw = JSON.parse(call(() => this.#engine.list(path)));
    const entries = raw.entries.map((entry) => new Entry(entry));
    return { path, entries, next: 0, error: raw.error && errorOf(raw.error) };
  }

  *tar(path = '/', { keepGoing = false, onRemark } = {}) {
    const stream = call(() => this.#engine.tar(bytesOf(path)));
    try {
      for (let told = 0; ; ) {
        const piece = call(() => stream.next());
        const remarks = JSON.parse(call(() => stream.remarks())).slice(told);
        told += remarks.length;
        for (const remark of remarks.map(errorOf)) {
          if (!keepGoing) throw remark;
          onRemark?.(remark);
        }
        if (piece.length === 0) return;
        yield Buffer.from(piece.buffer);
      }
    } finally {
      stream.free();
    }
  }

  listXattrs(path) {
    const { xattrs } = JSON.parse(call(() => this.#engine.details(bytesOf(path))));
    return xattrs.map(([name]) => name);
  }

  getXattr(path, name) {
    return Buffer.from(call(() => this.#engine.getXattr(bytesOf(path), bytesOf(name, 'name'))));
  }

  setXattr(path, name, value) {
    call(() => this.#engine.setXattr(bytesOf(path), bytesOf(name, 'name'), bytesOf(value, 'value')));
  }

  removeXattr(path, name) {
    call(() => this.#engine.setXattr(bytesOf(path), bytesOf(name, 'name'), undefined));
  }

  writeFile(path, contents, options) {
    if (contents.length > WRITE_BYTES_MAX) {
      throw failure('ENOMEM', `${contents.length} bytes are too many at once: make the file, and write it in pieces`);
    }
    call(() => this.#engine.writeFile(bytesOf(path), bytesOf(contents, 'contents'), newFile(options)));
  }

  write(path, offset, bytes) {
    call(() => this.#engine.write(bytesOf(path), offset, bytesOf(bytes, 'contents')));
  }

  truncate(path, size = 0) {
    call(() => this.#engine.truncate(bytesOf(path), size));
  }

  mkdir(path, { recursive = false, ...options } = {}) {
    call(() => this.#engine.mkdir(bytesOf(path), recursive, newFile(options)));
  }

  rm(path, { recursive = false, force = false } = {}) {
    try {
      call(() => this.#engine.remove(bytesOf(path), recursive));
    } catch (error) {
      if (!force || error.code !== 'ENOENT') throw error;
    }
  }

  rename(from, to) {
    call(() => this.#engine.rename(bytesOf(from), bytesOf(to)));
  }

  symlink(target, path, options) {
    call(() => this.#engine.symlink(bytesOf(target, 'target'), bytesOf(path), newFile(options)));
  }

  link(existing, path) {
    call(() => this.#engine.link(bytesOf(existing), bytesOf(path)));
  }

  chmod(path, mode) {
    this.#set(path, { mode });
  }

  chown(path, uid, gid) {
    this.#set(path, { uid, gid });
  }

  lchown(path, uid, gid) {
    this.#set(path, { uid, gid, nofollow: true });
  }

  utimes(path, atime, mtime) {
    this.#set(path, { atime: timePair(atime), mtime: timePair(mtime) });
  }

  lutimes(path, atime, mtime) {
    this.#set(path, { atime: timePair(atime), mtime: timePair(mtime), nofollow: true });
  }

  #set(path, change) {
    call(() => this.#engine.setAttributes(bytesOf(path), JSON.stringify(change)));
  }

  sync() {
    call(() => this.#engine.sync());
  }

  close() {
    try {
      call(() => this.#engine.close());
    } finally {
      if (this.#ownsDevice) this.#device.close();
    }
  }
}

function withDisk(source, options, work) {
  const isPath = typeof source === 'string';
  const device = isPath ? new FileDevice(source, options) : deviceOf(source);
  try {
    const disk = call(() => new EngineDisk(device));
    try {
      return work(disk, device, isPath);
    } finally {
      disk.free();
    }
  } catch (error) {
    if (isPath) device.close();
    throw error;
  }
}

function open(source, { partition, offset, writable = false, norecovery = false, cacheBytes } = {}) {
  return withDisk(source, { writable }, (disk, device, isPath) => {
    const options = JSON.stringify({ partition, offset, writable, norecovery, cacheBytes });
    return new Image(call(() => disk.open(options)), device, isPath);
  });
}

function format(options) {
  const { fs: kind, size, label = '', uuid = randomUUID(), blockSize, features = '', small = false } = options;
  const device = options.device ?? undefined;
  if (device === undefined && !(Number.isSafeInteger(size) && size > 0)) {
    throw failure('EINVAL', `size is ${size}: give the size of the image in bytes, or a device`);
  }
  const target = device === undefined ? new MemoryDevice(Buffer.alloc(size)) : deviceOf(device);
  return withDisk(target, { writable: true }, (disk, made, isPath) => {
    const isBlank = device === undefined;
    call(() => disk.format(JSON.stringify({ fs: kind, label, uuid, blockSize, features, isBlank, small })));
    return new Image(call(() => disk.open('{"writable":true}')), made, isPath);
  });
}

function closing(source, device, isPath, work) {
  try {
    return work();
  } finally {
    if (isPath) device.close();
  }
}

function check(source, { partition, offset, onProgress } = {}) {
  return withDisk(source, {}, (disk, device, isPath) =>
    closing(source, device, isPath, () =>
      JSON.parse(call(() => disk.check(JSON.stringify({ partition, offset }), onProgress)))));
}

function layout(source) {
  return withDisk(source, {}, (disk, device, isPath) =>
    closing(source, device, isPath, () => JSON.parse(call(() => disk.layout()))));
}

exports.open = open;
exports.format = format;
exports.check = check;
exports.layout = layout;
exports.Image = Image;
exports.Stat = Stat;
exports.Entry = Entry;
exports.FileDevice = FileDevice;
exports.MemoryDevice = MemoryDevice;

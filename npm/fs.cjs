// The interface of Node's module fs for an image: methods that end in Sync, and promises.
'use strict';

const { constants: { errno: ERRNO } } = require('node:os');
const { constants } = require('node:fs');

const SYMLINKS_MAX = 40;

/** The type of a file, as Stats and Dirent of fs report it. */
class Typed {
  #type;

  constructor(type) {
    this.#type = type;
  }
  isFile() {
    return this.#type === 'file';
  }
  isDirectory() {
    return this.#type === 'directory';
  }
  isSymbolicLink() {
    return this.#type === 'symlink';
  }
  isBlockDevice() {
    return this.#type === 'block-device';
  }
  isCharacterDevice() {
    return this.#type === 'char-device';
  }
  isFIFO() {
    return this.#type === 'fifo';
  }
  isSocket() {
    return this.#type === 'socket';
  }
}

// The encoding of glibc's makedev.
function deviceNumber({ major, minor } = { major: 0, minor: 0 }) {
  const number = (BigInt(major & 0xfffff000) << 32n) | (BigInt(major & 0xfff) << 8n) |
    (BigInt(minor & 0xffffff00) << 12n) | BigInt(minor & 0xff);
  return BigInt.asUintN(64, number);
}

/** The attributes of a file with the fields of fs.Stats, or of fs.BigIntStats. */
class Stats extends Typed {
  constructor(stat, bigint) {
    super(stat.type);
    const number = bigint ? BigInt : Number;
    this.dev = number(0);
    this.mode = number(stat.mode);
    this.nlink = number(stat.nlink);
    this.uid = number(stat.uid);
    this.gid = number(stat.gid);
    this.rdev = number(deviceNumber(stat.rdev));
    this.blksize = number(4096);
    this.ino = number(stat.ino);
    this.size = number(stat.size);
    this.blocks = number(stat.blocks);
    for (const name of ['atime', 'mtime', 'ctime', 'birthtime']) {
      // The value of fs for a file system that does not store this time.
      const ns = stat[`${name}Ns`] ?? stat.ctimeNs;
      this[`${name}Ms`] = bigint ? ns / 1_000_000n : Number(ns) / 1e6;
      if (bigint) this[`${name}Ns`] = ns;
      this[name] = stat[name] ?? stat.ctime;
    }
  }
}

/** An entry of a directory, as fs.Dirent. */
class Dirent extends Typed {
  constructor(name, parentPath, type) {
    super(type);
    this.name = name;
    this.parentPath = parentPath;
    this.path = parentPath;
  }
}

const textOf = (path) => (typeof path === 'string' ? path : Buffer.from(path).toString());
const bytesOf = (path) => Buffer.from(path);
const encodingOf = (options) => (typeof options === 'string' ? options : options?.encoding);

function decode(bytes, encoding, fallback) {
  const wanted = encoding ?? fallback;
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  return wanted === undefined || wanted === null || wanted === 'buffer' ? buffer : buffer.toString(wanted);
}

function encode(data, options) {
  return typeof data === 'string' ? Buffer.from(data, encodingOf(options) ?? 'utf8') : data;
}

function failure(code, message) {
  return Object.assign(new Error(`${code}: ${message}`), { code });
}

/** Calls a function, and gives its errors the properties of errors of fs. */
function as(syscall, path, work, dest) {
  try {
    return work();
  } catch (error) {
    if (error !== null && typeof error === 'object' && typeof error.code === 'string') {
      error.syscall ??= syscall;
      error.path ??= textOf(path);
      if (dest !== undefined) error.dest ??= textOf(dest);
      if (ERRNO[error.code] !== undefined) error.errno ??= -ERRNO[error.code];
    }
    throw error;
  }
}

// fs interprets numbers, and strings that contain a number, as seconds.
function timeOf(time) {
  if (time instanceof Date || typeof time === 'bigint') return time;
  const seconds = Number(time);
  if (!Number.isFinite(seconds)) throw failure('EINVAL', 'a time must be a Date or a number of seconds');
  return BigInt(Math.round(seconds * 1e6)) * 1000n;
}

function modeOf(mode, fallback) {
  if (mode === undefined || mode === null) return fallback;
  const number = typeof mode === 'string' ? Number.parseInt(mode, 8) : mode;
  if (!Number.isInteger(number) || number < 0) throw failure('EINVAL', `mode is ${mode}: it must be a number from 0 on`);
  return number & 0o7777;
}

/** The methods of fs. A class that extends this one has the methods of index.cjs. */
class FsNames {
  #promises;

  /** The same as fs.promises. The work is done when the method is called. */
  get promises() {
    this.#promises ??= promisesOf(this);
    return this.#promises;
  }

  readFileSync(path, options) {
    return decode(as('open', path, () => this.read(path)), encodingOf(options), null);
  }

  writeFileSync(path, data, options) {
    const bytes = encode(data, options);
    const flag = options?.flag ?? 'w';
    as('open', path, () => {
      if (flag === 'a' || flag === 'as') return this.#append(path, bytes, options);
      if (!['w', 'wx', 'xw'].includes(flag)) throw failure('EINVAL', `flag is ${flag}: it must be w, wx or a`);
      const isThere = this.exists(path);
      if (flag !== 'w' && isThere) throw failure('EEXIST', `${textOf(path)} exists`);
      return this.writeFile(path, bytes, isThere ? {} : { mode: modeOf(options?.mode, 0o644) });
    });
  }

  appendFileSync(path, data, options) {
    as('open', path, () => this.#append(path, encode(data, options), options));
  }

  #append(path, bytes, options) {
    if (this.exists(path)) this.write(path, this.stat(path).size, bytes);
    else this.writeFile(path, bytes, { mode: modeOf(options?.mode, 0o644) });
  }

  readdirSync(path, options) {
    const encoding = encodingOf(options);
    const isDeep = options?.recursive === true;
    const found = [];
    const add = (dir, prefix) => {
      for (const entry of as('scandir', dir, () => this.list(dir))) {
        const name = Buffer.concat([prefix, entry.nameBytes]);
        if (options?.withFileTypes) {
          found.push(new Dirent(decode(entry.nameBytes, encoding, 'utf8'), decode(bytesOf(dir), encoding, 'utf8'), entry.type));
        } else {
          found.push(decode(name, encoding, 'utf8'));
        }
        if (!isDeep || entry.type !== 'directory' || entered.has(entry.ino)) continue;
        // Only a damaged image contains a directory twice.
        entered.add(entry.ino);
        const slash = bytesOf(dir).at(-1) === 0x2f ? '' : '/';
        add(Buffer.concat([bytesOf(dir), Buffer.from(slash), entry.nameBytes]), Buffer.concat([name, Buffer.from('/')]));
      }
    };
    const entered = new Set(isDeep ? [as('scandir', path, () => this.stat(path)).ino] : []);
    add(path, Buffer.alloc(0));
    return found;
  }

  statSync(path, options) {
    return this.#stats('stat', path, options);
  }

  lstatSync(path, options) {
    return this.#stats('lstat', path, options);
  }

  #stats(which, path, options) {
    try {
      return new Stats(as(which, path, () => this[which](path)), options?.bigint === true);
    } catch (error) {
      if (options?.throwIfNoEntry === false && ['ENOENT', 'ENOTDIR'].includes(error.code)) return undefined;
      throw error;
    }
  }

  existsSync(path) {
    try {
      return this.exists(path);
    } catch {
      return false;
    }
  }

  accessSync(path, mode = constants.F_OK) {
    as('access', path, () => {
      const stat = this.stat(path);
      if (mode & constants.W_OK && !this.isWritable) throw failure('EROFS', 'the image was opened for reading');
      // No other permissions are checked, as for root.
      if (mode & constants.X_OK && !stat.isDirectory() && !(stat.mode & 0o111)) {
        throw failure('EACCES', `${textOf(path)} has no permission to be executed`);
      }
    });
  }

  readlinkSync(path, options) {
    return decode(as('readlink', path, () => this.readlinkBytes(path)), encodingOf(options), 'utf8');
  }

  realpathSync(path, options) {
    return decode(as('realpath', path, () => this.#resolve(path)), encodingOf(options), 'utf8');
  }

  #resolve(path) {
    this.stat(path);
    // One character for each byte, because names can be other than UTF-8.
    const split = (bytes) => Buffer.from(bytes).toString('latin1').split('/').filter((name) => name !== '' && name !== '.');
    const ahead = split(bytesOf(path)).reverse();
    const done = [];
    for (let links = 0; ahead.length > 0; ) {
      const name = ahead.pop();
      if (name === '..') {
        done.pop();
        continue;
      }
      const at = Buffer.from(`/${[...done, name].join('/')}`, 'latin1');
      if (!this.lstat(at).isSymbolicLink()) {
        done.push(name);
        continue;
      }
      if (++links > SYMLINKS_MAX) throw failure('ELOOP', 'too many levels of symbolic links');
      const target = this.readlinkBytes(at);
      if (target[0] === 0x2f) done.length = 0;
      ahead.push(...split(target).reverse());
    }
    return Buffer.from(`/${done.join('/')}`, 'latin1');
  }

  mkdirSync(path, options) {
    const { recursive = false, mode } = typeof options === 'object' && options !== null ? options : { mode: options };
    return as('mkdir', path, () => {
      const first = recursive ? this.#firstMissing(path) : undefined;
      if (recursive && first === undefined) {
        if (!this.stat(path).isDirectory()) throw failure('EEXIST', `${textOf(path)} exists and is not a directory`);
        return undefined;
      }
      this.mkdir(path, { recursive, mode: modeOf(mode, 0o755) });
      return first;
    });
  }

  #firstMissing(path) {
    const bytes = bytesOf(path);
    for (let end = 1; end <= bytes.length; end++) {
      if (end < bytes.length && bytes[end] !== 0x2f) continue;
      const part = bytes.subarray(0, end);
      if (!this.exists(part)) return part.toString();
    }
    return undefined;
  }

  rmSync(path, { recursive = false, force = false } = {}) {
    as('rm', path, () => {
      let stat;
      try {
        stat = this.lstat(path);
      } catch (error) {
        if (force && error.code === 'ENOENT') return;
        throw error;
      }
      if (stat.isDirectory() && !recursive) {
        throw failure('ERR_FS_EISDIR', `${textOf(path)} is a directory: recursive: true removes it`);
      }
      this.rm(path, { recursive });
    });
  }

  rmdirSync(path) {
    as('rmdir', path, () => {
      if (!this.lstat(path).isDirectory()) throw failure('ENOTDIR', `${textOf(path)} is not a directory`);
      this.rm(path);
    });
  }

  unlinkSync(path) {
    as('unlink', path, () => {
      if (this.lstat(path).isDirectory()) throw failure('EISDIR', `${textOf(path)} is a directory`);
      this.rm(path);
    });
  }

  renameSync(from, to) {
    as('rename', from, () => this.rename(from, to), to);
  }

  copyFileSync(from, to, mode = 0) {
    as('copyfile', from, () => {
      const stat = this.stat(from);
      if (stat.isDirectory()) throw failure('EISDIR', `${textOf(from)} is a directory`);
      const isThere = this.exists(to);
      if (mode & constants.COPYFILE_EXCL && isThere) throw failure('EEXIST', `${textOf(to)} exists`);
      if (isThere && this.stat(to).ino === stat.ino) return;
      this.writeFile(to, '', isThere ? {} : { mode: stat.mode & 0o7777 });
      let offset = 0;
      for (const piece of this.chunks(from)) {
        this.write(to, offset, piece);
        offset += piece.length;
      }
    }, to);
  }

  symlinkSync(target, path) {
    as('symlink', target, () => this.symlink(target, path), path);
  }

  linkSync(existing, path) {
    as('link', existing, () => this.link(existing, path), path);
  }

  chmodSync(path, mode) {
    as('chmod', path, () => this.chmod(path, modeOf(mode)));
  }

  chownSync(path, uid, gid) {
    as('chown', path, () => this.chown(path, uid, gid));
  }

  lchownSync(path, uid, gid) {
    as('lchown', path, () => this.lchown(path, uid, gid));
  }

  utimesSync(path, atime, mtime) {
    as('utime', path, () => this.utimes(path, timeOf(atime), timeOf(mtime)));
  }

  lutimesSync(path, atime, mtime) {
    as('lutime', path, () => this.lutimes(path, timeOf(atime), timeOf(mtime)));
  }

  truncateSync(path, length = 0) {
    as('open', path, () => this.truncate(path, length));
  }
}

const PROMISED = ['readFile', 'writeFile', 'appendFile', 'readdir', 'stat', 'lstat', 'access', 'readlink', 'realpath',
  'mkdir', 'rm', 'rmdir', 'unlink', 'rename', 'copyFile', 'symlink', 'link', 'chmod', 'chown', 'lchown', 'utimes',
  'lutimes', 'truncate'];

function promisesOf(image) {
  const promises = {};
  for (const name of PROMISED) promises[name] = async (...args) => image[`${name}Sync`](...args);
  return Object.freeze(promises);
}

module.exports = { FsNames };

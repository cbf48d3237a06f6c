// Formatting for display: sizes, times, names.

/** A number of bytes as `12.3 MiB`. */
export function size(bytes) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let power = 0;
  let value = bytes;
  while (value >= 1024 && power + 1 < units.length) {
    value /= 1024;
    power += 1;
  }
  return power === 0 ? `${bytes} ${bytes === 1 ? 'byte' : 'bytes'}` : `${value.toFixed(1)} ${units[power]}`;
}

/** The same in a short form. */
export function shortSize(bytes) {
  return bytes < 1024 ? `${bytes} B` : size(bytes);
}

const pad = (number, digits = 2) => String(number).padStart(digits, '0');

/** A time to the minute, in UTC. */
export function minute([sec]) {
  const date = new Date(sec * 1000);
  if (Number.isNaN(date.getTime())) return `@${sec}`;
  const day = `${date.getUTCFullYear()}-${pad(date.getUTCMonth() + 1)}-${pad(date.getUTCDate())}`;
  return `${day} ${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())}`;
}

/** A time to the nanosecond, in UTC. */
export function exactTime([sec, nsec]) {
  const date = new Date(sec * 1000);
  if (Number.isNaN(date.getTime())) return `@${sec}`;
  return `${minute([sec])}:${pad(date.getUTCSeconds())}.${pad(nsec, 9)} UTC`;
}

// Control characters and characters that reorder or hide text, because a name must not deceive the reader.
const DECEPTIVE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A name with such characters escaped. */
export function visible(name) {
  return name.replace(DECEPTIVE, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** A count with its noun. */
export function count(number, noun) {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}

const utf8 = new TextEncoder();

/** The bytes of an entry's name, which need not be UTF-8. */
export function nameBytes(entry) {
  if (!entry.nameHex) return utf8.encode(entry.name);
  return Uint8Array.from(entry.nameHex.match(/../g), (digits) => parseInt(digits, 16));
}

/** The path of a file in a directory. */
export function join(dir, name) {
  const slash = dir.length > 0 && dir[dir.length - 1] === 0x2f ? 0 : 1;
  const path = new Uint8Array(dir.length + slash + name.length);
  path.set(dir);
  if (slash) path[dir.length] = 0x2f;
  path.set(name, dir.length + slash);
  return path;
}

/** A path with such characters escaped. */
export function pathText(path) {
  return visible(new TextDecoder().decode(path));
}

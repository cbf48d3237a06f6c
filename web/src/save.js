// Downloads: a file, or a directory as a tar archive, piece by piece.

import { el } from './dom.js';

/** Longer downloads are written to disk as they arrive, if the browser supports it. */
const STREAM_BYTES = 256 * 1024 * 1024;
/** Size of the pieces that are combined into one blob, which the browser can store on disk. */
const BLOB_BYTES = 32 * 1024 * 1024;

/** Replaces characters that hosts do not support in names. */
export function fileName(name) {
  const safe = name.replace(/[\u0000-\u001f\u007f<>:"/\\|?*]/g, '_').replace(/[. ]+$/, '');
  return safe || 'file';
}

class Collected {
  constructor(name) {
    this.name = name;
    this.blobs = [];
    this.pieces = [];
    this.length = 0;
  }
  async write(bytes) {
    this.pieces.push(bytes);
    this.length += bytes.length;
    if (this.length >= BLOB_BYTES) this.#gather();
  }
  #gather() {
    this.blobs.push(new Blob(this.pieces));
    this.pieces = [];
    this.length = 0;
  }
  async close() {
    this.#gather();
    const url = URL.createObjectURL(new Blob(this.blobs, { type: 'application/octet-stream' }));
    const link = el('a', { href: url, download: this.name });
    document.body.append(link);
    link.click();
    link.remove();
    // The download has started by then, and keeps its own reference.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
  async abort() {}
}

/** Destination of the pieces, or `null` if the user cancelled the dialog. */
async function target(name, size) {
  const isLarge = size === undefined || size > STREAM_BYTES;
  if (!isLarge || !window.showSaveFilePicker) return new Collected(name);
  try {
    const handle = await window.showSaveFilePicker({ suggestedName: name });
    return await handle.createWritable();
  } catch (error) {
    if (error.name === 'AbortError') return null;
    // The function exists but is forbidden, for example in frames.
    return new Collected(name);
  }
}

/** Saves the pieces that `next` returns, until it returns nothing. Returns false if the user cancelled. */
export async function save(name, size, next) {
  const out = await target(fileName(name), size);
  if (!out) return false;
  try {
    for (;;) {
      const bytes = await next();
      if (bytes.length === 0) break;
      await out.write(bytes);
    }
  } catch (error) {
    await out.abort();
    throw error;
  }
  await out.close();
  return true;
}

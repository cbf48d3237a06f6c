// Downloads: a file, or a directory as a tar archive, piece by piece.

import { el } from './dom.js';

/** What is longer goes to the disk as it comes, where the browser can do that. */
const STREAM_BYTES = 256 * 1024 * 1024;
/** Pieces that are put together into one blob, so that the browser may take it to its disk. */
const BLOB_BYTES = 32 * 1024 * 1024;

/** Names that hosts cannot have, without what they cannot have in them. */
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
    // The download has begun by then, and keeps what it needs.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
  async abort() {}
}

/** Where the pieces go. `null` if who was asked wants none of it. */
async function target(name, size) {
  const isLarge = size === undefined || size > STREAM_BYTES;
  if (!isLarge || !window.showSaveFilePicker) return new Collected(name);
  try {
    const handle = await window.showSaveFilePicker({ suggestedName: name });
    return await handle.createWritable();
  } catch (error) {
    if (error.name === 'AbortError') return null;
    // Where it is there and forbidden, as in frames.
    return new Collected(name);
  }
}

/** Saves what `next` gives, until it gives nothing. False if who was asked wants none of it. */
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

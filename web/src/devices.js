// Where an image is read from, in the worker: a file that was chosen, or an address. Both are synchronous, because the
// engine is, and both keep the pieces that were read last.

const CHUNK_BYTES = 128 * 1024;
/** Pieces that are kept: 32 MiB. */
const CHUNKS_MAX = 256;
/** What is longer is read at once, and not kept. */
const DIRECT_BYTES = 512 * 1024;

/** Keeps pieces of what `fetch(offset, length)` reads. */
export class Cached {
  constructor(size, fetch) {
    this.size = size;
    this.fetch = fetch;
    /** The piece used last comes last. */
    this.chunks = new Map();
    this.requests = 0;
    this.bytes = 0;
  }

  readAt(offset, buffer) {
    const length = buffer.length;
    if (length >= DIRECT_BYTES) {
      buffer.set(this.#get(offset, length));
      return length;
    }
    let done = 0;
    while (done < length) {
      const at = offset + done;
      const number = Math.floor(at / CHUNK_BYTES);
      const chunk = this.#chunk(number);
      const start = at - number * CHUNK_BYTES;
      const part = chunk.subarray(start, Math.min(chunk.length, start + length - done));
      if (part.length === 0) break;
      buffer.set(part, done);
      done += part.length;
    }
    return done;
  }

  #chunk(number) {
    let chunk = this.chunks.get(number);
    if (chunk) {
      this.chunks.delete(number);
    } else {
      const offset = number * CHUNK_BYTES;
      chunk = this.#get(offset, Math.min(CHUNK_BYTES, this.size - offset));
      if (this.chunks.size >= CHUNKS_MAX) this.chunks.delete(this.chunks.keys().next().value);
    }
    this.chunks.set(number, chunk);
    return chunk;
  }

  #get(offset, length) {
    const bytes = this.fetch(offset, length);
    if (bytes.length !== length) {
      throw new Error(`${bytes.length} of ${length} bytes came at ${offset}: it became shorter, or was cut off`);
    }
    this.requests += 1;
    this.bytes += length;
    return bytes;
  }
}

/** A file of the host's. */
export function fileDevice(file) {
  const reader = new FileReaderSync();
  return new Cached(file.size, (offset, length) => {
    try {
      return new Uint8Array(reader.readAsArrayBuffer(file.slice(offset, offset + length)));
    } catch (error) {
      const why = error.name === 'NotReadableError' ? 'it was changed or moved since it was chosen; choose it again'
        : error.message;
      throw new Error(`${file.name} cannot be read: ${why}`);
    }
  });
}

const HELP = 'the server must allow range requests and, for another origin, cross-origin ones (CORS)';

/** The first and last byte and the whole length that an answer tells. */
function rangeOf(header) {
  const match = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(header ?? '');
  return match && { first: Number(match[1]), last: Number(match[2]), size: Number(match[3]) };
}

/** What tells that the file at an address is the same as before. */
function versionOf(get) {
  return { etag: get('etag'), modified: get('last-modified') };
}

function checkVersion(first, now) {
  for (const name of ['etag', 'modified', 'size']) {
    if (first[name] && now[name] && first[name] !== now[name]) {
      throw new Error(`the file at this address changed while it was read (${name} was ${first[name]}, ` +
        `is ${now[name]}): open it again`);
    }
  }
}

/** Asks for the first bytes, and looks at nothing but the headers if the server would send all of it. */
async function probe(url) {
  const stop = new AbortController();
  let answer;
  try {
    answer = await fetch(url, { headers: { Range: 'bytes=0-0' }, signal: stop.signal, cache: 'no-store' });
  } catch (error) {
    throw new Error(`${url} cannot be fetched (${error.message}): ${HELP}`);
  }
  const get = (name) => answer.headers.get(name);
  if (answer.status === 200) {
    stop.abort();
    throw new Error(`${url}: the server has no range requests, and would send all of it: download it and open the file`);
  }
  if (answer.status !== 206) {
    stop.abort();
    throw new Error(`${url}: the server answered ${answer.status} ${answer.statusText}`);
  }
  await answer.arrayBuffer();
  const range = rangeOf(get('content-range'));
  return { size: range ? range.size : await lengthOf(url), ...versionOf(get) };
}

/** Servers of other origins may hide Content-Range, but not how long it is as a whole. */
async function lengthOf(url) {
  const answer = await fetch(url, { method: 'HEAD', cache: 'no-store' });
  const length = Number(answer.headers.get('content-length') ?? NaN);
  if (!answer.ok || !Number.isSafeInteger(length)) {
    throw new Error(`${url}: the server does not say how long it is: it must expose Content-Range or answer HEAD`);
  }
  return length;
}

/** A file at an address. */
export async function addressDevice(url) {
  const first = await probe(url);
  let changed = null;
  return new Cached(first.size, (offset, length) => {
    if (changed) throw changed;
    const request = new XMLHttpRequest();
    request.open('GET', url, false);
    request.responseType = 'arraybuffer';
    request.setRequestHeader('Range', `bytes=${offset}-${offset + length - 1}`);
    try {
      request.send();
    } catch (error) {
      throw new Error(`${url} cannot be fetched at ${offset}: ${error.message}`);
    }
    try {
      return rangeAnswer(request, url, first, offset);
    } catch (error) {
      if (error.message.includes('changed')) changed = error;
      throw error;
    }
  });
}

function rangeAnswer(request, url, first, offset) {
  // A header that is not exposed is no error, but a line in the console: those that are there are looked at.
  const all = request.getAllResponseHeaders().toLowerCase();
  const get = (name) => (all.includes(`${name}:`) ? request.getResponseHeader(name) : null);
  const range = rangeOf(get('content-range'));
  checkVersion(first, { ...versionOf(get), size: range?.size });
  if (request.status === 416) {
    throw new Error(`${url}: the file at this address changed: it is shorter now; open it again`);
  }
  if (request.status !== 206) {
    throw new Error(`${url}: the server answered ${request.status} to a range request: ${HELP}`);
  }
  if (range && range.first !== offset) throw new Error(`${url}: the server sent another range than it was asked for`);
  return new Uint8Array(request.response);
}

// Devices of the worker: a chosen file, or an address. Both are synchronous, like the engine, and cache the pieces that
// were read last.

const CHUNK_BYTES = 128 * 1024;
/** Maximum number of cached pieces: 32 MiB. */
const CHUNKS_MAX = 256;
/** Longer reads bypass the cache. */
const DIRECT_BYTES = 512 * 1024;

/** Caches pieces that `fetch(offset, length)` reads. */
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
      throw new Error(`received ${bytes.length} of ${length} bytes at ${offset}: the file was truncated`);
    }
    this.requests += 1;
    this.bytes += length;
    return bytes;
  }
}

/** A file of the host. */
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

/** The first byte, the last byte and the total length in a response. */
function rangeOf(header) {
  const match = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(header ?? '');
  return match && { first: Number(match[1]), last: Number(match[2]), size: Number(match[3]) };
}

/** Headers that identify the version of the file at an address. */
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

/** Requests the first bytes. Reads only the headers if the server sends the whole file. */
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
    throw new Error(`${url}: the server does not support range requests; download the file and open it`);
  }
  if (answer.status !== 206) {
    stop.abort();
    throw new Error(`${url}: the server answered ${answer.status} ${answer.statusText}`);
  }
  await answer.arrayBuffer();
  const range = rangeOf(get('content-range'));
  return { size: range ? range.size : await lengthOf(url), ...versionOf(get) };
}

/** Servers of other origins may hide Content-Range, but not the total length. */
async function lengthOf(url) {
  const answer = await fetch(url, { method: 'HEAD', cache: 'no-store' });
  const length = Number(answer.headers.get('content-length') ?? NaN);
  if (!answer.ok || !Number.isSafeInteger(length)) {
    throw new Error(`${url}: the server does not report the size; it must expose Content-Range or answer HEAD`);
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
  // A header that is not exposed causes a line in the console, but no error. The other headers are compared.
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
  if (range && range.first !== offset) throw new Error(`${url}: the server sent another range than requested`);
  return new Uint8Array(request.response);
}

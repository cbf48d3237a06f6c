// Calls of the worker from the page.

import { WASM_BASE64, WORKER_SOURCE } from 'inlined';

function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** A worker that contains the engine. */
export class Engine {
  #worker;
  #waiting = new Map();
  #next = 0;

  constructor() {
    // A page opened from disk cannot load a worker file, so the worker is embedded in the page.
    const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: 'text/javascript' }));
    this.#worker = new Worker(url);
    URL.revokeObjectURL(url);
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = (event) => this.#fail(new Error(`the worker failed: ${event.message}`));
    const wasm = fromBase64(WASM_BASE64);
    this.ready = this.call('start', { wasm }, undefined, [wasm.buffer]);
    // Callers receive the rejection; without a caller it is ignored.
    this.ready.catch(() => {});
  }

  #receive({ id, answer, error, progress }) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    if (progress) {
      waiting.progress?.(progress);
      return;
    }
    this.#waiting.delete(id);
    if (error) waiting.reject(Object.assign(new Error(error.message), error));
    else waiting.resolve(answer);
  }

  #fail(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  call(method, args = {}, progress = undefined, transfer = []) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, progress });
      this.#worker.postMessage({ id, method, args }, transfer);
    });
  }

  /** Terminates the worker and all running calls. */
  end() {
    this.#worker.terminate();
    this.#fail(Object.assign(new Error('stopped'), { code: 'STOPPED' }));
  }
}

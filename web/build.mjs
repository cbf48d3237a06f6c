// Makes one HTML file of the page: styles, scripts, the worker and the engine are in it.
//
//   node web/build.mjs ENGINE OUTPUT     ENGINE: what wasm-bindgen made with --target web
//
// scripts/build-web makes the engine and calls this.

import { build } from 'esbuild';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const [engine, output] = process.argv.slice(2);
if (!output) {
  console.error('usage: node web/build.mjs ENGINE OUTPUT');
  process.exit(2);
}
const source = path.join(path.dirname(fileURLToPath(import.meta.url)), 'src');
/** More than this is too much to wait for. */
const PACKED_BYTES_MAX = 1_500_000;

async function bundle(entry, plugins, options = {}) {
  const result = await build({
    entryPoints: [path.join(source, entry)], bundle: true, minify: true, write: false, format: 'iife', target: 'es2022',
    charset: 'utf8', legalComments: 'none', logLevel: 'warning', plugins, ...options,
  });
  return result.outputFiles[0].text;
}

/** A module that is made here. */
function made(name, contents) {
  return {
    name,
    setup(bundler) {
      bundler.onResolve({ filter: new RegExp(`^${name}$`) }, () => ({ path: name, namespace: name }));
      bundler.onLoad({ filter: /.*/, namespace: name }, () => ({ contents, loader: 'js' }));
    },
  };
}

const engineScript = path.resolve(engine, 'diskwright_wasm.js');
const engineModule = {
  name: 'engine',
  setup: (bundler) => { bundler.onResolve({ filter: /^engine$/ }, () => ({ path: engineScript })); },
};
const packed = gzipSync(await readFile(path.resolve(engine, 'diskwright_wasm_bg.wasm')), { level: 9 });
if (packed.length > PACKED_BYTES_MAX) {
  console.error(`the engine takes ${packed.length} bytes compressed, and may take ${PACKED_BYTES_MAX}`);
  process.exit(1);
}
// The engine would look for its file beside the script if it were not given it; it is.
const worker = await bundle('worker.js', [engineModule], { define: { 'import.meta.url': '""' } });
const inlined = `export const WASM_BASE64 = ${JSON.stringify(packed.toString('base64'))};\n` +
  `export const WORKER_SOURCE = ${JSON.stringify(worker)};\n`;
const script = await bundle('main.js', [made('inlined', inlined)]);
const style = await readFile(path.join(source, 'style.css'), 'utf8');
const template = await readFile(path.join(source, 'index.html'), 'utf8');
// A function, because what is put in has dollar signs.
const html = template.replace('/*STYLE*/', () => style).replace('/*SCRIPT*/', () => script.replaceAll('</script', '<\\/script'));
await writeFile(output, html);
console.log(`${output}: ${html.length} bytes, of which the engine takes ${packed.length} compressed`);

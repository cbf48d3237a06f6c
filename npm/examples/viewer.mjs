// Shows an image in a terminal: lists the files below a path, or prints a file.
//
//   node viewer.mjs IMAGE [PATH]
//   node viewer.mjs IMAGE,PARTITION [PATH]

import { open } from 'diskwright';

const [name, path = '/'] = process.argv.slice(2);
if (!name) {
  console.error('usage: node viewer.mjs IMAGE[,PARTITION] [PATH]');
  process.exit(2);
}
const [, file, partition] = /^(.*?)(?:,(\d+))?$/.exec(name);
try {
  const image = open(file, { partition: partition && Number(partition) });
  if (image.stat(path).isDirectory()) {
    for (const { path: at, entry } of image.walk(path)) {
      if (entry.error) console.log(`damaged     ${at}: ${entry.error.message}`);
      else console.log(`${entry.modeText} ${String(entry.size).padStart(12)} ${entry.mtime.toISOString()} ${at}`);
    }
  } else {
    for (const piece of image.chunks(path)) process.stdout.write(piece);
  }
  image.close();
} catch (error) {
  console.error(`${error.code}: ${error.message}`);
  process.exit(error.code === 'EUCLEAN' ? 3 : 1);
}

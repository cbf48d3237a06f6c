// The package for ES modules.
import diskwright from './index.cjs';

export const { open, format, check, layout, Image, Stat, Entry, FileDevice, MemoryDevice } = diskwright;
export default diskwright;

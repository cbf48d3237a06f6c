export * from './index.js';
import * as diskwright from './index.js';
export default diskwright;

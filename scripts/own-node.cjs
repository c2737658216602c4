/**
 * Runs at the end of `npm ci`: sees that `node` in the scripts of package.json is the Node that came with it. npm 9 and 10 delete
 * `node_modules/.bin/node` together with the package for the other processor, which they do not install.
 */
'use strict';

const { existsSync, symlinkSync } = require('node:fs');
const { join } = require('node:path');

const links = join('node_modules', '.bin');
const node = join('..', `node-linux-${process.arch}`, 'bin', 'node');
if (existsSync(join(links, node)) && !existsSync(join(links, 'node'))) symlinkSync(node, join(links, 'node'));

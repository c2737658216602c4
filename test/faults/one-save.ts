/** A process that saves one state and says how many steps it took to get so far; its disk may fail or it may be killed. */
import process from 'node:process';
import { toFailure } from '../../src/base/errors.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';

const [stateDir = '', id = ''] = process.argv.slice(2);
const state = { ...EMPTY_STATE, generatedId: id };
const store = await openStateStore(stateDir);
await store.load();
const tell = (outcome: unknown) => process.stdout.write(`${JSON.stringify(outcome)}\n`);
tell(await store.save(state).then(() => 'saved', toFailure));
// A disk that fails once is asked again by whoever has something to save: it must not be stuck.
tell(await store.save({ ...state, generatedId: `${id}-again` }).then(() => 'saved', toFailure));
await store.close();

/** The entry of `idv`. */
import { runOperatorCommand } from './commands.ts';

void runOperatorCommand(process);

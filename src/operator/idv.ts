/** The entry of `idv`. */
import { runOperatorCommand } from './commands.runner.ts';

void runOperatorCommand(process);

/** The workflows that a service lists when it refuses a registration without one. Source: assumed (code-workflow). */
import { workflowIdSchema } from './device-connection.ts';
import { parseJson } from './json.ts';
import { cleanText } from './problem.ts';

export interface WorkflowChoice {
	readonly id: string;
	/** For people; the id where the service gives none. */
	readonly name: string;
}

/** That are read, and that a message names. */
const MAX_CHOICES = 5000;
const MAX_NAMED = 20;

/** The `workflows` of a body, `[{id, name}]`; empty where it lists none. */
export function readWorkflowChoices(body: string): WorkflowChoice[] {
	const list: unknown = Object(parseJson(body)).workflows;
	if (!Array.isArray(list)) return [];
	return list.slice(0, MAX_CHOICES).flatMap((one: unknown) => {
		const { id, name } = Object(one);
		const known = workflowIdSchema.safeParse(id);
		if (!known.success) return [];
		return [{ id: known.data, name: (typeof name === 'string' && cleanText(name, 80)) || known.data }];
	});
}

/** The one that a person has named by id, or by name in any letters; without a name the only one there is. */
export function chooseWorkflow(choices: readonly WorkflowChoice[], asked: string | null): WorkflowChoice | null {
	if (asked === null) return choices.length === 1 ? (choices[0] ?? null) : null;
	const plain = (text: string) => text.trim().toLowerCase();
	const named = choices.filter(({ name }) => plain(name) === plain(asked));
	return choices.find(({ id }) => id === asked) ?? (named.length === 1 ? (named[0] ?? null) : null);
}

/** `Check in (check-in), Check out (check-out)`. */
export function listWorkflows(choices: readonly WorkflowChoice[]): string {
	const named = choices.slice(0, MAX_NAMED).map(({ id, name }) => (name === id ? id : `${name} (${id})`));
	return [...named, ...(choices.length > MAX_NAMED ? [`${choices.length - MAX_NAMED} more`] : [])].join(', ');
}

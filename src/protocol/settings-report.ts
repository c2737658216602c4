/** The answer of the local interface that tells the settings as the agent uses them, without secrets. Pure. */
import * as z from 'zod';
import { problemSummarySchema } from './local-answers.ts';

const settingRowSchema = z.object({
	path: z.string(),
	value: z.unknown().describe('In force.'),
	source: z
		.string()
		.describe(
			'default, file, environment, flag, plan, or connection: what no setting names, and the Connection is for.',
		),
	where: z.string().nullable().describe('The file or the variable.'),
	since: z.string().optional().describe('When it was taken, or the start of the agent.'),
	disk: z.unknown().optional().describe('The value on the disk, where it is another one.'),
	waitsFor: z
		.enum(['try', 'restart', 'lease', 'address'])
		.optional()
		.describe('Until when another value is not taken.'),
	refused: z.string().optional().describe('Why another value was refused.'),
});
export const settingsReportSchema = z.object({
	settings: z.array(settingRowSchema),
	problems: z.array(problemSummarySchema),
	notices: z.array(problemSummarySchema),
});
export type SettingsReport = z.infer<typeof settingsReportSchema>;

/** Orders of versions for the device of a test file: signed plans, handed over as the agent does it. */
import { createSigner } from '../fixtures/plans.ts';
import type { Device } from './device.ts';

export function ordersFor(device: () => Device) {
	const signer = createSigner();
	let revision = 0;

	async function handOver(version: string | null, isSigned = true): Promise<void> {
		revision += 1;
		const rings = [{ percent: 100, ...(version !== null && { agent: { version } }) }];
		const defaults = { rollout: { to: version === null ? { workflowId: 'document-check' } : {}, rings } };
		const plan = { format: 'idv-fleet-plan/2', revision, spreadSeconds: 0, defaults };
		await device().put('/var/lib/idv-agent/update-plan.new', JSON.stringify(isSigned ? signer.sign(plan) : plan));
		await device().machine.must('mv /var/lib/idv-agent/update-plan.new /var/lib/idv-agent/update-plan.json');
	}

	const untilApplied = () =>
		device().machine.must(
			'until systemctl show idv-agent-update --property=ActiveState | grep -q activating; do sleep 0.1; done; while systemctl is-active idv-agent-update | grep -q activating; do sleep 0.2; done',
		);

	return { signer, handOver, untilApplied };
}

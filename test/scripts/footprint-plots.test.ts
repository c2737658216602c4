import { describe, expect, test } from 'vitest';
import { drawMemory, drawTimeline } from '../../scripts/footprint-plots.ts';
import { stepsOf } from '../bench/timeline.ts';

/** As `strace -f -ttt` writes it: a shell that becomes the program, and a thread of it. */
const CALLS = `
100 1000.000000 execve("/bin/sh", ["sh"], 0x1 /* 9 vars */) = 0
100 1000.010000 openat(AT_FDCWD, "/old/state.json", O_RDONLY) = 3
100 1000.020000 execve("./agent", ["agent"], 0x1 /* 9 vars */) = 0
100 1000.050000 openat(AT_FDCWD, "/tmp/program-0123456789abcdef.cache", O_RDONLY) = 5
101 1000.061500 openat(AT_FDCWD, "/tmp/state/state.json", O_RDONLY) = 6
101 1000.070000 openat(AT_FDCWD, "/tmp/state/state.json", O_RDONLY) = 6
100 1000.080000 connect(20, {sa_family=AF_INET, sin_port=htons(1)}, 16) = -1 EINPROGRESS
100 1000.100250 write(1, "{\\"level\\":\\"info\\",\\"msg\\":\\"online\\"}\\n", 30) = 30
100 1000.2 +++ exited with 0 +++
`;

describe('the timeline of a start', () => {
	test('counts from the execution of the program itself to the first call of each step', () => {
		const steps = Object.entries(stepsOf(CALLS)).map(([name, ms]) => [name, Math.round(ms * 100) / 100]);
		expect(steps).toEqual([
			['Node runs the program', 30],
			['the state is read, its lock taken', 41.5],
			['the connection is begun', 60],
			['online', 80.25],
		]);
	});

	test('has nothing of a program that was never executed', () => {
		expect(stepsOf('100 1000.1 openat(AT_FDCWD, "/tmp/state/state.json", O_RDONLY) = 6')).toEqual({});
	});
});

/** Each bar with its length, in the order of the picture. */
const bars = (svg: string) =>
	Array.from(svg.matchAll(/<rect(?: class="own")? x="[\d.]+" y="\d+" width="([\d.]+)"/g), ([, width]) => width);

describe('the pictures', () => {
	test('draw each step from the one before, in the order of time, beside the floor where it has the step', () => {
		const svg = drawTimeline({ floor: { online: 50 }, agent: { online: 100, 'settings are read': 40 } });
		expect(svg.match(/(?:online|settings are read)(?=<\/text>)/g)).toEqual(['settings are read', 'online']);
		// 440 wide: 40 % for the first step, 60 % for the rest, 50 % for the floor.
		expect(bars(svg)).toEqual(['176.0', '264.0', '220.0']);
		expect(svg).toContain('>100.0 (F1 50.0)<');
	});

	test('draw the memory of every program, and what of it is anonymous', () => {
		const figures = (pss: number, anonymous: number) => ({
			'PSS, MiB': { value: pss, floor: 10 },
			'anonymous, MiB': { value: anonymous, floor: 5 },
		});
		const svg = drawMemory({ 'memory and idle CPU': { 'idv-agent run': figures(20, 10), other: figures(40, 2) } });
		// 420 wide for the most.
		expect(bars(svg)).toEqual(['105.0', '52.5', '210.0', '105.0', '420.0', '21.0']);
		expect(svg.match(/[\d.]+ of [\d.]+ MiB/g)).toEqual(['5.0 of 10.0 MiB', '10.0 of 20.0 MiB', '2.0 of 40.0 MiB']);
	});
});

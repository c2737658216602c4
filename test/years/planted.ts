export interface Plant {
	readonly name: string;
	readonly file: string;
	readonly from: string;
	readonly to: string;
	readonly invariant?: string;
	readonly seed?: number;
	readonly years?: string;
}
export const PLANTS: readonly Plant[] = [];

export interface Plant { readonly name: string; readonly file: string; readonly from: string; readonly to: string; }

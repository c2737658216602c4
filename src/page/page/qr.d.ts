/** What the server of the page serves as `/qr.js`. */
import type { encode as ofPackage } from 'uqr';

export declare const encode: typeof ofPackage;

/** `URL.parse`, for a Node that does not have it. @returns {URL | null} */
export const parseUrl = (text, base) => (URL.canParse(text, base) ? new URL(text, base) : null);

/** What this browser keeps of the page: small marks, and the draft, which outlives a reload and a closed tab. */

import { parse, stringify } from "./wire.js";

const NAME = "valle-serve.draft";
const FIELDS = ["text", "voice", "knobs", "tab", "a", "b", "live", "study"];

/** Return what is kept under a name, of this tab or of any; null where there is nothing, or nothing may be kept. */
export function kept(name) {
  try {
    return sessionStorage.getItem(name) ?? localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text under a name; `tab`: this tab's is told apart from that of others. */
export function keep(name, value, { tab = false } = {}) {
  try {
    localStorage.setItem(name, value);
    if (tab) sessionStorage.setItem(name, value);
  } catch {
    // A full or forbidden store: the page works without.
  }
}

/** Keep what a person was at, if it changed. */
export function keepDraft(state, before) {
  if (FIELDS.every((field) => state[field] === before[field])) return;
  keep(NAME, stringify(Object.fromEntries(FIELDS.map((field) => [field, state[field]]))), { tab: true });
}

/**
 * Whether the page begins with the request of its address. It does not where it was here before, in this tab: after a
 * reload, or by the browser's own buttons, what was changed since is worth more.
 */
export function byLink() {
  const came = performance.getEntriesByType("navigation")[0]?.type;
  return location.hash.length > 1 && !(came !== "navigate" && kept(NAME));
}

/** Return what a person was at when the page was left. */
export function draft() {
  try {
    return byLink() ? {} : parse(kept(NAME) ?? "{}");
  } catch {
    return {};
  }
}

/** Parts that several files draw with. */

import { keep, kept } from "./draft.js";
import { hooks } from "./wire.js";

const bound = htm.bind(preact.h);
const read = new Map();

/** Return the elements of a template. A line break beside a word is a space, as in HTML; htm alone drops it. */
export function html(strings, ...values) {
  if (!read.has(strings)) read.set(strings, strings.map((part) => part.replace(/([^>\s])\s*\n\s*|\s*\n\s*(?=[^<\s])/g, "$1 ")));
  return bound(read.get(strings), ...values);
}

export const { useEffect, useLayoutEffect, useMemo, useRef, useState } = preactHooks;

/** Return what draws a component anew when something changed that is not its state. */
export const useRedraw = () => preactHooks.useReducer((count) => count + 1, 0)[1];

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const parts = {};

/** Return what `load` gives of a file of the page, fetched until it comes. */
function fetched(path, load) {
  return parts[path] ??= (async () => {
    for (let attempt = 0; ; attempt++) {
      try {
        await fetch(new URL(path, import.meta.url));
        return await load(attempt ? `${path}?${attempt}` : path);
      } catch {
        hooks.away();
        await pause(1000);
      }
    }
  })();
}

/** Return a module of the page. It is imported once it can be had: a browser never asks again for one that failed. */
export const part = (path) => fetched(path, (found) => import(found));

/** Load a library that is no module: it leaves a name of its own. */
export const library = (path) => fetched(path, (found) => new Promise((resolve, reject) => {
  const script = Object.assign(document.createElement("script"), { src: new URL(found, import.meta.url), onload: resolve, onerror: reject });
  document.head.append(script);
}));

/** A component of a module that is loaded when the page is idle, or when it is first drawn. */
export function later(path, name) {
  let loaded = null;
  later.paths.add(path);
  return function Later(props) {
    const redraw = useRedraw();
    useEffect(() => { if (!loaded) part(path).then((module) => { loaded = module[name]; redraw(); }); }, []);
    return loaded ? html`<${loaded} ...${props} />` : null;
  };
}
later.paths = new Set();

export function PlayButton({ playing, name, kind = "secondary", ...rest }) {
  return html`<button type="button" class="play ${kind}" aria-label="${playing ? "Pause" : "Play"} ${name}" ...${rest}>${playing ? "❚❚" : "▶"}</button>`;
}

/** Whether a part is unfolded: as it was left in this browser, and at first as `first` says. */
export const unfolded = (app, name, first = false) => app.state.folds[name] ?? (kept(name) ? kept(name) === "open" : first);

/** A part that can be folded, and is alike wherever it is shown. */
export function Fold({ app, name, title, kind = "", first = false, children }) {
  const open = unfolded(app, name, first);
  const toggled = ({ currentTarget }) => {
    if (currentTarget.open === open) return;
    keep(name, currentTarget.open ? "open" : "closed");
    app.set({ folds: { ...app.state.folds, [name]: currentTarget.open } });
  };
  return html`<details class=${kind} open=${open} onToggle=${toggled}><summary>${title}</summary>${open && children}</details>`;
}

const LONGEST_PROBLEM = 140;

/** Return a message, or its first part where it is long. */
function briefly(text) {
  if (text.length <= LONGEST_PROBLEM) return text;
  const first = text.slice(0, LONGEST_PROBLEM);
  const end = first.slice(20).search(/[:;.] |, .*$/);
  return end < 0 ? `${first.replace(/\s\S*$/, "")} …` : first.slice(0, 20 + end);
}

/** What is wrong, in short; all of it is behind a word. */
export function Problem({ text, kind = "refusal", role = "alert", id = null }) {
  const short = briefly(text);
  return html`<div class=${kind} role=${role} id=${id}>${short}
    ${short !== text && html`<details><summary>Details</summary>${text}</details>`}</div>`;
}

/** A dialog that closes with Esc, its button, or a click beside it. */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef();
  useLayoutEffect(() => { dialog.current.showModal(); }, []);
  return html`
    <dialog ref=${dialog} aria-label=${title} onClose=${onClose} onClick=${({ target }) => target === dialog.current && onClose()}>
      <article>
        <header>
          <h2>${title}</h2>
          <button class="plain" aria-label="Close" onClick=${onClose}>✕</button>
        </header>
        ${children}
      </article>
    </dialog>`;
}

/** Return a number in a few digits. */
export function short(value) {
  if (value == null) return "";
  if (Number.isInteger(value)) return String(value); // codes are exact
  return Math.abs(value) >= 0.01 || value === 0 ? String(Number(value.toPrecision(3))) : value.toExponential(0);
}

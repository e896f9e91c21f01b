/** Parts that several files draw with. */

import { hooks } from "./wire.js";

export const html = htm.bind(preact.h);
export const { useEffect, useLayoutEffect, useMemo, useRef, useState } = preactHooks;

/** Return what draws a component anew when something changed that is not its state. */
export const useRedraw = () => preactHooks.useReducer((count) => count + 1, 0)[1];

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const parts = {};

/** Return a module of the page, fetched until it comes. It is imported once it can be had: a browser never asks again for one that failed. */
export function part(path) {
  return parts[path] ??= (async () => {
    for (let attempt = 0; ; attempt++) {
      try {
        await fetch(new URL(path, import.meta.url));
        return await import(attempt ? `${path}?${attempt}` : path);
      } catch {
        hooks.away();
        await pause(1000);
      }
    }
  })();
}

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

export function PlayButton({ playing, name, ...rest }) {
  return html`<button type="button" class="play" aria-label="${playing ? "Pause" : "Play"} ${name}" ...${rest}>${playing ? "❚❚" : "▶"}</button>`;
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

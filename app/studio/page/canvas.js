/** Lanes to draw in, as wide as there is room and as sharp as the screen. */

import { html, useLayoutEffect, useRef, useState } from "./parts.js";

export const LEFT = 52; // pixels beside the lanes, for their names and scales

export const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function useWidth(box) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const seen = new ResizeObserver(([{ contentRect }]) => setWidth(Math.floor(contentRect.width)));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  return width;
}

/** Whether the colours are the dark ones; a canvas keeps those that it was drawn in. */
export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** A canvas that is as sharp as the screen, drawn anew when what it shows changes. */
export function Canvas({ width, height, draw, seen, label }) {
  const canvas = useRef();
  const dark = isDark();
  useLayoutEffect(() => {
    const ratio = devicePixelRatio || 1;
    Object.assign(canvas.current, { width: width * ratio, height: height * ratio });
    const pen = canvas.current.getContext("2d");
    pen.scale(ratio, ratio);
    draw(pen);
  }, [width, height, dark, ...seen]);
  return html`<canvas ref=${canvas} role="img" aria-label=${label} style=${{ width: `${width}px`, height: `${height}px` }}></canvas>`;
}

export function Lane({ name, children }) {
  return html`<div class="lane"><span class="name" style=${{ width: `${LEFT}px` }}>${name}</span>${children}</div>`;
}

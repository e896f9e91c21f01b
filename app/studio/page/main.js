/** The studio's frame: its header, its panes, its dialogs, and keys that act anywhere. */

import { Dialog, html, later, useEffect, useRedraw, useRef } from "./parts.js";
import { RequestPane } from "./request.js";
import { Studio } from "./studio.js";
import { TakesPane } from "./takes.js";
import { key } from "./wire.js";

const TABS = { takes: "Takes", live: "Live", study: "Study" };
const PANES = { takes: TakesPane, live: later("./live.js", "LivePane"), study: later("./study.js", "StudyPane") };
const DIALOGS = { export: later("./export.js", "ExportDialog"), voices: later("./voices.js", "VoicesDialog"), keys: KeysHelp };

function App({ studio }) {
  const redraw = useRedraw();
  useEffect(() => {
    studio.onChange = redraw;
    studio.start();
    matchMedia("(prefers-color-scheme: dark)").onchange = redraw;
    addEventListener("keydown", (event) => keyPressed(studio, event));
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => dropped(studio, event));
  }, []);
  const { state } = studio;
  const Pane = PANES[state.tab];
  const Dialog = state.dialog && DIALOGS[state.dialog.name];
  return html`
    <header>
      <h1>valle-serve <span>studio</span></h1>
      <p class="status">${state.away ? "not connected" : state.waiting ?? state.model}</p>
      <nav aria-label="Page">
        <button class="plain" onClick=${() => studio.show("keys")} aria-label="Keyboard" title="Help with the keyboard">?</button>
        ${key.get() && html`<button class="plain" title="Forget the API key" onClick=${() => { key.forget(); studio.onChange(); }}>Forget key</button>`}
        <a href="docs">API</a>
      </nav>
    </header>
    ${state.away && html`<p class="banner" role="alert">${state.away}</p>`}
    <main>
      <${RequestPane} app=${studio} />
      <section class="right">
        <nav class="tabs" aria-label="Views">
          ${Object.entries(TABS).map(([name, title]) => html`
            <button id="tab-${name}" aria-current=${state.tab === name ? "page" : null} onClick=${() => studio.set({ tab: name })}>${title}</button>`)}
        </nav>
        ${state.service && html`<${Pane} app=${studio} />`}
      </section>
    </main>
    <p class="unseen" role="status">${state.said}</p>
    ${Dialog && html`<${Dialog} app=${studio} subject=${state.dialog.subject} />`}
    ${state.keyAsked && html`<${KeyPrompt} ...${state.keyAsked} />`}`;
}

const KEYS = [
  ["Ctrl + Enter", "speak"],
  ["Esc", "stop: the sound, or what is being made"],
  ["Space", "play or pause the open take"],
  ["X", "switch between A and B at the same word"],
  ["A, B, X", "in a blind test: play; 1 and 2 answer that X is A or B"],
  ["/", "search the knobs"],
  ["← →", "in a take: a frame back or on; with Shift ten"],
  ["Enter, G", "in a take: play, or continue, from there"],
];

function keyPressed(studio, event) {
  const { state, player } = studio;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    studio.speak();
    return;
  }
  if (event.key === "Escape") {
    if (!state.dialog && !state.keyAsked) studio.cancel();
    player.stop();
    return;
  }
  const at = (elements) => event.target.closest?.(elements);
  if (at("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const open = studio.take(state.open);
  const press = {
    "/": () => {
      const search = document.getElementById("search");
      search?.closest("details").setAttribute("open", "");
      search?.focus(); // at once: what is typed next belongs there
    },
    " ": !at("button, summary, a, [role=slider]") && open?.sound && (() => studio.toggle(open)),
    ...studio.compareKeys,
  }[event.key.toLowerCase()];
  if (!press) return;
  event.preventDefault();
  press();
}

/** A recording that is dropped on the page becomes a voice. */
function dropped(studio, event) {
  const file = event.dataTransfer?.files[0];
  if (!file) return;
  event.preventDefault();
  studio.show("voices", file);
}

function KeysHelp({ app }) {
  return html`
    <${Dialog} title="Keyboard" onClose=${() => app.show(null)}>
      <dl class="keys">${KEYS.map(([keys, does]) => html`<dt><kbd>${keys}</kbd></dt><dd>${does}</dd>`)}</dl>
    </${Dialog}>`;
}

function KeyPrompt({ answered, known }) {
  const field = useRef();
  const sent = (event) => { event.preventDefault(); answered(field.current.value.trim() || null); };
  return html`
    <${Dialog} title="API key" onClose=${() => answered(null)}>
      <form onSubmit=${sent}>
        <label for="key">${known ? "That key is not known here." : "This service asks for a key."}
          It is kept until this tab is closed.</label>
        <input id="key" type="password" autocomplete="off" ref=${field} />
        <button type="submit">Save</button>
      </form>
    </${Dialog}>`;
}

const studio = new Studio();
preact.render(html`<${App} studio=${studio} />`, document.getElementById("studio"));

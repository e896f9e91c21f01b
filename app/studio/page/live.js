/** Speech while its text is being typed: the WebSocket `valle.speech.v1`. */

import { html, Problem, useEffect, useRedraw } from "./parts.js";
import { bodyOf } from "./request.js";
import { audio, Sound } from "./sound.js";
import { int16, openSocket, parse, Refusal, stringify } from "./wire.js";

/** One response: what is typed goes out word by word, what comes back is played at once. */
class Live {
  sent = "";
  typed = "";
  sequence = 0;
  ended = false;

  constructor(app, changed) {
    Object.assign(this, { app, changed });
    const { input: _, ...options } = bodyOf(app.state);
    this.options = options;
    audio();
    this.socket = openSocket();
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.#received(parse(data)) : this.take.sound.push(int16(data)));
    this.socket.onerror = () => { this.problem ??= "The connection failed."; };
    this.socket.onclose = ({ reason, wasClean }) => this.#closed(reason, wasClean);
  }

  /** Send what was typed, up to its last whole word unless all of it is wanted. */
  type(text, { all = false } = {}) {
    if (!text.startsWith(this.sent)) {
      this.note = "What was sent is being spoken, and stays.";
      text = this.sent;
    } else this.note = null;
    this.typed = text;
    this.app.set({ live: text }); // also for a reload
    const end = all ? text.length : Math.max(this.sent.length, 1 + text.search(/\s\S*$/));
    if (this.ready && end > this.sent.length) {
      this.began ??= performance.now();
      this.#send("input_text.append", { text: text.slice(this.sent.length, end) });
      this.sent = text.slice(0, end);
    }
    this.changed();
  }

  flush() {
    this.type(this.typed, { all: true });
    if (this.ready) this.#send("input_text.flush");
  }

  end() {
    this.type(this.typed, { all: true });
    this.ended = true;
    this.#send("input_text.end");
    this.changed();
  }

  cancel() {
    this.cancelled = true;
    if (this.ready) this.socket.send(stringify({ type: "response.cancel" }));
    else this.socket.close();
    this.app.player.stop();
  }

  #send(type, more = {}) {
    this.socket.send(stringify({ type, sequence: this.sequence++, ...more }));
  }

  #received(message) {
    const act = {
      "session.created": () => {
        this.rate = message.audio.sample_rate_hz;
        this.socket.send(stringify({ type: "response.create", ...this.app.asked(this.options) }));
      },
      "response.created": () => {
        this.take = this.app.newTake({ input: "", ...this.options });
        Object.assign(this.take, { id: message.response_id, sound: new Sound(this.rate) });
        this.ready = true;
        this.type(this.typed);
      },
      "response.started": () => {
        this.take.seed = message.seed;
        this.app.meter(this.take, this.began);
      },
      "response.done": () => this.#done(message),
      error: () => {
        if (message.error.code === "idle_timeout") {
          this.note = "Nothing was typed for a while, so this ended. Type on to begin anew.";
          return;
        }
        this.problem = message.error.message;
        this.refused = !this.ready; // the next key would only be refused again
        this.app.refuse(new Refusal(422, message.error), { goes: false }); // who types goes on typing
        if (!this.ready) this.socket.close();
      },
    }[message.type];
    act?.();
    this.changed();
  }

  #done(message) {
    const { take, app } = this;
    take.sound.finish();
    take.body.input = this.sent;
    take.outcome = { cancelled: "cancelled", error: "failed" }[message.finish_reason] ?? "done";
    this.over = true;
    app.set({ live: this.typed.slice(this.sent.length).trimStart() }); // what was sent is a take now
    if (take.sound.length) {
      const { open } = app.state;
      app.add(take);
      app.set({ open: open ?? take.key });
      app.finish(take);
    }
    this.socket.close();
  }

  #closed(reason, wasClean) {
    if (!wasClean) this.app.connect(); // the page says that the service does not answer, until it does
    if (!this.over && this.take?.sound.length) this.#done({ finish_reason: "cancelled" }); // what was heard is not lost
    this.over = true;
    this.ready = false;
    this.take?.sound.finish();
    if (!this.take && !this.cancelled) this.problem ??= reason || "The connection was closed.";
    this.refused ||= !this.take && !this.cancelled;
    this.changed();
  }
}

export function LivePane({ app }) {
  const changed = useRedraw();
  const live = app.live;
  const running = live && !live.over;
  useEffect(() => {
    if (live) live.changed = changed;
    const ticking = setInterval(() => { if (live) changed(); }, 200);
    return () => clearInterval(ticking);
  }, [live]);
  const text = running ? live.typed : app.state.live;
  const start = () => {
    app.live = new Live(app, changed);
    app.live.type(app.state.live);
    document.getElementById("live").focus();
  };
  const typed = ({ target }) => {
    if (running) {
      live.type(target.value);
      target.value = live.typed;
    } else {
      app.set({ live: target.value });
      if (target.value.trim() && !live?.refused) start(); // a key is as good as a click: sound may be played
    }
  };
  const { firstSoundMs, gaps = 0, gapMs = 0 } = live?.take ?? {};
  const aheadS = running && live.take ? app.player.aheadS : 0;
  return html`
    <section class="live" aria-label="Live">
      <p class="note">Each sentence is spoken as soon as its end is certain, with the voice and settings of the request.</p>
      <label for="live">Type here</label>
      <textarea id="live" rows="5" placeholder="It speaks while you type." value=${text} readonly=${Boolean(running && live.ended)} onInput=${typed}
        onKeyDown=${(event) => { if (running && event.key === "Enter" && !event.shiftKey && !event.ctrlKey) live.flush(); }}></textarea>
      <div class="actions">
        ${running
          ? html`<button onClick=${() => live.flush()} disabled=${!live.ready || live.ended}>Speak now</button>
              <button class="secondary" onClick=${() => live.end()} disabled=${!live.ready || live.ended}>Finish</button>
              <button class="secondary" onClick=${() => live.cancel()}>Cancel</button>`
          : text && html`<button onClick=${start}>Speak this text</button>`}
      </div>
      ${live?.note && html`<p class="note" role="status">${live.note}</p>`}
      ${live?.over && live.take?.sound.length > 0 && html`<p class="note" role="status">This is now take ${live.take.number}.</p>`}
      ${live?.problem && html`<${Problem} text=${live.problem} />`}
      <p class="meters" aria-label="Meters">
        <span>first sound <b>${firstSoundMs ? `${Math.round(firstSoundMs)} ms` : "–"}</b></span>
        <span>gaps <b>${gaps}</b>${gaps > 0 && `, ${Math.round(gapMs)} ms`}</span>
        <span>buffered <b>${aheadS.toFixed(1)} s</b></span>
        <span>sent <b>${running ? live.sent.length : 0}</b> of ${text.length} characters</span>
      </p>
    </section>`;
}

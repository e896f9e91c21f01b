/** Parts that several files draw with. */

const html = htm.bind(preact.h);
const { useEffect, useLayoutEffect, useReducer, useRef } = preactHooks;

/** A component of a module that is loaded when it is first drawn. */
export function later(load, name) {
  let loaded = null;
  return function Later(props) {
    const [, redraw] = useReducer((count) => count + 1, 0);
    useEffect(() => { if (!loaded) load().then((module) => { loaded = module[name]; redraw(); }); }, []);
    return loaded ? html`<${loaded} ...${props} />` : null;
  };
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

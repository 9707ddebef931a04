// Brings the page's explorables to life without a kernel, a widget manager or another host.
// The page holds each widget's state as JSON; an explorable's state carries its own code (_esm) and style (_css).
(() => {
  const MIME = "application/vnd.jupyter.widget-";
  const models = new Map(), modules = new Map(), styles = new Set(), used = new Set();

  function makeModel(state) {
    const listeners = new Map();
    const fire = (name, ...args) => (listeners.get(name) ?? []).forEach((call) => call(...args));
    return {
      get: (key) => state[key],
      set(key, value) {
        for (const [k, v] of typeof key === "object" ? Object.entries(key) : [[key, value]]) {
          if (Object.is(state[k], v)) continue;
          state[k] = v;
          fire(`change:${k}`, this, v);
          fire("change", this);
        }
      },
      on(names, call) {
        for (const name of names.split(/\s+/)) listeners.set(name, [...(listeners.get(name) ?? []), call]);
      },
      off(name, call) {
        if (!name) return listeners.clear();
        listeners.set(name, call ? (listeners.get(name) ?? []).filter((f) => f !== call) : []);
      },
      save_changes() {}, // there is no kernel to tell
      send() {},
    };
  }

  function load(code) {
    if (!modules.has(code)) {
      const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
      modules.set(code, import(url).then(async ({ default: made }) => (typeof made === "function" ? made() : made)));
    }
    return modules.get(code);
  }

  async function open(id, state) {
    const model = makeModel(state), widget = await load(state._esm);
    await widget.initialize?.({ model });
    return { model, widget };
  }

  // The still picture that stands before this widget, and before no other.
  function stillOf(el) {
    const before = [...document.querySelectorAll(".explorable-still")].filter(
      (still) => still.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_FOLLOWING && !used.has(still));
    const still = before.at(-1);
    before.forEach((each) => used.add(each));
    return still && (still.closest("figure, .cell_output") ?? still);
  }

  async function show(script, states) {
    const { model_id: id } = JSON.parse(script.textContent);
    const state = states[id]?.state;
    const el = document.createElement("div");
    el.className = "explorable";
    script.after(el);
    const still = stillOf(el);
    try {
      if (!state?._esm) throw new Error("this page holds no code for it");
      if (state._css && !styles.has(state._css)) {
        styles.add(state._css);
        document.head.appendChild(document.createElement("style")).textContent = state._css;
      }
      if (!models.has(id)) models.set(id, open(id, state));
      const { model, widget } = await models.get(id);
      await widget.render({ model, el });
      el.dataset.alive = "yes";
      still?.classList.add("explorable-replaced");
    } catch (error) {
      el.classList.add("explorable-broken");
      el.textContent = `This explorable could not start: ${error.message}`;
    }
  }

  const saved = document.querySelector(`script[type="${MIME}state+json"]`);
  const states = saved ? JSON.parse(saved.textContent).state : {};
  for (const { state, buffers = [] } of Object.values(states)) {
    for (const { path, data } of buffers) { // binary traits travel as base64
      const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
      path.slice(0, -1).reduce((at, key) => at[key], state)[path.at(-1)] = new DataView(bytes.buffer);
    }
  }
  for (const { state } of Object.values(states)) { // a page holds once what several widgets share
    if (state._css?.of) state._css = states[state._css.of].state._css;
    const { of, length, then } = state._esm ?? {};
    if (of) state._esm = states[of].state._esm.slice(0, length) + then;
  }
  document.querySelectorAll(`script[type="${MIME}view+json"]`).forEach((script) => show(script, states));
})();

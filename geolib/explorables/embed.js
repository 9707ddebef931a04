// Ends a module that any page can import: the explorable's render, with its first values and its style inside.
// A host's model may be empty or missing: anywidget in MyST, marimo or Jupyter hands one over, plain HTML none.
function plainModel(values) {
  const calls = new Map(), all = (name) => calls.get(name) ?? calls.set(name, new Set()).get(name);
  return {
    get: (name) => values[name],
    set(name, value) {
      if (Object.is(values[name], value)) return;
      values[name] = value;
      for (const call of all(`change:${name}`)) call(this, value);
    },
    on: (name, call) => all(name).add(call),
    off: (name, call) => (call ? all(name).delete(call) : all(name).clear()),
    save_changes() {},
  };
}

/** The host's model, with first values where it has none. */
function filled(model) {
  return {
    get: (name) => model.get(name) ?? START[name],
    set: (name, value) => model.set(name, value),
    on: (name, call) => model.on(name, call),
    off: (name, call) => model.off(name, call),
    save_changes: () => model.save_changes?.(),
  };
}

/** Draw into `el`. `state` gives first values where there is no model; values that are not allowed are left out. */
function renderAnywhere({ el, model, state = {} }) {
  const box = el.appendChild(document.createElement("div"));
  box.className = "explorable embedded";
  box.appendChild(document.createElement("style")).textContent = STYLE;
  const close = render({ el: box, model: model ? filled(model) : plainModel({ ...START, ...sift(state, RULES).good }) });
  return () => {
    close?.();
    box.remove();
  };
}

export default { render: renderAnywhere };

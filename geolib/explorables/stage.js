// The stage of an explorable: redrawing, themes, speech, values that figures of a page share, the text that moves it.
import { html } from "./common.js";
import { goalLine } from "./goal.js";
import { answerText } from "./moves.js";

function pageIsDark() {
  const { documentElement: page, body } = document;
  const named = page.dataset.theme ?? page.getAttribute("theme"); // the book; Colab
  if (named === "dark" || named === "light") return named === "dark";
  const lab = body.dataset.jpThemeLight; // JupyterLab
  if (lab !== undefined) return lab === "false";
  if (body.dataset.vscodeThemeKind) return body.dataset.vscodeThemeKind.includes("dark");
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * The place an explorable draws in. `names` are the model's values it depends on; `draw(values)` runs at most once a
 * frame after any of them, the size or the theme has changed. `speak(text)` tells a screen reader once the hand rests;
 * `change(values)` sends values to the model; `close()` undoes everything. A page's address may set a goal: for a number
 * of the model, or for one of `measures`, functions of the values by name. The model's `share` maps names of values to
 * names that the whole page knows: a value changes with all others of the same shared name.
 */
export function stage({ model, el }, names, css) {
  // A notebook takes the keys that move sliders for its own cells unless it is asked not to, and never sees them.
  const root = html("div", { class: "geo", "data-lm-suppress-shortcuts": "true" }, el), still = model.get("_still");
  if (still) document.querySelectorAll(`.${still}`).forEach((each) => { each.hidden = true; }); // see _widget.py
  root.addEventListener("geo-reset", () => redraw());
  root.addEventListener("keydown", (event) => {
    if (/^(Arrow|Home|End|Page|Enter| )/.test(event.key)) event.stopPropagation();
  });
  html("style", {}, root, css);
  const spoken = html("div", { class: "geo-hidden", "aria-live": "polite" }, root);
  const read = () => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  let frame = 0, speech = 0, draw = () => {}, text = null, judge = null;

  const redraw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw(read());
      judge?.();
      text?.refresh();
    });
  };
  const change = (values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  };
  const speak = (said) => {
    clearTimeout(speech);
    speech = setTimeout(() => { spoken.textContent = said; }, 600);
  };
  const theme = () => {
    root.dataset.theme = pageIsDark() ? "dark" : "light";
    redraw();
  };
  const tell = names.map((name) => () => {
    const detail = { shared: model.get("share")?.[name], value: model.get(name), from: root };
    if (detail.shared) window.dispatchEvent(new CustomEvent("geo-share", { detail }));
  });
  const hear = ({ detail: { shared, value, from } }) => {
    for (const name of names) {
      const other = from !== root && model.get("share")?.[name] === shared;
      if (!other || JSON.stringify(model.get(name)) === JSON.stringify(value)) continue;
      model.set(name, value);
      model.save_changes();
    }
  };
  const sizes = new ResizeObserver(redraw);
  const themes = new MutationObserver(theme);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const watched = { attributeFilter: ["data-theme", "theme", "data-jp-theme-light", "data-vscode-theme-kind"] };
  theme();
  sizes.observe(root);
  for (const part of [document.documentElement, document.body]) themes.observe(part, watched);
  scheme.addEventListener("change", theme);
  window.addEventListener("geo-share", hear);
  names.forEach((name, i) => {
    model.on(`change:${name}`, redraw);
    model.on(`change:${name}`, tell[i]);
  });

  return {
    root,
    read,
    change,
    speak,
    start(drawing, measures = {}) {
      draw = drawing;
      draw(read());
      const name = (model.get("_anywidget_id") ?? "").split(".").at(-2) ?? "";
      const numbers = names.filter((each) => typeof model.get(each) === "number");
      const goal = goalLine(root, name, [...numbers, ...Object.keys(measures)]);
      judge = goal && (() => goal(read(), measures));
      text = answerText({ model, root, names, change, speak });
    },
    close() {
      cancelAnimationFrame(frame);
      clearTimeout(speech);
      text?.close();
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", theme);
      window.removeEventListener("geo-share", hear);
      names.forEach((name, i) => {
        model.off(`change:${name}`, redraw);
        model.off(`change:${name}`, tell[i]);
      });
      root.remove();
    },
  };
}

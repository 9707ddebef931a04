// What a reader writes, and what a reader takes along: a field for text, a picture of a figure as a file.
import { html } from "./common.js";

/**
 * A labelled field for text of at most `most` letters, of several lines with `rows`. `onInput(text)` runs on each
 * change; `update(text)` sets it from outside and leaves the cursor alone where nothing changed.
 */
export function field(parent, { label, most, rows = 0, onInput }) {
  const id = "geo-" + Math.random().toString(36).slice(2, 12), row = html("div", { class: "geo-control" }, parent);
  html("label", { for: id }, row, label);
  const plain = { id, maxlength: most, autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
  const input = rows ? html("textarea", { ...plain, rows }, row) : html("input", { ...plain, type: "text" }, row);
  input.addEventListener("input", () => onInput(input.value));
  input.addEventListener("keydown", (event) => event.stopPropagation()); // a notebook has keys of its own
  return { row, input, update(text) { if (input.value !== text) input.value = text; } };
}

/** A PNG of what `paint(pen)` draws on a sheet of so many pixels, at twice their number, saved under a name. */
export function savePicture(name, width, height, paint) {
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  pen.scale(2, 2);
  paint(pen);
  return new Promise((done) => canvas.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    done(blob.size);
  }, "image/png"));
}

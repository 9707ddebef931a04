// A goal from the page's address: ?goal=clock.score:-1&class=spring asks a figure to bring a value there, and pays a word.
import { html, show } from "./common.js";

/** The goal that an address sets the figure `name`, which has the values `known`: { value, target, class }, or null. */
export function readGoal(search, name, known) {
  const asked = new URLSearchParams(search), found = /^([a-z]+)\.([a-z_]+):(-?\d+(?:\.\d+)?)$/.exec(asked.get("goal") ?? "");
  if (!found || found[1] !== name || !known.includes(found[2])) return null;
  return { value: found[2], target: Number(found[3]), class: asked.get("class") ?? "" };
}

/** The word for a goal reached: the same for all of a class, so that a teacher who reaches the goal can check it. */
export function goalWord(name, { value, target, class: group }) {
  let code = 0x811c9dc5; // FNV-1a
  for (const letter of `${name}.${value}:${target} ${group}`) code = Math.imul(code ^ letter.codePointAt(0), 0x01000193) >>> 0;
  return [0, 1, 2, 3].map((i) => "bdfgklmnprstvz"[(code >>> (8 * i)) % 14] + "aeiou"[(code >>> (8 * i + 4)) % 5]).join("");
}

/**
 * A line below a figure with a goal, and what judges the values of a redraw: a goal is reached within 2 % of it or of 1.
 * Null where the address sets this figure no goal.
 */
export function goalLine(root, name, known) {
  const goal = readGoal(location.search, name, known);
  if (!goal) return null;
  const asked = `${goal.value.replaceAll("_", " ")} = ${show(goal.target, 3, true)}`;
  const line = html("p", { class: "geo-goal", role: "status" }, root, `Goal: bring this figure to ${asked}.`);
  let reached = false;
  return (values, measures) => {
    const now = measures[goal.value]?.(values) ?? values[goal.value];
    if (reached || !(Math.abs(now - goal.target) <= 0.02 * Math.max(1, Math.abs(goal.target)))) return;
    reached = true;
    line.textContent = `Goal reached: ${asked}. The word is ${goalWord(name, goal)}.`;
  };
}

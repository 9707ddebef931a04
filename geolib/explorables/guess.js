// A guess before the answer: buttons under the question, "?" where the answer will stand, a tick at the right one.
import { html, pick } from "./common.js";

/**
 * A row of guesses: `options` are [value, text] pairs, `onGuess()` runs after each. `update(done, right)` says whether
 * what was asked has happened, and which guess is right, null for none; from the first time on `open` is true: the
 * answer is shown, the guess stays pressed beside it, and what is pressed from then on is none. `since(value)` is the
 * value as it was when this was asked, or since `begin()`. The figure's Reset asks anew.
 */
export function wager(parent, options, onGuess = () => {}) {
  let guess = null, first;
  const { row, update: press } = pick(parent, "Your guess", options, (value) => {
    if (it.open) return;
    press(guess = value);
    onGuess();
  });
  row.classList.add("geo-wager");
  row.prepend(html("span", { class: "geo-soft" }, null, "Your guess:"));
  const buttons = [...row.querySelectorAll("button")];
  const it = {
    row,
    open: false,
    since: (value) => (first ??= value),
    begin() { first = undefined; },
    update(done, right) {
      it.open ||= done;
      buttons.forEach((each, i) => {
        each.setAttribute("aria-disabled", String(it.open));
        each.classList.toggle("right", it.open && options[i][0] === right);
      });
    },
    /** What to tell about it: nothing before there is a guess and an answer. */
    said(right) {
      const text = (value) => options.find(([each]) => each === value)?.[1];
      if (!it.open || guess === null || !text(right)) return "";
      return guess === right ? ` You guessed it: ${text(right)}.` : ` You guessed: ${text(guess)}.`;
    },
    askAgain() {
      [guess, first, it.open] = [null, undefined, false];
      press(null);
    },
  };
  it.askAgain();
  parent.closest(".geo").addEventListener("geo-reset", it.askAgain);
  return it;
}

/** The answer, or a question mark as long as it is open. */
export const sealed = (bet, answer) => (bet.open ? answer : "?");

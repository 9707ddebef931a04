// A guess before the answer: buttons under the question, "?" where the answer will stand, a tick at the right one.
import { html, pick } from "./common.js";

/**
 * A row of guesses: `options` are [value, text] pairs, `onGuess()` runs after each. `update(done, right)` says whether
 * what was asked has happened, and which guess is right, null for none; from the first time on `open` is true: the
 * answer is shown, the guess stays pressed beside it.
 */
export function wager(parent, options, onGuess = () => {}) {
  let guess = null;
  const { row, update } = pick(parent, "Your guess", options, (value) => {
    guess = value;
    update(value);
    onGuess();
  });
  row.classList.add("geo-wager");
  row.prepend(html("span", { class: "geo-soft" }, null, "Your guess:"));
  update(null);
  const buttons = [...row.querySelectorAll("button")];
  return {
    row,
    open: false,
    update(done, right) {
      this.open ||= done;
      buttons.forEach((each, i) => each.classList.toggle("right", this.open && options[i][0] === right));
    },
    /** What to tell about it: nothing before there is a guess and an answer. */
    said(right) {
      const text = (value) => options.find(([each]) => each === value)?.[1];
      if (!this.open || guess === null || !text(right)) return "";
      return guess === right ? ` You guessed it: ${text(right)}.` : ` You guessed: ${text(guess)}.`;
    },
  };
}

/** The answer, or a question mark as long as it is open. */
export const sealed = (bet, answer) => (bet.open ? answer : "?");

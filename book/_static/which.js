// Which encoding?: the five questions are buttons. Those answered with yes narrow the table to the methods that serve.
(() => {
  const list = document.querySelector("#five-questions > ol");
  const table = [...document.querySelectorAll("table")].find(({ tHead }) => tHead?.textContent.includes("question"));
  if (!list || !table) return;
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === "question");
  const rows = [...table.tBodies[0].rows], yes = new Set();
  const serves = rows.map((row) => new Set(row.cells[column].textContent.match(/\d/g)));
  list.insertAdjacentHTML("afterend", `<p class="asked"><span role="status" aria-live="polite"></span>
    <a href="#${table.closest("section").id}">The table</a> <button type="button" class="quiet">Show all</button></p>`);
  const [count, , all] = list.nextElementSibling.children;
  const buttons = [...list.querySelectorAll(":scope > li > p > strong:first-child")].map((words, i) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "question" });
    button.textContent = words.textContent;
    words.replaceWith(button);
    button.addEventListener("click", () => narrow(yes.delete(i + 1) || yes.add(i + 1)));
    return button;
  });
  all.addEventListener("click", () => {
    narrow(yes.clear());
    buttons[0].focus();
  });

  function narrow() {
    const kept = rows.filter((row, i) => !(row.hidden = ![...yes].every((each) => serves[i].has(String(each)))));
    const names = kept.map((row) => row.cells[0].textContent.trim()).join(", ");
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(yes.has(i + 1))));
    all.hidden = !yes.size;
    count.textContent = yes.size ? `${kept.length} of ${rows.length} methods serve ${[...yes].sort().join(" and ")}`
      + (names ? `: ${names}.` : ". What does is said beside the question.")
      : "Press the questions that you answer with yes: the table keeps what serves.";
  }
  narrow();
})();
